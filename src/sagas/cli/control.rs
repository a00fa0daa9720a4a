//! `orlog saga signal|cancel|pause|resume|retry|skip|force-complete|drop`: sends a control request to one
//! instance. The response arrives after the commit is durable.

use serde_json::{Map, Value, json};

use crate::cli::client::{ApiClient, ServerArgs, fields, path};
use crate::cli::console::{Console, text};
use crate::cli::exit::CommandError;

/// Instance to select.
#[derive(Debug, clap::Args)]
pub(crate) struct InstanceArgs {
    /// Saga name
    pub(crate) saga: String,
    /// Correlation id
    pub(crate) correlation: String,
    #[command(flatten)]
    pub(crate) server: ServerArgs,
}

impl InstanceArgs {
    /// Returns the API path of the instance, or of an action on it.
    pub(crate) fn path(&self, verb: Option<&str>) -> String {
        let mut parts = vec!["v1", "sagas", &self.saga, &self.correlation];
        parts.extend(verb);
        path(&parts)
    }
}

#[derive(Debug, clap::Args)]
pub(crate) struct ControlArgs {
    #[command(flatten)]
    which: InstanceArgs,
    /// Idempotency key of the request
    #[arg(long)]
    id: Option<String>,
    /// Reject the request unless the instance has this version
    #[arg(long, value_name = "VERSION")]
    expected_version: Option<u64>,
    /// User name recorded in the history
    #[arg(long, value_name = "NAME", env = "USER", hide_env_values = true)]
    user: Option<String>,
    /// Reason recorded in the history
    #[arg(long)]
    reason: Option<String>,
}

#[derive(Debug, clap::Args)]
pub(crate) struct SignalArgs {
    #[command(flatten)]
    control: ControlArgs,
    /// Event type
    #[arg(long = "type", value_name = "TYPE")]
    kind: String,
    /// Event payload as JSON
    #[arg(long, value_name = "JSON", default_value = "null")]
    data: String,
}

pub(crate) async fn send_action(
    verb: &str,
    args: ControlArgs,
    console: &Console,
) -> Result<(), CommandError> {
    instruct(verb, &args, Map::new(), console).await
}

pub(crate) async fn signal(args: SignalArgs, console: &Console) -> Result<(), CommandError> {
    let data: Value = serde_json::from_str(&args.data)
        .map_err(|error| CommandError::usage(format!("--data is not JSON: {error}")))?;
    let fields = [("type".to_owned(), json!(args.kind)), ("data".to_owned(), data)];
    instruct("signal", &args.control, Map::from_iter(fields), console).await
}

async fn instruct(
    verb: &str,
    args: &ControlArgs,
    mut body: Map<String, Value>,
    console: &Console,
) -> Result<(), CommandError> {
    let ControlArgs { id, user, reason, expected_version, .. } = args;
    body.extend(fields([
        ("id", json!(id)),
        ("user", json!(user)),
        ("reason", json!(reason)),
        ("expected_version", json!(expected_version)),
    ]));
    let client = ApiClient::new(&args.which.server)?;
    let response = client.post(&args.which.path(Some(verb)), Some(&Value::Object(body))).await?;
    if console.is_json() {
        return console.json(&response);
    }
    let InstanceArgs { saga, correlation, .. } = &args.which;
    if verb == "drop" {
        return console.line(&format!("{saga} {correlation}: dropped"));
    }
    let paused = if response["paused"].as_bool().unwrap_or_default() { ", paused" } else { "" };
    let reason = Some(text(&response, "reason")).filter(|reason| !reason.is_empty());
    let unchanged = reason.map(|reason| format!("; no effect: {reason}")).unwrap_or_default();
    console.status(
        &format!("{saga} {correlation}: "),
        &text(&response, "status"),
        &format!("{paused}, version {}{unchanged}", text(&response, "version")),
    )
}
