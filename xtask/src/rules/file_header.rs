//! Every Rust file starts with a sentence that states its purpose.

use crate::source::Source;
use crate::violation::{LintRule, Violation};

const RULE: LintRule = LintRule {
    name: "file-header",
    reason: "the first line tells the reader what the file contains",
    remedy: "start the file with `//! One sentence.`, then state its guarantees",
};

/// Minimum number of letters of a sentence; fewer letters are a placeholder.
const SENTENCE: usize = 12;

/// Checks the first line.
pub(crate) fn check(source: &Source) -> Option<Violation> {
    let first = source.text.lines().next().unwrap_or_default();
    let violation = |message| Some(Violation::new(&RULE, &source.path, 1, message));
    match first.strip_prefix("//!") {
        None => violation("the file does not start with a `//!` comment"),
        Some(sentence) if sentence.trim().len() < SENTENCE => {
            violation("the first comment is not a sentence")
        }
        Some(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::check as check_file_header;
    use crate::source::fixture;

    #[track_caller]
    fn check(text: &str, expected: Option<&str>) {
        let violation = check_file_header(&fixture("src/a.rs", text));
        assert_eq!(
            violation.map(|violation| violation.message).as_deref(),
            expected
        );
    }

    #[test]
    fn first_line_must_be_a_sentence() {
        check("//! Purpose of this file.\nfn f() {}", None);
        check(
            "// A plain comment.\nfn f() {}",
            Some("the file does not start with a `//!` comment"),
        );
        check("", Some("the file does not start with a `//!` comment"));
        check(
            "//! .\nfn f() {}",
            Some("the first comment is not a sentence"),
        );
    }
}
