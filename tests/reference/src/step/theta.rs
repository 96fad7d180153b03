//! What becomes of theta's gradient before AdamW: mask, vaccine, mask, norm, clip.

use super::State;
use crate::adam::{adaptive_clip, clip_scale, group_norm};
use crate::config::Config;
use crate::isv::index;
use crate::layout::{Group, Tensors};
use crate::pruning;
use crate::schedule::Counters;
use crate::vaccine::{Vaccine, vaccine};

/// Child graph `adam_grad`: what becomes of theta's gradient.
#[derive(Clone, Debug)]
pub struct ThetaUpdate {
    /// Pruning masks, renewed if due.
    pub masks: Tensors,
    /// Gradient after the first mask: the next snapshot.
    pub masked: Vec<f64>,
    /// Comparison with the snapshot, if there was one.
    pub vaccine: Option<Vaccine>,
    /// Gradient after the vaccine and the second mask.
    pub gradient: Tensors,
    /// Its norm.
    pub norm: f64,
    /// Clip.
    pub clip: f64,
    /// min(1, clip / norm).
    pub scale: f64,
}

impl ThetaUpdate {
    pub(super) fn new(config: &Config, before: &State, counters: &Counters, gradient: &Tensors) -> Self {
        let on = &config.learners;
        let range = gradient.layout.range(Group::Theta);
        let mut masks = before.masks.clone();
        if on.pruning && pruning::is_due(&config.prune, counters.rng_step) {
            pruning::renew_masks(&before.params, &mut masks, pruning::sparsity(&config.prune, counters.rng_step));
        }
        let mut gradient = gradient.clone();
        pruning::apply_masks(&mut gradient, &masks);
        let masked = gradient.flat[range.clone()].to_vec();
        let vaccine = before
            .snapshot
            .as_ref()
            .filter(|_| on.vaccine)
            .and_then(|snapshot| vaccine(&masked, snapshot, before.vaccine_phi, config.vaccine_weight));
        if let (Some(vaccine), Some(snapshot)) = (&vaccine, &before.snapshot) {
            for (g, s) in gradient.flat[range].iter_mut().zip(snapshot) {
                *g += vaccine.multiple * s;
            }
        }
        pruning::apply_masks(&mut gradient, &masks);
        let norm = group_norm(&gradient, Group::Theta);
        let ema = before.isv.seeded(index::CLIP_EMA).filter(|_| on.adaptive_clip);
        let clip = adaptive_clip(config.clip, ema);
        Self { masks, masked, vaccine, gradient, norm, clip, scale: clip_scale(norm, clip) }
    }
}
