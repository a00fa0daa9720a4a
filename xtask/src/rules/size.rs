//! Files and functions stay short enough to be read whole, and no file is called `mod.rs`.

use syn::spanned::Spanned;
use syn::visit::{self, Visit};

use crate::source::Source;
use crate::violation::{Finding, Rule};

const FILE_LINES: usize = 400;
const TEST_FILE_LINES: usize = 600;
const FUNCTION_LINES: usize = 70;

const FILE: Rule = Rule {
    name: "file-size",
    reason: "state machines, stores and error files of this kind grow to thousands of lines unless they are split early",
    remedy: "split it by what can happen: one file a command, a table, an actor; `foo.rs` keeps the contract, `foo/` the parts",
};
const FUNCTION: Rule = Rule {
    name: "function-size",
    reason: "a function that does not fit a screen is not checked by its reader",
    remedy: "name the steps and make each a function",
};
const MOD_FILE: Rule = Rule {
    name: "mod-file",
    reason: "an editor full of tabs called mod.rs tells nobody where they are",
    remedy: "move it to `foo.rs` beside `foo/`",
};

/// Counts the lines of the file and of each function in it.
pub(crate) fn check(source: &Source) -> Vec<Finding> {
    let mut findings = Vec::new();
    let limit = if source.is_tests() { TEST_FILE_LINES } else { FILE_LINES };
    let lines = source.counted_lines();
    if lines > limit {
        let what = format!("{lines} lines without tests, {limit} are allowed");
        findings.push(Finding::new(&FILE, &source.path, 1, what));
    }
    if source.path.ends_with("/mod.rs") {
        findings.push(Finding::new(&MOD_FILE, &source.path, 1, "a file called mod.rs"));
    }
    let mut functions = Functions { path: &source.path, findings };
    functions.visit_file(&source.syntax);
    functions.findings
}

struct Functions<'a> {
    path: &'a str,
    findings: Vec<Finding>,
}

impl Functions<'_> {
    fn measure(&mut self, signature: &syn::Signature, body: &syn::Block) {
        let start = signature.span().start().line;
        let lines = body.span().end().line - start + 1;
        if lines > FUNCTION_LINES {
            let what = format!("`{}` has {lines} lines, {FUNCTION_LINES} are allowed", signature.ident);
            self.findings.push(Finding::new(&FUNCTION, self.path, start, what));
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
    use crate::violation::lines;

    #[track_caller]
    fn check(path: &str, text: &str, expected: &[&str]) {
        assert_eq!(lines(&check_size(&fixture(path, text))), expected);
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
    fn mod_rs_is_refused() {
        check("src/a/mod.rs", "", &["1: a file called mod.rs"]);
    }
}
