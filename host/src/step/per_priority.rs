//! Child graph `per_priority`: the batch's TD errors become priorities, and the tree's sums follow.

use super::StepMemory;
use crate::device::Device;
use crate::error::DeviceError;
use crate::graph::ChildGraph;
use crate::images::KERNELS;

/// Exponent of the priorities (Schaul et al. 2016, section 3.3).
const ALPHA: f32 = 0.6;

pub(super) fn capture(device: &Device, m: &StepMemory) -> Result<ChildGraph, DeviceError> {
    ChildGraph::capture(device, "per_priority", &KERNELS, |recorder| {
        let update = m.tree_memory().update(m.indices.view().memory(), m.td_errors.view().memory(), ALPHA);
        update.into_iter().try_for_each(|(shape, launch)| recorder.launch(shape, launch))
    })
}
