//! Rust file as input of the rules: its syntax, the names it uses and its test lines.
//!
//! All lines of files under `tests/` or `benches/` and of `tests.rs` are test lines. In other files,
//! these are every item under `#[test]` or `#[cfg(test)]`, and all lines from the first `#[cfg(test)]
//! mod … {` to the end of the file.

pub(crate) mod names;

use std::collections::BTreeSet;
use std::ops::RangeInclusive;

use proc_macro2::TokenTree;
use syn::spanned::Spanned;
use syn::{Attribute, Item};

use self::names::Names;

/// Parsed Rust file.
pub(crate) struct Source {
    /// Path from the root of the checkout.
    pub(crate) path: String,
    pub(crate) text: String,
    pub(crate) syntax: syn::File,
    pub(crate) names: Names,
    /// Modules that this file declares as `#[cfg(test)] mod name;`.
    pub(crate) test_children: BTreeSet<String>,
    all_tests: bool,
    test_lines: Vec<RangeInclusive<usize>>,
    /// Lines that are neither blank nor a comment, counted from 1.
    code_lines: BTreeSet<usize>,
}

impl Source {
    /// Parses `text`; an error contains the line that is not valid Rust.
    pub(crate) fn parse(path: &str, text: &str) -> Result<Self, (usize, String)> {
        let syntax = syn::parse_file(text)
            .map_err(|error| (error.span().start().line, error.to_string()))?;
        let tokens = text
            .strip_prefix('\u{feff}')
            .unwrap_or(text)
            .parse::<proc_macro2::TokenStream>();
        let names =
            Names::collect(tokens.map_err(|error| (error.span().start().line, error.to_string()))?);
        let mut source = Self {
            path: path.to_owned(),
            text: text.to_owned(),
            names,
            test_children: BTreeSet::new(),
            all_tests: is_test_path(path),
            test_lines: Vec::new(),
            code_lines: code_lines(text),
            syntax,
        };
        source.find_tests();
        Ok(source)
    }

    /// Marks the file as a test module that another file declares.
    pub(crate) fn mark_as_tests(&mut self) {
        self.all_tests = true;
    }

    /// Returns whether the whole file is tests.
    pub(crate) fn is_tests(&self) -> bool {
        self.all_tests
    }

    /// Returns whether `line` belongs to the tests.
    pub(crate) fn is_test_line(&self, line: usize) -> bool {
        self.all_tests || self.test_lines.iter().any(|range| range.contains(&line))
    }

    /// Returns whether `line` (counted from 1) is neither blank nor a comment.
    pub(crate) fn is_code_line(&self, line: usize) -> bool {
        self.code_lines.contains(&line)
    }

    /// Returns the number of lines of code outside of tests; for a test file, of all lines of code.
    pub(crate) fn counted_lines(&self) -> usize {
        let counts = |line: &&usize| self.all_tests || !self.is_test_line(**line);
        self.code_lines.iter().filter(counts).count()
    }

    /// Returns the directory of the modules that this file declares: `src/` of `src/lib.rs`, `src/a/` of
    /// `src/a.rs`.
    pub(crate) fn children_dir(&self) -> String {
        let (dir, name) = self.path.rsplit_once('/').unwrap_or(("", &self.path));
        match name {
            "lib.rs" | "main.rs" => format!("{dir}/"),
            _ => format!("{dir}/{}/", name.trim_end_matches(".rs")),
        }
    }

    fn find_tests(&mut self) {
        let last = self.text.lines().count();
        for item in &self.syntax.items {
            if !attributes(item).iter().any(is_test_attribute) {
                continue;
            }
            let span = item.span();
            let end = match item {
                Item::Mod(module) if module.content.is_some() => last,
                Item::Mod(module) => {
                    self.test_children.insert(module.ident.to_string());
                    span.end().line
                }
                _ => span.end().line,
            };
            self.test_lines.push(span.start().line..=end);
        }
    }
}

fn code_lines(text: &str) -> BTreeSet<usize> {
    let is_code = |line: &str| !line.is_empty() && !line.starts_with("//");
    let numbered = text.lines().map(str::trim).zip(1..);
    numbered
        .filter(|(line, _)| is_code(line))
        .map(|(_, number)| number)
        .collect()
}

fn is_test_path(path: &str) -> bool {
    path.split('/')
        .any(|part| matches!(part, "tests" | "benches" | "tests.rs"))
}

/// Returns true for `#[test]`, `#[tokio::test]`, `#[cfg(test)]`, `#[cfg(all(test, …))]`; not for
/// `#[cfg(not(test))]`.
fn is_test_attribute(attribute: &Attribute) -> bool {
    if attribute.path().is_ident("cfg") {
        let syn::Meta::List(list) = &attribute.meta else {
            return false;
        };
        return mentions(list.tokens.clone(), "test") && !mentions(list.tokens.clone(), "not");
    }
    attribute
        .path()
        .segments
        .last()
        .is_some_and(|segment| segment.ident == "test")
}

fn mentions(tokens: proc_macro2::TokenStream, name: &str) -> bool {
    tokens.into_iter().any(|token| match token {
        TokenTree::Ident(ident) => ident == name,
        TokenTree::Group(group) => mentions(group.stream(), name),
        _ => false,
    })
}

/// Returns the attributes of an item; empty for kinds of items that are never under `#[cfg(test)]`.
pub(crate) fn attributes(item: &Item) -> &[Attribute] {
    match item {
        Item::Const(item) => &item.attrs,
        Item::Enum(item) => &item.attrs,
        Item::Fn(item) => &item.attrs,
        Item::Impl(item) => &item.attrs,
        Item::Macro(item) => &item.attrs,
        Item::Mod(item) => &item.attrs,
        Item::Static(item) => &item.attrs,
        Item::Struct(item) => &item.attrs,
        Item::Trait(item) => &item.attrs,
        Item::Type(item) => &item.attrs,
        Item::Use(item) => &item.attrs,
        _ => &[],
    }
}

/// Parses a fixture that must be valid Rust, for tests.
#[cfg(test)]
#[track_caller]
pub(crate) fn fixture(path: &str, text: &str) -> Source {
    Source::parse(path, text).unwrap_or_else(|(line, message)| panic!("{path}:{line}: {message}"))
}

#[cfg(test)]
mod tests {
    use super::fixture;

    const MIXED: &str =
        "//! Doc.\nfn a() {}\n#[cfg(test)]\nfn b() {\n}\nfn c() {}\n#[cfg(test)]\nmod tests {\n}\n";

    #[test]
    fn detects_test_lines() {
        let source = fixture("src/a.rs", MIXED);
        let tests: Vec<usize> = (1..=9).filter(|line| source.is_test_line(*line)).collect();
        assert_eq!(tests, [3, 4, 5, 7, 8, 9]);
        assert_eq!(source.counted_lines(), 2);
    }

    #[test]
    fn a_file_under_tests_is_all_tests() {
        let source = fixture("crates/store/tests/a.rs", MIXED);
        assert!(source.is_tests());
        assert_eq!(source.counted_lines(), 8);
    }

    #[test]
    fn a_test_module_in_its_own_file_is_named() {
        let source = fixture(
            "src/a.rs",
            "//! Doc.\n#[cfg(test)]\nmod check;\n#[cfg(not(test))]\nmod real;\n",
        );
        assert_eq!(source.test_children.iter().collect::<Vec<_>>(), ["check"]);
        assert_eq!(source.children_dir(), "src/a/");
    }
}
