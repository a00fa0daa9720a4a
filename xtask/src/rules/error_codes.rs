//! Every error code that a user can receive has a page, and every page has a code.

use std::collections::{BTreeMap, BTreeSet};

use crate::source::Source;
use crate::tree::Tree;
use crate::violation::{LintRule, Violation};

const RULE: LintRule = LintRule {
    name: "error-page",
    reason: "operators look up error codes during incidents; a page without a code is misleading",
    remedy: "write docs/errors/<code>.md with cause and remedy, or delete the page of a removed code",
};

const PAGES: &str = "docs/errors/";
const SOURCE_DIRS: [&str; 3] = ["src/", "actors/", "crates/"];
const DIGITS: usize = 4;

/// Compares the codes in the source files with the pages.
pub(crate) fn check(tree: &Tree, sources: &[Source]) -> Vec<Violation> {
    let used = used_codes(sources);
    let pages: BTreeSet<&str> = tree
        .with_extension("md")
        .filter_map(|(path, _)| path.strip_prefix(PAGES)?.strip_suffix(".md"))
        .filter(|name| codes(name).next() == Some(*name))
        .collect();
    let missing = used
        .iter()
        .filter(|(code, _)| !pages.contains(code.as_str()))
        .map(|(code, (path, line))| {
            Violation::new(
                &RULE,
                path,
                *line,
                format!("{code} has no page {PAGES}{code}.md"),
            )
        });
    let orphaned = pages
        .iter()
        .filter(|code| !used.contains_key(**code))
        .map(|code| {
            Violation::new(
                &RULE,
                &format!("{PAGES}{code}.md"),
                1,
                format!("no code raises {code}"),
            )
        });
    missing.chain(orphaned).collect()
}

/// Returns each code with its first occurrence; ignores tests, which may invent codes.
fn used_codes(sources: &[Source]) -> BTreeMap<String, (String, usize)> {
    let mut used = BTreeMap::new();
    for source in sources
        .iter()
        .filter(|source| SOURCE_DIRS.iter().any(|dir| source.path.starts_with(dir)))
    {
        for (line, text) in (1..).zip(source.text.lines()) {
            for code in codes(text).filter(|_| !source.is_test_line(line)) {
                used.entry(code.to_owned())
                    .or_insert_with(|| (source.path.clone(), line));
            }
        }
    }
    used
}

/// Returns the words of the form `OR` and four digits.
fn codes(text: &str) -> impl Iterator<Item = &str> {
    text.split(|char: char| !char.is_ascii_alphanumeric() && char != '_')
        .filter(|token| {
            let digits = token.strip_prefix("OR").unwrap_or_default();
            digits.len() == DIGITS && digits.bytes().all(|byte| byte.is_ascii_digit())
        })
}

#[cfg(test)]
mod tests {
    use super::check as check_codes;
    use crate::source::fixture;
    use crate::tree::Tree;
    use crate::violation::violation_lines;

    #[track_caller]
    fn check(source: &str, pages: &[&str], expected: &[&str]) {
        let pages: Vec<(&str, &str)> = pages.iter().map(|page| (*page, "")).collect();
        let violations = check_codes(&Tree::of(&pages), &[fixture("src/api/problem.rs", source)]);
        assert_eq!(violation_lines(&violations), expected);
    }

    #[test]
    fn documented_code_passes() {
        check(
            "const CODE: &str = \"OR0001\";",
            &["docs/errors/OR0001.md", "docs/errors/README.md"],
            &[],
        );
    }

    #[test]
    fn undocumented_codes_and_orphan_pages_are_violations() {
        check(
            "fn f() {}\nconst CODE: &str = \"OR0002\";",
            &["docs/errors/OR0003.md"],
            &[
                "2: OR0002 has no page docs/errors/OR0002.md",
                "1: no code raises OR0003",
            ],
        );
    }

    #[test]
    fn test_code_may_use_any_code() {
        check(
            "#[cfg(test)]\nmod tests { const CODE: &str = \"OR9999\"; }",
            &[],
            &[],
        );
        check("const LONG: &str = \"OR00011\";", &[], &[]);
    }
}
