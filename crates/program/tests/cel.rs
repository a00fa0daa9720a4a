//! How much of CEL an expression of a definition understands, measured by the public tests of CEL.

#[path = "cel/case.rs"]
mod case;
#[path = "cel/literal.rs"]
mod literal;
#[path = "cel/package.rs"]
mod package;

use std::collections::BTreeMap;

use case::{Case, End};

/// What was measured of the engine by itself, before Orlog's checks and its JSON were around it: 1,552 of 1,689 tests without
/// protobuf, 674 of 680 of what JSON has. In tests and in thousandths.
const WITHOUT_PROTOBUF: (usize, usize) = (1552, 918);
const JSON_CORE: (usize, usize) = (674, 991);

#[derive(Default)]
struct Count {
    passed: usize,
    failed: usize,
    refused: usize,
    skipped: usize,
}

impl Count {
    fn add(&mut self, end: &End) {
        match end {
            End::Passed => self.passed += 1,
            End::Failed(_) => self.failed += 1,
            End::Refused(_) => self.refused += 1,
            End::Skipped(_) => self.skipped += 1,
        }
    }

    /// The tests that were run, refusals included: a refusal is no pass.
    fn all(&self) -> usize {
        self.passed + self.failed + self.refused
    }

    /// Of what Orlog means to understand.
    fn per_mille(&self) -> usize {
        self.passed * 1000 / (self.passed + self.failed).max(1)
    }
}

#[test]
fn understands_as_much_of_cel_as_its_engine() {
    let text = match package::tests() {
        Ok(text) => text,
        Err(why) if std::env::var_os("CI").is_some_and(|ci| ci == "true") => {
            panic!("the tests of CEL cannot be had: {why}")
        }
        Err(why) => {
            println!("skipped, the tests of CEL cannot be had: {why}");
            return;
        }
    };
    let suite = literal::read(&text).expect("the data is one literal");
    let ends: Vec<(Case, End)> = case::all(&suite)
        .into_iter()
        .map(|case| {
            let end = case.run();
            (case, end)
        })
        .collect();
    assert!(ends.len() > 2000, "the suite holds {} tests", ends.len());
    let (whole, core) = (count(&ends, |_| true), count(&ends, Case::is_json_core));
    report(&ends, &whole, &core);
    assert!(whole.passed >= WITHOUT_PROTOBUF.0 && whole.per_mille() >= WITHOUT_PROTOBUF.1);
    assert!(core.passed >= JSON_CORE.0 && core.per_mille() >= JSON_CORE.1);
}

fn count(ends: &[(Case, End)], wanted: impl Fn(&Case) -> bool) -> Count {
    let mut count = Count::default();
    ends.iter().filter(|(case, _)| wanted(case)).for_each(|(_, end)| count.add(end));
    count
}

fn report(ends: &[(Case, End)], whole: &Count, core: &Count) {
    let mut files: BTreeMap<&str, Count> = BTreeMap::new();
    let mut reasons: BTreeMap<String, usize> = BTreeMap::new();
    for (case, end) in ends {
        files.entry(&case.file).or_default().add(end);
        match end {
            End::Passed => {}
            End::Failed(why) => println!("failed: {}: {why}", case.name),
            End::Refused(why) => *reasons.entry(format!("refused on purpose: {why}")).or_default() += 1,
            End::Skipped(why) => *reasons.entry(format!("skipped: {why}")).or_default() += 1,
        }
    }
    println!("{:<16} {:>7} {:>7} {:>8} {:>8}", "file", "passed", "failed", "refused", "skipped");
    let line = |name: &str, c: &Count| {
        println!("{name:<16} {:>7} {:>7} {:>8} {:>8}", c.passed, c.failed, c.refused, c.skipped);
    };
    for (name, count) in &files {
        line(name, count);
    }
    line("all", whole);
    line("JSON core", core);
    for (why, number) in &reasons {
        println!("{number:>5} {why}");
    }
    let share =
        |c: &Count| format!("{} of {} ({:.1} %)", c.passed, c.all(), 100.0 * ratio(c.passed, c.all()));
    println!("without protobuf: {}; JSON core: {}", share(whole), share(core));
}

fn ratio(part: usize, whole: usize) -> f64 {
    let exact = |number: usize| f64::from(u32::try_from(number).expect("a few thousand"));
    exact(part) / exact(whole.max(1))
}
