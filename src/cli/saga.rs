//! `orlog saga`: look at instances and instruct them.

mod control;
mod instance_arg;
mod list;
mod show;

use clap::Subcommand;

use super::console::Console;
use super::exit::Failure;

#[derive(Debug, Subcommand)]
pub(super) enum Command {
    /// Find instances
    List(list::Args),
    /// Show everything about an instance
    Show(show::Args),
    /// Hand an instance an event that is addressed to it alone
    Signal(control::Signal),
    /// Stop going forward and undo what was done
    Cancel(control::Plain),
    /// Keep inputs and apply none
    Pause(control::Plain),
    /// Apply what was kept, then go on
    Resume(control::Plain),
    /// Try again what made an instance stuck
    Retry(control::Plain),
    /// Leave undone what made an instance stuck, and go on
    Skip(control::Plain),
    /// End a stuck instance as it is: nothing more is done or undone
    ForceComplete(control::Plain),
}

pub(super) async fn perform(command: Command, console: &Console) -> Result<(), Failure> {
    match command {
        Command::List(args) => list::perform(args, console).await,
        Command::Show(args) => show::perform(args, console).await,
        Command::Signal(args) => control::signal(args, console).await,
        Command::Cancel(args) => control::plain("cancel", args, console).await,
        Command::Pause(args) => control::plain("pause", args, console).await,
        Command::Resume(args) => control::plain("resume", args, console).await,
        Command::Retry(args) => control::plain("retry", args, console).await,
        Command::Skip(args) => control::plain("skip", args, console).await,
        Command::ForceComplete(args) => control::plain("force-complete", args, console).await,
    }
}
