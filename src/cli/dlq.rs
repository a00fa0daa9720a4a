//! `orlog dlq`: dead letters, what could not be applied.

use clap::Subcommand;
use serde_json::{Value, json};

use super::client::{Client, Server, path};
use super::console::{Console, items, remark, text};
use super::exit::Failure;

#[derive(Debug, Subcommand)]
pub(super) enum Command {
    /// List dead letters
    List(List),
    /// Show a dead letter with what it holds
    Show(One),
    /// Send dead letters again; what fails again becomes a new letter
    Redrive(Redrive),
    /// Forget dead letters
    Discard(Some),
}

/// How many.
#[derive(Debug, clap::Args)]
pub(super) struct List {
    /// At most so many
    #[arg(long, default_value_t = 100)]
    limit: usize,
    /// Go on where an earlier list ended
    #[arg(long)]
    cursor: Option<String>,
    #[command(flatten)]
    server: Server,
}

/// Which letter.
#[derive(Debug, clap::Args)]
pub(super) struct One {
    /// Its id
    id: String,
    #[command(flatten)]
    server: Server,
}

/// Which letters.
#[derive(Debug, clap::Args)]
pub(super) struct Some {
    /// Their ids
    #[arg(required = true)]
    ids: Vec<String>,
    #[command(flatten)]
    server: Server,
}

/// Which letters to send again: by id, or all of a kind.
#[derive(Debug, clap::Args)]
pub(super) struct Redrive {
    /// Their ids
    #[arg(required_unless_present_any = ["reason", "saga", "all"])]
    ids: Vec<String>,
    /// All with this reason, as `orlog dlq list` shows it
    #[arg(long, conflicts_with = "ids")]
    reason: Option<String>,
    /// All that were meant for this saga
    #[arg(long, conflicts_with = "ids")]
    saga: Option<String>,
    /// All
    #[arg(long, conflicts_with_all = ["ids", "reason", "saga"])]
    all: bool,
    /// At most so many, oldest first
    #[arg(long, conflicts_with = "ids", default_value_t = 100)]
    limit: usize,
    /// So many first; the others only where none of these fails again
    #[arg(long, conflicts_with = "ids")]
    canary: Option<usize>,
    #[command(flatten)]
    server: Server,
}

pub(super) async fn perform(command: Command, console: &Console) -> Result<(), Failure> {
    match command {
        Command::List(args) => list(args, console).await,
        Command::Show(args) => show(args, console).await,
        Command::Redrive(args) => redrive(args, console).await,
        Command::Discard(args) => discard(args, console).await,
    }
}

async fn list(args: List, console: &Console) -> Result<(), Failure> {
    let client = Client::new(&args.server)?;
    let mut query = vec![("limit", args.limit.to_string())];
    query.extend(args.cursor.map(|cursor| ("cursor", cursor)));
    let page = client.get("/v1/dead-letters", &query).await?;
    if console.is_json() {
        return console.json(&page);
    }
    let fields = ["id", "at", "reason", "saga", "correlation", "label", "message"];
    let rows: Vec<_> =
        items(&page, "items").iter().map(|letter| fields.map(|field| text(letter, field)).into()).collect();
    console.table(&fields.map(str::to_uppercase).each_ref().map(String::as_str), &rows, "no dead letters")?;
    if let Option::Some(next) = page["next"].as_str() {
        remark(&format!("there are more: --cursor {next}"));
    }
    Ok(())
}

async fn show(args: One, console: &Console) -> Result<(), Failure> {
    let client = Client::new(&args.server)?;
    let letter = client.get(&path(&["v1", "dead-letters", &args.id]), &[]).await?;
    if console.is_json() {
        return console.json(&letter);
    }
    for field in ["id", "at", "reason", "message", "saga", "correlation", "label", "attempts", "node"] {
        let value = text(&letter, field);
        if !value.is_empty() {
            console.line(&format!("{field:<12} {value}"))?;
        }
    }
    console.line(&format!("original     {:#}", letter["original"]))
}

/// One after the other; the first that fails ends it, and what was done before is told.
async fn redrive(args: Redrive, console: &Console) -> Result<(), Failure> {
    let client = Client::new(&args.server)?;
    if args.ids.is_empty() {
        return redrive_kind(&args, &client, console).await;
    }
    let mut answers = Vec::new();
    for id in &args.ids {
        let answer = client.post(&path(&["v1", "dead-letters", id, "redrive"]), None).await?;
        if !console.is_json() {
            let status = console.painted(&text(&answer, "status"));
            console.line(&format!("{id}: sent again; {status}, version {}", text(&answer, "version")))?;
        }
        answers.push(answer);
    }
    if console.is_json() { console.json(&Value::Array(answers)) } else { Ok(()) }
}

/// All of a kind; a failure when any was not taken, after what became of them is told.
async fn redrive_kind(args: &Redrive, client: &Client, console: &Console) -> Result<(), Failure> {
    let Redrive { reason, saga, limit, canary, .. } = args;
    let selection = json!({ "reason": reason, "saga": saga, "limit": limit, "canary": canary });
    let answer = client.post("/v1/dead-letters/redrive", Option::Some(&selection)).await?;
    if console.is_json() {
        console.json(&answer)?;
    } else {
        for field in ["matched", "taken", "published", "set_aside", "refused", "left"] {
            console.line(&format!("{field:<10} {}", text(&answer, field)))?;
        }
        for failed in items(&answer, "failures") {
            remark(&format!("{}: {}", text(failed, "id"), text(failed, "detail")));
        }
        if answer["more"] == true {
            remark("there are more: say it again, or raise --limit");
        }
    }
    if let Option::Some(why) = answer["stopped"].as_str() {
        let left = text(&answer, "left");
        return Err(Failure::failed(format!(
            "stopped: {why}; {left} letters were not sent. Mend the cause, then say it again (orlog dlq list)"
        )));
    }
    match answer["set_aside"].as_u64().unwrap_or(0) + answer["refused"].as_u64().unwrap_or(0) {
        0 => Ok(()),
        failed => Err(Failure::failed(format!("{failed} letters failed again (orlog dlq list)"))),
    }
}

async fn discard(args: Some, console: &Console) -> Result<(), Failure> {
    let client = Client::new(&args.server)?;
    for id in &args.ids {
        client.delete(&path(&["v1", "dead-letters", id])).await?;
        if !console.is_json() {
            console.line(&format!("{id}: discarded"))?;
        }
    }
    if console.is_json() { console.json(&json!({ "discarded": args.ids })) } else { Ok(()) }
}
