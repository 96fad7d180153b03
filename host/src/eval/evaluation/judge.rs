//! The numbers of an evaluation from the paths of its folds.

use std::ops::Range;

use super::{FoldResult, FoldTest, Repetition, Superiority, Times};
use crate::eval::backtest::PartRecords;
use crate::eval::performance::Performance;
use crate::eval::records::PathRecords;
use crate::eval::scenario::Scenario;
use crate::eval::statistics;

/// What all numbers of a run are computed with.
pub struct Judge {
    /// Bars a year.
    pub bars_a_year: f64,
    /// The bootstrap's.
    pub seed: u64,
}

impl Judge {
    /// A path in numbers.
    pub fn of(&self, path: &PathRecords) -> Performance {
        Performance::of(path, self.bars_a_year, self.seed)
    }

    /// The agent against a baseline on the same bars.
    pub fn superiority(&self, agent: &PathRecords, over: &str, baseline: &PathRecords) -> Superiority {
        let (a, b) = (agent.returns64(), baseline.returns64());
        let interval = statistics::paired_sharpe_interval(&a, &b, self.bars_a_year, self.seed);
        let sharpe = |returns: &[f64]| statistics::sharpe(returns, self.bars_a_year);
        let difference = sharpe(&a) - sharpe(&b);
        Superiority { over: over.into(), difference, interval, is_shown: interval.low > 0.0 }
    }

    /// The scenario at position `at`, all folds together.
    pub fn repetition(&self, tests: &[FoldTest], at: usize, scenario: Scenario) -> Repetition {
        let agent = joined(tests, |records| &records.agent[at]);
        let hold = joined(tests, |records| &records.buy_and_hold[at]);
        let flat = PathRecords { returns: vec![0.0; agent.returns.len()], ..PathRecords::default() };
        let superiority =
            vec![self.superiority(&agent, "flat", &flat), self.superiority(&agent, "buy_and_hold", &hold)];
        Repetition { scenario, agent: self.of(&agent), buy_and_hold: self.of(&hold), superiority }
    }

    /// A fold by itself.
    pub fn fold(&self, test: &FoldTest, times: Times<'_>) -> FoldResult {
        let bars = bars(&test.records.part);
        FoldResult {
            selection: test.selection.clone(),
            test_ns: (times.time_ns[bars.start], times.time_ns[bars.end - 1]),
            n_bars: bars.len(),
            kelly_cap: f64::from(test.records.kelly_cap),
            agent: self.of(&test.records.agent[0]),
            buy_and_hold: self.of(&test.records.buy_and_hold[0]),
            threshold_rule: test.threshold_rule.as_ref().map(|test| test.rule),
        }
    }
}

/// The recorded bars of a test's part: all but the first, on which nothing was held.
pub fn bars(part: &Range<usize>) -> Range<usize> {
    part.start + 1..part.end
}

/// A path of each fold, as one.
pub fn joined<'a>(tests: &'a [FoldTest], path: impl Fn(&'a PartRecords) -> &'a PathRecords) -> PathRecords {
    PathRecords::joined(tests.iter().map(|test| path(&test.records)))
}
