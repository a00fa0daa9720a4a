//! Crates depend only on lower layers: no dependency upward or sideways, and products never depend on
//! the testkit.
//!
//! The table below defines the layers. A crate that is missing in it is a violation.

use toml::{Table, Value};

use crate::tree::Tree;
use crate::violation::{LintRule, Violation};

const RULE: LintRule = LintRule {
    name: "layer",
    reason: "a dependency upward or sideways merges two crates; code shared by two siblings belongs to the layer below",
    remedy: "move the shared code down, or pass it in; a new dependency requires an ADR and a line in xtask/src/rules/layers.rs",
};

const ALLOWED_FOR_ACTORS: &[&str] = &[
    "orlog-model",
    "orlog-journal",
    "orlog-program",
    "orlog-store",
    "orlog-bus",
    "orlog-effect",
    "orlog-engine",
    "orlog-sagas",
];
const ALLOWED_FOR_SIMULATOR: &[&str] = &["orlog-model", "orlog-program", "orlog-engine"];
const ALLOWED_FOR_NODE: &[&str] = &[
    "orlog-model",
    "orlog-journal",
    "orlog-program",
    "orlog-store",
    "orlog-bus",
    "orlog-effect",
    "orlog-engine",
    "orlog-sagas",
    "orlog-actors",
    "orlog-signature",
    "orlog-simulator",
    "orlog-workflow",
];
const ALLOWED_FOR_API: &[&str] = &[
    "orlog-model",
    "orlog-journal",
    "orlog-program",
    "orlog-store",
    "orlog-bus",
    "orlog-effect",
    "orlog-engine",
    "orlog-sagas",
    "orlog-actors",
    "orlog-signature",
    "orlog-simulator",
    "orlog-node",
];
const ALLOWED_FOR_ROOT: &[&str] = &[
    "orlog-model",
    "orlog-journal",
    "orlog-program",
    "orlog-store",
    "orlog-bus",
    "orlog-effect",
    "orlog-engine",
    "orlog-sagas",
    "orlog-actors",
    "orlog-signature",
    "orlog-simulator",
    "orlog-workflow",
    "orlog-node",
    "orlog-api",
];

/// Layers from bottom to top: a crate and its allowed dependencies.
const LAYERS: [(&str, &[&str]); 20] = [
    ("orlog-model", &[]),
    ("orlog-journal", &[]),
    ("orlog-guest", &[]),
    ("orlog-signature", &[]),
    ("orlog-program", &["orlog-model"]),
    ("orlog-store", &["orlog-model", "orlog-journal"]),
    ("orlog-bus", &["orlog-model", "orlog-journal"]),
    ("orlog-effect", &["orlog-model"]),
    ("orlog-engine", &["orlog-model", "orlog-program"]),
    ("orlog-sagas", &["orlog-model", "orlog-program"]),
    (
        "orlog-workflow",
        &[
            "orlog-journal",
            "orlog-model",
            "orlog-program",
            "orlog-effect",
        ],
    ),
    ("orlog-actors", ALLOWED_FOR_ACTORS),
    ("orlog-simulator", ALLOWED_FOR_SIMULATOR),
    ("orlog-node", ALLOWED_FOR_NODE),
    ("orlog-api", ALLOWED_FOR_API),
    ("orlog", ALLOWED_FOR_ROOT),
    ("orlog-testkit", ALLOWED_FOR_NODE),
    ("xtask", &[]),
    ("orlog-compare", &[]),
    ("orlog-workflow-bench", &["orlog-workflow"]),
];

/// Checks the dependencies of every manifest, except dev-dependencies: tests may use all crates.
pub(crate) fn check(tree: &Tree) -> Vec<Violation> {
    let manifests = tree
        .with_extension("toml")
        .filter(|(path, _)| path.rsplit('/').next() == Some("Cargo.toml"));
    manifests
        .flat_map(|(path, text)| check_manifest(path, text))
        .collect()
}

fn check_manifest(path: &str, text: &str) -> Vec<Violation> {
    let manifest = match text.parse::<Table>() {
        Ok(manifest) => manifest,
        Err(error) => {
            return vec![Violation::new(
                &RULE,
                path,
                1,
                format!("not a manifest: {}", error.message()),
            )];
        }
    };
    let Some(name) = manifest
        .get("package")
        .and_then(|package| package.get("name"))
        .and_then(Value::as_str)
    else {
        return Vec::new();
    };
    let violation = |line, message| Violation::new(&RULE, path, line, message);
    let Some(allowed) = allowed(path, name) else {
        return vec![violation(1, format!("`{name}` has no layer"))];
    };
    let ours = dependencies(&manifest)
        .into_iter()
        .filter(|(_, package)| package.starts_with("orlog"));
    ours.filter(|(_, package)| !allowed.contains(&package.as_str()))
        .map(|(key, package)| {
            violation(
                line_of(text, &key),
                format!("`{name}` may not depend on `{package}`"),
            )
        })
        .collect()
}

/// Returns the allowed dependencies of a crate. Examples have no layer and may use all crates for
/// users.
fn allowed(path: &str, name: &str) -> Option<&'static [&'static str]> {
    if path.starts_with("examples/") {
        return Some(&[
            "orlog",
            "orlog-guest",
            "orlog-model",
            "orlog-program",
            "orlog-workflow",
        ]);
    }
    LAYERS
        .iter()
        .find(|(package, _)| *package == name)
        .map(|(_, allowed)| *allowed)
}

/// Returns key and package name of all normal and build dependencies, including target-specific ones.
fn dependencies(manifest: &Table) -> Vec<(String, String)> {
    let mut found = Vec::new();
    let targets = manifest.get("target").and_then(Value::as_table);
    let sections = targets
        .into_iter()
        .flat_map(Table::values)
        .filter_map(Value::as_table)
        .chain([manifest]);
    for section in sections {
        for kind in ["dependencies", "build-dependencies"] {
            let entries = section
                .get(kind)
                .and_then(Value::as_table)
                .into_iter()
                .flatten();
            found.extend(entries.map(|(key, value)| {
                let package = value.get("package").and_then(Value::as_str).unwrap_or(key);
                (key.clone(), package.to_owned())
            }));
        }
    }
    found
}

/// Returns the line that sets a key; 1 if the text search does not find it.
fn line_of(text: &str, key: &str) -> usize {
    let mut lines = text.lines();
    let sets = |line: &str| {
        let rest = line
            .trim_start_matches('[')
            .strip_prefix("dependencies.")
            .unwrap_or(line);
        rest.strip_prefix(key)
            .is_some_and(|rest| rest.starts_with([' ', '.', '=', ']']))
    };
    lines.position(sets).map_or(1, |at| at + 1)
}

#[cfg(test)]
mod tests {
    use super::check as check_layers;
    use crate::tree::Tree;
    use crate::violation::violation_lines;

    #[track_caller]
    fn check(path: &str, name: &str, sections: &str, expected: &[&str]) {
        let manifest = format!("[package]\nname = \"{name}\"\n{sections}");
        assert_eq!(
            violation_lines(&check_layers(&Tree::of(&[(path, &manifest)]))),
            expected
        );
    }

    #[test]
    fn downward_dependencies_pass() {
        check(
            "crates/store/Cargo.toml",
            "orlog-store",
            "[dependencies]\norlog-model.workspace = true\norlog-journal = { path = \"../journal\" }\nserde = \"1\"\n",
            &[],
        );
    }

    #[test]
    fn upward_and_sideways_dependencies_are_violations() {
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
    fn renamed_and_target_dependencies_are_checked() {
        check(
            "crates/model/Cargo.toml",
            "orlog-model",
            "[target.'cfg(unix)'.dependencies]\nroot = { package = \"orlog\", version = \"1\" }\n",
            &["4: `orlog-model` may not depend on `orlog`"],
        );
    }

    #[test]
    fn testkit_is_a_dev_dependency_only() {
        check(
            "Cargo.toml",
            "orlog",
            "[dev-dependencies]\norlog-testkit.workspace = true\n",
            &[],
        );
        check(
            "Cargo.toml",
            "orlog",
            "[dependencies]\norlog-testkit.workspace = true\n",
            &["4: `orlog` may not depend on `orlog-testkit`"],
        );
    }

    #[test]
    fn crate_without_a_layer_is_a_violation() {
        check(
            "crates/new/Cargo.toml",
            "orlog-new",
            "",
            &["1: `orlog-new` has no layer"],
        );
        check(
            "examples/orders/shop/Cargo.toml",
            "orlog-example-shop",
            "[dependencies]\norlog.workspace = true",
            &[],
        );
    }
}
