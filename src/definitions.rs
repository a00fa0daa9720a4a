//! The definitions in force: read from a folder, checked against the hands, refused whole when one is wrong.
//!
//! A source that was ever in force stays in the store: instances that are pinned to it go on with it. A definition whose
//! file is gone takes no new instances, but its old ones go on.

mod definition;
mod hands;
mod retired;

use std::collections::BTreeMap;
use std::fmt;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError, RwLock};

use orlog_effect::Catalog;
use orlog_model::ProgramRef;
use orlog_program::{Problem, Program};
use serde::Serialize;

use retired::Retired;

pub use definition::Definition;

/// What the name of a definition's file ends with: a text, a WebAssembly module.
pub const SUFFIXES: [&str; 2] = [".saga.yaml", ".saga.wasm"];

/// What a reload came to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Reloaded {
    /// Sagas in force, with their versions.
    pub sagas: BTreeMap<String, u32>,
    /// Those whose definition is another than before.
    pub changed: Vec<String>,
    /// Those that take no new instances any more.
    pub retired: Vec<String>,
}

/// Everything that is wrong with the definitions, one problem a line.
#[derive(Debug, thiserror::Error)]
#[error("{}", self.lines())]
pub struct Refused(pub Vec<Problem>);

impl Refused {
    fn lines(&self) -> String {
        let lines = self.0.iter().map(|problem| format!("\n  {problem}"));
        format!("the definitions are refused, nothing was changed:{}", lines.collect::<String>())
    }
}

/// The definitions of a process.
pub struct Definitions {
    folder: Option<PathBuf>,
    given: Vec<Definition>,
    in_force: RwLock<Arc<[Definition]>>,
}

impl Definitions {
    /// Definitions from a folder, and programs written in Rust. None is in force yet.
    #[must_use]
    pub fn new(folder: Option<PathBuf>, programs: Vec<Arc<dyn Program>>) -> Self {
        let given = programs.into_iter().map(|program| Definition {
            program,
            compiled: None,
            source: None,
            file: None,
        });
        Self { folder, given: given.collect(), in_force: RwLock::new(Arc::from([])) }
    }

    /// The definitions for new instances, in the order of their names.
    #[must_use]
    pub fn in_force(&self) -> Arc<[Definition]> {
        Arc::clone(&self.in_force.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Reads the folder anew and checks everything.
    ///
    /// # Errors
    /// Everything that is wrong, in all files.
    pub fn read(&self, catalog: &Catalog) -> Result<Vec<Definition>, Vec<Problem>> {
        let mut problems = Vec::new();
        let mut definitions = self.given.clone();
        for file in self.folder.iter().flat_map(|folder| list(folder)) {
            match file.and_then(|file| read(&file)) {
                Ok(definition) => definitions.push(definition),
                Err(found) => problems.extend(found),
            }
        }
        definitions.sort_by(|a, b| a.program.reference().saga.cmp(&b.program.reference().saga));
        problems.extend(definitions.iter().flat_map(|definition| hands::missing(definition, catalog)));
        problems.extend(definitions.windows(2).filter_map(|pair| twice(&pair[0], &pair[1])));
        if problems.is_empty() { Ok(definitions) } else { Err(problems) }
    }

    /// All programs: of the definitions given here and of those kept in the store, older ones first.
    #[must_use]
    pub fn programs(in_force: &[Definition], kept: &[(ProgramRef, Vec<u8>)]) -> Vec<Arc<dyn Program>> {
        let is_old = |reference: &ProgramRef| in_force.iter().all(|d| d.program.reference() != reference);
        let mut old: Vec<_> = kept.iter().filter(|(reference, _)| is_old(reference)).collect();
        old.sort_by_key(|(reference, _)| reference.version);
        let old = old.into_iter().filter_map(|(reference, source)| Retired::compile(reference, source));
        old.chain(in_force.iter().map(|definition| Arc::clone(&definition.program))).collect()
    }

    /// Makes these the definitions in force and tells what is different.
    pub fn put_in_force(&self, new: Vec<Definition>) -> Reloaded {
        let mut in_force = self.in_force.write().unwrap_or_else(PoisonError::into_inner);
        let old = std::mem::replace(&mut *in_force, Arc::from(new));
        let reference = |definition: &Definition| definition.program.reference().clone();
        let now: Vec<ProgramRef> = in_force.iter().map(reference).collect();
        let before: Vec<ProgramRef> = old.iter().map(reference).collect();
        let has = |set: &[ProgramRef], one: &ProgramRef| set.iter().any(|other| other.saga == one.saga);
        let names = |set: Vec<&ProgramRef>| set.into_iter().map(|one| one.saga.to_string()).collect();
        Reloaded {
            sagas: now.iter().map(|one| (one.saga.to_string(), one.version)).collect(),
            changed: names(now.iter().filter(|one| !before.contains(one)).collect()),
            retired: names(before.iter().filter(|one| !has(&now, one)).collect()),
        }
    }
}

impl fmt::Debug for Definitions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Definitions").field("folder", &self.folder).finish_non_exhaustive()
    }
}

/// Reads and compiles one file.
///
/// # Errors
/// Everything that is wrong with it.
pub fn read(file: &Path) -> Result<Definition, Vec<Problem>> {
    let unreadable = |error: &dyn fmt::Display| vec![problem(file, format!("cannot be read: {error}"))];
    let source = read_bounded(file).map_err(|error| unreadable(&error))?;
    let name = file.display().to_string();
    let (program, compiled): (Arc<dyn Program>, _) = if file.to_string_lossy().ends_with(SUFFIXES[1]) {
        (Arc::new(orlog_program::load_wasm(&source, &name)?), None)
    } else {
        let text = std::str::from_utf8(&source).map_err(|error| unreadable(&error))?;
        let compiled = Arc::new(orlog_program::compile_yaml(text, &name)?);
        (Arc::clone(&compiled) as Arc<dyn Program>, Some(compiled))
    };
    Ok(Definition { program, compiled, source: Some(source.into()), file: Some(file.to_owned()) })
}

/// Reads one byte more than a definition may have, so that a larger one is refused without reading it whole.
fn read_bounded(file: &Path) -> std::io::Result<Vec<u8>> {
    let limit = orlog_program::MAX_MODULE_BYTES.max(orlog_program::MAX_SOURCE_BYTES) as u64;
    let mut bytes = Vec::new();
    std::fs::File::open(file)?.take(limit + 1).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// The definition files of a folder, in the order of their names; instead of them, what is wrong with the folder.
#[must_use]
pub fn list(folder: &Path) -> Vec<Result<PathBuf, Vec<Problem>>> {
    let wrong = |error: std::io::Error| vec![problem(folder, format!("cannot be read: {error}"))];
    let entries = match std::fs::read_dir(folder) {
        Ok(entries) => entries,
        Err(error) => return vec![Err(wrong(error))],
    };
    let paths = entries.map(|entry| entry.map(|entry| entry.path()).map_err(wrong));
    let is_definition =
        |path: &PathBuf| SUFFIXES.iter().any(|suffix| path.to_string_lossy().ends_with(suffix));
    let mut files: Vec<_> = paths.filter(|path| path.as_ref().map_or(true, is_definition)).collect();
    files.sort_by(|a, b| a.as_ref().ok().cmp(&b.as_ref().ok()));
    files
}

fn twice(first: &Definition, second: &Definition) -> Option<Problem> {
    let saga = &first.program.reference().saga;
    let place = |definition: &Definition| match &definition.file {
        Some(file) => file.display().to_string(),
        None => "the program itself".to_owned(),
    };
    (saga == &second.program.reference().saga).then(|| Problem {
        suggestion: Some("keep the newest alone; older versions stay in the store".to_owned()),
        ..problem(Path::new(&place(second)), format!("the saga `{saga}` is defined in {} too", place(first)))
    })
}

fn problem(file: &Path, message: String) -> Problem {
    let file = file.display().to_string();
    Problem { file, line: 0, column: 0, path: String::new(), message, suggestion: None }
}
