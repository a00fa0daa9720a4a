//! `orlog streams`: compares the JetStream streams, and the consumers of effects, with the
//! configuration and applies the differences.

use orlog_bus::nats::StreamDiff;
use orlog_model::Clock as _;
use orlog_node::clock::SystemClock;
use orlog_node::config::BusKind;
use orlog_node::{effects, transport};

use super::config_flags::ConfigFlags;
use super::console::Console;
use super::exit::CommandError;

/// Command on the streams.
#[derive(Debug, clap::Subcommand)]
pub(crate) enum Command {
    /// Create missing streams and update mutable settings; with the configuration of an effect
    /// node, also arrange the consumers of effects. Deletes no data
    Apply(Args),
    /// Show the differences from the configuration; exit code 1 if there are any
    Diff(Args),
}

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    flags: ConfigFlags,
}

pub(crate) async fn run(command: Command, console: &Console) -> Result<(), CommandError> {
    let (args, change) = match command {
        Command::Apply(args) => (args, true),
        Command::Diff(args) => (args, false),
    };
    let config = args.flags.load()?;
    if config.bus.kind != BusKind::Nats {
        return Err(CommandError::usage(
            "there are no JetStream streams, because `bus.kind` is \"embedded\"; state the \
             configuration of a node with bus.kind = \"nats\" (--config)",
        ));
    }

    let connection = transport::connect(&config).await?;
    let streams = transport::streams(&connection, &config, SystemClock.now(), change).await;
    let mut found = streams.map_err(anyhow::Error::from)?;
    // Consumers follow, because they need their streams.
    let consumers = effects::arrange_consumers(&connection, &config, change).await;
    found.extend(consumers.map_err(anyhow::Error::from)?);

    // `apply` cannot resolve a rejected difference.
    let is_left = |difference: &StreamDiff| !change || difference.rejected.is_some();
    let left = found
        .iter()
        .filter(|difference| is_left(difference))
        .count();

    if console.is_json() {
        let rows = found.iter().map(|difference| {
            serde_json::json!({
                "stream": difference.stream,
                "field": difference.field,
                "changed": !is_left(difference),
                "rejected": difference.rejected,
            })
        });
        console.json(&serde_json::json!({ "differences": rows.collect::<Vec<_>>() }))?;
    } else {
        for difference in &found {
            let done = if is_left(difference) { "" } else { " - done" };
            console.line(&format!("{difference}{done}"))?;
        }
        if found.is_empty() {
            console.line("streams match the configuration")?;
        }
    }

    if left == 0 {
        Ok(())
    } else {
        Err(CommandError::failed(format!("{left} differences remain")))
    }
}
