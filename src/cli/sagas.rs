//! `orlog saga`: inspects and controls saga instances.

mod control;
mod history;
mod list;
mod show;
mod start;

use clap::Subcommand;

use crate::cli::console::Console;
use crate::cli::exit::CommandError;

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// List instances
    List(list::Args),
    /// Show an instance with its state, pending work and history
    Show(show::Args),
    /// Start an instance, and wait for its result with --wait
    Start(start::StartArgs),
    /// Show the result of an instance, and wait for it with --wait
    Result(start::ResultArgs),
    /// Send an event to one instance only
    Signal(control::SignalArgs),
    /// Cancel an instance and compensate its completed steps
    Cancel(control::ControlArgs),
    /// Pause an instance: buffer inputs without applying them
    Pause(control::ControlArgs),
    /// Resume an instance: apply the buffered inputs and continue
    Resume(control::ControlArgs),
    /// Retry the failed action of a stuck instance
    Retry(control::ControlArgs),
    /// Skip the failed compensation of a stuck instance and continue
    Skip(control::ControlArgs),
    /// Force-complete a stuck instance: end it without further steps or compensations
    ForceComplete(control::ControlArgs),
    /// Delete a quarantined instance, whose stored data cannot be read
    Drop(control::ControlArgs),
}

pub(crate) async fn run(command: Command, console: &Console) -> Result<(), CommandError> {
    match command {
        Command::List(args) => list::run(args, console).await,
        Command::Show(args) => show::run(args, console).await,
        Command::Start(args) => start::start(args, console).await,
        Command::Result(args) => start::result(args, console).await,
        Command::Signal(args) => control::signal(args, console).await,
        Command::Cancel(args) => control::send_action("cancel", args, console).await,
        Command::Pause(args) => control::send_action("pause", args, console).await,
        Command::Resume(args) => control::send_action("resume", args, console).await,
        Command::Retry(args) => control::send_action("retry", args, console).await,
        Command::Skip(args) => control::send_action("skip", args, console).await,
        Command::ForceComplete(args) => control::send_action("force-complete", args, console).await,
        Command::Drop(args) => control::send_action("drop", args, console).await,
    }
}
