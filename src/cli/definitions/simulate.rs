//! `orlog simulate`: runs recorded events against definitions in virtual time, without a node.

mod text;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use orlog_bus::codec::{self, DecodeDefaults};
use orlog_model::{Event, Timestamp};
use orlog_program::{Diagnostic, Program};
use orlog_simulator::SimulatorPrograms;
use orlog_simulator::simulate::{
    ResponsePolicy, SimulateOptions, SimulationDiff, SimulationReport, compare, simulate,
};
use serde_json::{Value, json};

use super::test::Format;
use crate::cli::console::{Console, note};
use crate::cli::events::{Columns, EventLine, lines};
use crate::cli::exit::CommandError;
use orlog_node::definitions;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// JSON Lines, one event a line (CloudEvents, the Aggregate envelope, or `type`, `time`,
    /// `correlation`, `data`), or CSV with --csv; `-`: standard input
    #[arg(long, value_name = "FILE")]
    events: PathBuf,
    /// Directory of definitions
    #[arg(long, value_name = "DIR")]
    definitions: PathBuf,
    /// Compare with the definitions of this directory, instance by instance
    #[arg(long, value_name = "DIR")]
    against: Option<PathBuf>,
    /// Responses to effects and commands: `ok`, `none`, or a YAML file with responses by name
    #[arg(long, default_value = "ok", value_name = "ok|none|FILE")]
    responses: String,
    /// Virtual time to run after the last event, such as 61d
    #[arg(long, default_value = "0s", value_name = "DURATION")]
    run_on: String,
    /// Maximum number of differing instances to print
    #[arg(long, default_value_t = 10)]
    examples: usize,
    /// Output format
    #[arg(long, value_enum)]
    format: Option<Format>,
    #[command(flatten)]
    columns: Columns,
}

pub(crate) fn run(args: &Args, console: &Console) -> Result<(), CommandError> {
    let options = SimulateOptions {
        responses: responses(&args.responses)?,
        run_on_for: orlog_simulator::simulate::parse_duration(&args.run_on)
            .map_err(|reason| CommandError::usage(format!("--run-on: {reason}")))?,
        record_work: args.against.is_some(),
    };
    // Definitions first: their errors are reported before a large file of events is read.
    let programs = programs_of(&args.definitions)?;
    let others = args
        .against
        .as_ref()
        .map(|dir| programs_of(dir))
        .transpose()?;

    let events = events(args)?;
    let began = Instant::now();
    let report = simulate(programs, &events, &options);
    let took = began.elapsed();
    let other = others.map(|others| simulate(others, &events, &options));
    let differences = other
        .as_ref()
        .map(|other| compare(&report, other, args.examples));

    if Format::is_json(args.format, console) {
        let report = serde_json::to_value(&report).map_err(anyhow::Error::from)?;
        let differences = serde_json::to_value(&differences).map_err(anyhow::Error::from)?;
        console.json(&json!({ "report": report, "differences": differences }))?;
    } else {
        show(&report, differences.as_ref(), console)?;
    }

    // On standard error: the reports of equal events are equal, but the times are not.
    note(&speed(report.events, took));

    for simulated in std::iter::once(&report).chain(&other) {
        if let Some(reason) = &simulated.stopped {
            return Err(CommandError::failed(format!(
                "the simulation stopped after {} events: {reason}",
                simulated.events
            )));
        }
    }

    let violated: usize = report.violations.values().map(BTreeMap::len).sum();
    if violated > 0 {
        return Err(CommandError::failed(format!(
            "{violated} invariants of the definitions are violated"
        )));
    }
    Ok(())
}

fn show(
    report: &SimulationReport,
    differences: Option<&SimulationDiff>,
    console: &Console,
) -> Result<(), CommandError> {
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
    format!(
        "{events} events in {seconds:.2} s, {:.0} per minute",
        count / seconds.max(1e-6) * 60.0
    )
}

fn responses(named: &str) -> Result<ResponsePolicy, CommandError> {
    match named {
        "ok" => Ok(ResponsePolicy::ok()),
        "none" => Ok(ResponsePolicy::none()),
        file => {
            let text = std::fs::read_to_string(file).map_err(|error| {
                CommandError::failed(format!("cannot read --responses {file}: {error}"))
            })?;
            ResponsePolicy::read(&text, file).map_err(CommandError::from)
        }
    }
}

fn programs_of(dir: &Path) -> Result<Arc<SimulatorPrograms>, CommandError> {
    let (mut programs, mut problems): (Vec<Arc<dyn Program>>, Vec<Diagnostic>) =
        (Vec::new(), Vec::new());
    for file in definitions::list_files(dir) {
        // All files are read, so that one call reports every error.
        match file.and_then(|file| definitions::load_file(&file)) {
            Ok(definition) => programs.push(definition.program),
            Err(found) => problems.extend(found),
        }
    }

    match (problems.is_empty(), programs.is_empty()) {
        (false, _) => Err(problems.into()),
        (true, true) => Err(CommandError::failed(format!(
            "no definition found in {}",
            dir.display()
        ))),
        (true, false) => Ok(Arc::new(SimulatorPrograms::new(programs))),
    }
}

/// Returns the events ordered by time; events with equal times keep the order of the file.
fn events(args: &Args) -> Result<Vec<Event>, CommandError> {
    // All events are in memory, because they must be sorted: virtual time cannot go back.
    let (lines, _) = lines(Some(&args.events), &args.columns)?;
    let mut events = lines
        .map(|line| line.and_then(event))
        .collect::<Result<Vec<_>, _>>()?;
    events.sort_by_key(|event| event.time);
    if events.is_empty() {
        return Err(CommandError::failed(format!(
            "no event found in {}",
            args.events.display()
        )));
    }

    Ok(events)
}

fn event(line: EventLine) -> Result<Event, CommandError> {
    let number = line.number;
    // CloudEvents and Aggregate envelopes have one of these fields; anything else is the short
    // form.
    let value = if line.event["specversion"].is_null() && line.event["event_id"].is_null() {
        whole(line)
    } else {
        line.event
    };
    // A default time would place all such events at one moment, and no timer would fire between
    // them.
    if value["time"].is_null() && value["timestamp"].is_null() {
        return Err(CommandError::failed(format!(
            "line {number}: a recorded event requires `time`; add the time of the event to each \
             line, for example \"time\": \"2026-01-02T03:04:05Z\""
        )));
    }

    let defaults = DecodeDefaults {
        tenant: None,
        now: Timestamp::default(),
    };
    codec::from_json(&value, &defaults)
        .map_err(|error| CommandError::failed(format!("line {number}: {error}")))
}

/// Converts the short form to `CloudEvents`.
fn whole(line: EventLine) -> Value {
    let mut value = line.event;
    let Some(fields) = value.as_object_mut() else {
        return value;
    };

    fields.insert("specversion".to_owned(), json!("1.0"));
    fields
        .entry("id")
        // Derived from the line: equal events in two lines are two events.
        .or_insert_with(|| json!(format!("line-{}", line.number)));
    fields
        .entry("source")
        .or_insert_with(|| json!("urn:orlog:record"));

    if let Some(correlation) = fields.remove("correlation") {
        fields.insert("correlationid".to_owned(), correlation);
    }
    value
}
