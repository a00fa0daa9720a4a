//! `orlog check`: compiles definitions and prints all diagnostics, errors and warnings, with file, line
//! and column.

use std::path::{Path, PathBuf};

use orlog_program::{Diagnostic, LintWarning, lint};
use serde_json::{Value, json};

use crate::cli::console::Console;
use crate::cli::exit::CommandError;
use crate::definitions::{self, LoadedDefinition};
use crate::schedules::file::{ScheduleFile, is_schedule};

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Files of definitions and schedules, or directories of them
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
    valid: Vec<LoadedDefinition>,
    schedules: Vec<ScheduleFile>,
    warnings: Vec<LintWarning>,
    problems: Vec<Diagnostic>,
}

pub(crate) fn run(args: &Args, console: &Console) -> Result<(), CommandError> {
    let report = check(&args.paths);
    let usual = if console.is_json() { Format::Json } else { Format::Text };
    match args.format.unwrap_or(usual) {
        Format::Text => print(&report, console)?,
        Format::Json => console.json(&to_json(&report))?,
        Format::Github => report.annotations().try_for_each(|line| console.line(&line))?,
    }
    report.outcome(args.deny_warnings)
}

fn check(paths: &[PathBuf]) -> CheckReport {
    let mut report = CheckReport::default();
    let found: Vec<_> = paths.iter().flat_map(|path| files(path)).collect();
    let is_file =
        |found: &Result<PathBuf, _>| found.as_ref().is_ok_and(|file| is_schedule(&file.to_string_lossy()));
    let (schedules, definitions): (Vec<_>, Vec<_>) = found.into_iter().partition(is_file);
    for found in definitions {
        match found.and_then(|file| definitions::load_file(&file)) {
            Ok(definition) => {
                let compiled = definition.compiled.as_deref();
                report
                    .warnings
                    .extend(compiled.iter().flat_map(|compiled| lint(compiled, &file(&definition))));
                report.valid.push(definition);
            }
            Err(found) => report.problems.extend(found),
        }
    }
    // The sagas of a single file may be elsewhere, and those of an invalid definition are unknown.
    let knows_sagas = !report.valid.is_empty() && report.problems.is_empty();
    for found in schedules {
        match found.and_then(|file| definitions::files::load_schedule_file(&file)) {
            Ok(schedule) => {
                let programs = report.valid.iter().map(|definition| definition.program.as_ref());
                let unknown = schedule.check_saga(programs).err().filter(|_| knows_sagas);
                report.problems.extend(unknown);
                report.schedules.push(schedule);
            }
            Err(found) => report.problems.extend(found),
        }
    }
    report
}

impl CheckReport {
    fn annotations(&self) -> impl Iterator<Item = String> {
        let warnings = self.warnings.iter().map(|w| annotation("warning", Some(w.code), &w.diagnostic));
        self.problems.iter().map(|problem| annotation("error", None, problem)).chain(warnings)
    }

    fn outcome(&self, deny_warnings: bool) -> Result<(), CommandError> {
        match (self.problems.len(), self.warnings.len()) {
            (0, 0) if self.valid.is_empty() && self.schedules.is_empty() => {
                Err(CommandError::failed(format!("no file matches *{}", definitions::SUFFIXES.join(" or *"))))
            }
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

fn print(report: &CheckReport, console: &Console) -> Result<(), CommandError> {
    report.valid.iter().try_for_each(|definition| console.line(&praise(definition)))?;
    let schedule = |file: &ScheduleFile| format!("{}: schedule {}: OK", file.file, file.name);
    report.schedules.iter().try_for_each(|file| console.line(&schedule(file)))?;
    let warning = |w: &LintWarning| format!("{} [{}, a warning]", w.diagnostic, w.code);
    report.warnings.iter().try_for_each(|found| console.line(&warning(found)))?;
    report.problems.iter().try_for_each(|problem| console.line(&problem.to_string()))
}

fn to_json(report: &CheckReport) -> Value {
    let valid: Vec<_> = report.valid.iter().map(summary).collect();
    let invalid: Vec<_> = report.problems.iter().map(details).collect();
    let warnings = report.warnings.iter().map(|warning| {
        let mut details = details(&warning.diagnostic);
        details["code"] = Value::from(warning.code);
        details
    });
    let schedule = |file: &ScheduleFile| json!({ "file": file.file, "schedule": file.name });
    let schedules: Vec<_> = report.schedules.iter().map(schedule).collect();
    json!({ "definitions": valid, "schedules": schedules, "warnings": warnings.collect::<Vec<_>>(), "problems": invalid })
}

fn files(path: &Path) -> Vec<Result<PathBuf, Vec<Diagnostic>>> {
    if path.is_dir() {
        definitions::files::list_matching(path, definitions::files::is_deployable)
    } else {
        vec![Ok(path.to_owned())]
    }
}

fn file(definition: &LoadedDefinition) -> String {
    definition.file.as_ref().map(|file| file.display().to_string()).unwrap_or_default()
}

fn praise(definition: &LoadedDefinition) -> String {
    let reference = definition.program.definition_ref();
    let steps = match &definition.compiled {
        Some(compiled) => format!("steps: {}", compiled.definition().steps.len()),
        None => "WebAssembly module".to_owned(),
    };
    let effects = &definition.program.manifest().effects;
    let names: Vec<_> = effects.iter().map(AsRef::as_ref).collect();
    let effects = if names.is_empty() { "none".to_owned() } else { names.join(", ") };
    let (file, saga, version) = (file(definition), &reference.saga, reference.version);
    format!("{file}: {saga} v{version}: OK; {steps}, effects: {effects}")
}

fn summary(definition: &LoadedDefinition) -> Value {
    let reference = definition.program.definition_ref();
    json!({
        "file": file(definition),
        "saga": reference.saga,
        "version": reference.version,
        "effects": definition.program.manifest().effects,
    })
}

pub(crate) fn details(problem: &Diagnostic) -> Value {
    let Diagnostic { file, line, column, path, message, suggestion } = problem;
    json!({
        "file": file, "line": line, "column": column, "path": path, "message": message, "suggestion": suggestion,
    })
}

/// Formats one workflow command, for example `::error file=a.saga.yaml,line=3,col=5::message`.
pub(crate) fn annotation(level: &str, code: Option<&str>, problem: &Diagnostic) -> String {
    let Diagnostic { file, line, column, path, message, suggestion } = problem;
    let location = if *line > 0 { format!(",line={line},col={column}") } else { String::new() };
    let title = code.map(|code| format!(",title={}", property(code))).unwrap_or_default();
    let path = if path.is_empty() { String::new() } else { format!("{path}: ") };
    let suggestion = suggestion.as_ref().map(|suggestion| format!("; {suggestion}")).unwrap_or_default();
    let text = data(&format!("{path}{message}{suggestion}"));
    format!("::{level} file={}{location}{title}::{text}", property(file))
}

fn data(text: &str) -> String {
    text.replace('%', "%25").replace('\r', "%0D").replace('\n', "%0A")
}

fn property(text: &str) -> String {
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
