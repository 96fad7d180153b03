//! Why paths were not traded to their ends.

use crate::error::DeviceError;
use crate::interrupt::Interrupted;

/// A test that did not come to its end.
#[derive(Debug, thiserror::Error)]
pub enum EvalError {
    /// The device.
    #[error(transparent)]
    Device(#[from] DeviceError),
    /// The user stopped it.
    #[error(transparent)]
    Interrupted(#[from] Interrupted),
}
