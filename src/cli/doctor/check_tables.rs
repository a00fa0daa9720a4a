//! `orlog check-tables`: child process that reads all rows of one store. See `doctor/tables.rs`.
//!
//! It is internal, so the help, the suggestions and the shell completions do not contain it.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use crate::cli::console::Console;
use crate::cli::exit::CommandError;
use orlog_node::doctor::tables::COMMAND;

/// Returns the directory of the store if these are the arguments of the child process.
pub(crate) fn requested_dir(arguments: impl IntoIterator<Item = OsString>) -> Option<PathBuf> {
    let mut arguments = arguments.into_iter().skip(1);
    let is_requested = arguments.next().is_some_and(|command| command == COMMAND);
    arguments.next().filter(|_| is_requested).map(PathBuf::from)
}

/// Prints one line for each problem, then the number of rows.
pub(crate) fn run(dir: &Path, console: &Console) -> Result<(), CommandError> {
    let mut printed = Ok(());
    let rows = orlog_store::check_tables(dir, |problem| {
        // Each line is written at once: the next page can end the process.
        let kind = if problem.is_row { "row" } else { "damaged" };
        let line = format!(
            "{kind} {}: {}",
            problem.table,
            problem.reason.replace('\n', " ")
        );
        // The callback cannot return an error. The first one is kept, and nothing more is printed.
        printed = std::mem::replace(&mut printed, Ok(())).and_then(|()| console.line(&line));
    });
    printed?;

    // Damage is no failure of this command: its parent reads the lines, and takes another exit code
    // for a crash.
    match rows {
        Ok(rows) => console.line(&format!("checked {rows}")),
        Err(error) => console.line(&format!("damaged environment: {error}")),
    }
}
