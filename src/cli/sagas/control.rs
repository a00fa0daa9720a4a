//! `orlog saga signal|cancel|pause|resume|retry|skip|force-complete|drop`: sends a control request
//! to one instance. The response arrives after the commit is durable.

use serde_json::{Map, Value, json};

use crate::cli::client::{ApiClient, ServerArgs, fields, path};
use crate::cli::console::{Console, text};
use crate::cli::data::read_data;
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
    #[arg(long, visible_alias = "idempotency-key", value_name = "KEY")]
    id: Option<String>,
    /// Reject the request unless the instance has this version
    #[arg(long, value_name = "VERSION")]
    expected_version: Option<u64>,
    /// Reject the request unless the instance waits under this token
    #[arg(long, value_name = "TOKEN")]
    wait_token: Option<String>,
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
    /// Event payload as JSON; `@FILE` reads a file, `@-` standard input
    #[arg(long, value_name = "JSON", default_value = "null")]
    data: String,
    /// Deliver the signal at this time (RFC 3339) [default: at once]
    #[arg(long, value_name = "TIME")]
    due_at: Option<String>,
    /// Start the instance if it does not exist, with this data of its start event; `{}` without a
    /// value
    #[arg(long, value_name = "JSON", num_args = 0..=1, default_missing_value = "{}")]
    start: Option<String>,
    /// Start event [default: the first one of the definition]
    #[arg(long, value_name = "TYPE", requires = "start")]
    start_event: Option<String>,
    /// Policy if the instance has ended
    #[arg(long, value_name = "POLICY", requires = "start", value_parser = ["return", "restart"])]
    on_existing: Option<String>,
}

pub(crate) async fn send_action(
    verb: &str,
    args: ControlArgs,
    console: &Console,
) -> Result<(), CommandError> {
    instruct(verb, &args, Map::new(), console).await
}

pub(crate) async fn signal(args: SignalArgs, console: &Console) -> Result<(), CommandError> {
    let SignalArgs {
        control,
        kind,
        data,
        due_at,
        start,
        start_event,
        on_existing,
    } = args;

    let start = match start {
        Some(data) => Value::Object(fields([
            ("data", read_data("--start", &data)?),
            ("event", json!(start_event)),
            ("on_existing", json!(on_existing)),
        ])),
        None => Value::Null,
    };
    let body = fields([
        ("type", json!(kind)),
        ("data", read_data("--data", &data)?),
        ("due_at", json!(due_at)),
        ("start", start),
    ]);

    instruct("signal", &control, body, console).await
}

async fn instruct(
    verb: &str,
    args: &ControlArgs,
    mut body: Map<String, Value>,
    console: &Console,
) -> Result<(), CommandError> {
    let ControlArgs {
        id,
        user,
        reason,
        expected_version,
        wait_token,
        ..
    } = args;
    body.extend(fields([
        ("id", json!(id)),
        ("user", json!(user)),
        ("reason", json!(reason)),
        ("expected_version", json!(expected_version)),
        ("wait_token", json!(wait_token)),
    ]));

    let client = ApiClient::new(&args.which.server)?;
    let response = client
        .post(&args.which.path(Some(verb)), Some(&Value::Object(body)))
        .await?;
    if console.is_json() {
        return console.json(&response);
    }

    let InstanceArgs {
        saga, correlation, ..
    } = &args.which;
    // A dropped instance has no status and no version any more.
    if verb == "drop" {
        return console.line(&format!("{saga} {correlation}: dropped"));
    }

    let paused = if response["paused"].as_bool().unwrap_or_default() {
        ", paused"
    } else {
        ""
    };
    let reason = Some(text(&response, "reason")).filter(|reason| !reason.is_empty());
    let unchanged = match reason {
        Some(reason) if response["deferred"] == true => format!("; accepted: {reason}"),
        Some(reason) => format!("; no effect: {reason}"),
        None => String::new(),
    };

    console.status(
        &format!("{saga} {correlation}: "),
        &text(&response, "status"),
        &format!(
            "{paused}, version {}{unchanged}",
            text(&response, "version")
        ),
    )
}
