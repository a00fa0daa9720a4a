//! Check of banned packages, wildcard version requirements and duplicate versions.

use std::collections::BTreeMap;

use super::config::{Ban, Bans, Level};
use super::diagnostic::Diagnostic;
use super::graph::{Graph, Package};

/// Evaluates names, versions and requirements.
pub(super) fn evaluate(config: &Bans, graph: &Graph) -> Vec<Diagnostic> {
    let mut diagnostics = banned(config, graph);
    diagnostics.extend(wildcards(config, graph));
    diagnostics.extend(doubles(config, graph));
    diagnostics
}

fn matching<'a>(bans: &'a [Ban], package: &Package) -> Option<&'a Ban> {
    bans.iter().find(|ban| ban.package.matches(&package.name, &package.version))
}

fn banned(config: &Bans, graph: &Graph) -> Vec<Diagnostic> {
    let found = graph.packages.iter().filter_map(|package| Some((package, matching(&config.deny, package)?)));
    let text = |package: &Package, ban: &Ban| format!("{} is banned: {}", package.spec(), ban.reason);
    found.map(|(package, ban)| Diagnostic { level: Level::Deny, text: text(package, ban) }).collect()
}

/// Returns the wildcard requirements of workspace manifests; other manifests cannot be corrected here.
fn wildcards(config: &Bans, graph: &Graph) -> Vec<Diagnostic> {
    let mut diagnostics = Vec::new();
    for package in graph.packages.iter().filter(|package| package.source.is_none()) {
        let wild = package.dependencies.iter().filter(|dependency| dependency.req == "*");
        let excused = |path: &Option<String>| config.allow_wildcard_paths && path.is_some();
        for dependency in wild.filter(|dependency| !excused(&dependency.path)) {
            let text = format!("{} depends on any version of {}", package.name, dependency.name);
            diagnostics.push(Diagnostic { level: config.wildcards, text });
        }
    }
    diagnostics
}

fn doubles(config: &Bans, graph: &Graph) -> Vec<Diagnostic> {
    let mut versions: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for package in graph.packages.iter().filter(|package| matching(&config.skip, package).is_none()) {
        versions.entry(&package.name).or_default().push(&package.version);
    }
    let doubled = versions.into_iter().filter(|(_, versions)| versions.len() > 1);
    let text =
        |name, versions: &[&str]| format!("{name} has {} versions: {}", versions.len(), versions.join(", "));
    doubled
        .map(|(name, versions)| Diagnostic { level: config.multiple_versions, text: text(name, &versions) })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::super::config::{Ban, Bans, Level};
    use super::super::graph::{Dependency, Graph, Package, package};
    use super::evaluate;

    fn ban(spec: &str) -> Ban {
        Ban { package: spec.into(), reason: "it is not maintained".to_owned() }
    }

    #[track_caller]
    fn check(config: &Bans, packages: Vec<Package>, expected: &[(Level, &str)]) {
        let diagnostics = evaluate(config, &Graph { packages });
        let actual: Vec<(Level, &str)> =
            diagnostics.iter().map(|diagnostic| (diagnostic.level, diagnostic.text.as_str())).collect();
        assert_eq!(actual, expected);
    }

    #[test]
    fn banned_package_is_denied_with_reason() {
        let config = Bans { deny: vec![ban("old")], ..Bans::default() };
        check(
            &config,
            vec![package("old", "1.0.0")],
            &[(Level::Deny, "old@1.0.0 is banned: it is not maintained")],
        );
    }

    #[test]
    fn duplicate_versions_are_counted_unless_skipped() {
        let twice = || vec![package("syn", "1.0.0"), package("syn", "2.0.0")];
        let config = Bans { multiple_versions: Level::Warn, ..Bans::default() };
        check(&config, twice(), &[(Level::Warn, "syn has 2 versions: 1.0.0, 2.0.0")]);
        let config = Bans { skip: vec![ban("syn@1")], ..config };
        check(&config, twice(), &[]);
    }

    #[test]
    fn wildcard_versions_are_denied_except_for_paths() {
        let wild = |name: &str, path: Option<&str>| Dependency {
            name: name.to_owned(),
            req: "*".to_owned(),
            path: path.map(str::to_owned),
        };
        let ours = Package {
            source: None,
            dependencies: vec![wild("serde", None), wild("orlog-model", Some("crates/model"))],
            ..package("orlog", "0.1.0")
        };
        let config = Bans { allow_wildcard_paths: true, ..Bans::default() };
        check(&config, vec![ours], &[(Level::Deny, "orlog depends on any version of serde")]);
    }
}
