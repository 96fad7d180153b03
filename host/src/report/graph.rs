//! The step's graph: its children in time, what each waits for, and its kernels.

use std::fmt::Write;

use super::axis::Axis;
use super::result::Table;
use super::text::{NONE, count, escaped, fixed, percent};
use crate::bench::MeasuredGraph;
use crate::bench::measured::MeasuredChild;

/// Height of a child's row, and of its bar.
const ROW: f64 = 30.0;
const BAR: f64 = 16.0;
const TOP: f64 = 8.0;
/// Where bars begin, and where the scale ends; behind it the last bar's numbers find room.
const LEFT: f64 = 120.0;
const RIGHT: f64 = 850.0;
const WIDTH: f64 = 1040.0;
/// A bar that can be seen, however short its time.
const LEAST_WIDTH: f64 = 2.0;
/// Rounding of an edge's bend, and size of its head.
const BEND: f64 = 5.0;
const HEAD: f64 = 3.5;

/// The picture and the table.
pub fn section(graph: &MeasuredGraph) -> String {
    let way = graph.longest_way();
    let of_way: f64 = way.iter().map(|&child| graph.children[child].us).sum();
    let words = format!(
        "<p>One training step is one launch of this graph: {} child graphs, {} kernels, {} edges. Measured {} on {}: {} µs a \
         step. Each bar is as long as its child takes by itself, and begins when all that it waits for have ended; children \
         without an edge between them run side by side. The longest way, in blue, is {} µs.</p>\n",
        graph.children.len(),
        graph.children.iter().map(|child| child.kernels.len()).sum::<usize>(),
        graph.edges.len(),
        escaped(&graph.measured),
        escaped(&graph.device),
        micros(graph.step_us),
        micros(of_way),
    );
    words + &picture(graph, &way) + &table(graph)
}

/// Microseconds, a tenth where that is seen.
fn micros(us: f64) -> String {
    fixed(us, if us < 1000.0 { 1 } else { 0 })
}

/// What a child waits for.
fn before(graph: &MeasuredGraph, child: usize) -> Vec<&str> {
    let edges = graph.edges.iter().filter(|edge| edge.to == child);
    edges.filter_map(|edge| graph.children.get(edge.from)).map(|child| child.name.as_str()).collect()
}

fn n_kernels(child: &MeasuredChild) -> String {
    let n = child.kernels.len();
    format!("{} {}", count(n as u64), if n == 1 { "kernel" } else { "kernels" })
}

fn picture(graph: &MeasuredGraph, way: &[usize]) -> String {
    let starts = graph.starts();
    let ends: Vec<f64> = starts.iter().zip(&graph.children).map(|(start, child)| start + child.us).collect();
    let mut axis = Axis::linear(ends.iter().copied().chain([0.0]));
    // Up to the last end, for the widest bars.
    axis.high = ends.iter().copied().fold(0.0, f64::max).max(f64::MIN_POSITIVE);
    axis.ticks.retain(|(value, _)| *value <= axis.high);
    let x = |us: f64| LEFT + axis.place(us) * (RIGHT - LEFT);
    let top = |child: usize| TOP + child as f64 * ROW;
    let bottom = TOP + graph.children.len() as f64 * ROW;
    let described = graph.children.iter().enumerate().map(|(at, child)| {
        let after = before(graph, at);
        let after = if after.is_empty() { String::new() } else { format!(", after {}", after.join(" and ")) };
        format!("{}: {} µs, {}{after}", child.name, micros(child.us), n_kernels(child))
    });
    let mut svg = format!(
        "<figure class=\"wide\"><figcaption>The step’s child graphs, µs from the step’s beginning</figcaption>\
         <svg viewBox=\"0 0 {WIDTH} {}\" role=\"img\" aria-labelledby=\"graph-t graph-d\"><title id=\"graph-t\">The step’s \
         child graphs in time, with what each waits for</title><desc id=\"graph-d\">{}.</desc>",
        bottom + 26.0,
        escaped(&described.collect::<Vec<_>>().join("; "))
    );
    for (value, label) in &axis.ticks {
        let (at, line) = (x(*value), bottom + 18.0);
        let _ = write!(
            svg,
            "<path class=\"grid\" d=\"M{at:.1} 4V{bottom:.1}\"/><text class=\"mid\" x=\"{at:.1}\" y=\"{line:.1}\">{}</text>",
            escaped(label)
        );
    }
    let is_on_way = |child: usize| way.contains(&child);
    for edge in graph.edges.iter().filter(|edge| edge.from < edge.to && edge.to < graph.children.len()) {
        let next_on_way = way.windows(2).any(|pair| pair == [edge.from, edge.to]);
        let from = (x(ends[edge.from]), top(edge.from) + BAR);
        draw_edge(&mut svg, from, (x(starts[edge.to]), top(edge.to) + BAR / 2.0), next_on_way);
    }
    for (at, child) in graph.children.iter().enumerate() {
        let (from, to) = (x(starts[at]), x(ends[at]));
        let (to, line, style) = (to.max(from + LEAST_WIDTH), top(at) + 12.5, if is_on_way(at) { 0 } else { 2 });
        let _ = write!(
            svg,
            "<text class=\"end\" x=\"{:.1}\" y=\"{line:.1}\">{}</text>\
             <path class=\"area f{style}\" d=\"M{from:.1} {:.1}H{to:.1}v{BAR}H{from:.1}Z\"/>",
            LEFT - 10.0,
            escaped(&child.name),
            top(at),
        );
        let words = format!("{} µs, {}", micros(child.us), n_kernels(child));
        let place = to + 8.0;
        // Edges pass here.
        let _ = write!(
            svg,
            "<text class=\"behind\" x=\"{place:.1}\" y=\"{line:.1}\">{words}</text>\
             <text x=\"{place:.1}\" y=\"{line:.1}\">{words}</text>"
        );
    }
    svg.push_str("</svg></figure>\n");
    svg
}

/// From the end of a bar down, and from the left to the beginning of another one.
fn draw_edge(svg: &mut String, from: (f64, f64), to: (f64, f64), is_on_way: bool) {
    let class = if is_on_way { "edge s0" } else { "edge s2" };
    let fill = if is_on_way { "f0" } else { "f2" };
    let (start, end) = (from.0, to.0);
    if end - start > 2.0 * BEND {
        let _ = write!(
            svg,
            "<path class=\"{class}\" d=\"M{start:.1} {:.1}V{:.1}q0 {BEND} {BEND} {BEND}H{:.1}\"/>",
            from.1,
            to.1 - BEND,
            end - HEAD
        );
        let _ = write!(svg, "<path class=\"area {fill}\" d=\"M{end:.1} {:.1}l-6 -{HEAD}v{}Z\"/>", to.1, 2.0 * HEAD);
    } else {
        // From above: the other one begins where this one ends, or little later.
        let head = to.1 - BAR / 2.0;
        let _ = write!(
            svg,
            "<path class=\"{class}\" d=\"M{start:.1} {:.1}V{:.1}L{end:.1} {:.1}\"/>",
            from.1,
            head - 12.0,
            head - 6.0
        );
        let _ = write!(svg, "<path class=\"area {fill}\" d=\"M{end:.1} {head:.1}l-{HEAD} -6h{}Z\"/>", 2.0 * HEAD);
    }
}

fn table(graph: &MeasuredGraph) -> String {
    let sum: f64 = graph.children.iter().map(|child| child.us).sum();
    let row = |(at, child): (usize, &MeasuredChild)| {
        let after = before(graph, at);
        vec![
            escaped(&child.name),
            micros(child.us),
            if sum > 0.0 { percent(child.us / sum) } else { NONE.into() },
            if after.is_empty() { NONE.into() } else { escaped(&after.join(", ")) },
            escaped(&runs(&child.kernels).join(", ")),
        ]
    };
    let table = Table {
        caption: "The children with their kernels, in running order. Shares are of the sum of all children’s times."
            .into(),
        head: ["Child", "µs by itself", "Share", "Waits for", "Kernels"].map(str::to_owned).into(),
        rows: graph.children.iter().enumerate().map(row).collect(),
    };
    table.html().replacen("<table>", "<table class=\"graph\">", 1)
}

/// Names in order, each as often as it is there one after the other.
fn runs(names: &[String]) -> Vec<String> {
    let runs = names.chunk_by(|a, b| a == b);
    runs.map(|run| if run.len() > 1 { format!("{} {}×", run[0], run.len()) } else { run[0].clone() }).collect()
}
