//! What calls training makes of the driver, by phase and place, each of them judged: `onegraph audit`, `docs/hot-path.md`.
//!
//! | class | what |
//! |---|---|
//! | `graph-launch` | the one launch of a step, by [`StepLoop`](crate::train::StepLoop) |
//! | `mapped-pinned` | plain loads and stores of mapped memory: no call |
//! | `cold-path` | a call of another phase, with the reason that it is made |
//! | `violation` | any other call between two steps |

mod page;
mod reasons;
mod text;

use std::collections::BTreeMap;

use serde::Serialize;

use crate::device::ledger::{CallKind, Entry, Phase};
use crate::train::step_loop;

/// What a call is to the hot path.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Class {
    /// The step's launch.
    GraphLaunch,
    /// No call.
    MappedPinned,
    /// Outside the steps.
    ColdPath,
    /// What a step must not do.
    Violation,
}

/// Calls of one place, judged.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Line {
    /// What they are.
    pub class: Class,
    /// Why they are made, or what is wrong with them.
    pub reason: &'static str,
    /// The calls.
    #[serde(flatten)]
    pub calls: Entry,
}

/// The calls of some training steps and of all around them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Audit {
    /// Training steps.
    pub steps: u64,
    /// Calls between the first step of an epoch and its last.
    pub hot_calls: u64,
    /// Those of them that launched the step.
    pub graph_launches: u64,
    /// Those that a step must not make.
    pub violations: u64,
    /// All calls, by phase, thread, name and place.
    pub lines: Vec<Line>,
}

impl Class {
    /// As JSON has it.
    pub fn name(self) -> &'static str {
        match self {
            Self::GraphLaunch => "graph-launch",
            Self::MappedPinned => "mapped-pinned",
            Self::ColdPath => "cold-path",
            Self::Violation => "violation",
        }
    }
}

impl Audit {
    /// Judges what the ledger counted in `steps` training steps.
    pub fn of(entries: Vec<Entry>, steps: u64) -> Self {
        let lines: Vec<Line> = entries.into_iter().map(judge).collect();
        let of = |class: Class| lines.iter().filter(|line| line.class == class).map(|line| line.calls.calls).sum();
        let (graph_launches, violations): (u64, u64) = (of(Class::GraphLaunch), of(Class::Violation));
        Self { steps, hot_calls: graph_launches + violations, graph_launches, violations, lines }
    }

    /// What a step did that it must not do, a line each; none if every step was one launch and nothing else.
    pub fn faults(&self) -> Vec<String> {
        let violations = self.lines.iter().filter(|line| line.class == Class::Violation);
        let mut faults: Vec<String> = violations
            .map(|line| {
                let Entry { name, calls, place, .. } = &line.calls;
                let place = place.as_deref().unwrap_or("a place that is not known");
                format!("{}: {name}, {calls} times, at {place}", line.reason)
            })
            .collect();
        if self.graph_launches != self.steps {
            faults.push(format!("{} launches of the step's graph in {} steps", self.graph_launches, self.steps));
        }
        faults
    }

    /// Lines that agree in phase, class, call and file, as one; of the hot path in place as well if `places`.
    fn merged(&self, places: bool) -> Vec<Line> {
        let mut merged: BTreeMap<(Phase, Class, String, &str), Line> = BTreeMap::new();
        for line in &self.lines {
            let hot = places && line.calls.phase == Phase::Step;
            let place = line.calls.place.as_deref().unwrap_or("");
            let place = if hot { place } else { file_of(place) }.to_owned();
            let one =
                merged.entry((line.calls.phase, line.class, place.clone(), line.calls.name)).or_insert_with(|| {
                    let calls = Entry { calls: 0, bytes: 0, place: Some(place), ..line.calls.clone() };
                    Line { calls, ..line.clone() }
                });
            one.calls.calls += line.calls.calls;
            one.calls.bytes += line.calls.bytes;
        }
        merged.into_values().collect()
    }
}

/// A place without its line.
fn file_of(place: &str) -> &str {
    place.rsplit_once(':').map_or(place, |(file, _)| file)
}

fn judge(calls: Entry) -> Line {
    let file = calls.place.as_deref().map_or("", file_of);
    let (class, reason) = match (calls.phase, calls.kind) {
        (_, CallKind::Mapped) => (Class::MappedPinned, reasons::MAPPED),
        (Phase::Step, CallKind::GraphLaunch) if file == step_loop::FILE => (Class::GraphLaunch, reasons::STEP),
        (Phase::Step, kind) => (Class::Violation, reasons::violation(kind)),
        (phase, _) => (Class::ColdPath, reasons::cold(phase, file)),
    };
    Line { class, reason, calls }
}
