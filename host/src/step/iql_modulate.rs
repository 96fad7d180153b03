//! Child graph `iql_modulate`: the TD errors as priorities take them, with IQL weighted by the advantage.

use gpu_kernels::c51::{modulated_td_bf16, td_error_bf16, td_error_bf16_shape};
use shared_types::nan_flags::PRIORITY;

use super::StepParts;
use crate::market::Step;

pub(super) fn launches(parts: &StepParts<'_>) -> Vec<Step> {
    let memory = parts.memory;
    let (row_losses, gate, td_errors) = (memory.row_losses.view(), memory.gate.view(), memory.td_errors.view_mut());
    let relabelled = memory.batch.relabelled.view();
    let flag = memory.flags.slice(PRIORITY..PRIORITY + 1).view_mut();
    let td = match &memory.value_heads {
        Some(heads) => modulated_td_bf16::launch(
            row_losses,
            gate,
            relabelled,
            heads.q_taken.view(),
            heads.v_high().view(),
            heads.totals.view(),
            parts.config.beta_adv as f32,
            td_errors,
            flag,
        ),
        None => td_error_bf16::launch(row_losses, gate, relabelled, td_errors, flag),
    };
    vec![(td_error_bf16_shape(parts.config.batch), td)]
}
