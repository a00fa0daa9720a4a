//! `orlog dlq`: lists, redrives and discards dead letters.

use std::num::NonZeroUsize;

use clap::Subcommand;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::cli::client::{ApiClient, ServerArgs, path};
use crate::cli::console::{Console, note, text};
use crate::cli::data::read_data;
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
    /// Also if the compensation that follows is requested with null fields
    #[arg(long, requires = "force")]
    allow_null: bool,
    #[command(flatten)]
    server: ServerArgs,
}

#[derive(Debug, clap::Args)]
pub(crate) struct Redrive {
    /// Ids of the dead letters
    #[arg(required_unless_present_any = ["reason", "saga", "all"])]
    ids: Vec<String>,
    /// Data of the event, signal or result instead of those of the dead letter, as JSON; `@FILE`
    /// reads a file, `@-` standard input. Only for one dead letter
    #[arg(long, value_name = "JSON", requires = "ids", conflicts_with_all = ["reason", "saga", "all"])]
    data: Option<String>,
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
    /// Cursor of an earlier redrive that ended at its limit
    #[arg(long, conflicts_with = "ids")]
    cursor: Option<String>,
    #[command(flatten)]
    server: ServerArgs,
}

/// Results of the requests of a redrive, in the fields of a response.
#[derive(Debug, Default, Deserialize, Serialize)]
struct RedriveResults {
    matched: u64,
    has_more: bool,
    #[serde(default)]
    next_cursor: Option<String>,
    #[serde(default)]
    applied: u64,
    #[serde(default)]
    published: u64,
    #[serde(default)]
    dead_lettered: u64,
    #[serde(default)]
    rejected: u64,
    #[serde(default)]
    skipped: u64,
    #[serde(default)]
    stopped: Option<String>,
    #[serde(default)]
    failures: Vec<Value>,
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

    let body = match &args.data {
        Some(_) if args.ids.len() > 1 => {
            let reason = "--data is for one dead letter; redrive the others on their own";
            return Err(CommandError::usage(reason));
        }
        Some(data) => Some(json!({ "data": read_data("--data", data)? })),
        None => None,
    };

    let mut responses = Vec::new();
    let redriven = redrive_each(&args.ids, body.as_ref(), &client, &mut responses, console).await;
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
    body: Option<&Value>,
    client: &ApiClient,
    responses: &mut Vec<Value>,
    console: &Console,
) -> Result<(), CommandError> {
    for id in ids {
        let response = client
            .post(&path(&["v1", "dead-letters", id, "redrive"]), body)
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
    let mut results = None;
    let sent = redrive_pages(args, client, &mut results).await;
    let Some(results) = results else {
        return sent;
    };
    // Also after a failure: the dead letters of the requests before it are redriven.
    results.print(console)?;
    sent?;

    // First: a redrive that stopped can have failures too, but the skipped ones need another call.
    if let Some(cause) = &results.stopped {
        let later = if results.has_more {
            ", and later ones were not selected"
        } else {
            ""
        };
        return Err(CommandError::failed(format!(
            "stopped: {cause}; {} dead letters were not redriven{later}. Fix the cause and run the \
             command again (orlog dlq list)",
            results.skipped
        )));
    }

    match results.dead_lettered + results.rejected {
        // Missing pods are reported only after a success: a failure has the more important exit
        // code.
        0 => client.check_complete(),
        failed => Err(CommandError::failed(format!(
            "{failed} dead letters failed again (orlog dlq list)"
        ))),
    }
}

/// Sends requests until the limit has matched, or the end. One request scans a limited number of
/// dead letters, and the node reduces the limit to its own maximum.
async fn redrive_pages(
    args: &Redrive,
    client: &ApiClient,
    results: &mut Option<RedriveResults>,
) -> Result<(), CommandError> {
    let mut limit = args.limit.get() as u64;
    let mut cursor = args.cursor.clone();
    loop {
        // The node selects, so that the canary and the rest meet the same definitions. Each request
        // has the whole canary: only the node knows which dead letters of the last one count.
        let selection = json!({
            "reason": args.reason, "saga": args.saga, "limit": limit, "canary": args.canary,
            "cursor": cursor,
        });
        let page = client
            .post("/v1/dead-letters/redrive", Some(&selection))
            .await?;
        let page: RedriveResults = serde_json::from_value(page)
            .map_err(|error| CommandError::failed(format!("unreadable response: {error}")))?;

        limit = limit.saturating_sub(page.matched);
        cursor.clone_from(&page.next_cursor);

        let is_last = limit == 0 || page.stopped.is_some() || cursor.is_none();
        results.get_or_insert_default().add(page);
        if is_last {
            return Ok(());
        }
    }
}

impl RedriveResults {
    /// Adds the results of the next request.
    fn add(&mut self, page: Self) {
        self.matched += page.matched;
        self.applied += page.applied;
        self.published += page.published;
        self.dead_lettered += page.dead_lettered;
        self.rejected += page.rejected;
        self.skipped += page.skipped;
        self.failures.extend(page.failures);

        self.has_more = page.has_more;
        // After a stop, the cursor would omit the dead letters that were skipped.
        self.next_cursor = page.next_cursor.filter(|_| page.stopped.is_none());
        self.stopped = page.stopped;
    }

    fn print(&self, console: &Console) -> Result<(), CommandError> {
        if console.is_json() {
            return console.json(&json!(self));
        }

        for (field, count) in [
            ("matched", self.matched),
            ("applied", self.applied),
            ("published", self.published),
            ("dead_lettered", self.dead_lettered),
            ("rejected", self.rejected),
            ("skipped", self.skipped),
        ] {
            console.field(field, 13, &count.to_string())?;
        }

        for failed in &self.failures {
            note(&format!(
                "{}: {}",
                text(failed, "id"),
                text(failed, "detail")
            ));
        }

        // Without it, those that were rejected are selected again.
        if let Some(cursor) = &self.next_cursor {
            note(&format!(
                "more dead letters can match; redrive them with --cursor {cursor}"
            ));
        }
        Ok(())
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
    let force = [
        ("force", args.force.to_string()),
        ("allow_null", args.allow_null.to_string()),
    ];
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

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;
    use std::sync::Arc;

    use axum::extract::State;
    use axum::{Json, Router};
    use clap::Parser;
    use parking_lot::Mutex;

    use super::*;
    use crate::cli::client::tests::{client_of, serve};

    /// Requests of a redrive, and the next responses.
    struct Requests {
        sent: Mutex<Vec<Value>>,
        responses: Mutex<VecDeque<Value>>,
    }

    #[derive(Parser)]
    struct CommandLine {
        #[command(flatten)]
        redrive: Redrive,
    }

    async fn respond(
        State(requests): State<Arc<Requests>>,
        Json(body): Json<Value>,
    ) -> Json<Value> {
        requests.sent.lock().push(body);
        let next = requests.responses.lock().pop_front();
        Json(next.expect("one more request than responses"))
    }

    /// Redrives with these flags; returns the results, and the limit, canary and cursor of each
    /// request.
    async fn redrive_with(
        flags: &[&str],
        responses: &[Value],
    ) -> (RedriveResults, Vec<[Value; 3]>) {
        let requests = Arc::new(Requests {
            sent: Mutex::default(),
            responses: Mutex::new(responses.iter().cloned().collect()),
        });
        let router = Router::new()
            .fallback(respond)
            .with_state(Arc::clone(&requests));
        let client = client_of(&serve(router).await);
        let line = CommandLine::parse_from([&["redrive", "--all"], flags].concat());

        let mut results = None;
        let sent = redrive_pages(&line.redrive, &client, &mut results).await;
        sent.unwrap();
        let sent = std::mem::take(&mut *requests.sent.lock());
        let sent = sent
            .iter()
            .map(|body| ["limit", "canary", "cursor"].map(|field| body[field].clone()));
        (results.unwrap(), sent.collect())
    }

    #[tokio::test]
    async fn redrive_continues_until_its_limit_has_matched() {
        let responses = [
            json!({ "matched": 0, "has_more": true, "next_cursor": "a" }),
            json!({ "matched": 2, "applied": 1, "rejected": 1, "has_more": true, "next_cursor": "b" }),
            json!({ "matched": 1, "applied": 1, "has_more": true, "next_cursor": "c" }),
        ];
        let flags = ["--limit", "3", "--cursor", "0"];
        let (results, sent) = redrive_with(&flags, &responses).await;
        let request = |limit: u64, cursor: &str| [json!(limit), Value::Null, json!(cursor)];
        assert_eq!(sent, [request(3, "0"), request(3, "a"), request(1, "b")]);
        assert_eq!(
            (results.matched, results.applied, results.rejected),
            (3, 2, 1)
        );
        assert_eq!(results.next_cursor.as_deref(), Some("c"));
    }

    #[tokio::test]
    async fn redrive_ends_at_the_last_dead_letter() {
        let responses = [
            json!({ "matched": 1, "has_more": true, "next_cursor": "a" }),
            json!({ "matched": 0, "has_more": false, "next_cursor": null }),
        ];
        let (results, sent) = redrive_with(&[], &responses).await;
        assert_eq!(sent.len(), 2);
        assert_eq!((results.matched, results.next_cursor), (1, None));
    }

    #[tokio::test]
    async fn each_request_of_a_redrive_has_the_whole_canary() {
        let responses = [
            json!({ "matched": 1, "applied": 1, "has_more": true, "next_cursor": "a" }),
            json!({ "matched": 3, "applied": 3, "has_more": true, "next_cursor": "b" }),
            json!({ "matched": 9, "skipped": 9, "stopped": "no bus", "has_more": true, "next_cursor": "c" }),
        ];
        let (results, sent) = redrive_with(&["--canary", "3"], &responses).await;
        let canaries = sent.iter().map(|[_, canary, _]| canary.clone());
        let expected = [json!(3), json!(3), json!(3)];
        assert_eq!(canaries.collect::<Vec<_>>(), expected);
        // A stop ends the redrive.
        assert_eq!(
            (results.skipped, results.stopped.as_deref()),
            (9, Some("no bus"))
        );
    }
}
