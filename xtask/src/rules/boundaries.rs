//! Boundaries of names: only the code that wraps a library may use its names.
//!
//! `crates/node/src/app.rs` is the only composition root: no other file of the node, the API and the command
//! line joins three of the crates with side effects. Only the API depends on axum; the compiler checks that.

use std::collections::BTreeSet;

use crate::source::Source;
use crate::violation::{LintRule, Violation};

const BOUNDARY: LintRule = LintRule {
    name: "boundary",
    reason: "a library that is used in one place can be replaced, pinned and audited there",
    remedy: "use the crate that wraps it; to move a boundary, write an ADR and change xtask/src/rules/boundaries.rs",
};
const ROOT: LintRule = LintRule {
    name: "composition-root",
    reason: "`crates/node/src/app.rs` builds every part in dependency order, so that one file shows what runs",
    remedy: "take the part as an argument and build it in `crates/node/src/app.rs`",
};

struct Boundary {
    crates: &'static [&'static str],
    /// Prefixes of the paths that may use the names.
    allowed_in: &'static [&'static str],
    /// Whether all test code may use the names too.
    allowed_in_tests: bool,
}

const BOUNDARIES: [Boundary; 3] = [
    Boundary {
        crates: &["ractor"],
        allowed_in: &["actors/"],
        allowed_in_tests: true,
    },
    Boundary {
        crates: &["libmdbx", "mdbx_sys"],
        allowed_in: &["crates/store/src/mdbx"],
        allowed_in_tests: false,
    },
    Boundary {
        crates: &["async_nats"],
        allowed_in: &["crates/bus/src/nats", "crates/workflow/src/backend/nats"],
        allowed_in_tests: false,
    },
];

/// Functions that build a part with side effects.
const BUILDS: [&str; 4] = ["connect", "open", "start", "subscribe"];
/// Crates with side effects; joining three of them is composition.
const SIDE_EFFECT_CRATES: [&str; 4] = ["orlog_actors", "orlog_bus", "orlog_effect", "orlog_store"];
const MAX_JOINED: usize = 3;
/// The node, and the crates above it.
const FACES: [&str; 3] = ["crates/node/src/", "crates/api/src/", "src/"];
/// Services of the node.
const SERVICES: &str = "crates/node/src/";
/// Prefixes of the files of the composition root, and of the parts of several crates that it builds.
const COMPOSITION_ROOT: [&str; 4] = [
    "crates/node/src/app",
    "crates/node/src/effects",
    "crates/node/src/stores",
    "crates/node/src/transport",
];

/// Checks the first segment of every path.
pub(crate) fn check(source: &Source) -> Vec<Violation> {
    let mut violations: Vec<Violation> = BOUNDARIES
        .iter()
        .flat_map(|boundary| breaches(boundary, source))
        .collect();
    violations.extend(second_root(source));
    violations
}

fn breaches(boundary: &Boundary, source: &Source) -> Vec<Violation> {
    if boundary
        .allowed_in
        .iter()
        .any(|start| source.path.starts_with(start))
    {
        return Vec::new();
    }
    let mut seen = BTreeSet::new();
    let paths = source.names.paths.iter().filter(|path| {
        boundary.crates.contains(&path.segments[0].as_str())
            && !(boundary.allowed_in_tests && source.is_test_line(path.line))
            && seen.insert(path.line)
    });
    let allowed_in = boundary
        .allowed_in
        .iter()
        .map(|start| format!("`{start}…`"))
        .collect::<Vec<_>>()
        .join(" and ");
    let message = |name: &str| format!("uses `{name}`, which only {allowed_in} may use");
    paths
        .map(|path| {
            Violation::new(
                &BOUNDARY,
                &source.path,
                path.line,
                message(&path.segments[0]),
            )
        })
        .collect()
}

fn second_root(source: &Source) -> Option<Violation> {
    let is_face = FACES.iter().any(|face| source.path.starts_with(face));
    let is_root = COMPOSITION_ROOT
        .iter()
        .any(|root| source.path.starts_with(root));
    if !is_face || is_root {
        return None;
    }
    let code = source
        .names
        .paths
        .iter()
        .filter(|path| !source.is_test_line(path.line));
    // The errors of a service wrap those of its parts; only the parts themselves are joined.
    let is_error = |name: &String| name.ends_with("Error");
    let side_effects = code.filter(|path| {
        SIDE_EFFECT_CRATES.contains(&path.segments[0].as_str())
            && !path.segments.last().is_some_and(is_error)
    });
    let mut named = BTreeSet::new();
    let last = side_effects
        .filter(|path| named.insert(path.segments[0].clone()))
        .last()?
        .line;
    let joined = named
        .iter()
        .map(String::as_str)
        .collect::<Vec<_>>()
        .join(", ");
    let message = format!(
        "joins {joined}; only `crates/node/src/app.rs` may join {MAX_JOINED} crates with side effects"
    );
    // A service takes its parts as arguments, so it may name those of several crates.
    let is_allowed = source.path.starts_with(SERVICES) && !builds_part(source);
    (named.len() >= MAX_JOINED && !is_allowed)
        .then(|| Violation::new(&ROOT, &source.path, last, message))
}

/// Returns whether the file opens, starts or connects a type or function of a crate with side effects.
fn builds_part(source: &Source) -> bool {
    let is_part = |name: &str| {
        SIDE_EFFECT_CRATES.contains(&name)
            || source.names.paths.iter().any(|path| {
                SIDE_EFFECT_CRATES.contains(&path.segments[0].as_str())
                    && path.segments.last().is_some_and(|last| last == name)
            })
    };
    source
        .names
        .paths
        .iter()
        .filter(|path| !source.is_test_line(path.line))
        .any(|path| {
            path.segments.len() > 1
                && path
                    .segments
                    .last()
                    .is_some_and(|last| BUILDS.contains(&last.as_str()))
                && path.segments.iter().any(|name| is_part(name))
        })
}

#[cfg(test)]
mod tests {
    use super::check as check_boundaries;
    use crate::source::fixture;
    use crate::violation::violation_lines;

    #[track_caller]
    fn check(path: &str, text: &str, expected: &[&str]) {
        assert_eq!(
            violation_lines(&check_boundaries(&fixture(path, text))),
            expected
        );
    }

    #[test]
    fn only_actors_and_tests_import_ractor() {
        let text = "use ractor::Actor;\n#[cfg(test)]\nmod tests { use ractor::call; }\n";
        check("actors/src/instance/saga.rs", text, &[]);
        check("tests/chaos.rs", text, &[]);
        check(
            "crates/node/src/app.rs",
            text,
            &["1: uses `ractor`, which only `actors/…` may use"],
        );
    }

    #[test]
    fn only_the_mdbx_files_of_the_store_name_libmdbx() {
        let text = "fn f() { unsafe { mdbx_sys::mdbx_env_copy() } }";
        check("crates/store/src/mdbx/copy.rs", text, &[]);
        check("crates/store/src/mdbx.rs", text, &[]);
        let expected = ["1: uses `mdbx_sys`, which only `crates/store/src/mdbx…` may use"];
        check("crates/store/src/memory.rs", text, &expected);
        check("crates/store/tests/copy.rs", text, &expected);
    }

    #[test]
    fn only_the_nats_files_of_the_bus_name_its_client() {
        check("crates/bus/src/nats.rs", "use async_nats::Client;", &[]);
        check(
            "crates/bus/src/file.rs",
            "use async_nats::Client;",
            &[
                "1: uses `async_nats`, which only `crates/bus/src/nats…` and `crates/workflow/src/backend/nats…` may use",
            ],
        );
    }

    #[test]
    fn services_name_their_parts_and_build_none() {
        let parts = "use orlog_actors::System;\nuse orlog_store::Reader;\nuse orlog_bus::Bus;\n";
        check("crates/node/src/replay.rs", parts, &[]);
        let expected = [
            "3: joins orlog_actors, orlog_bus, orlog_store; only `crates/node/src/app.rs` may join 3 crates with side effects",
        ];
        check("crates/api/src/resources/replay.rs", parts, &expected);
        check(
            "crates/node/src/replay.rs",
            &format!("{parts}fn f() {{ Bus::open() }}"),
            &expected,
        );
    }

    #[test]
    fn only_app_rs_uses_several_side_effect_crates() {
        let text = "use orlog_actors::System;\nuse orlog_store::Reader;\nuse orlog_bus::Bus;\n";
        check("crates/node/src/app.rs", text, &[]);
        check(
            "src/cli/run.rs",
            text,
            &[
                "3: joins orlog_actors, orlog_bus, orlog_store; only `crates/node/src/app.rs` may join 3 crates with side effects",
            ],
        );
        check(
            "src/api.rs",
            "use orlog_actors::System;\nuse orlog_store::Reader;\n",
            &[],
        );
        check(
            "crates/node/src/replay.rs",
            "use orlog_actors::System;\nuse orlog_store::Error;\nuse orlog_bus::Bus;\n",
            &[],
        );
    }
}
