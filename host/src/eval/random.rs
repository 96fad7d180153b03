//! The random baseline: of its paths one stands for all. They are run a few at a time and reduced to their ratios, so that no
//! more records are held than the few have, however long the tests are.

use std::ops::Range;

use shared_types::{EnvParams, Isv};

use super::EvalError;
use super::records::PathRecords;
use super::statistics;
use crate::interrupt::Interrupt;
use crate::market::Runner;
use crate::market::fold::FoldMarket;
use crate::market::paths::{Baseline, N_RANDOM, baseline, median_idx, n_side_by_side};

/// A part that is tested, and the terms on which a checkpoint trades it.
#[derive(Clone, Debug, PartialEq)]
pub struct Tested {
    /// The part.
    pub part: Range<usize>,
    /// The environments' constants on it.
    pub params: EnvParams,
    /// The checkpoint's bus, with its kelly_cap.
    pub bus: Isv,
}

/// The random paths over the parts of all folds.
#[derive(Clone, Copy)]
pub struct RandomPaths<'a> {
    runner: Runner<'a>,
    market: &'a FoldMarket,
    tests: &'a [Tested],
    interrupt: &'a Interrupt,
}

impl<'a> RandomPaths<'a> {
    /// Over `tests`, one after the other.
    pub fn new(runner: Runner<'a>, market: &'a FoldMarket, tests: &'a [Tested], interrupt: &'a Interrupt) -> Self {
        Self { runner, market, tests, interrupt }
    }

    /// The path whose Sharpe ratio is the median, the lower one of the two in the middle.
    pub fn median(&self, bars_a_year: f64) -> Result<PathRecords, EvalError> {
        let longest = self.tests.iter().map(|test| test.part.len()).max().unwrap_or(0);
        self.median_of_runs(bars_a_year, n_side_by_side(longest))
    }

    /// The same, with `n_paths` paths side by side.
    pub fn median_of_runs(&self, bars_a_year: f64, n_paths: usize) -> Result<PathRecords, EvalError> {
        let mut sharpes = Vec::with_capacity(N_RANDOM);
        for first in (0..N_RANDOM).step_by(n_paths) {
            let paths = self.of_seeds(first, n_paths.min(N_RANDOM - first))?;
            sharpes.extend(paths.iter().map(|path| statistics::sharpe(&path.returns64(), bars_a_year)));
        }
        // Once more: of the others nothing but the ratio was kept.
        Ok(PathRecords::joined(&self.of_seeds(median_idx(&sharpes), 1)?))
    }

    /// So many seeds' paths, each joined over the tests.
    fn of_seeds(&self, first: usize, n_paths: usize) -> Result<Vec<PathRecords>, EvalError> {
        let mut joined = vec![PathRecords::default(); n_paths];
        for Tested { part, params, bus } in self.tests {
            self.interrupt.check()?;
            let who = Baseline::Random { first, n_paths };
            let paths = baseline(self.runner, self.market, params, bus, part, who)?;
            joined.iter_mut().zip(paths).for_each(|(joined, path)| joined.append(&PathRecords::of(&path)));
        }
        Ok(joined)
    }
}
