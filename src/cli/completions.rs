//! `orlog completions`: a script that completes this command line in a shell.

use clap::Command;
use clap_complete::{Shell, generate};

use super::console::Console;
use super::exit::Failure;

/// For which shell.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// The shell
    shell: Shell,
}

pub(super) fn perform(args: &Args, mut commands: Command, console: &Console) -> Result<(), Failure> {
    let mut script = Vec::new();
    generate(args.shell, &mut commands, "orlog", &mut script);
    console.line(String::from_utf8_lossy(&script).trim_end())
}
