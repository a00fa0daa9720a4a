//! `orlog check-tables`: child process that reads all rows of one store. See `doctor/tables.rs`.

use std::path::PathBuf;

use crate::cli::console::Console;
use crate::cli::exit::CommandError;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Directory of the store
    dir: PathBuf,
}

/// Prints one line for each problem, then the number of rows.
pub(crate) fn run(args: &Args, console: &Console) -> Result<(), CommandError> {
    let mut printed = Ok(());
    let rows = orlog_store::check_tables(&args.dir, |problem| {
        // Each line is written at once: the next page can end the process.
        let kind = if problem.is_row { "row" } else { "damaged" };
        let line = format!("{kind} {}: {}", problem.table, problem.reason.replace('\n', " "));
        printed = std::mem::replace(&mut printed, Ok(())).and_then(|()| console.line(&line));
    });
    printed?;
    match rows {
        Ok(rows) => console.line(&format!("checked {rows}")),
        Err(error) => console.line(&format!("damaged environment: {error}")),
    }
}
