//! `orlog saga start|result`: starts an instance, and waits for its result. The exit code is that of the instance.

use std::time::{Duration, Instant};

use serde_json::Value;

use crate::cli::client::{ApiClient, ServerArgs, path};
use crate::cli::console::{Console, text};
use crate::cli::exit::{CommandError, CommandExit};
use crate::sagas::api::result::MAX_WAIT;

use super::control::InstanceArgs;
use super::data::read_data;

/// Time for the request itself, in addition to its wait.
const REQUEST_TIME: Duration = Duration::from_secs(30);

#[derive(Debug, clap::Args)]
pub(crate) struct StartArgs {
    /// Saga name
    saga: String,
    /// Data of the start event as JSON; `@FILE` reads a file, `@-` standard input
    #[arg(long, value_name = "JSON", default_value = "{}")]
    data: String,
    /// Correlation id [default: as the definition finds it in the data, otherwise a new one]
    #[arg(long)]
    id: Option<String>,
    /// Start event [default: the first one of the definition]
    #[arg(long, value_name = "TYPE")]
    event: Option<String>,
    /// Policy if the instance exists
    #[arg(long, value_name = "POLICY", default_value = "return", value_parser = ["return", "fail", "restart"])]
    on_existing: String,
    /// Idempotency key of the request: repeat a start whose outcome is unknown with the same key
    #[arg(long, value_name = "KEY")]
    idempotency_key: Option<String>,
    #[command(flatten)]
    wait: WaitArgs,
    #[command(flatten)]
    server: ServerArgs,
}

#[derive(Debug, clap::Args)]
pub(crate) struct ResultArgs {
    #[command(flatten)]
    which: InstanceArgs,
    #[command(flatten)]
    wait: WaitArgs,
}

#[derive(Debug, clap::Args)]
struct WaitArgs {
    /// Maximum wait for the end of the instance, for example 30s or 10m; 1m without a value [default: no wait]
    #[arg(long, value_name = "DURATION", num_args = 0..=1, default_missing_value = "1m", value_parser = duration)]
    wait: Option<Duration>,
}

fn duration(text: &str) -> Result<Duration, String> {
    orlog_model::parse_duration(text)
        .map_err(|error| format!("invalid duration {text:?}: {error}; expected for example 30s"))
}

pub(crate) async fn start(args: StartArgs, console: &Console) -> Result<(), CommandError> {
    let StartArgs { saga, data, id, event, on_existing, idempotency_key, wait, server } = args;
    let (client, data) = (ApiClient::new(&server)?, read_data("--data", &data)?);
    let client = client.with_idempotency_key(idempotency_key.as_deref())?;
    let end = Instant::now() + wait.wait.unwrap_or_default();
    let mut query = vec![("on_existing", on_existing)];
    query.extend(id.map(|id| ("correlation", id)));
    query.extend(event.map(|event| ("event", event)));
    query.extend(wait.wait.map(|_| ("wait", part_until(end))));
    let started =
        client.post_query(&path(&["v1", "sagas", &saga]), &query, &data, MAX_WAIT + REQUEST_TIME).await?;
    if wait.wait.is_none() {
        return show(&started, console);
    }
    let result = path(&["v1", "sagas", &saga, &text(&started, "correlation"), "result"]);
    end_with(&await_end(&client, &result, started, end).await?, console)
}

pub(crate) async fn result(args: ResultArgs, console: &Console) -> Result<(), CommandError> {
    let client = ApiClient::new(&args.which.server)?;
    let (path, end) = (args.which.path(Some("result")), Instant::now() + args.wait.wait.unwrap_or_default());
    let first = ask(&client, &path, end).await?;
    end_with(&await_end(&client, &path, first, end).await?, console)
}

/// Asks again until the instance has ended or the time is over: the wait of one request has a limit.
async fn await_end(
    client: &ApiClient,
    path: &str,
    mut last: Value,
    end: Instant,
) -> Result<Value, CommandError> {
    while exit_of(&last).is_none() && Instant::now() < end {
        last = ask(client, path, end).await?;
    }
    Ok(last)
}

async fn ask(client: &ApiClient, path: &str, end: Instant) -> Result<Value, CommandError> {
    client.get_with_timeout(path, &[("wait", part_until(end))], MAX_WAIT + REQUEST_TIME).await
}

/// Returns the wait of the next request.
fn part_until(end: Instant) -> String {
    let rest = end.saturating_duration_since(Instant::now()).min(MAX_WAIT);
    format!("{}ms", rest.as_millis())
}

/// Returns the exit code of an instance that has ended.
fn exit_of(result: &Value) -> Option<CommandExit> {
    match result["status"].as_str() {
        Some("completed") => Some(CommandExit::Done),
        Some("failed" | "cancelled") => Some(CommandExit::Failed),
        _ => None,
    }
}

fn end_with(result: &Value, console: &Console) -> Result<(), CommandError> {
    show(result, console)?;
    let status = text(result, "status");
    match exit_of(result) {
        Some(CommandExit::Done) => Ok(()),
        Some(exit) => Err(CommandError::new(exit, format!("the instance is {status}"))),
        None => {
            let remedy = match status.as_str() {
                "stuck" => "retry, skip or force-complete it",
                _ => "wait longer or ask again",
            };
            let message = format!("the instance has not ended: it is {status}; {remedy}");
            Err(CommandError::new(CommandExit::Unavailable, message))
        }
    }
}

fn show(result: &Value, console: &Console) -> Result<(), CommandError> {
    if console.is_json() {
        return console.json(result);
    }
    let name = format!("{} {}: ", text(result, "saga"), text(result, "correlation"));
    let existing = if result["existing"] == true { " (existed)" } else { "" };
    console.status(&name, &text(result, "status"), existing)?;
    if let Some(fact) = result["result"].as_object() {
        console.line(&format!("{} {}", text(&result["result"], "event"), fact["data"]))?;
    }
    let failure = &result["failure"];
    if failure.is_object() {
        console.line(&format!("{}: {}", text(failure, "code"), text(failure, "message")))?;
    }
    Ok(())
}
