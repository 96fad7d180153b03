//! AdamW (Loshchilov and Hutter 2019, algorithm 2, the decay multiplied by the learning rate), norm and clip (section 6.7).

use std::ops::Range;

use crate::layout::{Group, Tensors};
use crate::matrix::norm;

/// Rates of the two moments.
pub const BETAS: (f64, f64) = (0.9, 0.999);
/// Added to the root of the second moment.
pub const ADAM_EPSILON: f64 = 1e-8;

/// Moments of Adam, for all parameters.
#[derive(Clone, Debug, PartialEq)]
pub struct Moments {
    /// First moment m.
    pub first: Tensors,
    /// Second moment v.
    pub second: Tensors,
}

/// One element: returns (w, m, v) after the step. `t` counts applied updates from 1;
/// w -= lr (m_hat / (sqrt(v_hat) + eps) + decay w).
pub fn adam_element(w: f64, gradient: f64, m: f64, v: f64, t: u64, lr: f64, decay: f64) -> (f64, f64, f64) {
    let m = BETAS.0 * m + (1.0 - BETAS.0) * gradient;
    let v = BETAS.1 * v + (1.0 - BETAS.1) * gradient * gradient;
    let m_hat = m / (1.0 - BETAS.0.powf(t as f64));
    let v_hat = v / (1.0 - BETAS.1.powf(t as f64));
    (w - lr * (m_hat / (v_hat.sqrt() + ADAM_EPSILON) + decay * w), m, v)
}

/// Updates a group in place: gradients times `scale`, weight decay on its decaying tensors.
pub fn update_group(
    params: &mut Tensors,
    grads: &Tensors,
    moments: &mut Moments,
    (group, scale): (Group, f64),
    t: u64,
    lr: f64,
    weight_decay: f64,
) {
    let tensors: Vec<(Range<usize>, bool)> =
        params.layout.of(group).map(|tensor| (tensor.range(), tensor.decays)).collect();
    for (range, decays) in tensors {
        for i in range {
            let decay = if decays { weight_decay } else { 0.0 };
            let (first, second) = (&mut moments.first.flat[i], &mut moments.second.flat[i]);
            let (w, m, v) = adam_element(params.flat[i], scale * grads.flat[i], *first, *second, t, lr, decay);
            params.flat[i] = w;
            (*first, *second) = (m, v);
        }
    }
}

/// Norm of a group's gradient.
pub fn group_norm(grads: &Tensors, group: Group) -> f64 {
    norm(grads.group(group))
}

/// min(1, clip / norm).
pub fn clip_scale(norm: f64, clip: f64) -> f64 {
    if norm > clip { clip / norm } else { 1.0 }
}

/// Clip of theta: the control clip at the first applied update, then min(control clip, 2 clip_ema).
pub fn adaptive_clip(control_clip: f64, clip_ema: Option<f64>) -> f64 {
    clip_ema.map_or(control_clip, |ema| control_clip.min(2.0 * ema))
}

/// theta' + tau (theta - theta'), over the target's range.
pub fn target_ema(target: &mut Tensors, params: &Tensors, tau: f64) {
    for i in target.layout.target_range() {
        target.flat[i] += tau * (params.flat[i] - target.flat[i]);
    }
}
