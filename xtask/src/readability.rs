//! Readability of product code, as far as it can be counted.
//!
//! `cargo xtask readability` prints one row per crate. The numbers show where pages are hard to read;
//! they are no goal in themselves: a blank line that separates nothing is noise.

use std::collections::BTreeMap;
use std::ops::AddAssign;
use std::path::Path;

use proc_macro2::{TokenStream, TokenTree};
use quote::ToTokens as _;
use syn::spanned::Spanned as _;
use syn::visit::{self, Visit};

use crate::error::Error;
use crate::source::Source;
use crate::tidy;
use crate::tree::Tree;

/// Number of columns of a line, as in `rustfmt.toml`.
const MAX_COLUMNS: usize = 100;

/// Counts of one file or crate, without tests.
#[derive(Debug, Default)]
pub(crate) struct Readability {
    /// Lines in function bodies, between their braces.
    body_lines: usize,
    /// Blank ones of them.
    blank_lines: usize,
    /// Those of them that are only a comment.
    comment_lines: usize,
    /// Lines of code.
    code_lines: usize,
    /// Lines over [`MAX_COLUMNS`].
    long_lines: usize,
    /// Closures that are bound by `let` and used once.
    single_use_closures: usize,
    /// Lines of the parameters of a tuple type.
    pub(crate) tuple_parameters: Vec<usize>,
    /// Lines of `let (a, b) = (x, y)`.
    pub(crate) let_pairs: Vec<usize>,
}

impl AddAssign for Readability {
    fn add_assign(&mut self, other: Self) {
        self.body_lines += other.body_lines;
        self.blank_lines += other.blank_lines;
        self.comment_lines += other.comment_lines;
        self.code_lines += other.code_lines;
        self.long_lines += other.long_lines;
        self.single_use_closures += other.single_use_closures;
        self.tuple_parameters.extend(other.tuple_parameters);
        self.let_pairs.extend(other.let_pairs);
    }
}

/// Prints the table of the checkout in `root`.
pub(crate) fn run(root: &Path) -> Result<bool, Error> {
    let tree = Tree::read(root)?;
    let (sources, _) = tidy::parse(&tree);

    let mut crates: BTreeMap<&str, Readability> = BTreeMap::new();
    let mut total = Readability::default();
    for source in sources.iter().filter(|source| is_product(source)) {
        *crates.entry(crate_of(&source.path)).or_default() += measure(source);
        total += measure(source);
    }

    println!(
        "| crate | code lines | blank % | comment % | tuple parameters | let pairs | single-use closures / 1000 | over {MAX_COLUMNS} columns |"
    );
    println!("|---|--:|--:|--:|--:|--:|--:|--:|");
    for (name, counts) in &crates {
        print_row(name, counts);
    }
    print_row("all", &total);
    Ok(true)
}

fn print_row(name: &str, counts: &Readability) {
    println!(
        "| {name} | {} | {:.1} | {:.1} | {} | {} | {:.1} | {} |",
        counts.code_lines,
        percent(counts.blank_lines, counts.body_lines),
        percent(counts.comment_lines, counts.body_lines),
        counts.tuple_parameters.len(),
        counts.let_pairs.len(),
        percent(counts.single_use_closures, counts.code_lines) * 10.0,
        counts.long_lines,
    );
}

#[expect(clippy::cast_precision_loss, reason = "numbers of lines are small")]
fn percent(part: usize, whole: usize) -> f64 {
    part as f64 * 100.0 / whole.max(1) as f64
}

/// Returns whether the file belongs to the product, not to its tests and tools.
pub(crate) fn is_product(source: &Source) -> bool {
    let is_crate = ["src/", "actors/", "crates/"]
        .iter()
        .any(|prefix| source.path.starts_with(prefix));
    is_crate && !source.path.starts_with("crates/testkit/") && !source.is_tests()
}

/// Returns the directory of the crate of a file.
pub(crate) fn crate_of(path: &str) -> &str {
    let depth = if path.starts_with("crates/") { 2 } else { 1 };
    match path.match_indices('/').nth(depth - 1) {
        Some((end, _)) => &path[..end],
        None => path,
    }
}

/// Counts one file.
pub(crate) fn measure(source: &Source) -> Readability {
    let lines: Vec<&str> = source.text.lines().collect();
    let is_long = |line: &&str| line.chars().count() > MAX_COLUMNS;
    let product_lines = (1..)
        .zip(&lines)
        .filter(|(number, _)| !source.is_test_line(*number));

    let mut visitor = Visitor {
        source,
        lines: &lines,
        counts: Readability {
            code_lines: source.counted_lines(),
            long_lines: product_lines.filter(|(_, line)| is_long(line)).count(),
            ..Readability::default()
        },
    };
    visitor.visit_file(&source.syntax);
    visitor.counts
}

struct Visitor<'a> {
    source: &'a Source,
    lines: &'a [&'a str],
    counts: Readability,
}

impl Visitor<'_> {
    fn count_function(&mut self, signature: &syn::Signature, body: Option<&syn::Block>) {
        if self.source.is_test_line(signature.span().start().line) {
            return;
        }

        for input in &signature.inputs {
            if let syn::FnArg::Typed(parameter) = input
                && is_tuple(&parameter.ty)
            {
                let line = parameter.span().start().line;
                self.counts.tuple_parameters.push(line);
            }
        }

        let Some(body) = body else { return };
        let first = body.span().start().line;
        let end = body.span().end().line.saturating_sub(1);
        for line in self.lines.get(first..end).unwrap_or_default() {
            let line = line.trim();
            self.counts.body_lines += 1;
            self.counts.blank_lines += usize::from(line.is_empty());
            self.counts.comment_lines += usize::from(line.starts_with("//"));
        }
    }

    fn count_bindings(&mut self, block: &syn::Block) {
        for (index, statement) in block.stmts.iter().enumerate() {
            let syn::Stmt::Local(local) = statement else {
                continue;
            };
            let line = local.span().start().line;
            let Some(init) = local
                .init
                .as_ref()
                .filter(|_| !self.source.is_test_line(line))
            else {
                continue;
            };
            match (&local.pat, &*init.expr) {
                (syn::Pat::Tuple(_), syn::Expr::Tuple(_)) => self.counts.let_pairs.push(line),
                (syn::Pat::Ident(name), syn::Expr::Closure(_)) => {
                    let rest = block.stmts[index + 1..].iter();
                    let uses: usize = rest
                        .map(|later| uses(later.to_token_stream(), &name.ident))
                        .sum();
                    self.counts.single_use_closures += usize::from(uses == 1);
                }
                _ => {}
            }
        }
    }
}

impl<'ast> Visit<'ast> for Visitor<'_> {
    fn visit_item_fn(&mut self, function: &'ast syn::ItemFn) {
        self.count_function(&function.sig, Some(&function.block));
        visit::visit_item_fn(self, function);
    }

    fn visit_impl_item_fn(&mut self, function: &'ast syn::ImplItemFn) {
        self.count_function(&function.sig, Some(&function.block));
        visit::visit_impl_item_fn(self, function);
    }

    fn visit_trait_item_fn(&mut self, function: &'ast syn::TraitItemFn) {
        self.count_function(&function.sig, function.default.as_ref());
        visit::visit_trait_item_fn(self, function);
    }

    fn visit_block(&mut self, block: &'ast syn::Block) {
        self.count_bindings(block);
        visit::visit_block(self, block);
    }
}

/// Returns whether a type is a tuple of values, or a reference to one.
fn is_tuple(ty: &syn::Type) -> bool {
    match ty {
        syn::Type::Tuple(tuple) => !tuple.elems.is_empty(),
        syn::Type::Reference(reference) => is_tuple(&reference.elem),
        _ => false,
    }
}

fn uses(tokens: TokenStream, name: &syn::Ident) -> usize {
    let count = |token| match token {
        TokenTree::Ident(ident) => usize::from(ident == *name),
        TokenTree::Group(group) => uses(group.stream(), name),
        _ => 0,
    };
    tokens.into_iter().map(count).sum()
}

#[cfg(test)]
mod tests {
    use super::{crate_of, measure};
    use crate::source::fixture;

    #[test]
    fn counts_what_makes_a_body_dense() {
        let counts = measure(&fixture(
            "src/a.rs",
            "//! A file.\n\
             fn f((a, b): (u8, u8), c: &(u8, u8), unit: ()) {\n\
             // Why.\n\
             let (d, e) = (a, b);\n\
             \n\
             let once = |x| x + 1;\n\
             let twice = |x| x + 2;\n\
             once(twice(d) + twice(e));\n\
             let (g, h) = c;\n\
             }\n\
             #[cfg(test)]\n\
             mod tests {\n\
             fn t(pair: (u8, u8)) { let (a, b) = (1, 2); }\n\
             }\n",
        ));
        assert_eq!(counts.tuple_parameters, [2, 2]);
        assert_eq!(counts.let_pairs, [4]);
        assert_eq!(counts.single_use_closures, 1);
        assert_eq!(
            (counts.body_lines, counts.blank_lines, counts.comment_lines),
            (7, 1, 1)
        );
        assert_eq!((counts.code_lines, counts.long_lines), (7, 0));
    }

    #[test]
    fn a_crate_is_a_directory_of_the_root_or_of_crates() {
        assert_eq!(crate_of("src/a/b.rs"), "src");
        assert_eq!(crate_of("crates/bus/src/a.rs"), "crates/bus");
        assert_eq!(crate_of("actors/src/a.rs"), "actors");
    }
}
