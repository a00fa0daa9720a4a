//! Forbidden code: silenced lints, bare unwraps, unfinished arms, sleeping tests.

use crate::source::Source;
use crate::violation::{LintRule, Violation};

const ALLOW: LintRule = LintRule {
    name: "allow",
    reason: "a silenced lint remains after its reason is gone",
    remedy: "write `#[expect(…, reason = \"…\")]`, which fails when it is no longer needed",
};
const UNWRAP: LintRule = LintRule {
    name: "unwrap",
    reason: "a panic without a message does not help the operator",
    remedy: "return an error, or use `expect(\"invariant\")` if a failure would be a bug",
};
const UNFINISHED: LintRule = LintRule {
    name: "unfinished",
    reason: "an unfinished arm panics on its first input",
    remedy: "implement it, or reject the input with an error",
};
const SLEEP: LintRule = LintRule {
    name: "sleep",
    reason: "a sleeping test is slow on a fast machine and flaky on a slow one",
    remedy: "wait for the condition with a deadline, or advance the simulated clock",
};

/// Checks attributes, method calls, macros and paths.
pub(crate) fn check(source: &Source) -> Vec<Violation> {
    let names = &source.names;
    let mut violations = Vec::new();
    let mut find = |rule, line, message: String| {
        violations.push(Violation::new(rule, &source.path, line, message));
    };
    for line in &names.allows {
        find(&ALLOW, *line, "an `allow` attribute".to_owned());
    }
    for line in unwraps(source) {
        find(&UNWRAP, line, "`unwrap` outside tests".to_owned());
    }
    for (name, line) in &names.macros {
        if matches!(name.as_str(), "todo" | "unimplemented") {
            find(&UNFINISHED, *line, format!("`{name}!`"));
        }
    }
    for (call, line) in sleeps(source) {
        find(&SLEEP, line, format!("`{call}` in a test"));
    }
    violations
}

/// Returns calls of `.unwrap()` and uses of `Option::unwrap` as a function.
fn unwraps(source: &Source) -> impl Iterator<Item = usize> {
    let is_unwrap = |segments: &[String]| {
        segments.len() > 1 && segments.last().is_some_and(|last| last == "unwrap")
    };
    let paths = source
        .names
        .paths
        .iter()
        .filter(move |path| is_unwrap(&path.segments))
        .map(|path| path.line);
    let lines = source.names.unwraps.iter().copied().chain(paths);
    // The testkit contains only test code.
    let of_tests = source.path.starts_with("crates/testkit/");
    lines.filter(move |line| !of_tests && !source.is_test_line(*line))
}

fn sleeps(source: &Source) -> impl Iterator<Item = (String, usize)> {
    let in_tests_dir = source.path.split('/').any(|part| part == "tests");
    source
        .names
        .paths
        .iter()
        .filter(move |_| in_tests_dir)
        .filter_map(|path| {
            let [.., module, name] = path.segments.as_slice() else {
                return None;
            };
            let sleeps = matches!(module.as_str(), "thread" | "time") && name == "sleep";
            sleeps.then(|| (format!("{module}::{name}"), path.line))
        })
}

#[cfg(test)]
mod tests {
    use super::check as check_forbidden;
    use crate::source::fixture;
    use crate::violation::violation_lines;

    #[track_caller]
    fn check(path: &str, text: &str, expected: &[&str]) {
        assert_eq!(
            violation_lines(&check_forbidden(&fixture(path, text))),
            expected
        );
    }

    #[test]
    fn rejects_allow_and_accepts_expect() {
        check(
            "src/a.rs",
            "#[allow(dead_code)]\nfn f() {}",
            &["1: an `allow` attribute"],
        );
        check(
            "src/a.rs",
            "#[expect(dead_code, reason = \"…\")]\nfn f() {}",
            &[],
        );
    }

    #[test]
    fn rejects_unwrap_outside_tests() {
        let text = "fn f() { g().unwrap();\n h.map(Result::unwrap) }\n#[cfg(test)]\nmod tests { fn t() { g().unwrap() } }";
        check(
            "src/a.rs",
            text,
            &["1: `unwrap` outside tests", "2: `unwrap` outside tests"],
        );
        check(
            "src/a.rs",
            "fn f() { g().unwrap_or_default() } // .unwrap()",
            &[],
        );
    }

    #[test]
    fn rejects_todo_in_tests_too() {
        check("src/a.rs", "fn f() { todo!() }", &["1: `todo!`"]);
        check(
            "tests/a.rs",
            "fn f() { unimplemented!(\"x\") }",
            &["1: `unimplemented!`"],
        );
    }

    #[test]
    fn rejects_sleep_in_tests() {
        let text = "use tokio::time::{self, sleep};\nfn f() { std::thread::sleep(d); }";
        check(
            "tests/a.rs",
            text,
            &["1: `time::sleep` in a test", "2: `thread::sleep` in a test"],
        );
        check("crates/effect/src/a.rs", text, &[]);
    }
}
