//! `orlog test`: runs the test files of definitions in virtual time, without a node.

pub(super) mod files;
mod watch;

use std::path::PathBuf;
use std::time::{Duration, Instant};

use orlog_program::Diagnostic;
use orlog_simulator::test_file::{self, Summary, TestResult};
use serde_json::{Value, json};

use crate::cli::console::Console;
use crate::cli::exit::CommandError;
use files::TestSuite;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Test files, or directories with *.saga.test.yaml, searched recursively
    #[arg(default_value = ".", value_name = "FILE|DIR")]
    paths: Vec<PathBuf>,
    /// Run only tests whose name contains this text
    #[arg(long, value_name = "TEXT")]
    filter: Option<String>,
    /// Output format
    #[arg(long, value_enum)]
    format: Option<Format>,
    /// Also write `JUnit` XML to this file
    #[arg(long, value_name = "FILE")]
    junit: Option<PathBuf>,
    /// Watch tests and definitions and rerun on change
    #[arg(long)]
    watch: bool,
}

/// Output format of a result.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Format {
    /// Text
    Text,
    /// JSON
    Json,
}

impl Format {
    /// Returns whether the output is JSON, by this option or by the global one.
    pub(crate) fn is_json(format: Option<Self>, console: &Console) -> bool {
        format.map_or(console.is_json(), |format| format == Self::Json)
    }
}

/// Result of a test run.
struct TestRun {
    outcomes: Vec<TestResult>,
    problems: Vec<Diagnostic>,
    took: Duration,
}

pub(crate) fn run(args: &Args, console: &Console) -> Result<(), CommandError> {
    if args.watch {
        return watch::run_on_change(&args.paths, || report(args, console));
    }
    report(args, console)
}

fn report(args: &Args, console: &Console) -> Result<(), CommandError> {
    let run = run_suites(args);
    // First: a closed pipe ends the output early, but CI needs the file.
    if let Some(path) = &args.junit {
        let written = std::fs::write(path, test_file::junit(&run.outcomes));
        written
            .map_err(|e| CommandError::failed(format!("cannot write {}: {e}", path.display())))?;
    }

    if Format::is_json(args.format, console) {
        console.json(&as_json(&run))?;
    } else {
        as_text(&run, console)?;
    }

    let Summary { passed, failed } = Summary::of(&run.outcomes);
    match (failed, run.problems.len()) {
        // A wrong path or filter in CI must not look like passed tests.
        (0, 0) if passed == 0 => Err(CommandError::failed(nothing(args))),
        (0, 0) => Ok(()),
        (0, problems) => Err(CommandError::failed(format!(
            "{problems} errors in the files"
        ))),
        (failed, _) => Err(CommandError::failed(format!(
            "{failed} of {} tests failed",
            failed + passed
        ))),
    }
}

fn nothing(args: &Args) -> String {
    let paths: Vec<_> = args
        .paths
        .iter()
        .map(|path| path.display().to_string())
        .collect();
    match &args.filter {
        Some(filter) => format!(
            "no test in {} has a name that contains {filter:?}",
            paths.join(", ")
        ),
        None => format!("no test found in {}", paths.join(", ")),
    }
}

fn run_suites(args: &Args) -> TestRun {
    let began = Instant::now();
    let mut outcomes = Vec::new();
    let mut problems = Vec::new();
    for file in args.paths.iter().flat_map(|path| files::find(path)) {
        match file.and_then(|file| files::read(&file)) {
            Ok(suite) => play(&suite, args.filter.as_deref(), &mut outcomes),
            Err(found) => problems.extend(found),
        }
    }

    TestRun {
        outcomes,
        problems,
        took: began.elapsed(),
    }
}

fn play(suite: &TestSuite, filter: Option<&str>, outcomes: &mut Vec<TestResult>) {
    let chosen =
        |case: &&test_file::TestCase| filter.is_none_or(|filter| case.name.contains(filter));
    for case in suite.test_file.cases.iter().filter(chosen) {
        let began = Instant::now();
        let misses = test_file::run(case, &suite.saga, &suite.programs, &suite.invariants);
        let took = began.elapsed();
        // A second run records the history. Only a failed test needs it.
        let story = if misses.is_empty() {
            Vec::new()
        } else {
            test_file::history_of(case, &suite.saga, &suite.programs)
        };
        let file = suite.file.clone();

        let name = case.name.clone();
        outcomes.push(TestResult {
            file,
            line: case.line,
            name,
            duration: took,
            mismatches: misses,
            history: story,
        });
    }
}

fn as_text(run: &TestRun, console: &Console) -> Result<(), CommandError> {
    for outcome in &run.outcomes {
        let mark = if outcome.mismatches.is_empty() {
            "ok    "
        } else {
            "FAILED"
        };
        console.line(&format!(
            "{mark} {}: {} ({})",
            outcome.file,
            outcome.name,
            millis(outcome.duration)
        ))?;

        if !outcome.mismatches.is_empty() {
            for line in outcome.lines() {
                console.line(&format!("       {}", line.replace('\n', "\n       ")))?;
            }
        }
    }

    for problem in &run.problems {
        console.line(&problem.to_string())?;
    }
    let Summary { passed, failed } = Summary::of(&run.outcomes);
    console.line(&format!(
        "{passed} passed, {failed} failed, in {}",
        millis(run.took)
    ))
}

fn as_json(run: &TestRun) -> Value {
    let Summary { passed, failed } = Summary::of(&run.outcomes);
    let outcome = |outcome: &TestResult| {
        let misses = outcome
            .mismatches
            .iter()
            .map(|miss| json!({ "line": miss.line, "message": miss.message }));
        json!({
            "file": outcome.file,
            "line": outcome.line,
            "name": outcome.name,
            "passed": outcome.mismatches.is_empty(),
            "milliseconds": outcome.duration.as_secs_f64() * 1000.0,
            "misses": misses.collect::<Vec<_>>(),
            "history": outcome.history,
        })
    };

    json!({
        "passed": passed,
        "failed": failed,
        "milliseconds": run.took.as_secs_f64() * 1000.0,
        "tests": run.outcomes.iter().map(outcome).collect::<Vec<_>>(),
        "problems": run.problems.iter().map(super::check::details).collect::<Vec<_>>(),
    })
}

fn millis(took: Duration) -> String {
    format!("{:.1} ms", took.as_secs_f64() * 1000.0)
}
