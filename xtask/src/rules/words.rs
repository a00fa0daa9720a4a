//! Retired words: private terms that a standard term replaced, in identifiers and in prose.
//!
//! The rule reads every text file word by word: `set_aside`, `SetAside` and `set aside` are the same phrase. The glossary
//! (docs/glossary.md) lists the terms to use.

use crate::tree::Tree;
use crate::violation::{LintRule, Violation};

const RULE: LintRule = LintRule {
    name: "word",
    reason: "a concept with two names costs each reader time; docs/glossary.md has the name that the field uses",
    remedy: "use the standard term; a new term requires an entry in docs/glossary.md",
};

/// The list of the words, and a file with a key of Grafana.
const EXCLUDED: [&str; 2] = [
    "xtask/src/rules/words.rs",
    "deploy/grafana/provisioning/dashboards/orlog.yml",
];

/// Retired phrase, and the term that replaces it.
const RETIRED: &[(&str, &str)] = &[
    ("anew", "again, or a verb with re-"),
    ("at rest", "idle, or offline"),
    ("became of", "the work result, or the outcome"),
    ("becomes of", "the work result, or the outcome"),
    ("census", "counts"),
    ("crew", "worker group"),
    ("deed", "action"),
    ("deeds", "actions"),
    ("doomed", "compensation pending"),
    ("errand", "request, or child saga"),
    ("errands", "requests, or child sagas"),
    ("everybody", "the missing component, or all users"),
    ("folder", "directory, dir"),
    ("folders", "directories, dirs"),
    ("foreman", "worker supervisor"),
    ("gave up", "abandoned, or stopped"),
    ("give up", "abandon, or stop"),
    ("given up", "abandoned"),
    ("goes by", "uses"),
    ("hearken", "receive"),
    ("household", "composite saga"),
    ("in force", "active"),
    ("insist", "publish with retries"),
    ("lane", "destination"),
    ("lanes", "destinations"),
    ("let go", "release"),
    ("lets go", "releases"),
    ("mend", "fix"),
    ("mended", "fixed"),
    ("mends", "fixes"),
    ("mistake", "error, or diagnostic"),
    ("mistakes", "errors, or diagnostics"),
    ("nobody", "the missing component"),
    ("patience", "timeout"),
    ("performer", "executor"),
    ("poke", "wake"),
    ("poked", "woken"),
    ("postman", "dead-letter publisher"),
    ("purse", "retry budget"),
    ("quartet", "definition suite"),
    ("refusal", "rejection, or error"),
    ("refusals", "rejections, or errors"),
    ("refuse", "reject"),
    ("refused", "rejected"),
    ("refuses", "rejects"),
    ("rig", "fixture, or test runtime"),
    ("seams", "overrides"),
    ("set aside", "dead-lettered"),
    ("somebody", "a user, an operator, or the component"),
    ("stimuli", "program inputs"),
    ("stimulus", "program input"),
    ("surroundings", "context"),
    ("tally", "counts"),
    ("told", "reported, emitted, or received"),
    ("turn back", "compensate"),
    ("turned back", "compensated"),
    ("turns back", "compensates"),
    ("turnstile", "concurrency limiter"),
    ("under way", "in flight, or in progress"),
    ("undoing", "compensating"),
    ("undone", "compensated"),
    ("verdict", "outcome"),
    ("verdicts", "outcomes"),
    ("whoever", "the component, or the user"),
];

/// Phrases in which a retired word is the standard term.
const ALLOWED: &[&str] = &[
    // Error code of HTTP/2.
    "refused stream",
    "connection refused",
    "refused connection",
    "refused connections",
    "econn refused",
];

/// Checks every text file.
pub(crate) fn check(tree: &Tree) -> Vec<Violation> {
    let files = tree.texts().filter(|(path, _)| !EXCLUDED.contains(path));
    files
        .flat_map(|(path, text)| check_text(path, text))
        .collect()
}

fn check_text(path: &str, text: &str) -> Vec<Violation> {
    let lines = (1..).zip(text.lines());
    lines
        .flat_map(|(line, content)| {
            let words = words(content);
            let found = RETIRED
                .iter()
                .filter(|(phrase, _)| count(&words, phrase) > allowed(&words, phrase));
            let violation = |(phrase, term): &(&str, &str)| {
                Violation::new(
                    &RULE,
                    path,
                    line,
                    format!("`{phrase}` is retired; use: {term}"),
                )
            };
            found.map(violation).collect::<Vec<_>>()
        })
        .collect()
}

/// Splits a line into lowercase words; identifiers are split at `_` and at capital letters.
fn words(line: &str) -> Vec<String> {
    let mut words = Vec::new();
    let mut word = String::new();
    let mut previous = ' ';
    for character in line.chars().chain([' ']) {
        let starts = character.is_uppercase() && previous.is_lowercase();
        if (!character.is_alphabetic() || starts) && !word.is_empty() {
            words.push(std::mem::take(&mut word));
        }
        if character.is_alphabetic() {
            word.extend(character.to_lowercase());
        }
        previous = character;
    }
    words
}

/// Returns how often the phrase occurs in the words.
fn count(words: &[String], phrase: &str) -> usize {
    let phrase: Vec<_> = phrase.split(' ').collect();
    words
        .windows(phrase.len())
        .filter(|found| found.iter().eq(phrase.iter()))
        .count()
}

/// Returns how often an allowed phrase that contains the retired phrase occurs in the words.
fn allowed(words: &[String], retired: &str) -> usize {
    let contains = |phrase: &&&str| phrase.split(' ').any(|word| word == retired);
    ALLOWED
        .iter()
        .filter(contains)
        .map(|phrase| count(words, phrase))
        .sum()
}

#[cfg(test)]
mod tests {
    use super::check;
    use crate::tree::Tree;
    use crate::violation::violation_lines;

    fn found(path: &str, text: &str) -> Vec<String> {
        violation_lines(&check(&Tree::of(&[(path, text)])))
    }

    #[test]
    fn retired_words_are_found_in_identifiers_and_prose() {
        let expected = ["1: `set aside` is retired; use: dead-lettered"];
        for text in [
            "fn set_aside() {}",
            "struct SetAside;",
            "// It is set aside.",
            "const SET_ASIDE: u8 = 0;",
        ] {
            assert_eq!(found("src/a.rs", text), expected, "{text}");
        }
        assert_eq!(
            found("docs/a.md", "x\nNobody is there"),
            ["2: `nobody` is retired; use: the missing component"]
        );
    }

    #[test]
    fn longer_words_and_allowed_phrases_pass() {
        for text in [
            "fn airplane() {}",
            "let planes = asides;",
            "// Connection refused (os error 111)",
        ] {
            assert_eq!(found("src/a.rs", text), Vec::<String>::new(), "{text}");
        }
        assert_eq!(
            found("src/a.rs", "// connection refused, then refused").len(),
            1
        );
    }
}
