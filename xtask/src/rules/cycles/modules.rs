//! The modules of a crate and the way from a name to the file in which it is defined.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::RangeInclusive;

use syn::spanned::Spanned;
use syn::{Item, UseTree, Visibility};

use crate::source::Source;
use crate::source::names::Path;

/// Segments from the root of the crate; the root itself is empty.
type Name = Vec<String>;

/// Re-exports of re-exports are followed this far; a chain that is longer ends where it is.
const HOPS: usize = 8;

/// The files of one crate by the name of their module.
pub(super) struct Modules<'a> {
    files: Vec<Module<'a>>,
    by_name: BTreeMap<Name, usize>,
}

struct Module<'a> {
    source: &'a Source,
    name: Name,
    /// Names defined in the file itself.
    items: BTreeSet<String>,
    /// Names passed on: the name seen from outside and the path behind it.
    passed_on: BTreeMap<String, Name>,
    /// Paths whose names are all passed on (`pub use a::*`).
    globs: Vec<Name>,
    /// Lines of the re-exports, which make no arrows.
    passing_lines: Vec<RangeInclusive<usize>>,
}

impl<'a> Modules<'a> {
    /// Reads the modules of the crate whose sources lie in `folder`.
    pub(super) fn of(folder: &str, files: &[&'a Source]) -> Self {
        let has_library = files.iter().any(|source| source.path == format!("{folder}lib.rs"));
        let files: Vec<Module<'a>> = files.iter().map(|source| Module::of(folder, source)).collect();
        let named = files.iter().enumerate().filter(|(_, module)| module.is_nameable(has_library));
        let by_name = named.map(|(at, module)| (module.name.clone(), at)).collect();
        Self { files, by_name }
    }

    /// The files that a file uses, each with the first line on which it does.
    pub(super) fn arrows_of(&self, file: usize) -> BTreeMap<usize, usize> {
        let module = &self.files[file];
        let mut arrows = BTreeMap::new();
        let code = module.source.names.paths.iter().filter(|path| module.is_code(path.line));
        for path in code.filter(|path| !path.after_colons) {
            let home = self.absolute(module, path).and_then(|name| self.home(&name, HOPS));
            if let Some(home) = home.filter(|home| *home != file) {
                arrows.entry(home).or_insert(path.line);
            }
        }
        arrows
    }

    /// The path from the root of the crate; none if it leads out of the crate or is a local name.
    fn absolute(&self, module: &Module, path: &Path) -> Option<Name> {
        let own_inline = std::iter::repeat_n("{}".to_owned(), path.inline_depth);
        let mut name: Name = module.name.iter().cloned().chain(own_inline).collect();
        let mut segments = path.segments.as_slice();
        match segments.first()?.as_str() {
            "crate" => name = Vec::new(),
            "self" => {}
            "super" => {
                name.pop()?;
            }
            first if segments.len() > 1 && self.is_child(&name, first) => {
                return Some([&name, segments].concat());
            }
            _ => return None,
        }
        segments = &segments[1..];
        while segments.first().is_some_and(|segment| segment == "super") {
            name.pop()?;
            segments = &segments[1..];
        }
        name.extend_from_slice(segments);
        Some(name)
    }

    fn is_child(&self, parent: &Name, child: &str) -> bool {
        self.by_name.contains_key(&[parent.as_slice(), &[child.to_owned()]].concat())
    }

    /// The file in which an absolute name is defined: down the modules as far as they go, then through re-exports.
    fn home(&self, name: &Name, hops: usize) -> Option<usize> {
        let depth = (0..=name.len()).rev().find(|depth| self.by_name.contains_key(&name[..*depth]))?;
        let file = self.by_name[&name[..depth]];
        let module = &self.files[file];
        let Some(next) = name.get(depth).filter(|next| hops > 0 && !module.items.contains(*next)) else {
            return Some(file);
        };
        if let Some(behind) = module.passed_on.get(next) {
            return self.home(&[behind, &name[depth + 1..]].concat(), hops - 1);
        }
        let through_glob = module.globs.iter().find_map(|glob| {
            let home = self.by_name.get(glob)?;
            self.files[*home].items.contains(next).then_some(*home)
        });
        through_glob.or(Some(file))
    }
}

impl<'a> Module<'a> {
    fn of(folder: &str, source: &'a Source) -> Self {
        let below = source.path.strip_prefix(folder).unwrap_or_default().trim_end_matches(".rs");
        let name = match below {
            "lib" | "main" => Vec::new(),
            below => below.split('/').map(str::to_owned).collect(),
        };
        let mut module = Self {
            source,
            name,
            items: BTreeSet::new(),
            passed_on: BTreeMap::new(),
            globs: Vec::new(),
            passing_lines: Vec::new(),
        };
        module.read_items();
        module
    }

    /// Nobody can name a program's root; beside a library, `main.rs` would take the library's place.
    fn is_nameable(&self, has_library: bool) -> bool {
        !(has_library && self.source.path.ends_with("src/main.rs"))
    }

    fn is_code(&self, line: usize) -> bool {
        !self.source.is_test_line(line) && !self.passing_lines.iter().any(|lines| lines.contains(&line))
    }

    fn read_items(&mut self) {
        for item in &self.source.syntax.items {
            match item {
                Item::Use(item) if !matches!(item.vis, Visibility::Inherited) => {
                    let span = item.span();
                    self.passing_lines.push(span.start().line..=span.end().line);
                    self.pass_on(&item.tree, &Vec::new());
                }
                _ => self.items.extend(item_name(item)),
            }
        }
    }

    fn pass_on(&mut self, tree: &UseTree, prefix: &Name) {
        let with = |segment: &syn::Ident| [prefix.as_slice(), &[segment.to_string()]].concat();
        match tree {
            UseTree::Path(path) => self.pass_on(&path.tree, &with(&path.ident)),
            UseTree::Name(name) if name.ident == "self" => {
                self.passed_on.extend(prefix.last().cloned().map(|last| (last, self.seen_from_root(prefix))));
            }
            UseTree::Name(name) => {
                self.passed_on.insert(name.ident.to_string(), self.seen_from_root(&with(&name.ident)));
            }
            UseTree::Rename(rename) => {
                self.passed_on.insert(rename.rename.to_string(), self.seen_from_root(&with(&rename.ident)));
            }
            UseTree::Glob(_) => self.globs.push(self.seen_from_root(prefix)),
            UseTree::Group(group) => group.items.iter().for_each(|tree| self.pass_on(tree, prefix)),
        }
    }

    /// A re-exported path seen from the root; a path that leads out of the crate becomes one that nothing answers to.
    fn seen_from_root(&self, path: &Name) -> Name {
        let mut name = self.name.clone();
        match path.first().map(String::as_str) {
            Some("crate") => path[1..].to_vec(),
            Some("self") => [&name, &path[1..]].concat(),
            Some("super") => {
                name.pop();
                [&name, &path[1..]].concat()
            }
            _ => [&name, path.as_slice()].concat(),
        }
    }
}

fn item_name(item: &Item) -> Option<String> {
    let ident = match item {
        Item::Const(item) => &item.ident,
        Item::Enum(item) => &item.ident,
        Item::Fn(item) => &item.sig.ident,
        Item::Macro(item) => item.ident.as_ref()?,
        Item::Mod(item) if item.content.is_some() => &item.ident,
        Item::Static(item) => &item.ident,
        Item::Struct(item) => &item.ident,
        Item::Trait(item) => &item.ident,
        Item::Type(item) => &item.ident,
        Item::Union(item) => &item.ident,
        _ => return None,
    };
    Some(ident.to_string())
}
