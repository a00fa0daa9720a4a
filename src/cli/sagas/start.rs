//! `orlog saga start|result`: starts an instance, and waits for its result. The exit code is that
//! of the instance.

use serde_json::Value;

use crate::cli::client::{ApiClient, ServerArgs, path};
use crate::cli::console::{Console, text};
use crate::cli::exit::{CommandError, CommandExit};
use crate::cli::wait::{WAIT_TIMEOUT, WaitArgs, Waiting, not_ended};

use super::control::InstanceArgs;
use crate::cli::data::read_data;

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
    #[arg(
        long,
        value_name = "POLICY",
        default_value = "return",
        value_parser = ["return", "fail", "restart"]
    )]
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

pub(crate) async fn start(args: StartArgs, console: &Console) -> Result<(), CommandError> {
    let StartArgs {
        saga,
        data,
        id,
        event,
        on_existing,
        idempotency_key,
        wait,
        server,
    } = args;

    // Before the data, which can come from standard input: a wrong option must not wait for it.
    let client = ApiClient::new(&server)?;
    let data = read_data("--data", &data)?;
    let client = client.with_idempotency_key(idempotency_key.as_deref())?;
    let waiting = wait.begin();
    let mut query = vec![("on_existing", on_existing)];
    query.extend(id.map(|id| ("correlation", id)));
    query.extend(event.map(|event| ("event", event)));
    query.extend(waiting.map(|waiting| waiting.next_part()));

    let started = client
        .post_query(&path(&["v1", "sagas", &saga]), &query, &data, WAIT_TIMEOUT)
        .await?;
    // Without `--wait`, the exit code is that of the start, not of the instance.
    let Some(waiting) = waiting else {
        return show(&started, console);
    };

    let result = path(&[
        "v1",
        "sagas",
        &saga,
        &text(&started, "correlation"),
        "result",
    ]);

    end_with(
        &await_end(&client, &result, started, waiting).await?,
        console,
    )
}

pub(crate) async fn result(args: ResultArgs, console: &Console) -> Result<(), CommandError> {
    let client = ApiClient::new(&args.which.server)?;
    let path = args.which.path(Some("result"));
    let waiting = args.wait.begin().unwrap_or_else(Waiting::over);
    let first = ask(&client, &path, waiting).await?;
    end_with(&await_end(&client, &path, first, waiting).await?, console)
}

/// Asks again until the instance has ended or is stuck, or the time is over: the wait of one
/// request has a limit.
async fn await_end(
    client: &ApiClient,
    path: &str,
    mut last: Value,
    waiting: Waiting,
) -> Result<Value, CommandError> {
    // A stuck instance needs a user: waiting longer would not end.
    while exit_of(&last).is_none() && last["status"] != "stuck" && !waiting.is_over() {
        last = ask(client, path, waiting).await?;
    }
    Ok(last)
}

async fn ask(client: &ApiClient, path: &str, waiting: Waiting) -> Result<Value, CommandError> {
    client
        .get_with_timeout(path, &[waiting.next_part()], WAIT_TIMEOUT)
        .await
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
            Err(not_ended(&format!("the instance is {status}"), remedy))
        }
    }
}

fn show(result: &Value, console: &Console) -> Result<(), CommandError> {
    if console.is_json() {
        return console.json(result);
    }

    let name = format!("{} {}: ", text(result, "saga"), text(result, "correlation"));
    let existing = if result["existing"] == true {
        " (existed)"
    } else {
        ""
    };
    console.status(&name, &text(result, "status"), existing)?;

    if let Some(fact) = result["result"].as_object() {
        console.line(&format!(
            "{} {}",
            text(&result["result"], "event"),
            fact["data"]
        ))?;
    }

    let failure = &result["failure"];
    if failure.is_object() {
        console.line(&format!(
            "{}: {}",
            text(failure, "code"),
            text(failure, "message")
        ))?;
    }

    Ok(())
}
