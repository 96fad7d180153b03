//! What the reference's tests share: numbers without a pattern, central differences, a small problem.

use std::sync::Arc;

use reference::config::{BRANCH_SIZES, N_BRANCHES, Sizes};
use reference::init::initial_values;
use reference::layout::{Layout, Tensors};
use reference::matrix::{Matrix, norm};
use reference::step::{Batch, Draws};

/// Greatest relative error of a gradient against central differences.
pub const GRADIENT_TOLERANCE: f64 = 1e-6;

/// SplitMix64 (Steele, Lea, Flood 2014): a source of its own, so that a fault of Philox cannot hide.
pub struct Numbers(pub u64);

impl Numbers {
    pub fn word(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// In [0, 1).
    pub fn uniform(&mut self) -> f64 {
        (self.word() >> 11) as f64 * 2f64.powi(-53)
    }

    /// In [-scale, scale).
    pub fn signed(&mut self, scale: f64) -> f64 {
        scale * (2.0 * self.uniform() - 1.0)
    }

    pub fn below(&mut self, n: usize) -> usize {
        (self.uniform() * n as f64) as usize
    }

    pub fn vector(&mut self, n: usize, scale: f64) -> Vec<f64> {
        (0..n).map(|_| self.signed(scale)).collect()
    }

    pub fn matrix(&mut self, n_rows: usize, n_cols: usize, scale: f64) -> Matrix {
        Matrix::from_fn(n_rows, n_cols, |_, _| self.signed(scale))
    }

    pub fn actions(&mut self, n: usize) -> Vec<[usize; N_BRANCHES]> {
        (0..n).map(|_| BRANCH_SIZES.map(|size| self.below(size))).collect()
    }

    /// Rows that are positive and sum to 1.
    pub fn distributions(&mut self, n_rows: usize, n_cols: usize) -> Matrix {
        let mut m = Matrix::from_fn(n_rows, n_cols, |_, _| 0.05 + self.uniform());
        for i in 0..n_rows {
            let sum: f64 = m.row(i).iter().sum();
            m.row_mut(i).iter_mut().for_each(|x| *x /= sum);
        }
        m
    }
}

/// Initial values moved off everything special: no bias at 0, no gain at 1, no last layer at a hundredth.
pub fn lively_parameters(sizes: &Sizes, seed: u64) -> Tensors {
    let layout = Arc::new(Layout::new(sizes));
    let mut p = initial_values(&layout, seed);
    let mut numbers = Numbers(seed);
    for tensor in &layout.tensors {
        for x in &mut p.flat[tensor.range()] {
            *x += numbers.signed(0.4);
        }
    }
    p
}

/// Central differences of `f` at `x`, element by element, of fourth order:
/// (f(x - 2h) - 8 f(x - h) + 8 f(x + h) - f(x + 2h)) / 12h.
///
/// Step 3e-4: truncation is of order h^4 = 1e-14 and rounding of order 1e-16 |f| / h = 1e-12, so that gradients down to 1e-5 are
/// resolved to 1e-6 of their size. Points within 2h of a kink would show as an error, never hide one.
pub fn central_differences(x: &[f64], mut f: impl FnMut(&[f64]) -> f64) -> Vec<f64> {
    const H: f64 = 3e-4;
    let mut at = x.to_vec();
    (0..x.len())
        .map(|i| {
            let mut value_at = |shift: f64| {
                at[i] = x[i] + shift;
                f(&at)
            };
            let near = value_at(H) - value_at(-H);
            let far = value_at(2.0 * H) - value_at(-2.0 * H);
            at[i] = x[i];
            (8.0 * near - far) / (12.0 * H)
        })
        .collect()
}

/// Requires |analytic - numeric| <= 1e-6 |numeric| and a gradient that is not zero.
pub fn assert_gradient(what: &str, analytic: &[f64], numeric: &[f64]) {
    let difference: Vec<f64> = analytic.iter().zip(numeric).map(|(a, n)| a - n).collect();
    let size = norm(numeric);
    assert!(size > 1e-7, "{what}: the gradient is zero ({size:e}), so nothing is tested");
    let relative = norm(&difference) / size;
    println!("{what}: relative error {relative:.1e}, {:.4} of the tolerance", relative / GRADIENT_TOLERANCE);
    assert!(relative <= GRADIENT_TOLERANCE, "{what}: relative error {relative:e}\n{analytic:?}\n{numeric:?}");
}

/// Checks every tensor of `analytic` whose name begins with one of `prefixes` against differences of `f`.
pub fn assert_tensor_gradients(p: &Tensors, analytic: &Tensors, prefixes: &[&str], f: impl Fn(&Tensors) -> f64) {
    let mut n_checked = 0;
    for tensor in p.layout.tensors.iter().filter(|t| prefixes.iter().any(|prefix| t.name.starts_with(prefix))) {
        let numeric = central_differences(p.slice(&tensor.name), |values| {
            let mut moved = p.clone();
            moved.slice_mut(&tensor.name).copy_from_slice(values);
            f(&moved)
        });
        assert_gradient(&tensor.name, analytic.slice(&tensor.name), &numeric);
        n_checked += 1;
    }
    assert!(n_checked > 0, "no tensor begins with {prefixes:?}");
}

/// Checks that two numbers agree to `tolerance`, absolutely.
pub fn assert_close(what: &str, got: f64, want: f64, tolerance: f64) {
    assert!((got - want).abs() <= tolerance, "{what}: got {got}, want {want}, tolerance {tolerance:e}");
}

/// A batch of plausible rows and its draws.
pub fn random_batch(sizes: &Sizes, n_batch: usize, seed: u64) -> (Batch, Draws) {
    let mut numbers = Numbers(seed);
    let mut states = numbers.matrix(n_batch, sizes.state_dim(), 2.0);
    let mut next_states = numbers.matrix(n_batch, sizes.state_dim(), 2.0);
    for i in 0..n_batch {
        let goal = 2.0 * numbers.uniform();
        states[(i, sizes.state_dim() - 1)] = goal;
        next_states[(i, sizes.state_dim() - 1)] = goal;
    }
    let batch = Batch {
        actions: numbers.actions(n_batch),
        rewards: numbers.vector(n_batch, 1.0),
        dones: (0..n_batch).map(|i| i % 11 == 3).collect(),
        n_steps: (0..n_batch).map(|_| 1 + numbers.below(3) as u32).collect(),
        achieved: numbers.vector(n_batch, 1.0),
        weights: (0..n_batch).map(|_| 0.2 + 0.8 * numbers.uniform()).collect(),
        relabelled: (0..n_batch).map(|i| i % 4 == 1).collect(),
        states,
        next_states,
    };
    let draws = Draws {
        depth_uniforms: vec![0.3; sizes.blocks],
        denoise_normals: numbers.matrix(n_batch, sizes.features, 1.7),
        causal_uniform: 0.4,
    };
    (batch, draws)
}
