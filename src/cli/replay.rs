//! `orlog replay`: the instances of a saga take again what the bus still has of their inputs.

use std::time::Duration;

use clap::ValueEnum;
use serde_json::{Value, json};

use super::client::{Client, Server};
use super::console::{Console, items, remark, text};
use super::exit::{Exit, Failure};

/// Instances that are shown one by one.
const SHOWN: usize = 100;

/// What to replay.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// The saga; its instances go by the definition that is in force
    #[arg(long)]
    saga: String,
    /// What was published then or later is read again, for example 2026-11-21T00:00:00Z
    #[arg(long, value_name = "TIME")]
    from: String,
    /// What becomes of the work that is asked for on the way
    #[arg(long, value_enum)]
    work: Work,
    /// Only these instances
    #[arg(long, value_name = "CORRELATION", num_args = 1..)]
    only: Vec<String>,
    /// Do it; without this nothing is changed, and it is said what would be
    #[arg(long)]
    yes: bool,
    /// Why, for the record
    #[arg(long, value_name = "TEXT")]
    reason: Option<String>,
    /// Who says so, for the record
    #[arg(long, value_name = "NAME", env = "USER", hide_env_values = true)]
    by: Option<String>,
    /// Seconds to wait for the answer; the node goes on to the end also when nobody waits
    #[arg(long, value_name = "SECONDS", default_value_t = 3600)]
    wait: u64,
    #[command(flatten)]
    server: Server,
}

/// See [`Args::work`].
#[derive(Clone, Copy, Debug, ValueEnum)]
enum Work {
    /// Nothing is sent or performed, and time passes as it did
    Suppress,
    /// It is sent and performed, under its old ids where the history tells them, as if everything came now
    Emit,
}

pub(super) async fn perform(args: Args, console: &Console) -> Result<(), Failure> {
    let client = Client::new(&args.server)?;
    let work = match args.work {
        Work::Suppress => "suppress",
        Work::Emit => "emit",
    };
    let body = json!({
        "saga": args.saga, "from": args.from, "work": work, "only": args.only, "dry_run": !args.yes,
        "by": args.by, "reason": args.reason,
    });
    let result = client.post_patiently("/v1/replays", Some(&body), Duration::from_secs(args.wait)).await?;
    if console.is_json() {
        console.json(&result)?;
    } else {
        report(&result, args.yes, console)?;
    }
    match result["counts"]["left"].as_u64() {
        Some(left) if left > 0 => Err(Failure::new(Exit::Refused, format!("{left} were left as they are"))),
        _ => Ok(()),
    }
}

fn report(result: &Value, done: bool, console: &Console) -> Result<(), Failure> {
    let changed: Vec<_> = items(result, "items").iter().filter(|one| one["fate"] != "unchanged").collect();
    let rows = changed.iter().take(SHOWN).map(|one| {
        ["correlation", "fate", "was", "becomes", "work", "why"].map(|name| text(one, name)).to_vec()
    });
    let rows: Vec<_> = rows.collect();
    let head = ["INSTANCE", "FATE", "WAS", "BECOMES", "WORK", "WHY"];
    console.table(&head, &rows, "no instance would stand otherwise than it stands")?;
    if changed.len() > SHOWN {
        remark(&format!("{} more are not shown; --output json lists all", changed.len() - SHOWN));
    }
    let counts = &result["counts"];
    let fates =
        ["new", "replaced", "unchanged", "left"].map(|fate| format!("{} {fate}", counts[fate])).join(", ");
    let end = if done { "" } else { "; nothing was changed: --yes does it" };
    console.line(&format!("{} messages read; {fates}{end}", result["read"]))
}
