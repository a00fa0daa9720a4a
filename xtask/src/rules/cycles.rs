//! The files of a crate form no cycle: of two files, at least one can be read without the other.
//! Nor do its directories: a module of the crate root is one directory, with all files below it.
//!
//! A dependency goes from a file to the file that defines a name it uses. Names are resolved from
//! `crate::`, `super::`, `self::` and the declared modules, through re-exports, to their
//! definition. A call of a method is a dependency on the file that defines the method, where the
//! type of the receiver is written: `self`, `Self`, a parameter, or a path. Declaring and
//! re-exporting a child is no dependency, and tests have none. The shortest cycle through each file
//! is reported as a path. Files of a reported cycle are not reported again.

mod methods;
mod modules;

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use self::modules::Modules;
use crate::source::Source;
use crate::violation::{LintRule, Violation};

const RULE: LintRule = LintRule {
    name: "cycle",
    reason: "files in a cycle are effectively one file; none can be read, tested or moved alone",
    remedy: "move the shared code into a separate file below them, or pass it in as an argument",
};

const DIRECTORIES: LintRule = LintRule {
    name: "directory-cycle",
    reason: "directories in a cycle are effectively one directory; a reader who opens one must know all of them",
    remedy: "move what the lower one uses down to it or below both, or pass it in as an argument",
};

/// Crates whose directories form no cycle. In the other crates, a cycle is a warning.
const WITHOUT_DIRECTORY_CYCLES: [&str; 3] = ["crates/api/src/", "crates/node/src/", "src/"];

/// Map from a file to the files it uses, each with the first line of the use.
type Dependencies = BTreeMap<usize, BTreeMap<usize, usize>>;

/// Checks each crate separately.
pub(crate) fn check(sources: &[Source]) -> Vec<Violation> {
    let mut crates: BTreeMap<&str, Vec<&Source>> = BTreeMap::new();
    for source in sources.iter().filter(|source| !source.is_tests()) {
        if let Some((dir, _)) = crate_of(&source.path) {
            crates.entry(dir).or_default().push(source);
        }
    }
    crates
        .into_iter()
        .flat_map(|(dir, files)| check_crate(dir, &files))
        .collect()
}

/// Returns the `…src/` directory of a file and its path below it; `None` for files outside of a
/// library or program.
fn crate_of(path: &str) -> Option<(&str, &str)> {
    let start = if path.starts_with("src/") {
        0
    } else {
        path.find("/src/")? + 1
    };
    Some(path.split_at(start + "src/".len()))
}

fn check_crate(dir: &str, files: &[&Source]) -> Vec<Violation> {
    let modules = Modules::of(dir, files);
    let arrows: Dependencies = (0..files.len())
        .map(|file| (file, modules.dependencies_of(file)))
        .collect();
    let mut reported = BTreeSet::new();
    let mut violations = Vec::new();
    for start in 0..files.len() {
        let Some(cycle) = shortest_cycle(&arrows, start) else {
            continue;
        };
        if cycle.iter().any(|file| reported.contains(file)) {
            continue;
        }
        let name = |file: &usize| files[*file].path.strip_prefix(dir).unwrap_or_default();
        let path = cycle
            .iter()
            .chain([&start])
            .map(name)
            .collect::<Vec<_>>()
            .join(" → ");
        let line = arrows[&start][cycle.get(1).unwrap_or(&start)];
        violations.push(Violation::new(&RULE, &files[start].path, line, path));
        reported.extend(cycle);
    }
    // A cycle of files is one of their directories too, and is reported once.
    if violations.is_empty() {
        violations.extend(directory_cycles(dir, files, &arrows));
    }
    violations
}

/// Returns the cycles of the modules of the crate root. A cycle contains the first file that closes
/// it.
fn directory_cycles(dir: &str, files: &[&Source], arrows: &Dependencies) -> Vec<Violation> {
    let directory_of =
        |file: usize| directory(files[file].path.strip_prefix(dir).unwrap_or_default());
    let names: BTreeSet<&str> = (0..files.len()).filter_map(directory_of).collect();
    let names: Vec<&str> = names.into_iter().collect();
    let number_of = |name: &str| names.binary_search(&name).expect("all names are listed");

    let mut directories: Dependencies = (0..names.len())
        .map(|name| (name, BTreeMap::new()))
        .collect();
    for (file, dependencies) in arrows {
        for dependency in dependencies.keys() {
            let (Some(from), Some(to)) = (directory_of(*file), directory_of(*dependency)) else {
                continue;
            };
            if from != to {
                let targets = directories.entry(number_of(from)).or_default();
                targets.entry(number_of(to)).or_insert(*file);
            }
        }
    }

    let mut reported = BTreeSet::new();
    let mut violations = Vec::new();
    for start in 0..names.len() {
        let Some(cycle) = shortest_cycle(&directories, start) else {
            continue;
        };
        if cycle.iter().any(|name| reported.contains(name)) {
            continue;
        }
        let next = *cycle.get(1).unwrap_or(&start);
        let user = directories[&start][&next];
        let target = arrows[&user]
            .iter()
            .find(|(used, _)| directory_of(**used) == Some(names[next]));
        let line = target.map_or(1, |(_, line)| *line);
        let path: Vec<&str> = cycle
            .iter()
            .chain([&start])
            .map(|name| names[*name])
            .collect();
        let file = &files[user].path;
        let message = path.join(" → ");
        violations.push(if WITHOUT_DIRECTORY_CYCLES.contains(&dir) {
            Violation::new(&DIRECTORIES, file, line, message)
        } else {
            Violation::warning(&DIRECTORIES, file, line, message)
        });
        reported.extend(cycle);
    }
    violations
}

/// Returns the module of the crate root to which a file belongs; `None` for the root itself.
fn directory(path: &str) -> Option<&str> {
    let name = path.split('/').next()?.trim_end_matches(".rs");
    (!matches!(name, "lib" | "main")).then_some(name)
}

/// Returns the files of the shortest cycle through `start`, by breadth-first search.
fn shortest_cycle(arrows: &Dependencies, start: usize) -> Option<Vec<usize>> {
    let mut predecessors: BTreeMap<usize, usize> = BTreeMap::new();
    let mut queue = VecDeque::from([start]);
    while let Some(file) = queue.pop_front() {
        for next in arrows[&file].keys().copied() {
            if next == start {
                return Some(backtrack(&predecessors, start, file));
            }
            if let std::collections::btree_map::Entry::Vacant(entry) = predecessors.entry(next) {
                entry.insert(file);
                queue.push_back(next);
            }
        }
    }
    None
}

fn backtrack(predecessors: &BTreeMap<usize, usize>, start: usize, end: usize) -> Vec<usize> {
    let mut path = vec![end];
    while let Some(file) = path.last().filter(|file| **file != start) {
        path.push(predecessors[file]);
    }
    path.reverse();
    path
}

#[cfg(test)]
mod tests {
    use super::check as check_cycles;
    use crate::source::{Source, fixture};
    use crate::violation::violation_lines;

    #[track_caller]
    fn check(files: &[(&str, &str)], expected: &[&str]) {
        let sources: Vec<Source> = files
            .iter()
            .map(|(path, text)| fixture(path, text))
            .collect();
        assert_eq!(violation_lines(&check_cycles(&sources)), expected);
    }

    #[test]
    fn directories_form_no_cycle_although_their_files_form_none() {
        check(
            &[
                ("src/lib.rs", "mod a;\nmod b;"),
                ("src/a.rs", "pub mod low;\npub struct A;"),
                ("src/a/low.rs", "use crate::b::B;\npub struct Low(B);"),
                ("src/b.rs", "pub mod high;\npub struct B;"),
                ("src/b/high.rs", "\nuse crate::a::A;\npub struct High(A);"),
            ],
            &["1: a → b → a"],
        );
    }

    #[test]
    fn acyclic_files_pass() {
        check(
            &[
                ("src/lib.rs", "mod a;\nmod b;\npub use a::A;\npub use b::B;"),
                ("src/a.rs", "pub struct A;"),
                ("src/b.rs", "use crate::a::A;\npub struct B(A);"),
            ],
            &[],
        );
    }

    #[test]
    fn mutual_use_is_a_cycle() {
        check(
            &[
                ("crates/x/src/lib.rs", "mod a;\nmod b;"),
                ("crates/x/src/a.rs", "\nuse crate::b::B;\npub struct A;"),
                (
                    "crates/x/src/b.rs",
                    "pub struct B;\nfn f(_: super::a::A) {}",
                ),
            ],
            &["2: a.rs → b.rs → a.rs"],
        );
    }

    #[test]
    fn longer_cycle_is_reported_once_as_a_path() {
        check(
            &[
                ("src/lib.rs", "mod a;\nmod b;\nmod c;"),
                ("src/a.rs", "fn f() { crate::b::f() }"),
                ("src/b.rs", "use super::{c};\nfn f() { c::f() }"),
                ("src/c.rs", "fn f() { debug_assert!(crate::a::f()) }"),
            ],
            &["1: a.rs → b.rs → c.rs → a.rs"],
        );
    }

    #[test]
    fn re_exports_resolve_to_the_defining_file() {
        check(
            &[
                ("src/lib.rs", "mod a;\nmod b;\npub use a::A;\npub use b::*;"),
                ("src/a.rs", "use crate::B;\npub struct A;"),
                ("src/b.rs", "use crate::A;\npub struct B;"),
            ],
            &["1: a.rs → b.rs → a.rs"],
        );
    }

    #[test]
    fn parent_child_mutual_use_is_a_cycle() {
        let child = ("src/p/c.rs", "use super::P;\npub fn f(_: P) {}");
        check(
            &[
                ("src/lib.rs", "mod p;"),
                ("src/p.rs", "mod c;\npub use c::f;\npub struct P;"),
                child,
            ],
            &[],
        );
        check(
            &[
                ("src/lib.rs", "mod p;"),
                ("src/p.rs", "mod c;\npub struct P;\nfn g() { c::f(P) }"),
                child,
            ],
            &["3: p.rs → p/c.rs → p.rs"],
        );
    }

    #[test]
    fn test_code_adds_no_dependency() {
        check(
            &[
                ("src/lib.rs", "mod a;\nmod b;"),
                (
                    "src/a.rs",
                    "pub struct A;\n#[cfg(test)]\nmod tests { use crate::b::B; }",
                ),
                ("src/b.rs", "use crate::a::A;\npub struct B;"),
            ],
            &[],
        );
    }

    #[test]
    fn super_in_inline_module_resolves_to_the_file() {
        check(
            &[
                ("src/lib.rs", "mod p;"),
                ("src/p.rs", "mod c;\npub struct P;\nuse c::C;"),
                ("src/p/c.rs", "pub struct C;\nmod inner { use super::C; }"),
            ],
            &[],
        );
    }

    const PARENT: &str = "mod a;\nmod b;\npub struct P;";

    #[test]
    fn methods_of_one_type_in_two_files_form_a_cycle() {
        check(
            &[
                ("src/lib.rs", "mod p;"),
                ("src/p.rs", PARENT),
                (
                    "src/p/a.rs",
                    "use super::P;\nimpl P {\n  fn a(&self) { self.b(1) }\n}",
                ),
                (
                    "src/p/b.rs",
                    "use super::P;\nimpl P { fn b(&self, n: u8) { vec![self.a()]; } }",
                ),
            ],
            &["3: p/a.rs → p/b.rs → p/a.rs"],
        );
    }

    #[test]
    fn parent_that_calls_a_method_of_its_child_is_a_cycle() {
        check(
            &[
                (
                    "src/p.rs",
                    "mod a;\npub struct P;\nimpl P { fn start(&self) { self.a() } }",
                ),
                ("src/p/a.rs", "use super::P;\nimpl P { fn a(&self) {} }"),
            ],
            &["3: p.rs → p/a.rs → p.rs"],
        );
    }

    #[test]
    fn calls_through_paths_and_parameters_are_dependencies() {
        let parent = ("src/p.rs", PARENT);
        for call in [
            "P::a(p)",
            "Self::a(p)",
            "p.a()",
            "p.a::<u8>()",
            "Some(p).map(super::P::a)",
        ] {
            let b = format!("use super::P;\nimpl P {{ fn b(p: &mut P) {{ {call} }} }}");
            let a = (
                "src/p/a.rs",
                "use super::*;\nimpl P { fn a(&self) { Self::b(self) } }",
            );
            check(
                &[parent, a, ("src/p/b.rs", &b)],
                &["2: p/a.rs → p/b.rs → p/a.rs"],
            );
        }
    }

    #[test]
    fn methods_in_one_direction_pass() {
        check(
            &[
                ("src/p.rs", PARENT),
                (
                    "src/p/a.rs",
                    "use super::P;\nimpl P { fn a(&self) { self.b(); self.c() } }",
                ),
                (
                    "src/p/b.rs",
                    "use super::P;\nstruct Q;\nimpl P { fn b(&self) { self.a.a() } }\nimpl Q { fn c(&self) { self.a() } }",
                ),
            ],
            &[],
        );
    }
}
