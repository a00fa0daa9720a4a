//! `orlog task`: what people are asked, and what they do about it.

mod actions;
mod list;
mod show;

use clap::Subcommand;

use super::console::Console;
use super::exit::Failure;

#[derive(Debug, Subcommand)]
pub(super) enum Command {
    /// Find tasks
    List(list::Args),
    /// Show a task and what happened to it
    Show(show::Args),
    /// Take a task, so that no other does
    Claim(actions::Plain),
    /// Give a task back
    Release(actions::Plain),
    /// Give a task to somebody else
    Assign(actions::Assign),
    /// Answer a task; its saga goes on
    Complete(actions::Complete),
}

pub(super) async fn perform(command: Command, console: &Console) -> Result<(), Failure> {
    match command {
        Command::List(args) => list::perform(args, console).await,
        Command::Show(args) => show::perform(args, console).await,
        Command::Claim(args) => actions::plain("claim", args, console).await,
        Command::Release(args) => actions::plain("release", args, console).await,
        Command::Assign(args) => actions::assign(args, console).await,
        Command::Complete(args) => actions::complete(args, console).await,
    }
}
