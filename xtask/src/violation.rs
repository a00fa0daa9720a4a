//! Violation of a code rule: location, reason and remedy.

use std::fmt;

/// Code rule: its name, its reason and the remedy for violations.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct LintRule {
    pub(crate) name: &'static str,
    pub(crate) reason: &'static str,
    pub(crate) remedy: &'static str,
}

/// Location that violates a rule.
#[derive(Debug)]
pub(crate) struct Violation {
    /// Path from the root of the checkout.
    pub(crate) path: String,
    /// Line in that file, counted from 1.
    pub(crate) line: usize,
    pub(crate) rule: &'static LintRule,
    /// Description of the violation, with its values.
    pub(crate) message: String,
    /// A warning is printed and does not fail the check.
    pub(crate) is_warning: bool,
}

impl Violation {
    pub(crate) fn new(
        rule: &'static LintRule,
        path: &str,
        line: usize,
        description: impl Into<String>,
    ) -> Self {
        Self {
            path: path.to_owned(),
            line,
            rule,
            message: description.into(),
            is_warning: false,
        }
    }

    /// A violation that the check prints and accepts.
    pub(crate) fn warning(
        rule: &'static LintRule,
        path: &str,
        line: usize,
        description: impl Into<String>,
    ) -> Self {
        Self {
            is_warning: true,
            ..Self::new(rule, path, line, description)
        }
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            path,
            line,
            rule,
            message: text,
            ..
        } = self;
        writeln!(f, "{path}:{line}: [{}] {text}", rule.name)?;
        writeln!(f, "    why: {}", rule.reason)?;
        write!(f, "    remedy: {}", rule.remedy)
    }
}

/// Returns the locations of the violations as `line: message`, for tests.
#[cfg(test)]
pub(crate) fn violation_lines(violations: &[Violation]) -> Vec<String> {
    violations
        .iter()
        .map(|violation| format!("{}: {}", violation.line, violation.message))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::{LintRule, Violation};

    #[test]
    fn violation_prints_location_reason_and_remedy() {
        static RULE: LintRule = LintRule {
            name: "size",
            reason: "long files are hard to read",
            remedy: "split it",
        };
        let rendered = Violation::new(&RULE, "src/a.rs", 7, "401 lines").to_string();
        assert_eq!(
            rendered,
            "src/a.rs:7: [size] 401 lines\n    why: long files are hard to read\n    remedy: split it"
        );
    }
}
