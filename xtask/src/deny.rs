//! `cargo xtask deny` checks the dependencies: licenses, duplicate versions, bans and sources.
//!
//! It reads the same `deny.toml` as cargo-deny and evaluates licenses with the same library. It needs
//! no additional build time, and no network access beyond that of a build. It does not check the
//! advisory database: see `make advisories`.

mod bans;
mod config;
mod diagnostic;
mod graph;
mod licenses;
mod sources;

use std::path::Path;

use self::config::{Config, Level};
use self::diagnostic::Diagnostic;
use self::graph::Graph;
use crate::error::Error;

/// Checks the workspace in `root` and prints the diagnostics; `true` if none has the level `deny`.
pub(crate) fn run(root: &Path) -> Result<bool, Error> {
    let path = root.join("deny.toml");
    let path_text = path.display().to_string();
    let text =
        std::fs::read_to_string(&path).map_err(|source| Error::Read { path: path_text.clone(), source })?;
    let config: Config =
        toml::from_str(&text).map_err(|source| Error::Toml { path: path_text, source: Box::new(source) })?;
    let graph = Graph::load(root, &config.graph.targets)?;
    let diagnostics = evaluate(&config, &graph);
    let denied = diagnostics.iter().filter(|diagnostic| diagnostic.level == Level::Deny).count();
    for diagnostic in &diagnostics {
        println!(
            "{}: {}",
            if diagnostic.level == Level::Deny { "deny.toml" } else { "warning" },
            diagnostic.text
        );
    }
    println!(
        "deny: {} packages, {denied} denied, {} warnings",
        graph.packages.len(),
        diagnostics.len() - denied
    );
    Ok(denied == 0)
}

fn evaluate(config: &Config, graph: &Graph) -> Vec<Diagnostic> {
    let mut diagnostics = licenses::evaluate(&config.licenses, graph);
    diagnostics.extend(bans::evaluate(&config.bans, graph));
    diagnostics.extend(sources::evaluate(&config.sources, graph));
    diagnostics.retain(|diagnostic| diagnostic.level != Level::Allow);
    diagnostics
}
