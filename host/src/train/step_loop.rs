//! The hot path: what runs between the first step of an epoch and its last.

use std::ops::ControlFlow;

use crate::device::Stream;
use crate::device::ledger::{self, Phase};
use crate::error::DeviceError;
use crate::graph::ParentGraph;
use crate::step::{Published, ReadbackReader};

/// This file, as the ledger names the place of its launches.
pub const FILE: &str = file!();

/// What there is between two steps: it launches the step and reads what the latest finished one told, and can do nothing else. It
/// borrows the whole trainer, so that nothing else of the trainer's can be reached as long as it lives.
///
/// No copy:
///
/// ```compile_fail,E0599
/// # use host::{error::DeviceError, train::StepLoop};
/// fn hot(mut steps: StepLoop) -> Result<(), DeviceError> {
///     steps.launch()?;
///     steps.bus()?;
///     Ok(())
/// }
/// ```
///
/// No launch of anything else, and no wait:
///
/// ```compile_fail,E0616
/// # use host::{error::DeviceError, train::StepLoop};
/// fn hot(steps: StepLoop) -> Result<(), DeviceError> {
///     steps.stream.synchronize()
/// }
/// ```
///
/// Nothing of the trainer's beside it:
///
/// ```compile_fail,E0502
/// # use host::{error::DeviceError, train::{Trainer, TrainError}};
/// fn hot(trainer: &mut Trainer) -> Result<(), TrainError> {
///     let mut steps = trainer.step_loop();
///     steps.launch()?;
///     trainer.finish_steps()?;
///     Ok(steps.launch()?)
/// }
/// ```
///
/// And what it can do:
///
/// ```
/// # use host::{error::DeviceError, train::{Trainer, TrainError}};
/// fn hot(trainer: &mut Trainer) -> Result<(), TrainError> {
///     let mut steps = trainer.step_loop();
///     steps.launch()?;
///     println!("{:?}", steps.published());
///     Ok(steps.launch()?)
/// }
/// ```
pub struct StepLoop<'a> {
    pub(super) graph: &'a ParentGraph,
    pub(super) stream: &'a Stream,
    pub(super) reader: &'a ReadbackReader,
    pub(super) steps_done: &'a mut u64,
}

impl StepLoop<'_> {
    /// Launches a training step: one call of the driver.
    pub fn launch(&mut self) -> Result<(), DeviceError> {
        *self.steps_done += 1;
        self.graph.launch(self.stream)
    }

    /// What the latest finished step told: plain loads from mapped memory.
    pub fn published(&self) -> Option<Published> {
        self.reader.read()
    }

    /// An epoch's steps. After each launch `seen` gets what the latest finished step told, which may be several launches back, and
    /// may end the epoch there; whether it did.
    pub fn run(
        mut self,
        n_steps: u32,
        mut seen: impl FnMut(&Published) -> ControlFlow<()>,
    ) -> Result<ControlFlow<()>, DeviceError> {
        let _hot = ledger::phase(Phase::Step);
        for _ in 0..n_steps {
            self.launch()?;
            if let Some(published) = self.published()
                && seen(&published).is_break()
            {
                return Ok(ControlFlow::Break(()));
            }
        }
        Ok(ControlFlow::Continue(()))
    }
}
