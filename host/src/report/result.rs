//! What the tests came to, in tables.

use std::fmt::Write;

use super::pictures;
use super::text::{NONE, count, day, escaped, interval, or_none, percent, ratio, short, title, whole};
use crate::eval::evaluation::{Evaluation, FoldResult, Named, Superiority};
use crate::eval::performance::Performance;

/// A table: a row's name and its cells. All cells are text that is safe in HTML.
pub(super) struct Table {
    /// What it shows.
    pub(super) caption: String,
    /// Names of the columns.
    pub(super) head: Vec<String>,
    /// Rows.
    pub(super) rows: Vec<Vec<String>>,
}

impl Table {
    /// As the page has it.
    pub(super) fn html(&self) -> String {
        let mut html = format!("<div class=\"scroll\"><table><caption>{}</caption><thead><tr>", self.caption);
        self.head.iter().for_each(|cell| {
            let _ = write!(html, "<th scope=\"col\">{cell}</th>");
        });
        html += "</tr></thead><tbody>\n";
        for row in &self.rows {
            html += "<tr>";
            for (at, cell) in row.iter().enumerate() {
                let _ = if at == 0 {
                    write!(html, "<th scope=\"row\">{cell}</th>")
                } else {
                    write!(html, "<td>{cell}</td>")
                };
            }
            html += "</tr>\n";
        }
        html + "</tbody></table></div>\n"
    }
}

/// The agent beside the baselines.
pub fn headline(evaluation: &Evaluation) -> String {
    let agent = Named { name: "agent".into(), performance: evaluation.agent.clone() };
    let columns: Vec<&Named> = [&agent].into_iter().chain(&evaluation.baselines).collect();
    let row = |name: &str, cell: fn(&Performance) -> String| {
        let cells = columns.iter().map(|column| cell(&column.performance));
        [name.to_owned()].into_iter().chain(cells).collect::<Vec<_>>()
    };
    let lead = |column: &&Named| {
        let over = evaluation.superiority.iter().find(|over| over.over == column.name);
        over.map_or(NONE.into(), |over| verdict_cell(over, true))
    };
    let mut rows = vec![
        row("Sharpe ratio, a year", |p| format!("<strong>{}</strong>", ratio(p.sharpe))),
        row("95% interval", |p| whole(&interval(p.sharpe_interval.low, p.sharpe_interval.high))),
    ];
    rows.push(
        ["Agent’s lead in Sharpe ratio, 95% interval".into()].into_iter().chain(columns.iter().map(lead)).collect(),
    );
    rows.extend([
        row("Total return", |p| percent(p.total_return)),
        row("Sum of log returns", |p| super::text::fixed(p.log_growth, 4)),
        row("Sortino ratio, a year", |p| ratio(p.sortino)),
        row("Maximum drawdown", |p| percent(p.max_drawdown)),
        row("Trades closed", |p| count(p.n_trades)),
        row("Hit rate, net of costs", |p| or_none(p.hit_rate, percent)),
        row("Mean position, of equity", |p| percent(p.exposure)),
        row("Time in the market", |p| percent(p.time_in_market)),
        row("Turnover a year, of equity", |p| format!("{} ×", short(p.turnover_a_year))),
        row("Costs paid, of equity", |p| percent(p.costs)),
        row("Fills by limit order", |p| or_none(p.limit_share_of_fills, percent)),
        row("Limit orders that filled", |p| or_none(p.limit_fill_share, percent)),
    ]);
    let head = [String::new()].into_iter().chain(columns.iter().map(|column| escaped(&title(&column.name)))).collect();
    let shown = or_none(evaluation.smallest_sharpe_shown, ratio);
    let caption = format!(
        "{} bars in {}, {} bars a year. The smallest Sharpe ratio that a test of this length could have shown is \
         <strong>{shown}</strong>.",
        count(evaluation.n_bars as u64),
        if evaluation.folds.len() == 1 {
            "1 test".into()
        } else {
            format!("{} tests one after the other", evaluation.folds.len())
        },
        count(evaluation.bars_a_year.round() as u64),
    );
    Table { caption, head, rows }.html()
}

/// An interval with what it says, not by colour alone.
fn verdict_cell(over: &Superiority, with_difference: bool) -> String {
    let range = interval(over.interval.low, over.interval.high);
    let range = whole(&if with_difference { format!("{} ({range})", ratio(over.difference)) } else { range });
    let (class, word) = if over.is_shown { ("yes", "shown") } else { ("no", "not shown") };
    format!("{range} <span class=\"{class}\">{word}</span>")
}

/// A Sharpe ratio with its interval.
fn sharpe_cell(performance: &Performance) -> String {
    let band = performance.sharpe_interval;
    format!("<strong>{}</strong> {}", ratio(performance.sharpe), whole(&format!("({})", interval(band.low, band.high))))
}

/// The same test on other terms.
pub fn repetitions(evaluation: &Evaluation) -> String {
    let head = [
        "",
        "Sharpe ratio (95% interval)",
        "Lead over buy and hold",
        "Total return",
        "Maximum drawdown",
        "Trades",
        "Limit orders that filled",
        "Costs paid",
        "Buy and hold’s Sharpe ratio",
    ];
    let row = |repetition: &crate::eval::evaluation::Repetition| {
        let (agent, hold) = (&repetition.agent, &repetition.buy_and_hold);
        let lead = repetition.superiority.iter().find(|over| over.over == "buy_and_hold");
        vec![
            escaped(repetition.scenario.title()),
            sharpe_cell(agent),
            lead.map_or(NONE.into(), |over| verdict_cell(over, false)),
            percent(agent.total_return),
            percent(agent.max_drawdown),
            count(agent.n_trades),
            or_none(agent.limit_fill_share, percent),
            percent(agent.costs),
            ratio(hold.sharpe),
        ]
    };
    let table = Table {
        caption: "The agent decides anew on each of these terms; the checkpoint is the same.".into(),
        head: head.map(str::to_owned).into(),
        rows: evaluation.repetitions.iter().map(row).collect(),
    };
    table.html()
}

/// Each fold, and its Sharpe ratios as a picture.
pub fn folds(evaluation: &Evaluation) -> String {
    let mut head = vec![
        "Fold",
        "Test",
        "Bars",
        "Train Sharpe",
        "Validation Sharpe",
        "Test Sharpe (95% interval)",
        "Buy and hold",
        "Total return",
        "Trades",
        "Cap",
        "Epoch",
        "Candidates",
    ];
    let has_rule = evaluation.folds.iter().any(|fold| fold.threshold_rule.is_some());
    if has_rule {
        head.push("Rule enters, leaves");
    }
    let row = |(at, fold): (usize, &FoldResult)| {
        let (selection, agent) = (&fold.selection, &fold.agent);
        let mut row = vec![
            format!("{}", at + 1),
            format!("{} to {}", whole(&day(fold.test_ns.0)), whole(&day(fold.test_ns.1))),
            count(fold.n_bars as u64),
            or_none(selection.train_sharpe, ratio),
            or_none(selection.validation_sharpe, ratio),
            sharpe_cell(agent),
            ratio(fold.buy_and_hold.sharpe),
            percent(agent.total_return),
            count(agent.n_trades),
            ratio(fold.kelly_cap),
            or_none(selection.epoch, count),
            or_none(selection.n_candidates, count),
        ];
        if has_rule {
            let both = |rule: crate::eval::threshold_rule::ThresholdRule| {
                format!("{}, {}", percent(rule.enter), percent(rule.leave))
            };
            row.push(or_none(fold.threshold_rule, both));
        }
        row
    };
    let table = Table {
        caption: "A test far below its validation is a sign of choosing by luck; a validation far below training, of learning by heart."
            .into(),
        head: head.into_iter().map(str::to_owned).collect(),
        rows: evaluation.folds.iter().enumerate().map(row).collect(),
    };
    pictures::side_by_side(evaluation) + &table.html()
}
