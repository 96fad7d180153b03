//! Evaluations of made-up paths.

use gpu_kernels::philox;
use proptest::prelude::*;

use super::*;

const MINUTE_NS: i64 = 60_000_000_000;

/// Normal returns of a path.
fn returns(stream: u32, n: usize, mean: f32, sigma: f32) -> Vec<f32> {
    (0..n).map(|i| mean + sigma * philox::normal([9, 0], 500, stream, i as u32)).collect()
}

fn path(returns: Vec<f32>) -> PathRecords {
    let n = returns.len() as u64;
    PathRecords { n_fills: n / 2, n_trades: n / 4, n_wins: n / 8, returns, ..PathRecords::default() }
}

/// A fold whose agent earns `mean` a bar at a sigma of 1e-3.
fn fold(start: usize, n: usize, mean: f32) -> FoldTest {
    let agent = |at: usize| path(returns(start as u32 + at as u32, n - 1, mean, 1e-3));
    let records = PartRecords {
        part: start..start + n,
        kelly_cap: 0.5,
        agent: (0..Scenario::ALL.len()).map(agent).collect(),
        buy_and_hold: (0..Scenario::ALL.len()).map(|_| path(returns(7_000, n - 1, 0.0, 1e-3))).collect(),
    };
    FoldTest { selection: Selection::default(), records, threshold_rule: None }
}

fn evaluation(tests: &[FoldTest]) -> Evaluation {
    let time_ns: Vec<i64> = (0..10_000).map(|bar| bar * MINUTE_NS).collect();
    let n_bars = tests.iter().map(|test| test.records.part.len() - 1).sum();
    let random = path(returns(8_000, n_bars, 0.0, 1e-3));
    Evaluation::new(tests, &random, Times { time_ns: &time_ns, interval_ns: MINUTE_NS }, 3)
}

#[test]
fn folds_are_one_series() {
    let tests = [fold(1_000, 601, 4e-4), fold(1_601, 501, 4e-4)];
    let got = evaluation(&tests);
    let all: Vec<f64> = tests.iter().flat_map(|test| &test.records.agent[0].returns).map(|&r| f64::from(r)).collect();
    // 1,100 recorded bars from minute 1,001 to the end of minute 2,101, of which the fold's first is missing.
    let a_year = 1_100.0 / (1_101.0 / (365.25 * 1_440.0));
    assert_eq!(got.n_bars, 1_100);
    assert!((got.bars_a_year / a_year - 1.0).abs() < 1e-12, "{}, {a_year} expected", got.bars_a_year);
    assert_eq!(got.agent.sharpe, statistics::sharpe(&all, got.bars_a_year));
    assert_eq!(got.agent.n_trades, 150 + 125);
    assert_eq!((got.folds.len(), got.folds[1].n_bars), (2, 500));
    assert_eq!(got.folds[1].test_ns, (1_602 * MINUTE_NS, 2_101 * MINUTE_NS));
    assert_eq!((got.axis[0], *got.axis.last().expect("places")), ((1, 1_001 * MINUTE_NS), (1_100, 2_101 * MINUTE_NS)));
    assert_eq!(got.repetitions.iter().map(|r| r.scenario).collect::<Vec<_>>(), Scenario::ALL);
    assert_eq!(got.repetitions[0].agent, got.agent);
    assert_eq!(got.bootstrap, Bootstrap { n_draws: 2_000, block_bars: 30, seed: 3 });
}

#[test]
fn a_large_margin_is_an_edge_and_a_small_one_is_none() {
    // Per-bar ratio 0.5 over 1,000 bars: 16 standard errors.
    let edge = evaluation(&[fold(0, 1_001, 5e-4)]);
    assert_eq!(edge.verdict, Verdict::Edge);
    assert!(edge.sentence.starts_with("Edge: the agent's Sharpe ratio over 1000 test bars"), "{}", edge.sentence);
    let none = evaluation(&[fold(0, 1_001, 0.0)]);
    assert_eq!(none.verdict, Verdict::NoEdge);
    assert!(none.sentence.contains("not shown to be above flat"), "{}", none.sentence);
}

/// One missing superiority is enough: an agent that is buy-and-hold earns well and shows nothing over it.
#[test]
fn an_agent_that_only_holds_has_no_edge() {
    let mut test = fold(0, 1_001, 5e-4);
    test.records.buy_and_hold = test.records.agent.clone();
    let got = evaluation(&[test]);
    assert!(got.superiority[0].is_shown && got.superiority[2].is_shown, "{:?}", got.superiority);
    assert_eq!(got.superiority[1].interval, Interval { low: 0.0, high: 0.0 });
    assert_eq!(got.verdict, Verdict::NoEdge);
    assert!(got.sentence.ends_with("not shown to be above buy-and-hold."), "{}", got.sentence);
}

#[test]
fn an_agent_that_never_trades_has_no_edge_and_zeros() {
    let mut test = fold(0, 301, 0.0);
    test.records.agent = vec![PathRecords { returns: vec![0.0; 300], ..PathRecords::default() }; Scenario::ALL.len()];
    let got = evaluation(&[test]);
    assert_eq!((got.verdict, got.agent.sharpe), (Verdict::NoEdge, 0.0));
    assert_eq!(got.agent.sharpe_interval, Interval { low: 0.0, high: 0.0 });
    assert_eq!(got.superiority[0].interval, Interval { low: 0.0, high: 0.0 });
    assert_eq!(got.sentence, "No edge: the agent never traded.");
}

#[test]
fn notes_say_what_a_reader_must_know() {
    let mut tests = [fold(0, 301, 0.0), fold(301, 301, 0.0)];
    tests[0].selection =
        Selection { n_candidates: Some(12), best_validation_sharpe: Some(1.5), ..Selection::default() };
    tests[1].selection =
        Selection { n_candidates: Some(9), best_validation_sharpe: Some(-0.5), ..Selection::default() };
    tests[1].records.agent[0].n_ruined = 1;
    let notes = evaluation(&tests).notes;
    assert_eq!(notes.len(), 3, "{notes:?}");
    assert!(notes[0].contains("from 21 candidates over 2 folds"), "{notes:?}");
    assert!(notes[1].contains("fold 2 no candidate") && notes[2].contains("fold 2 the agent lost"), "{notes:?}");
}

#[test]
fn the_rule_is_a_baseline_where_every_fold_has_one() {
    let rule = ThresholdRule { enter: 0.01, leave: 0.0 };
    let mut tests = [fold(0, 301, 0.0), fold(301, 301, 0.0)];
    tests[0].threshold_rule = Some(RuleTest { rule, records: path(returns(1, 300, 1e-4, 1e-3)) });
    let names = |tests: &[FoldTest]| -> Vec<String> {
        evaluation(tests).baselines.into_iter().map(|baseline| baseline.name).collect()
    };
    assert_eq!(names(&tests), ["flat", "buy_and_hold", "random"]);
    tests[1].threshold_rule = tests[0].threshold_rule.clone();
    assert_eq!(names(&tests), ["flat", "buy_and_hold", "random", "threshold_rule"]);
}

#[test]
fn the_file_reads_back_as_it_was_written() {
    let got = evaluation(&[fold(0, 301, 1e-4)]);
    let text = serde_json::to_string(&got).expect("plain data");
    assert!(text.contains(r#""verdict":"no edge""#) && text.contains(r#""scenario":"half_costs""#), "{text}");
    let back: Evaluation = serde_json::from_str(&text).expect("an evaluation");
    let value = |evaluation| serde_json::to_value(evaluation).expect("plain data");
    assert_same(&value(&back), &value(&got));
}

/// Numbers within the last digits: JSON's reader is not exact there.
fn assert_same(a: &serde_json::Value, b: &serde_json::Value) {
    use serde_json::Value;
    match (a, b) {
        (Value::Object(a), Value::Object(b)) => {
            assert!(a.keys().eq(b.keys()));
            a.values().zip(b.values()).for_each(|(a, b)| assert_same(a, b));
        }
        (Value::Array(a), Value::Array(b)) => {
            assert_eq!(a.len(), b.len());
            a.iter().zip(b).for_each(|(a, b)| assert_same(a, b));
        }
        (Value::Number(a), Value::Number(b)) if a.is_f64() => {
            let (a, b) = (a.as_f64().expect("a float"), b.as_f64().expect("a float"));
            assert!((a - b).abs() <= 1e-14 * b.abs(), "{a} {b}");
        }
        _ => assert_eq!(a, b),
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn identical_paths_differ_by_nothing(seed in 0u64..1000, r in proptest::collection::vec(-0.1f64..0.1, 1..400)) {
        let interval = statistics::paired_sharpe_interval(&r, &r, 1e4, seed);
        prop_assert_eq!(interval, Interval { low: 0.0, high: 0.0 });
    }

    /// Over flat the paired interval is the ratio's own: the blocks are the same.
    #[test]
    fn over_flat_is_the_own_interval(seed in 0u64..1000, r in proptest::collection::vec(-0.1f64..0.1, 1..400)) {
        let flat = vec![0.0; r.len()];
        let paired = statistics::paired_sharpe_interval(&r, &flat, 1e4, seed);
        prop_assert_eq!(paired, statistics::sharpe_interval(&r, 1e4, seed));
    }

    /// Rounding: a product is within 2^-53 of itself, and the deviation from the mean is a difference of numbers under 0.1.
    #[test]
    fn sharpe_does_not_depend_on_scale(scale in 1e-3f64..1e3, r in proptest::collection::vec(-0.1f64..0.1, 3..400)) {
        let scaled: Vec<f64> = r.iter().map(|r| scale * r).collect();
        let (a, b) = (statistics::sharpe(&r, 252.0), statistics::sharpe(&scaled, 252.0));
        prop_assert!((a - b).abs() <= 1e-9 * a.abs().max(1.0), "{a} {b}");
        let (a, b) = (statistics::sortino(&r, 252.0), statistics::sortino(&scaled, 252.0));
        prop_assert!((a - b).abs() <= 1e-9 * a.abs().max(1.0), "{a} {b}");
    }

    /// Equity two ways: by multiplication, and by the sum of logarithms.
    #[test]
    fn growth_is_the_product(r in proptest::collection::vec(-0.5f64..0.5, 0..400)) {
        let equity = r.iter().fold(1.0, |equity, r| equity * (1.0 + r));
        let growth = statistics::log_growth(&r);
        prop_assert!((growth.exp() / equity - 1.0).abs() < 1e-10, "{growth} {equity}");
    }
}
