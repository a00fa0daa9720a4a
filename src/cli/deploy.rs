//! `orlog deploy`: puts the definitions of a folder in force on a node, in the place of all that are.

use std::path::{Path, PathBuf};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use super::client::{Client, Server, Trouble};
use super::console::{Console, items, remark, text};
use super::exit::Failure;
use crate::definitions::{self, SourceFile};

/// What to deploy, and where.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// The folder with all definitions, *.saga.yaml and *.saga.wasm
    #[arg(value_name = "DIR")]
    folder: PathBuf,
    /// Say what would change, and change nothing
    #[arg(long)]
    dry_run: bool,
    /// Who deploys, for the record
    #[arg(long, value_name = "NAME", env = "USER", hide_env_values = true)]
    by: Option<String>,
    #[command(flatten)]
    server: Server,
}

pub(super) async fn perform(args: Args, console: &Console) -> Result<(), Failure> {
    let client = Client::new(&args.server)?;
    let files = definitions::read_folder(&args.folder).map_err(|problems| {
        let lines: Vec<_> = problems.iter().map(ToString::to_string).collect();
        Failure::failed(lines.join("\n"))
    })?;
    if files.is_empty() {
        // A folder by mistake would retire everything.
        let suffixes = definitions::SUFFIXES.join(" or *");
        return Err(Failure::failed(format!("{} has no file named *{suffixes}", args.folder.display())));
    }
    let bundle = json!({ "by": args.by, "files": files.iter().map(packed).collect::<Vec<_>>() });
    let path = if args.dry_run { "/admin/deploy?dry_run=true" } else { "/admin/deploy" };
    match client.send(path, &bundle).await {
        Ok(plan) if console.is_json() => console.json(&plan),
        Ok(plan) => report(&plan, console),
        Err(trouble) => Err(refused(&client, trouble, &args.folder, console)?),
    }
}

/// Text as text, so that a proxy or a person can read it; anything else as base64.
fn packed(file: &SourceFile) -> Value {
    match std::str::from_utf8(&file.bytes) {
        Ok(text) => json!({ "name": file.name(), "text": text }),
        Err(_) => json!({ "name": file.name(), "base64": STANDARD.encode(&file.bytes) }),
    }
}

fn report(plan: &Value, console: &Console) -> Result<(), Failure> {
    let mut rows = Vec::new();
    for what in ["added", "changed", "retired", "unchanged"] {
        rows.extend(items(plan, what).iter().map(|one| {
            let version = match one["from_version"].as_u64() {
                Some(from) => format!("{from} -> {}", one["version"]),
                None => text(one, "version"),
            };
            let hash = text(one, "hash").chars().take(8).collect();
            vec![what.to_owned(), text(one, "saga"), version, hash, text(one, "file")]
        }));
    }
    console.table(&["", "SAGA", "VERSION", "HASH", "FILE"], &rows, "no definitions")?;
    for warning in items(plan, "warnings").iter().filter_map(Value::as_str) {
        remark(&format!("warning: {warning}"));
    }
    console.line(&match (plan["dry_run"].as_bool(), &plan["number"]) {
        (Some(true), _) => "nothing was changed: a dry run".to_owned(),
        (_, number) => format!("deployment {number} is in force"),
    })
}

/// Prints mistakes as `orlog check` does.
fn refused(client: &Client, trouble: Trouble, folder: &Path, console: &Console) -> Result<Failure, Failure> {
    let Trouble::Problem { status: 422, body } = &trouble else { return Ok(client.failure(trouble)) };
    let places = items(body, "errors");
    if text(body, "code") != "OR0017" || places.is_empty() {
        return Ok(client.failure(trouble));
    }
    if console.is_json() {
        console.json(body)?;
    } else {
        for place in places {
            console.line(&folder.join(text(place, "detail")).display().to_string())?;
        }
    }
    Ok(Failure::failed(text(body, "detail")))
}
