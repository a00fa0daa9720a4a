//! `orlog graph`: a picture of a definition, with the place where an instance stands.

use std::path::{Path, PathBuf};

use orlog_simulator::graph::{self, Format, Place};
use serde_json::Value;

use super::client::{Client, Server, path};
use super::console::Console;
use super::exit::Failure;
use crate::definitions;

/// What to draw, and how.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// The definition
    file: PathBuf,
    /// Colour where this instance stands; a node is asked
    #[arg(long, value_name = "SAGA/CORRELATION", conflicts_with = "state")]
    instance: Option<String>,
    /// Colour where an instance stands: JSON as `orlog saga show --output json` prints it, or its `state` alone
    #[arg(long, value_name = "FILE")]
    state: Option<PathBuf>,
    /// How it is drawn
    #[arg(long, value_enum, default_value_t = Kind::Mermaid)]
    format: Kind,
    #[command(flatten)]
    server: Server,
}

/// How it is drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Kind {
    /// Text that Mermaid draws, as GitHub and many editors do
    Mermaid,
    /// A drawing
    Svg,
}

pub(super) async fn perform(args: Args, console: &Console) -> Result<(), Failure> {
    let definition = definitions::read(&args.file).map_err(|problems| {
        let lines: Vec<_> = problems.iter().map(ToString::to_string).collect();
        Failure::failed(lines.join("\n"))
    })?;
    let compiled = definition.compiled.ok_or_else(|| Failure::failed("it has no steps to draw"))?;
    let shown = match (&args.instance, &args.state) {
        (Some(instance), _) => Some(ask(instance, &args.server).await?),
        (None, Some(file)) => Some(read(file)?),
        (None, None) => None,
    };
    let place = shown.as_ref().map(Place::of);
    let format = match args.format {
        Kind::Mermaid => Format::Mermaid,
        Kind::Svg => Format::Svg,
    };
    console.line(graph::draw(compiled.definition(), place.as_ref(), format).trim_end())
}

async fn ask(instance: &str, server: &Server) -> Result<Value, Failure> {
    let (saga, correlation) = instance
        .split_once('/')
        .ok_or_else(|| Failure::usage(format!("--instance {instance:?}: write it as SAGA/CORRELATION")))?;
    let mut found = Client::new(server)?.get(&path(&["v1", "sagas", saga, correlation]), &[]).await?;
    Ok(found["state"].take())
}

fn read(file: &Path) -> Result<Value, Failure> {
    let wrong = |why: String| Failure::failed(format!("{}: {why}", file.display()));
    let text = std::fs::read_to_string(file).map_err(|error| wrong(format!("cannot be read: {error}")))?;
    let mut value: Value =
        serde_json::from_str(&text).map_err(|error| wrong(format!("is no JSON: {error}")))?;
    let shown = if value["state"].is_object() { value["state"].take() } else { value };
    if shown["steps"].is_array() {
        return Ok(shown);
    }
    Err(wrong("it shows no steps; print it with `orlog saga show --output json`".to_owned()))
}
