//! Pictures of the tests' result.

use std::fmt::Write;

use super::axis::Axis;
use super::chart::{Chart, Layer, Shape};
use super::text::{escaped, interval, percent, ratio, title};
use crate::eval::curves::Curve;
use crate::eval::evaluation::{Evaluation, FoldResult};

/// Equity on a logarithmic scale, and what it has lost from its peak.
pub fn equity(evaluation: &Evaluation) -> String {
    let curves = &evaluation.curves;
    let layers = |points: fn(&Curve) -> &[(u32, f64)]| -> Vec<Layer> {
        // The agent last, over the others.
        let layer = |(style, curve): (usize, &Curve)| {
            let line = points(curve).iter().map(|&(bar, value)| (f64::from(bar), value)).collect();
            Layer { name: title(&curve.name), style, shape: Shape::Line(line) }
        };
        curves.iter().enumerate().rev().map(layer).collect()
    };
    let last = |curve: &Curve| curve.log_equity.last().map_or(0.0, |point| point.1).exp_m1();
    let deepest = |curve: &Curve| curve.drawdown.iter().map(|point| point.1).fold(0.0, f64::max);
    let say = |what: fn(f64) -> String, of: &dyn Fn(&Curve) -> f64| -> String {
        curves.iter().map(|curve| format!("{}: {}", title(&curve.name), what(of(curve)))).collect::<Vec<_>>().join("; ")
    };
    let levels = curves.iter().flat_map(|curve| curve.log_equity.iter().map(|point| point.1));
    let falls = curves.iter().flat_map(|curve| curve.drawdown.iter().map(|point| point.1));
    let marks = || fold_starts(evaluation);
    let equity = Chart {
        id: "equity",
        title: "Equity over the tests, net of costs, on a logarithmic scale",
        description: format!("Lines of equity. Total return at the end. {}.", say(percent, &last)),
        size: (1040.0, 340.0),
        x: Axis::times(evaluation.n_bars, &evaluation.axis),
        x_title: "time, UTC (bars that are missing take no room)",
        y: Axis::growth(levels),
        layers: layers(|curve| &curve.log_equity),
        marks: marks(),
    };
    let drawdown = Chart {
        id: "drawdown",
        title: "Drawdown: how far equity is under its highest value so far",
        description: format!("Lines of drawdown. Deepest. {}.", say(percent, &deepest)),
        size: (1040.0, 220.0),
        x: Axis::times(evaluation.n_bars, &evaluation.axis),
        x_title: "time, UTC",
        y: downwards(Axis::percent(falls)),
        layers: layers(|curve| &curve.drawdown),
        marks: marks(),
    };
    equity.figure() + &drawdown.figure()
}

/// A fall is drawn downwards: the axis is turned over.
fn downwards(axis: Axis) -> Axis {
    Axis { low: axis.high, high: axis.low, ticks: axis.ticks }
}

fn fold_starts(evaluation: &Evaluation) -> Vec<(f64, String)> {
    if evaluation.folds.len() < 2 {
        return Vec::new();
    }
    let mut first = 0.0;
    let start = |(at, fold): (usize, &FoldResult)| {
        let mark = (first, format!("fold {}", at + 1));
        first += fold.n_bars as f64;
        mark
    };
    evaluation.folds.iter().enumerate().map(start).collect()
}

const LEFT: f64 = 62.0;
const ROW: f64 = 22.0;

/// A bar: name, style, ratio, interval where it has one.
type Row = (String, usize, f64, Option<(f64, f64)>);

/// Sharpe ratios of training, validation and test as bars, the test's with its interval.
pub fn side_by_side(evaluation: &Evaluation) -> String {
    let rows: Vec<Row> = evaluation
        .folds
        .iter()
        .enumerate()
        .flat_map(|(at, fold)| {
            let of_fold = if evaluation.folds.len() > 1 { format!("fold {}, ", at + 1) } else { String::new() };
            let band = fold.agent.sharpe_interval;
            let selection = &fold.selection;
            [
                selection.train_sharpe.map(|sharpe| (format!("{of_fold}training"), 2, sharpe, None)),
                selection.validation_sharpe.map(|sharpe| (format!("{of_fold}validation"), 1, sharpe, None)),
                Some((format!("{of_fold}test"), 0, fold.agent.sharpe, Some((band.low, band.high)))),
            ]
        })
        .flatten()
        .filter(|row| row.2.is_finite())
        .collect();
    let ends = rows.iter().flat_map(|row| row.3.map_or([row.2; 2], |band| [band.0, band.1]));
    let axis = Axis::linear(ends.chain(rows.iter().map(|row| row.2)).chain([0.0]));
    let (left, right, height) = (LEFT + 78.0, 1040.0 - 70.0, rows.len() as f64 * ROW + 34.0);
    let x = |value: f64| left + axis.place(value) * (right - left);
    let words: Vec<String> = rows
        .iter()
        .map(|row| {
            format!(
                "{} {}{}",
                row.0,
                ratio(row.2),
                row.3.map_or(String::new(), |(a, b)| format!(" ({})", interval(a, b)))
            )
        })
        .collect();
    let mut svg = format!(
        "<figure class=\"wide\"><figcaption>Sharpe ratio, a year; the line is the test’s 95% interval</figcaption>\
         <svg viewBox=\"0 0 1040 {height}\" role=\"img\" aria-labelledby=\"side-t side-d\"><title id=\"side-t\">Sharpe ratios of \
         training, validation and test</title><desc id=\"side-d\">{}.</desc>",
        escaped(&words.join("; "))
    );
    for (value, label) in &axis.ticks {
        let at = x(*value);
        let _ = write!(
            svg,
            "<path class=\"grid\" d=\"M{at:.1} 4V{:.1}\"/><text class=\"mid\" x=\"{at:.1}\" y=\"{:.1}\">{}</text>",
            height - 26.0,
            height - 8.0,
            escaped(label)
        );
    }
    for (at, (name, style, sharpe, band)) in rows.iter().enumerate() {
        let top = 6.0 + at as f64 * ROW;
        let (from, to) = (x(0.0).min(x(*sharpe)), x(0.0).max(x(*sharpe)));
        let end = band.map_or(to, |band| to.max(x(band.1)));
        let _ = write!(
            svg,
            "<text class=\"end\" x=\"{:.1}\" y=\"{:.1}\">{}</text>\
             <path class=\"area f{style}\" d=\"M{from:.1} {top:.1}H{to:.1}v14H{from:.1}Z\"/>\
             <text x=\"{:.1}\" y=\"{:.1}\">{}</text>",
            left - 8.0,
            top + 11.5,
            escaped(name),
            end + 8.0,
            top + 11.5,
            ratio(*sharpe),
        );
        if let Some((low, high)) = band {
            let (from, to, middle, end) = (x(*low), x(*high), top + 7.0, top + 3.0);
            let path = format!("M{from:.1} {middle:.1}H{to:.1}M{from:.1} {end:.1}v8M{to:.1} {end:.1}v8");
            // Over the bar's own colour the line would be hard to see.
            let _ = write!(svg, "<path class=\"halo\" d=\"{path}\"/><path class=\"whisker\" d=\"{path}\"/>");
        }
    }
    let middle = x(0.0);
    let _ = writeln!(svg, "<path class=\"tick\" d=\"M{middle:.1} 4V{:.1}\"/></svg></figure>", height - 26.0);
    svg
}
