//! Arguments that make up a configuration.

use std::path::{Path, PathBuf};

use super::output;
use super::output::Target;
use super::{Error, default_preset};
use crate::config::{Config, ConfigError, DataSource, Layers, Preset};
use crate::device::Device;
use crate::text::shown_path;

/// Read from the working folder where no `--config` is given.
const CONFIG_FILE: &str = "onegraph.toml";

/// Preset, file and single keys.
#[derive(Debug, clap::Args)]
pub struct Keys {
    /// Configuration on top of the preset; without it onegraph.toml in the working folder, if there is one. `--preset`, `--set`
    /// and docs/configuration.md name the keys.
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// A key of the configuration, on top of the file, such as `--set epochs=50 --set costs.taker_bp=0.5`; again for each
    /// further one.
    #[arg(long, value_name = "KEY=VALUE")]
    pub(super) set: Vec<String>,
    /// The values to start from; full on a GPU and small on the CPU without it.
    #[arg(long, value_enum)]
    preset: Option<Preset>,
}

impl Keys {
    /// The preset that was named, or the device's.
    pub(super) fn preset(&self, device: &Device) -> Preset {
        self.preset.unwrap_or_else(|| default_preset(device))
    }

    /// Refuses outputs that would overwrite the file.
    pub(super) fn spares(&self, written: &[(&str, Option<&Target>)]) -> Result<(), Error> {
        let file = self.config.clone().unwrap_or_else(|| CONFIG_FILE.into());
        output::spares(&[("--config", file)], written)
    }

    /// Preset, file and `--set`; `folder` is where [`CONFIG_FILE`] is looked for.
    pub(super) fn layers(&self, preset: Preset, source: DataSource, folder: &Path) -> Result<Layers, ConfigError> {
        let mut layers = Layers::new(preset, source);
        // A link that leads nowhere is there, too: to be told of, not passed over.
        let default = Some(folder.join(CONFIG_FILE)).filter(|path| path.symlink_metadata().is_ok());
        if let Some(path) = self.config.clone().or(default) {
            tracing::info!("configuration from {}", shown_path(&path));
            layers.file(&path)?;
        }
        self.set.iter().try_for_each(|assignment| layers.set(assignment))?;
        Ok(layers)
    }

    /// The configuration of a run on the simulator.
    pub(super) fn resolve(&self, device: &Device) -> Result<Config, ConfigError> {
        self.layers(self.preset(device), DataSource::Simulator, Path::new("."))?.finish()
    }
}
