//! IQL's value heads (Kostrikov, Nair, Levine 2022, arXiv:2110.06169, equation 5) and PopArt (van Hasselt et al. 2016,
//! arXiv:1602.07714, proposition 1).
//!
//! Head: H -> 128 (SiLU) -> 1 on h held constant, predicting (q - mu) / std; V = std out + mu.
//! On purpose unlike the paper: q is the online pass's own mean Q of the actions taken.

use crate::activation::{silu, silu_slope};
use crate::layout::Tensors;
use crate::matrix::{Matrix, mean};
use crate::precision::Precision;

/// Rate of PopArt's moving averages.
pub const POPART_RATE: f64 = 0.01;
/// Lower bound of PopArt's std.
pub const POPART_MIN_STD: f64 = 1e-4;

/// Loss |e - 1(target - value < 0)| (target - value)^2 and its derivative with respect to value.
pub fn expectile_loss(expectile: f64, target: f64, value: f64) -> (f64, f64) {
    let gap = target - value;
    let weight = (expectile - f64::from(u8::from(gap < 0.0))).abs();
    (weight * gap * gap, -2.0 * weight * gap)
}

/// What a head's forward pass leaves.
#[derive(Clone, Debug)]
pub struct ValuePass {
    h: Matrix,
    pre: Matrix,
    hidden: Matrix,
    /// Raw outputs `[B]`.
    pub outputs: Vec<f64>,
}

/// Runs head `name` (`iql_high` or `iql_low`) on h `[B, H]`. The one-output layer is in f32 in the kernels, so never rounded.
pub fn forward(precision: Precision, p: &Tensors, name: &str, h: &Matrix) -> ValuePass {
    let mut pre = precision.linear(h, &p.matrix(&format!("{name}.hidden.weight")));
    pre.add_to_rows(p.slice(&format!("{name}.hidden.bias")));
    let hidden = pre.map(silu);
    let mut output = Precision::Exact.linear(&hidden, &p.matrix(&format!("{name}.out.weight")));
    output.add_to_rows(p.slice(&format!("{name}.out.bias")));
    ValuePass { h: h.clone(), pre, hidden, outputs: output.values }
}

/// Mean expectile loss of the raw outputs against normalised targets, and its gradient with respect to the outputs.
pub fn loss(pass: &ValuePass, expectile: f64, targets: &[f64]) -> (f64, Vec<f64>) {
    let n = targets.len() as f64;
    let both: Vec<(f64, f64)> =
        pass.outputs.iter().zip(targets).map(|(value, target)| expectile_loss(expectile, *target, *value)).collect();
    (both.iter().map(|x| x.0).sum::<f64>() / n, both.iter().map(|x| x.1 / n).collect())
}

/// Adds the gradients of the head's parameters to `grads`.
pub fn backward(
    precision: Precision,
    p: &Tensors,
    name: &str,
    pass: &ValuePass,
    doutputs: &[f64],
    grads: &mut Tensors,
) {
    let doutput = Matrix::from_values(doutputs.len(), 1, doutputs.to_vec());
    let tensor = |part: &str| format!("{name}.{part}");
    grads.add(&tensor("out.bias"), &doutput.sum_of_rows());
    grads.add(&tensor("out.weight"), &Precision::Exact.linear_dw(&doutput, &pass.hidden).values);
    let dhidden = Precision::Exact.linear_dx(&doutput, &p.matrix(&tensor("out.weight")));
    let dpre = dhidden.zip(&pass.pre, |d, x| d * silu_slope(x));
    grads.add(&tensor("hidden.bias"), &dpre.sum_of_rows());
    grads.add(&tensor("hidden.weight"), &precision.linear_dw(&dpre, &pass.h).values);
}

/// PopArt's statistics of q, one set for both heads.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PopArt {
    /// Mean and mean square; `None` before the first batch.
    pub moments: Option<(f64, f64)>,
}

impl PopArt {
    /// Mean: 0 before the first batch.
    pub fn mean(&self) -> f64 {
        self.moments.map_or(0.0, |(mu, _)| mu)
    }

    /// max(sqrt(nu - mu^2), 1e-4); 1 before the first batch.
    pub fn std(&self) -> f64 {
        self.moments.map_or(1.0, |(mu, nu)| (nu - mu * mu).max(0.0).sqrt().max(POPART_MIN_STD))
    }

    /// Takes in a batch of q; the first one seeds the averages.
    pub fn updated(&self, q: &[f64]) -> Self {
        let batch = (mean(q), mean(&q.iter().map(|x| x * x).collect::<Vec<_>>()));
        let blend = |old: f64, new: f64| old + POPART_RATE * (new - old);
        let moments = self.moments.map_or(batch, |(mu, nu)| (blend(mu, batch.0), blend(nu, batch.1)));
        Self { moments: Some(moments) }
    }

    /// (q - mu) / std.
    pub fn normalised(&self, q: f64) -> f64 {
        (q - self.mean()) / self.std()
    }

    /// std out + mu.
    pub fn value(&self, output: f64) -> f64 {
        self.std() * output + self.mean()
    }

    /// Rescales the last layer of head `name`, so that its values under `new` are those under `self`:
    /// w' = w std / std', b' = (std b + mu - mu') / std'.
    pub fn rescale(&self, new: &Self, p: &mut Tensors, name: &str) {
        for w in p.slice_mut(&format!("{name}.out.weight")) {
            *w *= self.std() / new.std();
        }
        let bias = &mut p.slice_mut(&format!("{name}.out.bias"))[0];
        *bias = (self.std() * *bias + self.mean() - new.mean()) / new.std();
    }
}
