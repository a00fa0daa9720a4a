//! What a run of tests came to, as values, and as `JUnit` XML for build servers.

use std::fmt::Write as _;
use std::time::Duration;

use super::Miss;

/// What one test came to.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// The test file.
    pub file: String,
    /// The line the test begins in.
    pub line: usize,
    /// Its name.
    pub name: String,
    /// How long it took.
    pub took: Duration,
    /// What was not as expected; nothing when it passed.
    pub misses: Vec<Miss>,
    /// The history of the instance, where it failed.
    pub story: Vec<String>,
}

/// How many of what.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Summary {
    /// Tests that passed.
    pub passed: usize,
    /// Tests that failed.
    pub failed: usize,
}

impl Summary {
    /// Counts.
    #[must_use]
    pub fn of(outcomes: &[Outcome]) -> Self {
        let failed = outcomes.iter().filter(|outcome| !outcome.misses.is_empty()).count();
        Self { passed: outcomes.len() - failed, failed }
    }
}

impl Outcome {
    /// What was not as expected, with the history, in lines for people.
    #[must_use]
    pub fn lines(&self) -> Vec<String> {
        let miss = |miss: &Miss| format!("{}:{}: {}", self.file, miss.line, miss.message);
        let mut lines: Vec<_> = self.misses.iter().map(miss).collect();
        lines.push("history:".to_owned());
        lines.extend(self.story.iter().map(|line| format!("    {line}")));
        lines
    }
}

/// As `JUnit` XML: a suite for each file.
#[must_use]
pub fn junit(outcomes: &[Outcome]) -> String {
    let mut xml = String::from("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n");
    let Summary { passed, failed } = Summary::of(outcomes);
    let head = format!("<testsuites tests=\"{}\" failures=\"{failed}\">\n", passed + failed);
    xml.push_str(&head);
    for suite in outcomes.chunk_by(|a, b| a.file == b.file) {
        let file = escape(&suite[0].file);
        let Summary { passed, failed } = Summary::of(suite);
        let time: Duration = suite.iter().map(|outcome| outcome.took).sum();
        line(
            &mut xml,
            format_args!(
                "  <testsuite name=\"{file}\" tests=\"{}\" failures=\"{failed}\" time=\"{:.6}\">",
                passed + failed,
                time.as_secs_f64(),
            ),
        );
        for outcome in suite {
            case(&mut xml, outcome, &file);
        }
        xml.push_str("  </testsuite>\n");
    }
    xml.push_str("</testsuites>\n");
    xml
}

fn case(xml: &mut String, outcome: &Outcome, file: &str) {
    let (name, seconds) = (escape(&outcome.name), outcome.took.as_secs_f64());
    let head = format!(
        "    <testcase classname=\"{file}\" name=\"{name}\" file=\"{file}\" line=\"{}\" time=\"{seconds:.6}\"",
        outcome.line
    );
    match outcome.misses.first() {
        None => line(xml, format_args!("{head}/>")),
        Some(first) => {
            let summary = escape(first.message.lines().next().unwrap_or_default());
            let text = escape(&outcome.lines().join("\n"));
            line(xml, format_args!("{head}>"));
            line(xml, format_args!("      <failure message=\"{summary}\">{text}</failure>"));
            line(xml, format_args!("    </testcase>"));
        }
    }
}

fn line(xml: &mut String, text: std::fmt::Arguments<'_>) {
    writeln!(xml, "{text}").expect("a String takes everything");
}

/// For XML text and attributes; what XML cannot hold is left out.
pub(crate) fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\'' => escaped.push_str("&#39;"),
            '\n' | '\t' => escaped.push(c),
            c if c.is_control() || matches!(c, '\u{fffe}' | '\u{ffff}') => {}
            c => escaped.push(c),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn junit_holds_what_failed_and_escapes_what_users_wrote() {
        let outcome = |name: &str, misses: Vec<Miss>| Outcome {
            file: "a.saga.test.yaml".to_owned(),
            line: 3,
            name: name.to_owned(),
            took: Duration::from_millis(2),
            misses,
            story: vec!["+0s Placed".to_owned()],
        };
        let miss = Miss { line: 9, message: "status: expected \"failed\", is completed".to_owned() };
        let xml = junit(&[outcome("good", Vec::new()), outcome("<bad> & 'ugly'", vec![miss])]);
        insta::assert_snapshot!(xml);
    }
}
