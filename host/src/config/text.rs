//! The configuration as text: the effective one as TOML, and all keys as documentation.

use std::fmt::Write;

use super::keys::{Config, KEYS, Key, SECTIONS};
use super::{DataSource, Preset};

impl Config {
    /// Every key with its value, as TOML that reads back to the same configuration.
    pub fn to_toml(&self) -> String {
        let mut text = String::from("# The effective configuration. docs/configuration.md describes every key.\n");
        for_sections(|section, keys| {
            if let Some((name, doc)) = section {
                let _ = write!(text, "\n#{doc}\n[{name}]\n");
            }
            for key in keys {
                let _ = writeln!(text, "{} = {}", key.name.rsplit('.').next().unwrap_or_default(), (key.read)(self));
            }
        });
        text
    }

    /// Tells configurations apart: equal for equal keys and values.
    pub fn fingerprint(&self) -> u32 {
        let mut crc32 = crc32fast::Hasher::new();
        for key in KEYS {
            crc32.update(format!("{} = {}\n", key.name, (key.read)(self)).as_bytes());
        }
        crc32.finalize()
    }
}

/// Calls `visit` with the keys outside of sections, then with those of each section.
fn for_sections(mut visit: impl FnMut(Option<(&str, &str)>, &mut dyn Iterator<Item = &'static Key>)) {
    let section_of = |key: &Key| key.name.split_once('.').map(|(section, _)| section);
    visit(None, &mut KEYS.iter().filter(|key| section_of(key).is_none()));
    for &(name, doc) in SECTIONS {
        visit(Some((name, doc)), &mut KEYS.iter().filter(|key| section_of(key) == Some(name)));
    }
}

/// `docs/configuration.md`: every key with unit, range and presets.
pub fn documentation() -> String {
    let mut text = String::from(INTRODUCTION);
    for_sections(|section, keys| {
        match section {
            None => text.push_str("\n## Keys outside of sections\n"),
            Some((name, doc)) => {
                let _ = write!(text, "\n## `[{name}]`\n\n{}\n", doc.trim());
            }
        }
        text.push_str("\n| key | meaning | unit | range | tiny | small | full |\n|---|---|---|---|---|---|---|\n");
        for key in keys {
            let presets = Preset::ALL.map(|preset| preset_text(key, preset));
            let _ = writeln!(
                text,
                "| `{}` | {} | {} | {} | {} |",
                key.name,
                key.doc.trim().replace('|', "\\|"),
                key.unit,
                key.range,
                presets.join(" | ")
            );
        }
    });
    text
}

/// One value, or two where it depends on the data.
fn preset_text(key: &Key, preset: Preset) -> String {
    let [simulator, files] = [DataSource::Simulator, DataSource::Files]
        .map(|source| (key.read)(&Config::preset(preset, source)).to_string());
    if simulator == files { simulator } else { format!("{simulator} (simulator), {files} (files)") }
}

const INTRODUCTION: &str = "\
# Configuration

A run takes its values from three layers, of which a later one wins: the preset (`--preset tiny|small|full`; `full` is a
GPU's default, `small` the CPU's), a TOML file (`--config FILE`; without it `onegraph.toml` in the working folder, if there
is one), and `--set key=value`, as often as needed. `--seed` and `--sim` are short for `--set seed=` and `--set sim.market=`.
An unknown key or a value out of range ends the program with exit code 2, and the message names file, line, key and range.
The effective configuration is written to `config.toml` in the run's folder, and can be given back by `--config`.

```toml
# onegraph.toml
lr = 1e-3
min_hold = [1, 5, 15]

[per]
sampler = \"scan\"

[learners]
cql = false
```

On the command line a key carries its section: `--set per.sampler=scan --set learners.cql=false`.
Keys must fit each other, too: `batch` and `warmup` are at most `capacity`, `capacity` holds `2 n_step` bars of all
`environments`, `n_step` is under `episode_len`, `v_min` under `v_max`, `tau_final` and `e_end` are no more than `tau_init` and
`e_start`, `prune.start` is under `prune.end`, and a run has fewer than 2^31 steps.

This page is made from the table in `host/src/config/keys.rs` (`BLESS=1 cargo test -p host config_documentation`).
";
