//! Modules of a crate, and the resolution of a name to the file that defines it.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::RangeInclusive;

use syn::spanned::Spanned;
use syn::{Item, UseTree, Visibility};

use super::methods::{self, Definitions, Method, Receiver, TypeId};
use crate::source::Source;
use crate::source::names::Path;

/// Segments from the root of the crate; the root itself is empty.
type Name = Vec<String>;

/// Maximum length of a chain of re-exports; the resolution of a longer chain stops there.
const HOPS: usize = 8;

/// Files of one crate by module name.
pub(super) struct Modules<'a> {
    files: Vec<Module<'a>>,
    by_name: BTreeMap<Name, usize>,
    methods: Definitions,
}

struct Module<'a> {
    source: &'a Source,
    name: Name,
    /// Names defined in the file itself.
    items: BTreeSet<String>,
    /// Re-exports: the exported name and its path.
    re_exports: BTreeMap<String, Name>,
    /// Glob re-exports (`pub use a::*`).
    globs: Vec<Name>,
    /// Lines of the re-exports, which are no dependencies.
    re_export_lines: Vec<RangeInclusive<usize>>,
    methods: Vec<Method>,
    receivers: Vec<Receiver>,
}

impl<'a> Modules<'a> {
    /// Reads the modules of the crate with sources in `dir`.
    pub(super) fn of(dir: &str, files: &[&'a Source]) -> Self {
        let has_library = files
            .iter()
            .any(|source| source.path == format!("{dir}lib.rs"));
        let files: Vec<Module<'a>> = files.iter().map(|source| Module::of(dir, source)).collect();
        let named = files
            .iter()
            .enumerate()
            .filter(|(_, module)| module.is_nameable(has_library));
        let by_name = named
            .map(|(at, module)| (module.name.clone(), at))
            .collect();
        let mut modules = Self {
            files,
            by_name,
            methods: Definitions::new(),
        };
        modules.methods = modules.definitions();
        modules
    }

    /// Returns the files that define each method, without tests.
    fn definitions(&self) -> Definitions {
        let mut definitions = Definitions::new();
        for (file, module) in self.files.iter().enumerate() {
            for method in module
                .methods
                .iter()
                .filter(|method| module.is_code(method.line))
            {
                if let Some(of) = self.type_of(file, &method.of) {
                    definitions
                        .entry((of, method.name.clone()))
                        .or_default()
                        .insert(file);
                }
            }
        }
        definitions
    }

    /// Returns the files that a file uses, each with the first line of the use.
    pub(super) fn dependencies_of(&self, file: usize) -> BTreeMap<usize, usize> {
        let module = &self.files[file];
        let mut arrows = BTreeMap::new();
        let code = module
            .source
            .names
            .paths
            .iter()
            .filter(|path| module.is_code(path.line));
        for path in code.filter(|path| !path.after_colons) {
            let home = self
                .absolute(module, path)
                .and_then(|name| self.home(&name, HOPS));
            if let Some(home) = home.filter(|home| *home != file) {
                arrows.entry(home).or_insert(path.line);
            }
        }
        for (home, line) in self.calls_of(file) {
            let first = arrows.entry(home).or_insert(line);
            *first = line.min(*first);
        }
        arrows
    }

    /// Returns the files that define the methods which a file calls, each with the line of the call. The
    /// type of the receiver is known for `self`, `Self`, parameters and paths.
    fn calls_of(&self, file: usize) -> Vec<(usize, usize)> {
        let module = &self.files[file];
        let names = &module.source.names;
        let on_names = names.method_calls.iter().filter_map(|call| {
            let receiver = methods::receiver(&module.receivers, &call.receiver, call.line)?;
            Some((receiver.of.clone(), &call.method, call.line))
        });
        let on_paths = names
            .paths
            .iter()
            .filter_map(|path| match path.segments.as_slice() {
                [of, method] if of == "Self" => {
                    let receiver = methods::receiver(&module.receivers, of, path.line)?;
                    Some((receiver.of.clone(), method, path.line))
                }
                [of @ .., method] if !of.is_empty() => Some((of.to_vec(), method, path.line)),
                _ => None,
            });
        let homes = on_names
            .chain(on_paths)
            .filter(|(.., line)| module.is_code(*line));
        let homes = homes.filter_map(|(of, method, line)| {
            let files = self
                .methods
                .get(&(self.type_of(file, &of)?, method.clone()))?;
            let home = files.first().filter(|_| files.len() == 1)?;
            (*home != file).then_some((*home, line))
        });
        homes.collect()
    }

    /// Returns the type that a path in a file names; `None` if the crate does not define it.
    fn type_of(&self, file: usize, path: &[String]) -> Option<TypeId> {
        let module = &self.files[file];
        let name = path.last()?;
        if path.len() == 1 && module.items.contains(name) {
            return Some((file, name.clone()));
        }
        let absolute = |path: &Path| self.absolute(module, path);
        let candidates: Vec<Name> = if path.len() > 1 {
            let path = Path {
                segments: path.to_vec(),
                line: 0,
                inline_depth: 0,
                after_colons: false,
            };
            absolute(&path).into_iter().collect()
        } else {
            let imported =
                |path: &&Path| path.segments.len() > 1 && path.segments.last() == Some(name);
            let glob = |path: &&Path| path.segments.last().is_some_and(|last| last == "*");
            let paths = &module.source.names.paths;
            let globs = paths
                .iter()
                .filter(glob)
                .filter_map(absolute)
                .map(|mut found| {
                    found.pop();
                    [found.as_slice(), std::slice::from_ref(name)].concat()
                });
            paths
                .iter()
                .filter(imported)
                .filter_map(absolute)
                .chain(globs)
                .collect()
        };
        let homes = candidates
            .iter()
            .filter_map(|candidate| self.home(candidate, HOPS));
        homes
            .filter(|home| self.files[*home].items.contains(name))
            .map(|home| (home, name.clone()))
            .next()
    }

    /// Returns the path from the root of the crate; `None` if it leads out of the crate or is a local name.
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
        self.by_name
            .contains_key(&[parent.as_slice(), &[child.to_owned()]].concat())
    }

    /// Returns the file that defines an absolute name: descends through the modules, then through
    /// re-exports.
    fn home(&self, name: &Name, hops: usize) -> Option<usize> {
        let depth = (0..=name.len())
            .rev()
            .find(|depth| self.by_name.contains_key(&name[..*depth]))?;
        let file = self.by_name[&name[..depth]];
        let module = &self.files[file];
        let Some(next) = name
            .get(depth)
            .filter(|next| hops > 0 && !module.items.contains(*next))
        else {
            return Some(file);
        };
        if let Some(behind) = module.re_exports.get(next) {
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
    fn of(dir: &str, source: &'a Source) -> Self {
        let below = source
            .path
            .strip_prefix(dir)
            .unwrap_or_default()
            .trim_end_matches(".rs");
        let name = match below {
            "lib" | "main" => Vec::new(),
            below => below.split('/').map(str::to_owned).collect(),
        };
        let (methods, receivers) = methods::read(source);
        let mut module = Self {
            source,
            name,
            items: BTreeSet::new(),
            re_exports: BTreeMap::new(),
            globs: Vec::new(),
            re_export_lines: Vec::new(),
            methods,
            receivers,
        };
        module.read_items();
        module
    }

    /// Returns whether other files can name the module. The root of a program has no name; beside a
    /// library, `main.rs` would replace the library.
    fn is_nameable(&self, has_library: bool) -> bool {
        !(has_library && self.source.path.ends_with("src/main.rs"))
    }

    fn is_code(&self, line: usize) -> bool {
        !self.source.is_test_line(line)
            && !self
                .re_export_lines
                .iter()
                .any(|lines| lines.contains(&line))
    }

    fn read_items(&mut self) {
        for item in &self.source.syntax.items {
            match item {
                Item::Use(item) if !matches!(item.vis, Visibility::Inherited) => {
                    let span = item.span();
                    self.re_export_lines
                        .push(span.start().line..=span.end().line);
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
                self.re_exports.extend(
                    prefix
                        .last()
                        .cloned()
                        .map(|last| (last, self.seen_from_root(prefix))),
                );
            }
            UseTree::Name(name) => {
                self.re_exports.insert(
                    name.ident.to_string(),
                    self.seen_from_root(&with(&name.ident)),
                );
            }
            UseTree::Rename(rename) => {
                self.re_exports.insert(
                    rename.rename.to_string(),
                    self.seen_from_root(&with(&rename.ident)),
                );
            }
            UseTree::Glob(_) => self.globs.push(self.seen_from_root(prefix)),
            UseTree::Group(group) => group
                .items
                .iter()
                .for_each(|tree| self.pass_on(tree, prefix)),
        }
    }

    /// Returns a re-exported path from the root; a path that leads out of the crate becomes one that
    /// matches no module.
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
