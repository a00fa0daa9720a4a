//! `orlog check`: compiles definitions and prints all diagnostics, errors and warnings, with file,
//! line and column.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use orlog_model::{EventType, Name, SagaName};
use orlog_program::{DataSamples, Diagnostic, LintWarning};
use orlog_simulator::SimulationStep;
use orlog_simulator::test_file::TestStepKind;
use serde_json::{Value, json};

use super::test::files::read;
use crate::cli::console::Console;
use crate::cli::exit::CommandError;
use orlog_node::definitions::files::TEST_SUFFIX;
use orlog_node::definitions::schedules::file::{ScheduleFile, is_schedule};
use orlog_node::definitions::{self, LoadedDefinition, references};

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Files of definitions and schedules, or directories, which are searched recursively
    #[arg(required = true, value_name = "FILE|DIR")]
    paths: Vec<PathBuf>,
    /// Treat warnings as errors
    #[arg(long)]
    deny_warnings: bool,
    /// Format of the diagnostics; default: the value of --output
    #[arg(long, value_enum)]
    format: Option<Format>,
}

/// Format of the diagnostics.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Format {
    /// Text
    Text,
    /// One JSON document
    Json,
    /// GitHub Actions annotations on the lines of a pull request
    Github,
}

/// Result of a check.
#[derive(Default)]
struct CheckReport {
    definitions: Vec<CheckedDefinition>,
    schedules: Vec<ScheduleFile>,
    /// Diagnostics that concern no definition, for example an unreadable directory.
    problems: Vec<Diagnostic>,
}

/// Checked definition file.
struct CheckedDefinition {
    file: PathBuf,
    /// `None` if the file does not compile.
    definition: Option<LoadedDefinition>,
    warnings: Vec<LintWarning>,
    problems: Vec<Diagnostic>,
}

pub(crate) fn run(args: &Args, console: &Console) -> Result<(), CommandError> {
    let report = check(&args.paths);
    let usual = if console.is_json() {
        Format::Json
    } else {
        Format::Text
    };

    match args.format.unwrap_or(usual) {
        Format::Text => print(&report, console)?,
        Format::Json => console.json(&to_json(&report))?,
        Format::Github => report
            .annotations()
            .iter()
            .try_for_each(|line| console.line(line))?,
    }

    // A wrong path in CI must not look like a valid set of definitions.
    if report.is_empty() {
        let paths: Vec<_> = args
            .paths
            .iter()
            .map(|path| path.display().to_string())
            .collect();
        let suffixes = definitions::SUFFIXES.join(" or *");

        return Err(CommandError::failed(format!(
            "no file in {} matches *{suffixes}",
            paths.join(", ")
        )));
    }

    report.outcome(args.deny_warnings)
}

fn check(paths: &[PathBuf]) -> CheckReport {
    let mut report = CheckReport::default();
    let mut files_by_dir: BTreeMap<PathBuf, Vec<PathBuf>> = BTreeMap::new();
    let mut schedules = Vec::new();
    for found in paths.iter().flat_map(|path| files(path)) {
        match found {
            Ok(file) if is_schedule(&file.to_string_lossy()) => schedules.push(file),
            Ok(file) => {
                let files = files_by_dir.entry(dir_of(&file)).or_default();
                // Arguments can overlap, such as a directory and a file in it.
                if !files.contains(&file) {
                    files.push(file);
                }
            }
            Err(found) => report.problems.extend(found),
        }
    }

    // Directories are checked one by one, because the files of one are deployed together.
    report.definitions = files_by_dir
        .iter()
        .flat_map(|(dir, files)| check_dir(dir, files))
        .collect();
    check_schedules(&mut report, &schedules);
    report
}

fn check_schedules(report: &mut CheckReport, files: &[PathBuf]) {
    // The sagas of a single file may be elsewhere, and those of an invalid definition are unknown.
    let knows_sagas = !report.definitions.is_empty() && report.problems().count() == 0;
    for file in files {
        match definitions::files::load_schedule_file(file) {
            Ok(schedule) => {
                let definitions = report
                    .definitions
                    .iter()
                    .filter_map(|one| one.definition.as_ref());
                let unknown =
                    schedule.check_saga(definitions.map(|definition| definition.program.as_ref()));
                report
                    .problems
                    .extend(unknown.err().filter(|_| knows_sagas));

                report.schedules.push(schedule);
            }
            Err(found) => report.problems.extend(found),
        }
    }
}

/// Checks files of a directory. Its other definitions are present at a deployment too, so
/// references to them are valid.
fn check_dir(dir: &Path, files: &[PathBuf]) -> Vec<CheckedDefinition> {
    let mut set = Vec::new();
    let mut checked: Vec<_> = files
        .iter()
        .map(|file| {
            let loaded = definitions::load_file(file);
            let (definition, problems) = match loaded {
                Ok(definition) => (Some(definition), Vec::new()),
                Err(problems) => (None, problems),
            };
            // Files with errors are not in the set: contradictions with them cannot be found.
            set.extend(definition.clone());

            CheckedDefinition {
                file: file.clone(),
                definition,
                warnings: Vec::new(),
                problems,
            }
        })
        .collect();

    // By name: all of these files are in one directory, whose path can be written in several ways.
    let is_other = |path: &PathBuf| {
        files
            .iter()
            .all(|file| file.file_name() != path.file_name())
    };
    let others = definitions::list_files(dir)
        .into_iter()
        .filter_map(Result::ok)
        .filter(is_other);
    // The user did not ask for the diagnostics of the other files.
    set.extend(others.filter_map(|file| definitions::load_file(&file).ok()));
    // The order of the diagnostics must not depend on the order of the arguments.
    set.sort_by(|a, b| {
        a.program
            .definition_ref()
            .saga
            .cmp(&b.program.definition_ref().saga)
    });

    // No definition counts as active: a check has no node, so that it reports every contradiction.
    let contradictions = references::contradictions(&set, |_| false);
    let duplicates = definitions::duplicates::sagas(&set);
    let warnings = references::warnings_with(&set, test_samples(dir));
    for one in &mut checked {
        let name = one.file.display().to_string();
        let found = contradictions.iter().chain(&duplicates);
        one.problems
            .extend(found.filter(|problem| problem.file == name).cloned());

        let found = set
            .iter()
            .zip(&warnings)
            // `warnings` has the order of the set, which also contains the other files.
            .filter(|(definition, _)| definition.file.as_ref() == Some(&one.file));
        one.warnings
            .extend(found.flat_map(|(_, warnings)| warnings).cloned());
    }

    checked
}

/// Returns the data of the events and the results in the test files of a directory. `orlog test`
/// reports invalid files.
fn test_samples(dir: &Path) -> DataSamples {
    let mut samples = DataSamples::default();
    let files = definitions::files::list_matching(dir, |name| name.ends_with(TEST_SUFFIX));
    for suite in files
        .into_iter()
        .flatten()
        .filter_map(|file| read(&file).ok())
    {
        for step in suite.test_file.cases.iter().flat_map(|case| &case.steps) {
            // Data of a step that is rejected says nothing about the fields of an event.
            let TestStepKind::Step {
                step: input,
                rejected: None,
            } = &step.kind
            else {
                continue;
            };
            match input {
                SimulationStep::Event(event) => samples.add_event(&event.kind, &event.data),
                SimulationStep::Signal { kind, data } => samples.add_event(kind, data),
                // Results of a named instance can belong to another saga.
                SimulationStep::Ok { tag, event, data } if step.instance.is_none() => {
                    add_result(&mut samples, &suite.saga, tag, event.as_ref(), data);
                }
                SimulationStep::Fail {
                    tag,
                    event: Some(event),
                    data,
                    ..
                } if step.instance.is_none() => {
                    add_result(&mut samples, &suite.saga, tag, Some(event), data);
                }
                SimulationStep::Task {
                    tag, outcome, data, ..
                } if step.instance.is_none() => {
                    add_result(&mut samples, &suite.saga, tag, outcome.as_ref(), data);
                }
                _ => {}
            }
        }
    }

    samples
}

fn add_result(
    samples: &mut DataSamples,
    saga: &SagaName,
    tag: &str,
    event: Option<&EventType>,
    data: &Value,
) {
    if let Ok(step) = Name::new(tag) {
        samples.add_result(saga, &step, event, data);
    }
}

fn dir_of(file: &Path) -> PathBuf {
    match file.parent() {
        Some(dir) if !dir.as_os_str().is_empty() => dir.to_owned(),
        _ => PathBuf::from("."),
    }
}

impl CheckReport {
    fn is_empty(&self) -> bool {
        self.definitions.is_empty() && self.schedules.is_empty() && self.problems.is_empty()
    }

    fn problems(&self) -> impl Iterator<Item = &Diagnostic> {
        self.problems
            .iter()
            .chain(self.definitions.iter().flat_map(|one| &one.problems))
    }

    fn warnings(&self) -> impl Iterator<Item = &LintWarning> {
        self.definitions.iter().flat_map(|one| &one.warnings)
    }

    fn annotations(&self) -> Vec<String> {
        let warnings = self
            .warnings()
            .map(|w| annotation("warning", Some(w.code), &w.diagnostic));
        self.problems()
            .map(|problem| annotation("error", None, problem))
            .chain(warnings)
            .collect()
    }

    fn outcome(&self, deny_warnings: bool) -> Result<(), CommandError> {
        match (self.problems().count(), self.warnings().count()) {
            (0, warnings) if warnings > 0 && deny_warnings => {
                Err(CommandError::failed(counted(warnings, "warning")))
            }
            (0, _) => Ok(()),
            (errors, _) => Err(CommandError::failed(counted(errors, "error"))),
        }
    }
}

fn counted(count: usize, noun: &str) -> String {
    format!("{count} {noun}{}", if count == 1 { "" } else { "s" })
}

/// Prints one line for each definition, followed by its diagnostics.
fn print(report: &CheckReport, console: &Console) -> Result<(), CommandError> {
    report
        .problems
        .iter()
        .try_for_each(|problem| console.line(&problem.to_string()))?;

    for one in &report.definitions {
        console.line(&one.summary_line())?;
        for problem in &one.problems {
            console.line(&problem.to_string())?;
        }

        for warning in &one.warnings {
            console.line(&format!(
                "{} [{}, a warning]",
                warning.diagnostic, warning.code
            ))?;
        }
    }

    let schedule = |file: &ScheduleFile| format!("{}: schedule {}: OK", file.file, file.name);
    report
        .schedules
        .iter()
        .try_for_each(|file| console.line(&schedule(file)))
}

fn to_json(report: &CheckReport) -> Value {
    let valid = report
        .definitions
        .iter()
        .filter(|one| one.problems.is_empty());
    let valid: Vec<_> = valid
        .filter_map(|one| one.definition.as_ref())
        .map(summary)
        .collect();
    let invalid: Vec<_> = report.problems().map(details).collect();

    let warnings = report.warnings().map(|warning| {
        let mut details = details(&warning.diagnostic);
        details["code"] = Value::from(warning.code);
        details
    });
    let schedules: Vec<_> = report
        .schedules
        .iter()
        .map(|file: &ScheduleFile| json!({ "file": file.file, "schedule": file.name }))
        .collect();

    json!({
        "definitions": valid, "schedules": schedules, "warnings": warnings.collect::<Vec<_>>(),
        "problems": invalid,
    })
}

/// Returns the definition files under a path, sorted by name. Searches directories recursively,
/// without hidden directories, `target`, and symbolic links, because they can form cycles.
fn files(path: &Path) -> Vec<Result<PathBuf, Vec<Diagnostic>>> {
    if !path.is_dir() {
        return vec![Ok(path.to_owned())];
    }

    let mut found = definitions::files::list_matching(path, definitions::files::is_deployable);
    // An unreadable directory is already reported by the list of its files.
    let mut dirs: Vec<_> = std::fs::read_dir(path)
        .map(|entries| {
            entries
                .filter_map(Result::ok)
                .map(|entry| entry.path())
                .collect()
        })
        .unwrap_or_default();
    dirs.retain(|dir| is_searched(dir));
    dirs.sort();
    found.extend(dirs.iter().flat_map(|dir| files(dir)));

    found
}

fn is_searched(dir: &Path) -> bool {
    let name = dir.file_name().unwrap_or_default().to_string_lossy();
    dir.is_dir() && !dir.is_symlink() && !name.starts_with('.') && name != "target"
}

impl CheckedDefinition {
    fn summary_line(&self) -> String {
        let file = self.file.display();
        let Some(definition) = &self.definition else {
            return format!("{file}: {}", counted(self.problems.len(), "error"));
        };

        let reference = definition.program.definition_ref();
        let steps = match &definition.compiled {
            Some(compiled) => format!("steps: {}", compiled.definition().steps.len()),
            None => "WebAssembly module".to_owned(),
        };
        let effects = &definition.program.manifest().effects;
        let names: Vec<_> = effects.iter().map(AsRef::as_ref).collect();
        let effects = if names.is_empty() {
            "none".to_owned()
        } else {
            names.join(", ")
        };

        let result = match self.problems.len() {
            0 => "OK".to_owned(),
            errors => counted(errors, "error"),
        };
        let warnings = match self.warnings.len() {
            0 => String::new(),
            warnings => format!(", {}", counted(warnings, "warning")),
        };
        let saga = &reference.saga;
        let version = reference.version;

        format!("{file}: {saga} v{version}: {result}{warnings}; {steps}, effects: {effects}")
    }
}

fn summary(definition: &LoadedDefinition) -> Value {
    let reference = definition.program.definition_ref();
    json!({
        "file": definition.file.as_ref().map(|file| file.display().to_string()).unwrap_or_default(),
        "saga": reference.saga,
        "version": reference.version,
        "effects": definition.program.manifest().effects,
    })
}

pub(crate) fn details(problem: &Diagnostic) -> Value {
    let Diagnostic {
        file,
        line,
        column,
        path,
        message,
        suggestion,
    } = problem;
    json!({
        "file": file, "line": line, "column": column, "path": path, "message": message,
        "suggestion": suggestion,
    })
}

/// Formats one workflow command, for example `::error file=a.saga.yaml,line=3,col=5::message`.
pub(crate) fn annotation(level: &str, code: Option<&str>, problem: &Diagnostic) -> String {
    let Diagnostic {
        file,
        line,
        column,
        path,
        message,
        suggestion,
    } = problem;
    let location = if *line > 0 {
        format!(",line={line},col={column}")
    } else {
        String::new()
    };

    let title = code
        .map(|code| format!(",title={}", property(code)))
        .unwrap_or_default();
    let path = if path.is_empty() {
        String::new()
    } else {
        format!("{path}: ")
    };
    let suggestion = suggestion
        .as_ref()
        .map(|suggestion| format!("; {suggestion}"))
        .unwrap_or_default();
    let text = data(&format!("{path}{message}{suggestion}"));

    format!("::{level} file={}{location}{title}::{text}", property(file))
}

fn data(text: &str) -> String {
    // The percent sign is first: it is part of the other escapes.
    text.replace('%', "%25")
        .replace('\r', "%0D")
        .replace('\n', "%0A")
}

fn property(text: &str) -> String {
    // These characters separate the properties of a workflow command.
    data(text).replace(':', "%3A").replace(',', "%2C")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn annotation_text_is_escaped() {
        let problem = Diagnostic {
            file: "a,b:c.yaml".to_owned(),
            line: 3,
            column: 5,
            path: "steps[0]".to_owned(),
            message: "100 %\nwrong".to_owned(),
            suggestion: Some("try: again".to_owned()),
        };
        assert_eq!(
            annotation("warning", Some("OL01"), &problem),
            "::warning file=a%2Cb%3Ac.yaml,line=3,col=5,title=OL01::steps[0]: 100 %25%0Awrong; try: again"
        );
    }
}
