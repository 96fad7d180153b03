//! All folds together: the result of a run, as `evaluation.json` holds it. Every field, unit and equation stands in
//! `docs/evaluation.md`.

use std::ops::Range;

use serde::{Deserialize, Serialize};

use super::backtest::PartRecords;
use super::curves::Curve;
use super::performance::Performance;
use super::records::PathRecords;
use super::scenario::Scenario;
use super::statistics::{self, Interval, N_DRAWS};
use super::threshold_rule::{RuleTest, ThresholdRule};
use judge::{Judge, bars, joined};

mod judge;
#[cfg(test)]
mod tests;

/// Number of the file's form; a change that breaks a reader raises it.
pub const VERSION: u32 = 1;
/// Places along the test's bars whose time the file tells.
const N_AXIS: usize = 64;

/// How the checkpoint of a fold was chosen.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Selection {
    /// Fold of the checkpoint, from 1.
    #[serde(default)]
    pub fold: Option<u32>,
    /// Epoch of the checkpoint.
    pub epoch: Option<u64>,
    /// Checkpoints it was chosen from.
    pub n_candidates: Option<u64>,
    /// Its annual Sharpe ratio on the training part.
    pub train_sharpe: Option<f64>,
    /// The same on the validation part.
    pub validation_sharpe: Option<f64>,
    /// Trades closed on the validation part.
    pub validation_trades: Option<u64>,
    /// Highest annual Sharpe ratio on the validation part among the candidates.
    #[serde(default)]
    pub best_validation_sharpe: Option<f64>,
}

/// A fold's test.
#[derive(Clone, Debug, PartialEq)]
pub struct FoldTest {
    /// How its checkpoint was chosen.
    pub selection: Selection,
    /// What was traded.
    pub records: PartRecords,
    /// The threshold rule, on the simulator that has one.
    pub threshold_rule: Option<RuleTest>,
}

/// When the bars of a series are.
#[derive(Clone, Copy)]
pub struct Times<'a> {
    /// Start of each bar, nanoseconds since 1970-01-01 UTC.
    pub time_ns: &'a [i64],
    /// Length of a bar.
    pub interval_ns: i64,
}

impl Times<'_> {
    /// Bars that a year has of those that tests of these parts record.
    pub fn bars_a_year<'a>(&self, parts: impl Iterator<Item = &'a Range<usize>>) -> f64 {
        statistics::bars_a_year(&self.recorded(parts), self.interval_ns)
    }

    /// Times of the bars that tests of these parts record.
    fn recorded<'a>(&self, parts: impl Iterator<Item = &'a Range<usize>>) -> Vec<i64> {
        parts.flat_map(|part| &self.time_ns[bars(part)]).copied().collect()
    }
}

/// Whether the test shows an edge.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Verdict {
    /// The paired intervals over flat, buy-and-hold and random all lie above 0.
    #[serde(rename = "edge")]
    Edge,
    /// One of them does not.
    #[serde(rename = "no edge")]
    NoEdge,
}

/// The agent against a baseline, bar by bar.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Superiority {
    /// The baseline: `flat`, `buy_and_hold` or `random`.
    pub over: String,
    /// The agent's Sharpe ratio less the baseline's.
    pub difference: f64,
    /// Its paired 95% interval.
    pub interval: Interval,
    /// Whether the interval lies above 0.
    pub is_shown: bool,
}

/// A path with its name.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Named {
    /// `flat`, `buy_and_hold`, `random` or `threshold_rule`.
    pub name: String,
    /// Its numbers.
    pub performance: Performance,
}

/// The test under other costs, orders or cap.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Repetition {
    /// What differs.
    pub scenario: Scenario,
    /// The agent.
    pub agent: Performance,
    /// Buy-and-hold on the same terms.
    pub buy_and_hold: Performance,
    /// Over flat and over buy-and-hold.
    pub superiority: Vec<Superiority>,
}

/// A fold by itself.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct FoldResult {
    /// How its checkpoint was chosen.
    pub selection: Selection,
    /// First and last recorded bar of the test, nanoseconds since 1970-01-01 UTC.
    pub test_ns: (i64, i64),
    /// Recorded bars.
    pub n_bars: usize,
    /// Cap on positions, of equity.
    pub kelly_cap: f64,
    /// The agent.
    pub agent: Performance,
    /// Buy-and-hold.
    pub buy_and_hold: Performance,
    /// Thresholds of the rule, where there is one.
    pub threshold_rule: Option<ThresholdRule>,
}

/// How intervals were drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Bootstrap {
    /// Resampled series.
    pub n_draws: u32,
    /// Bars of a block.
    pub block_bars: usize,
    /// Seed.
    pub seed: u64,
}

/// The result of a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Evaluation {
    /// [`VERSION`].
    pub version: u32,
    /// Whether there is an edge.
    pub verdict: Verdict,
    /// The verdict and its reason in a sentence.
    pub sentence: String,
    /// What else must be known to judge it.
    pub notes: Vec<String>,
    /// Bars recorded in all tests.
    pub n_bars: usize,
    /// Bars a year.
    pub bars_a_year: f64,
    /// Smallest annual Sharpe ratio whose interval over so many bars would lie above 0; none for a handful of bars.
    pub smallest_sharpe_shown: Option<f64>,
    /// How intervals were drawn.
    pub bootstrap: Bootstrap,
    /// The agent.
    pub agent: Performance,
    /// Flat, buy-and-hold, the median random path, and the threshold rule where there is one.
    pub baselines: Vec<Named>,
    /// Over flat, buy-and-hold and random.
    pub superiority: Vec<Superiority>,
    /// By [`Scenario::ALL`].
    pub repetitions: Vec<Repetition>,
    /// Each fold.
    pub folds: Vec<FoldResult>,
    /// The agent and the baselines but flat.
    pub curves: Vec<Curve>,
    /// (bars so far, time of that bar in nanoseconds since 1970-01-01 UTC), evenly spread.
    pub axis: Vec<(u32, i64)>,
}

impl Evaluation {
    /// Of the tests of all folds in order. `random` is the random path that stands for all, over the same bars; `seed` is the
    /// bootstrap's.
    ///
    /// # Panics
    /// If there is no fold, or a fold lacks a scenario.
    pub fn new(tests: &[FoldTest], random: &PathRecords, times: Times<'_>, seed: u64) -> Self {
        assert!(!tests.is_empty(), "no fold was tested");
        let recorded = times.recorded(tests.iter().map(|test| &test.records.part));
        let judge = Judge { bars_a_year: statistics::bars_a_year(&recorded, times.interval_ns), seed };

        let agent = joined(tests, |records| &records.agent[0]);
        let flat = PathRecords { returns: vec![0.0; agent.returns.len()], ..PathRecords::default() };
        let hold = joined(tests, |records| &records.buy_and_hold[0]);
        let superiority = vec![
            judge.superiority(&agent, "flat", &flat),
            judge.superiority(&agent, "buy_and_hold", &hold),
            judge.superiority(&agent, "random", random),
        ];
        let rules: Option<Vec<&RuleTest>> = tests.iter().map(|test| test.threshold_rule.as_ref()).collect();
        let rule = rules.map(|rules| PathRecords::joined(rules.iter().map(|test| &test.records)));
        let mut paths = vec![("buy_and_hold", &hold), ("random", random)];
        paths.extend(rule.as_ref().map(|rule| ("threshold_rule", rule)));

        let named = |(name, path): (&str, &PathRecords)| Named { name: name.into(), performance: judge.of(path) };
        let baselines = [("flat", &flat)].into_iter().chain(paths.iter().copied()).map(named).collect();
        let all = [("agent", &agent)].into_iter().chain(paths.iter().copied());
        let repetition = |(at, scenario): (usize, Scenario)| judge.repetition(tests, at, scenario);
        let smallest = statistics::smallest_sharpe_shown(agent.returns.len(), judge.bars_a_year);
        let mut evaluation = Self {
            version: VERSION,
            verdict: if superiority.iter().all(|over| over.is_shown) { Verdict::Edge } else { Verdict::NoEdge },
            sentence: String::new(),
            notes: notes(tests),
            n_bars: agent.returns.len(),
            bars_a_year: judge.bars_a_year,
            smallest_sharpe_shown: smallest.is_finite().then_some(smallest),
            bootstrap: Bootstrap { n_draws: N_DRAWS, block_bars: statistics::block_bars(agent.returns.len()), seed },
            agent: judge.of(&agent),
            baselines,
            superiority,
            repetitions: Scenario::ALL.into_iter().enumerate().map(repetition).collect(),
            folds: tests.iter().map(|test| judge.fold(test, times)).collect(),
            curves: all.map(|(name, path)| Curve::of(name, &path.returns)).collect(),
            axis: axis(&recorded),
        };
        evaluation.sentence = evaluation.say();
        evaluation
    }

    fn say(&self) -> String {
        let Interval { low, high } = self.agent.sharpe_interval;
        let sharpe = format!(
            "the agent's Sharpe ratio over {} test bars is {:.2} (95% interval {low:.2} to {high:.2})",
            self.n_bars, self.agent.sharpe
        );
        if self.verdict == Verdict::Edge {
            return format!("Edge: {sharpe}, shown to be above flat, buy-and-hold and random.");
        }
        if self.agent.n_fills == 0 && self.agent.n_trades == 0 {
            return "No edge: the agent never traded.".into();
        }
        let missing: Vec<String> =
            self.superiority.iter().filter(|over| !over.is_shown).map(|over| over.over.replace('_', "-")).collect();
        let missing = match missing.split_last() {
            Some((last, [])) => last.clone(),
            Some((last, before)) => format!("{} or {last}", before.join(", ")),
            None => String::new(),
        };
        format!("No edge: {sharpe}, which is not shown to be above {missing}.")
    }
}

fn notes(tests: &[FoldTest]) -> Vec<String> {
    let mut notes = Vec::new();
    let sum = |n: fn(&Selection) -> Option<u64>| tests.iter().map(|test| n(&test.selection)).sum::<Option<u64>>();
    if let Some(n) = sum(|selection| selection.n_candidates) {
        let folds = if tests.len() == 1 { String::new() } else { format!(" over {} folds", tests.len()) };
        let candidates = if n == 1 { "candidate" } else { "candidates" };
        notes.push(format!("The tested checkpoints were chosen by validation from {n} {candidates}{folds}."));
    }
    for (place, test) in (1..).zip(tests) {
        let fold = test.selection.fold.unwrap_or(place);
        if test.selection.best_validation_sharpe.is_some_and(|sharpe| sharpe <= 0.0) {
            notes.push(format!(
                "In fold {fold} no candidate had a validation Sharpe ratio above 0; epochs still exploring, or with hardly a trade, are none."
            ));
        }
        if test.records.agent[0].n_ruined > 0 {
            notes.push(format!("In fold {fold} the agent lost its equity; later bars count as 0."));
        }
    }
    notes
}

fn axis(time_ns: &[i64]) -> Vec<(u32, i64)> {
    let last = time_ns.len().saturating_sub(1);
    let mut bars: Vec<usize> = (0..=N_AXIS).map(|step| step * last / N_AXIS).collect();
    bars.dedup();
    bars.into_iter().map(|bar| (bar as u32 + 1, time_ns[bar])).collect()
}
