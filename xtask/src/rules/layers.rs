//! Crates depend downward only: no arrow upward, none sideways, and the test kit never in a product.
//!
//! The table below is the house. A crate that it does not name has no floor yet and is a finding.

use toml::{Table, Value};

use crate::tree::Tree;
use crate::violation::{Finding, Rule};

const RULE: Rule = Rule {
    name: "floor",
    reason: "an arrow upward or sideways makes two crates one; what two siblings share lies on the floor below",
    remedy: "move the shared word down, or pass it in; a new arrow needs an ADR and a line in xtask/src/rules/layers.rs",
};

const BELOW_ACTORS: &[&str] = &[
    "orlog-model",
    "orlog-journal",
    "orlog-program",
    "orlog-store",
    "orlog-bus",
    "orlog-effect",
    "orlog-engine",
];
const BELOW_LAB: &[&str] = &["orlog-model", "orlog-program", "orlog-engine"];
const BELOW_ROOF: &[&str] = &[
    "orlog-model",
    "orlog-journal",
    "orlog-program",
    "orlog-store",
    "orlog-bus",
    "orlog-effect",
    "orlog-engine",
    "orlog-actors",
    "orlog-simulator",
];

/// The house from the ground up: a crate and what it may depend on.
const HOUSE: [(&str, &[&str]); 13] = [
    ("orlog-model", &[]),
    ("orlog-journal", &[]),
    ("orlog-guest", &[]),
    ("orlog-program", &["orlog-model"]),
    ("orlog-store", &["orlog-model", "orlog-journal"]),
    ("orlog-bus", &["orlog-model", "orlog-journal"]),
    ("orlog-effect", &["orlog-model"]),
    ("orlog-engine", &["orlog-model", "orlog-program"]),
    ("orlog-actors", BELOW_ACTORS),
    ("orlog-simulator", BELOW_LAB),
    ("orlog", BELOW_ROOF),
    ("orlog-testkit", BELOW_ROOF),
    ("xtask", &[]),
];

/// Looks at the dependencies of every manifest, not at its dev-dependencies: tests may see everything.
pub(crate) fn check(tree: &Tree) -> Vec<Finding> {
    let manifests =
        tree.with_extension("toml").filter(|(path, _)| path.rsplit('/').next() == Some("Cargo.toml"));
    manifests.flat_map(|(path, text)| check_manifest(path, text)).collect()
}

fn check_manifest(path: &str, text: &str) -> Vec<Finding> {
    let manifest = match text.parse::<Table>() {
        Ok(manifest) => manifest,
        Err(error) => {
            return vec![Finding::new(&RULE, path, 1, format!("not a manifest: {}", error.message()))];
        }
    };
    let Some(name) = manifest.get("package").and_then(|package| package.get("name")).and_then(Value::as_str)
    else {
        return Vec::new();
    };
    let finding = |line, what| Finding::new(&RULE, path, line, what);
    let Some(allowed) = allowed(path, name) else {
        return vec![finding(1, format!("`{name}` has no floor"))];
    };
    let ours = dependencies(&manifest).into_iter().filter(|(_, package)| package.starts_with("orlog"));
    ours.filter(|(_, package)| !allowed.contains(&package.as_str()))
        .map(|(key, package)| finding(line_of(text, &key), format!("`{name}` may not depend on `{package}`")))
        .collect()
}

/// Examples stand outside and may use everything that is for users.
fn allowed(path: &str, name: &str) -> Option<&'static [&'static str]> {
    if path.starts_with("examples/") {
        return Some(&["orlog", "orlog-guest", "orlog-model", "orlog-program"]);
    }
    HOUSE.iter().find(|(package, _)| *package == name).map(|(_, allowed)| *allowed)
}

/// Key and package name of all normal and build dependencies, those of single targets too.
fn dependencies(manifest: &Table) -> Vec<(String, String)> {
    let mut found = Vec::new();
    let targets = manifest.get("target").and_then(Value::as_table);
    let sections = targets.into_iter().flat_map(Table::values).filter_map(Value::as_table).chain([manifest]);
    for section in sections {
        for kind in ["dependencies", "build-dependencies"] {
            let entries = section.get(kind).and_then(Value::as_table).into_iter().flatten();
            found.extend(entries.map(|(key, value)| {
                let package = value.get("package").and_then(Value::as_str).unwrap_or(key);
                (key.clone(), package.to_owned())
            }));
        }
    }
    found
}

/// The line on which a key is set; 1 if it is written in a way that a search does not see.
fn line_of(text: &str, key: &str) -> usize {
    let mut lines = text.lines();
    let sets = |line: &str| {
        let rest = line.trim_start_matches('[').strip_prefix("dependencies.").unwrap_or(line);
        rest.strip_prefix(key).is_some_and(|rest| rest.starts_with([' ', '.', '=', ']']))
    };
    lines.position(sets).map_or(1, |at| at + 1)
}

#[cfg(test)]
mod tests {
    use super::check as check_floors;
    use crate::tree::Tree;
    use crate::violation::lines;

    #[track_caller]
    fn check(path: &str, name: &str, sections: &str, expected: &[&str]) {
        let manifest = format!("[package]\nname = \"{name}\"\n{sections}");
        assert_eq!(lines(&check_floors(&Tree::of(&[(path, &manifest)]))), expected);
    }

    #[test]
    fn downward_arrows_pass() {
        check(
            "crates/store/Cargo.toml",
            "orlog-store",
            "[dependencies]\norlog-model.workspace = true\norlog-journal = { path = \"../journal\" }\nserde = \"1\"\n",
            &[],
        );
    }

    #[test]
    fn upward_and_sideways_arrows_are_findings() {
        check(
            "crates/store/Cargo.toml",
            "orlog-store",
            "[dependencies]\norlog-bus.workspace = true\n[build-dependencies]\norlog-engine = \"1\"\n",
            &[
                "4: `orlog-store` may not depend on `orlog-bus`",
                "6: `orlog-store` may not depend on `orlog-engine`",
            ],
        );
    }

    #[test]
    fn a_renamed_or_target_dependency_is_seen() {
        check(
            "crates/model/Cargo.toml",
            "orlog-model",
            "[target.'cfg(unix)'.dependencies]\nroof = { package = \"orlog\", version = \"1\" }\n",
            &["4: `orlog-model` may not depend on `orlog`"],
        );
    }

    #[test]
    fn the_test_kit_is_for_tests_only() {
        check("Cargo.toml", "orlog", "[dev-dependencies]\norlog-testkit.workspace = true\n", &[]);
        check(
            "Cargo.toml",
            "orlog",
            "[dependencies]\norlog-testkit.workspace = true\n",
            &["4: `orlog` may not depend on `orlog-testkit`"],
        );
    }

    #[test]
    fn a_crate_without_a_floor_is_a_finding() {
        check("crates/new/Cargo.toml", "orlog-new", "", &["1: `orlog-new` has no floor"]);
        check(
            "examples/orders/shop/Cargo.toml",
            "orlog-example-shop",
            "[dependencies]\norlog.workspace = true",
            &[],
        );
    }
}
