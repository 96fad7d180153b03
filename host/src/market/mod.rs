//! The market on the device: bars, features, environments, evaluation.
//!
//! | file | holds | lives |
//! |---|---|---|
//! | [`walk_forward`] | which bars train, validate and test | - |
//! | [`rules`] | costs, episodes, rewards: what the configuration says of trading | - |
//! | [`series`] | an uploaded series and its unscaled features | a run |
//! | [`fold`] | scaled features, environment bars, bar sigma | a run, refitted in place for each fold |
//! | [`environments`] | the parallel environments of collection | a run, reset for each fold |
//! | [`paths`] | evaluation paths and baselines | an evaluation |
//!
//! Launches come as (shape, launch), so that a graph, a test and a benchmark record the same.

pub mod environments;
pub mod fold;
pub mod paths;
pub mod rules;
pub mod series;
pub mod walk_forward;

use cuda_std::launch::Launch;
use cuda_std::shape::LaunchShape;

use crate::device::{Device, Module, Stream};
use crate::error::DeviceError;

/// A launch with its shape.
pub type Step = (LaunchShape, Launch);

/// A device with the kernels loaded and a stream, for work outside the graphs.
#[derive(Clone, Copy)]
pub struct Runner<'a> {
    /// The device.
    pub device: &'a Device,
    /// The kernels.
    pub module: &'a Module,
    /// Where they run.
    pub stream: &'a Stream,
}

impl Runner<'_> {
    /// Launches the steps, one after the other.
    #[track_caller]
    pub fn run(&self, steps: impl IntoIterator<Item = Step>) -> Result<(), DeviceError> {
        // A loop, as a closure would be the ledger's place of every launch.
        for (shape, launch) in steps {
            self.stream.launch(self.module, shape, launch)?;
        }
        Ok(())
    }
}
