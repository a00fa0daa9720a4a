//! `cargo xtask tidy` reads the checkout once and shows it to every house rule.

use std::path::Path;

use crate::error::Error;
use crate::rules;
use crate::source::Source;
use crate::tree::Tree;
use crate::violation::{Finding, Rule};

const PARSE: Rule = Rule {
    name: "parse",
    reason: "the rules read the syntax tree; a file that does not parse escapes them",
    remedy: "make `cargo build` pass first",
};

/// Checks the checkout in `root` and prints what it finds; `true` if that is nothing.
pub(crate) fn run(root: &Path) -> Result<bool, Error> {
    let tree = Tree::read(root)?;
    let findings = check(&tree);
    for finding in &findings {
        println!("{finding}\n");
    }
    let files = tree.with_extension("rs").count();
    println!("tidy: {files} Rust files, {} findings", findings.len());
    Ok(findings.is_empty())
}

/// Every finding of every rule, sorted by place.
fn check(tree: &Tree) -> Vec<Finding> {
    let (sources, mut findings) = parse(tree);
    for source in &sources {
        findings.extend(rules::size::check(source));
        findings.extend(rules::file_header::check(source));
        findings.extend(rules::boundaries::check(source));
        findings.extend(rules::forbidden::check(source));
    }
    findings.extend(rules::markers::check(tree));
    findings.extend(rules::cycles::check(&sources));
    findings.extend(rules::layers::check(tree));
    findings.extend(rules::error_codes::check(tree, &sources));
    findings.extend(rules::links::check(tree));
    findings.sort_by(|a, b| (&a.path, a.line).cmp(&(&b.path, b.line)));
    findings
}

fn parse(tree: &Tree) -> (Vec<Source>, Vec<Finding>) {
    let (mut sources, mut findings) = (Vec::new(), Vec::new());
    for (path, text) in tree.with_extension("rs") {
        match Source::parse(path, text) {
            Ok(source) => sources.push(source),
            Err((line, message)) => findings.push(Finding::new(&PARSE, path, line, message)),
        }
    }
    mark_test_modules(&mut sources);
    (sources, findings)
}

/// A file that its parent declares as `#[cfg(test)] mod name;` is tests, with everything below it.
fn mark_test_modules(sources: &mut [Source]) {
    let mut stems = Vec::new();
    for source in &*sources {
        let folder = source.children_folder();
        stems.extend(source.test_children.iter().map(|name| format!("{folder}{name}")));
    }
    for source in sources {
        let is_tests = |stem: &String| {
            source.path == format!("{stem}.rs") || source.path.starts_with(&format!("{stem}/"))
        };
        if stems.iter().any(is_tests) {
            source.mark_as_tests();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::check;
    use crate::tree::Tree;

    const GOOD: &str = "//! A file that keeps every rule.\n\nfn f() {}\n";

    #[test]
    fn a_good_tree_has_no_findings() {
        let tree = Tree::of(&[("src/lib.rs", GOOD), ("README.md", "[lib](src/lib.rs)")]);
        assert!(check(&tree).is_empty());
    }

    #[test]
    fn findings_come_sorted_by_place() {
        let bad = "fn f() { g().unwrap(); }\n#[allow(x)]\nfn h() { todo!() }\n";
        let tree = Tree::of(&[("src/lib.rs", bad), ("src/a/mod.rs", GOOD)]);
        let places: Vec<String> = check(&tree)
            .iter()
            .map(|finding| format!("{}:{} {}", finding.path, finding.line, finding.rule.name))
            .collect();
        assert_eq!(
            places,
            [
                "src/a/mod.rs:1 mod-file",
                "src/lib.rs:1 opening",
                "src/lib.rs:1 unwrap",
                "src/lib.rs:2 allow",
                "src/lib.rs:3 unfinished"
            ]
        );
    }

    #[test]
    fn test_modules_in_their_own_file_may_unwrap() {
        let parent = "//! A file with tests beside it.\n#[cfg(test)]\nmod check;\n";
        let child = "//! Tests of the file above.\nfn f() { g().unwrap(); }\n";
        let tree = Tree::of(&[("src/lib.rs", parent), ("src/check.rs", child)]);
        assert!(check(&tree).is_empty());
    }

    #[test]
    fn a_file_that_does_not_parse_is_a_finding() {
        let tree = Tree::of(&[("src/lib.rs", "//! Half a file.\nfn f( {\n")]);
        assert_eq!(check(&tree)[0].rule.name, "parse");
    }
}
