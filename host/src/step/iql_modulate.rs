//! Child graph `iql_modulate`: the TD errors as priorities take them.

use gpu_kernels::c51::{td_error_bf16, td_error_bf16_shape};

use super::StepParts;
use crate::market::Step;

pub(super) fn launches(parts: &StepParts<'_>) -> Vec<Step> {
    let memory = parts.memory;
    let (losses, gate, relabelled) = (memory.row_losses.view(), memory.gate.view(), memory.batch.relabelled.view());
    let td = td_error_bf16::launch(losses, gate, relabelled, memory.td_errors.view_mut());
    vec![(td_error_bf16_shape(parts.config.batch), td)]
}
