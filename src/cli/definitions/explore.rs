//! `orlog explore`: runs random executions of definitions and checks invariants.

use std::path::{Path, PathBuf};

use orlog_simulator::explore::{ExploreOptions, ExploreReport, explore};
use serde_json::{Value, json};

use super::definition_files;
use super::test::Format;
use crate::cli::console::Console;
use crate::cli::exit::CommandError;
use orlog_node::definitions;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Definition files or directories with *.saga.yaml
    #[arg(required = true, value_name = "FILE|DIR")]
    paths: Vec<PathBuf>,
    /// Random seed; the same seed gives the same executions
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Executions per definition
    #[arg(long, default_value_t = 500)]
    runs: usize,
    /// Maximum steps per execution
    #[arg(long, default_value_t = 60)]
    max_steps: usize,
    /// Output format
    #[arg(long, value_enum)]
    format: Option<Format>,
}

pub(crate) fn run(args: &Args, console: &Console) -> Result<(), CommandError> {
    let mut found = Vec::new();
    for file in args.paths.iter().flat_map(|path| definition_files(path)) {
        let definition = file.and_then(|file| definitions::load_file(&file))?;
        // A WebAssembly module has no steps whose events could be generated.
        if definition.compiled.is_none() {
            continue;
        }

        let options = ExploreOptions {
            seed: args.seed,
            max_runs: args.runs,
            steps: args.max_steps,
        };
        let report = explore(&definition.program, options);
        let file = definition.file.unwrap_or_default();

        found.push((
            definition.program.definition_ref().saga.to_string(),
            file,
            report,
        ));
    }

    if Format::is_json(args.format, console) {
        let all: Vec<_> = found
            .iter()
            .map(|(saga, file, report)| as_json(saga, file, report))
            .collect();
        console.json(&Value::Array(all))?;
    } else {
        for (saga, file, report) in &found {
            as_text(saga, file, report, console)?;
        }
    }

    let broken = found
        .iter()
        .filter(|(_, _, report)| report.counterexample.is_some())
        .count();

    match (broken, found.len()) {
        (_, 0) => Err(CommandError::failed("no definition with steps found")),
        (0, _) => Ok(()),
        (broken, _) => Err(CommandError::failed(format!(
            "invariants are violated in {broken} of {} definitions",
            found.len()
        ))),
    }
}

fn as_json(saga: &str, file: &Path, report: &ExploreReport) -> Value {
    let mut value = report.to_json();
    value["saga"] = json!(saga);
    value["file"] = json!(file.display().to_string());
    value
}

fn as_text(
    saga: &str,
    file: &Path,
    report: &ExploreReport,
    console: &Console,
) -> Result<(), CommandError> {
    let statuses: Vec<_> = report
        .statuses
        .iter()
        .map(|(status, count)| format!("{count} {status}"))
        .collect();
    let runs = report.options.max_runs;
    let steps = report.steps;
    let states = report.states;
    let result = if report.counterexample.is_some() {
        "VIOLATED"
    } else {
        "sound"
    };
    console.line(&format!(
        "{saga}: {result}: {runs} executions, {steps} steps, {states} states, {}",
        statuses.join(", ")
    ))?;

    let reached = report.covered.len();
    let all = report.covered.len() + report.not_covered.len();
    console.line(&format!("  reached {reached} of {all}"))?;
    if !report.not_covered.is_empty() {
        console.line(&format!("  not covered: {}", report.not_covered.join(", ")))?;
    }
    for limit in &report.limits {
        console.line(&format!("  limited: {limit}"))?;
    }

    if !report.undo_without_value.is_empty() {
        let steps = report.undo_without_value.join(", ");
        console.line(&format!(
            "  finding: stuck with undo_without_value, after a timeout or without a saved value: \
             {steps}"
        ))?;
    }

    let Some(found) = &report.counterexample else {
        return Ok(());
    };

    console.line(&format!("  {}", found.violation))?;
    console.line(&format!(
        "  {} steps ({} before shrinking); as a test:\n",
        found.steps.len(),
        found.original_steps
    ))?;

    let name = file.file_name().unwrap_or_default().to_string_lossy();
    // Each run has a seed of its own, so that this one can be repeated alone.
    let seed = report.options.seed.wrapping_add(found.run as u64);
    console.line(&found.test_case(&name, &format!("explore with seed {seed}")))
}
