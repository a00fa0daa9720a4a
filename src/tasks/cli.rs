//! `orlog task`: lists, claims and completes human tasks.

mod actions;
mod list;
mod show;

use clap::Subcommand;

use crate::cli::console::Console;
use crate::cli::exit::CommandError;

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// List tasks
    List(list::Args),
    /// Show a task with its events
    Show(show::Args),
    /// Claim a task exclusively
    Claim(actions::TaskActionArgs),
    /// Release a claimed task
    Release(actions::TaskActionArgs),
    /// Assign a task to another user
    Assign(actions::Assign),
    /// Complete a task; its saga continues
    Complete(actions::Complete),
}

pub(crate) async fn run(command: Command, console: &Console) -> Result<(), CommandError> {
    match command {
        Command::List(args) => list::run(args, console).await,
        Command::Show(args) => show::run(args, console).await,
        Command::Claim(args) => actions::claim_or_release("claim", args, console).await,
        Command::Release(args) => actions::claim_or_release("release", args, console).await,
        Command::Assign(args) => actions::assign(args, console).await,
        Command::Complete(args) => actions::complete(args, console).await,
    }
}
