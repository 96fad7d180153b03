//! What ran, how it was configured, and what the report's words mean.

use std::fmt::Write;

use serde_json::Value;

use super::run::{CONFIG_FILE, RUN_FILE, Run};
use super::text::{escaped, short};

/// Facts and configuration as the run's folder has them.
pub fn configuration(run: &Run) -> String {
    let mut html = String::new();
    if let Some(facts) = &run.facts {
        let mut rows = Vec::new();
        flatten("", facts, &mut rows);
        let _ = writeln!(html, "<div class=\"scroll\"><table class=\"facts\"><caption>{RUN_FILE}</caption><tbody>");
        for (key, value) in rows {
            let _ = writeln!(html, "<tr><th scope=\"row\">{}</th><td>{}</td></tr>", escaped(&key), escaped(&value));
        }
        html += "</tbody></table></div>\n";
    }
    match &run.config {
        Some(config) => {
            let _ = write!(html, "<h3>{CONFIG_FILE}</h3>\n<pre>{}</pre>\n", escaped(config.trim_end()));
        }
        None => html += "<p>The folder holds no configuration.</p>\n",
    }
    html
}

/// Values with the path of their keys.
fn flatten(path: &str, value: &Value, rows: &mut Vec<(String, String)>) {
    match value {
        Value::Object(entries) => {
            for (key, value) in entries {
                flatten(&if path.is_empty() { key.clone() } else { format!("{path}.{key}") }, value, rows);
            }
        }
        Value::String(text) => rows.push((path.into(), text.clone())),
        Value::Number(number) if number.is_f64() => {
            rows.push((path.into(), number.as_f64().map_or_else(|| number.to_string(), short)));
        }
        other => rows.push((path.into(), other.to_string())),
    }
}

/// The words, shortly.
pub const MEANING: &str = "<dl>\n\
<dt>Sharpe ratio</dt><dd>Mean over standard deviation of the per-bar net returns, times the root of the bars a year. 0 means \
that nothing was earned on the average, or that nothing was traded.</dd>\n\
<dt>95% interval</dt><dd>What the ratio would be on other stretches of the same kind: the series is put together anew from \
its own blocks 2,000 times, and the middle 95% are shown. It does not know of markets unlike the tested one.</dd>\n\
<dt>Lead, shown</dt><dd>The same for the difference of two ratios on the same blocks. “Shown” means that the whole interval is \
above 0. The verdict is an edge only where the lead over flat, buy and hold and random is shown, each.</dd>\n\
<dt>Smallest Sharpe ratio that could have been shown</dt><dd>A true edge below it would not be told from luck by a test of \
this length.</dd>\n\
<dt>Sortino ratio</dt><dd>As the Sharpe ratio, over the root mean square of the losses.</dd>\n\
<dt>Costs</dt><dd>Half spread, fees and financing, each as a fraction of the equity of its bar, added up. Returns are net of \
them.</dd>\n\
<dt>Random (median)</dt><dd>A direction drawn at every bar at full size by market order; of 100 such paths the one with the \
median Sharpe ratio.</dd>\n\
<dt>Cap</dt><dd>The largest position, as a fraction of equity, that the checkpoint carries. The baselines have the same.</dd>\n\
<dt>Test</dt><dd>Bars that neither training nor the choice of the checkpoint has seen. Each is read once.</dd>\n\
</dl>\n";
