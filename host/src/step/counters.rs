//! Child graph `counters`: all eight counters one further, and the step's scalars from the control page.

use gpu_kernels::counters::{increment_step_counters, increment_step_counters_shape};

use super::StepMemory;
use crate::device::Device;
use crate::error::DeviceError;
use crate::graph::ChildGraph;
use crate::images::KERNELS;

pub(super) fn capture(device: &Device, m: &StepMemory) -> Result<ChildGraph, DeviceError> {
    ChildGraph::capture(device, "counters", &KERNELS, |recorder| {
        // SAFETY: `control` holds one `Control`, which the host writes by whole fields if at all.
        let launch = unsafe {
            increment_step_counters::launch(
                m.control.ptr(),
                m.counters.view_mut(),
                m.scalars.view_mut(),
                m.isv.view_mut(),
                m.schedule,
            )
        };
        recorder.launch(increment_step_counters_shape(), launch)
    })
}
