//! A row's losses and the gradient of the objective by the heads' outputs.
//!
//! | | equation |
//! |---|---|
//! | CE_i | 1/4 sum_b - sum_k m_k ln p_k, m the target, p of the action taken |
//! | KL_i | 1/4 sum_b sum_k m_k (ln m_k - ln p_k): the TD error |
//! | gap_i | 1/4 sum_b (sum_k m_k z_k - Q_b) |
//! | CQL_i | 1/4 sum_b (ln sum_a exp Q_{b,a} - Q_b(a_b)) (Kumar et al. 2020, equation 4) |
//!
//! J = mean_i (w_i CE_i) + alpha_cql mean_i CQL_i. By the logit of atom k of action a:
//!
//! d_{a,k} = \[a = a_b\] w_i / (4 B) (p_k sum_j m_j - m_k) + alpha_cql / (4 B) (pi_a - \[a = a_b\]) p_k (z_k - Q_a)
//!
//! with pi = softmax of Q over actions, since dQ / dlogit_k = p_k (z_k - Q). Through the dueling sum, dV_k = sum_a d_{a,k} and
//! dA_{a,k} = d_{a,k} - mean_a d_{a,k}. Without CQL its terms are left out, and CQL_i is 0.
//!
//! ln p = logit - greatest - ln sum exp(logit - greatest): no probability is clamped, and logits of +-80 lose nothing.
//!
//! **The row is staged in shared memory**: read once, by 16 bytes a lane, whatever K is; each lane then writes the gradient
//! where it read the outputs, and the row leaves as operands, four at a time.

use cuda_std::prelude::*;
use shared_types::Precision;
use shared_types::market::N_BRANCHES;

use super::q::{ActionValues, put_actions};
use super::slots::{Distributions, Slots, by_lanes};
use crate::heads::{HeadColumns, STRIDE_MAX};
use crate::{lanes, math, operand};

/// Columns of `row_losses`.
pub mod row_loss {
    /// w_i CE_i.
    pub const WEIGHTED_CE: usize = 0;
    /// KL_i.
    pub const TD: usize = 1;
    /// gap_i squared.
    pub const SQUARED_GAP: usize = 2;
    /// CQL_i, without alpha_cql; 0 without CQL.
    pub const CQL: usize = 3;
    /// Columns.
    pub const N: usize = 4;
}

/// Losses of each row, and the gradient of their objective by the heads' outputs.
///
/// heads are the online net's at s; columns of no group are read and not used, and their gradient is 0. Shapes: heads, dheads
/// (operands) `[B, stride]`; actions, weights `[B]`; targets `[B, 4, K]`; atoms `[4, K]`; row_losses `[B, 4]`, see [`row_loss`]; q
/// `[B, 13]`. With `cql` 0 there is no CQL, whatever `alpha_cql`. Launch: [`lanes::row_shape`] (B, lanes).
#[kernel(cooperative, max_threads = 256)]
pub fn c51_loss(
    heads: GlobalSlice<f32>,
    actions: GlobalSlice<[u8; 4]>,
    targets: GlobalSlice<f32>,
    weights: GlobalSlice<f32>,
    atoms: GlobalSlice<f32>,
    columns: HeadColumns,
    cql: u32,
    alpha_cql: f32,
    dheads: GlobalSliceMut<u16>,
    row_losses: GlobalSliceMut<f32>,
    q: GlobalSliceMut<f32>,
    precision: Precision,
) {
    let block = shared_slice![f32; lanes::ROWS_A_BLOCK * STRIDE_MAX];
    let n_rows = actions.len();
    let Some(row) = lanes::row_index(n_rows) else { return };
    let place = thread::thread_idx_y() as usize * STRIDE_MAX;
    let (n_atoms, stride) = (columns.n_atoms as usize, columns.stride as usize);
    let staged = block.sub(place..place + stride);
    stage(&heads, row, &staged, &columns);
    let weight = weights.get(row);
    let of_row = RowInputs {
        actions: actions.get(row),
        targets: targets.sub(row * N_BRANCHES * n_atoms..(row + 1) * N_BRANCHES * n_atoms),
        atoms: atoms.sub(0..atoms.len()),
        columns,
        weighted: weight / (N_BRANCHES * n_rows) as f32,
        conservative: alpha_cql / (N_BRANCHES * n_rows) as f32,
    };
    // The whole launch takes the same way here.
    let outputs = if cql != 0 { by_lanes!(with_cql(&of_row, staged)) } else { by_lanes!(without_cql(&of_row, staged)) };
    if thread::thread_idx_x() == 0 {
        let [ce, kl, gap, cql] = outputs.means;
        row_losses.store(row_loss::N * row, [weight * ce, kl, gap * gap, cql]);
        put_actions(&q, row, outputs.q);
    }
    // Between each lane's writes of its atoms and everyone's reads of all columns.
    lanes::sync_row();
    let mut at = 4 * thread::thread_idx_x() as usize;
    while at < stride {
        operand::store4(&dheads, row * stride + at, staged.load(at), precision);
        at += 4 * lanes::of_row();
    }
}

/// Copies a row of heads to shared memory, 0 in the columns of no group.
#[inline(always)]
fn stage(heads: &GlobalSlice<f32>, row: usize, staged: &SharedSlice<f32>, columns: &HeadColumns) {
    let (lane, n_lanes) = (thread::thread_idx_x() as usize, lanes::of_row());
    let mut at = 4 * lane;
    while at < staged.len() {
        staged.store(at, heads.load::<4>(row * staged.len() + at));
        at += 4 * n_lanes;
    }
    // Between the copy and everyone's reads and writes of single columns.
    lanes::sync_row();
    let clear = |group: usize, start: u32, next: u32| {
        let mut at = start as usize + columns.width(group) + lane;
        while at < next as usize {
            staged.set(at, 0.0);
            at += n_lanes;
        }
    };
    // One by one: an array that is indexed at run time would lie in local memory.
    let [value, direction, size, order, hold] = columns.start;
    clear(0, value, direction);
    clear(1, direction, size);
    clear(2, size, order);
    clear(3, order, hold);
    clear(4, hold, columns.stride);
}

/// What a row's losses are made of, besides its heads.
struct RowInputs<'a> {
    actions: [u8; 4],
    /// Of the row, `[4, K]`.
    targets: GlobalSlice<'a, f32>,
    atoms: GlobalSlice<'a, f32>,
    columns: HeadColumns,
    /// w_i / (4 B).
    weighted: f32,
    /// alpha_cql / (4 B).
    conservative: f32,
}

/// A row's results, the same in all lanes.
struct RowOutputs {
    /// CE_i, KL_i, gap_i, CQL_i.
    means: [f32; 4],
    q: ActionValues,
}

/// Sums over branches, for each slot or, the last two, for the row.
struct Sums<const SLOTS: usize> {
    ce: [f32; SLOTS],
    kl: [f32; SLOTS],
    target_mean: [f32; SLOTS],
    q_taken: f32,
    cql: f32,
}

#[inline(always)]
fn with_cql<const LANES: usize, const SLOTS: usize>(inputs: &RowInputs, staged: SharedSlice<f32>) -> RowOutputs {
    row_losses_and_gradient::<LANES, SLOTS, true>(inputs, staged)
}

#[inline(always)]
fn without_cql<const LANES: usize, const SLOTS: usize>(inputs: &RowInputs, staged: SharedSlice<f32>) -> RowOutputs {
    row_losses_and_gradient::<LANES, SLOTS, false>(inputs, staged)
}

#[inline(always)]
fn row_losses_and_gradient<const LANES: usize, const SLOTS: usize, const CQL: bool>(
    inputs: &RowInputs,
    staged: SharedSlice<f32>,
) -> RowOutputs {
    let slots = Slots::<LANES, SLOTS>::new(inputs.columns.n_atoms as usize);
    let mut sums = Sums { ce: [0.0; SLOTS], kl: [0.0; SLOTS], target_mean: [0.0; SLOTS], q_taken: 0.0, cql: 0.0 };
    let q = (
        branch::<LANES, SLOTS, 4, CQL>(&slots, 0, inputs, &staged, &mut sums),
        branch::<LANES, SLOTS, 3, CQL>(&slots, 1, inputs, &staged, &mut sums),
        branch::<LANES, SLOTS, 3, CQL>(&slots, 2, inputs, &staged, &mut sums),
        branch::<LANES, SLOTS, 3, CQL>(&slots, 3, inputs, &staged, &mut sums),
    );
    let [ce, kl, target_mean] = slots.sums(&[sums.ce, sums.kl, sums.target_mean]);
    let means = [ce, kl, target_mean - sums.q_taken, sums.cql].map(|sum| sum * (1.0 / N_BRANCHES as f32));
    RowOutputs { means, q }
}

/// Adds a branch to the sums, puts its gradient in the place of its outputs, and gives its Q.
#[inline(always)]
fn branch<const LANES: usize, const SLOTS: usize, const N: usize, const CQL: bool>(
    slots: &Slots<LANES, SLOTS>,
    branch: usize,
    inputs: &RowInputs,
    staged: &SharedSlice<f32>,
    sums: &mut Sums<SLOTS>,
) -> [f32; N] {
    let (columns, taken) = (&inputs.columns, inputs.actions[branch] as usize);
    let target = slots.load(|atom| inputs.targets.get(branch * columns.n_atoms as usize + atom));
    let d = slots.distributions::<N>(&inputs.atoms, columns, branch, |column| staged.get(column));
    let of_taken = Taken::of(&d, taken);
    let log_mass = math::ln_normal(of_taken.mass);
    for slot in 0..SLOTS {
        let m = target[slot];
        let log_p = of_taken.shifted[slot] - log_mass;
        // 0 ln p is 0, also where ln p is -inf; a NaN is no 0 and stays.
        sums.ce[slot] -= if m == 0.0 { 0.0 } else { m * log_p };
        // m ln m of a subnormal m is under 1e-35, and would need a logarithm of its own.
        let surprise = math::ln_normal(m) - log_p;
        sums.kl[slot] += if m < f32::MIN_POSITIVE { 0.0 } else { m * surprise };
        sums.target_mean[slot] += m * d.z[slot];
    }
    sums.q_taken += of_taken.q;

    let is_taken = |action: usize| if action == taken { 1.0 } else { 0.0 };
    let mut by_q = [0.0; N];
    if CQL {
        let policy = Policy::of(&d.q);
        sums.cql += policy.log_sum_exp_less(of_taken.q);
        for action in 0..N {
            by_q[action] = inputs.conservative * (policy.probabilities[action] - is_taken(action));
        }
    }

    let [target_mass] = slots.sums(&[target]);
    let mut pull = [[0.0; SLOTS]; N];
    let mut all = [0.0; SLOTS];
    for action in 0..N {
        let by_target = inputs.weighted * is_taken(action);
        for slot in 0..SLOTS {
            let p = d.weights[action][slot] * d.share[action];
            let by_target = by_target * (p * target_mass - target[slot]);
            let by_logit = if CQL { by_q[action] * p * (d.z[slot] - d.q[action]) + by_target } else { by_target };
            pull[action][slot] = by_logit;
            all[slot] += by_logit;
        }
    }
    for slot in 0..SLOTS {
        if slots.holds(slot) {
            let atom = slots.atom(slot);
            staged.set(columns.value(branch) + atom, all[slot]);
            for (action, pull) in pull.iter().enumerate() {
                staged.set(columns.advantage(branch, action) + atom, pull[slot] - all[slot] * (1.0 / N as f32));
            }
        }
    }
    d.q
}

/// The distribution of the action that was taken.
struct Taken<const SLOTS: usize> {
    shifted: [f32; SLOTS],
    mass: f32,
    q: f32,
}

impl<const SLOTS: usize> Taken<SLOTS> {
    #[inline(always)]
    fn of<const N: usize>(d: &Distributions<SLOTS, N>, taken: usize) -> Self {
        let mut of = Self { shifted: d.shifted[0], mass: d.mass[0], q: d.q[0] };
        for action in 1..N {
            // By comparison: an index would put the distributions into local memory.
            let is_taken = action == taken;
            of.mass = if is_taken { d.mass[action] } else { of.mass };
            of.q = if is_taken { d.q[action] } else { of.q };
            for slot in 0..SLOTS {
                of.shifted[slot] = if is_taken { d.shifted[action][slot] } else { of.shifted[slot] };
            }
        }
        of
    }
}

/// softmax of Q over a branch's actions.
struct Policy<const N: usize> {
    probabilities: [f32; N],
    top: f32,
    mass: f32,
}

impl<const N: usize> Policy<N> {
    #[inline(always)]
    fn of(q: &[f32; N]) -> Self {
        let mut top = q[0];
        for q in &q[1..] {
            top = top.max(*q);
        }
        let (mut probabilities, mut mass) = ([0.0; N], 0.0);
        for action in 0..N {
            probabilities[action] = math::exp_nonpositive(q[action] - top);
            mass += probabilities[action];
        }
        let share = 1.0 / mass;
        for probability in &mut probabilities {
            *probability *= share;
        }
        Self { probabilities, top, mass }
    }

    /// ln sum_a exp Q_a - `q`.
    #[inline(always)]
    fn log_sum_exp_less(&self, q: f32) -> f32 {
        (self.top - q) + math::ln_normal(self.mass)
    }
}
