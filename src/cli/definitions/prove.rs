//! `orlog prove`: checks the invariants of definitions in every order of inputs.

mod progress;

use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::time::Duration;

use orlog_simulator::prove::{ProofOutcome, ProveOptions, ProveReport, prove_observed};
use serde_json::{Value, json};

use super::definition_files;
use super::test::Format;
use crate::cli::console::Console;
use crate::cli::exit::{CommandError, CommandExit};
use orlog_node::definitions;
use progress::ProgressDisplay;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Definition files or directories with *.saga.yaml
    #[arg(required = true, value_name = "FILE|DIR")]
    paths: Vec<PathBuf>,
    /// Maximum number of disturbances in a run: events that no step waits for, signals,
    /// cancellations
    #[arg(long, default_value_t = 1, value_name = "N")]
    disturbances: u8,
    /// Maximum number of states; limits the memory, about 250 bytes for each
    #[arg(
        long,
        default_value_t = 200_000,
        value_parser = clap::value_parser!(u32).range(1..),
        value_name = "N"
    )]
    max_states: u32,
    /// Maximum number of inputs in a run
    #[arg(long, default_value_t = 500, value_name = "N")]
    max_steps: usize,
    /// Number of threads. Default: one for each core
    #[arg(long, value_name = "N")]
    threads: Option<NonZeroUsize>,
    /// Output format
    #[arg(long, value_enum)]
    format: Option<Format>,
}

/// Proof of one definition.
struct Proof {
    saga: String,
    file: PathBuf,
    report: ProveReport,
    took: Duration,
}

pub(crate) fn run(args: &Args, console: &Console) -> Result<(), CommandError> {
    let options = ProveOptions {
        max_states: usize::try_from(args.max_states).unwrap_or(usize::MAX),
        max_steps: args.max_steps,
        disturbances: args.disturbances,
        threads: args
            .threads
            .or_else(|| std::thread::available_parallelism().ok())
            .unwrap_or(NonZeroUsize::MIN),
    };

    let is_json = Format::is_json(args.format, console);
    let mut proofs = Vec::new();
    for file in args.paths.iter().flat_map(|path| definition_files(path)) {
        let definition = file.and_then(|file| definitions::load_file(&file))?;
        let saga = definition.program.definition_ref().saga.to_string();
        let mut progress = ProgressDisplay::new(&saga);
        let report = prove_observed(&definition.program, options, &mut progress);
        let took = progress.finish();
        let Some(report) = report else {
            continue;
        };

        let proof = Proof {
            saga,
            file: definition.file.unwrap_or_default(),
            report,
            took,
        };

        // A proof can take minutes, so that each result is printed at once. JSON is one document.
        if !is_json {
            proof.print(console)?;
        }
        proofs.push(proof);
    }

    if is_json {
        console.json(&Value::Array(proofs.iter().map(Proof::to_json).collect()))?;
    }
    result(&proofs)
}

fn result(proofs: &[Proof]) -> Result<(), CommandError> {
    let all = proofs.len();
    let count = |is: fn(&ProofOutcome) -> bool| {
        proofs
            .iter()
            .filter(|proof| is(&proof.report.outcome))
            .count()
    };
    let violated = count(|outcome| matches!(outcome, ProofOutcome::Violated(_)));
    let not_proved = count(|outcome| matches!(outcome, ProofOutcome::NotProved { .. }));

    match (violated, not_proved) {
        _ if all == 0 => Err(CommandError::failed("no definition with steps found")),
        (0, 0) => Ok(()),
        // An own exit code: a script can accept a reached limit, but never a violation.
        (0, _) => Err(CommandError::new(
            CommandExit::NotProved,
            format!("{not_proved} of {all} definitions are not proved; no invariant is violated"),
        )),
        (_, _) => Err(CommandError::failed(format!(
            "invariants are violated in {violated} of {all} definitions"
        ))),
    }
}

impl Proof {
    fn to_json(&self) -> Value {
        let mut value = self.report.to_json();
        value["saga"] = json!(self.saga);
        value["file"] = json!(self.file.display().to_string());
        value["took_ms"] = json!(self.took.as_millis());
        value
    }

    /// Returns the outcome with the bounds within which it holds.
    fn headline(&self) -> String {
        let outcome = self.report.outcome.as_str();
        let limit = self.report.options.disturbances;
        let disturbances = if limit == 1 {
            "disturbance"
        } else {
            "disturbances"
        };
        match &self.report.outcome {
            ProofOutcome::Proved => format!("{outcome} for up to {limit} {disturbances}"),
            ProofOutcome::NotProved { .. } | ProofOutcome::Violated(_) => outcome.to_owned(),
        }
    }

    fn print(&self, console: &Console) -> Result<(), CommandError> {
        let ProveReport {
            states,
            transitions,
            depth,
            ..
        } = &self.report;
        console.line(&format!(
            "{}: {}: {states} states, {transitions} transitions, up to {depth} inputs, {:.1}s",
            self.saga,
            self.headline(),
            self.took.as_secs_f64(),
        ))?;

        let ends: Vec<_> = self
            .report
            .ends
            .iter()
            .map(|(status, count)| format!("{count} {status}"))
            .collect();
        console.line(&format!(
            "  ends: {}",
            if ends.is_empty() {
                "none".to_owned()
            } else {
                ends.join(", ")
            }
        ))?;

        if !self.report.never_completed.is_empty() {
            console.line(&format!(
                "  never completed: {}",
                self.report.never_completed.join(", ")
            ))?;
        }

        if !self.report.remaining.is_empty() {
            let steps = self.report.remaining.join(", ");
            console.line(&format!(
                "  without undo, remains after a late success: {steps}"
            ))?;
        }

        if !self.report.undo_without_value.is_empty() {
            let steps = self.report.undo_without_value.join(", ");
            console.line(&format!(
                "  finding: stuck with undo_without_value, after a timeout or without a saved \
                 value: {steps}"
            ))?;
        }

        for limit in &self.report.limits {
            console.line(&format!("  limited: {limit}"))?;
        }

        match &self.report.outcome {
            ProofOutcome::Proved => Ok(()),
            ProofOutcome::NotProved { reason } => Ok(console.line(&format!("  {reason}"))?),
            ProofOutcome::Violated(found) => {
                console.line(&format!("  {}", found.violation))?;
                console.line(&format!("  {} steps; as a test:\n", found.steps.len()))?;
                Ok(console.line(&found.test_case(file_name(&self.file).as_ref(), "prove"))?)
            }
        }
    }
}

fn file_name(file: &Path) -> std::borrow::Cow<'_, str> {
    file.file_name().unwrap_or_default().to_string_lossy()
}
