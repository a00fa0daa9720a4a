//! `orlog completions`: a script that completes this command line in a shell.

use clap::CommandFactory;
use clap_complete::{Shell, generate};

use super::Cli;
use super::console::Console;
use super::exit::Failure;

/// For which shell.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// The shell
    shell: Shell,
}

pub(super) fn perform(args: &Args, console: &Console) -> Result<(), Failure> {
    let mut script = Vec::new();
    generate(args.shell, &mut Cli::command(), "orlog", &mut script);
    console.line(String::from_utf8_lossy(&script).trim_end())
}
