//! What values a key may have.

use std::fmt;

use toml::Value;

/// The values that a key may have, apart from what other keys demand.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Range {
    /// Whole numbers of both bounds and between.
    Whole {
        /// Smallest.
        least: i64,
        /// Largest.
        most: i64,
        /// What else must hold.
        form: Form,
    },
    /// Numbers.
    Real {
        /// Lower bound.
        least: f64,
        /// Upper bound.
        most: f64,
        /// Whether the lower bound itself is allowed.
        least_allowed: bool,
        /// Whether the upper bound itself is allowed.
        most_allowed: bool,
    },
    /// `true` or `false`.
    Switch,
    /// One of these words.
    Choice(&'static [&'static str]),
    /// Three whole numbers from 1 on, none smaller than the one before it.
    Rising {
        /// Largest.
        most: i64,
    },
}

/// Whole numbers of a kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// Any.
    Any,
    /// Multiples of a number.
    MultipleOf(i64),
    /// Powers of two.
    PowerOfTwo,
}

/// Whole numbers from `least` to `most`.
pub(super) const fn whole(least: i64, most: i64) -> Range {
    Range::Whole { least, most, form: Form::Any }
}

/// Multiples of `of` from `least` to `most`.
pub(super) const fn multiple(of: i64, least: i64, most: i64) -> Range {
    Range::Whole { least, most, form: Form::MultipleOf(of) }
}

/// Powers of two from `least` to `most`.
pub(super) const fn power_of_two(least: i64, most: i64) -> Range {
    Range::Whole { least, most, form: Form::PowerOfTwo }
}

/// Numbers in \[least, most\].
pub(super) const fn from(least: f64, most: f64) -> Range {
    Range::Real { least, most, least_allowed: true, most_allowed: true }
}

/// Numbers in (least, most\].
pub(super) const fn above(least: f64, most: f64) -> Range {
    Range::Real { least, most, least_allowed: false, most_allowed: true }
}

/// Numbers in \[least, most).
pub(super) const fn below(least: f64, most: f64) -> Range {
    Range::Real { least, most, least_allowed: true, most_allowed: false }
}

impl Range {
    /// Whether the value has the right type and lies inside.
    pub fn holds(&self, value: &Value) -> bool {
        match *self {
            Self::Whole { least, most, form } => {
                value.as_integer().is_some_and(|n| (least..=most).contains(&n) && form.holds(n))
            }
            Self::Real { least, most, least_allowed, most_allowed } => {
                let number = value.as_float().or_else(|| value.as_integer().map(|n| n as f64));
                number.is_some_and(|x| {
                    (x > least || (least_allowed && x == least)) && (x < most || (most_allowed && x == most))
                })
            }
            Self::Switch => value.is_bool(),
            Self::Choice(words) => value.as_str().is_some_and(|word| words.contains(&word)),
            Self::Rising { most } => {
                let items = value.as_array().map(Vec::as_slice).unwrap_or_default();
                let numbers: Vec<i64> = items.iter().filter_map(Value::as_integer).collect();
                items.len() == 3
                    && numbers.len() == 3
                    && numbers.is_sorted()
                    && numbers.iter().all(|n| (1..=most).contains(n))
            }
        }
    }
}

impl Form {
    fn holds(self, n: i64) -> bool {
        match self {
            Self::Any => true,
            Self::MultipleOf(of) => n % of == 0,
            Self::PowerOfTwo => n.count_ones() == 1,
        }
    }
}

/// As messages and the documentation say it.
impl fmt::Display for Range {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Whole { least, most, form: Form::Any } => write!(f, "a whole number from {least} to {most}"),
            Self::Whole { least, most, form: Form::MultipleOf(of) } => {
                write!(f, "a multiple of {of} from {least} to {most}")
            }
            Self::Whole { least, most, form: Form::PowerOfTwo } => {
                write!(f, "a power of two from {least} to {most}")
            }
            Self::Real { least, most, least_allowed, most_allowed } => match (least_allowed, most_allowed) {
                (true, true) => write!(f, "a number from {least} to {most}"),
                (true, false) => write!(f, "a number from {least} to below {most}"),
                (false, true) => write!(f, "a number above {least}, at most {most}"),
                (false, false) => write!(f, "a number above {least} and below {most}"),
            },
            Self::Switch => write!(f, "true or false"),
            Self::Choice(words) => {
                let quoted: Vec<String> = words.iter().map(|word| format!("\"{word}\"")).collect();
                write!(f, "{}", quoted.join(" or "))
            }
            Self::Rising { most } => {
                write!(f, "three whole numbers from 1 to {most}, none smaller than the one before it")
            }
        }
    }
}
