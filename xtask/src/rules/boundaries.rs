//! Boundaries of names: only the code that wraps a library may use its names.
//!
//! `src/app.rs` is the only composition root: no other file of the root crate joins three of the crates
//! with side effects.

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
    reason: "`src/app.rs` builds every part in dependency order, so that one file shows what runs",
    remedy: "take the part as an argument and build it in `src/app.rs`",
};

struct Boundary {
    crates: &'static [&'static str],
    /// Prefixes of the paths that may use the names. `*` stands for one directory.
    allowed_in: &'static [&'static str],
    /// Whether all test code may use the names too.
    allowed_in_tests: bool,
}

const BOUNDARIES: [Boundary; 4] = [
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
    // Of each feature of the root crate, its HTTP API: `src/<feature>/api.rs` and the files below it.
    Boundary {
        crates: &["axum"],
        allowed_in: &["src/api", "src/*/api", "examples/"],
        allowed_in_tests: true,
    },
];

/// Functions that build a part with side effects.
const BUILDS: [&str; 4] = ["connect", "open", "start", "subscribe"];
/// Crates with side effects; joining three of them is composition.
const SIDE_EFFECT_CRATES: [&str; 4] = ["orlog_actors", "orlog_bus", "orlog_effect", "orlog_store"];
const MAX_JOINED: usize = 3;

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
        .any(|start| is_below(&source.path, start))
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

fn is_below(path: &str, start: &str) -> bool {
    let Some((before, after)) = start.split_once('*') else {
        return path.starts_with(start);
    };
    let below = path
        .strip_prefix(before)
        .and_then(|rest| rest.find('/').map(|end| &rest[end..]));
    below.is_some_and(|rest| rest.starts_with(after))
}

fn second_root(source: &Source) -> Option<Violation> {
    let is_root_crate = source.path.starts_with("src/");
    if !is_root_crate || source.path == "src/app.rs" || source.path.starts_with("src/app/") {
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
    let message =
        format!("joins {joined}; only `src/app.rs` may join {MAX_JOINED} crates with side effects");
    // A service takes its parts as arguments, so it may name those of several crates.
    let is_allowed = is_service(&source.path) && !builds_part(source);
    (named.len() >= MAX_JOINED && !is_allowed)
        .then(|| Violation::new(&ROOT, &source.path, last, message))
}

/// Returns whether a file of the root crate belongs to a feature, and is neither a route nor a command.
fn is_service(path: &str) -> bool {
    path.split(['/', '.'])
        .all(|part| !matches!(part, "api" | "cli"))
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
            "src/app.rs",
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
    fn only_the_api_and_the_examples_use_http() {
        check("src/events/api.rs", "use axum::Router;", &[]);
        check("examples/orders/shop/src/main.rs", "use axum::Router;", &[]);
        check(
            "src/cli.rs",
            "use axum::{Router, Json};",
            &["1: uses `axum`, which only `src/api…` and `src/*/api…` and `examples/…` may use"],
        );
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
        check("src/replay.rs", parts, &[]);
        let expected = [
            "3: joins orlog_actors, orlog_bus, orlog_store; only `src/app.rs` may join 3 crates with side effects",
        ];
        check("src/replay/api.rs", parts, &expected);
        check(
            "src/replay.rs",
            &format!("{parts}fn f() {{ Bus::open() }}"),
            &expected,
        );
    }

    #[test]
    fn only_app_rs_uses_several_side_effect_crates() {
        let text = "use orlog_actors::System;\nuse orlog_store::Reader;\nuse orlog_bus::Bus;\n";
        check("src/app.rs", text, &[]);
        check(
            "src/cli/run.rs",
            text,
            &[
                "3: joins orlog_actors, orlog_bus, orlog_store; only `src/app.rs` may join 3 crates with side effects",
            ],
        );
        check(
            "src/api.rs",
            "use orlog_actors::System;\nuse orlog_store::Reader;\n",
            &[],
        );
        check(
            "src/replay.rs",
            "use orlog_actors::System;\nuse orlog_store::Error;\nuse orlog_bus::Bus;\n",
            &[],
        );
    }
}
