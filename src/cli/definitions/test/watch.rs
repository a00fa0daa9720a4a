//! Reruns the tests when a file changes. Polls the modification times several times a second.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use super::files;
use crate::cli::console::note;
use crate::cli::exit::{CommandError, CommandExit};
use orlog_node::definitions;

/// Poll interval. Default: 300 ms.
const PAUSE: Duration = Duration::from_millis(300);

/// Runs immediately and after every change, until the process is stopped or its output is closed.
/// Reports the errors of an incompletely written file and waits for the next change.
pub(crate) fn run_on_change(
    paths: &[PathBuf],
    run: impl Fn() -> Result<(), CommandError>,
) -> Result<(), CommandError> {
    loop {
        // Before the run, so that a change during the run starts the next one.
        let before = poll(paths);
        if let Err(failure) = run() {
            // The output is closed: further runs would have no reader.
            if failure.exit() == CommandExit::Done {
                return Ok(());
            }
            note(&format!("error: {failure}"));
        }

        note("waiting for changes; stop with Ctrl-C");
        while poll(paths) == before {
            std::thread::park_timeout(PAUSE);
        }
    }
}

/// Returns the modification times of the test files and of all definitions in their directories.
fn poll(paths: &[PathBuf]) -> BTreeMap<PathBuf, Option<SystemTime>> {
    let tests: Vec<_> = paths
        .iter()
        .flat_map(|path| files::find(path))
        .filter_map(Result::ok)
        .collect();
    // Tests run with all definitions of their directory, so that each of them counts.
    let dirs = tests.iter().map(|file| match file.parent() {
        Some(dir) if !dir.as_os_str().is_empty() => dir.to_owned(),
        _ => PathBuf::from("."),
    });

    let definitions = dirs
        .flat_map(|dir| definitions::list_files(&dir))
        .filter_map(Result::ok);
    let all: Vec<_> = definitions.collect();
    tests
        .into_iter()
        .chain(all)
        // The paths are part of the comparison: a new or deleted file is a change too.
        .map(|file| (file.clone(), changed(&file)))
        .collect()
}

fn changed(file: &Path) -> Option<SystemTime> {
    std::fs::metadata(file)
        .and_then(|data| data.modified())
        .ok()
}
