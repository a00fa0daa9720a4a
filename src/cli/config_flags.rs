//! Flags of commands that run a node, and the configuration that they produce.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use orlog_node::config::{Config, ConfigSource, Layers, Setting};

use super::exit::CommandError;

/// Configuration file if none is given.
const DEFAULT_FILE: &str = "orlog.toml";

/// Flags that override the configuration file and the environment.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct ConfigFlags {
    /// Configuration file (TOML) [default: `orlog.toml` in the current directory, if it exists]
    #[arg(
        long,
        value_name = "FILE",
        env = "ORLOG_CONFIG",
        hide_env_values = true
    )]
    config: Option<PathBuf>,
    /// Data directory [default: data]
    #[arg(long, value_name = "DIR")]
    data_dir: Option<PathBuf>,
    /// Listen address of the HTTP API [default: 127.0.0.1:7070]
    #[arg(long, value_name = "ADDR")]
    listen: Option<String>,
    /// Directory with the definitions (*.saga.yaml, *.saga.wasm)
    #[arg(long, value_name = "DIR")]
    definitions_dir: Option<PathBuf>,
}

impl ConfigFlags {
    /// Returns the path of the configuration file; the default one need not exist.
    pub(crate) fn config_file(&self) -> PathBuf {
        let default = || PathBuf::from(DEFAULT_FILE);
        self.config.clone().unwrap_or_else(default)
    }

    /// Loads the configuration. Precedence: defaults < file < environment < flags.
    pub(crate) fn load(&self) -> Result<Config, CommandError> {
        Ok(self.layers()?.load()?)
    }

    /// Returns the source from which a reload of a node reads its configuration again.
    pub(crate) fn source(&self, initial: &Config) -> ConfigSource {
        // A reload reads the file and the environment again, but keeps the flags of the process.
        let flags = self.clone();
        let read = move || {
            let layers = flags.layers().map_err(|error| vec![error])?;
            layers.load().map_err(|_| layers.errors())
        };
        ConfigSource::new(Arc::new(read), initial.clone())
    }

    /// Returns the configuration file: the given one, or the default one if it exists.
    fn file(&self) -> Option<&Path> {
        // A stated file that is missing is an error; a missing default file is not.
        let default = Path::new(DEFAULT_FILE);
        self.config
            .as_deref()
            .or_else(|| default.is_file().then_some(default))
    }

    /// Returns the layers above the defaults.
    pub(crate) fn layers(&self) -> Result<Layers, orlog_node::config::Error> {
        let file = self.file();
        let layers = file.map_or_else(|| Ok(Layers::none()), |path| Layers::none().file(path))?;
        let text = |path: &PathBuf| path.to_string_lossy().into_owned();
        let flags = [
            self.data_dir
                .as_ref()
                .map(|dir| Setting::flag("--data-dir", "data_dir", text(dir))),
            self.listen
                .as_ref()
                .map(|listen| Setting::flag("--listen", "listen", listen.as_str())),
            self.definitions_dir
                .as_ref()
                .map(|dir| Setting::flag("--definitions-dir", "definitions_dir", text(dir))),
        ];

        Ok(layers
            .environment(std::env::vars_os())
            .flags(flags.into_iter().flatten()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `orlog dev` watches it: it can be created while the node runs.
    #[test]
    fn default_configuration_file_need_not_exist() {
        let flags = |config: Option<&str>| ConfigFlags {
            config: config.map(PathBuf::from),
            data_dir: None,
            listen: None,
            definitions_dir: None,
        };
        assert_eq!(flags(None).config_file(), Path::new("orlog.toml"));
        assert_eq!(flags(Some("a.toml")).config_file(), Path::new("a.toml"));
    }
}
