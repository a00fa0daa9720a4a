//! Size limits of files and functions in lines of code, and no file named `mod.rs`.
//!
//! Blank lines and comments do not count: a rule that counts them is paid for in readability. Above
//! the lower limit the rule warns, above the upper one it fails. A file whose header contains a line
//! `//! Size: <reason>` may exceed both, and so may its functions.

use std::ops::RangeInclusive;

use syn::spanned::Spanned;
use syn::visit::{self, Visit};

use crate::source::Source;
use crate::violation::{LintRule, Violation};

/// Lines of code above which the rule warns, and above which it fails.
struct Limit {
    warn: usize,
    fail: usize,
}

const FILE_LINES: Limit = Limit {
    warn: 400,
    fail: 600,
};
const TEST_FILE_LINES: Limit = Limit {
    warn: 600,
    fail: 900,
};
const FUNCTION_LINES: Limit = Limit {
    warn: 70,
    fail: 120,
};

/// Line of a file header that states why the file exceeds the limits.
const REASON: &str = "//! Size: ";

const FILE: LintRule = LintRule {
    name: "file-size",
    reason: "state machines, stores and error files grow to thousands of lines unless they are split early",
    remedy: "split it by topic: one file per command, table or actor; `foo.rs` keeps the contract, `foo/` the parts; or state the reason in the header: `//! Size: …`",
};
const FUNCTION: LintRule = LintRule {
    name: "function-size",
    reason: "a function that exceeds two screens and mixes concerns is hard to review",
    remedy: "extract its steps into named functions; or state the reason in the header: `//! Size: …`",
};
const MOD_FILE: LintRule = LintRule {
    name: "mod-file",
    reason: "several editor tabs named mod.rs cannot be distinguished",
    remedy: "move it to `foo.rs` beside `foo/`",
};

/// Counts the lines of code of the file and of each function in it.
pub(crate) fn check(source: &Source) -> Vec<Violation> {
    let mut violations = Vec::new();

    let limit = if source.is_tests() {
        &TEST_FILE_LINES
    } else {
        &FILE_LINES
    };
    let lines = source.counted_lines();
    if lines > limit.warn && !states_reason(source) {
        let message = message("the file", lines, limit);
        violations.push(violation(&FILE, limit, lines, &source.path, 1, message));
    }

    if source.path.ends_with("/mod.rs") {
        let message = "a file named mod.rs";
        violations.push(Violation::new(&MOD_FILE, &source.path, 1, message));
    }

    let mut functions = Functions { source, violations };
    functions.visit_file(&source.syntax);
    functions.violations
}

fn states_reason(source: &Source) -> bool {
    let mut header = source
        .text
        .lines()
        .take_while(|line| line.starts_with("//!"));
    header.any(|line| line.len() > REASON.len() && line.starts_with(REASON))
}

fn message(subject: &str, lines: usize, limit: &Limit) -> String {
    let Limit { warn, fail } = limit;
    format!("{subject} has {lines} lines of code; more than {warn} are many, {fail} is the limit")
}

fn violation(
    rule: &'static LintRule,
    limit: &Limit,
    lines: usize,
    path: &str,
    line: usize,
    message: String,
) -> Violation {
    if lines > limit.fail {
        Violation::new(rule, path, line, message)
    } else {
        Violation::warning(rule, path, line, message)
    }
}

struct Functions<'a> {
    source: &'a Source,
    violations: Vec<Violation>,
}

impl Functions<'_> {
    fn measure(&mut self, signature: &syn::Signature, body: &syn::Block) {
        let start = signature.span().start().line;
        let lines = self.code_lines(start..=body.span().end().line);
        if lines <= FUNCTION_LINES.warn || states_reason(self.source) {
            return;
        }

        let subject = format!("`{}`", signature.ident);
        let message = message(&subject, lines, &FUNCTION_LINES);
        let path = &self.source.path;
        self.violations.push(violation(
            &FUNCTION,
            &FUNCTION_LINES,
            lines,
            path,
            start,
            message,
        ));
    }

    fn code_lines(&self, lines: RangeInclusive<usize>) -> usize {
        lines.filter(|line| self.source.is_code_line(*line)).count()
    }
}

impl<'ast> Visit<'ast> for Functions<'_> {
    fn visit_item_fn(&mut self, function: &'ast syn::ItemFn) {
        self.measure(&function.sig, &function.block);
        visit::visit_item_fn(self, function);
    }

    fn visit_impl_item_fn(&mut self, function: &'ast syn::ImplItemFn) {
        self.measure(&function.sig, &function.block);
        visit::visit_impl_item_fn(self, function);
    }

    fn visit_trait_item_fn(&mut self, function: &'ast syn::TraitItemFn) {
        if let Some(body) = &function.default {
            self.measure(&function.sig, body);
        }
        visit::visit_trait_item_fn(self, function);
    }
}

#[cfg(test)]
mod tests {
    use super::check as check_size;
    use crate::source::fixture;

    #[track_caller]
    fn check(path: &str, text: &str, expected: &[&str]) {
        let violations = check_size(&fixture(path, text));
        let lines: Vec<String> = violations
            .iter()
            .map(|violation| {
                let severity = if violation.is_warning {
                    "warning"
                } else {
                    "error"
                };
                format!("{}: {severity}: {}", violation.line, violation.message)
            })
            .collect();
        assert_eq!(lines, expected);
    }

    fn constants(count: usize) -> String {
        "const _: () = ();\n".repeat(count)
    }

    #[test]
    fn a_file_warns_above_400_lines_and_fails_above_600() {
        let tests = format!("#[cfg(test)]\nmod tests {{\n{}}}\n", constants(1000));
        check("src/a.rs", &format!("{}{tests}", constants(400)), &[]);
        let warning =
            "1: warning: the file has 401 lines of code; more than 400 are many, 600 is the limit";
        check(
            "src/a.rs",
            &format!("{}{tests}", constants(401)),
            &[warning],
        );
        let error =
            "1: error: the file has 601 lines of code; more than 400 are many, 600 is the limit";
        check("src/a.rs", &format!("{}{tests}", constants(601)), &[error]);
    }

    #[test]
    fn a_file_of_tests_warns_above_600_lines_and_fails_above_900() {
        check("tests/a.rs", &constants(600), &[]);
        let error =
            "1: error: the file has 901 lines of code; more than 600 are many, 900 is the limit";
        check("tests/a.rs", &constants(901), &[error]);
    }

    #[test]
    fn blank_lines_and_comments_do_not_count() {
        let text = "//! Doc.\n\n// Why.\n/// Doc.\nconst _: () = ();\n".to_string();
        let blank = "\n// Why.\n".repeat(1000);
        check("src/a.rs", &format!("{text}{blank}"), &[]);
    }

    #[test]
    fn a_function_warns_above_70_lines_and_fails_above_120() {
        let function = |calls| {
            format!(
                "struct A;\nimpl A {{\nfn f() {{\n{}}}\n}}\n",
                "g();\n".repeat(calls)
            )
        };
        check("src/a.rs", &function(68), &[]);
        let warning =
            "3: warning: `f` has 71 lines of code; more than 70 are many, 120 is the limit";
        check("src/a.rs", &function(69), &[warning]);
        let error = "3: error: `f` has 121 lines of code; more than 70 are many, 120 is the limit";
        check("src/a.rs", &function(119), &[error]);
    }

    #[test]
    fn a_stated_reason_lifts_the_limits_of_its_file() {
        let text = format!(
            "//! Table.\n//!\n//! Size: one row per error code.\n{}",
            constants(700)
        );
        check("src/a.rs", &text, &[]);
        check(
            "src/a.rs",
            &text.replace("Size: one row per error code.", "Size: "),
            &["1: error: the file has 700 lines of code; more than 400 are many, 600 is the limit"],
        );
    }

    #[test]
    fn mod_rs_is_rejected() {
        check("src/a/mod.rs", "", &["1: error: a file named mod.rs"]);
    }
}
