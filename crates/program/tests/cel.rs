//! CEL coverage of expressions in definitions, measured by the public tests of CEL.

#[path = "cel/case.rs"]
mod case;
#[path = "cel/literal.rs"]
mod literal;
#[path = "cel/package.rs"]
mod package;

use std::collections::BTreeMap;

use case::{Case, CaseResult};

/// Result of the engine alone, without the checks and the JSON conversion of Orlog: 1,552 of 1,689
/// tests without protobuf, 674 of 680 of the JSON core. In tests and in thousandths.
const WITHOUT_PROTOBUF: (usize, usize) = (1552, 918);
const JSON_CORE: (usize, usize) = (674, 991);

#[derive(Default)]
struct Count {
    passed: usize,
    failed: usize,
    rejected: usize,
    skipped: usize,
}

impl Count {
    fn add(&mut self, end: &CaseResult) {
        match end {
            CaseResult::Passed => self.passed += 1,
            CaseResult::Failed(_) => self.failed += 1,
            CaseResult::Rejected(_) => self.rejected += 1,
            CaseResult::Skipped(_) => self.skipped += 1,
        }
    }

    /// Returns the number of executed tests. Rejections count as executed, not as passed.
    fn all(&self) -> usize {
        self.passed + self.failed + self.rejected
    }

    /// Returns the pass rate, in thousandths, of the features that Orlog supports.
    fn per_mille(&self) -> usize {
        self.passed * 1000 / (self.passed + self.failed).max(1)
    }
}

#[test]
fn passes_the_cel_conformance_cases() {
    let text = package::tests()
        .unwrap_or_else(|reason| panic!("the CEL conformance tests are unavailable: {reason}"));
    let suite = literal::read(&text).expect("the data is one literal");
    let results: Vec<(Case, CaseResult)> = case::all(&suite)
        .into_iter()
        .map(|case| {
            let end = case.run();
            (case, end)
        })
        .collect();
    assert!(
        results.len() > 2000,
        "the suite has {} tests",
        results.len()
    );
    let (all, core) = (
        count(&results, |_| true),
        count(&results, Case::is_json_core),
    );
    report(&results, &all, &core);
    assert!(all.passed >= WITHOUT_PROTOBUF.0 && all.per_mille() >= WITHOUT_PROTOBUF.1);
    assert!(core.passed >= JSON_CORE.0 && core.per_mille() >= JSON_CORE.1);
}

fn count(results: &[(Case, CaseResult)], predicate: impl Fn(&Case) -> bool) -> Count {
    let mut count = Count::default();
    results
        .iter()
        .filter(|(case, _)| predicate(case))
        .for_each(|(_, end)| count.add(end));
    count
}

fn report(results: &[(Case, CaseResult)], all: &Count, core: &Count) {
    let mut files: BTreeMap<&str, Count> = BTreeMap::new();
    let mut reasons: BTreeMap<String, usize> = BTreeMap::new();
    for (case, end) in results {
        files.entry(&case.file).or_default().add(end);
        match end {
            CaseResult::Passed => {}
            CaseResult::Failed(reason) => println!("failed: {}: {reason}", case.name),
            CaseResult::Rejected(reason) => {
                *reasons
                    .entry(format!("rejected by design: {reason}"))
                    .or_default() += 1;
            }
            CaseResult::Skipped(reason) => {
                *reasons.entry(format!("skipped: {reason}")).or_default() += 1;
            }
        }
    }
    println!(
        "{:<16} {:>7} {:>7} {:>8} {:>8}",
        "file", "passed", "failed", "rejected", "skipped"
    );
    let line = |name: &str, c: &Count| {
        println!(
            "{name:<16} {:>7} {:>7} {:>8} {:>8}",
            c.passed, c.failed, c.rejected, c.skipped
        );
    };
    for (name, count) in &files {
        line(name, count);
    }
    line("all", all);
    line("JSON core", core);
    for (reason, number) in &reasons {
        println!("{number:>5} {reason}");
    }
    let share = |c: &Count| {
        format!(
            "{} of {} ({:.1} %)",
            c.passed,
            c.all(),
            100.0 * ratio(c.passed, c.all())
        )
    };
    println!(
        "without protobuf: {}; JSON core: {}",
        share(all),
        share(core)
    );
}

fn ratio(part: usize, all: usize) -> f64 {
    let exact = |number: usize| f64::from(u32::try_from(number).expect("a few thousand"));
    exact(part) / exact(all.max(1))
}
