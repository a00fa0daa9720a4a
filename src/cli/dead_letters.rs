//! `orlog dlq`: lists, redrives and discards dead letters.

use std::num::NonZeroUsize;

use clap::Subcommand;
use serde_json::{Value, json};

use crate::cli::client::{ApiClient, ServerArgs, path};
use crate::cli::console::{Console, items, note, text};
use crate::cli::exit::CommandError;
use crate::cli::filter::filter_value;
use crate::cli::list::PageArgs;
use crate::cli::printable::printable_json;

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// List dead letters
    List(PageArgs),
    /// Show a dead letter with its content
    Show(DeadLetterArg),
    /// Redrive dead letters; a repeated failure creates a new dead letter
    Redrive(Redrive),
    /// Discard dead letters
    Discard(Discard),
}

#[derive(Debug, clap::Args)]
pub(crate) struct DeadLetterArg {
    /// Id of the dead letter
    id: String,
    #[command(flatten)]
    server: ServerArgs,
}

#[derive(Debug, clap::Args)]
pub(crate) struct Discard {
    /// Ids of the dead letters
    #[arg(required = true)]
    ids: Vec<String>,
    /// Also discard results for which an instance waits: the step fails and is compensated, because
    /// it may have been executed
    #[arg(long)]
    force: bool,
    #[command(flatten)]
    server: ServerArgs,
}

#[derive(Debug, clap::Args)]
pub(crate) struct Redrive {
    /// Ids of the dead letters
    #[arg(required_unless_present_any = ["reason", "saga", "all"])]
    ids: Vec<String>,
    /// All dead letters with this reason
    #[arg(long, conflicts_with = "ids", value_parser = filter_value)]
    reason: Option<String>,
    /// All dead letters of this saga
    #[arg(long, conflicts_with = "ids", value_parser = filter_value)]
    saga: Option<String>,
    /// All dead letters
    #[arg(long, conflicts_with_all = ["ids", "reason", "saga"])]
    all: bool,
    /// Maximum number of dead letters, oldest first
    #[arg(long, conflicts_with = "ids", default_value = "100")]
    limit: NonZeroUsize,
    /// Canary size: redrive this many first, and the rest only if all of them succeed; dead letters
    /// of ended instances do not count
    #[arg(long, conflicts_with = "ids")]
    canary: Option<usize>,
    #[command(flatten)]
    server: ServerArgs,
}

pub(crate) async fn run(command: Command, console: &Console) -> Result<(), CommandError> {
    match command {
        Command::List(args) => list(args, console).await,
        Command::Show(args) => show(args, console).await,
        Command::Redrive(args) => redrive(args, console).await,
        Command::Discard(args) => discard(args, console).await,
    }
}

async fn list(args: PageArgs, console: &Console) -> Result<(), CommandError> {
    let found = args.fetch("/v1/dead-letters", &[]).await?;
    let fields = [
        "id",
        "at",
        "reason",
        "saga",
        "correlation",
        "label",
        "message",
    ];

    let head = fields.map(str::to_uppercase);
    found.print(
        &head.each_ref().map(String::as_str),
        |dead_letter: &Value| fields.map(|field| text(dead_letter, field)).to_vec(),
        "no dead letters",
        console,
    )
}

async fn show(args: DeadLetterArg, console: &Console) -> Result<(), CommandError> {
    let client = ApiClient::new(&args.server)?;
    let dead_letter = client
        .get(&path(&["v1", "dead-letters", &args.id]), &[])
        .await?;
    if console.is_json() {
        return console.json(&dead_letter);
    }

    for field in [
        "id",
        "at",
        "reason",
        "message",
        "saga",
        "correlation",
        "label",
        "attempts",
        "node",
    ] {
        let value = text(&dead_letter, field);
        if !value.is_empty() {
            console.field(field, 12, &value)?;
        }
    }

    console.line(&format!(
        "original     {}",
        printable_json(&format!("{:#}", dead_letter["original"]))
    ))
}

/// Redrives dead letters, and prints the results also if one fails.
async fn redrive(args: Redrive, console: &Console) -> Result<(), CommandError> {
    let client = ApiClient::new(&args.server)?;
    if args.ids.is_empty() {
        return redrive_kind(&args, &client, console).await;
    }

    let mut responses = Vec::new();
    let redriven = redrive_each(&args.ids, &client, &mut responses, console).await;
    // Also after a failure: the dead letters before it are redriven.
    if console.is_json() {
        console.json(&Value::Array(responses))?;
    }
    redriven
}

/// Redrives dead letters in sequence, up to the first failure: the others usually have the same
/// cause.
async fn redrive_each(
    ids: &[String],
    client: &ApiClient,
    responses: &mut Vec<Value>,
    console: &Console,
) -> Result<(), CommandError> {
    for id in ids {
        let response = client
            .post(&path(&["v1", "dead-letters", id, "redrive"]), None)
            .await?;
        if console.is_json() {
            responses.push(response);
            continue;
        }

        // A dead letter without an instance goes to the bus again, so that its result is not known
        // here.
        if response["published"] == true {
            console.line(&format!(
                "{id}: published again; if it fails, it becomes another dead letter"
            ))?;
        } else {
            let version = format!(", version {}", text(&response, "version"));
            let status = text(&response, "status");
            console.status(&format!("{id}: redriven; "), &status, &version)?;
        }
    }
    Ok(())
}

/// Redrives all dead letters of a filter. Returns an error after printing the results if any was
/// not applied.
async fn redrive_kind(
    args: &Redrive,
    client: &ApiClient,
    console: &Console,
) -> Result<(), CommandError> {
    let Redrive {
        reason,
        saga,
        limit,
        canary,
        ..
    } = args;
    // The node selects, so that the canary and the rest meet the same definitions.
    let mut selection = json!({ "reason": reason, "saga": saga, "limit": limit, "canary": canary });
    let response = loop {
        let response = client
            .post("/v1/dead-letters/redrive", Option::Some(&selection))
            .await?;

        // One request scans a limited number. As long as none of them matches, the next ones
        // follow.
        let has_matched = response["matched"].as_u64().unwrap_or(0) > 0;
        if has_matched || response["next_cursor"].is_null() {
            break response;
        }
        selection["cursor"] = response["next_cursor"].clone();
    };

    if console.is_json() {
        console.json(&response)?;
    } else {
        for field in [
            "matched",
            "applied",
            "published",
            "dead_lettered",
            "rejected",
            "skipped",
        ] {
            console.field(field, 13, &text(&response, field))?;
        }

        for failed in items(&response, "failures") {
            note(&format!(
                "{}: {}",
                text(failed, "id"),
                text(failed, "detail")
            ));
        }

        if response["has_more"] == true {
            note("more dead letters match; run the command again, or raise --limit");
        }
    }

    // First: a redrive that stopped can have failures too, but the skipped ones need another call.
    if let Option::Some(cause) = response["stopped"].as_str() {
        let skipped = text(&response, "skipped");
        return Err(CommandError::failed(format!(
            "stopped: {cause}; {skipped} dead letters were not redriven. Fix the cause and run the \
             command again (orlog dlq list)"
        )));
    }

    match response["dead_lettered"].as_u64().unwrap_or(0)
        + response["rejected"].as_u64().unwrap_or(0)
    {
        // Missing pods are reported only after a success: a failure has the more important exit
        // code.
        0 => client.check_complete(),
        failed => Err(CommandError::failed(format!(
            "{failed} dead letters failed again (orlog dlq list)"
        ))),
    }
}

async fn discard(args: Discard, console: &Console) -> Result<(), CommandError> {
    let client = ApiClient::new(&args.server)?;
    let mut discarded = Vec::new();
    let result = discard_each(&args, &client, &mut discarded, console).await;
    // Also after a failure: the dead letters before it no longer exist.
    if console.is_json() {
        console.json(&json!({ "discarded": discarded }))?;
    }
    result
}

async fn discard_each<'a>(
    args: &'a Discard,
    client: &ApiClient,
    discarded: &mut Vec<&'a str>,
    console: &Console,
) -> Result<(), CommandError> {
    let force = [("force", args.force.to_string())];
    for id in &args.ids {
        client
            .delete(&path(&["v1", "dead-letters", id]), &force)
            .await?;
        discarded.push(id);
        if !console.is_json() {
            console.line(&format!("{id}: discarded"))?;
        }
    }
    Ok(())
}
