//! Every error code that a user can see has a page, and every page belongs to a code.

use std::collections::{BTreeMap, BTreeSet};

use crate::source::Source;
use crate::tree::Tree;
use crate::violation::{Finding, Rule};

const RULE: Rule = Rule {
    name: "error-page",
    reason: "whoever meets a code at night looks it up; a page nobody can meet misleads",
    remedy: "write docs/errors/<code>.md: what happened, what to do; or delete the page of a code that is gone",
};

const PAGES: &str = "docs/errors/";
const HOUSE: [&str; 3] = ["src/", "actors/", "crates/"];
const DIGITS: usize = 4;

/// Compares the codes in the code with the pages.
pub(crate) fn check(tree: &Tree, sources: &[Source]) -> Vec<Finding> {
    let used = used_codes(sources);
    let pages: BTreeSet<&str> = tree
        .with_extension("md")
        .filter_map(|(path, _)| path.strip_prefix(PAGES)?.strip_suffix(".md"))
        .filter(|name| codes(name).next() == Some(*name))
        .collect();
    let missing =
        used.iter().filter(|(code, _)| !pages.contains(code.as_str())).map(|(code, (path, line))| {
            Finding::new(&RULE, path, *line, format!("{code} has no page {PAGES}{code}.md"))
        });
    let orphaned = pages
        .iter()
        .filter(|code| !used.contains_key(**code))
        .map(|code| Finding::new(&RULE, &format!("{PAGES}{code}.md"), 1, format!("no code raises {code}")));
    missing.chain(orphaned).collect()
}

/// Each code with the first place that names it; tests may make codes up.
fn used_codes(sources: &[Source]) -> BTreeMap<String, (String, usize)> {
    let mut used = BTreeMap::new();
    for source in sources.iter().filter(|source| HOUSE.iter().any(|part| source.path.starts_with(part))) {
        for (line, text) in (1..).zip(source.text.lines()) {
            for code in codes(text).filter(|_| !source.is_test_line(line)) {
                used.entry(code.to_owned()).or_insert_with(|| (source.path.clone(), line));
            }
        }
    }
    used
}

/// The words of the form `OR` and four digits.
fn codes(text: &str) -> impl Iterator<Item = &str> {
    text.split(|char: char| !char.is_ascii_alphanumeric() && char != '_').filter(|word| {
        let digits = word.strip_prefix("OR").unwrap_or_default();
        digits.len() == DIGITS && digits.bytes().all(|byte| byte.is_ascii_digit())
    })
}

#[cfg(test)]
mod tests {
    use super::check as check_codes;
    use crate::source::fixture;
    use crate::tree::Tree;
    use crate::violation::lines;

    #[track_caller]
    fn check(source: &str, pages: &[&str], expected: &[&str]) {
        let pages: Vec<(&str, &str)> = pages.iter().map(|page| (*page, "")).collect();
        let findings = check_codes(&Tree::of(&pages), &[fixture("src/api/problem.rs", source)]);
        assert_eq!(lines(&findings), expected);
    }

    #[test]
    fn a_code_with_its_page_passes() {
        check("const CODE: &str = \"OR0001\";", &["docs/errors/OR0001.md", "docs/errors/README.md"], &[]);
    }

    #[test]
    fn a_code_without_a_page_and_a_page_without_a_code_are_findings() {
        check(
            "fn f() {}\nconst CODE: &str = \"OR0002\";",
            &["docs/errors/OR0003.md"],
            &["2: OR0002 has no page docs/errors/OR0002.md", "1: no code raises OR0003"],
        );
    }

    #[test]
    fn tests_may_make_codes_up() {
        check("#[cfg(test)]\nmod tests { const CODE: &str = \"OR9999\"; }", &[], &[]);
        check("const LONG: &str = \"OR00011\";", &[], &[]);
    }
}
