//! `orlog man`: writes the manual pages of all commands.

use std::path::PathBuf;

use clap::Command;

use super::exit::CommandError;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Directory of the pages; created if it is missing
    dir: PathBuf,
}

pub(crate) fn run(args: &Args, commands: Command) -> Result<(), CommandError> {
    let written = std::fs::create_dir_all(&args.dir)
        .and_then(|()| clap_mangen::generate_to(commands, &args.dir));
    written.map_err(|error| {
        CommandError::failed(format!(
            "cannot write the manual pages to {}: {error}",
            args.dir.display()
        ))
    })
}
