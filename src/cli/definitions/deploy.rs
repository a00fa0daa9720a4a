//! `orlog deploy`: activates the definitions of a directory on a node and replaces all active
//! definitions that are shared, or those of a context.

use std::path::{Path, PathBuf};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use crate::cli::client::{ApiClient, ClientError, ServerArgs, path};
use crate::cli::console::{Console, items, note, text};
use crate::cli::exit::CommandError;
use orlog_node::definitions::{self, SourceFile};

#[derive(Debug, clap::Args)]
#[expect(clippy::struct_excessive_bools, reason = "each flag is independent")]
pub(crate) struct Args {
    /// Directory with all definitions (*.saga.yaml, *.saga.wasm) and schedules (*.schedule.yaml)
    #[arg(value_name = "DIR", required_unless_present = "none")]
    dir: Option<PathBuf>,
    /// Context that owns the definitions [default: they are shared by all tenants]
    #[arg(long, value_name = "TENANT")]
    context: Option<String>,
    /// Deploy no files: retire all definitions of the context
    #[arg(long, conflicts_with = "dir", requires = "context")]
    none: bool,
    /// Print the plan without deploying (dry run)
    #[arg(long)]
    dry_run: bool,
    /// Activate definitions with a lower version than the active ones
    #[arg(long)]
    allow_downgrade: bool,
    /// Keep the active definitions and the schedules that no file in the directory contains
    #[arg(long)]
    keep_others: bool,
    /// User name recorded in the deployment
    #[arg(long, value_name = "NAME", env = "USER", hide_env_values = true)]
    user: Option<String>,
    #[command(flatten)]
    server: ServerArgs,
}

pub(crate) async fn run(args: Args, console: &Console) -> Result<(), CommandError> {
    let client = ApiClient::new(&args.server)?;
    let files = args
        .dir
        .as_deref()
        .map(files)
        .transpose()?
        .unwrap_or_default();
    // The content is sent, not the path: the node can be on another machine.
    let bundle =
        json!({ "user": args.user, "files": files.iter().map(packed).collect::<Vec<_>>() });

    let Args {
        dry_run,
        allow_downgrade,
        keep_others,
        ..
    } = args;
    let route = match &args.context {
        None => "/admin/deploy".to_owned(),
        Some(context) => path(&["v1", "contexts", context, "definitions"]),
    };

    let path = format!(
        "{route}?dry_run={dry_run}&allow_downgrade={allow_downgrade}&keep_others={keep_others}"
    );
    // Not `post`: diagnostics of the files have an output of their own.
    match client.send(&path, &bundle).await {
        Ok(plan) if console.is_json() => console.json(&plan),
        Ok(plan) => report(&plan, console),
        Err(trouble) => Err(rejection(&client, trouble, args.dir.as_deref(), console)?),
    }
}

/// Reads the files of a directory.
fn files(dir: &Path) -> Result<Vec<SourceFile>, CommandError> {
    let files = definitions::read_dir(dir)?;
    if files.is_empty() {
        // A wrong directory without definitions would retire all active definitions.
        let suffixes = definitions::SUFFIXES.join(" or *");
        return Err(CommandError::failed(format!(
            "{} has no file that matches *{suffixes}",
            dir.display()
        )));
    }

    Ok(files)
}

/// Encodes text as text, so that it stays readable; anything else as base64.
pub(crate) fn packed(file: &SourceFile) -> Value {
    match std::str::from_utf8(&file.bytes) {
        Ok(text) => json!({ "name": file.name(), "text": text }),
        Err(_) => json!({ "name": file.name(), "base64": STANDARD.encode(&file.bytes) }),
    }
}

/// Prints the plan of a deployment.
pub(crate) fn report(plan: &Value, console: &Console) -> Result<(), CommandError> {
    let mut rows = Vec::new();
    for change in ["added", "changed", "retired", "unchanged"] {
        rows.extend(items(plan, change).iter().map(|one| {
            let version = match one["from_version"].as_u64() {
                Some(from) => format!("{from} -> {}", one["version"]),
                None => text(one, "version"),
            };
            let hash = text(one, "hash").chars().take(8).collect();

            vec![
                change.to_owned(),
                text(one, "saga"),
                version,
                hash,
                text(one, "file"),
            ]
        }));
    }

    rows.extend(items(plan, "schedules").iter().map(|one| {
        let name = format!("schedule {}", text(one, "name"));
        vec![
            text(one, "change"),
            name,
            String::new(),
            String::new(),
            text(one, "file"),
        ]
    }));
    console.table(
        &["CHANGE", "SAGA", "VERSION", "HASH", "FILE"],
        &rows,
        "no definitions",
    )?;

    for warning in items(plan, "warnings").iter().filter_map(Value::as_str) {
        note(&format!("warning: {warning}"));
    }
    console.line(&match (plan["dry_run"].as_bool(), &plan["number"]) {
        (Some(true), _) => "dry run: no changes made".to_owned(),
        (_, number) => match plan["context"].as_str() {
            Some(context) => format!("deployment {number} of the context {context} is active"),
            None => format!("deployment {number} is active"),
        },
    })
}

/// Prints diagnostics in the format of `orlog check`; `dir` contains the files of the user.
pub(crate) fn rejection(
    client: &ApiClient,
    trouble: ClientError,
    dir: Option<&Path>,
    console: &Console,
) -> Result<CommandError, CommandError> {
    let ClientError::Problem {
        status: 422, body, ..
    } = &trouble
    else {
        return Ok(client.failure(trouble));
    };

    let locations = items(body, "errors");
    // Other rejections with this status concern the request, not a file.
    if text(body, "code") != "OR0017" || locations.is_empty() {
        return Ok(client.failure(trouble));
    }

    if console.is_json() {
        console.json(body)?;
    } else {
        for location in locations {
            let detail = text(location, "detail");
            // The node received names without a directory. With it, editors and terminals open the
            // file.
            console.line(&dir.map_or(detail.clone(), |dir| {
                dir.join(&detail).display().to_string()
            }))?;
        }
    }

    Ok(CommandError::failed(text(body, "detail")))
}
