//! One Rust file as the rules see it: its syntax, the names it uses and which of its lines are tests.
//!
//! Tests are the whole file under `tests/`, `benches/` or `tests.rs`; elsewhere every item under `#[test]` or
//! `#[cfg(test)]`, and everything from the first `#[cfg(test)] mod … {` to the end of the file.

pub(crate) mod names;

use std::collections::BTreeSet;
use std::ops::RangeInclusive;

use proc_macro2::TokenTree;
use syn::spanned::Spanned;
use syn::{Attribute, Item};

use self::names::Names;

/// A parsed Rust file.
pub(crate) struct Source {
    /// Path from the root of the checkout.
    pub(crate) path: String,
    pub(crate) text: String,
    pub(crate) syntax: syn::File,
    pub(crate) names: Names,
    /// Modules this file declares as `#[cfg(test)] mod name;`.
    pub(crate) test_children: BTreeSet<String>,
    all_tests: bool,
    test_lines: Vec<RangeInclusive<usize>>,
}

impl Source {
    /// Parses `text`; an error names the line that is not Rust.
    pub(crate) fn parse(path: &str, text: &str) -> Result<Self, (usize, String)> {
        let syntax = syn::parse_file(text).map_err(|error| (error.span().start().line, error.to_string()))?;
        let tokens = text.strip_prefix('\u{feff}').unwrap_or(text).parse::<proc_macro2::TokenStream>();
        let names = Names::collect(tokens.map_err(|error| (error.span().start().line, error.to_string()))?);
        let mut source = Self {
            path: path.to_owned(),
            text: text.to_owned(),
            names,
            test_children: BTreeSet::new(),
            all_tests: is_test_path(path),
            test_lines: Vec::new(),
            syntax,
        };
        source.find_tests();
        Ok(source)
    }

    /// Says that another file declares this one as a test module.
    pub(crate) fn mark_as_tests(&mut self) {
        self.all_tests = true;
    }

    /// Whether the whole file is tests.
    pub(crate) fn is_tests(&self) -> bool {
        self.all_tests
    }

    /// Whether `line` belongs to the tests.
    pub(crate) fn is_test_line(&self, line: usize) -> bool {
        self.all_tests || self.test_lines.iter().any(|range| range.contains(&line))
    }

    /// How many lines are not tests; in a file that is all tests, how many there are.
    pub(crate) fn counted_lines(&self) -> usize {
        let total = self.text.lines().count();
        if self.all_tests { total } else { (1..=total).filter(|line| !self.is_test_line(*line)).count() }
    }

    /// The folder in which the modules that this file declares lie: `src/` of `src/lib.rs`, `src/a/` of `src/a.rs`.
    pub(crate) fn children_folder(&self) -> String {
        let (folder, name) = self.path.rsplit_once('/').unwrap_or(("", &self.path));
        match name {
            "lib.rs" | "main.rs" => format!("{folder}/"),
            _ => format!("{folder}/{}/", name.trim_end_matches(".rs")),
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

fn is_test_path(path: &str) -> bool {
    path.split('/').any(|part| matches!(part, "tests" | "benches" | "tests.rs"))
}

/// `#[test]`, `#[tokio::test]`, `#[cfg(test)]`, `#[cfg(all(test, …))]`; not `#[cfg(not(test))]`.
fn is_test_attribute(attribute: &Attribute) -> bool {
    if attribute.path().is_ident("cfg") {
        let syn::Meta::List(list) = &attribute.meta else { return false };
        return mentions(list.tokens.clone(), "test") && !mentions(list.tokens.clone(), "not");
    }
    attribute.path().segments.last().is_some_and(|segment| segment.ident == "test")
}

fn mentions(tokens: proc_macro2::TokenStream, word: &str) -> bool {
    tokens.into_iter().any(|token| match token {
        TokenTree::Ident(ident) => ident == word,
        TokenTree::Group(group) => mentions(group.stream(), word),
        _ => false,
    })
}

/// The attributes of an item; items of a kind that nobody puts under `#[cfg(test)]` have none.
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

/// Parses a fixture that must be Rust, for tests.
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
    fn knows_which_lines_are_tests() {
        let source = fixture("src/a.rs", MIXED);
        let tests: Vec<usize> = (1..=9).filter(|line| source.is_test_line(*line)).collect();
        assert_eq!(tests, [3, 4, 5, 7, 8, 9]);
        assert_eq!(source.counted_lines(), 3);
    }

    #[test]
    fn a_file_under_tests_is_all_tests() {
        let source = fixture("crates/store/tests/a.rs", MIXED);
        assert!(source.is_tests());
        assert_eq!(source.counted_lines(), 9);
    }

    #[test]
    fn a_test_module_in_its_own_file_is_named() {
        let source =
            fixture("src/a.rs", "//! Doc.\n#[cfg(test)]\nmod check;\n#[cfg(not(test))]\nmod real;\n");
        assert_eq!(source.test_children.iter().collect::<Vec<_>>(), ["check"]);
        assert_eq!(source.children_folder(), "src/a/");
    }
}
