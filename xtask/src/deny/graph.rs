//! The packages that a build of this workspace takes in, as `cargo metadata` tells them.

use std::path::Path;
use std::process::Command;

use serde::Deserialize;

use crate::error::Error;

/// All packages, ours included.
#[derive(Debug, Default, Deserialize)]
pub(super) struct Graph {
    pub(super) packages: Vec<Package>,
}

#[derive(Debug, Default, Deserialize)]
pub(super) struct Package {
    pub(super) name: String,
    pub(super) version: String,
    /// An SPDX expression.
    pub(super) license: Option<String>,
    /// `registry+https://…` or `git+https://…`; none for a package of this workspace.
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
    /// Asks cargo, for one target if there is one; the lock file is taken as it is.
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
    /// Name and version, as the lock file and `deny.toml` spell them.
    pub(super) fn spec(&self) -> String {
        format!("{}@{}", self.name, self.version)
    }
}

/// A package of the registry, for tests.
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
