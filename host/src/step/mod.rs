//! The training step as a list of child graphs, a file each, in the order in which they run.
//!
//! | file | child graph |
//! |---|---|
//! | `counters`, `per_sample`, `spectral`, `ddqn`, `forward`, `aux`, `post_aux`, `adam_grad`, `maintenance`, `adam_update`, `iql_modulate`, `per_priority` | its own |
//! | `memory`, `chunks` | what they work on |
//! | `control`, `readback` | what the host tells the step, and is told |
//! | `rescoring` | what works out stale priorities between epochs |

mod adam_grad;
mod adam_update;
mod aux;
mod chunks;
mod control;
mod counters;
mod ddqn;
mod forward;
mod iql_modulate;
mod maintenance;
mod memory;
mod per_priority;
mod per_sample;
mod post_aux;
mod readback;
mod rescoring;
mod spectral;

use std::sync::Arc;

pub use control::ControlPage;
pub use memory::{Batch, LEARNER_GROUPS, Replay, StepMemory};
pub use readback::{Pages, Published, ReadbackReader};
pub use rescoring::Rescoring;
use shared_types::{Collector, Schedule, due};

use crate::agent::Agent;
use crate::config::Config;
use crate::device::{Buffer, Device};
use crate::error::DeviceError;
use crate::graph::{ChildGraph, ParentGraph};
use crate::images::KERNELS;
use crate::market::Step;

/// Steps between statistics of Q and moves of the atoms.
pub const STATS_EVERY: u32 = 50;

/// What a step is made of.
pub struct StepParts<'a> {
    /// Where it runs.
    pub device: &'a Device,
    /// Constants of the run, baked into the graph.
    pub config: &'a Config,
    /// What learns.
    pub agent: &'a Agent,
    /// What is learned from.
    pub replay: &'a Replay,
    /// \[1\], where the ring is written next.
    pub collector: &'a Buffer<Collector>,
    /// What the step works on.
    pub memory: &'a StepMemory,
    /// Pages that the host sees.
    pub pages: &'a Arc<Pages>,
}

/// What a child launches over the step's parts.
type Launches = fn(&StepParts<'_>) -> Vec<Step>;

/// Each child's name and launches, in order; a child without a launch is left out.
pub fn children(parts: &StepParts<'_>) -> Vec<(&'static str, Vec<Step>)> {
    let children: [(&str, Launches); 12] = [
        ("counters", counters::launches),
        ("per_sample", per_sample::launches),
        ("spectral", spectral::launches),
        ("ddqn", ddqn::launches),
        ("forward", forward::launches),
        ("aux", aux::launches),
        ("post_aux", post_aux::launches),
        ("adam_grad", adam_grad::launches),
        ("maintenance", maintenance::launches),
        ("adam_update", adam_update::launches),
        ("iql_modulate", iql_modulate::launches),
        ("per_priority", per_priority::launches),
    ];
    let named = children.into_iter().map(|(name, launches)| (name, launches(parts)));
    named.filter(|(_, launches)| !launches.is_empty()).collect()
}

/// Captures every child and composes the step.
pub fn compose(parts: &StepParts<'_>) -> Result<ParentGraph, DeviceError> {
    let mut captured = Vec::new();
    for (name, launches) in children(parts) {
        let child = ChildGraph::capture(parts.device, name, &KERNELS, |recorder| {
            launches.into_iter().try_for_each(|(shape, launch)| recorder.launch(shape, launch))
        })?;
        // No data makes it wait. But each further child with which a graph may begin costs the host about a microsecond a
        // launch, and beside the sampling there is time enough.
        captured.push(if name == "spectral" { child.after("counters") } else { child });
    }
    ParentGraph::compose(parts.device, captured)
}

/// The schedules of a fold.
fn schedule(config: &Config) -> Schedule {
    let steps = u32::try_from(config.steps_per_fold()).unwrap_or(u32::MAX);
    let mut every = [0; due::N];
    every[due::CAUSAL] = if config.learners.causal { config.causal.every } else { 0 };
    every[due::SPACING] = if config.learners.spacing { STATS_EVERY } else { 0 };
    Schedule {
        tau_init: config.tau_init as f32,
        tau_final: config.tau_final as f32,
        anneal_steps: steps,
        total_steps: steps,
        seed: seed(config),
        depth_keep_last: if config.learners.depth { config.depth_keep_last as f32 } else { 1.0 },
        every,
    }
}

/// Key of the random generator.
fn seed(config: &Config) -> [u32; 2] {
    [config.seed as u32, (config.seed >> 32) as u32]
}
