//! `orlog task claim|release|assign|complete`: do something about a task; the answer comes when it is durable.

use serde_json::{Map, Value, json};

use crate::cli::client::{Client, Server, path};
use crate::cli::console::{Console, text};
use crate::cli::exit::Failure;

/// Which task, and who does it.
#[derive(Debug, clap::Args)]
pub(in crate::cli) struct Who {
    /// The task's id
    task: String,
    /// Who it is
    #[arg(long, value_name = "NAME", env = "USER", hide_env_values = true)]
    by: Option<String>,
    /// Why, for the record
    #[arg(long)]
    reason: Option<String>,
    /// Makes sending it again harmless
    #[arg(long)]
    id: Option<String>,
    /// Refused unless its instance stands at this state version
    #[arg(long, value_name = "VERSION")]
    expected_version: Option<u64>,
    #[command(flatten)]
    server: Server,
}

/// Taking a task or giving it back.
#[derive(Debug, clap::Args)]
pub(in crate::cli) struct Plain {
    #[command(flatten)]
    who: Who,
    /// A role that person has; several with commas
    #[arg(long = "role", value_name = "ROLE", value_delimiter = ',')]
    roles: Vec<String>,
}

/// Giving a task to somebody else.
#[derive(Debug, clap::Args)]
pub(in crate::cli) struct Assign {
    #[command(flatten)]
    who: Who,
    /// Who is to do it; whoever takes it where nobody is named
    #[arg(long, value_name = "NAME")]
    to: Option<String>,
    /// A role that may take it; several with commas; as before where none is named
    #[arg(long = "role", value_name = "ROLE", value_delimiter = ',')]
    roles: Vec<String>,
}

/// Answering a task.
#[derive(Debug, clap::Args)]
pub(in crate::cli) struct Complete {
    #[command(flatten)]
    plain: Plain,
    /// What is chosen, where there is something to choose
    #[arg(long)]
    outcome: Option<String>,
    /// What is entered, as JSON
    #[arg(long, value_name = "JSON", default_value = "null")]
    data: String,
}

pub(super) async fn plain(verb: &str, args: Plain, console: &Console) -> Result<(), Failure> {
    let body = Map::from_iter([("roles".to_owned(), json!(args.roles))]);
    act(verb, &args.who, body, console).await
}

pub(super) async fn assign(args: Assign, console: &Console) -> Result<(), Failure> {
    let mut body = Map::from_iter([("assignee".to_owned(), json!(args.to))]);
    if !args.roles.is_empty() {
        body.insert("roles".to_owned(), json!(args.roles));
    }
    act("assign", &args.who, body, console).await
}

pub(super) async fn complete(args: Complete, console: &Console) -> Result<(), Failure> {
    let data: Value = serde_json::from_str(&args.data)
        .map_err(|error| Failure::usage(format!("--data is not JSON: {error}")))?;
    let fields = [("roles", json!(args.plain.roles)), ("outcome", json!(args.outcome)), ("data", data)];
    let body = fields.into_iter().map(|(name, value)| (name.to_owned(), value)).collect();
    act("complete", &args.plain.who, body, console).await
}

async fn act(verb: &str, who: &Who, mut body: Map<String, Value>, console: &Console) -> Result<(), Failure> {
    let words = [("id", &who.id), ("by", &who.by), ("reason", &who.reason)];
    body.extend(words.into_iter().filter_map(|(name, word)| Some((name.to_owned(), json!(word.as_ref()?)))));
    body.extend(who.expected_version.iter().map(|version| ("expected_version".to_owned(), json!(version))));
    let client = Client::new(&who.server)?;
    let answer = client.post(&path(&["v1", "tasks", &who.task, verb]), Some(&Value::Object(body))).await?;
    if console.is_json() {
        return console.json(&answer);
    }
    let why = Some(text(&answer, "why")).filter(|why| !why.is_empty());
    let unchanged = why.map(|why| format!("; nothing changed: {why}")).unwrap_or_default();
    let status = console.painted(&text(&answer, "status"));
    console.line(&format!("{verb} {}: its instance is {status}{unchanged}", who.task))
}
