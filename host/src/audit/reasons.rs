//! Why calls are made: one table.

use crate::device::ledger::{CallKind, Phase};

/// Of the step's launch.
pub(super) const STEP: &str = "the step";
/// Of mapped memory.
pub(super) const MAPPED: &str =
    "the host reads what a step told, or tells it learning rate, clip and beta0: plain loads and stores";

/// Phase, beginning of the file that makes the call, reason. The first that fits counts; each phase ends with one for any file.
const COLD: &[(Phase, &str, &str)] = &[
    (Phase::Setup, "host/src/agent/", "the agent's memory, once; initial weights, once a fold"),
    (Phase::Setup, "host/src/step/", "the step's memory, modules and graph, once"),
    (Phase::Setup, "host/src/graph/", "the step's and the collection's graphs, once"),
    (Phase::Setup, "host/src/replay", "the replay's memory, once"),
    (
        Phase::Setup,
        "host/src/market/",
        "series, features and environments, once; scales and first episodes, once a fold",
    ),
    (Phase::Setup, "host/src/train/collection.rs", "the collection's graphs, once; a launch a bar of the warm-up"),
    (Phase::Setup, "host/src/run/", "free memory is compared with what the run needs"),
    (Phase::Setup, "host/src/bench/", "behind the last step each child is timed by itself, for the report"),
    (Phase::Setup, "host/src/device/matmul.rs", "a table for each matrix product, once"),
    (Phase::Setup, "host/src/device/", "memory, modules and graphs go at the run's end"),
    (Phase::Setup, "", "before the first step and behind the last: the device, the trainer, a fold's start"),
    (Phase::EpochBoundary, "host/src/train/collection.rs", "collection with the weights of now: a graph launch a bar"),
    (
        Phase::EpochBoundary,
        "host/src/eval/",
        "validation: memory and graph at the first boundary, then a graph launch a bar, and its records",
    ),
    (Phase::EpochBoundary, "host/src/market/", "validation's paths start over"),
    (Phase::EpochBoundary, "host/src/agent/", "validation's passes: their memory, at the first boundary"),
    (
        Phase::EpochBoundary,
        "host/src/train/",
        "the steps are waited for; regime, schedules, atoms and the oldest priorities follow; the epoch's metrics are read",
    ),
    (
        Phase::EpochBoundary,
        "host/src/device/matmul.rs",
        "a table for each matrix product of validation, at the first boundary",
    ),
    (Phase::EpochBoundary, "host/src/device/", "memory that validation needs no more goes"),
    (Phase::EpochBoundary, "", "between two epochs"),
    (Phase::Checkpoint, "", "a checkpoint's tensors, one after the other"),
];

/// Of a call outside the steps.
pub(super) fn cold(phase: Phase, file: &str) -> &'static str {
    let row = COLD.iter().find(|(of, place, _)| *of == phase && file.starts_with(place));
    row.map_or("a phase without a reason", |(_, _, reason)| reason)
}

/// What is wrong with a call between two steps.
pub(super) fn violation(kind: CallKind) -> &'static str {
    match kind {
        CallKind::GraphLaunch => "a graph launched beside the step's",
        CallKind::Launch => "a kernel launched between two steps",
        CallKind::Copy => "a copy between two steps",
        CallKind::Memset => "a fill between two steps",
        CallKind::Memory => "memory taken, given back or asked about between two steps",
        CallKind::Event => "an event between two steps",
        CallKind::Synchronize => "a wait between two steps",
        CallKind::Mapped | CallKind::Other => "a call between two steps",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_phase_outside_the_steps_has_a_reason_for_any_file() {
        for phase in [Phase::Setup, Phase::EpochBoundary, Phase::Checkpoint] {
            assert!(COLD.iter().any(|(of, place, _)| *of == phase && place.is_empty()), "{phase:?}");
        }
        assert!(COLD.iter().all(|(phase, _, _)| *phase != Phase::Step));
    }
}
