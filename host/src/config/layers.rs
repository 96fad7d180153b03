//! Preset, then file, then `--set`: later layers win, and each value remembers where it came from.

use std::collections::HashMap;
use std::path::Path;

use serde::Deserialize;
use toml::de::{DeTable, DeValue, ValueDeserializer};
use toml::{Spanned, Value};

use super::error::{ConfigError, Origin};
use super::keys::{Config, KEYS, Key, SECTIONS};
use super::{DataSource, Preset};
use crate::files;

/// A configuration while its layers are laid on each other.
#[derive(Clone, Debug)]
pub struct Layers {
    config: Config,
    preset: Preset,
    origins: HashMap<&'static str, Origin>,
}

impl Layers {
    /// The lowest layer.
    pub fn new(preset: Preset, source: DataSource) -> Self {
        Self { config: Config::preset(preset, source), preset, origins: HashMap::new() }
    }

    /// Lays a TOML file on top.
    pub fn file(&mut self, path: &Path) -> Result<(), ConfigError> {
        let text = files::read_text(path).map_err(|error| ConfigError::Unreadable {
            path: path.into(),
            reason: error.to_string(),
            remedy: files::remedy(&error),
        })?;
        self.toml(path, &text)
    }

    /// Lays TOML text on top; `path` is what messages call it.
    pub fn toml(&mut self, path: &Path, text: &str) -> Result<(), ConfigError> {
        let place = |offset: usize| Origin::File { path: path.into(), line: line_of(text, offset) };
        let syntax = |error: &toml::de::Error| ConfigError::Syntax {
            origin: place(error.span().map_or(0, |span| span.start)),
            reason: error.message().replace('\n', ", "),
        };
        let document = DeTable::parse(text).map_err(|error| syntax(&error))?;
        for (key, value) in document.get_ref() {
            let origin = place(key.span().start);
            match (section(key.get_ref()), value.get_ref()) {
                (Some(section), DeValue::Table(table)) => {
                    for (key, value) in table {
                        let name = format!("{section}.{}", key.get_ref());
                        let value = whole_value(value).map_err(|error| syntax(&error))?;
                        self.assign(&name, &value, place(key.span().start))?;
                    }
                }
                (None, DeValue::Table(table)) => return Err(unknown_section(key.get_ref(), table, origin)),
                _ => {
                    let value = whole_value(value).map_err(|error| syntax(&error))?;
                    self.assign(key.get_ref(), &value, origin)?;
                }
            }
        }
        Ok(())
    }

    /// Lays one `key=value` on top. The value is TOML; a word needs no quotes.
    pub fn set(&mut self, assignment: &str) -> Result<(), ConfigError> {
        let origin = Origin::Set(assignment.to_owned());
        let parts = assignment.split_once('=').map(|(key, value)| (key.trim(), value.trim()));
        let Some((key, value)) = parts.filter(|(key, _)| !key.is_empty()) else {
            return Err(ConfigError::NoAssignment(origin));
        };
        let value = value.parse().unwrap_or_else(|_| Value::String(value.to_owned()));
        self.assign(key, &value, origin)
    }

    /// Lays the value of a flag of its own on top, such as `--seed`.
    pub fn flag(&mut self, flag: &'static str, key: &str, value: &Value) -> Result<(), ConfigError> {
        self.assign(key, value, Origin::Flag(flag))
    }

    /// The preset, unless the layers above it gave every key.
    pub fn preset(&self) -> Option<Preset> {
        let is_left = KEYS.iter().any(|key| !self.origins.contains_key(key.name));
        is_left.then_some(self.preset)
    }

    /// The configuration, if its keys fit each other.
    pub fn finish(self) -> Result<Config, ConfigError> {
        self.config.validate().map_err(|broken| {
            let value = |key: &&'static str| {
                let origin = self.origins.get(key).cloned().unwrap_or(Origin::Preset(self.preset));
                format!("`{key}` is {} ({origin})", self.config.value(key))
            };
            let values: Vec<String> = broken.keys.iter().map(value).collect();
            ConfigError::Rule { values: values.join(" and "), reason: broken.reason }
        })?;
        Ok(self.config)
    }

    fn assign(&mut self, name: &str, value: &Value, origin: Origin) -> Result<(), ConfigError> {
        let Some(key) = Key::find(name) else { return Err(no_such_key(name, origin)) };
        if !key.range.holds(value) {
            let (value, range) = (one_line(value), key.range.to_string());
            return Err(ConfigError::OutOfRange { origin, key: key.name, value, range, unit: key.unit });
        }
        let read = (key.write)(&mut self.config, value);
        assert!(read, "the range of {} admits {value}, which its type does not", key.name);
        self.origins.insert(key.name, origin);
        Ok(())
    }
}

impl Key {
    /// The key of this name.
    pub fn find(name: &str) -> Option<&'static Self> {
        KEYS.iter().find(|key| key.name == name)
    }
}

impl Config {
    /// The same with a part of the agent on or off: `learner` as in `learners.iqn`, without the section. None if there is no such part.
    pub fn with_learner(&self, learner: &str, is_on: bool) -> Option<Self> {
        let key = KEYS.iter().find(|key| key.name.strip_prefix("learners.") == Some(learner))?;
        let mut config = self.clone();
        (key.write)(&mut config, &Value::Boolean(is_on)).then_some(config)
    }

    /// The value of a key, as TOML.
    ///
    /// # Panics
    /// If there is no such key.
    pub fn value(&self, key: &str) -> Value {
        (Key::find(key).unwrap_or_else(|| panic!("no key {key}")).read)(self)
    }
}

fn whole_value(value: &Spanned<DeValue<'_>>) -> Result<Value, toml::de::Error> {
    Value::deserialize(ValueDeserializer::from(value.clone()))
}

/// As TOML writes it, but for line ends, at which a message would break.
fn one_line(value: &Value) -> String {
    match value {
        Value::String(text) => format!("{text:?}"),
        other => other.to_string().replace('\n', " "),
    }
}

fn section(name: &str) -> Option<&'static str> {
    SECTIONS.iter().map(|&(section, _)| section).find(|&section| section == name)
}

fn no_such_key(name: &str, origin: Origin) -> ConfigError {
    match section(name) {
        Some(section) => {
            let of_section = |key: &&Key| key.name.split_once('.').is_some_and(|(first, _)| first == section);
            let example = KEYS.iter().find(of_section).expect("a section has keys").name;
            ConfigError::Section { origin, section, example }
        }
        None => ConfigError::UnknownKey { nearest: nearest_key(name), key: name.to_owned(), origin },
    }
}

/// For `[section]` with an unknown name: its first key tells more than the section alone.
fn unknown_section(name: &str, table: &DeTable<'_>, origin: Origin) -> ConfigError {
    let first = table.iter().min_by_key(|(key, _)| key.span().start);
    let key = first.map_or_else(|| name.to_string(), |(key, _)| format!("{name}.{}", key.get_ref()));
    ConfigError::UnknownSection { nearest: nearest_key(&key), section: name.to_owned(), key, origin }
}

/// The key whose name is the most alike; a name without its section counts, too.
fn nearest_key(name: &str) -> &'static str {
    let likeness = |key: &Key| {
        let last = |name: &str| name.rsplit('.').next().unwrap_or_default().to_lowercase();
        let whole = strsim::normalized_damerau_levenshtein(&name.to_lowercase(), key.name);
        // A little less, so that `lr` is nearest to `lr` and not to `risk.lr`.
        whole.max(0.99 * strsim::normalized_damerau_levenshtein(&last(name), &last(key.name)))
    };
    let has_section = |key: &Key| key.name.contains('.');
    // Of two alike the one without a section: such a key is easily written below one.
    let order = |a: &&Key, b: &&Key| likeness(a).total_cmp(&likeness(b)).then(has_section(b).cmp(&has_section(a)));
    let nearest = KEYS.iter().max_by(order);
    nearest.expect("there are keys").name
}

/// The line of a byte, counted from 1.
fn line_of(text: &str, offset: usize) -> usize {
    1 + text.bytes().take(offset).filter(|&byte| byte == b'\n').count()
}
