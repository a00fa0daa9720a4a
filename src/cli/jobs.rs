//! `orlog runner`: executes jobs of script types in the sandbox of scripts, for a node that it
//! reaches over HTTP.

mod runner;
mod unsent_lines;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::sync::Arc;

use clap::Subcommand;
use orlog_effect::config::{UpstreamConfig as _, UpstreamSite};
use orlog_effect::script::ScriptConfig;
use orlog_effect::{Catalog, EffectObserver, Upstream};
use orlog_model::{Clock, Name, TenantId};
use serde_json::{Value, json};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::cli::client::{ApiClient, ServerArgs, path};
use crate::cli::console::{Console, items, note, text};
use crate::cli::exit::{CommandError, CommandExit};
use crate::cli::list::PageArgs;
use orlog_node::clock::SystemClock;
use runner::{Runner, heartbeat_interval};
use unsent_lines::UnsentLines;

#[derive(Debug, clap::Args)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Option<Command>,
    /// Script type that the runner executes, for example python; repeat it for several
    #[arg(long = "type", value_name = "TYPE", required = true)]
    types: Vec<Name>,
    /// Name of the runner [default: host name and process id]
    #[arg(long)]
    name: Option<String>,
    /// Number of jobs at the same time
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..))]
    capacity: u16,
    /// Label of the runner; repeat it for several
    #[arg(long = "label", value_name = "NAME=VALUE", value_parser = label)]
    labels: Vec<(String, String)>,
    /// File with sandbox options and interpreters: an upstream of the kind script
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    #[command(flatten)]
    server: ServerArgs,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// List the registered runners
    List(ListArgs),
}

#[derive(Debug, clap::Args)]
struct ListArgs {
    #[command(flatten)]
    page: PageArgs,
}

fn label(text: &str) -> Result<(String, String), String> {
    let (name, value) = text
        .split_once('=')
        .ok_or("expected NAME=VALUE, for example zone=eu")?;
    Ok((name.to_owned(), value.to_owned()))
}

pub(crate) async fn run(args: Args, console: &Console) -> Result<(), CommandError> {
    match args.command {
        Some(Command::List(list)) => self::list(list, console).await,
        None => serve(args, console).await,
    }
}

async fn list(args: ListArgs, console: &Console) -> Result<(), CommandError> {
    let found = args.page.fetch("/v1/runners", &[]).await?;
    let head = ["RUNNER", "TYPES", "JOBS", "LABELS", "ADDRESS", "EXPIRES"];

    found.print(&head, runner_row, "no runners", console)
}

fn runner_row(runner: &Value) -> Vec<String> {
    let types: Vec<_> = items(runner, "types")
        .iter()
        .filter_map(Value::as_str)
        .collect();
    let labels = runner["labels"].as_object().into_iter().flatten();
    let labels =
        labels.map(|(name, value)| format!("{name}={}", value.as_str().unwrap_or_default()));

    vec![
        text(runner, "name"),
        types.join(" "),
        format!("{}/{}", text(runner, "jobs"), text(runner, "capacity")),
        labels.collect::<Vec<_>>().join(" "),
        text(runner, "address"),
        text(runner, "expires_at"),
    ]
}

async fn serve(args: Args, console: &Console) -> Result<(), CommandError> {
    let upstream = upstream(&args)?;
    // Before the registration: a runner whose required sandbox is not available must not claim
    // jobs.
    let checked = upstream.provider.check().await;
    checked.map_err(|reason| CommandError::failed(format!("jobs cannot be executed: {reason}")))?;
    let timeout = upstream.policy.attempt_timeout;
    let lines = Arc::new(UnsentLines::default());
    let clock: Arc<dyn Clock> = Arc::new(SystemClock);
    let observer = Arc::clone(&lines) as Arc<dyn EffectObserver>;
    // The catalog connects the provider with the observer that collects its lines.
    let catalog = Catalog::new(vec![upstream], &clock, &observer);
    let catalog = catalog.map_err(|error| CommandError::usage(error.to_string()))?;

    let executor = catalog
        .executors()
        .pop()
        .expect("the catalog has one upstream");
    let tenant = TenantId::new(args.server.tenant().unwrap_or_default());
    let name = args
        .name
        .clone()
        // The name belongs to its caller, and several runners of one machine need different names.
        .unwrap_or_else(|| format!("{}-{}", host(), std::process::id()));

    let runner = Arc::new(Runner {
        client: ApiClient::new(&args.server)?,
        tenant: tenant.map_err(|error| CommandError::usage(format!("--tenant: {error}")))?,
        effects: args
            .types
            .iter()
            .map(|kind| format!("job.{kind}"))
            .collect(),
        provider: Arc::clone(&executor.upstream().provider),
        name,
        timeout,
        lines,
    });

    let labels: BTreeMap<_, _> = args.labels.iter().cloned().collect();
    let registration = json!({
        "name": runner.name, "types": args.types, "labels": labels, "capacity": args.capacity,
        "address": host(),
    });

    // A wrong URL, token or registration ends the command instead of being repeated.
    let registered = runner
        .client
        .post("/v1/runners", Some(&registration))
        .await?;
    let interval = heartbeat_interval(&registered);
    if console.is_json() {
        console.json(&json!({ "runner": runner.name, "effects": runner.effects }))?;
    } else {
        console.line(&format!(
            "{}: executes {}; stop with Ctrl-C",
            runner.name,
            runner.effects.join(", ")
        ))?;
    }

    let (stop, stopping) = watch::channel(false);
    let mut slots = JoinSet::new();
    // One slot for each job: a long job does not delay the claim of the next one.
    for _ in 0..args.capacity {
        slots.spawn(Arc::clone(&runner).slot(stopping.clone()));
    }

    let mut heartbeat = tokio::time::interval(interval);
    // Created once: a signal during a registration request must not be missed.
    let mut stopped = pin!(stop_requested());
    loop {
        tokio::select! {
            reason = &mut stopped => break reason?,
            // The registration expires, and a restarted node has none. A failed repetition is
            // repeated too.
            _ = heartbeat.tick() => drop(runner.client.send("/v1/runners", &registration).await),
        }
    }

    note("finishing the jobs in progress; stop again to leave them to other runners");
    // Slots finish their job and claim no other. A claim request in progress delays the end.
    stop.send_replace(true);
    let finished = async { while slots.join_next().await.is_some() {} };
    tokio::select! {
        () = finished => {}
        // The jobs are not reported: other runners receive them when the claims have expired.
        reason = stop_requested() => {
            reason?;
            let message = "stopped before the jobs in progress have ended; other runners receive \
                           them when the claims expire";
            return Err(CommandError::new(CommandExit::Interrupted, message));
        }
    }
    runner
        .client
        // Otherwise the list would show the runner until its registration expires.
        .delete(&path(&["v1", "runners", &runner.name]), &[])
        .await?;

    Ok(())
}

/// Waits for SIGINT or SIGTERM.
async fn stop_requested() -> Result<(), CommandError> {
    let mut terminated = signal(SignalKind::terminate())?;
    tokio::select! {
        interrupted = tokio::signal::ctrl_c() => Ok(interrupted?),
        _ = terminated.recv() => Ok(()),
    }
}

fn host() -> String {
    rustix::system::uname()
        .nodename()
        .to_string_lossy()
        .into_owned()
}

/// Returns the script upstream of the types, with the options of the file.
fn upstream(args: &Args) -> Result<Upstream, CommandError> {
    let invalid =
        |file: &Path, reason: String| CommandError::usage(format!("{}: {reason}", file.display()));
    let mut table = toml::Table::new();
    if let Some(file) = &args.config {
        let source =
            std::fs::read_to_string(file).map_err(|error| invalid(file, error.to_string()))?;
        table = source
            .parse()
            .map_err(|error: toml::de::Error| invalid(file, error.to_string()))?;
    }

    // As in the directory of upstreams, where the kind is required.
    table.remove("kind");
    let place = args
        .config
        .clone()
        .unwrap_or_else(|| PathBuf::from("--type"));
    let effects = table
        .entry("effects")
        .or_insert_with(|| toml::Table::new().into());
    let effects = effects
        .as_table_mut()
        .ok_or_else(|| invalid(&place, "effects is no table".to_owned()))?;

    let wanted: Vec<_> = args
        .types
        .iter()
        .map(|kind| format!("job.{kind}"))
        .collect();
    // The file can configure more types than this runner executes.
    effects.retain(|effect, _| wanted.iter().any(|wanted| wanted == effect));

    for effect in wanted {
        effects
            .entry(effect)
            .or_insert_with(|| toml::Table::new().into());
    }

    let config: ScriptConfig = table
        .try_into()
        .map_err(|error| invalid(&place, error.to_string()))?;
    config
        .upstream(UpstreamSite::new("runner"))
        .map_err(|error| invalid(&place, error.to_string()))
}
