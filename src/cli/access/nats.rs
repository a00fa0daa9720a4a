//! `orlog nats permissions`: the users of contexts on NATS.

use clap::Subcommand;
use orlog_bus::nats::{self, NatsRegistry};
use orlog_bus::registry::Registry as _;
use orlog_model::{EffectName, TenantId};
use serde_json::json;

use crate::cli::config_flags::ConfigFlags;
use crate::cli::console::Console;
use crate::cli::exit::CommandError;
use orlog_node::access::{Directory, nats_authorization, nats_consumers};
use orlog_node::config::BusKind;
use orlog_node::transport;

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Print the users of the nodes and of all contexts with their permissions, as configuration of
    /// a NATS server
    Permissions(Args),
}

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Effect whose commands the executors of each context take from NATS; no node may execute it
    #[arg(long = "effect", value_name = "EFFECT", value_parser = effect)]
    effects: Vec<EffectName>,
    /// Create the consumers of the users instead of printing the configuration
    #[arg(long)]
    create_consumers: bool,
    #[command(flatten)]
    flags: ConfigFlags,
}

fn effect(text: &str) -> Result<EffectName, String> {
    EffectName::new(text).map_err(|error| error.to_string())
}

pub(crate) async fn run(command: Command, console: &Console) -> Result<(), CommandError> {
    let Command::Permissions(Args {
        effects,
        create_consumers,
        flags,
    }) = command;
    let config = flags.load()?;
    if config.bus.kind != BusKind::Nats {
        return Err(CommandError::usage(
            "`bus.kind` is \"embedded\"; state the configuration of a node with bus.kind = \
             \"nats\" (--config)",
        ));
    }

    let connection = transport::connect(&config).await?;
    let registry = NatsRegistry::open(&connection)
        .await
        .map_err(anyhow::Error::from)?;
    let directory = Directory::of(&registry.view().borrow().clone(), &Directory::default());
    let contexts: Vec<TenantId> = directory.contexts.into_keys().collect();

    // Two calls, because the second one needs an account that can create consumers, and the server
    // has to load the printed users in between.
    if !create_consumers {
        // The users of nodes subscribe to a subject with the name of the node.
        let node = config.identity_name();
        let node =
            node.map_err(|error| CommandError::usage(format!("{error}; set identity.name")))?;
        let text = nats_authorization(&node, &contexts, &effects);
        return if console.is_json() {
            console.json(&json!({ "authorization": text }))
        } else {
            console.line(text.trim_end())
        };
    }

    let consumers = nats_consumers(&contexts, &effects);
    for consumer in &consumers {
        // Users of contexts cannot create consumers: a consumer can copy messages into the subjects
        // of another tenant.
        nats::create_consumer(&connection, consumer)
            .await
            .map_err(anyhow::Error::from)?;
    }

    let names: Vec<_> = consumers
        .iter()
        .map(|consumer| format!("{} {}", consumer.stream, consumer.name))
        .collect();
    if console.is_json() {
        return console.json(&json!({ "consumers": names }));
    }

    let rows: Vec<_> = names.into_iter().map(|name| vec![name]).collect();
    console.table(&["CONSUMER"], &rows, "no contexts")
}
