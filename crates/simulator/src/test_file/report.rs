//! Report of a test run: values, and `JUnit` XML for build servers.

use std::fmt::Write as _;
use std::time::Duration;

use super::Mismatch;

/// Result of one test.
#[derive(Clone, Debug)]
pub struct TestResult {
    /// Test file.
    pub file: String,
    /// First line of the test.
    pub line: usize,
    /// Name of the test.
    pub name: String,
    /// Duration of the test.
    pub duration: Duration,
    /// Mismatches; empty if the test passed.
    pub mismatches: Vec<Mismatch>,
    /// History of the instance, if the test failed.
    pub history: Vec<String>,
}

/// Number of passed and failed tests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Summary {
    /// Number of passed tests.
    pub passed: usize,
    /// Number of failed tests.
    pub failed: usize,
}

impl Summary {
    /// Counts the results.
    #[must_use]
    pub fn of(results: &[TestResult]) -> Self {
        let failed = results
            .iter()
            .filter(|result| !result.mismatches.is_empty())
            .count();
        Self {
            passed: results.len() - failed,
            failed,
        }
    }
}

impl TestResult {
    /// Returns the mismatches and the history, in lines for users.
    #[must_use]
    pub fn lines(&self) -> Vec<String> {
        let mut lines: Vec<_> = self
            .mismatches
            .iter()
            .map(|mismatch| format!("{}:{}: {}", self.file, mismatch.line, mismatch.message))
            .collect();
        lines.push("history:".to_owned());
        lines.extend(self.history.iter().map(|line| format!("    {line}")));
        lines
    }
}

/// Formats the results as `JUnit` XML with one suite per file.
#[must_use]
pub fn junit(results: &[TestResult]) -> String {
    let mut xml = String::from("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n");
    let Summary { passed, failed } = Summary::of(results);
    let head = format!(
        "<testsuites tests=\"{}\" failures=\"{failed}\">\n",
        passed + failed
    );
    xml.push_str(&head);

    for suite in results.chunk_by(|a, b| a.file == b.file) {
        let file = escape(&suite[0].file);
        let Summary { passed, failed } = Summary::of(suite);
        let time: Duration = suite.iter().map(|result| result.duration).sum();
        line(
            &mut xml,
            format_args!(
                "  <testsuite name=\"{file}\" tests=\"{}\" failures=\"{failed}\" time=\"{:.6}\">",
                passed + failed,
                time.as_secs_f64(),
            ),
        );
        for result in suite {
            case(&mut xml, result, &file);
        }
        xml.push_str("  </testsuite>\n");
    }
    xml.push_str("</testsuites>\n");
    xml
}

fn case(xml: &mut String, result: &TestResult, file: &str) {
    let name = escape(&result.name);
    let seconds = result.duration.as_secs_f64();
    let head = format!(
        "    <testcase classname=\"{file}\" name=\"{name}\" file=\"{file}\" line=\"{}\" \
        time=\"{seconds:.6}\"",
        result.line
    );

    match result.mismatches.first() {
        None => line(xml, format_args!("{head}/>")),
        Some(first) => {
            let summary = escape(first.message.lines().next().unwrap_or_default());
            let text = escape(&result.lines().join("\n"));
            line(xml, format_args!("{head}>"));
            line(
                xml,
                format_args!("      <failure message=\"{summary}\">{text}</failure>"),
            );
            line(xml, format_args!("    </testcase>"));
        }
    }
}

fn line(xml: &mut String, text: std::fmt::Arguments<'_>) {
    writeln!(xml, "{text}").expect("writing to a String never fails");
}

/// Escapes XML text and attributes; omits characters that XML does not support.
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
    fn junit_lists_failures_and_escapes_input() {
        let result = |name: &str, mismatches: Vec<Mismatch>| TestResult {
            file: "a.saga.test.yaml".to_owned(),
            line: 3,
            name: name.to_owned(),
            duration: Duration::from_millis(2),
            mismatches,
            history: vec!["+0s Placed".to_owned()],
        };
        let mismatch = Mismatch {
            line: 9,
            message: "status: expected \"failed\", is completed".to_owned(),
        };
        let xml = junit(&[
            result("good", Vec::new()),
            result("<bad> & 'ugly'", vec![mismatch]),
        ]);
        insta::assert_snapshot!(xml);
    }
}
