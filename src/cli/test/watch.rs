//! Runs again whenever a file changes: looks at the times of files a few times a second.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use super::files;
use crate::cli::console::remark;
use crate::cli::exit::{Exit, Failure};
use crate::definitions;

/// The pause between two looks.
const PAUSE: Duration = Duration::from_millis(300);

/// Runs at once and after every change, until the process is ended or nobody reads what it writes. What is wrong with a
/// file that is being written is told, and the next change is waited for.
pub(super) fn forever(paths: &[PathBuf], run: impl Fn() -> Result<(), Failure>) -> Result<(), Failure> {
    loop {
        let before = look(paths);
        if let Err(failure) = run() {
            if failure.exit() == Exit::Done {
                return Ok(());
            }
            remark(&format!("error: {failure}"));
        }
        remark("waiting for a change; end with ctrl-c");
        while look(paths) == before {
            std::thread::park_timeout(PAUSE);
        }
    }
}

/// When the test files and all definitions beside them were changed last.
fn look(paths: &[PathBuf]) -> BTreeMap<PathBuf, Option<SystemTime>> {
    let tests: Vec<_> = paths.iter().flat_map(|path| files::find(path)).filter_map(Result::ok).collect();
    let folders = tests.iter().map(|file| match file.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder.to_owned(),
        _ => PathBuf::from("."),
    });
    let definitions = folders.flat_map(|folder| definitions::list(&folder)).filter_map(Result::ok);
    let all: Vec<_> = definitions.collect();
    tests.into_iter().chain(all).map(|file| (file.clone(), changed(&file))).collect()
}

fn changed(file: &Path) -> Option<SystemTime> {
    std::fs::metadata(file).and_then(|data| data.modified()).ok()
}
