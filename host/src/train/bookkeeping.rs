//! What the host does with what a step told.

use std::ops::ControlFlow;
use std::time::Instant;

use super::skips::Skips;
use crate::progress::{Progress, Status};
use crate::step::Published;

/// An epoch's. No call, and no text, lock or allocation but for a bar, once a tick.
pub struct Bookkeeping<'a> {
    /// What is shown.
    pub status: &'a mut Status,
    /// Where.
    pub progress: &'a mut Progress,
    /// Updates that were skipped in a row.
    pub skips: &'a mut Skips,
    /// Steps of the fold before the epoch.
    pub steps_before: u64,
    /// When the epoch's steps began.
    pub started: Instant,
}

impl Bookkeeping<'_> {
    /// Takes in what a step told; breaks when too many were skipped.
    pub fn see(&mut self, published: &Published) -> ControlFlow<()> {
        self.status.loss = f64::from(published.readback.total_loss);
        // Finished ones: the device may be steps behind what was launched.
        let done = u64::from(published.step).saturating_sub(self.steps_before);
        self.status.steps_per_s = done as f64 / self.started.elapsed().as_secs_f64();
        self.progress.update(self.status);
        self.skips.see(published);
        if self.skips.too_many() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    }
}
