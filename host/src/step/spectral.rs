//! Child graph `spectral`: one power iteration on each of the trunk's matrices, online and target, and their operands.

use super::StepParts;
use crate::market::Step;

pub(super) fn launches(parts: &StepParts<'_>) -> Vec<Step> {
    parts.agent.spectral.iterate(&parts.agent.parameters)
}
