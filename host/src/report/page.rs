//! The page.

use super::run::Run;
use super::text::escaped;
use super::{graph, pictures, result, settings, training};
use crate::eval::evaluation::Verdict;

const STYLE: &str = include_str!("page.css");

/// The report on a run: a whole HTML file that loads nothing.
pub fn html(run: &Run) -> String {
    let name = escaped(&run.name);
    let mut page = format!(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <meta name=\"color-scheme\" content=\"light dark\">\n\
         <meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">\n\
         <title>{name} – onegraph report</title>\n<style>\n{STYLE}</style>\n</head>\n<body>\n<main>\n\
         <header><p class=\"soft\">onegraph report</p><h1>{name}</h1>\n"
    );
    match &run.evaluation {
        Some(evaluation) => {
            let class = if evaluation.verdict == Verdict::Edge { "edge" } else { "no-edge" };
            page += &format!("<p class=\"verdict {class}\">{}</p>\n", escaped(&evaluation.sentence));
            for note in &evaluation.notes {
                page += &format!("<p class=\"note\">{}</p>\n", escaped(note));
            }
        }
        None => {
            page += "<p class=\"verdict\">This run has not been tested yet: the report shows its training alone.</p>\n"
        }
    }
    for note in &run.notes {
        page += &format!("<p class=\"note\">{}</p>\n", escaped(note));
    }
    page += "</header>\n";
    if let Some(evaluation) = &run.evaluation {
        page += &section("Result", &result::headline(evaluation));
        page += &section("Equity and drawdown", &pictures::equity(evaluation));
        page += &section("Costs, orders and cap", &result::repetitions(evaluation));
        page += &section("Training, validation and test side by side", &result::folds(evaluation));
    }
    if !run.epochs.is_empty() {
        page += &section("Training", &training::curves(&run.epochs));
        let mix = training::action_mix(&run.epochs);
        if !mix.is_empty() {
            page += &section("Actions chosen, by epoch", &mix);
        }
    }
    if let Some(graph) = &run.graph {
        page += &section("One training step", &graph::section(graph));
    }
    page += &section("Configuration", &settings::configuration(run));
    page += &section("What the numbers mean", settings::MEANING);
    page + "</main>\n</body>\n</html>\n"
}

fn section(title: &str, body: &str) -> String {
    format!("<section>\n<h2>{title}</h2>\n{body}</section>\n")
}
