//! `orlog task show`: what somebody is asked, and what happened.

use serde_json::Value;

use crate::cli::client::{Client, Server, path};
use crate::cli::console::{Console, items, text};
use crate::cli::exit::Failure;

/// Which task.
#[derive(Debug, clap::Args)]
pub(in crate::cli) struct Args {
    /// The task's id
    task: String,
    #[command(flatten)]
    server: Server,
}

pub(super) async fn perform(args: Args, console: &Console) -> Result<(), Failure> {
    let client = Client::new(&args.server)?;
    let task = client.get(&path(&["v1", "tasks", &args.task]), &[]).await?;
    if console.is_json() {
        return console.json(&task);
    }
    console.line(&format!("{}: {}", text(&task, "title"), text(&task, "status")))?;
    let joined =
        |field: &str| items(&task, field).iter().filter_map(Value::as_str).collect::<Vec<_>>().join(", ");
    let lines = [
        ("saga", format!("{} {}", text(&task, "saga"), text(&task, "correlation"))),
        ("step", text(&task, "tag")),
        ("roles", joined("roles")),
        ("assigned to", text(&task, "assignee")),
        ("claimed by", text(&task, "claimed_by")),
        ("due", text(&task, "due")),
        ("outcomes", joined("outcomes")),
        ("chosen", text(&task, "outcome")),
        ("data", text(&task, "data")),
    ];
    for (name, value) in lines.into_iter().filter(|(_, value)| !value.is_empty()) {
        console.line(&format!("  {name:<14} {value}"))?;
    }
    console.line("")?;
    let fields = ["at", "what", "by", "assignee", "outcome", "reason"];
    let rows: Vec<Vec<String>> =
        items(&task, "events").iter().map(|event| fields.map(|field| text(event, field)).into()).collect();
    console.table(&["AT", "WHAT", "BY", "TO", "CHOSEN", "REASON"], &rows, "no events")
}
