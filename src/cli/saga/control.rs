//! `orlog saga signal|cancel|pause|resume|retry|skip|force-complete`: tell one instance what to do; the answer comes when it is
//! durable.

use serde_json::{Map, Value, json};

use crate::cli::client::Client;
use crate::cli::console::{Console, text};
use crate::cli::exit::Failure;

use super::instance_arg::Which;

/// Circumstances of an instruction.
#[derive(Debug, clap::Args)]
pub(in crate::cli) struct Plain {
    #[command(flatten)]
    which: Which,
    /// Makes sending it again harmless
    #[arg(long)]
    id: Option<String>,
    /// Refused unless the instance stands at this state version
    #[arg(long, value_name = "VERSION")]
    expected_version: Option<u64>,
    /// Who says so, for the history
    #[arg(long, value_name = "NAME", env = "USER", hide_env_values = true)]
    by: Option<String>,
    /// Why, for the history
    #[arg(long)]
    reason: Option<String>,
}

/// A signal.
#[derive(Debug, clap::Args)]
pub(in crate::cli) struct Signal {
    #[command(flatten)]
    plain: Plain,
    /// The event's type
    #[arg(long = "type", value_name = "TYPE")]
    kind: String,
    /// The event's payload, as JSON
    #[arg(long, value_name = "JSON", default_value = "null")]
    data: String,
}

pub(super) async fn plain(verb: &str, args: Plain, console: &Console) -> Result<(), Failure> {
    instruct(verb, &args, Map::new(), console).await
}

pub(super) async fn signal(args: Signal, console: &Console) -> Result<(), Failure> {
    let data: Value = serde_json::from_str(&args.data)
        .map_err(|error| Failure::usage(format!("--data is not JSON: {error}")))?;
    let fields = [("type".to_owned(), json!(args.kind)), ("data".to_owned(), data)];
    instruct("signal", &args.plain, Map::from_iter(fields), console).await
}

async fn instruct(
    verb: &str,
    args: &Plain,
    mut body: Map<String, Value>,
    console: &Console,
) -> Result<(), Failure> {
    let words = [("id", &args.id), ("by", &args.by), ("reason", &args.reason)];
    body.extend(words.into_iter().filter_map(|(name, word)| Some((name.to_owned(), json!(word.as_ref()?)))));
    body.extend(args.expected_version.iter().map(|version| ("expected_version".to_owned(), json!(version))));
    let client = Client::new(&args.which.server)?;
    let answer = client.post(&args.which.path(Some(verb)), Some(&Value::Object(body))).await?;
    if console.is_json() {
        return console.json(&answer);
    }
    let status = console.painted(&text(&answer, "status"));
    let paused = if answer["paused"].as_bool().unwrap_or_default() { ", paused" } else { "" };
    let why = Some(text(&answer, "why")).filter(|why| !why.is_empty());
    let unchanged = why.map(|why| format!("; nothing changed: {why}")).unwrap_or_default();
    let Which { saga, correlation, .. } = &args.which;
    console.line(&format!(
        "{saga} {correlation}: {status}{paused}, version {}{unchanged}",
        text(&answer, "version")
    ))
}
