//! Relative links in Markdown have an existing target, and so has a path of a source file in inline
//! code. Decision records and the changelog name the files of their time.

use std::path::Path;

use crate::tree::Tree;
use crate::violation::{LintRule, Violation};

const RULE: LintRule = LintRule {
    name: "link",
    reason: "a dead link misleads the reader and shows that the page is not maintained",
    remedy: "correct the path, or delete the link",
};

/// Directories of source files.
const SOURCE_DIRS: [&str; 5] = ["actors/", "benches/", "crates/", "src/", "tests/"];

/// Checks every relative link of every page.
pub(crate) fn check(tree: &Tree) -> Vec<Violation> {
    let pages = tree.with_extension("md");
    pages
        .flat_map(|(path, text)| check_page(tree, path, text))
        .collect()
}

fn check_page(tree: &Tree, path: &str, text: &str) -> Vec<Violation> {
    let mut violations = Vec::new();
    let mut fenced = false;
    for (line, content) in (1..).zip(text.lines()) {
        if content.trim_start().starts_with("```") {
            fenced = !fenced;
        } else if !fenced {
            // The page of an example names files of its own directory.
            let exists = |named: &str| tree.contains(named) || leads_somewhere(tree, path, named);
            let stale = source_paths(path, content).filter(|named| !exists(named));
            violations.extend(stale.map(|named| {
                Violation::new(&RULE, path, line, format!("`{named}` does not exist"))
            }));

            let dead = targets(&without_code(content))
                .into_iter()
                .filter(|target| !leads_somewhere(tree, path, target));
            violations.extend(dead.map(|target| {
                Violation::new(&RULE, path, line, format!("`{target}` does not exist"))
            }));
        }
    }
    violations
}

/// Returns the paths of Rust files, from the root of the checkout, in the inline code of a line.
fn source_paths<'a>(page: &str, line: &'a str) -> impl Iterator<Item = &'a str> {
    let is_history = page.starts_with("docs/adr/") || page == "CHANGELOG.md";
    let code = line.split('`').skip(1).step_by(2);
    code.filter(move |text| {
        !is_history
            && SOURCE_DIRS.iter().any(|dir| text.starts_with(dir))
            && Path::new(text).extension().is_some_and(|kind| kind == "rs")
            && !text.contains(['*', '<', ' '])
    })
}

/// Returns the line without its `inline code`.
fn without_code(line: &str) -> String {
    line.split('`').step_by(2).collect()
}

/// Returns the relative targets of `[text](target)` and `[name]: target`, without title and anchor.
fn targets(line: &str) -> Vec<String> {
    let inline = line
        .split("](")
        .skip(1)
        .filter_map(|rest| rest.split(')').next());
    let reference = line
        .strip_prefix('[')
        .and_then(|rest| rest.split_once("]:"))
        .map(|(_, target)| target);
    let bare = |target: &str| {
        let target = target.trim().trim_start_matches('<');
        target
            .split(['#', ' ', '>'])
            .next()
            .unwrap_or_default()
            .to_owned()
    };
    let is_relative = |target: &String| !target.is_empty() && !target.contains(':');
    inline
        .chain(reference)
        .map(bare)
        .filter(is_relative)
        .collect()
}

fn leads_somewhere(tree: &Tree, page: &str, target: &str) -> bool {
    let dir = page.rsplit_once('/').map_or("", |(dir, _)| dir);
    let start = if target.starts_with('/') { "" } else { dir };
    let mut parts: Vec<&str> = start.split('/').filter(|part| !part.is_empty()).collect();
    for part in target.split('/') {
        match part {
            ".." if parts.pop().is_none() => return false,
            "" | "." | ".." => {}
            _ => parts.push(part),
        }
    }
    tree.contains(&parts.join("/"))
}

#[cfg(test)]
mod tests {
    use super::check as check_links;
    use crate::tree::Tree;
    use crate::violation::violation_lines;

    #[track_caller]
    fn check(page: &str, expected: &[&str]) {
        let tree = Tree::of(&[
            ("docs/adr/README.md", page),
            ("docs/a.md", ""),
            ("src/lib.rs", ""),
        ]);
        assert_eq!(violation_lines(&check_links(&tree)), expected);
    }

    #[test]
    fn links_to_files_directories_anchors_and_urls_pass() {
        check(
            "[a](../a.md#part) and [src](../../src/) and [web](https://example.org/x) [here](#top)",
            &[],
        );
        check("[a]: ../a.md \"title\"\n[root](/src/lib.rs)", &[]);
    }

    #[test]
    fn dead_links_are_violations() {
        check(
            "fine\n[b](../b.md) [c](c.md)",
            &["2: `../b.md` does not exist", "2: `c.md` does not exist"],
        );
        check(
            "[out](../../../x.md)",
            &["1: `../../../x.md` does not exist"],
        );
    }

    #[test]
    fn paths_of_source_files_in_inline_code_must_exist() {
        let text = "`src/a.rs`, `src/gone.rs`, `src/*.rs`, `gone.rs`\n";
        let page = |path| {
            let tree = Tree::of(&[("src/a.rs", ""), (path, text)]);
            let violations = super::check(&tree).into_iter();
            violations
                .map(|violation| violation.message)
                .collect::<Vec<_>>()
        };
        assert_eq!(page("README.md"), ["`src/gone.rs` does not exist"]);
        assert!(page("docs/adr/0001-a.md").is_empty());
    }

    #[test]
    fn code_is_not_a_link() {
        check("`[b](b.md)`\n```\n[c](c.md)\n```\n", &[]);
    }
}
