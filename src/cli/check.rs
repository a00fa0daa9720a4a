//! `orlog check`: compiles definitions and prints everything that is wrong with them, with file, line and column.

use std::path::{Path, PathBuf};

use orlog_program::Problem;
use serde_json::{Value, json};

use crate::definitions::{self, Definition};

use super::console::Console;
use super::exit::Failure;

/// What to check.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// Files, or folders of *.saga.yaml
    #[arg(required = true, value_name = "FILE|DIR")]
    paths: Vec<PathBuf>,
}

pub(super) fn perform(args: &Args, console: &Console) -> Result<(), Failure> {
    let (mut good, mut problems) = (Vec::new(), Vec::new());
    for file in args.paths.iter().flat_map(|path| files(path)) {
        match file.and_then(|file| definitions::read(&file)) {
            Ok(definition) => good.push(definition),
            Err(found) => problems.extend(found),
        }
    }
    if console.is_json() {
        let good: Vec<_> = good.iter().map(summary).collect();
        let wrong: Vec<_> = problems.iter().map(details).collect();
        console.json(&json!({ "definitions": good, "problems": wrong }))?;
    } else {
        for definition in &good {
            console.line(&praise(definition))?;
        }
        for problem in &problems {
            console.line(&problem.to_string())?;
        }
    }
    match problems.len() {
        0 if good.is_empty() => {
            Err(Failure::failed(format!("there is no file named *{}", definitions::SUFFIX)))
        }
        0 => Ok(()),
        1 => Err(Failure::failed("1 mistake")),
        count => Err(Failure::failed(format!("{count} mistakes"))),
    }
}

fn files(path: &Path) -> Vec<Result<PathBuf, Vec<Problem>>> {
    if path.is_dir() { definitions::list(path) } else { vec![Ok(path.to_owned())] }
}

fn file(definition: &Definition) -> String {
    definition.file.as_ref().map(|file| file.display().to_string()).unwrap_or_default()
}

fn praise(definition: &Definition) -> String {
    let reference = definition.program.reference();
    let steps = definition.compiled.as_ref().map_or(0, |compiled| compiled.definition().steps.len());
    let effects = &definition.program.manifest().effects;
    let names: Vec<_> = effects.iter().map(AsRef::as_ref).collect();
    let effects = if names.is_empty() { "none".to_owned() } else { names.join(", ") };
    let (file, saga, version) = (file(definition), &reference.saga, reference.version);
    format!("{file}: {saga} version {version} is well: steps: {steps}, effects: {effects}")
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

fn details(problem: &Problem) -> Value {
    let Problem { file, line, column, path, message, suggestion } = problem;
    json!({
        "file": file, "line": line, "column": column, "path": path, "message": message, "suggestion": suggestion,
    })
}
