//! The audit as a table for people.

use std::fmt::Write;

use super::{Audit, Line};
use crate::device::ledger::{Direction, MemoryKind, Phase};

/// Each phase with its heading.
pub(super) const PHASES: [(Phase, &str); 4] = [
    (Phase::Step, "Hot path: between the first step of an epoch and its last"),
    (Phase::EpochBoundary, "Epoch boundary"),
    (Phase::Checkpoint, "Checkpoint"),
    (Phase::Setup, "Setup"),
];

impl Audit {
    /// A table of each phase's calls, and what to make of them.
    pub fn text(&self) -> String {
        let (mut text, lines) = (String::new(), self.merged(true));
        for (phase, heading) in PHASES {
            let _ = writeln!(text, "{heading}");
            let of_phase: Vec<&Line> = lines.iter().filter(|line| line.calls.phase == phase).collect();
            if of_phase.is_empty() {
                text += "  no call\n";
            }
            for Line { class, reason, calls } in of_phase {
                let (direction, memory) = (direction(calls.direction), memory(calls.memory));
                let place = calls.place.as_deref().unwrap_or("-");
                let _ = writeln!(
                    text,
                    "  {:<13} {:>9} {:>14} B  {direction:<9} {memory:<8} {:<32} {place}: {reason}",
                    class.name(),
                    calls.calls,
                    calls.bytes,
                    calls.name,
                );
            }
            text.push('\n');
        }
        for fault in self.faults() {
            let _ = writeln!(text, "violation: {fault}");
        }
        let _ = writeln!(
            text,
            "{} steps: {} calls between them, {} of them the step's graph launch",
            self.steps, self.hot_calls, self.graph_launches
        );
        text
    }
}

fn direction(direction: Option<Direction>) -> &'static str {
    match direction {
        None => "-",
        Some(Direction::HostToDevice) => "to device",
        Some(Direction::DeviceToHost) => "to host",
        Some(Direction::DeviceToDevice) => "on device",
    }
}

fn memory(memory: Option<MemoryKind>) -> &'static str {
    match memory {
        None => "-",
        Some(MemoryKind::Device) => "device",
        Some(MemoryKind::Pageable) => "pageable",
        Some(MemoryKind::Pinned) => "pinned",
        Some(MemoryKind::Managed) => "managed",
    }
}
