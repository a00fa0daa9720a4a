//! Definitions: valid ones with injected errors, and arbitrary bytes.

use orlog_program::{Program as _, compile_yaml, load};
use orlog_testkit::fuzz::Random;

use super::run::random_run;

/// Characters and names with a meaning in the language.
const TOKENS: [&str; 48] = [
    "[",
    "]",
    "{",
    "}",
    ": ",
    "- ",
    ",",
    "&a ",
    "*a",
    "|",
    ">",
    "'",
    "\"",
    "#",
    "!!x ",
    "---\n",
    "? ",
    "=",
    "==",
    "~",
    "null",
    "true",
    "1",
    "-1",
    "18446744073709551616",
    "1e400",
    "PT30M",
    "30m",
    "0s",
    "=event",
    "=vars.x",
    "=failure",
    "=1 +",
    "=event.map(a, a)",
    "after: []",
    "after: [a]",
    "undo: ",
    "ok: X",
    "fail: [X, Y]",
    "timeout: 1s",
    "when: =true",
    "do: { effect: e }",
    "do: { command: a.B }",
    "save: { x: =event }",
    "steps:",
    "\u{feff}",
    "\t",
    "é",
];

/// Returns a definition and the seed of its run.
pub(super) fn make(random: &mut Random, corpus: &[String]) -> (String, u64) {
    let mut text = corpus[random.below(corpus.len())].clone();
    if random.once_in(20) {
        let bytes: Vec<u8> = (0..random.below(300)).map(|_| random.byte()).collect();
        text = String::from_utf8_lossy(&bytes).into_owned();
    }
    for _ in 0..random.below(6) {
        text = mutate(random, &text, corpus);
    }
    (text, random.seed())
}

fn mutate(random: &mut Random, text: &str, corpus: &[String]) -> String {
    let mut lines: Vec<&str> = text.lines().collect();
    if lines.is_empty() {
        return random.pick(&TOKENS).to_owned();
    }
    let at = random.below(lines.len());
    let other = random.below(lines.len());
    match random.below(8) {
        0 => {
            lines.remove(at);
        }
        1 => lines.insert(other, lines[at]),
        2 => lines.swap(at, other),
        3 => {
            let donor = &corpus[random.below(corpus.len())];
            let donor_lines: Vec<&str> = donor.lines().collect();
            lines.insert(at, donor_lines[random.below(donor_lines.len())]);
        }
        4 => return replace_token(random, text),
        5 => return insert(random, text),
        6 => return bytes(random, text),
        _ => return indent(random, &lines, at),
    }
    lines.join("\n")
}

/// Replaces one word of the text by another of its words or by one of [`TOKENS`].
fn replace_token(random: &mut Random, text: &str) -> String {
    let found: Vec<&str> = text
        .split(|c: char| !c.is_alphanumeric())
        .filter(|token| !token.is_empty())
        .collect();
    if found.is_empty() {
        return text.to_owned();
    }
    let old = random.pick(&found);
    let new = if random.once_in(2) {
        random.pick(&found)
    } else {
        random.pick(&TOKENS)
    };
    text.replacen(old, new, 1 + random.below(2))
}

fn insert(random: &mut Random, text: &str) -> String {
    let at = text.floor_char_boundary(random.below(text.len() + 1));
    format!("{}{}{}", &text[..at], random.pick(&TOKENS), &text[at..])
}

fn bytes(random: &mut Random, text: &str) -> String {
    let mut bytes = text.as_bytes().to_vec();
    for _ in 0..=random.below(3) {
        let at = random.below(bytes.len());
        bytes[at] = random.byte();
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

fn indent(random: &mut Random, lines: &[&str], at: usize) -> String {
    let moved = format!("{}{}", " ".repeat(random.below(6)), lines[at].trim_start());
    let mut lines: Vec<&str> = lines.to_vec();
    lines[at] = &moved;
    lines.join("\n")
}

/// Compiles the definition and runs it if it compiles. Returns whether it compiled.
pub(super) fn run((text, seed): &(String, u64)) -> bool {
    match compile_yaml(text, "fuzz.saga.yaml") {
        Ok(saga) => {
            let reloaded =
                load(saga.source(), "fuzz.saga.yaml").expect("its source compiles again");
            assert_eq!(reloaded.definition_ref(), saga.definition_ref());
            random_run(&mut Random::new(*seed), &saga, |state| {
                assert!(saga.view_state(state).is_some());
            });
            true
        }
        Err(problems) => {
            assert!(
                !problems.is_empty() && problems.len() <= 101,
                "{} problems",
                problems.len()
            );
            for problem in &problems {
                let message = problem.to_string();
                assert!(
                    problem.line > 0 && problem.column > 0,
                    "no position: {message}"
                );
                assert!(
                    message.len() < 5_000 && !message.chars().any(char::is_control),
                    "{message:?}"
                );
            }
            assert_eq!(
                compile_yaml(text, "fuzz.saga.yaml").err(),
                Some(problems),
                "the second report differs"
            );
            false
        }
    }
}
