//! `orlog check`: compiles definitions and prints everything that is wrong with them or probably should not be so, with
//! file, line and column.

use std::path::{Path, PathBuf};

use orlog_program::{Problem, Warning, lint};
use serde_json::{Value, json};

use super::console::Console;
use super::exit::Failure;
use crate::definitions::{self, Definition};

/// What to check.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// Files, or folders of definitions
    #[arg(required = true, value_name = "FILE|DIR")]
    paths: Vec<PathBuf>,
    /// Fail on warnings too
    #[arg(long)]
    deny_warnings: bool,
    /// How findings are written; without this as --output says
    #[arg(long, value_enum)]
    format: Option<Format>,
}

/// For whom findings are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Format {
    /// People
    Text,
    /// Programs: one JSON document
    Json,
    /// GitHub Actions: annotations at the lines of a pull request
    Github,
}

/// What came out.
#[derive(Default)]
struct Report {
    good: Vec<Definition>,
    warnings: Vec<Warning>,
    problems: Vec<Problem>,
}

pub(super) fn perform(args: &Args, console: &Console) -> Result<(), Failure> {
    let report = check(&args.paths);
    let usual = if console.is_json() { Format::Json } else { Format::Text };
    match args.format.unwrap_or(usual) {
        Format::Text => print(&report, console)?,
        Format::Json => console.json(&to_json(&report))?,
        Format::Github => report.annotations().try_for_each(|line| console.line(&line))?,
    }
    report.verdict(args.deny_warnings)
}

fn check(paths: &[PathBuf]) -> Report {
    let mut report = Report::default();
    for found in paths.iter().flat_map(|path| files(path)) {
        match found.and_then(|file| definitions::read(&file)) {
            Ok(definition) => {
                let compiled = definition.compiled.as_deref();
                report
                    .warnings
                    .extend(compiled.iter().flat_map(|compiled| lint(compiled, &file(&definition))));
                report.good.push(definition);
            }
            Err(found) => report.problems.extend(found),
        }
    }
    report
}

impl Report {
    fn annotations(&self) -> impl Iterator<Item = String> {
        let warnings = self.warnings.iter().map(|w| annotation("warning", Some(w.code), &w.problem));
        self.problems.iter().map(|problem| annotation("error", None, problem)).chain(warnings)
    }

    fn verdict(&self, deny_warnings: bool) -> Result<(), Failure> {
        match (self.problems.len(), self.warnings.len()) {
            (0, 0) if self.good.is_empty() => Err(Failure::failed(format!(
                "there is no file named *{}",
                definitions::SUFFIXES.join(" or *")
            ))),
            (0, warnings) if warnings > 0 && deny_warnings => {
                Err(Failure::failed(counted(warnings, "warning")))
            }
            (0, _) => Ok(()),
            (mistakes, _) => Err(Failure::failed(counted(mistakes, "mistake"))),
        }
    }
}

fn counted(count: usize, what: &str) -> String {
    format!("{count} {what}{}", if count == 1 { "" } else { "s" })
}

fn print(report: &Report, console: &Console) -> Result<(), Failure> {
    report.good.iter().try_for_each(|definition| console.line(&praise(definition)))?;
    let warning = |w: &Warning| format!("{} [{}, a warning]", w.problem, w.code);
    report.warnings.iter().try_for_each(|found| console.line(&warning(found)))?;
    report.problems.iter().try_for_each(|problem| console.line(&problem.to_string()))
}

fn to_json(report: &Report) -> Value {
    let good: Vec<_> = report.good.iter().map(summary).collect();
    let wrong: Vec<_> = report.problems.iter().map(details).collect();
    let warnings = report.warnings.iter().map(|warning| {
        let mut details = details(&warning.problem);
        details["code"] = Value::from(warning.code);
        details
    });
    json!({ "definitions": good, "warnings": warnings.collect::<Vec<_>>(), "problems": wrong })
}

fn files(path: &Path) -> Vec<Result<PathBuf, Vec<Problem>>> {
    if path.is_dir() { definitions::list(path) } else { vec![Ok(path.to_owned())] }
}

fn file(definition: &Definition) -> String {
    definition.file.as_ref().map(|file| file.display().to_string()).unwrap_or_default()
}

fn praise(definition: &Definition) -> String {
    let reference = definition.program.reference();
    let steps = match &definition.compiled {
        Some(compiled) => format!("steps: {}", compiled.definition().steps.len()),
        None => "a WebAssembly module".to_owned(),
    };
    let effects = &definition.program.manifest().effects;
    let names: Vec<_> = effects.iter().map(AsRef::as_ref).collect();
    let effects = if names.is_empty() { "none".to_owned() } else { names.join(", ") };
    let (file, saga, version) = (file(definition), &reference.saga, reference.version);
    format!("{file}: {saga} version {version} is well: {steps}, effects: {effects}")
}

fn summary(definition: &Definition) -> Value {
    let reference = definition.program.reference();
    json!({
        "file": file(definition),
        "saga": reference.saga,
        "version": reference.version,
        "effects": definition.program.manifest().effects,
    })
}

pub(super) fn details(problem: &Problem) -> Value {
    let Problem { file, line, column, path, message, suggestion } = problem;
    json!({
        "file": file, "line": line, "column": column, "path": path, "message": message, "suggestion": suggestion,
    })
}

/// One workflow command, for example `::error file=a.saga.yaml,line=3,col=5::what is wrong`.
pub(super) fn annotation(level: &str, code: Option<&str>, problem: &Problem) -> String {
    let Problem { file, line, column, path, message, suggestion } = problem;
    let place = if *line > 0 { format!(",line={line},col={column}") } else { String::new() };
    let title = code.map(|code| format!(",title={}", property(code))).unwrap_or_default();
    let path = if path.is_empty() { String::new() } else { format!("{path}: ") };
    let suggestion = suggestion.as_ref().map(|suggestion| format!("; {suggestion}")).unwrap_or_default();
    let text = data(&format!("{path}{message}{suggestion}"));
    format!("::{level} file={}{place}{title}::{text}", property(file))
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
    fn nothing_in_a_text_ends_the_annotation() {
        let problem = Problem {
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
