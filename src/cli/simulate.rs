//! `orlog simulate`: recorded events against definitions, in virtual time and without a node.

mod text;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use orlog_bus::codec::{self, Defaults};
use orlog_model::{Event, Timestamp};
use orlog_program::{Problem, Program};
use orlog_simulator::Programs;
use orlog_simulator::simulate::{Answers, Differences, Options, Report, compare, simulate};
use serde_json::{Value, json};

use super::console::{Console, remark};
use super::exit::Failure;
use super::publish::{Columns, Line, lines};
use super::test::Format;
use crate::definitions;

/// What to simulate.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// JSON Lines, one event a line (CloudEvents, the Aggregate envelope, or `type`, `time`, `correlation`, `data`), or CSV
    /// with --csv; `-`: standard input
    #[arg(long, value_name = "FILE")]
    events: PathBuf,
    /// The folder of definitions
    #[arg(long, value_name = "DIR")]
    definitions: PathBuf,
    /// Compare with the definitions of this folder, instance by instance
    #[arg(long, value_name = "DIR")]
    against: Option<PathBuf>,
    /// Who answers effects and accepts commands: `ok`, `none`, or a YAML file of answers by name
    #[arg(long, default_value = "ok", value_name = "ok|none|FILE")]
    answers: String,
    /// How long time goes on after the last event, such as 61d
    #[arg(long, default_value = "0s", value_name = "DURATION")]
    then: String,
    /// How many instances that differ are shown
    #[arg(long, default_value_t = 10)]
    examples: usize,
    /// How the result is written
    #[arg(long, value_enum)]
    format: Option<Format>,
    #[command(flatten)]
    columns: Columns,
}

pub(super) fn perform(args: &Args, console: &Console) -> Result<(), Failure> {
    let options = Options {
        answers: answers(&args.answers)?,
        then: orlog_simulator::simulate::duration(&args.then)
            .map_err(|why| Failure::usage(format!("--then: {why}")))?,
        remembers_work: args.against.is_some(),
    };
    let programs = programs_of(&args.definitions)?;
    let others = args.against.as_ref().map(|folder| programs_of(folder)).transpose()?;
    let events = events(args)?;
    let began = Instant::now();
    let report = simulate(programs, &events, &options);
    let took = began.elapsed();
    let differences =
        others.map(|others| compare(&report, &simulate(others, &events, &options), args.examples));
    if Format::is_json(args.format, console) {
        let report = serde_json::to_value(&report).map_err(anyhow::Error::from)?;
        let differences = serde_json::to_value(&differences).map_err(anyhow::Error::from)?;
        console.json(&json!({ "report": report, "differences": differences }))?;
    } else {
        show(&report, differences.as_ref(), console)?;
    }
    remark(&speed(events.len(), took));
    Ok(())
}

fn show(report: &Report, differences: Option<&Differences>, console: &Console) -> Result<(), Failure> {
    for line in text::report(report) {
        console.line(&line)?;
    }
    for line in differences.into_iter().flat_map(text::differences) {
        console.line(&line)?;
    }
    Ok(())
}

fn speed(events: usize, took: Duration) -> String {
    let seconds = took.as_secs_f64();
    let count = u32::try_from(events).map_or(f64::INFINITY, f64::from);
    format!("{events} events in {seconds:.2} s, {:.0} a minute", count / seconds.max(1e-6) * 60.0)
}

fn answers(named: &str) -> Result<Answers, Failure> {
    match named {
        "ok" => Ok(Answers::ok()),
        "none" => Ok(Answers::none()),
        file => {
            let text = std::fs::read_to_string(file)
                .map_err(|error| Failure::failed(format!("--answers {file} cannot be read: {error}")))?;
            Answers::read(&text, file).map_err(|problems| refused(&problems))
        }
    }
}

fn programs_of(folder: &Path) -> Result<Arc<Programs>, Failure> {
    let (mut programs, mut problems): (Vec<Arc<dyn Program>>, Vec<Problem>) = (Vec::new(), Vec::new());
    for file in definitions::list(folder) {
        match file.and_then(|file| definitions::read(&file)) {
            Ok(definition) => programs.push(definition.program),
            Err(found) => problems.extend(found),
        }
    }
    match (problems.is_empty(), programs.is_empty()) {
        (false, _) => Err(refused(&problems)),
        (true, true) => Err(Failure::failed(format!("there is no definition in {}", folder.display()))),
        (true, false) => Ok(Arc::new(Programs::new(programs))),
    }
}

fn refused(problems: &[Problem]) -> Failure {
    let lines: Vec<_> = problems.iter().map(ToString::to_string).collect();
    Failure::failed(lines.join("\n"))
}

/// The events in the order of their times; those of one time in the order of the file.
fn events(args: &Args) -> Result<Vec<Event>, Failure> {
    let (lines, _) = lines(Some(&args.events), &args.columns)?;
    let mut events = lines.map(|line| line.and_then(event)).collect::<Result<Vec<_>, _>>()?;
    events.sort_by_key(|event| event.time);
    if events.is_empty() {
        return Err(Failure::failed(format!("there is no event in {}", args.events.display())));
    }
    Ok(events)
}

fn event(line: Line) -> Result<Event, Failure> {
    let number = line.number;
    let value = if line.event["specversion"].is_null() && line.event["event_id"].is_null() {
        whole(line)
    } else {
        line.event
    };
    if value["time"].is_null() && value["timestamp"].is_null() {
        return Err(Failure::failed(format!(
            "line {number}: a recorded event must say when it happened (`time`)"
        )));
    }
    let defaults = Defaults { tenant: None, now: Timestamp::default() };
    codec::from_json(&value, &defaults).map_err(|error| Failure::failed(format!("line {number}: {error}")))
}

/// The short form as `CloudEvents`.
fn whole(line: Line) -> Value {
    let mut value = line.event;
    let Some(fields) = value.as_object_mut() else { return value };
    fields.insert("specversion".to_owned(), json!("1.0"));
    fields.entry("id").or_insert_with(|| json!(format!("line-{}", line.number)));
    fields.entry("source").or_insert_with(|| json!("urn:orlog:record"));
    if let Some(correlation) = fields.remove("correlation") {
        fields.insert("correlationid".to_owned(), correlation);
    }
    value
}
