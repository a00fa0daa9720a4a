//! The files of a crate form no circle: whatever reads the one need not read the other first.
//!
//! An arrow goes from a file to the file in which a name that it uses is defined. Names are followed from
//! `crate::`, `super::`, `self::` and from the modules a file declares, through re-exports, to their home. Declaring and
//! re-exporting a child makes no arrow, and tests make none. The shortest circle through each file is reported as a
//! path; files of a circle already reported are not reported again.

mod modules;

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use self::modules::Modules;
use crate::source::Source;
use crate::violation::{Finding, Rule};

const RULE: Rule = Rule {
    name: "circle",
    reason: "files that need each other are one file in several places; none can be read, tested or moved alone",
    remedy: "move what both need into a file of its own below them, or pass it in as an argument",
};

/// From a file to the files it uses, with the first line of the use.
type Arrows = BTreeMap<usize, BTreeMap<usize, usize>>;

/// Looks at each crate by itself.
pub(crate) fn check(sources: &[Source]) -> Vec<Finding> {
    let mut crates: BTreeMap<&str, Vec<&Source>> = BTreeMap::new();
    for source in sources.iter().filter(|source| !source.is_tests()) {
        if let Some((folder, _)) = crate_of(&source.path) {
            crates.entry(folder).or_default().push(source);
        }
    }
    crates.into_iter().flat_map(|(folder, files)| check_crate(folder, &files)).collect()
}

/// The `…src/` folder of a file and its path below it; none for files that belong to no library or program.
fn crate_of(path: &str) -> Option<(&str, &str)> {
    let start = if path.starts_with("src/") { 0 } else { path.find("/src/")? + 1 };
    Some(path.split_at(start + "src/".len()))
}

fn check_crate(folder: &str, files: &[&Source]) -> Vec<Finding> {
    let modules = Modules::of(folder, files);
    let arrows: Arrows = (0..files.len()).map(|file| (file, modules.arrows_of(file))).collect();
    let mut reported = BTreeSet::new();
    let mut findings = Vec::new();
    for start in 0..files.len() {
        let Some(circle) = shortest_circle(&arrows, start) else { continue };
        if circle.iter().any(|file| reported.contains(file)) {
            continue;
        }
        let name = |file: &usize| files[*file].path.strip_prefix(folder).unwrap_or_default();
        let path = circle.iter().chain([&start]).map(name).collect::<Vec<_>>().join(" → ");
        let line = arrows[&start][circle.get(1).unwrap_or(&start)];
        findings.push(Finding::new(&RULE, &files[start].path, line, path));
        reported.extend(circle);
    }
    findings
}

/// The files of the shortest way from `start` back to itself, by breadth-first search.
fn shortest_circle(arrows: &Arrows, start: usize) -> Option<Vec<usize>> {
    let mut came_from: BTreeMap<usize, usize> = BTreeMap::new();
    let mut queue = VecDeque::from([start]);
    while let Some(file) = queue.pop_front() {
        for next in arrows[&file].keys().copied() {
            if next == start {
                return Some(way_back(&came_from, start, file));
            }
            if let std::collections::btree_map::Entry::Vacant(entry) = came_from.entry(next) {
                entry.insert(file);
                queue.push_back(next);
            }
        }
    }
    None
}

fn way_back(came_from: &BTreeMap<usize, usize>, start: usize, end: usize) -> Vec<usize> {
    let mut way = vec![end];
    while let Some(file) = way.last().filter(|file| **file != start) {
        way.push(came_from[file]);
    }
    way.reverse();
    way
}

#[cfg(test)]
mod tests {
    use super::check as check_circles;
    use crate::source::{Source, fixture};
    use crate::violation::lines;

    #[track_caller]
    fn check(files: &[(&str, &str)], expected: &[&str]) {
        let sources: Vec<Source> = files.iter().map(|(path, text)| fixture(path, text)).collect();
        assert_eq!(lines(&check_circles(&sources)), expected);
    }

    #[test]
    fn a_tree_of_files_passes() {
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
    fn two_files_that_use_each_other_are_a_circle() {
        check(
            &[
                ("crates/x/src/lib.rs", "mod a;\nmod b;"),
                ("crates/x/src/a.rs", "\nuse crate::b::B;\npub struct A;"),
                ("crates/x/src/b.rs", "pub struct B;\nfn f(_: super::a::A) {}"),
            ],
            &["2: a.rs → b.rs → a.rs"],
        );
    }

    #[test]
    fn a_longer_circle_is_reported_once_as_a_path() {
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
    fn a_name_is_followed_through_re_exports_to_its_home() {
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
    fn a_parent_that_uses_its_child_and_is_used_by_it_is_a_circle() {
        let child = ("src/p/c.rs", "use super::P;\npub fn f(_: P) {}");
        check(&[("src/lib.rs", "mod p;"), ("src/p.rs", "mod c;\npub use c::f;\npub struct P;"), child], &[]);
        check(
            &[("src/lib.rs", "mod p;"), ("src/p.rs", "mod c;\npub struct P;\nfn g() { c::f(P) }"), child],
            &["3: p.rs → p/c.rs → p.rs"],
        );
    }

    #[test]
    fn tests_make_no_arrows() {
        check(
            &[
                ("src/lib.rs", "mod a;\nmod b;"),
                ("src/a.rs", "pub struct A;\n#[cfg(test)]\nmod tests { use crate::b::B; }"),
                ("src/b.rs", "use crate::a::A;\npub struct B;"),
            ],
            &[],
        );
    }

    #[test]
    fn super_inside_an_inline_module_is_the_file_itself() {
        check(
            &[
                ("src/lib.rs", "mod p;"),
                ("src/p.rs", "mod c;\npub struct P;\nuse c::C;"),
                ("src/p/c.rs", "pub struct C;\nmod inner { use super::C; }"),
            ],
            &[],
        );
    }
}
