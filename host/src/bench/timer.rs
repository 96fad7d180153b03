//! Times between two events.

use crate::device::Stream;
use crate::error::DeviceError;
use crate::graph::{ChildGraph, ParentGraph};
use crate::images::KERNELS;
use crate::market::{Runner, Step};

/// How often something is run to find out how long it takes.
#[derive(Clone, Copy, Debug)]
pub struct Timer {
    /// Runs between two events.
    pub n_runs: u32,
    /// Times that are taken, behind one that is not counted.
    pub n_times: usize,
}

impl Timer {
    /// Few runs: for a look, not for comparisons.
    pub const BRIEF: Self = Self { n_runs: 3, n_times: 3 };
    /// For tables.
    pub const THOROUGH: Self = Self { n_runs: 10, n_times: 7 };

    /// Median microseconds of what `work` puts into `stream`.
    #[track_caller]
    pub fn time(&self, stream: &Stream, work: impl Fn() -> Result<(), DeviceError>) -> Result<f64, DeviceError> {
        Ok(median(self.times(stream, work)?))
    }

    /// The times that this is the median of.
    #[track_caller]
    pub fn times(&self, stream: &Stream, work: impl Fn() -> Result<(), DeviceError>) -> Result<Vec<f64>, DeviceError> {
        let mut times = Vec::with_capacity(self.n_times);
        for time in 0..=self.n_times {
            let start = stream.record()?;
            for _ in 0..self.n_runs {
                work()?;
            }
            let us = stream.record()?.since(&start)?.as_secs_f64() * 1e6 / f64::from(self.n_runs);
            if time > 0 {
                times.push(us);
            }
        }
        Ok(times)
    }

    /// A kernel by itself.
    #[track_caller]
    pub fn kernel(&self, runner: Runner<'_>, (shape, launch): &Step) -> Result<f64, DeviceError> {
        self.time(runner.stream, || runner.stream.launch_again(runner.module, *shape, launch))
    }

    /// A child as a graph of its own.
    #[track_caller]
    pub fn child(&self, runner: Runner<'_>, name: &str, launches: Vec<Step>) -> Result<f64, DeviceError> {
        let child = ChildGraph::capture(runner.device, name, &KERNELS, |recorder| {
            launches.into_iter().try_for_each(|(shape, launch)| recorder.launch(shape, launch))
        })?;
        let graph = ParentGraph::compose(runner.device, vec![child])?;
        self.time(runner.stream, || graph.launch(runner.stream))
    }
}

/// The middle one; of an even number the upper of the two.
///
/// # Panics
/// If there is none.
pub fn median(values: Vec<f64>) -> f64 {
    percentile(values, 0.5)
}

/// The first value in order that has a share `p`, in \[0, 1), of all of them before it.
///
/// # Panics
/// If there is none.
pub fn percentile(mut values: Vec<f64>, p: f64) -> f64 {
    values.sort_by(f64::total_cmp);
    values[(values.len() as f64 * p) as usize]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_count_from_the_least() {
        let hundred: Vec<f64> = (0..100).rev().map(f64::from).collect();
        assert_eq!(percentile(hundred.clone(), 0.0), 0.0);
        assert_eq!(percentile(hundred.clone(), 0.99), 99.0);
        assert_eq!(median(hundred), 50.0, "the upper of the two in the middle");
        assert_eq!(median(vec![3.0, 1.0, 2.0]), 2.0);
        assert_eq!(percentile(vec![7.0], 0.99), 7.0);
    }
}
