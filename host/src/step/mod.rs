//! The training step as a list of child graphs, a file each, in the order in which they run.

mod control;
mod counters;
mod memory;
mod per_priority;
mod per_sample;
mod readback;

pub use control::ControlPage;
pub use memory::{StepMemory, StepSizes};
pub use readback::{Pages, Published, ReadbackReader};

use crate::device::Device;
use crate::error::DeviceError;
use crate::graph::ParentGraph;

/// Captures every child over `memory` and composes the step.
pub fn compose(device: &Device, memory: &StepMemory) -> Result<ParentGraph, DeviceError> {
    let children = vec![
        counters::capture(device, memory)?,
        per_sample::capture(device, memory)?,
        per_priority::capture(device, memory)?,
    ];
    ParentGraph::compose(device, children)
}
