//! From the text of a test file to its cases; every mistake with its place, all of them at once.

mod expect;
mod given;
mod parser;

use orlog_model::Timestamp;
use orlog_program::Problem;
use orlog_program::document::{Document, Item};

use super::{Book, Case, Step, What};
use expect::expect;
use given::step;
use parser::{Reading, find};

/// The time at which a case begins that says nothing.
const BEGINS: &str = "2026-01-01T00:00:00Z";
const TOP: [&str; 2] = ["saga", "tests"];
const CASE: [&str; 4] = ["name", "now", "given", "expect"];

impl Book {
    /// Reads a test file. `file` is only named in problems.
    ///
    /// # Errors
    /// Everything that is wrong with it, in the order of the text.
    pub fn read(text: &str, file: &str) -> Result<Self, Vec<Problem>> {
        let document = Document::read(text, file).map_err(|problem| vec![problem])?;
        let mut reading = Reading { problems: Vec::new() };
        let book = reading.book(&document.root());
        match book {
            Some(book) if reading.problems.is_empty() => Ok(book),
            _ => Err(reading.problems),
        }
    }
}

impl Reading {
    fn book(&mut self, root: &Item<'_>) -> Option<Book> {
        let fields = self.fields(root, &TOP)?;
        let definition = self.required(root, &fields, "saga").and_then(|item| self.text(item));
        let tests = self.required(root, &fields, "tests")?;
        let Some(items) = tests.list() else { return self.wrong(tests.must_be("a list of tests")) };
        if items.is_empty() {
            return self.wrong(tests.problem("there is no test in it"));
        }
        let cases: Vec<_> = items.iter().filter_map(|item| self.case(item)).collect();
        for (index, case) in cases.iter().enumerate() {
            if let Some(first) = cases[..index].iter().find(|first| first.name == case.name) {
                let message = format!("`{}` is the name of the test in line {} too", case.name, first.line);
                self.problems.push(items[index].problem(message));
            }
        }
        Some(Book { definition: definition?, cases })
    }

    fn case(&mut self, item: &Item<'_>) -> Option<Case> {
        let fields = self.fields(item, &CASE)?;
        let name = self.required(item, &fields, "name").and_then(|item| self.text(item));
        let begins = match find(&fields, "now") {
            Some(item) => self.time(item),
            None => Some(Timestamp::parse(BEGINS).expect("a constant")),
        };
        let mut steps = Vec::new();
        let given = self.required(item, &fields, "given")?;
        match given.list() {
            Some(items) if items.is_empty() => self.problems.push(given.problem("nothing happens")),
            Some(items) => steps.extend(items.iter().filter_map(|item| step(self, item))),
            None => self.problems.push(given.must_be("a list of what happens")),
        }
        if let Some(item) = find(&fields, "expect") {
            let what = expect(self, item).map(|(of, expect)| (of, What::Expect(Box::new(expect))));
            steps.extend(what.map(|(of, what)| Step { line: item.line(), of, what }));
        }
        if !steps.iter().any(|step| matches!(step.what, What::Expect(_))) && self.problems.is_empty() {
            let problem = item.problem("nothing is expected, so that it could not fail");
            self.problems.push(Problem { suggestion: Some("add `expect`".to_owned()), ..problem });
        }
        Some(Case { name: name?, line: item.line(), begins: begins?, steps })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, expected: &[&str]) {
        let problems = Book::read(text, "a.saga.test.yaml").map(|_| ()).unwrap_err();
        assert_eq!(problems.iter().map(ToString::to_string).collect::<Vec<_>>(), expected);
    }

    #[test]
    fn every_mistake_is_told_with_its_place_and_a_suggestion() {
        check(
            "saga: a.saga.yaml\ntests:\n  - name: x\n    given:\n      - Placed: {}\n      - advnce: 5m\n        ok: 1\n      - advance: 5\n    expect: { statsu: failed, status: faild }\n",
            &[
                "a.saga.test.yaml:6:9: tests[0].given[1].advnce: there is no field `advnce`; valid are ok, event, data, of, refused",
                "a.saga.test.yaml:8:18: tests[0].given[2].advance: `5` is no duration; write 500ms, 90s, 30m, 1h30m, 60d or ISO 8601 as in PT30M",
                "a.saga.test.yaml:9:15: tests[0].expect.statsu: there is no field `statsu`; did you mean `status`?",
                "a.saga.test.yaml:9:39: tests[0].expect.status: `faild` is no status; did you mean `failed`?",
            ],
        );
        check("saga: a.saga.yaml\ntests: []\n", &["a.saga.test.yaml:2:8: tests: there is no test in it"]);
        check(
            "saga: a.saga.yaml\ntests:\n  - name: x\n    given: [ Placed: {} ]\n",
            &["a.saga.test.yaml:3:5: tests[0]: nothing is expected, so that it could not fail; add `expect`"],
        );
    }
}
