//! `graph`: the parent graph in text, Graphviz or JSON.

use std::fmt::Write;

use super::keys::Keys;
use super::output::{self, Json, Target};
use super::{Error, Global};
use crate::agent::Agent;
use crate::graph::GraphDescription;
use crate::run::plan::PlanError;
use crate::step::{self, Pages, Replay, StepMemory, StepParts};

/// Arguments of `graph`.
#[derive(Debug, clap::Args)]
pub(super) struct Arguments {
    /// Write the graph in Graphviz's DOT language to FILE (`-`: standard output).
    #[arg(long, value_name = "FILE")]
    dot: Option<Target>,
    #[command(flatten)]
    keys: Keys,
    #[command(flatten)]
    json: Json,
}

impl Arguments {
    pub(super) fn run(&self, global: &Global) -> Result<(), Error> {
        let written = [("--dot", self.dot.as_ref()), ("--json", self.json.target())];
        self.keys.spares(&written)?;
        output::places(&written)?;
        let device = global.open()?;
        let config = self.keys.resolve(&device).map_err(PlanError::from)?;
        let (free_bytes, _) = device.memory_info()?;
        // No bar is on the device.
        config.memory_estimate(0).check(free_bytes, &device.info().name).map_err(PlanError::from)?;
        let agent = Agent::new(&device, &config)?;
        let replay = Replay::new(&device, config.capacity, config.window as usize)?;
        let collector = device.alloc_zeroed(1)?;
        let memory = StepMemory::new(&device, &config, &agent)?;
        let pages = Pages::new(&device)?;
        let parts = StepParts {
            device: &device,
            config: &config,
            agent: &agent,
            replay: &replay,
            collector: &collector,
            memory: &memory,
            pages: &pages,
        };
        let graph = step::compose(&parts)?;
        self.show(graph.description())
    }

    fn show(&self, description: &GraphDescription) -> Result<(), Error> {
        if let Some(target) = &self.dot {
            target.write(&description.to_dot())?;
        }
        self.json.write(description)?;
        let taken = self.json.to_standard_output() || self.dot.as_ref().is_some_and(Target::is_standard_output);
        if taken { Ok(()) } else { output::print(&text(description)) }
    }
}

/// A line for each child, its kernels, and what it waits for.
fn text(description: &GraphDescription) -> String {
    let mut text = format!(
        "{} child graphs, {} kernels, {} edges\n",
        description.children.len(),
        description.n_kernels(),
        description.edges.len()
    );
    for (index, child) in description.children.iter().enumerate() {
        let before = description.edges.iter().filter(|edge| edge.to == index);
        let before: Vec<&str> = before.map(|edge| description.children[edge.from].name.as_str()).collect();
        let after = if before.is_empty() { String::new() } else { format!("  after {}", before.join(", ")) };
        let _ = writeln!(text, "\n{}{after}", child.name);
        for kernel in &child.kernels {
            let _ = writeln!(text, "  {:<28} {}", kernel.name, kernel.shape_text());
        }
    }
    text
}
