//! Definition files: listed in a directory or sent to the node, read with a size limit, and
//! compiled.

use std::fmt;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use orlog_model::{DeployedSchedule, TenantId};
use orlog_program::{CompiledDefinition, Diagnostic, Program, is_built_in};
use sha2::{Digest as _, Sha256};

use crate::definitions::schedules::file::{ScheduleFile, is_schedule};

/// Suffixes of definition files: YAML text, WebAssembly module.
pub const SUFFIXES: [&str; 2] = [".saga.yaml", ".saga.wasm"];

/// Suffix of test files of definitions.
pub const TEST_SUFFIX: &str = ".saga.test.yaml";

/// File of a definition.
#[derive(Clone, PartialEq, Eq)]
pub struct SourceFile {
    /// Path, or only the file name if the file is on another machine. Diagnostics use it.
    pub path: PathBuf,
    /// Content of the file.
    pub bytes: Arc<[u8]>,
}

impl SourceFile {
    /// Returns the file name without the directory.
    #[must_use]
    pub fn name(&self) -> String {
        self.path
            .file_name()
            .map(|name| name.to_string_lossy().into_owned())
            .unwrap_or_default()
    }
}

impl fmt::Debug for SourceFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({} bytes)", self.path.display(), self.bytes.len())
    }
}

/// Returns whether a file with this name is a definition.
#[must_use]
pub fn is_definition(name: &str) -> bool {
    SUFFIXES.iter().any(|suffix| name.ends_with(suffix))
}

/// Returns the definition files of a directory, sorted by name, or the error of the directory.
#[must_use]
pub fn list_files(dir: &Path) -> Vec<Result<PathBuf, Vec<Diagnostic>>> {
    list_matching(dir, is_definition)
}

/// Returns whether a file with this name can be deployed: a definition or a schedule.
#[must_use]
pub fn is_deployable(name: &str) -> bool {
    is_definition(name) || is_schedule(name)
}

/// Returns the files of a directory whose names match, sorted by name, or the error of the
/// directory.
pub fn list_matching(
    dir: &Path,
    matches: fn(&str) -> bool,
) -> Vec<Result<PathBuf, Vec<Diagnostic>>> {
    let read_error = |error: std::io::Error| vec![problem(dir, format!("cannot be read: {error}"))];
    let entries = match std::fs::read_dir(dir) {
        Ok(entries) => entries,
        Err(error) => return vec![Err(read_error(error))],
    };
    let paths = entries.map(|entry| entry.map(|entry| entry.path()).map_err(read_error));

    let mut files: Vec<_> = paths
        .filter(|path| {
            path.as_ref()
                // An error of the directory stays in the list, so that it is reported.
                .map_or(true, |path: &PathBuf| matches(&path.to_string_lossy()))
        })
        .collect();

    files.sort_by(|a, b| a.as_ref().ok().cmp(&b.as_ref().ok()));
    files
}

/// Reads the files of definitions and schedules of a directory, sorted by name.
///
/// # Errors
/// Every unreadable file.
pub fn read_dir(dir: &Path) -> Result<Vec<SourceFile>, Vec<Diagnostic>> {
    let mut files = Vec::new();
    let mut problems = Vec::new();
    for path in list_matching(dir, is_deployable) {
        match path.and_then(|path| read_file(&path)) {
            Ok(file) => files.push(file),
            Err(found) => problems.extend(found),
        }
    }

    if problems.is_empty() {
        Ok(files)
    } else {
        Err(problems)
    }
}

/// Reads one file.
///
/// # Errors
/// If it is unreadable.
pub fn read_file(path: &Path) -> Result<SourceFile, Vec<Diagnostic>> {
    let bytes = read_bounded(path)
        .map_err(|error| vec![problem(path, format!("cannot be read: {error}"))])?;
    Ok(SourceFile {
        path: path.to_owned(),
        bytes: bytes.into(),
    })
}

/// Reads at most one byte more than the size limit, so that a larger file is rejected without a
/// full read.
fn read_bounded(file: &Path) -> std::io::Result<Vec<u8>> {
    let limit = orlog_program::MAX_MODULE_BYTES.max(orlog_program::MAX_SOURCE_BYTES) as u64;
    let mut bytes = Vec::new();
    std::fs::File::open(file)?
        .take(limit + 1)
        .read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Reads and compiles one file.
///
/// # Errors
/// All diagnostics of the file.
pub fn load_file(file: &Path) -> Result<LoadedDefinition, Vec<Diagnostic>> {
    compile(&read_file(file)?)
}

/// Compiles the content of a file; the suffix of its name selects the language.
///
/// # Errors
/// All diagnostics of the file.
pub fn compile(file: &SourceFile) -> Result<LoadedDefinition, Vec<Diagnostic>> {
    let name = file.path.display().to_string();
    let (program, compiled): (Arc<dyn Program>, _) = if name.ends_with(SUFFIXES[1]) {
        (
            Arc::new(orlog_program::load_wasm(&file.bytes, &name)?),
            None,
        )
    } else {
        let text = std::str::from_utf8(&file.bytes)
            .map_err(|error| vec![problem(&file.path, format!("cannot be read: {error}"))])?;
        let compiled = Arc::new(orlog_program::compile_yaml(text, &name)?);
        (Arc::clone(&compiled) as Arc<dyn Program>, Some(compiled))
    };

    let saga = &program.definition_ref().saga;

    // The node starts and reads instances of its built-in sagas by their names.
    if is_built_in(saga.as_str()) {
        let message =
            format!("saga `{saga}`: names that start with `orlog.` are reserved; rename the saga");
        return Err(vec![problem(&file.path, message)]);
    }

    let source = Some(Arc::clone(&file.bytes));
    Ok(LoadedDefinition {
        program,
        compiled,
        source,
        file: Some(file.path.clone()),
        context: None,
    })
}

/// Parses a schedule file, and checks its saga. A schedule of a context belongs to its tenant.
///
/// # Errors
/// All diagnostics of the file.
pub(super) fn load_schedule<'a>(
    file: &SourceFile,
    context: Option<&TenantId>,
    programs: impl Iterator<Item = &'a dyn Program> + Clone,
) -> Result<DeployedSchedule, Vec<Diagnostic>> {
    let mut schedule = parse_schedule(file)?;
    if let Some(context) = context {
        schedule.assign_to(context).map_err(|error| vec![error])?;
    }
    schedule.check_saga(programs).map_err(|error| vec![error])?;
    Ok(schedule.deployed())
}

/// Reads and parses one schedule file.
///
/// # Errors
/// All diagnostics of the file.
pub fn load_schedule_file(file: &Path) -> Result<ScheduleFile, Vec<Diagnostic>> {
    parse_schedule(&read_file(file)?)
}

/// Parses a schedule file.
///
/// # Errors
/// All diagnostics of the file.
fn parse_schedule(file: &SourceFile) -> Result<ScheduleFile, Vec<Diagnostic>> {
    let text = std::str::from_utf8(&file.bytes)
        .map_err(|error| vec![problem(&file.path, format!("cannot be read: {error}"))])?;
    ScheduleFile::parse(text, &file.path.display().to_string())
}

/// Returns a digest of names and contents of files, independent of their order.
#[must_use]
pub fn digest(files: &[SourceFile]) -> [u8; 16] {
    let mut sorted: Vec<_> = files
        .iter()
        .map(|file| (file.name(), &file.bytes))
        .collect();
    sorted.sort();

    let mut sum = Sha256::new();
    for (name, bytes) in sorted {
        for part in [name.as_bytes(), bytes] {
            // The length comes first, so that different lists of parts never give the same input.
            sum.update((part.len() as u64).to_be_bytes());
            sum.update(part);
        }
    }

    let mut digest = [0; 16];
    digest.copy_from_slice(&sum.finalize()[..16]);
    digest
}

pub(super) fn problem(file: &Path, message: String) -> Diagnostic {
    Diagnostic::of_file(file.display().to_string(), message)
}

/// Definition for new instances.
#[derive(Clone)]
pub struct LoadedDefinition {
    /// Executable program.
    pub program: Arc<dyn Program>,
    /// Compiled form; `None` for a WebAssembly module or a built-in program.
    pub compiled: Option<Arc<CompiledDefinition>>,
    /// Source text or module; `None` for a built-in program. Loading it again gives the same
    /// program.
    pub source: Option<Arc<[u8]>>,
    /// Source file; `None` for a built-in program.
    pub file: Option<PathBuf>,
    /// Context that owns it; `None`: it is shared.
    pub context: Option<TenantId>,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(name: &str, bytes: &str) -> SourceFile {
        SourceFile {
            path: name.into(),
            bytes: bytes.as_bytes().into(),
        }
    }

    #[test]
    fn digest_depends_on_names_and_contents_only() {
        let (a, b) = (file("x/a.saga.yaml", "1"), file("x/b.saga.yaml", "2"));
        let whole = digest(&[a.clone(), b.clone()]);
        assert_eq!(
            digest(&[b.clone(), file("y/a.saga.yaml", "1")]),
            whole,
            "order and directory do not matter"
        );
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
    fn definition_files_are_listed_in_name_order() {
        let dir = tempfile::tempdir().unwrap();
        for name in [
            "b.saga.yaml",
            "a.saga.wasm",
            "notes.txt",
            "c.saga.test.yaml",
            "saga.yaml",
        ] {
            std::fs::write(dir.path().join(name), name).unwrap();
        }
        let files = read_dir(dir.path()).unwrap();
        let names: Vec<_> = files.iter().map(SourceFile::name).collect();
        assert_eq!(names, ["a.saga.wasm", "b.saga.yaml"]);
        assert_eq!(&*files[1].bytes, b"b.saga.yaml");
        let missing = read_dir(&dir.path().join("nowhere")).unwrap_err();
        assert!(
            missing[0].to_string().contains("nowhere: cannot be read"),
            "{missing:?}"
        );
    }
}
