//! The rule that an agent on the mean-reverting simulator is measured against: it sees the deviation that the market
//! returns from, which no agent sees.
//!
//! It goes short when the deviation is above `enter`, long when it is below `-enter`, and leaves a position when the
//! deviation is back within `leave` (negative: on the other side by that much). Market orders at full size of the cap.

use std::ops::Range;

use serde::{Deserialize, Serialize};
use shared_types::market::{direction, order};
use shared_types::{EnvParams, Isv};

use super::EvalError;
use super::records::PathRecords;
use super::statistics;
use crate::interrupt::Interrupt;
use crate::market::Runner;
use crate::market::fold::FoldMarket;
use crate::market::paths::{n_side_by_side, scripted};

/// Index of the size 1 of the cap.
const FULL_SIZE: u8 = 2;
/// `enter` is tried from 1/4 to 3 standard deviations of the training part, in quarters.
const N_ENTERS: usize = 12;
const ENTER_STEP: f64 = 0.25;
/// Rules that are tried side by side, at most.
pub const N_SIDE_BY_SIDE: usize = 8;
/// `leave` is tried at these multiples of `enter`; -1 turns every position over.
const LEAVES: [f64; N_SIDE_BY_SIDE] = [-1.0, -0.75, -0.5, -0.25, 0.0, 0.25, 0.5, 0.75];

/// Thresholds, log price.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct ThresholdRule {
    /// Beyond it a position is opened; positive.
    pub enter: f64,
    /// Within it a position is left; at most `enter`, at least its negative.
    pub leave: f64,
}

/// A rule on a test part.
#[derive(Clone, Debug, PartialEq)]
pub struct RuleTest {
    /// As fitted on the training part.
    pub rule: ThresholdRule,
    /// What it did on the test part.
    pub records: PathRecords,
}

impl ThresholdRule {
    /// The decision on each bar of a path that starts flat.
    pub fn script(&self, deviations: &[f64]) -> Vec<[u8; 4]> {
        let mut held = direction::FLAT;
        let decide = |&deviation: &f64| {
            held = self.next(held, deviation);
            [held, FULL_SIZE, order::MARKET, 0]
        };
        deviations.iter().map(decide).collect()
    }

    fn next(&self, held: u8, deviation: f64) -> u8 {
        if deviation > self.enter {
            direction::SHORT
        } else if deviation < -self.enter {
            direction::LONG
        } else if held == direction::SHORT && deviation > self.leave
            || held == direction::LONG && deviation < -self.leave
        {
            held
        } else {
            direction::FLAT
        }
    }
}

/// All pairs of thresholds that are tried, for deviations of standard deviation `std`; by rising `enter`.
pub fn grid(std: f64) -> Vec<ThresholdRule> {
    let enters = (1..=N_ENTERS).map(|step| step as f64 * ENTER_STEP * std);
    enters.flat_map(|enter| LEAVES.map(|leave| ThresholdRule { enter, leave: leave * enter })).collect()
}

/// A market, what was fitted to it, and the deviation of each of its bars.
#[derive(Clone, Copy)]
pub struct Deviating<'a> {
    /// The market.
    pub market: &'a FoldMarket,
    /// Constants of the fold.
    pub params: &'a EnvParams,
    /// The bus whose kelly_cap is traded under.
    pub bus: &'a Isv,
    /// Log price less where it returns to, \[n\].
    pub deviations: &'a [f64],
    /// Whether the user wants it to stop.
    pub interrupt: &'a Interrupt,
}

impl Deviating<'_> {
    /// The pair of the grid with the largest sum of log returns on `train`, the earlier of equals.
    pub fn fit(&self, runner: Runner<'_>, train: &Range<usize>) -> Result<ThresholdRule, EvalError> {
        let part = &self.deviations[train.clone()];
        let square = part.iter().map(|x| x * x).sum::<f64>() / part.len() as f64;
        let rules = grid(square.sqrt());
        let mut best = (f64::NEG_INFINITY, rules[0]);
        // A few paths at a time: a record of every bar for the whole grid would be much memory.
        for some in rules.chunks(N_SIDE_BY_SIDE.min(n_side_by_side(train.len()))) {
            for (rule, records) in some.iter().zip(self.run(runner, some, train)?) {
                let growth = statistics::log_growth(&records.returns64());
                if growth > best.0 {
                    best = (growth, *rule);
                }
            }
        }
        Ok(best.1)
    }

    /// Fits on `train`, and trades on `test`.
    pub fn test(&self, runner: Runner<'_>, train: &Range<usize>, test: &Range<usize>) -> Result<RuleTest, EvalError> {
        let rule = self.fit(runner, train)?;
        let records = PathRecords::joined(&self.run(runner, &[rule], test)?);
        Ok(RuleTest { rule, records })
    }

    /// A path over `part` for each rule.
    pub fn run(
        &self,
        runner: Runner<'_>,
        rules: &[ThresholdRule],
        part: &Range<usize>,
    ) -> Result<Vec<PathRecords>, EvalError> {
        self.interrupt.check()?;
        let params = EnvParams { min_hold: [1; 3], ..*self.params };
        // The last bar decides nothing: its close ends the path.
        let seen = &self.deviations[part.start..part.end - 1];
        let script: Vec<[u8; 4]> = rules.iter().flat_map(|rule| rule.script(seen)).collect();
        let paths = scripted(runner, self.market, &params, self.bus, part, &script)?;
        Ok(paths.iter().map(|path| PathRecords::of(path)).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use direction::{FLAT, LONG, SHORT};

    fn directions(rule: ThresholdRule, deviations: &[f64]) -> Vec<u8> {
        rule.script(deviations).iter().map(|action| action[0]).collect()
    }

    #[test]
    fn scripts_by_hand() {
        let seen = [0.0, 1.5, 2.5, 1.5, 0.5, -1.0, -2.1, -0.9, 2.01];
        let half = directions(ThresholdRule { enter: 2.0, leave: 1.0 }, &seen);
        assert_eq!(half, [FLAT, FLAT, SHORT, SHORT, FLAT, FLAT, LONG, FLAT, SHORT]);
        let turning = directions(ThresholdRule { enter: 2.0, leave: -2.0 }, &seen);
        assert_eq!(turning, [FLAT, FLAT, SHORT, SHORT, SHORT, SHORT, LONG, LONG, SHORT]);
        let across = directions(ThresholdRule { enter: 2.0, leave: -0.75 }, &seen);
        assert_eq!(across, [FLAT, FLAT, SHORT, SHORT, SHORT, FLAT, LONG, LONG, SHORT]);
        let every = ThresholdRule { enter: 2.0, leave: 0.0 }.script(&seen);
        assert!(every.iter().all(|action| action[1..] == [FULL_SIZE, order::MARKET, 0]));
    }

    #[test]
    fn the_grid_has_every_pair_once() {
        let rules = grid(2.0);
        assert_eq!(rules.len(), N_ENTERS * LEAVES.len());
        assert_eq!(rules[0], ThresholdRule { enter: 0.5, leave: -0.5 });
        assert_eq!(rules[95], ThresholdRule { enter: 6.0, leave: 4.5 });
        assert!((1..rules.len()).all(|at| rules[..at].iter().all(|earlier| *earlier != rules[at])));
    }
}
