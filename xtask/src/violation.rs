//! A finding says where a house rule is broken, why the rule exists and what to do about it.

use std::fmt;

/// A house rule: its name, the reason it exists and the way out for whoever broke it.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Rule {
    pub(crate) name: &'static str,
    pub(crate) reason: &'static str,
    pub(crate) remedy: &'static str,
}

/// One place where a rule is broken.
#[derive(Debug)]
pub(crate) struct Finding {
    /// Path from the root of the checkout.
    pub(crate) path: String,
    /// Line in that file, counted from 1.
    pub(crate) line: usize,
    pub(crate) rule: &'static Rule,
    /// What is wrong here, with the values in it.
    pub(crate) what: String,
}

impl Finding {
    pub(crate) fn new(rule: &'static Rule, path: &str, line: usize, what: impl Into<String>) -> Self {
        Self { path: path.to_owned(), line, rule, what: what.into() }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { path, line, rule, what } = self;
        writeln!(f, "{path}:{line}: [{}] {what}", rule.name)?;
        writeln!(f, "    why: {}", rule.reason)?;
        write!(f, "    remedy: {}", rule.remedy)
    }
}

/// The places of the findings, `line: what`, for tests.
#[cfg(test)]
pub(crate) fn lines(findings: &[Finding]) -> Vec<String> {
    findings.iter().map(|finding| format!("{}: {}", finding.line, finding.what)).collect()
}

#[cfg(test)]
mod tests {
    use super::{Finding, Rule};

    #[test]
    fn a_finding_shows_place_reason_and_remedy() {
        static RULE: Rule = Rule { name: "size", reason: "long files hide things", remedy: "split it" };
        let shown = Finding::new(&RULE, "src/a.rs", 7, "401 lines").to_string();
        assert_eq!(
            shown,
            "src/a.rs:7: [size] 401 lines\n    why: long files hide things\n    remedy: split it"
        );
    }
}
