//! Some names stay behind a wall: only the part of the house that is made for a library may name it.
//!
//! `src/app.rs` is the one composition root: no other file of the roof joins three of the crates that act.

use std::collections::BTreeSet;

use crate::source::Source;
use crate::violation::{Finding, Rule};

const WALL: Rule = Rule {
    name: "wall",
    reason: "a library that is named in one place can be replaced, pinned and audited in one place",
    remedy: "go through the crate that wraps it; to move a wall, write an ADR and change xtask/src/rules/boundaries.rs",
};
const ROOT: Rule = Rule {
    name: "composition-root",
    reason: "`src/app.rs` builds every part in dependency order, so that one file tells what runs",
    remedy: "take the part as an argument and build it in `src/app.rs`",
};

struct Wall {
    crates: &'static [&'static str],
    /// Beginnings of the paths that may name them.
    open_to: &'static [&'static str],
    /// Whether all test code may name them too.
    open_to_tests: bool,
}

const WALLS: [Wall; 4] = [
    Wall { crates: &["ractor"], open_to: &["actors/"], open_to_tests: true },
    Wall { crates: &["libmdbx", "mdbx_sys"], open_to: &["crates/store/src/mdbx"], open_to_tests: false },
    Wall { crates: &["async_nats"], open_to: &["crates/bus/src/nats"], open_to_tests: false },
    Wall { crates: &["axum"], open_to: &["src/api", "examples/"], open_to_tests: true },
];

/// The crates that act; joining three of them is composing.
const ACTING: [&str; 4] = ["orlog_actors", "orlog_bus", "orlog_effect", "orlog_store"];
const JOINED: usize = 3;

/// Looks at the first segment of every path.
pub(crate) fn check(source: &Source) -> Vec<Finding> {
    let mut findings: Vec<Finding> = WALLS.iter().flat_map(|wall| breaches(wall, source)).collect();
    findings.extend(second_root(source));
    findings
}

fn breaches(wall: &Wall, source: &Source) -> Vec<Finding> {
    if wall.open_to.iter().any(|start| source.path.starts_with(start)) {
        return Vec::new();
    }
    let mut seen = BTreeSet::new();
    let paths = source.names.paths.iter().filter(|path| {
        wall.crates.contains(&path.segments[0].as_str())
            && !(wall.open_to_tests && source.is_test_line(path.line))
            && seen.insert(path.line)
    });
    let open_to = wall.open_to.iter().map(|start| format!("`{start}…`")).collect::<Vec<_>>().join(" and ");
    let what = |name: &str| format!("names `{name}`, which only {open_to} may");
    paths.map(|path| Finding::new(&WALL, &source.path, path.line, what(&path.segments[0]))).collect()
}

fn second_root(source: &Source) -> Option<Finding> {
    let is_roof = source.path.starts_with("src/");
    if !is_roof || source.path == "src/app.rs" || source.path.starts_with("src/app/") {
        return None;
    }
    let code = source.names.paths.iter().filter(|path| !source.is_test_line(path.line));
    let acting = code.filter(|path| ACTING.contains(&path.segments[0].as_str()));
    let mut named = BTreeSet::new();
    let last = acting.filter(|path| named.insert(path.segments[0].clone())).last()?.line;
    let joined = named.iter().map(String::as_str).collect::<Vec<_>>().join(", ");
    let what = format!("joins {joined}; only `src/app.rs` joins {JOINED} crates that act");
    (named.len() >= JOINED).then(|| Finding::new(&ROOT, &source.path, last, what))
}

#[cfg(test)]
mod tests {
    use super::check as check_walls;
    use crate::source::fixture;
    use crate::violation::lines;

    #[track_caller]
    fn check(path: &str, text: &str, expected: &[&str]) {
        assert_eq!(lines(&check_walls(&fixture(path, text))), expected);
    }

    #[test]
    fn only_actors_and_tests_import_ractor() {
        let text = "use ractor::Actor;\n#[cfg(test)]\nmod tests { use ractor::call; }\n";
        check("actors/src/instance/saga.rs", text, &[]);
        check("tests/chaos.rs", text, &[]);
        check("src/app.rs", text, &["1: names `ractor`, which only `actors/…` may"]);
    }

    #[test]
    fn only_the_mdbx_files_of_the_store_name_libmdbx() {
        let text = "fn f() { unsafe { mdbx_sys::mdbx_env_copy() } }";
        check("crates/store/src/mdbx/copy.rs", text, &[]);
        check("crates/store/src/mdbx.rs", text, &[]);
        let expected = ["1: names `mdbx_sys`, which only `crates/store/src/mdbx…` may"];
        check("crates/store/src/memory.rs", text, &expected);
        check("crates/store/tests/copy.rs", text, &expected);
    }

    #[test]
    fn only_the_api_and_the_examples_know_http() {
        check("src/api/events.rs", "use axum::Router;", &[]);
        check("examples/orders/shop/src/main.rs", "use axum::Router;", &[]);
        check(
            "src/cli.rs",
            "use axum::{Router, Json};",
            &["1: names `axum`, which only `src/api…` and `examples/…` may"],
        );
        check("crates/bus/src/nats.rs", "use async_nats::Client;", &[]);
        check(
            "crates/bus/src/file.rs",
            "use async_nats::Client;",
            &["1: names `async_nats`, which only `crates/bus/src/nats…` may"],
        );
    }

    #[test]
    fn only_app_rs_joins_the_crates_that_act() {
        let text = "use orlog_actors::System;\nuse orlog_store::Reader;\nuse orlog_bus::Bus;\n";
        check("src/app.rs", text, &[]);
        check(
            "src/cli/run.rs",
            text,
            &["3: joins orlog_actors, orlog_bus, orlog_store; only `src/app.rs` joins 3 crates that act"],
        );
        check("src/api.rs", "use orlog_actors::System;\nuse orlog_store::Reader;\n", &[]);
    }
}
