//! `orlog graph`: renders a definition as a graph, with the current steps of an instance.

use std::path::{Path, PathBuf};

use orlog_simulator::graph::{self, GraphFormat, InstanceOverlay};
use serde_json::Value;

use crate::cli::client::{ApiClient, ServerArgs, path};
use crate::cli::console::Console;
use crate::cli::exit::CommandError;
use orlog_node::definitions;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Definition file
    file: PathBuf,
    /// Overlay the state of this instance, read from a node
    #[arg(long, value_name = "SAGA/CORRELATION", conflicts_with = "state")]
    instance: Option<String>,
    /// File with the state to overlay: JSON from `orlog saga show --output json`, or only its
    /// `state`
    #[arg(long, value_name = "FILE")]
    state: Option<PathBuf>,
    /// Graph format
    #[arg(long, value_enum, default_value_t = GraphFormatArg::Mermaid)]
    format: GraphFormatArg,
    #[command(flatten)]
    server: ServerArgs,
}

/// Graph format.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum GraphFormatArg {
    /// Mermaid text, which GitHub and many editors render
    Mermaid,
    /// SVG image
    Svg,
}

pub(crate) async fn run(args: Args, console: &Console) -> Result<(), CommandError> {
    let definition = definitions::load_file(&args.file)?;
    let compiled = definition
        .compiled
        .ok_or_else(|| CommandError::failed("the definition has no steps to render"))?;
    // After the definition: a wrong file is reported without a request to a node.
    let view = match (&args.instance, &args.state) {
        (Some(instance), _) => Some(fetch(instance, &args.server).await?),
        (None, Some(file)) => Some(read(file)?),
        (None, None) => None,
    };

    let overlay = view.as_ref().map(InstanceOverlay::of);
    let format = match args.format {
        GraphFormatArg::Mermaid => GraphFormat::Mermaid,
        GraphFormatArg::Svg => GraphFormat::Svg,
    };
    console.line(graph::render(compiled.definition(), overlay.as_ref(), format).trim_end())
}

async fn fetch(instance: &str, server: &ServerArgs) -> Result<Value, CommandError> {
    let (saga, correlation) = instance.split_once('/').ok_or_else(|| {
        CommandError::usage(format!(
            "invalid --instance {instance:?}; expected SAGA/CORRELATION"
        ))
    })?;
    let mut found = ApiClient::new(server)?
        .get(&path(&["v1", "sagas", saga, correlation]), &[])
        .await?;

    Ok(found["state"].take())
}

fn read(file: &Path) -> Result<Value, CommandError> {
    let invalid = |reason: String| CommandError::failed(format!("{}: {reason}", file.display()));
    let text = std::fs::read_to_string(file)
        .map_err(|error| invalid(format!("cannot be read: {error}")))?;
    let mut value: Value =
        serde_json::from_str(&text).map_err(|error| invalid(format!("is not JSON: {error}")))?;
    let view = if value["state"].is_object() {
        value["state"].take()
    } else {
        value
    };
    // The state of a program without steps, or another JSON file, would render as if nothing had
    // run.
    if view["steps"].is_array() {
        return Ok(view);
    }

    Err(invalid(
        "has no steps; create the file with `orlog saga show --output json`".to_owned(),
    ))
}
