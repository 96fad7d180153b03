//! What may go wrong in training.

use std::path::PathBuf;

use crate::error::DeviceError;
use crate::eval::EvalError;
use crate::interrupt::Interrupted;
use crate::market::rules::RulesError;
use crate::market::walk_forward::WalkForwardError;
use crate::run::{CheckpointId, RunError};
use crate::text::{shown, shown_path};

/// Why training stopped, or did not begin.
#[derive(Debug, thiserror::Error)]
pub enum TrainError {
    /// The device.
    #[error(transparent)]
    Device(#[from] DeviceError),
    /// The user stopped it.
    #[error(transparent)]
    Interrupted(#[from] Interrupted),
    /// Too few bars for the folds.
    #[error(transparent)]
    WalkForward(#[from] WalkForwardError),
    /// Too few bars in a part.
    #[error(transparent)]
    Rules(#[from] RulesError),
    /// The run's folder.
    #[error(transparent)]
    Run(#[from] RunError),
    /// A checkpoint that is whole but of another run.
    #[error("{}: {}; resume the run that it belongs to, or start a new one", shown_path(path), shown(reason))]
    Checkpoint {
        /// Its folder.
        path: PathBuf,
        /// What does not fit.
        reason: String,
    },
    /// No checkpoint to test.
    #[error(
        "fold {0} has no checkpoint that validation chose: its training is not done, or the folder was changed; go on with \
         `train --resume`, or name a checkpoint"
    )]
    NoCandidate(u32),
    /// Nothing was learned for many steps in a row.
    #[error(
        "{steps} steps in a row up to step {last} of fold {} were skipped, for values that are not finite ({causes}): training \
         stopped. What was learned up to the last update that was applied is in {}, whole, and `train --resume` goes on from \
         there; if it stops again, look for such values in the data (`data inspect`), or start anew with a lower `lr`",
        .id.fold, shown_path(checkpoint)
    )]
    Skipped {
        /// How many.
        steps: u32,
        /// The last of them, in its fold.
        last: u64,
        /// What was met where.
        causes: String,
        /// The epoch that was cut short.
        id: CheckpointId,
        /// Its checkpoint.
        checkpoint: PathBuf,
    },
    /// The device finished its steps and told nothing.
    #[error(
        "the device finished its steps but published nothing; run it with ONEGRAPH_CHECK=1 on the CPU and report it"
    )]
    NothingPublished,
}

impl From<EvalError> for TrainError {
    fn from(error: EvalError) -> Self {
        match error {
            EvalError::Device(error) => Self::Device(error),
            EvalError::Interrupted(error) => Self::Interrupted(error),
        }
    }
}

impl TrainError {
    /// Whether the input is to blame: the program then exits with 2.
    pub fn is_bad_input(&self) -> bool {
        match self {
            Self::WalkForward(_) | Self::Rules(_) | Self::Checkpoint { .. } | Self::NoCandidate(_) => true,
            // A disk that is full is not.
            Self::Run(error) => error.bad_input,
            Self::Device(_) | Self::Interrupted(_) | Self::NothingPublished | Self::Skipped { .. } => false,
        }
    }
}
