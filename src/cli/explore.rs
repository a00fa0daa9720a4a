//! `orlog explore`: random lives of definitions, under rules that hold for every life.

use std::path::{Path, PathBuf};

use orlog_simulator::explore::{Options, Report, explore};
use serde_json::{Value, json};

use super::console::Console;
use super::exit::Failure;
use super::test::Format;
use crate::definitions;

/// What to explore, and how much.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// Definitions, or folders of *.saga.yaml
    #[arg(required = true, value_name = "FILE|DIR")]
    paths: Vec<PathBuf>,
    /// The same seed takes the same ways
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Lives of each definition
    #[arg(long, default_value_t = 500)]
    runs: usize,
    /// Moves in each life
    #[arg(long, default_value_t = 60)]
    steps: usize,
    /// How the result is written
    #[arg(long, value_enum)]
    format: Option<Format>,
}

pub(super) fn perform(args: &Args, console: &Console) -> Result<(), Failure> {
    let mut found = Vec::new();
    for file in args.paths.iter().flat_map(|path| files(path)) {
        let definition = file.and_then(|file| definitions::read(&file)).map_err(|problems| {
            let lines: Vec<_> = problems.iter().map(ToString::to_string).collect();
            Failure::failed(lines.join("\n"))
        })?;
        if definition.compiled.is_none() {
            continue;
        }
        let options = Options { seed: args.seed, runs: args.runs, steps: args.steps };
        let report = explore(&definition.program, options);
        let file = definition.file.unwrap_or_default();
        found.push((definition.program.reference().saga.to_string(), file, report));
    }
    if Format::is_json(args.format, console) {
        let all: Vec<_> = found.iter().map(|(saga, file, report)| as_json(saga, file, report)).collect();
        console.json(&Value::Array(all))?;
    } else {
        for (saga, file, report) in &found {
            as_text(saga, file, report, console)?;
        }
    }
    let broken = found.iter().filter(|(_, _, report)| report.counterexample.is_some()).count();
    match (broken, found.len()) {
        (_, 0) => Err(Failure::failed("there is no definition with steps there")),
        (0, _) => Ok(()),
        (broken, _) => {
            Err(Failure::failed(format!("rules do not hold in {broken} of {} definitions", found.len())))
        }
    }
}

fn files(path: &Path) -> Vec<Result<PathBuf, Vec<orlog_program::Problem>>> {
    if path.is_dir() { definitions::list(path) } else { vec![Ok(path.to_owned())] }
}

fn as_json(saga: &str, file: &Path, report: &Report) -> Value {
    let mut value = report.to_json();
    value["saga"] = json!(saga);
    value["file"] = json!(file.display().to_string());
    value
}

fn as_text(saga: &str, file: &Path, report: &Report, console: &Console) -> Result<(), Failure> {
    let statuses: Vec<_> =
        report.statuses.iter().map(|(status, count)| format!("{count} {status}")).collect();
    let (runs, moves, states) = (report.options.runs, report.moves, report.states);
    let verdict = if report.counterexample.is_some() { "BROKEN" } else { "sound" };
    console.line(&format!(
        "{saga}: {verdict}: {runs} lives, {moves} moves, {states} states, {}",
        statuses.join(", ")
    ))?;
    let (reached, all) = (report.covered.len(), report.covered.len() + report.not_covered.len());
    console.line(&format!("  reached {reached} of {all}"))?;
    if !report.not_covered.is_empty() {
        console.line(&format!("  not covered: {}", report.not_covered.join(", ")))?;
    }
    let Some(found) = &report.counterexample else { return Ok(()) };
    console.line(&format!("  {}", found.broken))?;
    console.line(&format!(
        "  {} moves, of {} before shrinking; as a test:\n",
        found.moves.len(),
        found.before
    ))?;
    let name = file.file_name().unwrap_or_default().to_string_lossy();
    console.line(&found.test_case(&name, report.options.seed))
}
