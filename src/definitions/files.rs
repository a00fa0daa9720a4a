//! Files of definitions: found in a folder or sent to the node, read within a bound, and compiled.

use std::fmt;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use orlog_program::{Compiled, Problem, Program};
use sha2::{Digest as _, Sha256};

/// What the name of a definition's file ends with: a text, a WebAssembly module.
pub const SUFFIXES: [&str; 2] = [".saga.yaml", ".saga.wasm"];

/// A file of a definition.
#[derive(Clone, PartialEq, Eq)]
pub struct SourceFile {
    /// Where it lies, or only its name where it lies on another machine. Mistakes name it so.
    pub path: PathBuf,
    /// What is in it.
    pub bytes: Arc<[u8]>,
}

impl SourceFile {
    /// Its name without the folder.
    #[must_use]
    pub fn name(&self) -> String {
        self.path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default()
    }
}

impl fmt::Debug for SourceFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({} bytes)", self.path.display(), self.bytes.len())
    }
}

/// Whether a file with this name is a definition.
#[must_use]
pub fn is_definition(name: &str) -> bool {
    SUFFIXES.iter().any(|suffix| name.ends_with(suffix))
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
    let wanted = |path: &PathBuf| is_definition(&path.to_string_lossy());
    let mut files: Vec<_> = paths.filter(|path| path.as_ref().map_or(true, wanted)).collect();
    files.sort_by(|a, b| a.as_ref().ok().cmp(&b.as_ref().ok()));
    files
}

/// Reads the definition files of a folder, in the order of their names.
///
/// # Errors
/// Each that cannot be read.
pub fn read_folder(folder: &Path) -> Result<Vec<SourceFile>, Vec<Problem>> {
    let (mut files, mut problems) = (Vec::new(), Vec::new());
    for path in list(folder) {
        match path.and_then(|path| read_file(&path)) {
            Ok(file) => files.push(file),
            Err(found) => problems.extend(found),
        }
    }
    if problems.is_empty() { Ok(files) } else { Err(problems) }
}

fn read_file(path: &Path) -> Result<SourceFile, Vec<Problem>> {
    let bytes =
        read_bounded(path).map_err(|error| vec![problem(path, format!("cannot be read: {error}"))])?;
    Ok(SourceFile { path: path.to_owned(), bytes: bytes.into() })
}

/// Reads one byte more than a definition may have, so that a larger one is refused without reading it whole.
fn read_bounded(file: &Path) -> std::io::Result<Vec<u8>> {
    let limit = orlog_program::MAX_MODULE_BYTES.max(orlog_program::MAX_SOURCE_BYTES) as u64;
    let mut bytes = Vec::new();
    std::fs::File::open(file)?.take(limit + 1).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Reads and compiles one file.
///
/// # Errors
/// Everything that is wrong with it.
pub fn read(file: &Path) -> Result<Definition, Vec<Problem>> {
    compile(&read_file(file)?)
}

/// Compiles what a file holds; its name says in which language it is.
///
/// # Errors
/// Everything that is wrong with it.
pub(super) fn compile(file: &SourceFile) -> Result<Definition, Vec<Problem>> {
    let name = file.path.display().to_string();
    let (program, compiled): (Arc<dyn Program>, _) = if name.ends_with(SUFFIXES[1]) {
        (Arc::new(orlog_program::load_wasm(&file.bytes, &name)?), None)
    } else {
        let text = std::str::from_utf8(&file.bytes)
            .map_err(|error| vec![problem(&file.path, format!("cannot be read: {error}"))])?;
        let compiled = Arc::new(orlog_program::compile_yaml(text, &name)?);
        (Arc::clone(&compiled) as Arc<dyn Program>, Some(compiled))
    };
    let source = Some(Arc::clone(&file.bytes));
    Ok(Definition { program, compiled, source, file: Some(file.path.clone()) })
}

/// The names and contents of files as one number: equal only where both are, whatever the order.
#[must_use]
pub fn digest(files: &[SourceFile]) -> [u8; 16] {
    let mut sorted: Vec<_> = files.iter().map(|file| (file.name(), &file.bytes)).collect();
    sorted.sort();
    let mut sum = Sha256::new();
    for (name, bytes) in sorted {
        for part in [name.as_bytes(), bytes] {
            // The length first, so that no two lists of parts give the same text.
            sum.update((part.len() as u64).to_be_bytes());
            sum.update(part);
        }
    }
    let mut digest = [0; 16];
    digest.copy_from_slice(&sum.finalize()[..16]);
    digest
}

pub(super) fn problem(file: &Path, message: String) -> Problem {
    let file = file.display().to_string();
    Problem { file, line: 0, column: 0, path: String::new(), message, suggestion: None }
}

/// A definition for new instances.
#[derive(Clone)]
pub struct Definition {
    /// The program.
    pub program: Arc<dyn Program>,
    /// The compiled form; `None` for a WebAssembly module or a program that was handed over.
    pub compiled: Option<Arc<Compiled>>,
    /// Its source, text or module; `None` for a program that was handed over. Loading it again gives the same program.
    pub source: Option<Arc<[u8]>>,
    /// The file it was read from; `None` for a program that was handed over.
    pub file: Option<PathBuf>,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(name: &str, bytes: &str) -> SourceFile {
        SourceFile { path: name.into(), bytes: bytes.as_bytes().into() }
    }

    #[test]
    fn a_digest_depends_on_names_and_contents_and_on_nothing_else() {
        let (a, b) = (file("x/a.saga.yaml", "1"), file("x/b.saga.yaml", "2"));
        let whole = digest(&[a.clone(), b.clone()]);
        assert_eq!(digest(&[b.clone(), file("y/a.saga.yaml", "1")]), whole, "order and folder do not matter");
        for other in [
            vec![a.clone()],
            vec![],
            vec![a.clone(), file("b.saga.yaml", "3")],
            vec![a.clone(), file("c.saga.yaml", "2")],
            vec![file("a.saga.yam", "l1"), b.clone()],
        ] {
            assert_ne!(digest(&other), whole, "{other:?}");
        }
    }

    #[test]
    fn only_definitions_are_taken_from_a_folder_in_the_order_of_their_names() {
        let folder = tempfile::tempdir().unwrap();
        for name in ["b.saga.yaml", "a.saga.wasm", "notes.txt", "c.saga.test.yaml", "saga.yaml"] {
            std::fs::write(folder.path().join(name), name).unwrap();
        }
        let files = read_folder(folder.path()).unwrap();
        let names: Vec<_> = files.iter().map(SourceFile::name).collect();
        assert_eq!(names, ["a.saga.wasm", "b.saga.yaml"]);
        assert_eq!(&*files[1].bytes, b"b.saga.yaml");
        let missing = read_folder(&folder.path().join("nowhere")).unwrap_err();
        assert!(missing[0].to_string().contains("nowhere: cannot be read"), "{missing:?}");
    }
}
