//! `orlog task show`: shows a task and its events.

use serde_json::Value;

use crate::cli::client::{ApiClient, ServerArgs, path};
use crate::cli::console::{Console, items, text};
use crate::cli::exit::CommandError;

/// Task to show.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Task id
    task: String,
    #[command(flatten)]
    server: ServerArgs,
}

pub(crate) async fn run(args: Args, console: &Console) -> Result<(), CommandError> {
    let client = ApiClient::new(&args.server)?;
    let task = client.get(&path(&["v1", "tasks", &args.task]), &[]).await?;
    if console.is_json() {
        return console.json(&task);
    }
    console.status(&format!("{}: ", text(&task, "title")), &text(&task, "status"), "")?;
    let joined =
        |field: &str| items(&task, field).iter().filter_map(Value::as_str).collect::<Vec<_>>().join(", ");
    let lines = [
        ("saga", format!("{} {}", text(&task, "saga"), text(&task, "correlation"))),
        ("step", text(&task, "tag")),
        ("roles", joined("roles")),
        ("assignee", text(&task, "assignee")),
        ("claimed by", text(&task, "claimed_by")),
        ("due", text(&task, "due")),
        ("outcomes", joined("outcomes")),
        ("outcome", text(&task, "outcome")),
        ("data", text(&task, "data")),
    ];
    for (name, value) in lines.into_iter().filter(|(_, value)| !value.is_empty()) {
        console.field(&format!("  {name}"), 16, &value)?;
    }
    console.line("")?;
    let fields = ["at", "kind", "user", "assignee", "outcome", "reason"];
    let rows: Vec<Vec<String>> =
        items(&task, "events").iter().map(|event| fields.map(|field| text(event, field)).into()).collect();
    console.table(&["TIME", "EVENT", "USER", "ASSIGNEE", "OUTCOME", "REASON"], &rows, "no events")
}
