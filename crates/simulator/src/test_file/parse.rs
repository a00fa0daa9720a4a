//! Parser of test files. Reports all diagnostics at once, each with its position.

mod expect;
mod given;
mod parser;

use orlog_model::Timestamp;
use orlog_program::document::{Document, Item};
use orlog_program::{Diagnostic, InvariantSpec};

use super::{TestCase, TestFile, TestInvariant, TestStep, TestStepKind};
use expect::expect;
use given::step;
use parser::{Parser, find};

/// Default start time of a case.
const START_TIME: &str = "2026-01-01T00:00:00Z";
const TOP: [&str; 3] = ["saga", "invariants", "tests"];
const INVARIANT: [&str; 3] = ["name", "never", "always"];
const CASE: [&str; 4] = ["name", "now", "given", "expect"];

impl TestFile {
    /// Parses a test file. `file` is only used in diagnostics.
    ///
    /// # Errors
    /// All diagnostics in the order of the text.
    pub fn parse(text: &str, file: &str) -> Result<Self, Vec<Diagnostic>> {
        let document = Document::read(text, file).map_err(|problem| vec![problem])?;
        let mut parser = Parser {
            problems: Vec::new(),
        };
        let test_file = parser.test_file(&document.root());
        match test_file {
            Some(test_file) if parser.problems.is_empty() => Ok(test_file),
            _ => Err(parser.problems),
        }
    }
}

impl Parser {
    fn test_file(&mut self, root: &Item<'_>) -> Option<TestFile> {
        let fields = self.fields(root, &TOP)?;
        let definition = self
            .required(root, &fields, "saga")
            .and_then(|item| self.text(item));

        let invariants = find(&fields, "invariants")
            .map(|item| self.invariants(item))
            .unwrap_or_default();

        let tests = self.required(root, &fields, "tests")?;
        let Some(items) = tests.list() else {
            return self.error(tests.type_error("a list of tests"));
        };

        if items.is_empty() {
            return self.error(tests.diagnostic("the file contains no test"));
        }

        let cases: Vec<_> = items.iter().filter_map(|item| self.case(item)).collect();
        for (index, case) in cases.iter().enumerate() {
            if let Some(first) = cases[..index].iter().find(|first| first.name == case.name) {
                let message = format!(
                    "duplicate test name `{}`, first in line {}",
                    case.name, first.line
                );
                self.problems.push(items[index].diagnostic(message));
            }
        }

        Some(TestFile {
            definition: definition?,
            invariants,
            cases,
        })
    }

    fn invariants(&mut self, item: &Item<'_>) -> Vec<TestInvariant> {
        let Some(items) = item.list() else {
            self.problems.push(item.type_error("a list of invariants"));
            return Vec::new();
        };
        items
            .iter()
            .filter_map(|item| self.invariant(item))
            .collect()
    }

    fn invariant(&mut self, item: &Item<'_>) -> Option<TestInvariant> {
        let fields = self.fields(item, &INVARIANT)?;
        let name = self
            .required(item, &fields, "name")
            .and_then(|item| self.text(item));
        let never = find(&fields, "never").and_then(|item| self.text(item));
        let always = find(&fields, "always").and_then(|item| self.text(item));
        Some(TestInvariant {
            line: item.line(),
            spec: InvariantSpec {
                name: name?,
                never,
                always,
            },
        })
    }

    fn case(&mut self, item: &Item<'_>) -> Option<TestCase> {
        let fields = self.fields(item, &CASE)?;
        let name = self
            .required(item, &fields, "name")
            .and_then(|item| self.text(item));

        let start_time = match find(&fields, "now") {
            Some(item) => self.time(item),
            None => Some(Timestamp::parse(START_TIME).expect("the start time is a valid constant")),
        };

        let mut steps = Vec::new();
        let given = self.required(item, &fields, "given")?;
        match given.list() {
            Some(items) if items.is_empty() => {
                self.problems
                    .push(given.diagnostic("the list of inputs is empty"));
            }
            Some(items) => steps.extend(items.iter().filter_map(|item| step(self, item))),
            None => self.problems.push(given.type_error("a list of inputs")),
        }

        if let Some(item) = find(&fields, "expect") {
            let kind = expect(self, item)
                .map(|(instance, expect)| (instance, TestStepKind::Expect(Box::new(expect))));
            steps.extend(kind.map(|(instance, kind)| TestStep {
                line: item.line(),
                instance,
                kind,
            }));
        }

        if !steps
            .iter()
            .any(|step| matches!(step.kind, TestStepKind::Expect(_)))
            && self.problems.is_empty()
        {
            let problem = item.diagnostic("the test has no expectation and cannot fail");
            self.problems.push(Diagnostic {
                suggestion: Some("add `expect`".to_owned()),
                ..problem
            });
        }

        Some(TestCase {
            name: name?,
            line: item.line(),
            start_time: start_time?,
            steps,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, expected: &[&str]) {
        let problems = TestFile::parse(text, "a.saga.test.yaml")
            .map(|_| ())
            .unwrap_err();
        assert_eq!(
            problems.iter().map(ToString::to_string).collect::<Vec<_>>(),
            expected
        );
    }

    #[test]
    fn every_error_has_a_location_and_a_suggestion() {
        check(
            "saga: a.saga.yaml\ntests:\n  - name: x\n    given:\n      - Placed: {}\n      - advnce: 5m\n        ok: 1\n      - advance: 5\n    expect: { statsu: failed, status: faild }\n",
            &[
                "a.saga.test.yaml:6:9: tests[0].given[1].advnce: unknown field `advnce`; valid: ok, event, data, instance, rejected",
                "a.saga.test.yaml:8:18: tests[0].given[2].advance: `5` is not a duration; write 500ms, 90s, 30m, 1h30m, 60d or ISO 8601 such as PT30M",
                "a.saga.test.yaml:9:15: tests[0].expect.statsu: unknown field `statsu`; did you mean `status`?",
                "a.saga.test.yaml:9:39: tests[0].expect.status: unknown status `faild`; did you mean `failed`?",
            ],
        );
        check(
            "saga: a.saga.yaml\ntests:\n  - name: x\n    given: [ { event: Placed, extensions: { my_region: eu } } ]\n    expect: { status: failed }\n",
            &[
                "a.saga.test.yaml:4:56: tests[0].given[0].extensions.my_region: `my_region` is not an extension; its name consists of a to z and 0 to 9",
            ],
        );
        check(
            "saga: a.saga.yaml\ntests: []\n",
            &["a.saga.test.yaml:2:8: tests: the file contains no test"],
        );
        check(
            "saga: a.saga.yaml\ntests:\n  - name: x\n    given: [ Placed: {} ]\n",
            &[
                "a.saga.test.yaml:3:5: tests[0]: the test has no expectation and cannot fail; add `expect`",
            ],
        );
    }
}
