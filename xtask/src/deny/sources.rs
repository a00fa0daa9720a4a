//! Check that all packages come from the registries in `deny.toml`.

use super::config::{Level, Sources};
use super::diagnostic::Diagnostic;
use super::graph::Graph;

/// Evaluates the source of every package outside the workspace.
pub(super) fn evaluate(config: &Sources, graph: &Graph) -> Vec<Diagnostic> {
    let mut diagnostics = Vec::new();
    for package in &graph.packages {
        let Some(source) = &package.source else { continue };
        if let Some(level) = level(config, source) {
            diagnostics.push(Diagnostic { level, text: format!("{} comes from {source}", package.spec()) });
        }
    }
    diagnostics
}

/// Returns the severity of a source; `None` if it is allowed.
fn level(config: &Sources, source: &str) -> Option<Level> {
    if let Some(registry) = source.strip_prefix("registry+").or_else(|| source.strip_prefix("sparse+")) {
        let known = config.allow_registry.iter().any(|allowed| allowed == registry);
        return (!known).then_some(config.unknown_registry);
    }
    let git = source.strip_prefix("git+").unwrap_or(source);
    let known = config.allow_git.iter().any(|allowed| git.starts_with(allowed.as_str()));
    (!known).then_some(config.unknown_git)
}

#[cfg(test)]
mod tests {
    use super::super::config::{Level, Sources};
    use super::super::graph::{Graph, package};
    use super::evaluate;

    #[test]
    fn only_listed_sources_are_allowed() {
        let config = Sources {
            allow_registry: vec!["https://github.com/rust-lang/crates.io-index".to_owned()],
            unknown_git: Level::Warn,
            ..Sources::default()
        };
        let mut fork = package("fork", "1.0.0");
        fork.source = Some("git+https://example.org/fork".to_owned());
        let mut mirror = package("mirror", "1.0.0");
        mirror.source = Some("sparse+https://example.org/index/".to_owned());
        let diagnostics =
            evaluate(&config, &Graph { packages: vec![package("good", "1.0.0"), fork, mirror] });
        let levels: Vec<(Level, &str)> =
            diagnostics.iter().map(|diagnostic| (diagnostic.level, diagnostic.text.as_str())).collect();
        assert_eq!(
            levels,
            [
                (Level::Warn, "fork@1.0.0 comes from git+https://example.org/fork"),
                (Level::Deny, "mirror@1.0.0 comes from sparse+https://example.org/index/")
            ]
        );
    }
}
