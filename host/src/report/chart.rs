//! Pictures in SVG: lines, bands and stacked shares over one pair of axes, with a text alternative and a legend.

use std::fmt::Write;

use super::axis::Axis;
use super::text::escaped;
use crate::eval::curves::extremes;

/// A chart.
pub struct Chart<'a> {
    /// Part of the ids in the page, unlike any other chart's.
    pub id: &'a str,
    /// What it shows.
    pub title: &'a str,
    /// The same in words, for who does not see it.
    pub description: String,
    /// Width and height, user units; text has 12 of them.
    pub size: (f64, f64),
    /// Horizontal axis.
    pub x: Axis,
    /// What the horizontal axis counts.
    pub x_title: &'a str,
    /// Vertical axis.
    pub y: Axis,
    /// Drawn in this order, the first one behind all others; the legend begins with the last.
    pub layers: Vec<Layer>,
    /// Vertical lines with a name: where folds begin.
    pub marks: Vec<(f64, String)>,
}

/// A layer of a chart.
pub struct Layer {
    /// In the legend.
    pub name: String,
    /// Number of its colour and dash in the style sheet.
    pub style: usize,
    /// What it is.
    pub shape: Shape,
}

/// The shape of a layer.
pub enum Shape {
    /// (x, y), by rising x; a y that is not finite breaks the line.
    Line(Vec<(f64, f64)>),
    /// (x, low, high), by rising x; an end that is not finite breaks the band.
    Band(Vec<(f64, f64, f64)>),
    /// (low, high) of the stretch from position to position + 1.
    Stretches(Vec<(f64, f64)>),
}

/// A wider chart keeps its size on a narrow screen, so that its text can be read, and is moved sideways.
const WIDE: f64 = 600.0;
const LEFT: f64 = 62.0;
const RIGHT: f64 = 14.0;
const TOP: f64 = 18.0;
const BOTTOM: f64 = 40.0;

impl Chart<'_> {
    /// The picture with its caption and legend.
    pub fn figure(&self) -> String {
        let mut svg = String::new();
        let (width, height) = self.size;
        let (id, class) = (self.id, if width > WIDE { " class=\"wide\"" } else { "" });
        let _ = write!(
            svg,
            "<figure{class}><figcaption>{}</figcaption>{}<svg viewBox=\"0 0 {width} {height}\" role=\"img\" \
             aria-labelledby=\"{id}-t {id}-d\"><title id=\"{id}-t\">{}</title><desc id=\"{id}-d\">{}</desc>",
            escaped(self.title),
            self.legend(),
            escaped(self.title),
            escaped(&self.description),
        );
        self.axes(&mut svg);
        for layer in &self.layers {
            self.layer(&mut svg, layer);
        }
        svg.push_str("</svg></figure>\n");
        svg
    }

    fn legend(&self) -> String {
        if self.layers.len() < 2 {
            return String::new();
        }
        let mut list = String::from("<ul class=\"legend\">");
        for layer in self.layers.iter().rev() {
            let style = layer.style;
            let sample = match layer.shape {
                Shape::Line(_) => format!("<path class=\"line s{style}\" d=\"M1 6H25\"/>"),
                _ => format!("<path class=\"area f{style}\" d=\"M3 1H23V11H3Z\"/>"),
            };
            let _ = write!(
                list,
                "<li><svg viewBox=\"0 0 26 12\" width=\"26\" height=\"12\" aria-hidden=\"true\">{sample}</svg>{}</li>",
                escaped(&layer.name)
            );
        }
        list + "</ul>"
    }

    fn x(&self, value: f64) -> f64 {
        LEFT + self.x.place(value) * (self.size.0 - LEFT - RIGHT)
    }

    fn y(&self, value: f64) -> f64 {
        self.size.1 - BOTTOM - self.y.place(value) * (self.size.1 - TOP - BOTTOM)
    }

    fn axes(&self, svg: &mut String) {
        let (width, height) = self.size;
        let (right, bottom) = (width - RIGHT, height - BOTTOM);
        for (value, label) in &self.y.ticks {
            let y = self.y(*value);
            let _ = write!(
                svg,
                "<path class=\"grid\" d=\"M{LEFT} {y:.1}H{right:.1}\"/><text x=\"{:.1}\" y=\"{:.1}\" class=\"end\">{}</text>",
                LEFT - 8.0,
                y + 4.0,
                escaped(label)
            );
        }
        for (value, label) in &self.x.ticks {
            let x = self.x(*value);
            let _ = write!(
                svg,
                "<path class=\"tick\" d=\"M{x:.1} {bottom:.1}v5\"/><text x=\"{x:.1}\" y=\"{:.1}\" class=\"mid\">{}</text>",
                bottom + 18.0,
                escaped(label)
            );
        }
        let middle = (LEFT + right) / 2.0;
        let _ = write!(
            svg,
            "<path class=\"tick\" d=\"M{LEFT} {bottom:.1}H{right:.1}\"/><text x=\"{middle:.1}\" y=\"{:.1}\" class=\"mid soft\">{}</text>",
            height - 5.0,
            escaped(self.x_title)
        );
        for (value, label) in &self.marks {
            let x = self.x(*value);
            let _ = write!(
                svg,
                "<path class=\"mark\" d=\"M{x:.1} {TOP}V{bottom:.1}\"/><text x=\"{:.1}\" y=\"{:.1}\" class=\"soft\">{}</text>",
                x + 4.0,
                TOP - 5.0,
                escaped(label)
            );
        }
    }

    fn layer(&self, svg: &mut String, layer: &Layer) {
        let style = layer.style;
        let _ = match &layer.shape {
            Shape::Line(points) => write!(svg, "<path class=\"line s{style}\" d=\"{}\"/>", self.line(points)),
            Shape::Band(points) => write!(svg, "<path class=\"area f{style}\" d=\"{}\"/>", self.band(points)),
            Shape::Stretches(shares) => write!(svg, "<path class=\"area f{style}\" d=\"{}\"/>", self.stretches(shares)),
        };
    }

    /// Two points for each unit of width at most.
    fn line(&self, points: &[(f64, f64)]) -> String {
        let values: Vec<f64> = points.iter().map(|point| point.1).collect();
        let n_columns = (self.size.0 - LEFT - RIGHT) as usize;
        let is_thinned = values.len() > 2 * n_columns;
        let mut kept: Vec<usize> = if is_thinned { extremes(&values, n_columns) } else { (0..values.len()).collect() };
        if is_thinned {
            kept.extend((0..values.len()).filter(|&at| !values[at].is_finite()));
            kept.sort_unstable();
        }
        let (mut path, mut is_down) = (String::new(), false);
        for (at, &index) in kept.iter().enumerate() {
            let (x, y) = points[index];
            if !y.is_finite() {
                is_down = false;
                continue;
            }
            let _ = write!(path, "{}{:.1} {:.1}", if is_down { 'L' } else { 'M' }, self.x(x), self.y(y));
            let is_alone = !is_down && kept.get(at + 1).is_none_or(|&next| !points[next].1.is_finite());
            if is_alone {
                // A round cap makes a dot of it.
                path.push_str("h0.01");
            }
            is_down = true;
        }
        path
    }

    fn band(&self, points: &[(f64, f64, f64)]) -> String {
        let mut path = String::new();
        for piece in points.split(|(_, low, high)| !low.is_finite() || !high.is_finite()) {
            let every = piece.len().div_ceil(1_000).max(1);
            let upper = piece.iter().step_by(every).map(|&(x, _, high)| (x, high));
            let lower = piece.iter().step_by(every).rev().map(|&(x, low, _)| (x, low));
            for (at, (x, y)) in upper.chain(lower).enumerate() {
                let _ = write!(path, "{}{:.1} {:.1}", if at == 0 { 'M' } else { 'L' }, self.x(x), self.y(y));
            }
            if !piece.is_empty() {
                path.push('Z');
            }
        }
        path
    }

    fn stretches(&self, shares: &[(f64, f64)]) -> String {
        let every = shares.len().div_ceil(500).max(1);
        let mut path = String::new();
        for (at, &(low, high)) in shares.iter().enumerate().step_by(every) {
            if low.is_finite() && high > low {
                let end = (at + every).min(shares.len());
                let (x, right) = (self.x(at as f64), self.x(end as f64));
                let _ = write!(path, "M{x:.1} {:.1}H{right:.1}V{:.1}H{x:.1}Z", self.y(high), self.y(low));
            }
        }
        path
    }
}
