//! `orlog saga show`: shows the state of an instance, what it waits for, and its history.

use serde_json::Value;

use crate::cli::client::ApiClient;
use crate::cli::console::{Console, items, note, text};
use crate::cli::exit::CommandError;

use super::control::InstanceArgs;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    which: InstanceArgs,
    /// Show only history entries after this version
    #[arg(long, value_name = "VERSION", default_value_t = 0)]
    history_after: u64,
    /// Maximum number of history entries
    #[arg(long, value_name = "COUNT", default_value_t = 100)]
    history_limit: usize,
}

pub(crate) async fn run(args: Args, console: &Console) -> Result<(), CommandError> {
    let client = ApiClient::new(&args.which.server)?;
    let history = [
        ("history_after", args.history_after.to_string()),
        ("history_limit", args.history_limit.to_string()),
    ];
    let instance = client.get(&args.which.path(None), &history).await?;
    if console.is_json() {
        return console.json(&instance);
    }
    facts(&instance, console)?;
    steps(&instance["state"], console)?;
    console.line("")?;
    let records: Vec<_> = items(&instance["history"], "items").iter().map(record).collect();
    console.table(&["VERSION", "TIME", "INPUT", "NOTE", "STATUS", "WORK"], &records, "no history")?;
    if let Some(next) = instance["history"]["next"].as_u64() {
        note(&format!("more history available; use --history-after {next}"));
    }
    Ok(())
}

fn facts(instance: &Value, console: &Console) -> Result<(), CommandError> {
    let paused = if instance["paused"].as_bool().unwrap_or_default() { " (paused)" } else { "" };
    let name = format!("{} {}: ", text(instance, "saga"), text(instance, "correlation"));
    console.status(&name, &text(instance, "status"), paused)?;
    let definition = &instance["definition"];
    let error = &instance["last_error"];
    let joined = |field: &str, show: &dyn Fn(&Value) -> String| {
        items(instance, field).iter().map(show).collect::<Vec<_>>().join(", ")
    };
    let until = |name: &str, field: &str, value: &Value| match text(value, field) {
        until if until.is_empty() => text(value, name),
        until => format!("{} until {until}", text(value, name)),
    };
    let outbox =
        items(&instance["outbox"], "items").iter().map(|item| text(item, "label")).collect::<Vec<_>>();
    let lines = [
        ("reference", text(instance, "reference")),
        ("definition", format!("version {}, {}", text(definition, "version"), text(definition, "hash"))),
        ("state version", text(instance, "version")),
        ("started", text(instance, "created_at")),
        ("updated", format!("{} by {}", text(instance, "updated_at"), text(instance, "node"))),
        ("waiting for", joined("waits", &|wait| until("name", "until", wait))),
        ("timers", joined("timers", &|timer| until("name", "due", timer))),
        ("outbox", outbox.join(", ")),
        (
            "buffered inputs",
            Some(text(instance, "buffered_inputs")).filter(|buffered| buffered != "0").unwrap_or_default(),
        ),
        (
            "last error",
            if error.is_null() {
                String::new()
            } else {
                format!("{} ({})", text(error, "message"), text(error, "code"))
            },
        ),
        ("trace", text(instance, "trace_id")),
    ];
    let lines = lines.into_iter().chain(state(&instance["state"]));
    for (name, value) in lines.filter(|(_, value)| !value.is_empty()) {
        console.field(&format!("  {name}"), 17, &value)?;
    }
    Ok(())
}

/// Returns whether the state belongs to a definition with steps.
fn has_steps(state: &Value) -> bool {
    let is_step = |step: &Value| step["id"].is_string() && step["state"].is_string();
    let steps = state["steps"].as_array().is_some_and(|steps| steps.iter().all(is_step));
    steps && state["phase"].is_string() && state["vars"].is_object()
}

/// Returns the fields of the state except its steps.
fn state(state: &Value) -> Vec<(&'static str, String)> {
    if !has_steps(state) {
        return vec![("state", state.to_string())];
    }
    let vars = Some(state["vars"].to_string()).filter(|vars| vars != "{}");
    vec![("failed step", text(&state["failure"], "step")), ("vars", vars.unwrap_or_default())]
}

fn steps(state: &Value, console: &Console) -> Result<(), CommandError> {
    if !has_steps(state) {
        return Ok(());
    }
    console.line("")?;
    let row = |step: &Value| ["id", "state", "until"].map(|field| text(step, field)).to_vec();
    let rows: Vec<_> = items(state, "steps").iter().map(row).collect();
    console.table(&["STEP", "STATE", "DEADLINE"], &rows, "no steps")
}

fn record(record: &Value) -> Vec<String> {
    let work = items(record, "work").iter().map(|work| text(work, "label")).collect::<Vec<_>>().join(", ");
    let mut row: Vec<_> =
        ["version", "at", "input_label", "note", "status"].map(|field| text(record, field)).into();
    row.push(work);
    row
}
