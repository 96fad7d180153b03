//! Between epochs: the priorities of the transitions that were scored longest ago, worked out anew.
//!
//! By the children's own launches on B rows at a time, with keep probabilities in place of stochastic depth, without modulation
//! and without hindsight.

use gpu_kernels::c51::{td_error_bf16, td_error_bf16_shape};
use gpu_kernels::rescore::{stalest_transitions, stalest_transitions_shape};

use super::{StepParts, ddqn, forward, per_priority, per_sample};
use crate::config::Config;
use crate::device::{Buffer, Device};
use crate::error::DeviceError;
use crate::market::Step;

/// Memory of a re-scoring.
pub struct Rescoring {
    /// The slots, a whole number of batches.
    indices: Buffer<u32>,
    /// \[1\], 0: no row is gated.
    open: Buffer<u32>,
    /// \[B\], 0: no row is relabelled.
    as_stored: Buffer<u8>,
    /// \[1\], that an error was no number; nobody reads it, since no step's flags are meant.
    flag: Buffer<u32>,
}

impl Rescoring {
    /// For `per.rescore` transitions.
    pub fn new(device: &Device, config: &Config) -> Result<Self, DeviceError> {
        let n_rows = (config.per.rescore as usize).next_multiple_of(config.batch);
        Ok(Self {
            indices: device.alloc_zeroed(n_rows)?,
            open: device.alloc_zeroed(1)?,
            as_stored: device.alloc_zeroed(config.batch)?,
            flag: device.alloc_zeroed(1)?,
        })
    }

    /// Scores the stalest of `n_filled` transitions. The batch and what is made of it are scratch.
    pub fn launches(&self, parts: &StepParts<'_>, n_filled: u32) -> Vec<Step> {
        let (agent, memory, n) = (parts.agent, parts.memory, n_filled.min(parts.config.per.rescore));
        if n == 0 {
            return Vec::new();
        }
        let (batch, lanes) = (parts.config.batch, parts.device.row_lanes());
        let last_scored = parts.replay.ring.last_scored.view();
        let stalest =
            stalest_transitions::launch(last_scored, agent.counters.view(), n_filled, n, self.indices.view_mut());
        let mut steps = vec![(stalest_transitions_shape(lanes), stalest)];
        for first in (0..n as usize).step_by(batch) {
            let rows = || self.indices.slice(first..first + batch);
            steps.extend(per_sample::gather(parts, rows()));
            steps.extend(ddqn::targets(parts, &agent.keep));
            steps.extend(forward::loss(parts, &agent.keep));
            let (losses, open, as_stored) = (memory.row_losses.view(), self.open.view(), self.as_stored.view());
            let (errors, flag) = (memory.td_errors.view_mut(), self.flag.view_mut());
            let td = td_error_bf16::launch(losses, open, as_stored, errors, flag);
            steps.push((td_error_bf16_shape(batch), td));
            steps.extend(per_priority::priorities(parts, rows()));
        }
        steps
    }
}
