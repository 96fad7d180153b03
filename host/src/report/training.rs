//! Curves of the training, epoch by epoch.

use shared_types::market::BRANCH_SIZES;

use super::axis::Axis;
use super::chart::{Chart, Layer, Shape};
use super::metrics::{BRANCHES, EpochMetrics};
use super::text::{percent, short};

/// A small chart: its id, title, and lines as (value's name in the metrics, name in the legend).
struct Curves {
    id: &'static str,
    title: &'static str,
    lines: &'static [(&'static str, &'static str)],
    /// A band behind the lines: the two values that bound it, and its name.
    band: Option<(&'static str, &'static str, &'static str)>,
}

const fn curves_of(id: &'static str, title: &'static str, lines: &'static [(&'static str, &'static str)]) -> Curves {
    Curves { id, title, lines, band: None }
}

const CHARTS: [Curves; 9] = [
    curves_of("loss", "Loss", &[("loss", "objective J"), ("mse", "squared error of Q")]),
    curves_of("norm", "Gradient norm before clipping", &[("grad_norm", "gradient norm")]),
    Curves {
        id: "q",
        title: "Q over the batch",
        lines: &[("q.mean", "mean"), ("q.avg_max", "mean of the best action’s")],
        band: Some(("q.min", "q.max", "lowest to highest")),
    },
    curves_of("sharpe", "Sharpe ratio, a year", &[("validation.sharpe", "validation"), ("train_sharpe", "training")]),
    curves_of(
        "control",
        "What the training’s health drives",
        &[("health", "health"), ("kelly_cap", "cap on positions"), ("epsilon", "exploration rate epsilon")],
    ),
    curves_of("gamma", "Discount gamma", &[("gamma", "gamma")]),
    curves_of("tau", "Rate tau of the target network", &[("tau", "tau")]),
    curves_of("trades", "Trades on the validation part", &[("validation.trades", "trades")]),
    curves_of("speed", "Training steps a second", &[("steps_per_s", "steps a second")]),
];

/// All charts of which the metrics hold something.
pub fn curves(epochs: &[EpochMetrics]) -> String {
    let charts: String = CHARTS.iter().filter_map(|curves| chart(curves, epochs)).collect();
    let most = |name: &str| epochs.iter().map(|epoch| epoch.number(name)).filter(|n| n.is_finite()).fold(0.0, f64::max);
    let (skipped, steps, seconds) = (most("skipped"), most("step"), most("seconds"));
    let mut facts = format!("<p>{} epochs", epochs.len());
    for (value, words) in [(steps, " steps in the last fold"), (seconds, " s in all"), (skipped, " updates skipped")] {
        if value > 0.0 {
            facts += &format!(", {}{words}", short(value));
        }
    }
    format!("{facts}.</p>\n<div class=\"grid2\">\n{charts}</div>\n")
}

fn chart(curves: &Curves, epochs: &[EpochMetrics]) -> Option<String> {
    let series = |name: &str| -> Vec<f64> { epochs.iter().map(|epoch| epoch.number(name)).collect() };
    let is_there = |values: &[f64]| values.iter().any(|value| value.is_finite());
    let lines: Vec<(usize, &str, Vec<f64>)> = curves
        .lines
        .iter()
        .enumerate()
        .map(|(style, (name, title))| (style, *title, series(name)))
        .filter(|line| is_there(&line.2))
        .collect();
    if lines.is_empty() {
        return None;
    }
    let band = curves.band.map(|(low, high, name)| (series(low), series(high), name));
    let band = band.filter(|(low, high, _)| is_there(low) && is_there(high));
    let all = || {
        let of_band = band.iter().flat_map(|(low, high, _)| low.iter().chain(high));
        lines.iter().flat_map(|line| &line.2).chain(of_band).copied().filter(|value| value.is_finite())
    };
    // Values over more than two decades, all of them above 0, would hide in a linear picture.
    let (least, most) = all().fold((f64::INFINITY, 0.0f64), |(a, b), value| (a.min(value), b.max(value)));
    let is_log = least > 0.0 && most / least > 100.0;
    let scale = |value: f64| if is_log { value.log10() } else { value };
    let y = if is_log { Axis::decades(all().map(scale)) } else { Axis::linear(all()) };

    let starts = fold_starts(epochs);
    let is_start = |at: usize| starts.iter().any(|start| start.0 == at as f64);
    let mut layers = Vec::new();
    if let Some((low, high, name)) = &band {
        let mut points = Vec::new();
        for at in 0..epochs.len() {
            if is_start(at) {
                points.push((at as f64, f64::NAN, f64::NAN));
            }
            if low[at].is_finite() && high[at].is_finite() {
                points.push((at as f64 + 0.5, scale(low[at]), scale(high[at])));
            }
        }
        layers.push(Layer { name: (*name).into(), style: 5, shape: Shape::Band(points) });
    }
    for (style, name, values) in lines.iter().rev() {
        // Over epochs without a value the line goes on; from one fold to the next it does not.
        let mut points = Vec::new();
        for (at, value) in values.iter().enumerate() {
            if is_start(at) {
                points.push((at as f64, f64::NAN));
            }
            if value.is_finite() {
                points.push((at as f64 + 0.5, scale(*value)));
            }
        }
        layers.push(Layer { name: (*name).into(), style: *style, shape: Shape::Line(points) });
    }
    let ends = lines.iter().filter_map(|(_, name, values)| {
        let mut finite = values.iter().filter(|value| value.is_finite());
        let first = finite.next()?;
        Some(format!("{name}: first {}, last {}", short(*first), short(*finite.next_back().unwrap_or(first))))
    });
    let title = if is_log { format!("{}, on a logarithmic scale", curves.title) } else { curves.title.into() };
    let chart = Chart {
        id: curves.id,
        title: &title,
        description: format!("Lines over {} epochs. {}.", epochs.len(), ends.collect::<Vec<_>>().join("; ")),
        size: (510.0, 230.0),
        x: Axis::positions(epochs.len(), first_epoch(epochs)),
        x_title: x_title(epochs),
        y,
        layers,
        marks: starts,
    };
    Some(chart.figure())
}

/// Number of the first position: the first line's epoch, where one fold's lines are numbered one by one.
fn first_epoch(epochs: &[EpochMetrics]) -> i64 {
    let numbers: Vec<u64> = epochs.iter().map_while(|epoch| epoch.place().1).collect();
    let is_one_by_one = numbers.len() == epochs.len() && numbers.windows(2).all(|pair| pair[1] == pair[0] + 1);
    if is_one_by_one { numbers[0] as i64 } else { 1 }
}

fn x_title(epochs: &[EpochMetrics]) -> &'static str {
    if fold_starts(epochs).is_empty() { "epoch" } else { "epochs of all folds, one after the other" }
}

fn fold_starts(epochs: &[EpochMetrics]) -> Vec<(f64, String)> {
    let folds: Vec<Option<u64>> = epochs.iter().map(|epoch| epoch.place().0).collect();
    let starts: Vec<usize> = (0..folds.len()).filter(|&at| at == 0 || folds[at] != folds[at - 1]).collect();
    if starts.len() < 2 {
        return Vec::new();
    }
    starts.iter().enumerate().map(|(fold, &at)| (at as f64, format!("fold {}", fold + 1))).collect()
}

/// Names of each branch's choices.
const CHOICES: [&[&str]; 4] = [
    &["short", "long", "flat", "hold"],
    &["a third", "two thirds", "all of the cap"],
    &["market", "limit at close", "limit inside"],
    &["shortest", "middle", "longest"],
];
const TITLES: [&str; 4] = ["Direction", "Size", "Order", "Minimum hold"];

/// For each branch the shares of its choices, one on the other; empty where the metrics have none.
pub fn action_mix(epochs: &[EpochMetrics]) -> String {
    let charts: String = (0..BRANCH_SIZES.len()).filter_map(|branch| mix_chart(branch, epochs)).collect();
    if charts.is_empty() { charts } else { format!("<div class=\"grid2\">\n{charts}</div>\n") }
}

fn mix_chart(branch: usize, epochs: &[EpochMetrics]) -> Option<String> {
    let mixes: Vec<Option<Vec<f64>>> = epochs.iter().map(|epoch| epoch.action_mix(branch)).collect();
    let last = mixes.iter().rev().flatten().next()?;
    let words: Vec<String> =
        CHOICES[branch].iter().zip(last).map(|(choice, share)| format!("{choice} {}", percent(*share))).collect();
    let layer = |choice: usize| {
        let stretch = |mix: &Option<Vec<f64>>| {
            let Some(mix) = mix else { return (f64::NAN, f64::NAN) };
            let low: f64 = mix[..choice].iter().sum();
            (low, low + mix[choice])
        };
        let shares = mixes.iter().map(stretch).collect();
        Layer { name: CHOICES[branch][choice].into(), style: choice, shape: Shape::Stretches(shares) }
    };
    let id = format!("mix-{}", BRANCHES[branch]);
    let chart = Chart {
        id: &id,
        title: TITLES[branch],
        description: format!("Shares over {} epochs. In the last: {}.", epochs.len(), words.join(", ")),
        size: (510.0, 200.0),
        x: Axis::positions(epochs.len(), first_epoch(epochs)),
        x_title: x_title(epochs),
        y: Axis::percent([0.0, 1.0]),
        layers: (0..BRANCH_SIZES[branch]).rev().map(layer).collect(),
        marks: fold_starts(epochs),
    };
    Some(chart.figure())
}
