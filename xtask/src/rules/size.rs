//! Size limits of files and functions, and no file named `mod.rs`.

use syn::spanned::Spanned;
use syn::visit::{self, Visit};

use crate::source::Source;
use crate::violation::{LintRule, Violation};

const FILE_LINES: usize = 400;
const TEST_FILE_LINES: usize = 600;
const FUNCTION_LINES: usize = 70;

const FILE: LintRule = LintRule {
    name: "file-size",
    reason: "state machines, stores and error files grow to thousands of lines unless they are split early",
    remedy: "split it by topic: one file per command, table or actor; `foo.rs` keeps the contract, `foo/` the parts",
};
const FUNCTION: LintRule = LintRule {
    name: "function-size",
    reason: "a function that exceeds one screen is hard to review",
    remedy: "extract its steps into named functions",
};
const MOD_FILE: LintRule = LintRule {
    name: "mod-file",
    reason: "several editor tabs named mod.rs cannot be distinguished",
    remedy: "move it to `foo.rs` beside `foo/`",
};

/// Counts the lines of the file and of each function in it.
pub(crate) fn check(source: &Source) -> Vec<Violation> {
    let mut violations = Vec::new();
    let limit = if source.is_tests() { TEST_FILE_LINES } else { FILE_LINES };
    let lines = source.counted_lines();
    if lines > limit {
        let message = format!("{lines} lines without tests, {limit} are allowed");
        violations.push(Violation::new(&FILE, &source.path, 1, message));
    }
    if source.path.ends_with("/mod.rs") {
        violations.push(Violation::new(&MOD_FILE, &source.path, 1, "a file named mod.rs"));
    }
    let mut functions = Functions { path: &source.path, violations };
    functions.visit_file(&source.syntax);
    functions.violations
}

struct Functions<'a> {
    path: &'a str,
    violations: Vec<Violation>,
}

impl Functions<'_> {
    fn measure(&mut self, signature: &syn::Signature, body: &syn::Block) {
        let start = signature.span().start().line;
        let lines = body.span().end().line - start + 1;
        if lines > FUNCTION_LINES {
            let message = format!("`{}` has {lines} lines, {FUNCTION_LINES} are allowed", signature.ident);
            self.violations.push(Violation::new(&FUNCTION, self.path, start, message));
        }
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
    use crate::violation::violation_lines;

    #[track_caller]
    fn check(path: &str, text: &str, expected: &[&str]) {
        assert_eq!(violation_lines(&check_size(&fixture(path, text))), expected);
    }

    #[test]
    fn a_file_may_have_400_lines_and_its_tests_do_not_count() {
        let tests = format!("#[cfg(test)]\nmod tests {{\n{}}}\n", "\n".repeat(500));
        check("src/a.rs", &format!("{}{tests}", "\n".repeat(400)), &[]);
        let expected = ["1: 401 lines without tests, 400 are allowed"];
        check("src/a.rs", &format!("{}{tests}", "\n".repeat(401)), &expected);
    }

    #[test]
    fn a_file_of_tests_may_have_600_lines() {
        check("tests/a.rs", &"\n".repeat(600), &[]);
        check("tests/a.rs", &"\n".repeat(601), &["1: 601 lines without tests, 600 are allowed"]);
    }

    #[test]
    fn a_function_may_have_70_lines() {
        let function =
            |blank| format!("struct A;\nimpl A {{\n/// Doc.\nfn f() {{\n{}}}\n}}\n", "\n".repeat(blank));
        check("src/a.rs", &function(68), &[]);
        check("src/a.rs", &function(69), &["4: `f` has 71 lines, 70 are allowed"]);
    }

    #[test]
    fn mod_rs_is_rejected() {
        check("src/a/mod.rs", "", &["1: a file named mod.rs"]);
    }
}
