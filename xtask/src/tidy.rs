//! `cargo xtask tidy` reads the checkout once and applies every code rule.

use std::path::Path;

use crate::error::Error;
use crate::rules;
use crate::source::Source;
use crate::tree::Tree;
use crate::violation::{LintRule, Violation};

const PARSE: LintRule = LintRule {
    name: "parse",
    reason: "the rules read the syntax tree and cannot check a file that does not parse",
    remedy: "make `cargo build` pass first",
};

/// Checks the checkout in `root` and prints the violations; `true` if there are none. Warnings take
/// one line each and do not fail the check.
pub(crate) fn run(root: &Path) -> Result<bool, Error> {
    let tree = Tree::read(root)?;
    let (warnings, violations): (Vec<_>, Vec<_>) = check(&tree)
        .into_iter()
        .partition(|violation| violation.is_warning);

    for warning in &warnings {
        println!(
            "warning: {}:{}: {}",
            warning.path, warning.line, warning.message
        );
    }
    for violation in &violations {
        println!("{violation}\n");
    }

    let files = tree.with_extension("rs").count();
    let warnings = warnings.len();
    println!(
        "tidy: {files} Rust files, {} violations, {warnings} warnings",
        violations.len()
    );
    Ok(violations.is_empty())
}

/// Returns all violations of all rules, sorted by location.
fn check(tree: &Tree) -> Vec<Violation> {
    let (sources, mut violations) = parse(tree);
    for source in &sources {
        violations.extend(rules::size::check(source));
        violations.extend(rules::file_header::check(source));
        violations.extend(rules::boundaries::check(source));
        violations.extend(rules::forbidden::check(source));
    }
    violations.extend(rules::markers::check(tree));
    violations.extend(rules::cycles::check(&sources));
    violations.extend(rules::density::check(tree, &sources));
    violations.extend(rules::layers::check(tree));
    violations.extend(rules::error_codes::check(tree, &sources));
    violations.extend(rules::requirements::check(tree, &sources));
    violations.extend(rules::links::check(tree));
    violations.extend(rules::words::check(tree));
    violations.sort_by(|a, b| (&a.path, a.line).cmp(&(&b.path, b.line)));
    violations
}

pub(crate) fn parse(tree: &Tree) -> (Vec<Source>, Vec<Violation>) {
    let (mut sources, mut violations) = (Vec::new(), Vec::new());
    for (path, text) in tree.with_extension("rs") {
        match Source::parse(path, text) {
            Ok(source) => sources.push(source),
            Err((line, message)) => violations.push(Violation::new(&PARSE, path, line, message)),
        }
    }
    mark_test_modules(&mut sources);
    (sources, violations)
}

/// Marks a file that its parent declares as `#[cfg(test)] mod name;`, and all files below it, as tests.
fn mark_test_modules(sources: &mut [Source]) {
    let mut stems = Vec::new();
    for source in &*sources {
        let dir = source.children_dir();
        stems.extend(
            source
                .test_children
                .iter()
                .map(|name| format!("{dir}{name}")),
        );
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

    const VALID: &str = "//! A file without violations.\n\nfn f() {}\n";

    #[test]
    fn clean_tree_has_no_violations() {
        let tree = Tree::of(&[("src/lib.rs", VALID), ("README.md", "[lib](src/lib.rs)")]);
        assert!(check(&tree).is_empty());
    }

    #[test]
    fn violations_are_sorted_by_location() {
        let invalid = "fn f() { g().unwrap(); }\n#[allow(x)]\nfn h() { todo!() }\n";
        let tree = Tree::of(&[("src/lib.rs", invalid), ("src/a/mod.rs", VALID)]);
        let locations: Vec<String> = check(&tree)
            .iter()
            .map(|violation| {
                format!(
                    "{}:{} {}",
                    violation.path, violation.line, violation.rule.name
                )
            })
            .collect();
        assert_eq!(
            locations,
            [
                "src/a/mod.rs:1 mod-file",
                "src/lib.rs:1 file-header",
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
    fn unparsable_file_is_a_violation() {
        let tree = Tree::of(&[("src/lib.rs", "//! Half a file.\nfn f( {\n")]);
        assert_eq!(check(&tree)[0].rule.name, "parse");
    }
}
