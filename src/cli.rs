//! Command line: the frame that the commands of the features share, and the commands that run a
//! node.
//!
//! Commands that inspect or control a node use its HTTP API. Only `dev`, `run`, `bench`, `check`
//! and `inspect --data` work without a node. Output is a table by default and JSON with `--output
//! json`. Exit codes are in [`exit`].

mod access;
mod audit;
mod backup;
mod batches;
pub mod bench;
pub(crate) mod client;
mod completions;
pub(crate) mod config_flags;
pub(crate) mod console;
mod credentials;
mod data;
mod dead_letters;
mod definitions;
mod dev;
mod doctor;
#[cfg(test)]
mod documented_names;
mod events;
pub mod exit;
mod export;
mod filter;
mod flows;
mod init;
mod jobs;
pub(crate) mod key;
pub(crate) mod key_store;
pub(crate) mod list;
mod man;
mod messages;
mod node;
mod peers;
pub(crate) mod printable;
mod replay;
mod resource;
mod run;
mod sagas;
mod schedules;
pub(crate) mod serve;
mod shadows;
mod streams;
mod tasks;
mod timers;
pub(crate) mod wait;

use std::process::ExitCode;

use clap::{CommandFactory, Parser, Subcommand};
use rustix::fs::Mode;

use console::{Console, Output};
use doctor::check_tables;
use exit::CommandError;

/// Durable saga runner: consumes events, sends commands, executes effects, and compensates failed
/// sagas.
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
    /// Output format
    #[arg(
        long,
        global = true,
        value_enum,
        env = "ORLOG_OUTPUT",
        default_value_t,
        hide_env_values = true
    )]
    output: Output,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Create a project: a definition with its test, a service or a worker, and a configuration
    Init(init::Args),
    /// Run a development node: all components in one process, with hints for the next steps
    Dev(dev::Args),
    /// Run a node
    Run(run::Args),
    /// Publish events from a file or standard input
    Publish(events::Args),
    /// Inspect and control saga instances
    #[command(subcommand)]
    Saga(sagas::Command),
    /// Execute jobs of script types in a sandbox, for a node
    #[cfg(feature = "script")]
    Runner(jobs::Args),
    /// Submit graphs of jobs, and show and control them
    #[command(subcommand)]
    Flow(flows::Command),
    /// Send messages to other contexts, and read and end received ones
    #[command(subcommand)]
    Message(messages::Command),
    /// Send an instruction to all instances that match a filter
    #[command(subcommand)]
    Batch(batches::Command),
    /// Compare a new version of a definition with the active one, by live instances
    #[command(subcommand)]
    Shadow(shadows::Command),
    /// Start sagas by cron expressions, at intervals or at one date
    #[command(subcommand)]
    Schedule(schedules::Command),
    /// Show and change who administers, reads and executes in a tenant
    #[command(subcommand)]
    Context(access::contexts::Command),
    /// Create and invite actors, and change their keys
    #[command(subcommand)]
    Actor(access::actors::Command),
    /// Show the identity of a node, and add, check and remove other nodes that it trusts
    #[command(subcommand)]
    Peer(peers::Command),
    /// List, claim and complete human tasks
    #[command(subcommand)]
    Task(tasks::Command),
    /// List, redrive and discard dead letters
    #[command(subcommand)]
    Dlq(dead_letters::Command),
    /// List timers by due time
    Timers(timers::Args),
    /// Print the stored rows of a table
    Inspect(node::Inspect),
    /// Show the audit trail, newest first
    Audit(audit::Args),
    /// Create, show and select the keys that sign requests
    #[command(subcommand)]
    Key(key::Command),
    /// Export instances and tasks to PostgreSQL or to a JSON Lines file
    Export(export::Args),
    /// Check the dependencies and settings of a node and print remedies
    Doctor(doctor::Args),
    /// Back up the stores of a node while it runs
    Backup(backup::Args),
    /// Restore a backup into a data directory
    Restore(backup::Restore),
    /// Rebuild the tables of a shard from its journal, or from a backup and the journal
    Rebuild(backup::rebuild::Args),
    /// Drain a node: finish in-flight work, then stop
    Drain(node::Drain),
    /// Show or change the log filter of a running node
    LogLevel(node::LogLevel),
    /// Deploy the definitions of a directory and replace all active definitions, shared or of a
    /// context
    Deploy(definitions::deploy::Args),
    /// Read the configuration, the definitions and the upstreams of a node again
    Reload(definitions::reload::Args),
    /// Migrate running instances to another version of their definition
    Migrate(definitions::migrate::Args),
    /// Replay recorded events into the instances of a saga
    Replay(replay::Args),
    /// Compare the JetStream streams with the configuration and apply the differences
    #[command(subcommand)]
    Streams(streams::Command),
    /// Print the users of contexts on NATS with their permissions
    #[command(subcommand)]
    Nats(access::nats::Command),
    /// Validate definitions
    Check(definitions::check::Args),
    /// Print the JSON Schema of definitions
    Schema,
    /// Run the test files of definitions
    Test(definitions::test::Args),
    /// Simulate definitions with recorded events in virtual time
    Simulate(definitions::simulate::Args),
    /// Explore random executions of definitions and check invariants
    Explore(definitions::explore::Args),
    /// Check invariants of definitions in every order of inputs
    Prove(definitions::prove::Args),
    /// Render a definition as a graph, optionally with the state of an instance
    Graph(definitions::graph::Args),
    /// Run benchmarks
    Bench(bench::BenchArgs),
    /// Generate shell completions
    Completions(completions::Args),
    /// Write the manual pages of all commands to a directory
    Man(man::Args),
}

/// Parses the arguments, runs the command and returns its exit code.
#[must_use]
pub fn run() -> ExitCode {
    // Before clap: the internal command is not part of the help, the suggestions or the
    // completions.
    if let Some(dir) = check_tables::requested_dir(std::env::args_os()) {
        return match check_tables::run(&dir, &Console::new(Output::Table)) {
            Ok(()) => ExitCode::SUCCESS,
            Err(failure) => failure.report(),
        };
    }

    let cli = Cli::parse();
    // Before the first thread starts: the mask belongs to the process.
    keep_files_private(&cli.command);
    let console = Console::new(cli.output);
    let runtime = match tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
    {
        Ok(runtime) => runtime,
        Err(error) => {
            return CommandError::internal(format!("cannot start threads: {error}")).report();
        }
    };

    let done = runtime.block_on(run_command(cli.command, &console));
    // A thread that reads standard input blocks the shutdown of the process.
    runtime.shutdown_background();
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => failure.report(),
    }
}

/// Makes the files and directories that a command creates accessible to its user only: stores,
/// journals, the audit trail, backups and exports contain the data of instances.
fn keep_files_private(command: &Command) {
    // `key` is absent: its files are created with their own mode.
    if matches!(
        command,
        Command::Dev(_)
            | Command::Run(_)
            | Command::Backup(_)
            | Command::Restore(_)
            | Command::Rebuild(_)
            | Command::Export(_)
    ) {
        rustix::process::umask(Mode::RWXG | Mode::RWXO);
    }
}

async fn run_command(command: Command, console: &Console) -> Result<(), CommandError> {
    match command {
        Command::Init(args) => init::run(&args, console),
        // Boxed: the future of this function is as large as that of its largest arm.
        Command::Dev(args) => Box::pin(dev::run(args, console)).await,
        Command::Run(args) => Box::pin(run::run(args)).await,
        Command::Publish(args) => events::run(args, console).await,
        Command::Saga(command) => sagas::run(command, console).await,
        #[cfg(feature = "script")]
        Command::Runner(args) => jobs::run(args, console).await,
        Command::Flow(command) => flows::run(command, console).await,
        Command::Message(command) => messages::run(command, console).await,
        Command::Batch(command) => batches::run(command, console).await,
        Command::Shadow(command) => shadows::run(command, console).await,
        Command::Schedule(command) => schedules::run(command, console).await,
        Command::Context(command) => access::contexts::run(command, console).await,
        Command::Actor(command) => access::actors::run(command, console).await,
        Command::Peer(command) => peers::run(command, console).await,
        Command::Task(command) => tasks::run(command, console).await,
        Command::Dlq(command) => dead_letters::run(command, console).await,
        Command::Timers(args) => timers::run(args, console).await,
        Command::Inspect(args) => node::inspect(args, console).await,
        Command::Audit(args) => audit::run(args, console).await,
        Command::Key(command) => key::run(command, console),
        Command::Export(args) => export::run(args, console).await,
        Command::Backup(args) => backup::run(args, console).await,
        Command::Restore(args) => backup::restore(args, console).await,
        Command::Rebuild(args) => backup::rebuild::run(args, console).await,
        Command::Doctor(args) => Box::pin(doctor::run(args, console)).await,
        Command::Drain(args) => node::drain(args, console).await,
        Command::LogLevel(args) => node::log_level(args, console).await,
        Command::Deploy(args) => definitions::deploy::run(args, console).await,
        Command::Reload(args) => definitions::reload::run(args, console).await,
        Command::Migrate(args) => definitions::migrate::run(args, console).await,
        Command::Replay(args) => replay::run(args, console).await,
        Command::Streams(command) => streams::run(command, console).await,
        Command::Nats(command) => access::nats::run(command, console).await,
        Command::Check(args) => definitions::check::run(&args, console),
        Command::Schema => console.json(&orlog_program::json_schema()),
        Command::Test(args) => definitions::test::run(&args, console),
        Command::Simulate(args) => definitions::simulate::run(&args, console),
        Command::Explore(args) => definitions::explore::run(&args, console),
        Command::Prove(args) => definitions::prove::run(&args, console),
        Command::Graph(args) => definitions::graph::run(args, console).await,
        Command::Bench(args) => measure(&args, console).await,
        Command::Completions(args) => completions::run(&args, Cli::command(), console),
        Command::Man(args) => man::run(&args, Cli::command()),
    }
}

async fn measure(bench: &bench::BenchArgs, console: &Console) -> Result<(), CommandError> {
    let report = serde_json::to_value(bench::run(bench).await?).map_err(anyhow::Error::from)?;
    if console.is_json() {
        return console.json(&report);
    }

    let metrics = report
        .as_object()
        .into_iter()
        .flatten()
        .filter(|(_, value)| !value.is_array());
    let rows: Vec<_> = metrics
        .map(|(name, _)| vec![name.clone(), console::text(&report, name)])
        .collect();
    console.table(&["FIGURE", "VALUE"], &rows, "no measurements")?;

    let intervals = console::items(&report, "intervals");
    let columns = [
        "second",
        "sagas_per_s",
        "p50_ms",
        "p99_ms",
        "rss_mib",
        "disk_mib",
        "purged",
    ];

    let rows: Vec<_> = intervals
        .iter()
        .map(|interval| {
            columns
                .iter()
                .map(|column| console::text(interval, column))
                .collect()
        })
        .collect();

    if rows.is_empty() {
        Ok(())
    } else {
        console.table(&columns, &rows, "")
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn command_line_definition_is_valid() {
        <super::Cli as clap::CommandFactory>::command().debug_assert();
    }

    /// An empty variable of a shell script must not select everything.
    #[test]
    fn commands_that_change_all_matches_reject_an_empty_filter() {
        let batch = ["orlog", "batch", "create", "cancel", "--saga", "order"];
        let redrive = ["orlog", "dlq", "redrive"];
        let of_batch = [
            "--status",
            "--prefix",
            "--updated-from",
            "--updated-until",
            "--created-from",
            "--created-until",
            "--filter",
        ];

        let lines = of_batch
            .iter()
            .map(|flag| [&batch[..], &[*flag, ""]].concat());
        let lines =
            lines.chain(["--reason", "--saga"].map(|flag| [&redrive[..], &[flag, ""]].concat()));
        for line in lines {
            let error = <super::Cli as clap::Parser>::try_parse_from(&line).err();
            let error = error.map(|error| error.to_string()).unwrap_or_default();
            assert!(error.contains("the filter is empty"), "{line:?}: {error}");
        }
    }

    /// One of 64 ids of keys starts with a hyphen.
    #[test]
    fn id_of_a_key_can_start_with_a_hyphen() {
        for id in ["-lIuK", "-hour", "--2Vx"] {
            for line in [
                format!("orlog peer add --from http://localhost --fingerprint {id}"),
                format!("orlog peer key add shop ed25519:x --replaces {id}"),
                format!("orlog peer key revoke shop {id} --output json"),
                format!("orlog actor key add ann default --replaces {id}"),
                format!("orlog actor key revoke ann {id}"),
            ] {
                let parsed = <super::Cli as clap::Parser>::try_parse_from(line.split(' '));
                assert!(parsed.is_ok(), "{line}: {}", parsed.err().unwrap());
            }
        }
    }
}
