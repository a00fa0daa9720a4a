//! `orlog saga show`: shows the state of an instance, what it waits for, and its history.

use serde_json::Value;

use crate::cli::client::ApiClient;
use crate::cli::console::{Console, items, note, text};
use crate::cli::exit::CommandError;

use super::control::InstanceArgs;
use super::history;

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
    /// Show each transition with its payloads, changed variables and attempts
    #[arg(long)]
    full: bool,
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
    context(&instance, console)?;
    steps(&instance["state"], console)?;
    console.line("")?;
    let records = items(&instance["history"], "items");

    if args.full {
        history::full(records, console)?;
    } else {
        history::table(records, console)?;
    }

    if let Some(next) = instance["history"]["next"].as_u64() {
        note(&format!(
            "more history available; use --history-after {next}"
        ));
    }
    Ok(())
}

fn facts(instance: &Value, console: &Console) -> Result<(), CommandError> {
    let paused = if instance["paused"].as_bool().unwrap_or_default() {
        " (paused)"
    } else {
        ""
    };
    let name = format!(
        "{} {}: ",
        text(instance, "saga"),
        text(instance, "correlation")
    );
    console.status(&name, &text(instance, "status"), paused)?;

    let definition = &instance["definition"];
    let joined = |field: &str, show: &dyn Fn(&Value) -> String| {
        items(instance, field)
            .iter()
            .map(show)
            .collect::<Vec<_>>()
            .join(", ")
    };
    let until = |name: &str, field: &str, value: &Value| match text(value, field) {
        until if until.is_empty() => text(value, name),
        until => format!("{} until {until}", text(value, name)),
    };

    let outbox =
        items(&instance["outbox"], "items")
            .iter()
            .map(|item| match text(item, "priority") {
                priority if priority == "normal" => text(item, "label"),
                priority => format!("{} ({priority})", text(item, "label")),
            });
    let result = &instance["result"];
    let result = format!("{} {}", text(result, "event"), text(result, "data"))
        .trim()
        .to_owned();

    let lines = [
        ("reference", reference(&instance["reference"])),
        (
            "definition",
            format!(
                "version {}, {}",
                text(definition, "version"),
                text(definition, "hash")
            ),
        ),
        ("attention", text(instance, "attention").replace('_', " ")),
        ("state version", text(instance, "version")),
        ("started", text(instance, "created_at")),
        (
            "updated",
            format!(
                "{} by {}",
                text(instance, "updated_at"),
                text(instance, "node")
            ),
        ),
        (
            "waiting for",
            joined("waits", &|wait| until("name", "until", wait)),
        ),
        (
            "wait tokens",
            joined("waits", &|wait| {
                format!("{} {}", text(wait, "name"), text(wait, "token"))
            }),
        ),
        (
            "timers",
            joined("timers", &|timer| until("name", "due", timer)),
        ),
        ("outbox", outbox.collect::<Vec<_>>().join(", ")),
        ("pending work", late_work(instance)),
        (
            "buffered inputs",
            Some(text(instance, "buffered_inputs"))
                .filter(|buffered| buffered != "0")
                .unwrap_or_default(),
        ),
        ("last error", failure(&instance["last_error"])),
        // A failed compensation is the last error. Its cause is why the instance stopped running
        // forward.
        ("cause", failure(&instance["last_error"]["cause"])),
        ("result", result),
        ("trace", text(instance, "trace_id")),
    ];
    let lines = lines.into_iter().chain(state(&instance["state"]));
    for (name, value) in lines.filter(|(_, value)| !value.is_empty()) {
        console.field(&format!("  {name}"), 17, &value)?;
    }
    Ok(())
}

/// Returns the tags of the work that an ended instance still waits for, which keeps it from a
/// restart. The steps of an instance that has not ended show their work themselves.
fn late_work(instance: &Value) -> String {
    let status = text(instance, "status");
    if !matches!(status.as_str(), "completed" | "failed" | "cancelled") {
        return String::new();
    }

    let tags: Vec<_> = items(instance, "pending_work")
        .iter()
        .map(|work| text(work, "tag"))
        .collect();
    tags.join(", ")
}

/// Returns a business reference: the name, or the parts as `customer=c-7, order=o-1`.
fn reference(reference: &Value) -> String {
    match reference {
        Value::Object(parts) => {
            let part = |(name, text): (&String, &Value)| {
                format!("{name}={}", text.as_str().unwrap_or_default())
            };
            parts.iter().map(part).collect::<Vec<_>>().join(", ")
        }
        name => name.as_str().unwrap_or_default().to_owned(),
    }
}

/// Returns an error with its step, attempts and time; nothing if there is none.
fn failure(error: &Value) -> String {
    if error.is_null() {
        return String::new();
    }

    let [code, message, step, attempts, at] =
        ["code", "message", "step", "attempts", "at"].map(|field| text(error, field));
    let attempts = if attempts.is_empty() {
        attempts
    } else {
        format!("{attempts} attempts")
    };
    let details: Vec<_> = [step, attempts, at]
        .into_iter()
        .filter(|detail| !detail.is_empty())
        .collect();
    let details = if details.is_empty() {
        String::new()
    } else {
        format!(", {}", details.join(", "))
    };
    format!("{message} ({code}){details}")
}

/// Prints what concerns the instance besides its snapshot: failed attempts of its pending work,
/// circuit breakers, buffered inputs and dead letters.
fn context(instance: &Value, console: &Console) -> Result<(), CommandError> {
    let line = |name: &str, value: String| console.field(&format!("  {name}"), 17, &value);
    for breaker in items(instance, "breakers") {
        let work: Vec<_> = items(breaker, "work")
            .iter()
            .filter_map(Value::as_str)
            .collect();
        let upstream = text(breaker, "upstream");
        let state = text(breaker, "state").replace('_', "-");

        line(
            "circuit breaker",
            format!("{upstream} is {state}; waiting: {}", work.join(", ")),
        )?;
    }

    for input in items(instance, "buffered") {
        let [label, at, reason] = ["label", "at", "reason"].map(|field| text(input, field));
        line("buffered", format!("{label} of {at} ({reason})"))?;
    }

    if let Some(early) = instance["state"]["early_events"].as_array() {
        let kinds: Vec<_> = early.iter().filter_map(Value::as_str).collect();
        line("early events", kinds.join(", "))?;
    }

    for event in items(instance, "ignored_events") {
        let [kind, id, at, reason] = ["type", "id", "at", "reason"].map(|field| text(event, field));
        line("ignored event", format!("{kind} {id} of {at}: {reason}"))?;
    }

    for letter in items(instance, "dead_letters") {
        let [id, label, reason, message] =
            ["id", "label", "reason", "message"].map(|field| text(letter, field));
        line("dead letter", format!("{id} {label}: {message} ({reason})"))?;
    }

    // The node keeps recent attempts in memory, also those of work that has ended meanwhile.
    let is_pending = |attempt: &&Value| {
        items(&instance["outbox"], "items")
            .iter()
            .any(|item| item["id"] == attempt["work_id"])
    };

    for attempt in items(instance, "attempts").iter().filter(is_pending) {
        line(
            "attempt",
            format!("{} {}", text(attempt, "label"), history::attempt(attempt)),
        )?;
    }
    Ok(())
}

/// Returns whether the state belongs to a definition with steps.
fn has_steps(state: &Value) -> bool {
    // A native or WebAssembly program can have a state with a field of this name.
    let steps = state["steps"]
        .as_array()
        .is_some_and(|steps| steps.iter().all(is_step));
    steps && state["phase"].is_string() && state["vars"].is_object()
}

fn is_step(step: &Value) -> bool {
    step["id"].is_string() && step["state"].is_string()
}

/// Returns the fields of the state except its steps.
fn state(state: &Value) -> Vec<(&'static str, String)> {
    if !has_steps(state) {
        return vec![("state", state.to_string())];
    }
    let vars = Some(state["vars"].to_string()).filter(|vars| vars != "{}");
    vec![
        ("failed step", text(&state["failure"], "step")),
        ("vars", vars.unwrap_or_default()),
    ]
}

/// Returns the state of a step; for a loop and its steps, also the current round after the first
/// one; whether the job of a running step waits for a worker; and a failure after which the saga
/// runs on.
fn step_state(step: &Value) -> String {
    if step["state"] == "running" && step["job"] == "dispatched" {
        return "running, job dispatched".to_owned();
    }
    // A loop has a list of rounds, and its steps have a number.
    let current = items(step, "rounds").last().unwrap_or(step);
    let mut state = text(step, "state");
    if let Some(round) = current["round"].as_u64().filter(|round| *round > 0) {
        state = format!("{state}, round {round}");
    }

    let Some(code) = step["failure"]["code"].as_str() else {
        return state;
    };
    let handler = text(&step["failure"], "handled_by");
    format!("{state}: {code} ({handler})")
}

fn steps(state: &Value, console: &Console) -> Result<(), CommandError> {
    if !has_steps(state) {
        return Ok(());
    }
    console.line("")?;
    let rows: Vec<_> = items(state, "steps").iter().map(step_row).collect();
    console.table(&["STEP", "STATE", "DEADLINE"], &rows, "no steps")
}

fn step_row(step: &Value) -> Vec<String> {
    vec![text(step, "id"), step_state(step), text(step, "until")]
}
