//! `orlog replay`: replays the inputs that the bus still stores into the instances of a saga.

use std::time::Duration;

use clap::ValueEnum;
use serde_json::{Value, json};

use crate::cli::client::{ApiClient, ServerArgs};
use crate::cli::console::{Console, items, note, text};
use crate::cli::exit::{CommandError, CommandExit};

/// Maximum number of instances to print.
const MAX_ROWS: usize = 100;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Saga; its instances use the active definition
    #[arg(long)]
    saga: String,
    /// Start time of the replayed messages (RFC 3339), for example 2026-11-21T00:00:00Z
    #[arg(long, value_name = "TIME")]
    from: String,
    /// Handling of the requested work
    #[arg(
        long,
        value_enum,
        required_unless_present = "redeliver",
        conflicts_with = "redeliver"
    )]
    work: Option<WorkModeArg>,
    /// Reset the checkpoint of the saga: deliver the inputs that instances have not applied,
    /// without a rebuild
    #[arg(long)]
    redeliver: bool,
    /// Replay only these instances
    #[arg(long, value_name = "CORRELATION", num_args = 1..)]
    only: Vec<String>,
    /// Apply the replay; default: print the plan only
    #[arg(long)]
    yes: bool,
    /// Reason recorded in the history
    #[arg(long, value_name = "TEXT")]
    reason: Option<String>,
    /// User name recorded in the history
    #[arg(long, value_name = "NAME", env = "USER", hide_env_values = true)]
    user: Option<String>,
    /// Seconds to wait for the response; the node finishes the replay even if the client
    /// disconnects
    #[arg(long, value_name = "SECONDS", default_value_t = 3600)]
    wait: u64,
    #[command(flatten)]
    server: ServerArgs,
}

/// See [`Args::work`].
#[derive(Clone, Copy, Debug, ValueEnum)]
enum WorkModeArg {
    /// Dispatch no work; time passes as recorded
    Suppress,
    /// Dispatch work, under its old ids if the history has them, as if all inputs arrived now
    Emit,
}

pub(crate) async fn run(args: Args, console: &Console) -> Result<(), CommandError> {
    let client = ApiClient::new(&args.server)?;
    let work = args.work.map(|work| match work {
        WorkModeArg::Suppress => "suppress",
        WorkModeArg::Emit => "emit",
    });
    // Without `--yes`, the plan only: a replay replaces instances.
    let body = json!({
        "saga": args.saga, "from": args.from, "work": work, "redeliver": args.redeliver,
        "only": args.only,
        "dry_run": !args.yes, "user": args.user, "reason": args.reason,
    });

    let result = client
        // The response follows after all messages are read. The node finishes without a client too.
        .post_with_timeout("/v1/replays", Some(&body), Duration::from_secs(args.wait))
        .await?;
    if console.is_json() {
        console.json(&result)?;
    } else {
        report(&result, args.yes, args.redeliver, console)?;
    }

    // Skipped instances come first: they need a decision, whatever other pods have.
    match result["counts"]["skipped"].as_u64() {
        Some(skipped) if skipped > 0 => Err(CommandError::new(
            CommandExit::Rejected,
            format!("{skipped} instances were skipped"),
        )),
        _ => client.check_complete(),
    }
}

fn report(
    result: &Value,
    done: bool,
    redelivers: bool,
    console: &Console,
) -> Result<(), CommandError> {
    let changed: Vec<_> = items(result, "items")
        .iter()
        .filter(|one| one["result"] != "unchanged")
        .collect();
    let amount = if redelivers { "inputs" } else { "work" };
    let rows = changed.iter().take(MAX_ROWS).map(|one| {
        ["correlation", "result", "before", "after", amount, "reason"]
            .map(|name| text(one, name))
            .to_vec()
    });
    let rows: Vec<_> = rows.collect();
    let head = [
        "INSTANCE",
        "RESULT",
        "BEFORE",
        "AFTER",
        &amount.to_uppercase(),
        "REASON",
    ];
    console.table(&head, &rows, "no instance changes")?;

    if changed.len() > MAX_ROWS {
        note(&format!(
            "{} more are not printed; --output json lists all",
            changed.len() - MAX_ROWS
        ));
    }

    let counts = &result["counts"];
    let changed = if redelivers {
        "redelivered"
    } else {
        "replaced"
    };
    let results = ["created", changed, "unchanged", "skipped"]
        .map(|name| format!("{} {name}", counts[name]))
        .join(", ");
    let end = if done {
        ""
    } else {
        "; no changes made: apply with --yes"
    };

    console.line(&format!("{} messages read; {results}{end}", result["read"]))
}
