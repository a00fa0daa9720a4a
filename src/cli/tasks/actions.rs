//! `orlog task claim|release|assign|complete`: performs a task action. The response arrives after
//! the commit is durable.

use serde_json::{Map, Value, json};

use crate::cli::client::{ApiClient, ServerArgs, fields, path};
use crate::cli::console::{Console, text};
use crate::cli::exit::CommandError;

#[derive(Debug, clap::Args)]
pub(crate) struct TaskUserArgs {
    /// Task id
    task: String,
    /// User name
    #[arg(long, value_name = "NAME", env = "USER", hide_env_values = true)]
    user: Option<String>,
    /// Reason recorded in the task
    #[arg(long)]
    reason: Option<String>,
    /// Idempotency key of the request
    #[arg(long)]
    id: Option<String>,
    /// Reject the request unless the instance has this version
    #[arg(long, value_name = "VERSION")]
    expected_version: Option<u64>,
    #[command(flatten)]
    server: ServerArgs,
}

#[derive(Debug, clap::Args)]
pub(crate) struct TaskActionArgs {
    #[command(flatten)]
    who: TaskUserArgs,
    /// Roles of the user, comma-separated
    #[arg(long = "role", value_name = "ROLE", value_delimiter = ',')]
    roles: Vec<String>,
}

#[derive(Debug, clap::Args)]
pub(crate) struct Assign {
    #[command(flatten)]
    who: TaskUserArgs,
    /// New assignee; unassigned if omitted
    #[arg(long, value_name = "NAME")]
    to: Option<String>,
    /// Roles that may claim the task, comma-separated; unchanged if omitted
    #[arg(long = "role", value_name = "ROLE", value_delimiter = ',')]
    roles: Vec<String>,
}

#[derive(Debug, clap::Args)]
pub(crate) struct Complete {
    #[command(flatten)]
    plain: TaskActionArgs,
    /// Outcome of the task, if it has outcomes
    #[arg(long)]
    outcome: Option<String>,
    /// Result data as JSON
    #[arg(long, value_name = "JSON", default_value = "null")]
    data: String,
}

pub(crate) async fn claim_or_release(
    verb: &str,
    args: TaskActionArgs,
    console: &Console,
) -> Result<(), CommandError> {
    let body = Map::from_iter([("roles".to_owned(), json!(args.roles))]);
    act(verb, &args.who, body, console).await
}

pub(crate) async fn assign(args: Assign, console: &Console) -> Result<(), CommandError> {
    // Null removes the assignee, so that this field is always present.
    let mut body = Map::from_iter([("assignee".to_owned(), json!(args.to))]);
    if !args.roles.is_empty() {
        body.insert("roles".to_owned(), json!(args.roles));
    }
    act("assign", &args.who, body, console).await
}

pub(crate) async fn complete(args: Complete, console: &Console) -> Result<(), CommandError> {
    let data: Value = serde_json::from_str(&args.data)
        .map_err(|error| CommandError::usage(format!("--data is not JSON: {error}")))?;
    let fields = [
        ("roles", json!(args.plain.roles)),
        ("outcome", json!(args.outcome)),
        ("data", data),
    ];
    let body = fields
        .into_iter()
        .map(|(name, value)| (name.to_owned(), value))
        .collect();

    act("complete", &args.plain.who, body, console).await
}

async fn act(
    verb: &str,
    user_args: &TaskUserArgs,
    mut body: Map<String, Value>,
    console: &Console,
) -> Result<(), CommandError> {
    let TaskUserArgs {
        task,
        id,
        user,
        reason,
        expected_version,
        server,
    } = user_args;
    body.extend(fields([
        ("id", json!(id)),
        ("user", json!(user)),
        ("reason", json!(reason)),
        ("expected_version", json!(expected_version)),
    ]));

    let client = ApiClient::new(server)?;
    let has_roles = body.get("roles").is_some_and(|roles| *roles != json!([]));
    let response = client
        .post(
            &path(&["v1", "tasks", task, verb]),
            Some(&Value::Object(body)),
        )
        .await;
    let response = response.map_err(|failure| {
        let message = failure.to_string();
        // The text of the node, because other rejections of a task have the same code.
        if has_roles || !message.contains("requires one of the roles") {
            return failure;
        }
        let advice = "if authentication is off, state the roles of the user with --role";
        CommandError::new(failure.exit(), format!("{message}; {advice}"))
    })?;
    if console.is_json() {
        return console.json(&response);
    }

    let reason = Some(text(&response, "reason")).filter(|reason| !reason.is_empty());
    let unchanged = reason
        .map(|reason| format!("; no effect: {reason}"))
        .unwrap_or_default();
    let done = match verb {
        "claim" => "claimed",
        "release" => "released",
        "assign" => "assigned",
        _ => "completed",
    };

    // A repeated request has no effect, so that it did not claim or complete the task now.
    let before = format!(
        "{task}: {}; the instance is ",
        if unchanged.is_empty() { done } else { verb }
    );
    console.status(&before, &text(&response, "status"), &unchanged)
}
