//! Text and numbers as the page writes them.

use chrono::DateTime;

/// What stands where there is no number.
pub const NONE: &str = "–";

/// Text between tags or in a quoted attribute.
pub fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            // Not allowed in HTML at all; a log or a name may hold them.
            control if control.is_control() && !matches!(control, '\n' | '\t') => out.push('\u{FFFD}'),
            other => out.push(other),
        }
    }
    out
}

/// A number with so many decimals, thousands apart, and a true minus; very large and very small ones as powers of ten.
pub fn fixed(value: f64, decimals: usize) -> String {
    if !value.is_finite() {
        return NONE.into();
    }
    if value.abs() >= 1e9 {
        return scientific(value);
    }
    let digits = format!("{:.decimals$}", value.abs());
    let (whole, fraction) = digits.split_once('.').unwrap_or((&digits, ""));
    let mut grouped = String::new();
    for (at, digit) in whole.chars().enumerate() {
        if at > 0 && (whole.len() - at).is_multiple_of(3) {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    if !fraction.is_empty() {
        grouped = format!("{grouped}.{fraction}");
    }
    let is_zero = digits.chars().all(|digit| matches!(digit, '0' | '.'));
    if value < 0.0 && !is_zero { format!("−{grouped}") } else { grouped }
}

fn scientific(value: f64) -> String {
    format!("{value:.1e}").replace('-', "−")
}

/// A whole number.
pub fn count(value: u64) -> String {
    fixed(value as f64, 0)
}

/// A ratio, two decimals.
pub fn ratio(value: f64) -> String {
    fixed(value, 2)
}

/// A fraction as a percentage, one decimal; two under one percent.
pub fn percent(fraction: f64) -> String {
    if !fraction.is_finite() {
        return NONE.into();
    }
    let percent = 100.0 * fraction;
    let decimals = if percent.abs() >= 1000.0 {
        0
    } else if percent.abs() >= 1.0 || percent == 0.0 {
        1
    } else {
        2
    };
    format!("{} %", fixed(percent, decimals))
}

/// A value or [`NONE`].
pub fn or_none<T>(value: Option<T>, form: impl Fn(T) -> String) -> String {
    value.map_or(NONE.into(), form)
}

/// From and to.
pub fn interval(low: f64, high: f64) -> String {
    format!("{} to {}", ratio(low), ratio(high))
}

/// Text, safe in HTML already, that is not broken over lines.
pub fn whole(html: &str) -> String {
    format!("<span class=\"whole\">{html}</span>")
}

/// A number of which nothing is known but that it is short: four digits that count.
pub fn short(value: f64) -> String {
    if value == 0.0 || !value.is_finite() {
        return if value == 0.0 { "0".into() } else { NONE.into() };
    }
    let exponent = value.abs().log10().floor();
    if (-4.0..9.0).contains(&exponent) { fixed(value, (3.0 - exponent).max(0.0) as usize) } else { scientific(value) }
}

/// A day.
pub fn day(time_ns: i64) -> String {
    DateTime::from_timestamp_nanos(time_ns).format("%Y-%m-%d").to_string()
}

/// A minute of a day, UTC.
pub fn minute(time_ns: i64) -> String {
    DateTime::from_timestamp_nanos(time_ns).format("%m-%d %H:%M").to_string()
}

/// A baseline's name for people.
pub fn title(name: &str) -> String {
    match name {
        "agent" => "Agent".into(),
        "flat" => "Flat".into(),
        "buy_and_hold" => "Buy and hold".into(),
        "random" => "Random (median)".into(),
        "threshold_rule" => "Threshold rule".into(),
        other => other.replace('_', " "),
    }
}
