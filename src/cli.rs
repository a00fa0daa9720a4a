//! The command line: one file a command, and what they share.
//!
//! Commands that look at a node or instruct it talk HTTP to it; only `dev`, `run`, `bench`, `check` and `inspect --data`
//! work on their own. Tables are for people, `--output json` is for programs. Exit codes are in [`exit`].

mod audit;
mod backup;
pub mod bench;
mod check;
mod client;
mod completions;
mod config_flags;
mod console;
mod deploy;
mod dev;
mod dlq;
mod doctor;
mod drain;
pub mod exit;
mod explore;
mod export;
mod graph;
mod inspect;
mod log_level;
mod migrate;
mod publish;
mod replay;
mod run;
mod saga;
mod schema;
mod serve;
mod simulate;
mod streams;
mod task;
mod test;
mod timers;

use std::process::ExitCode;

use clap::{CommandFactory, Parser, Subcommand};

use console::{Console, Output};
use exit::Failure;

/// Durable sagas: events in, commands and effects out, compensation and timers, and nothing lost or doubled.
#[derive(Debug, Parser)]
#[command(
    name = "orlog",
    version,
    propagate_version = true,
    arg_required_else_help = true,
    max_term_width = 100
)]
#[command(after_help = exit::HELP)]
struct Cli {
    /// How results are written
    #[arg(long, global = true, value_enum, env = "ORLOG_OUTPUT", default_value_t, hide_env_values = true)]
    output: Output,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run a node for development: everything in one process, and a word about what to do next
    Dev(dev::Args),
    /// Run a node
    Run(run::Args),
    /// Publish events from a file or standard input
    Publish(publish::Args),
    /// Look at saga instances and instruct them
    #[command(subcommand)]
    Saga(saga::Command),
    /// Look at tasks for people, take them and answer them
    #[command(subcommand)]
    Task(task::Command),
    /// Look at dead letters, send them again or discard them
    #[command(subcommand)]
    Dlq(dlq::Command),
    /// List timers in the order in which they fall due
    Timers(timers::Args),
    /// Print the rows of a table as they are stored
    Inspect(inspect::Args),
    /// Show who did what, newest first
    Audit(audit::Args),
    /// Keep a copy of instances and tasks in PostgreSQL, or write what changes to a file
    Export(export::Args),
    /// Look at everything that a node needs, and say what is wrong and what to do
    Doctor(doctor::Args),
    /// Copy what a node has stored, while it runs
    Backup(backup::Args),
    /// Make a data folder of a backup
    Restore(backup::Restore),
    /// Ask a node to finish what is under way, and to end
    Drain(drain::Args),
    /// Look at which lines a node logs, and change that while it runs
    LogLevel(log_level::Args),
    /// Put the definitions of a folder in force, in the place of all that are
    Deploy(deploy::Args),
    /// Move running instances to another definition of their saga
    Migrate(migrate::Args),
    /// Let the instances of a saga take their events again
    Replay(replay::Args),
    /// Compare the streams of NATS JetStream with the configuration, and bring them there
    #[command(subcommand)]
    Streams(streams::Command),
    /// Check definitions without running them
    Check(check::Args),
    /// Print the JSON Schema of definitions, for editors
    Schema,
    /// Play the test files that stand beside definitions
    Test(test::Args),
    /// Play recorded events against definitions, in virtual time
    Simulate(simulate::Args),
    /// Try random lives of definitions, and watch rules that hold for every life
    Explore(explore::Args),
    /// Draw a definition, and where an instance stands
    Graph(graph::Args),
    /// Measure what this machine does
    Bench(bench::Bench),
    /// Print the completions for a shell
    Completions(completions::Args),
}

/// Does what the arguments of the process say.
#[must_use]
pub fn main() -> ExitCode {
    let cli = Cli::parse();
    let console = Console::new(cli.output);
    let runtime = match tokio::runtime::Builder::new_multi_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            return Failure::internal(format!("the process cannot start threads: {error}")).report();
        }
    };
    let done = runtime.block_on(perform(cli.command, &console));
    // A thread that reads standard input would keep the process alive.
    runtime.shutdown_background();
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => failure.report(),
    }
}

async fn perform(command: Command, console: &Console) -> Result<(), Failure> {
    match command {
        Command::Dev(args) => dev::perform(args, console).await,
        Command::Run(args) => run::perform(args).await,
        Command::Publish(args) => publish::perform(args, console).await,
        Command::Saga(command) => saga::perform(command, console).await,
        Command::Task(command) => task::perform(command, console).await,
        Command::Dlq(command) => dlq::perform(command, console).await,
        Command::Timers(args) => timers::perform(args, console).await,
        Command::Inspect(args) => inspect::perform(args, console).await,
        Command::Audit(args) => audit::perform(args, console).await,
        Command::Export(args) => export::perform(args, console).await,
        Command::Backup(args) => backup::perform(args, console).await,
        Command::Restore(args) => backup::restore(args, console).await,
        Command::Doctor(args) => doctor::perform(args, console).await,
        Command::Drain(args) => drain::perform(args, console).await,
        Command::LogLevel(args) => log_level::perform(args, console).await,
        Command::Deploy(args) => deploy::perform(args, console).await,
        Command::Migrate(args) => migrate::perform(args, console).await,
        Command::Replay(args) => replay::perform(args, console).await,
        Command::Streams(command) => streams::perform(command, console).await,
        Command::Check(args) => check::perform(&args, console),
        Command::Schema => schema::perform(console),
        Command::Test(args) => test::perform(&args, console),
        Command::Simulate(args) => simulate::perform(&args, console),
        Command::Explore(args) => explore::perform(&args, console),
        Command::Graph(args) => graph::perform(args, console).await,
        Command::Bench(args) => measure(&args, console).await,
        Command::Completions(args) => completions::perform(&args, Cli::command(), console),
    }
}

async fn measure(bench: &bench::Bench, console: &Console) -> Result<(), Failure> {
    let report = serde_json::to_value(bench::run(bench).await?).map_err(anyhow::Error::from)?;
    if console.is_json() {
        return console.json(&report);
    }
    let figures = report.as_object().into_iter().flatten();
    let rows: Vec<_> = figures.map(|(name, _)| vec![name.clone(), console::text(&report, name)]).collect();
    console.table(&["FIGURE", "VALUE"], &rows, "nothing was measured")
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_arguments_fit_together() {
        <super::Cli as clap::CommandFactory>::command().debug_assert();
    }
}
