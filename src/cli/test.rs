//! `orlog test`: plays the test files that stand beside definitions, in virtual time and without a node.

mod files;
mod watch;

use std::path::PathBuf;
use std::time::{Duration, Instant};

use orlog_program::Problem;
use orlog_simulator::test_file::{self, Outcome, Summary};
use serde_json::{Value, json};

use super::console::Console;
use super::exit::Failure;
use files::Suite;

/// Which tests, and how to tell.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// Test files, or folders with *.saga.test.yaml in them, at any depth
    #[arg(default_value = ".", value_name = "FILE|DIR")]
    paths: Vec<PathBuf>,
    /// Only tests whose name holds this
    #[arg(long, value_name = "TEXT")]
    filter: Option<String>,
    /// How the result is written
    #[arg(long, value_enum)]
    format: Option<Format>,
    /// Write `JUnit` XML there too
    #[arg(long, value_name = "FILE")]
    junit: Option<PathBuf>,
    /// Run again whenever a test or a definition changes
    #[arg(long)]
    watch: bool,
}

/// How a result is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum Format {
    /// For people
    Text,
    /// For programs
    Json,
}

impl Format {
    /// Whether programs read it: because it was said here, or for all commands.
    pub(super) fn is_json(format: Option<Self>, console: &Console) -> bool {
        format.map_or(console.is_json(), |format| format == Self::Json)
    }
}

/// What a run came to.
struct Run {
    outcomes: Vec<Outcome>,
    problems: Vec<Problem>,
    took: Duration,
}

pub(super) fn perform(args: &Args, console: &Console) -> Result<(), Failure> {
    if args.watch {
        return watch::forever(&args.paths, || report(args, console));
    }
    report(args, console)
}

fn report(args: &Args, console: &Console) -> Result<(), Failure> {
    let run = run(args);
    if let Some(path) = &args.junit {
        let written = std::fs::write(path, test_file::junit(&run.outcomes));
        written.map_err(|e| Failure::failed(format!("{} cannot be written: {e}", path.display())))?;
    }
    if Format::is_json(args.format, console) {
        console.json(&as_json(&run))?;
    } else {
        as_text(&run, console)?;
    }
    let Summary { passed, failed } = Summary::of(&run.outcomes);
    match (failed, run.problems.len()) {
        (0, 0) if passed == 0 => Err(Failure::failed(nothing(args))),
        (0, 0) => Ok(()),
        (0, problems) => Err(Failure::failed(format!("{problems} mistakes in the files"))),
        (failed, _) => Err(Failure::failed(format!("{failed} of {} tests failed", failed + passed))),
    }
}

fn nothing(args: &Args) -> String {
    let paths: Vec<_> = args.paths.iter().map(|path| path.display().to_string()).collect();
    match &args.filter {
        Some(filter) => format!("no test in {} has {filter:?} in its name", paths.join(", ")),
        None => format!("there is no test in {}", paths.join(", ")),
    }
}

fn run(args: &Args) -> Run {
    let began = Instant::now();
    let (mut outcomes, mut problems) = (Vec::new(), Vec::new());
    for file in args.paths.iter().flat_map(|path| files::find(path)) {
        match file.and_then(|file| files::read(&file)) {
            Ok(suite) => play(&suite, args.filter.as_deref(), &mut outcomes),
            Err(found) => problems.extend(found),
        }
    }
    Run { outcomes, problems, took: began.elapsed() }
}

fn play(suite: &Suite, filter: Option<&str>, outcomes: &mut Vec<Outcome>) {
    let chosen = |case: &&test_file::Case| filter.is_none_or(|filter| case.name.contains(filter));
    for case in suite.book.cases.iter().filter(chosen) {
        let began = Instant::now();
        let misses = test_file::run(case, &suite.saga, &suite.programs);
        let took = began.elapsed();
        let story = if misses.is_empty() {
            Vec::new()
        } else {
            test_file::story_of(case, &suite.saga, &suite.programs)
        };
        let (file, name) = (suite.file.clone(), case.name.clone());
        outcomes.push(Outcome { file, line: case.line, name, took, misses, story });
    }
}

fn as_text(run: &Run, console: &Console) -> Result<(), Failure> {
    for outcome in &run.outcomes {
        let mark = if outcome.misses.is_empty() { "ok    " } else { "FAILED" };
        console.line(&format!("{mark} {}: {} ({})", outcome.file, outcome.name, millis(outcome.took)))?;
        if !outcome.misses.is_empty() {
            for line in outcome.lines() {
                console.line(&format!("       {}", line.replace('\n', "\n       ")))?;
            }
        }
    }
    for problem in &run.problems {
        console.line(&problem.to_string())?;
    }
    let Summary { passed, failed } = Summary::of(&run.outcomes);
    console.line(&format!("{passed} passed, {failed} failed, in {}", millis(run.took)))
}

fn as_json(run: &Run) -> Value {
    let Summary { passed, failed } = Summary::of(&run.outcomes);
    let outcome = |outcome: &Outcome| {
        let misses = outcome.misses.iter().map(|miss| json!({ "line": miss.line, "message": miss.message }));
        json!({
            "file": outcome.file,
            "line": outcome.line,
            "name": outcome.name,
            "passed": outcome.misses.is_empty(),
            "milliseconds": outcome.took.as_secs_f64() * 1000.0,
            "misses": misses.collect::<Vec<_>>(),
            "history": outcome.story,
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
