//! Ratchet of two habits that make code dense: parameters of a tuple type, and `let (a, b) = (x, y)`.
//!
//! `xtask/density.toml` has the number of each crate. A number may only fall: more fail the rule, and
//! fewer ask for the lower number.

use std::collections::BTreeMap;

use crate::readability::{self, Readability};
use crate::source::Source;
use crate::tree::Tree;
use crate::violation::{LintRule, Violation};

/// File of the numbers.
const FILE: &str = "xtask/density.toml";
/// Name of the number of tuple parameters of a crate.
const TUPLE_PARAMETERS: &str = "tuple_parameters";
/// Name of the number of `let` pairs of a crate.
const LET_PAIRS: &str = "let_pairs";

const TUPLES: LintRule = LintRule {
    name: "tuple-parameter",
    reason: "the halves of a tuple have no names, and a reader must look up what they are",
    remedy: "take the arguments one by one, or name a struct of the domain; if there are fewer than before, lower the number",
};
const PAIRS: LintRule = LintRule {
    name: "let-pair",
    reason: "one statement, one thought: `let (a, b) = (x, y)` packs two",
    remedy: "write two statements; if there are fewer than before, lower the number",
};

/// Compares the counts of each crate with its numbers. A checkout without the file has no ratchet.
pub(crate) fn check(tree: &Tree, sources: &[Source]) -> Vec<Violation> {
    let text = tree.texts().find(|(path, _)| *path == FILE);
    let Some((_, text)) = text else {
        return Vec::new();
    };
    let limits: toml::Table = match text.parse() {
        Ok(limits) => limits,
        Err(error) => return vec![Violation::new(&TUPLES, FILE, 1, error.to_string())],
    };

    let mut crates: BTreeMap<&str, Readability> = BTreeMap::new();
    for source in sources
        .iter()
        .filter(|source| readability::is_product(source))
    {
        let counts = crates.entry(readability::crate_of(&source.path));
        *counts.or_default() += readability::measure(source);
    }

    let mut violations = Vec::new();
    for (name, counts) in crates {
        let limit = |key| limits.get(name)?.get(key)?.as_integer();
        let tuples = counts.tuple_parameters.len();
        let pairs = counts.let_pairs.len();
        violations.extend(compare(
            &TUPLES,
            name,
            TUPLE_PARAMETERS,
            tuples,
            limit(TUPLE_PARAMETERS),
        ));
        violations.extend(compare(&PAIRS, name, LET_PAIRS, pairs, limit(LET_PAIRS)));
    }
    violations
}

/// Returns the violation of a crate whose count is not its number; a missing number is 0.
fn compare(
    rule: &'static LintRule,
    name: &str,
    key: &str,
    count: usize,
    limit: Option<i64>,
) -> Option<Violation> {
    let limit = limit.unwrap_or_default();
    if i64::try_from(count) == Ok(limit) {
        return None;
    }
    let message = format!("{name} has {count} of {key}; the number is {limit}");
    Some(Violation::new(rule, FILE, 1, message))
}

#[cfg(test)]
mod tests {
    use super::{FILE, check};
    use crate::source::fixture;
    use crate::tree::Tree;

    const PAIR: &str = "//! A file.\nfn f(a: (u8, u8)) { let (b, c) = (1, 2); }\n";

    #[track_caller]
    fn check_with(numbers: &str, expected: &[&str]) {
        let violations = check(&Tree::of(&[(FILE, numbers)]), &[fixture("src/a.rs", PAIR)]);
        let messages: Vec<_> = violations.iter().map(|found| &found.message).collect();
        assert_eq!(messages, expected);
    }

    #[test]
    fn numbers_may_neither_rise_nor_be_too_high() {
        check_with("[src]\ntuple_parameters = 1\nlet_pairs = 1\n", &[]);
        check_with(
            "[src]\ntuple_parameters = 2\n",
            &[
                "src has 1 of tuple_parameters; the number is 2",
                "src has 1 of let_pairs; the number is 0",
            ],
        );
    }
}
