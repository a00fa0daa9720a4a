//! Packages in a build of this workspace, as reported by `cargo metadata`.

use std::path::Path;
use std::process::Command;

use serde::Deserialize;

use crate::error::Error;

/// All packages, including those of the workspace.
#[derive(Debug, Default, Deserialize)]
pub(super) struct Graph {
    pub(super) packages: Vec<Package>,
}

#[derive(Debug, Default, Deserialize)]
pub(super) struct Package {
    pub(super) name: String,
    pub(super) version: String,
    /// SPDX expression.
    pub(super) license: Option<String>,
    /// `registry+https://…` or `git+https://…`; `None` for a package of this workspace.
    pub(super) source: Option<String>,
    pub(super) dependencies: Vec<Dependency>,
}

#[derive(Debug, Default, Deserialize)]
pub(super) struct Dependency {
    pub(super) name: String,
    pub(super) req: String,
    pub(super) path: Option<String>,
}

impl Graph {
    /// Runs `cargo metadata` for these targets, or for all if there are none; uses the lock file unchanged.
    pub(super) fn load(root: &Path, targets: &[String]) -> Result<Self, Error> {
        let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
        command.current_dir(root).args(["metadata", "--locked", "--format-version=1"]);
        command.args(targets.iter().map(|target| format!("--filter-platform={target}")));
        let failed = |message| Error::Metadata { message };
        let output = command.output().map_err(|error| failed(error.to_string()))?;
        if !output.status.success() {
            return Err(failed(String::from_utf8_lossy(&output.stderr).into_owned()));
        }
        serde_json::from_slice(&output.stdout).map_err(|error| failed(error.to_string()))
    }
}

impl Package {
    /// Returns name and version in the notation of the lock file and `deny.toml`.
    pub(super) fn spec(&self) -> String {
        format!("{}@{}", self.name, self.version)
    }
}

/// Returns a registry package for tests.
#[cfg(test)]
pub(super) fn package(name: &str, version: &str) -> Package {
    Package {
        name: name.to_owned(),
        version: version.to_owned(),
        license: Some("MIT".to_owned()),
        source: Some("registry+https://github.com/rust-lang/crates.io-index".to_owned()),
        dependencies: Vec::new(),
    }
}
