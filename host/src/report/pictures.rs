//! Pictures of the tests' result.

use std::fmt::Write;

use super::axis::Axis;
use super::chart::{Chart, Layer, Shape};
use super::text::{escaped, interval, percent, ratio, title};
use crate::eval::curves::Curve;
use crate::eval::evaluation::{Evaluation, FoldResult};
use crate::eval::statistics::Interval;

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

/// A bar of the picture of Sharpe ratios.
struct Ratio {
    name: String,
    style: usize,
    sharpe: f64,
    interval: Option<Interval>,
}

impl Ratio {
    /// Training, validation and test of each fold, as far as they are known.
    fn all(evaluation: &Evaluation) -> Vec<Self> {
        let is_one = evaluation.folds.len() == 1;
        let of_fold = |(at, fold): (usize, &FoldResult)| {
            let named = |part: &str| if is_one { part.into() } else { format!("fold {}, {part}", at + 1) };
            let (selection, agent) = (&fold.selection, &fold.agent);
            let of_choice = |part: &str, style: usize, sharpe: Option<f64>| {
                Some(Self { name: named(part), style, sharpe: sharpe?, interval: None })
            };
            let (sharpe, interval) = (agent.sharpe, Some(agent.sharpe_interval));
            [
                of_choice("training", 2, selection.train_sharpe),
                of_choice("validation", 1, selection.validation_sharpe),
                Some(Self { name: named("test"), style: 0, sharpe, interval }),
            ]
        };
        let all = evaluation.folds.iter().enumerate().flat_map(of_fold).flatten();
        all.filter(|bar| bar.sharpe.is_finite()).collect()
    }

    fn words(&self) -> String {
        let band = self.interval.map_or(String::new(), |band| format!(" ({})", interval(band.low, band.high)));
        format!("{} {}{band}", self.name, ratio(self.sharpe))
    }

    /// Name, bar, interval and number, in a row that begins at `top`; `x` places a ratio.
    fn draw(&self, svg: &mut String, left: f64, top: f64, x: impl Fn(f64) -> f64) {
        let (style, line) = (self.style, top + 11.5);
        let (from, to) = (x(0.0).min(x(self.sharpe)), x(0.0).max(x(self.sharpe)));
        let end = self.interval.map_or(to, |band| to.max(x(band.high)));
        let _ = write!(
            svg,
            "<text class=\"end\" x=\"{:.1}\" y=\"{line:.1}\">{}</text>\
             <path class=\"area f{style}\" d=\"M{from:.1} {top:.1}H{to:.1}v14H{from:.1}Z\"/>\
             <text x=\"{:.1}\" y=\"{line:.1}\">{}</text>",
            left - 8.0,
            escaped(&self.name),
            end + 8.0,
            ratio(self.sharpe),
        );
        if let Some(Interval { low, high }) = self.interval {
            let (from, to, middle, cap) = (x(low), x(high), top + 7.0, top + 3.0);
            let path = format!("M{from:.1} {middle:.1}H{to:.1}M{from:.1} {cap:.1}v8M{to:.1} {cap:.1}v8");
            // Over the bar's own colour the line would be hard to see.
            let _ = write!(svg, "<path class=\"halo\" d=\"{path}\"/><path class=\"whisker\" d=\"{path}\"/>");
        }
    }
}

/// Height of a bar's row.
const ROW: f64 = 22.0;

/// Sharpe ratios of training, validation and test as bars, the test's with its interval.
pub fn side_by_side(evaluation: &Evaluation) -> String {
    let bars = Ratio::all(evaluation);
    let ends = bars.iter().filter_map(|bar| bar.interval).flat_map(|band| [band.low, band.high]);
    let axis = Axis::linear(bars.iter().map(|bar| bar.sharpe).chain(ends).chain([0.0]));
    let (left, right, bottom) = (140.0, 970.0, bars.len() as f64 * ROW + 8.0);
    let x = |value: f64| left + axis.place(value) * (right - left);
    let mut svg = format!(
        "<figure class=\"wide\"><figcaption>Sharpe ratio, a year; the line is the test’s 95% interval</figcaption>\
         <svg viewBox=\"0 0 1040 {}\" role=\"img\" aria-labelledby=\"side-t side-d\"><title id=\"side-t\">Sharpe ratios of \
         training, validation and test</title><desc id=\"side-d\">{}.</desc>",
        bottom + 26.0,
        escaped(&bars.iter().map(Ratio::words).collect::<Vec<_>>().join("; "))
    );
    for (value, label) in &axis.ticks {
        let (at, line) = (x(*value), bottom + 18.0);
        let _ = write!(
            svg,
            "<path class=\"grid\" d=\"M{at:.1} 4V{bottom:.1}\"/><text class=\"mid\" x=\"{at:.1}\" y=\"{line:.1}\">{}</text>",
            escaped(label)
        );
    }
    for (at, bar) in bars.iter().enumerate() {
        bar.draw(&mut svg, left, 6.0 + at as f64 * ROW, x);
    }
    let _ = writeln!(svg, "<path class=\"tick\" d=\"M{:.1} 4V{bottom:.1}\"/></svg></figure>", x(0.0));
    svg
}
