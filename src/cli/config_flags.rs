//! The flags of commands that run a node, and the configuration they lead to.

use std::path::PathBuf;

use crate::config::{Config, Layers, Setting};

use super::exit::Failure;

/// Flags that win over the file and the environment.
#[derive(Debug, clap::Args)]
pub(super) struct Flags {
    /// A configuration file (TOML); `config/default.toml` in the sources lists every key
    #[arg(long, value_name = "FILE", env = "ORLOG_CONFIG", hide_env_values = true)]
    config: Option<PathBuf>,
    /// Where everything durable lives [default: data]
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,
    /// Where HTTP is served [default: 127.0.0.1:7070]
    #[arg(long, value_name = "ADDR")]
    listen: Option<String>,
    /// The folder with the definitions, *.saga.yaml and *.saga.wasm
    #[arg(long, value_name = "DIR")]
    definitions: Option<PathBuf>,
}

impl Flags {
    /// Defaults < file < environment < flags.
    pub(super) fn load(&self) -> Result<Config, Failure> {
        Ok(self.layers()?.load()?)
    }

    /// What lies above the defaults.
    pub(super) fn layers(&self) -> Result<Layers, crate::config::Error> {
        let layers = match &self.config {
            Some(path) => Layers::none().file(path)?,
            None => Layers::none(),
        };
        let text = |path: &PathBuf| path.to_string_lossy().into_owned();
        let flags = [
            self.data.as_ref().map(|data| Setting::flag("--data", "data", text(data))),
            self.listen.as_ref().map(|listen| Setting::flag("--listen", "listen", listen.as_str())),
            self.definitions.as_ref().map(|dir| Setting::flag("--definitions", "definitions", text(dir))),
        ];
        Ok(layers.environment(std::env::vars_os()).flags(flags.into_iter().flatten()))
    }
}
