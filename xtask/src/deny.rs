//! `cargo xtask deny` checks what the dependencies bring in: their licences, doubles, bans and sources.
//!
//! It reads the same `deny.toml` as cargo-deny and judges licences with the same library, but needs neither a minute of
//! building nor the network beyond what a build needs. What it leaves out is the advisory database: `make advisories`.

mod bans;
mod config;
mod graph;
mod licenses;
mod sources;
mod verdict;

use std::path::Path;

use self::config::{Config, Level};
use self::graph::Graph;
use self::verdict::Verdict;
use crate::error::Error;

/// Checks the workspace in `root` and prints the verdicts; `true` if none of them denies.
pub(crate) fn run(root: &Path) -> Result<bool, Error> {
    let path = root.join("deny.toml");
    let shown = path.display().to_string();
    let text =
        std::fs::read_to_string(&path).map_err(|source| Error::Read { path: shown.clone(), source })?;
    let config: Config =
        toml::from_str(&text).map_err(|source| Error::Toml { path: shown, source: Box::new(source) })?;
    let graph = Graph::load(root, &config.graph.targets)?;
    let verdicts = judge(&config, &graph);
    let denied = verdicts.iter().filter(|verdict| verdict.level == Level::Deny).count();
    for verdict in &verdicts {
        println!("{}: {}", if verdict.level == Level::Deny { "deny.toml" } else { "warning" }, verdict.text);
    }
    println!(
        "deny: {} packages, {denied} denied, {} warnings",
        graph.packages.len(),
        verdicts.len() - denied
    );
    Ok(denied == 0)
}

fn judge(config: &Config, graph: &Graph) -> Vec<Verdict> {
    let mut verdicts = licenses::judge(&config.licenses, graph);
    verdicts.extend(bans::judge(&config.bans, graph));
    verdicts.extend(sources::judge(&config.sources, graph));
    verdicts.retain(|verdict| verdict.level != Level::Allow);
    verdicts
}
