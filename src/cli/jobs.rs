//! `orlog runner`: executes jobs of script types in the sandbox of scripts, for a node that it
//! reaches over HTTP.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use clap::Subcommand;
use orlog_effect::config::{UpstreamConfig as _, UpstreamSite};
use orlog_effect::script::ScriptConfig;
use orlog_effect::{Attempt, Catalog, EffectObserver, Provider, ProviderError, Upstream};
use orlog_model::{
    Clock, CorrelationId, Effect, EffectName, EventId, InstanceKey, LogLine, Name, Priority,
    SagaName, TenantId, Timestamp, Work, WorkItem,
};
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;
use tokio::task::JoinSet;
use uuid::Uuid;

use crate::cli::client::{ApiClient, ClientError, ServerArgs, path};
use crate::cli::console::{Console, items, note, text};
use crate::cli::exit::{CommandError, CommandExit};
use crate::cli::list::PageArgs;
use orlog_node::clock::SystemClock;

/// Maximum wait of a claim request, which delays the end of the runner.
const CLAIM_WAIT_SECONDS: u64 = 10;
/// Interval in which the lines of a job are sent.
const LINES_INTERVAL: Duration = Duration::from_millis(200);
/// Maximum number of lines of a request.
const MAX_LINES: usize = 1000;
/// Delay before a request is repeated that the node did not answer.
const RETRY_DELAY: Duration = Duration::from_secs(1);

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

/// Runner of a node.
struct Runner {
    client: ApiClient,
    tenant: TenantId,
    name: String,
    effects: Vec<String>,
    provider: Arc<dyn Provider>,
    timeout: Duration,
    lines: Arc<UnsentLines>,
}

/// Lines that are not sent yet, by job.
#[derive(Default)]
struct UnsentLines(Mutex<BTreeMap<Uuid, Vec<String>>>);

impl EffectObserver for UnsentLines {
    fn job_logged(&self, item: &WorkItem, lines: &[LogLine]) {
        let mut jobs = self.0.lock();
        jobs.entry(item.id)
            .or_default()
            .extend(lines.iter().map(|line| line.text.clone()));
    }
}

impl UnsentLines {
    /// Removes the next lines of a job.
    fn take(&self, job: Uuid) -> Vec<String> {
        let mut jobs = self.0.lock();
        let Some(lines) = jobs.get_mut(&job) else {
            return Vec::new();
        };

        // The node rejects a request with more lines.
        let taken = lines.drain(..lines.len().min(MAX_LINES)).collect();
        if lines.is_empty() {
            jobs.remove(&job);
        }
        taken
    }
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
    let interval = Duration::from_secs_f64(
        registered["heartbeat_interval_seconds"]
            .as_f64()
            .unwrap_or(20.0),
    );
    console.line(&format!(
        "{}: executes {}; stop with Ctrl-C",
        runner.name,
        runner.effects.join(", ")
    ))?;

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

impl Runner {
    /// Executes one job after another until the runner stops.
    async fn slot(self: Arc<Self>, stopping: watch::Receiver<bool>) {
        let claim = json!({
            "effects": self.effects, "worker": self.name, "max": 1,
            "wait_seconds": CLAIM_WAIT_SECONDS,
        });
        // Checked between two jobs only, so that a claimed job is always finished.
        while !*stopping.borrow() {
            match self.client.send("/v1/work/claim", &claim).await {
                Ok(claimed) => {
                    for job in items(&claimed, "jobs") {
                        self.work(job).await;
                    }
                }
                Err(error) => {
                    note(&self.client.failure(error).to_string());
                    tokio::time::sleep(RETRY_DELAY).await;
                }
            }
        }
    }

    /// Executes a job and reports its result, unless the claim is lost meanwhile.
    async fn work(&self, job: &Value) {
        let id = text(job, "job");
        let claim = &job["claim"];
        let url = |action: &str| path(&["v1", "work", "jobs", &id, action]);
        let item = match self.item(job) {
            Ok(item) => item,
            Err(reason) => {
                // A job that this release cannot read fails: without a result, each runner would
                // claim it again.
                let report = json!({
                    "claim": claim, "result": "failed", "code": "bad_job", "message": reason,
                });
                return self.report(&url("result"), &report).await;
            }
        };

        let beats =
            Duration::from_secs_f64(job["heartbeat_interval_seconds"].as_f64().unwrap_or(60.0));
        // Not at once: the claim itself starts the time until its expiry.
        let mut heartbeat = tokio::time::interval_at(tokio::time::Instant::now() + beats, beats);
        let mut flush = tokio::time::interval(LINES_INTERVAL);
        let mut execution = pin!(self.execute(&item, job));
        let mut report = loop {
            let is_lost = tokio::select! {
                report = &mut execution => break report,
                _ = heartbeat.tick() => {
                    is_lost(&self.client.send(&url("heartbeat"), &json!({ "claim": claim })).await)
                }
                _ = flush.tick() => self.send_lines(item.id, &url("logs"), claim).await,
            };
            if is_lost {
                // The end of the execution kills the script.
                return note(&format!("{id}: the claim is lost"));
            }
        };
        // Before the result, after which the claim no longer accepts lines.
        self.send_lines(item.id, &url("logs"), claim).await;
        report["claim"] = claim.clone();

        self.report(&url("result"), &report).await;
    }

    /// Sends lines of a job. Returns whether the claim is lost.
    async fn send_lines(&self, job: Uuid, url: &str, claim: &Value) -> bool {
        let lines = self.lines.take(job);
        !lines.is_empty()
            && is_lost(
                &self
                    .client
                    .send(url, &json!({ "claim": claim, "log": lines }))
                    .await,
            )
    }

    /// Reports a result until the node has stored or rejected it.
    async fn report(&self, url: &str, report: &Value) {
        loop {
            match self.client.send(url, report).await {
                Ok(_) => return,
                Err(ClientError::Problem { status, body, .. }) if status < 500 => {
                    return note(&format!("result rejected: {}", text(&body, "detail")));
                }
                // The work is done. Without its result, another runner would repeat it.
                Err(error) => note(&self.client.failure(error).to_string()),
            }
            tokio::time::sleep(RETRY_DELAY).await;
        }
    }

    /// Executes a job; returns the report without its claim.
    async fn execute(&self, item: &WorkItem, job: &Value) -> Value {
        let at = SystemClock.now();
        // Whichever is first: after the deadline of the step, the node no longer waits for the
        // result.
        let rest = item.deadline.map(|deadline| deadline.duration_since(at));
        let timeout = rest.unwrap_or(Duration::MAX).min(self.timeout);
        let number = job["claim_count"]
            .as_u64()
            .and_then(|count| u32::try_from(count).ok())
            .unwrap_or(1);
        let in_doubt = job["in_doubt"] == true;
        let execution = self.provider.execute(
            item,
            Attempt {
                number,
                timeout,
                at,
                in_doubt,
            },
        );

        // The dropped execution kills the script, so that it does not run on without a claim.
        let Ok(result) = tokio::time::timeout(timeout, execution).await else {
            let message = format!("not finished within {timeout:?}");
            return json!({ "result": "failed", "code": "timeout", "message": message });
        };

        match result {
            Ok(reply) => json!({ "result": "succeeded", "payload": reply.payload }),
            Err(error) => {
                let result = match &error {
                    ProviderError::Permanent { .. } => "failed",
                    ProviderError::Transient { .. } => "retry",
                    ProviderError::Abandoned { .. } => "unknown",
                };
                json!({
                    "result": result, "code": error.failure().code,
                    "message": error.failure().message,
                })
            }
        }
    }

    /// Returns a claimed job as a work item.
    fn item(&self, job: &Value) -> Result<WorkItem, String> {
        let text = |field: &str| text(job, field);
        let name = EffectName::new(text("effect")).map_err(|error| error.to_string())?;
        let tag = Name::new(
            job["payload"]["job"]
                .as_str()
                .unwrap_or_default()
                .to_owned(),
        );
        let deadline = job["deadline"].as_str().map(Timestamp::parse).transpose();

        Ok(WorkItem {
            id: text("job")
                .parse()
                .map_err(|_| "the job has no id".to_owned())?,
            instance: InstanceKey {
                tenant: self.tenant.clone(),
                saga: SagaName::new(text("saga")).map_err(|error| error.to_string())?,
                correlation: CorrelationId::new(text("correlation"))
                    .map_err(|error| error.to_string())?,
            },
            work: Work::Effect(Effect {
                tag: tag.map_err(|error| error.to_string())?,
                // The node applies these policies; the provider of scripts reads none of them.
                round: 0,
                name,
                payload: job["payload"].clone(),
                timeout: None,
                retry: None,
                in_doubt: None,
                priority: Priority::Normal,
                schema_version: 1,
            }),
            deadline: deadline.map_err(|error| error.to_string())?,
            causation: EventId::new("claim").map_err(|error| error.to_string())?,
            trace: None,
            created_at: SystemClock.now(),
            priority: Priority::Normal,
        })
    }
}

/// Returns whether a response says that the claim is lost.
fn is_lost(response: &Result<Value, ClientError>) -> bool {
    matches!(response, Err(ClientError::Problem { status: 409, .. }))
}
