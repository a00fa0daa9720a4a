//! Methods of the types of a crate: the files that define them, and the types of the names that call
//! them.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::RangeInclusive;

use syn::spanned::Spanned;
use syn::{FnArg, ImplItem, Item, ItemImpl, Pat, Signature, Type};

use crate::source::Source;

/// Type: the file that defines it, and its name.
pub(super) type TypeId = (usize, String);

/// Files that define each method of each type.
pub(super) type Definitions = BTreeMap<(TypeId, String), BTreeSet<usize>>;

/// Names in scope of some lines that have a type of the crate: `self`, `Self` and parameters.
pub(super) struct Receiver {
    lines: RangeInclusive<usize>,
    name: String,
    /// Path of the type, as written in the file.
    pub(super) of: Vec<String>,
}

/// Inherent method: the path of its type as written in the file, its name and its line.
pub(super) struct Method {
    pub(super) of: Vec<String>,
    pub(super) name: String,
    pub(super) line: usize,
}

/// Returns the inherent methods of a file, and the names that can call methods.
pub(super) fn read(source: &Source) -> (Vec<Method>, Vec<Receiver>) {
    let (mut methods, mut receivers) = (Vec::new(), Vec::new());
    for item in &source.syntax.items {
        match item {
            Item::Fn(function) => receivers.extend(parameters(&function.sig, lines(function))),
            Item::Impl(block) => {
                read_impl(block, &mut methods, &mut receivers);
            }
            _ => {}
        }
    }
    (methods, receivers)
}

fn read_impl(block: &ItemImpl, methods: &mut Vec<Method>, receivers: &mut Vec<Receiver>) {
    let own = type_path(&block.self_ty);
    for item in &block.items {
        let ImplItem::Fn(function) = item else {
            continue;
        };
        receivers.extend(parameters(&function.sig, lines(function)));
        if let Some(of) = own.clone().filter(|_| block.trait_.is_none()) {
            let line = function.sig.ident.span().start().line;
            methods.push(Method {
                of,
                name: function.sig.ident.to_string(),
                line,
            });
        }
    }
    let names = ["self", "Self"].map(str::to_owned);
    let of_block = |(name, of)| Receiver {
        lines: lines(block),
        name,
        of,
    };
    receivers.extend(
        own.into_iter()
            .flat_map(|of| names.clone().map(|name| (name, of.clone())))
            .map(of_block),
    );
}

/// Returns the type of `name` on a line: the innermost receiver with this name.
pub(super) fn receiver<'a>(
    receivers: &'a [Receiver],
    name: &str,
    line: usize,
) -> Option<&'a Receiver> {
    let in_scope = receivers
        .iter()
        .filter(|one| one.name == name && one.lines.contains(&line));
    in_scope.min_by_key(|one| one.lines.end() - one.lines.start())
}

fn parameters(
    signature: &Signature,
    lines: RangeInclusive<usize>,
) -> impl Iterator<Item = Receiver> {
    signature.inputs.iter().filter_map(move |input| {
        let FnArg::Typed(typed) = input else {
            return None;
        };
        let Pat::Ident(pattern) = &*typed.pat else {
            return None;
        };
        Some(Receiver {
            lines: lines.clone(),
            name: pattern.ident.to_string(),
            of: type_path(&typed.ty)?,
        })
    })
}

/// Returns the path of a type or of what it refers to; `None` for other types.
fn type_path(of: &Type) -> Option<Vec<String>> {
    match of {
        Type::Reference(reference) => type_path(&reference.elem),
        Type::Path(path) => Some(
            path.path
                .segments
                .iter()
                .map(|one| one.ident.to_string())
                .collect(),
        ),
        _ => None,
    }
}

fn lines(item: &impl Spanned) -> RangeInclusive<usize> {
    let span = item.span();
    span.start().line..=span.end().line
}
