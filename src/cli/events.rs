//! `orlog publish`: publishes events from a file or standard input to a node, in batches and in
//! order.
//!
//! If the node is busy or its store is full, the batch is retried. Event ids make the retry
//! idempotent; the same holds for a second publish of the same file.

mod batches;
mod csv_rows;
mod json_lines;
mod progress;
mod signing;

use std::borrow::Cow;
use std::fs::File;
use std::io::{BufReader, Read};
use std::path::PathBuf;
use std::time::Duration;

use orlog_model::{Clock as _, TenantId};
use serde_json::{Value, json};

pub(crate) use batches::EventLine;
use batches::{Batch, Batches};
pub(crate) use csv_rows::Columns;
use progress::Progress;

use crate::cli::client::{ApiClient, ClientError, SIGNATURE_LIFETIME, ServerArgs};
use crate::cli::console::{Console, items, note, text};
use crate::cli::exit::CommandError;
use orlog_node::clock::SystemClock;

/// Delay after the first rejection; it doubles up to [`MAX_RETRY_DELAY`].
const INITIAL_RETRY_DELAY: Duration = Duration::from_millis(200);
const MAX_RETRY_DELAY: Duration = Duration::from_secs(5);
/// Maximum number of consecutive rejections.
const MAX_ATTEMPTS: u32 = 12;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// JSON Lines, one event a line (CloudEvents or the Aggregate envelope), or CSV with --csv; `-`
    /// or omitted: standard input
    file: Option<PathBuf>,
    #[command(flatten)]
    columns: Columns,
    /// Sign each event with the key, so that its signature stays with it; the default with a key
    #[arg(long)]
    sign: bool,
    /// Events per request
    #[arg(long, default_value_t = 500, value_parser = clap::value_parser!(u16).range(1..))]
    batch: u16,
    #[command(flatten)]
    server: ServerArgs,
}

/// Counts of accepted events.
#[derive(Default)]
struct PublishCounts {
    events: u64,
    duplicates: u64,
    /// Events that no active definition consumes.
    unmatched: u64,
    /// Line and type of the first of them.
    first_unmatched: Option<(u64, String)>,
}

impl PublishCounts {
    /// Adds the response to a batch.
    fn add(&mut self, batch: &Batch, accepted: &[Value]) {
        self.events += accepted.len() as u64;
        self.duplicates += accepted
            .iter()
            .filter(|one| one["duplicate"] == Value::Bool(true))
            .count() as u64;

        // The node responds in the order of the request.
        let sent = batch
            .lines
            .iter()
            .zip(batch.events.as_array().into_iter().flatten())
            .zip(accepted);

        for ((line, event), _) in sent.filter(|(_, accepted)| accepted["matched"] == json!(0)) {
            self.unmatched += 1;
            // CloudEvents, or the Aggregate envelope.
            let kind = || {
                ["type", "event_type"]
                    .map(|field| text(event, field))
                    .concat()
            };
            self.first_unmatched.get_or_insert_with(|| (*line, kind()));
        }
    }
}

pub(crate) async fn run(args: Args, console: &Console) -> Result<(), CommandError> {
    let client = ApiClient::new(&args.server)?;
    // Events are signed with every key; the option only makes a missing key an error.
    if args.sign && client.key().is_none() {
        let advice = "--sign: no key; select one with --key NAME or `orlog key use NAME`";
        return Err(CommandError::usage(advice));
    }

    let (lines, bytes) = lines(args.file.as_ref(), &args.columns)?;
    let progress = Progress::new(bytes);
    let mut counts = PublishCounts::default();
    // One request after another: events of one instance keep their order.
    for batch in Batches::new(lines, usize::from(args.batch)) {
        let batch = batch.map_err(|failure| so_far(&failure, &counts))?;
        let response = send(&client, &batch, &progress)
            .await
            .map_err(|failure| so_far(&failure, &counts))?;
        counts.add(&batch, items(&response, "accepted"));
        progress.advance(batch.bytes, counts.events);
    }

    progress.finish();
    report(&counts, console)
}

/// Iterator of event lines.
type EventLines = Box<dyn Iterator<Item = Result<EventLine, CommandError>>>;

/// Returns the events of a file, and its size if known.
pub(crate) fn lines(
    file: Option<&PathBuf>,
    columns: &Columns,
) -> Result<(EventLines, Option<u64>), CommandError> {
    let (input, bytes) = open(file)?;
    let lines: EventLines = match columns.csv_columns() {
        Some(columns) => csv_rows::read(input, columns)?,
        None => Box::new(json_lines::read(BufReader::new(input))),
    };
    Ok((lines, bytes))
}

fn report(counts: &PublishCounts, console: &Console) -> Result<(), CommandError> {
    let PublishCounts {
        events,
        duplicates,
        unmatched,
        first_unmatched,
    } = counts;

    if let Some((line, kind)) = first_unmatched {
        note(&format!(
            "warning: no active definition consumes {unmatched} of the events, so they have no \
             effect; first: line {line}, type {kind:?}"
        ));
    }

    if console.is_json() {
        return console.json(
            &json!({ "accepted": events, "duplicates": duplicates, "unmatched": unmatched }),
        );
    }

    let known = if *duplicates > 0 {
        format!(", {duplicates} duplicates")
    } else {
        String::new()
    };
    console.line(&format!("{events} events accepted{known}"))
}

fn open(file: Option<&PathBuf>) -> Result<(Box<dyn Read>, Option<u64>), CommandError> {
    let Some(path) = file.filter(|path| path.as_os_str() != "-") else {
        return Ok((Box::new(std::io::stdin()), None));
    };
    let cannot = |error| CommandError::failed(format!("cannot read {}: {error}", path.display()));
    let file = File::open(path).map_err(cannot)?;
    let bytes = file.metadata().map_err(cannot)?.len();
    Ok((Box::new(file), Some(bytes)))
}

/// Retries until the node accepts the batch, rejects it permanently, or is unavailable for too
/// long.
async fn send(
    client: &ApiClient,
    batch: &Batch,
    progress: &Progress,
) -> Result<Value, CommandError> {
    let mut pause = INITIAL_RETRY_DELAY;
    for attempt in 1.. {
        let sent = match client.key() {
            Some(key) => {
                let tenant = TenantId::for_input(client.tenant())
                    .map_err(|error| CommandError::usage(error.to_string()))?;
                // Each attempt signs again: the signature of an earlier one may have expired
                // meanwhile.
                let now = SystemClock.now();
                let signed = signing::sign(&batch.events, key, &tenant, now, SIGNATURE_LIFETIME);
                Cow::Owned(signed)
            }
            None => Cow::Borrowed(&batch.events),
        };

        let trouble = match client.send("/v1/events", &sent).await {
            Ok(response) => return Ok(response),
            Err(trouble) => trouble,
        };
        // Busy, draining or full. After a lost response the events may be stored, but their ids
        // make the repetition a duplicate.
        let passes = match &trouble {
            ClientError::NoResponse(_) => true,
            ClientError::Problem { status, .. } => matches!(status, 429 | 503 | 507),
            ClientError::Unreadable(_) => false,
        };
        if !passes || attempt == MAX_ATTEMPTS {
            return Err(located(client, batch, trouble));
        }

        progress.wait(attempt);
        tokio::time::sleep(pause).await;
        // All 11 delays together are about 36 seconds.
        pause = (pause * 2).min(MAX_RETRY_DELAY);
    }

    Err(CommandError::internal("an infinite loop ended"))
}

/// Replaces positions in the batch with line numbers of the file.
fn located(client: &ApiClient, batch: &Batch, trouble: ClientError) -> CommandError {
    let ClientError::Problem {
        status: 422, body, ..
    } = &trouble
    else {
        return client.failure(trouble);
    };

    // Pointers of the node start with the index in the batch, such as `/3/data`.
    let locations = items(body, "errors").iter().filter_map(|location| {
        let pointer = text(location, "pointer");
        let index: usize = pointer.split('/').nth(1)?.parse().ok()?;
        Some(format!(
            "\n  line {}: {}",
            batch.lines.get(index)?,
            text(location, "detail")
        ))
    });
    let locations: String = locations.collect();
    if locations.is_empty() {
        client.failure(trouble)
    } else {
        CommandError::failed(format!(
            "events were rejected [{}]:{locations}",
            text(body, "code")
        ))
    }
}

fn so_far(failure: &CommandError, counts: &PublishCounts) -> CommandError {
    let events = counts.events;
    CommandError::new(
        failure.exit(),
        format!(
            "{failure}\n{events} earlier events were accepted; it is safe to publish them again"
        ),
    )
}
