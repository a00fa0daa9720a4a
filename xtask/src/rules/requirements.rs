//! Every requirement in `docs/requirements.md` has a test that names it, unless the page says that it is not met.
//!
//! A test, or a function of a test suite, names requirements in its doc comment: `/// Requirements: R7, E4.`

use std::collections::BTreeMap;

use syn::visit::Visit;
use syn::{Attribute, Expr, ExprLit, ItemFn, Lit, Meta};

use crate::source::Source;
use crate::tree::Tree;
use crate::violation::{LintRule, Violation};

const RULE: LintRule = LintRule {
    name: "requirement",
    reason: "a requirement without a test can be lost unnoticed",
    remedy: "add `/// Requirements: <id>.` to a test of it, or state in docs/requirements.md what is missing",
};

const PAGE: &str = "docs/requirements.md";
const PREFIX: &str = "Requirements: ";

/// Requirement of the page.
#[derive(Debug)]
pub(crate) struct Requirement {
    pub(crate) id: String,
    line: usize,
    /// Missing part; empty if the requirement is met.
    pub(crate) missing: String,
    /// Tests that name it, as `path: function`.
    pub(crate) tests: Vec<String>,
}

/// Compares the requirements of the page with the tests.
pub(crate) fn check(tree: &Tree, sources: &[Source]) -> Vec<Violation> {
    let (requirements, mut violations) = table(tree, sources);
    let untested = requirements
        .iter()
        .filter(|requirement| requirement.tests.is_empty() && requirement.missing.is_empty());
    violations.extend(untested.map(|requirement| {
        Violation::new(
            &RULE,
            PAGE,
            requirement.line,
            format!("no test names {}", requirement.id),
        )
    }));
    violations
}

/// Returns the requirements in the order of the page, and the tests that name an unknown one.
pub(crate) fn table(tree: &Tree, sources: &[Source]) -> (Vec<Requirement>, Vec<Violation>) {
    let page = tree
        .texts()
        .find(|(path, _)| *path == PAGE)
        .map_or("", |(_, text)| text);
    let rows = (1..)
        .zip(page.lines())
        .filter_map(|(line, text)| row(line, text));
    let mut requirements: Vec<_> = rows.collect();
    let index: BTreeMap<_, _> = requirements
        .iter()
        .enumerate()
        .map(|(at, requirement)| (requirement.id.clone(), at))
        .collect();
    let mut violations = Vec::new();
    for source in sources {
        let mut names = TestNames::default();
        names.visit_file(&source.syntax);
        for (id, test, line) in names.found {
            if let Some(at) = index.get(&id) {
                requirements[*at]
                    .tests
                    .push(format!("{}: {test}", source.path));
            } else {
                let message = format!("`{id}` is not a requirement of {PAGE}");
                violations.push(Violation::new(&RULE, &source.path, line, message));
            }
        }
    }
    (requirements, violations)
}

/// Parses a row `| R1 | text | missing part |` of the page.
fn row(line: usize, text: &str) -> Option<Requirement> {
    let mut cells = text.strip_prefix('|')?.split('|').map(str::trim);
    let (id, _, missing) = (cells.next()?, cells.next()?, cells.next()?);
    let digits = id.strip_prefix(|letter: char| letter.is_ascii_uppercase())?;
    let is_id = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    is_id.then(|| Requirement {
        id: id.to_owned(),
        line,
        missing: missing.to_owned(),
        tests: Vec::new(),
    })
}

/// Requirements that the functions of a file name: id, function, line.
#[derive(Default)]
struct TestNames {
    found: Vec<(String, String, usize)>,
}

impl Visit<'_> for TestNames {
    fn visit_item_fn(&mut self, function: &ItemFn) {
        let docs = function.attrs.iter().filter_map(doc);
        for ids in docs.filter_map(|text| text.trim().strip_prefix(PREFIX).map(str::to_owned)) {
            let line = function.sig.ident.span().start().line;
            let ids = ids
                .trim_end_matches('.')
                .split(',')
                .map(|id| id.trim().to_owned());
            self.found
                .extend(ids.map(|id| (id, function.sig.ident.to_string(), line)));
        }
    }
}

/// Returns the text of a doc comment.
fn doc(attribute: &Attribute) -> Option<String> {
    match &attribute.meta {
        Meta::NameValue(meta) if meta.path.is_ident("doc") => match &meta.value {
            Expr::Lit(ExprLit {
                lit: Lit::Str(text),
                ..
            }) => Some(text.value()),
            _ => None,
        },
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::{PAGE, check, table};
    use crate::source::fixture;
    use crate::tree::Tree;
    use crate::violation::violation_lines;

    const TEXT: &str =
        "| id | requirement | missing |\n|---|---|---|\n| R1 | one | |\n| R2 | two | all |\n";
    const TESTS: &str = "/// Some text.\n///\n/// Requirements: R1, R9.\n#[tokio::test]\nasync fn t() {}\n/// Tests R1.\nfn f() {}\n";

    #[test]
    fn requirement_without_a_test_is_a_violation_unless_its_gap_is_stated() {
        let violations = check(&Tree::of(&[(PAGE, TEXT)]), &[]);
        assert_eq!(violation_lines(&violations), ["3: no test names R1"]);
    }

    #[test]
    fn tests_are_listed_and_unknown_ids_are_violations() {
        let source = fixture("tests/a.rs", TESTS);
        let (requirements, violations) = table(&Tree::of(&[(PAGE, TEXT)]), &[source]);
        assert_eq!(requirements[0].tests, ["tests/a.rs: t"]);
        assert_eq!(
            violation_lines(&violations),
            ["5: `R9` is not a requirement of docs/requirements.md"]
        );
    }
}
