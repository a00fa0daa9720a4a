//! Finds test files and the definitions under test.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use orlog_model::SagaName;
use orlog_program::{Diagnostic, Program, SagaInvariant};
use orlog_simulator::SimulatorPrograms;
use orlog_simulator::test_file::TestFile;

use orlog_node::definitions;
use orlog_node::definitions::files::TEST_SUFFIX;

/// Parsed test file with the definitions of its directory.
pub(crate) struct TestSuite {
    pub(crate) file: String,
    pub(crate) test_file: TestFile,
    pub(crate) saga: SagaName,
    pub(crate) programs: Arc<SimulatorPrograms>,
    /// Invariants of the test file.
    pub(crate) invariants: Arc<[SagaInvariant]>,
}

/// Returns the test files under a path, sorted by name, with diagnostics in place of unreadable
/// entries.
pub(crate) fn find(path: &Path) -> Vec<Result<PathBuf, Vec<Diagnostic>>> {
    if !path.is_dir() {
        return vec![Ok(path.to_owned())];
    }

    let read_error =
        |error: std::io::Error| vec![problem(path, format!("cannot be read: {error}"))];
    let entries = match std::fs::read_dir(path) {
        Ok(entries) => entries.collect::<Result<Vec<_>, _>>(),
        Err(error) => Err(error),
    };
    let mut paths: Vec<_> = match entries {
        Ok(entries) => entries.into_iter().map(|entry| entry.path()).collect(),
        Err(error) => return vec![Err(read_error(error))],
    };
    paths.sort();

    paths.iter().flat_map(|path| expand(path)).collect()
}

/// Searches a directory. Skips hidden directories, and symbolic links, because they can form
/// cycles.
fn expand(path: &Path) -> Vec<Result<PathBuf, Vec<Diagnostic>>> {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let hidden = name.starts_with('.') || name == "target";
    if path.is_dir() && !path.is_symlink() && !hidden {
        return find(path);
    }

    if name.ends_with(TEST_SUFFIX) {
        vec![Ok(path.to_owned())]
    } else {
        Vec::new()
    }
}

/// Reads a test file and compiles the definition under test.
pub(crate) fn read(file: &Path) -> Result<TestSuite, Vec<Diagnostic>> {
    let display_path = file.display().to_string();
    let text = std::fs::read_to_string(file)
        .map_err(|error| vec![problem(file, format!("cannot be read: {error}"))])?;
    let test_file = TestFile::parse(&text, &display_path)?;
    let dir = file.parent().unwrap_or(Path::new(""));
    let tested = definitions::load_file(&dir.join(&test_file.definition))?;
    let saga = tested.program.definition_ref().saga.clone();
    let invariants = test_file.compile_invariants(tested.program.as_ref(), &display_path)?;
    let mut programs = sibling_definitions(dir, &saga);
    programs.push(tested.program);

    Ok(TestSuite {
        file: display_path,
        test_file,
        saga,
        programs: Arc::new(SimulatorPrograms::new(programs)),
        invariants,
    })
}

/// Returns the other definitions of a directory: sagas that the tested saga starts, or that start
/// on its facts. Invalid definitions are omitted; `orlog check` reports their diagnostics.
pub(crate) fn sibling_definitions(dir: &Path, saga: &SagaName) -> Vec<Arc<dyn Program>> {
    let dir = if dir.as_os_str().is_empty() {
        Path::new(".")
    } else {
        dir
    };
    let files = definitions::list_files(dir)
        .into_iter()
        .filter_map(Result::ok);
    let found = files.filter_map(|file| definitions::load_file(&file).ok());

    found
        .map(|definition| definition.program)
        // Another version of the tested saga in the directory must not replace the tested one.
        .filter(|program| program.definition_ref().saga != *saga)
        .collect()
}

/// Creates a diagnostic about a whole file.
fn problem(file: &Path, message: String) -> Diagnostic {
    Diagnostic::of_file(file.display().to_string(), message)
}
