//! Finds test files and the definitions they are about.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use orlog_model::SagaName;
use orlog_program::{Problem, Program};
use orlog_simulator::Programs;
use orlog_simulator::test_file::Book;

use crate::definitions;

/// What the name of a test file ends with.
pub(super) const SUFFIX: &str = ".saga.test.yaml";

/// A test file that was read, with the definitions of its folder.
pub(super) struct Suite {
    pub(super) file: String,
    pub(super) book: Book,
    pub(super) saga: SagaName,
    pub(super) programs: Arc<Programs>,
}

/// The test files under a path, in the order of their names; instead of one, what is wrong.
pub(super) fn find(path: &Path) -> Vec<Result<PathBuf, Vec<Problem>>> {
    if !path.is_dir() {
        return vec![Ok(path.to_owned())];
    }
    let wrong = |error: std::io::Error| vec![problem(path, format!("cannot be read: {error}"))];
    let entries = match std::fs::read_dir(path) {
        Ok(entries) => entries.collect::<Result<Vec<_>, _>>(),
        Err(error) => Err(error),
    };
    let mut paths: Vec<_> = match entries {
        Ok(entries) => entries.into_iter().map(|entry| entry.path()).collect(),
        Err(error) => return vec![Err(wrong(error))],
    };
    paths.sort();
    paths.iter().flat_map(|path| inside(path)).collect()
}

/// Hidden folders are left alone, and links, which may go round in circles.
fn inside(path: &Path) -> Vec<Result<PathBuf, Vec<Problem>>> {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let hidden = name.starts_with('.') || name == "target";
    if path.is_dir() && !path.is_symlink() && !hidden {
        return find(path);
    }
    if name.ends_with(SUFFIX) { vec![Ok(path.to_owned())] } else { Vec::new() }
}

/// Reads a test file and compiles what it is about.
pub(super) fn read(file: &Path) -> Result<Suite, Vec<Problem>> {
    let shown = file.display().to_string();
    let text = std::fs::read_to_string(file)
        .map_err(|error| vec![problem(file, format!("cannot be read: {error}"))])?;
    let book = Book::read(&text, &shown)?;
    let folder = file.parent().unwrap_or(Path::new(""));
    let tested = definitions::read(&folder.join(&book.definition))?;
    let saga = tested.program.reference().saga.clone();
    let mut programs = beside(folder, &saga);
    programs.push(tested.program);
    Ok(Suite { file: shown, book, saga, programs: Arc::new(Programs::new(programs)) })
}

/// The other definitions of a folder: sagas that the tested one begins, or that begin with its facts. Those that are wrong
/// are not there; `orlog check` says what is wrong with them.
pub(in crate::cli) fn beside(folder: &Path, saga: &SagaName) -> Vec<Arc<dyn Program>> {
    let folder = if folder.as_os_str().is_empty() { Path::new(".") } else { folder };
    let files = definitions::list(folder).into_iter().filter_map(Result::ok);
    let found = files.filter_map(|file| definitions::read(&file).ok());
    found.map(|definition| definition.program).filter(|program| program.reference().saga != *saga).collect()
}

/// A problem with a file as a whole.
fn problem(file: &Path, message: String) -> Problem {
    let file = file.display().to_string();
    Problem { file, line: 0, column: 0, path: String::new(), message, suggestion: None }
}
