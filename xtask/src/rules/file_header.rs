//! Every Rust file opens with a sentence that says what it is for.

use crate::source::Source;
use crate::violation::{Finding, Rule};

const RULE: Rule = Rule {
    name: "opening",
    reason: "a newcomer reads the first line and decides whether to read on",
    remedy: "open the file with `//! One sentence.`, then say what it promises",
};

/// Fewer letters than this are a placeholder, not a sentence.
const SENTENCE: usize = 12;

/// Looks at the first line.
pub(crate) fn check(source: &Source) -> Option<Finding> {
    let first = source.text.lines().next().unwrap_or_default();
    let finding = |what| Some(Finding::new(&RULE, &source.path, 1, what));
    match first.strip_prefix("//!") {
        None => finding("the file does not open with a `//!` comment"),
        Some(sentence) if sentence.trim().len() < SENTENCE => {
            finding("the opening comment is not a sentence")
        }
        Some(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::check as check_opening;
    use crate::source::fixture;

    #[track_caller]
    fn check(text: &str, expected: Option<&str>) {
        let finding = check_opening(&fixture("src/a.rs", text));
        assert_eq!(finding.map(|finding| finding.what).as_deref(), expected);
    }

    #[test]
    fn a_sentence_must_stand_on_the_first_line() {
        check("//! Says what this is for.\nfn f() {}", None);
        check("// A plain comment.\nfn f() {}", Some("the file does not open with a `//!` comment"));
        check("", Some("the file does not open with a `//!` comment"));
        check("//! .\nfn f() {}", Some("the opening comment is not a sentence"));
    }
}
