//! Packages come from the registries that `deny.toml` names and from nowhere else.

use super::config::{Level, Sources};
use super::graph::Graph;
use super::verdict::Verdict;

/// Judges where every package that is not ours comes from.
pub(super) fn judge(config: &Sources, graph: &Graph) -> Vec<Verdict> {
    let mut verdicts = Vec::new();
    for package in &graph.packages {
        let Some(source) = &package.source else { continue };
        if let Some(level) = level(config, source) {
            verdicts.push(Verdict { level, text: format!("{} comes from {source}", package.spec()) });
        }
    }
    verdicts
}

/// How bad a source is; none if it is allowed.
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
    use super::judge;

    #[test]
    fn only_named_sources_pass() {
        let config = Sources {
            allow_registry: vec!["https://github.com/rust-lang/crates.io-index".to_owned()],
            unknown_git: Level::Warn,
            ..Sources::default()
        };
        let mut fork = package("fork", "1.0.0");
        fork.source = Some("git+https://example.org/fork".to_owned());
        let mut mirror = package("mirror", "1.0.0");
        mirror.source = Some("sparse+https://example.org/index/".to_owned());
        let verdicts = judge(&config, &Graph { packages: vec![package("good", "1.0.0"), fork, mirror] });
        let levels: Vec<(Level, &str)> =
            verdicts.iter().map(|verdict| (verdict.level, verdict.text.as_str())).collect();
        assert_eq!(
            levels,
            [
                (Level::Warn, "fork@1.0.0 comes from git+https://example.org/fork"),
                (Level::Deny, "mirror@1.0.0 comes from sparse+https://example.org/index/")
            ]
        );
    }
}
