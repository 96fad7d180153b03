//! Child graph `per_sample`: a prioritized batch, its importance weights, and its states in padded rows.

use gpu_kernels::gather::{gather_f32_rows_padded, gather_f32_rows_padded_shape};
use gpu_kernels::is_weights::{per_is_weights, per_is_weights_shape};
use gpu_kernels::seg_tree::{seg_tree_sample, seg_tree_sample_shape};

use super::StepMemory;
use crate::device::Device;
use crate::error::DeviceError;
use crate::graph::ChildGraph;
use crate::images::KERNELS;

pub(super) fn capture(device: &Device, m: &StepMemory) -> Result<ChildGraph, DeviceError> {
    let (width, stride) = (m.sizes.state_dim as u32, m.sizes.state_stride as u32);
    ChildGraph::capture(device, "per_sample", &KERNELS, |recorder| {
        let sample = seg_tree_sample::launch(
            m.tree.view(),
            m.counters.view(),
            m.indices.view_mut(),
            m.priorities.view_mut(),
            m.schedule.seed,
        );
        recorder.launch(seg_tree_sample_shape(m.sizes.batch), sample)?;
        let weights = per_is_weights::launch(m.priorities.view(), m.scalars.view(), m.weights.view_mut());
        recorder.launch(per_is_weights_shape(), weights)?;
        for (from, to) in [(&m.states, &m.batch_states), (&m.next_states, &m.batch_next_states)] {
            let gather = gather_f32_rows_padded::launch(from.view(), m.indices.view(), to.view_mut(), width, stride);
            recorder.launch(gather_f32_rows_padded_shape(m.sizes.batch), gather)?;
        }
        Ok(())
    })
}
