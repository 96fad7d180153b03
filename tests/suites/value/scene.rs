//! Rows of heads' outputs, and what they are in float64.
//!
//! Bounds, with u = 2^-24 and M the greatest |V| and |A|. A logit A + (V - mean A) takes at most 10 u M: three additions of the
//! mean's sum, its factor and product, two sums of at most 2 M and 3 M. Less the greatest logit, which is off as much, a
//! number of at most 6 M is rounded: 26 u M for ln p, and so relatively for p, to which add the exponential (4 u) of p itself
//! and of the sum, the sum's 11 additions and the division: (26 M + 22) u.

use gpu_kernels::heads::{HeadColumns, N_ACTIONS};
use onegraph_tests::lab::Numbers;
use reference::atoms::atoms;
use reference::c51::Distributions;
use reference::config::{BRANCH_SIZES, N_BRANCHES};
use reference::matrix::Matrix;

/// 2^-24: half of the distance of 1 and the next f32.
pub const U: f64 = 1.0 / 16_777_216.0;

/// Numbers of atoms around half a warp's slots, a whole one and the limit.
pub const ATOMS: [usize; 6] = [2, 5, 32, 33, 51, 64];

/// Relative error of a probability whose logits are made of values up to `m`.
pub fn p_error(m: f64) -> f64 {
    (26.0 * m + 22.0) * U
}

/// Error of a mean return: the probabilities', and of the products and sums.
pub fn q_error(m: f64, z_max: f64) -> f64 {
    z_max * (p_error(m) + 16.0 * U)
}

/// Outputs of the heads for some rows. Columns of no group are NaN, so that a use of one is seen.
pub struct Heads {
    pub columns: HeadColumns,
    pub n_rows: usize,
    pub values: Vec<f32>,
    /// Bound on the values.
    pub m: f64,
}

impl Heads {
    /// Values up to `m` either way.
    pub fn random(numbers: &mut Numbers, n_rows: usize, n_atoms: usize, m: f64) -> Self {
        Self::from_fn(n_rows, n_atoms, m, |_, _| (m * (2.0 * numbers.unit() - 1.0)) as f32)
    }

    /// Value of (row, column) for the columns of a group.
    pub fn from_fn(n_rows: usize, n_atoms: usize, m: f64, mut value: impl FnMut(usize, usize) -> f32) -> Self {
        let columns = HeadColumns::new(n_atoms);
        let stride = columns.stride as usize;
        let mut values = vec![f32::NAN; n_rows * stride];
        for row in 0..n_rows {
            for column in used_columns(&columns) {
                values[row * stride + column] = value(row, column);
            }
        }
        Self { columns, n_rows, values, m }
    }

    /// Every action of every branch with these logits (V = A), which are exact where they are 0.
    pub fn of_logits(n_rows: usize, logits: &[f32]) -> Self {
        let n_atoms = logits.len();
        let columns = HeadColumns::new(n_atoms);
        Self::from_fn(n_rows, n_atoms, 1.0, |_, column| {
            let group = (0..5).rev().find(|group| column >= columns.start[*group] as usize).expect("the first is at 0");
            logits[(column - columns.start[group] as usize) % n_atoms]
        })
    }

    pub fn n_atoms(&self) -> usize {
        self.columns.n_atoms as usize
    }

    /// Index of a column in `values`.
    pub fn at(&self, row: usize, column: usize) -> usize {
        row * self.columns.stride as usize + column
    }

    /// Values in float64.
    pub fn exact(&self) -> Vec<f64> {
        self.values.iter().map(|value| *value as f64).collect()
    }

    /// The distributions in float64.
    pub fn distributions(&self, atoms: &[Vec<f64>]) -> Distributions {
        distributions(&self.columns, &self.exact(), atoms)
    }
}

/// Columns that belong to a group.
pub fn used_columns(columns: &HeadColumns) -> Vec<usize> {
    (0..5).flat_map(|g| columns.start[g] as usize..columns.start[g] as usize + columns.width(g)).collect()
}

/// Distributions of heads `[R, stride]` in float64: V_b + A_{b,a} - mean_a A_{b,a}.
pub fn distributions(columns: &HeadColumns, heads: &[f64], atoms: &[Vec<f64>]) -> Distributions {
    let (k, stride) = (columns.n_atoms as usize, columns.stride as usize);
    let logits: Vec<Matrix> = (0..N_BRANCHES)
        .map(|b| {
            let n = BRANCH_SIZES[b];
            Matrix::from_fn(heads.len() / stride, n * k, |row, j| {
                let of = |column: usize| heads[row * stride + column];
                let advantage = |a: usize| of(columns.advantage(b, a) + j % k);
                let mean = (0..n).map(advantage).sum::<f64>() / n as f64;
                of(columns.value(b) + j % k) + advantage(j / k) - mean
            })
        })
        .collect();
    Distributions::new(&logits, atoms)
}

/// Atoms of each branch in `[-10, 10]`, of random spacing up to `spread` either way, as f32 holds them.
pub fn random_atoms(numbers: &mut Numbers, n_atoms: usize, spread: f64) -> Vec<f32> {
    (0..N_BRANCHES)
        .flat_map(|_| {
            let spacing: Vec<f64> = (1..n_atoms).map(|_| spread * (2.0 * numbers.unit() - 1.0)).collect();
            atoms(&spacing, (-10.0, 10.0))
        })
        .map(|z| z as f32)
        .collect()
}

/// Atoms `[4, K]` as the reference takes them.
pub fn exact_atoms(atoms: &[f32]) -> Vec<Vec<f64>> {
    atoms.chunks(atoms.len() / N_BRANCHES).map(|z| z.iter().map(|z| *z as f64).collect()).collect()
}

/// Random actions.
pub fn random_actions(numbers: &mut Numbers, n_rows: usize) -> Vec<[u8; 4]> {
    (0..n_rows).map(|_| std::array::from_fn(|b| numbers.below(BRANCH_SIZES[b]) as u8)).collect()
}

/// Actions as the reference takes them.
pub fn exact_actions(actions: &[[u8; 4]]) -> Vec<[usize; N_BRANCHES]> {
    actions.iter().map(|action| action.map(usize::from)).collect()
}

/// Q of all actions in the order of the kernels, `[R, 13]`.
pub fn all_q(d: &Distributions) -> Vec<f64> {
    let q = d.all_q();
    assert_eq!(q.len(), d.q[0].n_rows * N_ACTIONS);
    q
}
