//! The table of switches.

mod learning;
mod network;

use onegraph_tests::Outcome;

use crate::tensors::Tensors;

/// What the rest of a step is compared with.
pub enum Beside {
    /// The learner touches nothing of the others'.
    On,
    /// With its strength at nothing it changes nothing, and with its own something.
    AtNothing(&'static [&'static str]),
    /// In the first step it changes nothing, in the one looked at something.
    FirstStep,
    /// It reaches everything but the first batch.
    FirstBatch,
}

/// A learner's switch, and how a step shows how it stands.
pub struct Switch {
    /// Key under `learners`.
    pub name: &'static str,
    /// What else the steps are given, on and off.
    pub with: &'static [&'static str],
    /// The step that is looked at.
    pub step: u32,
    /// What the rest is compared with.
    pub beside: Beside,
    /// What is the learner's own, by name or by what a tensor is of; with a dot at its end the beginning of such a name.
    pub own: &'static [&'static str],
    /// What must hold of the step with the learner, and of the one without it.
    pub shows: fn(&Tensors, &Tensors) -> Outcome,
}

/// All of them, in the order of the configuration.
pub fn switches() -> impl Iterator<Item = &'static Switch> {
    network::SWITCHES.iter().chain(&learning::SWITCHES)
}
