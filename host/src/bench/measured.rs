//! A run's step with the times of its children.

use serde::{Deserialize, Serialize};

use super::Timer;
use crate::error::DeviceError;
use crate::graph::{Edge, GraphDescription};
use crate::run::RunRecord;
use crate::train::Trainer;

/// What a step is made of and how long it takes: `graph.json` in a run's folder. Times are medians, microseconds.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct MeasuredGraph {
    /// Where it was measured.
    pub device: String,
    /// When, UTC.
    pub measured: String,
    /// A whole step.
    pub step_us: f64,
    /// The children in running order.
    pub children: Vec<MeasuredChild>,
    /// Which child waits for which.
    pub edges: Vec<Edge>,
}

/// A child.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct MeasuredChild {
    /// Its name.
    pub name: String,
    /// As a graph of its own.
    pub us: f64,
    /// Its kernels, in running order.
    pub kernels: Vec<String>,
}

impl MeasuredGraph {
    /// Runs the step, and each child by itself, a few times on the trainer's own memory: for a trainer that is not needed any more.
    pub fn take(trainer: &Trainer) -> Result<Self, DeviceError> {
        let (runner, timer) = (trainer.runner(), Timer::BRIEF);
        let GraphDescription { children: described, edges, .. } = trainer.step_graph().description();
        let step_us = timer.time(runner.stream, || trainer.step_graph().launch(runner.stream))?;
        let mut children = Vec::new();
        for ((name, launches), described) in trainer.children().into_iter().zip(described) {
            let kernels = described.kernels.iter().map(|kernel| kernel.name.clone()).collect();
            // As in a step in which nothing is due.
            trainer.memory().due.zero()?;
            children.push(MeasuredChild { name: name.to_owned(), us: timer.child(runner, name, launches)?, kernels });
        }
        let (device, measured) = (runner.device.info().name, RunRecord::started_now());
        Ok(Self { device, measured, step_us, children, edges: edges.clone() })
    }

    /// Whether it is a step's graph: edges lead from a child to one that runs behind it, so that no child waits for itself by any way,
    /// and times are times. What is wrong, if it is not.
    pub fn check(&self) -> Result<(), String> {
        for (number, Edge { from, to, .. }) in (1..).zip(&self.edges) {
            let child = |index: &usize| match self.children.get(*index) {
                Some(child) => Ok(child.name.as_str()),
                None => Err(format!("edge {number} names child {index} of {}, counted from 0", self.children.len())),
            };
            let (from_name, to_name) = (child(from)?, child(to)?);
            if from >= to {
                return Err(format!(
                    "edge {number} lets `{to_name}` wait for `{from_name}`, which does not run before it: a cycle, or children out of order"
                ));
            }
        }
        let times =
            self.children.iter().map(|child| (child.name.as_str(), child.us)).chain([("the step", self.step_us)]);
        match times.into_iter().find(|(_, us)| *us < 0.0) {
            Some((name, us)) => Err(format!("{name} takes {us} us")),
            None => Ok(()),
        }
    }

    /// For each child when it would begin if every child took as long as it does alone and waited for nothing but its edges.
    pub fn starts(&self) -> Vec<f64> {
        let mut starts = vec![0.0f64; self.children.len()];
        for to in 0..self.children.len() {
            let before = self.edges.iter().filter(|edge| edge.to == to && edge.from < to);
            starts[to] = before.map(|edge| starts[edge.from] + self.children[edge.from].us).fold(0.0, f64::max);
        }
        starts
    }

    /// The children of the longest way through the graph, by those times.
    pub fn longest_way(&self) -> Vec<usize> {
        let starts = self.starts();
        let end = |child: usize| starts[child] + self.children[child].us;
        let last = (0..self.children.len()).max_by(|&a, &b| end(a).total_cmp(&end(b)));
        let before = |child: &usize| {
            let edges = self.edges.iter().filter(|edge| edge.to == *child && edge.from < *child);
            edges.map(|edge| edge.from).max_by(|&a, &b| end(a).total_cmp(&end(b)))
        };
        let mut way: Vec<usize> = std::iter::successors(last, before).collect();
        way.reverse();
        way
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::graph::Hazard;

    #[test]
    fn children_begin_when_all_that_they_wait_for_have_ended() {
        let child = |us: f64| MeasuredChild { name: format!("takes {us}"), us, kernels: vec!["kernel".into()] };
        let edge = |from: usize, to: usize| Edge {
            from,
            to,
            hazard: Hazard::ReadAfterWrite,
            from_parameter: "a.b".into(),
            to_parameter: "c.d".into(),
            memory: Some(0),
        };
        let graph = MeasuredGraph {
            device: "a device".into(),
            measured: "today".into(),
            step_us: 20.0,
            children: [1.0, 5.0, 2.0, 3.0, 0.5].map(child).into(),
            edges: vec![edge(0, 1), edge(0, 2), edge(1, 3), edge(2, 3)],
        };
        assert_eq!(graph.starts(), [0.0, 1.0, 1.0, 6.0, 0.0]);
        assert_eq!(graph.longest_way(), [0, 1, 3]);
        assert_eq!(graph.check(), Ok(()));
        let broken = |change: fn(&mut MeasuredGraph)| {
            let mut graph = graph.clone();
            change(&mut graph);
            graph.check().expect_err("it is broken")
        };
        for (message, part) in [
            (
                broken(|graph| graph.edges[3].to = 0),
                "edge 4 lets `takes 1` wait for `takes 2`, which does not run before it: a cycle",
            ),
            (broken(|graph| graph.edges[0].from = 1), "edge 1 lets `takes 5` wait for `takes 5`"),
            (broken(|graph| graph.edges[1].to = 5), "edge 2 names child 5 of 5"),
            (broken(|graph| graph.children[2].us = -1.0), "takes 2 takes -1 us"),
        ] {
            assert!(message.contains(part), "{part} is not in: {message}");
        }
    }
}
