//! `orlog streams`: compares the streams of JetStream with what the configuration wants, and brings them there.

use crate::app;
use crate::clock::SystemClock;
use orlog_model::Clock as _;

use super::config_flags::Flags;
use super::console::Console;
use super::exit::Failure;

/// What to do about the streams.
#[derive(Debug, clap::Subcommand)]
pub(super) enum Command {
    /// Make what is missing and change what may be changed; nothing is dropped
    Apply(Args),
    /// Show what differs from the configuration; exit code 1 when something does
    Diff(Args),
}

/// A configuration.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    #[command(flatten)]
    flags: Flags,
}

pub(super) async fn perform(command: Command, console: &Console) -> Result<(), Failure> {
    let (args, change) = match command {
        Command::Apply(args) => (args, true),
        Command::Diff(args) => (args, false),
    };
    let config = args.flags.load()?;
    let connection = app::connect(&config).await?;
    let found = app::streams(&connection, &config, SystemClock.now(), change).await;
    let found = found.map_err(anyhow::Error::from)?;
    let left = found.iter().filter(|difference| !change || difference.refused.is_some()).count();
    if console.is_json() {
        let rows = found.iter().map(|difference| {
            serde_json::json!({
                "stream": difference.stream,
                "what": difference.what,
                "changed": change && difference.refused.is_none(),
                "refused": difference.refused,
            })
        });
        console.json(&serde_json::json!({ "differences": rows.collect::<Vec<_>>() }))?;
    } else {
        for difference in &found {
            let done = if change && difference.refused.is_none() { " - done" } else { "" };
            console.line(&format!("{difference}{done}"))?;
        }
        if found.is_empty() {
            console.line("the streams are as the configuration wants them")?;
        }
    }
    if left == 0 { Ok(()) } else { Err(Failure::failed(format!("{left} differences are left"))) }
}
