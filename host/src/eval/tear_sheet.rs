//! A result as a terminal shows it.

use std::fmt::Write;

use super::evaluation::{Evaluation, FoldResult, Named, Repetition, Superiority};
use super::performance::Performance;
use super::statistics::Interval;
use crate::data::format_time;

/// Width of the first column.
const NAMES: usize = 26;
/// Width of the others, two spaces before the text included; a longer text keeps them.
const CELL: usize = 18;

/// Everything: the result, the same on other terms, each fold.
pub fn text(evaluation: &Evaluation) -> String {
    format!("{}\n{}\n{}", headline(evaluation), repetitions(evaluation), folds(evaluation))
}

/// Verdict, notes, and the agent beside the baselines.
pub fn headline(evaluation: &Evaluation) -> String {
    let mut text = format!("{}\n", evaluation.sentence);
    for note in &evaluation.notes {
        let _ = writeln!(text, "- {note}");
    }
    let shown = or_none(evaluation.smallest_sharpe_shown, ratio);
    let _ = writeln!(
        text,
        "\n{} bars, {:.0} a year; a Sharpe ratio under {shown} could not have been shown by so many\n",
        evaluation.n_bars, evaluation.bars_a_year
    );
    let agent = Named { name: "agent".into(), performance: evaluation.agent.clone() };
    let columns: Vec<&Named> = [&agent].into_iter().chain(&evaluation.baselines).collect();
    text += &line("", columns.iter().map(|column| column.name.replace('_', " ")));
    let mut row = |name: &str, cell: fn(&Performance) -> String| {
        text += &line(name, columns.iter().map(|column| cell(&column.performance)));
    };
    row("Sharpe ratio, a year", |p| ratio(p.sharpe));
    row("  95% interval", |p| interval(p.sharpe_interval));
    let over = |cell: fn(&Superiority) -> String| {
        let of = |name: &str| evaluation.superiority.iter().find(|over| over.over == name).map_or("-".into(), cell);
        columns.iter().map(|column| of(&column.name)).collect::<Vec<_>>()
    };
    text += &line("agent's lead over it", over(|over| ratio(over.difference)));
    text += &line("  95% interval", over(|over| interval(over.interval)));
    text += &line("  lead is", over(|over| if over.is_shown { "shown" } else { "not shown" }.into()));
    let mut row = |name: &str, cell: fn(&Performance) -> String| {
        text += &line(name, columns.iter().map(|column| cell(&column.performance)));
    };
    row("total return", |p| percent(p.total_return));
    row("maximum drawdown", |p| percent(p.max_drawdown));
    row("Sortino ratio, a year", |p| ratio(p.sortino));
    row("trades closed", |p| p.n_trades.to_string());
    row("hit rate, net of costs", |p| or_none(p.hit_rate, percent));
    row("mean position, of equity", |p| percent(p.exposure));
    row("time in the market", |p| percent(p.time_in_market));
    row("turnover a year", |p| format!("{:.1} x", p.turnover_a_year));
    row("costs paid, of equity", |p| percent(p.costs));
    row("limit orders that filled", |p| or_none(p.limit_fill_share, percent));
    text
}

fn repetitions(evaluation: &Evaluation) -> String {
    let head = ["Sharpe ratio", "95% interval", "lead over hold", "total return", "drawdown", "trades", "costs"];
    let mut text = line("on other terms", head.map(str::to_owned));
    for Repetition { scenario, agent, superiority, .. } in &evaluation.repetitions {
        let lead = superiority.iter().find(|over| over.over == "buy_and_hold");
        let cells = [
            ratio(agent.sharpe),
            interval(agent.sharpe_interval),
            lead.map_or("-".into(), |over| interval(over.interval)),
            percent(agent.total_return),
            percent(agent.max_drawdown),
            agent.n_trades.to_string(),
            percent(agent.costs),
        ];
        text += &line(scenario.title(), cells);
    }
    text
}

fn folds(evaluation: &Evaluation) -> String {
    let head = ["train Sharpe", "validation Sharpe", "test Sharpe", "95% interval", "buy and hold", "epoch", "of"];
    let mut text = line("each test", head.map(str::to_owned));
    for FoldResult { selection, test_ns, agent, buy_and_hold, .. } in &evaluation.folds {
        let day = |time_ns: i64| format_time(time_ns).chars().take(10).collect::<String>();
        let cells = [
            or_none(selection.train_sharpe, ratio),
            or_none(selection.validation_sharpe, ratio),
            ratio(agent.sharpe),
            interval(agent.sharpe_interval),
            ratio(buy_and_hold.sharpe),
            or_none(selection.epoch, |epoch| epoch.to_string()),
            or_none(selection.n_candidates, |n| n.to_string()),
        ];
        text += &line(&format!("{} to {}", day(test_ns.0), day(test_ns.1)), cells);
    }
    text
}

fn line(name: &str, cells: impl IntoIterator<Item = String>) -> String {
    let cells: String = cells.into_iter().map(|cell| format!("{:>CELL$}", format!("  {cell}"))).collect();
    format!("{:<NAMES$}{cells}", name).trim_end().to_owned() + "\n"
}

fn ratio(value: f64) -> String {
    // Without the sign of a zero that was rounded.
    format!("{:.2}", if value.abs() < 0.005 { 0.0 } else { value })
}

fn percent(fraction: f64) -> String {
    format!("{:.2}%", if fraction.abs() < 5e-5 { 0.0 } else { 100.0 * fraction })
}

fn interval(Interval { low, high }: Interval) -> String {
    format!("{} to {}", ratio(low), ratio(high))
}

fn or_none<T>(value: Option<T>, form: impl Fn(T) -> String) -> String {
    value.map_or_else(|| "-".into(), form)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_lines_for_people() {
        assert_eq!([-0.001, -1.005, 1234.5].map(ratio), ["0.00", "-1.00", "1234.50"]);
        assert_eq!([-0.00001, 0.1234, -1.0].map(percent), ["0.00%", "12.34%", "-100.00%"]);
        assert_eq!(interval(Interval { low: -1.0, high: 2.5 }), "-1.00 to 2.50");
        let text = line("name", ["a".to_owned(), "-12.34 to 56.78".to_owned()]);
        assert_eq!(text.len(), NAMES + 2 * CELL + 1);
        assert!(text.starts_with("name   ") && text.ends_with("   -12.34 to 56.78\n"), "{text}");
        assert_eq!(line("alone", []), "alone\n");
    }

    #[test]
    fn cells_wider_than_their_column_stay_apart() {
        let wide = ["-10.88 to 18.92".to_owned(), "-202.34 to -157.52".to_owned(), "1".to_owned()];
        assert_eq!(
            line("95% interval", wide),
            "95% interval                 -10.88 to 18.92  -202.34 to -157.52                 1\n"
        );
    }
}
