//! Gradual magnitude pruning (Zhu and Gupta 2017, arXiv:1710.01878, equation 1), each tensor by its own threshold, as in the paper.

use crate::config::PruneSchedule;
use crate::layout::Tensors;

/// Bits of |w| that choose its bin, of the 31 below the sign.
const BIN_SHIFT: u32 = 15;

/// Sparsity at `step`: final (1 - (1 - progress)^3), progress from start to end.
pub fn sparsity(schedule: &PruneSchedule, step: u64) -> f64 {
    let length = schedule.end.saturating_sub(schedule.start).max(1) as f64;
    let progress = (step.saturating_sub(schedule.start) as f64 / length).min(1.0);
    schedule.final_sparsity * (1.0 - (1.0 - progress).powi(3))
}

/// Whether masks are renewed at `step`.
pub fn is_due(schedule: &PruneSchedule, step: u64) -> bool {
    schedule.final_sparsity > 0.0
        && step >= schedule.start
        && step <= schedule.end
        && step.is_multiple_of(schedule.every)
}

/// Bin of a weight: the top 16 of the 31 bits of |w| as f32.
pub fn bin(w: f64) -> u32 {
    (w as f32).abs().to_bits() >> BIN_SHIFT
}

/// The highest bin edge with at most `share` of the weights under it. A weight is under the edge when its bin is lower.
pub fn threshold_bin(weights: &[f64], share: f64) -> u32 {
    let mut bins: Vec<u32> = weights.iter().map(|&w| bin(w)).collect();
    bins.sort_unstable();
    let allowed = (share * weights.len() as f64).floor() as usize;
    // Any edge above the bin at position `allowed` would have more than `allowed` weights under it.
    bins.get(allowed).copied().unwrap_or(1 << 16)
}

/// Renews the mask of every prunable tensor: 0 under the threshold, 1 elsewhere.
pub fn renew_masks(params: &Tensors, masks: &mut Tensors, share: f64) {
    for tensor in params.layout.tensors.iter().filter(|tensor| tensor.prunable) {
        let threshold = threshold_bin(&params.flat[tensor.range()], share);
        for i in tensor.range() {
            masks.flat[i] = if bin(params.flat[i]) < threshold { 0.0 } else { 1.0 };
        }
    }
}

/// Multiplies by the masks, in the prunable tensors.
pub fn apply_masks(values: &mut Tensors, masks: &Tensors) {
    for tensor in masks.layout.tensors.iter().filter(|tensor| tensor.prunable) {
        for i in tensor.range() {
            values.flat[i] *= masks.flat[i];
        }
    }
}

/// Share of prunable weights that are masked.
pub fn masked_share(masks: &Tensors) -> f64 {
    let prunable = || masks.layout.tensors.iter().filter(|tensor| tensor.prunable);
    let n: usize = prunable().map(|tensor| tensor.len()).sum();
    let kept: f64 = prunable().map(|tensor| masks.flat[tensor.range()].iter().sum::<f64>()).sum();
    1.0 - kept / n as f64
}
