//! `orlog completions`: prints a shell completion script.

use clap::Command;
use clap_complete::{Shell, generate};

use super::console::Console;
use super::exit::CommandError;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Shell
    shell: Shell,
}

pub(crate) fn run(
    args: &Args,
    mut commands: Command,
    console: &Console,
) -> Result<(), CommandError> {
    let mut script = Vec::new();
    generate(args.shell, &mut commands, "orlog", &mut script);
    console.line(String::from_utf8_lossy(&script).trim_end())
}
