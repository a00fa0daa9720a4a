//! `orlog publish`: events from a file or standard input to a node, in batches and in their order.
//!
//! A batch that the node has no room or time for is tried again. The ids of the events make that harmless, and publishing the
//! same file once more as well.

mod batches;
mod csv_rows;
mod json_lines;
mod progress;

use std::fs::File;
use std::io::{BufReader, Read};
use std::path::PathBuf;
use std::time::Duration;

use serde_json::{Value, json};

pub(super) use batches::Line;
use batches::{Batch, Batches};
pub(super) use csv_rows::Columns;
use progress::Progress;

use super::client::{Client, Server, Trouble};
use super::console::{Console, items, text};
use super::exit::Failure;

/// The pause after a first refusal; it doubles up to [`LONGEST_PAUSE`].
const FIRST_PAUSE: Duration = Duration::from_millis(200);
const LONGEST_PAUSE: Duration = Duration::from_secs(5);
/// Refusals in a row after which it gives up.
const TRIES: u32 = 12;

/// What to publish, and where.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// JSON Lines, one event a line (CloudEvents or the Aggregate envelope), or CSV with --csv; `-` or nothing: standard input
    file: Option<PathBuf>,
    #[command(flatten)]
    columns: Columns,
    /// Events in one request
    #[arg(long, default_value_t = 500, value_parser = clap::value_parser!(u16).range(1..))]
    batch: u16,
    #[command(flatten)]
    server: Server,
}

/// What was accepted.
#[derive(Default)]
struct Tally {
    events: u64,
    duplicates: u64,
}

pub(super) async fn perform(args: Args, console: &Console) -> Result<(), Failure> {
    let client = Client::new(&args.server)?;
    let (lines, bytes) = lines(args.file.as_ref(), &args.columns)?;
    let progress = Progress::new(bytes);
    let mut tally = Tally::default();
    for batch in Batches::new(lines, usize::from(args.batch)) {
        let batch = batch.map_err(|failure| so_far(&failure, &tally))?;
        let answer = send(&client, &batch, &progress).await.map_err(|failure| so_far(&failure, &tally))?;
        let accepted = items(&answer, "accepted");
        tally.events += accepted.len() as u64;
        tally.duplicates +=
            accepted.iter().filter(|one| one["duplicate"] == Value::Bool(true)).count() as u64;
        progress.advance(batch.bytes, tally.events);
    }
    progress.finish();
    report(&tally, console)
}

/// Events, one after another.
type Lines = Box<dyn Iterator<Item = Result<Line, Failure>>>;

/// The events of a file, and its size where it is known.
pub(super) fn lines(file: Option<&PathBuf>, columns: &Columns) -> Result<(Lines, Option<u64>), Failure> {
    let (input, bytes) = open(file)?;
    let lines: Lines = match columns.wanted() {
        Some(columns) => csv_rows::read(input, columns)?,
        None => Box::new(json_lines::read(BufReader::new(input))),
    };
    Ok((lines, bytes))
}

fn report(tally: &Tally, console: &Console) -> Result<(), Failure> {
    let Tally { events, duplicates } = tally;
    if console.is_json() {
        return console.json(&json!({ "accepted": events, "duplicates": duplicates }));
    }
    let known = if *duplicates > 0 { format!(", {duplicates} of them known before") } else { String::new() };
    console.line(&format!("{events} events accepted{known}"))
}

fn open(file: Option<&PathBuf>) -> Result<(Box<dyn Read>, Option<u64>), Failure> {
    let Some(path) = file.filter(|path| path.as_os_str() != "-") else {
        return Ok((Box::new(std::io::stdin()), None));
    };
    let cannot = |error| Failure::failed(format!("{} cannot be read: {error}", path.display()));
    let file = File::open(path).map_err(cannot)?;
    let bytes = file.metadata().map_err(cannot)?.len();
    Ok((Box::new(file), Some(bytes)))
}

/// Tries until the node takes the batch, says that it never will, or has been away for too long.
async fn send(client: &Client, batch: &Batch, progress: &Progress) -> Result<Value, Failure> {
    let mut pause = FIRST_PAUSE;
    for attempt in 1.. {
        let trouble = match client.publish(&batch.events).await {
            Ok(answer) => return Ok(answer),
            Err(trouble) => trouble,
        };
        let passes = match &trouble {
            Trouble::Silence(_) => true,
            Trouble::Problem { status, .. } => matches!(status, 429 | 503 | 507),
        };
        if !passes || attempt == TRIES {
            return Err(located(client, batch, trouble));
        }
        progress.wait(attempt);
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
    Err(Failure::internal("a loop without an end ended"))
}

/// Names the lines of the file in the place of positions in the batch.
fn located(client: &Client, batch: &Batch, trouble: Trouble) -> Failure {
    let Trouble::Problem { status: 422, body } = &trouble else { return client.failure(trouble) };
    let places = items(body, "errors").iter().filter_map(|place| {
        let pointer = text(place, "pointer");
        let index: usize = pointer.split('/').nth(1)?.parse().ok()?;
        Some(format!("\n  line {}: {}", batch.lines.get(index)?, text(place, "detail")))
    });
    let places: String = places.collect();
    if places.is_empty() {
        client.failure(trouble)
    } else {
        Failure::failed(format!("events were refused [{}]:{places}", text(body, "code")))
    }
}

fn so_far(failure: &Failure, tally: &Tally) -> Failure {
    let events = tally.events;
    Failure::new(
        failure.exit(),
        format!("{failure}\n{events} events before were accepted; publishing them again is harmless"),
    )
}
