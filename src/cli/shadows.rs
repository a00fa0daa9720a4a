//! `orlog shadow`: compares a new version of a definition with the active one, by live instances.

mod report;

use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Subcommand;
use serde_json::{Value, json};

use crate::cli::client::{ApiClient, ClientError, ServerArgs, fields};
use crate::cli::console::{Console, note, text};
use crate::cli::definitions::deploy;
use crate::cli::exit::CommandError;
use crate::cli::list::PageArgs;
use crate::cli::resource::Resource;
use crate::cli::wait::{WaitArgs, not_ended};
use orlog_node::definitions::{self, is_definition};

/// Interval of the requests while a command waits.
const INTERVAL: Duration = Duration::from_secs(1);

const SHADOWS: Resource = Resource {
    name: "shadows",
    head: &[
        "SAGA",
        "STATUS",
        "VERSION",
        "SAMPLE",
        "COMPARED",
        "DIFFERENT",
        "SKIPPED",
        "UNTIL",
    ],
    row: shadow_row,
    empty: "no shadows",
    print: report::print_summary,
};

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Start a shadow: apply the inputs of new instances also to a new version, without performing
    /// its work
    Start(Box<StartArgs>),
    /// List shadows
    List(ListArgs),
    /// Show a shadow with its counts
    Show(ShadowArgs),
    /// Show the differences that a shadow found
    Report(ReportArgs),
    /// Stop a shadow; its report remains
    Stop(ControlArgs),
    /// Deploy the candidate of a shadow
    Promote(PromoteArgs),
}

#[derive(Debug, clap::Args)]
pub(crate) struct StartArgs {
    /// Definition file of the new version, or a directory: a shadow for each definition in it that
    /// differs from the active one
    #[arg(value_name = "FILE|DIR")]
    source: PathBuf,
    /// Percentage of the new instances [default: 100%]
    #[arg(long, value_name = "PERCENT")]
    sample: Option<String>,
    /// Duration [default: 1h]
    #[arg(long = "for", value_name = "DURATION")]
    duration: Option<String>,
    /// Number of compared instances after which the shadow ends [default: 10000]
    #[arg(long, value_name = "COUNT")]
    max_instances: Option<u64>,
    #[command(flatten)]
    record: RecordArgs,
    #[command(flatten)]
    server: ServerArgs,
}

/// Record of a change.
#[derive(Debug, clap::Args)]
struct RecordArgs {
    /// User name recorded in the history
    #[arg(long, value_name = "NAME", env = "USER", hide_env_values = true)]
    user: Option<String>,
    /// Reason recorded in the history
    #[arg(long)]
    reason: Option<String>,
}

#[derive(Debug, clap::Args)]
pub(crate) struct ListArgs {
    /// Filter by prefix of the saga
    #[arg(long)]
    prefix: Option<String>,
    #[command(flatten)]
    page: PageArgs,
}

#[derive(Debug, clap::Args)]
pub(crate) struct ShadowArgs {
    /// Saga of the shadow
    saga: String,
    #[command(flatten)]
    server: ServerArgs,
}

#[derive(Debug, clap::Args)]
pub(crate) struct ReportArgs {
    #[command(flatten)]
    which: ShadowArgs,
    #[command(flatten)]
    wait: WaitArgs,
    /// Exit with 1 if an instance differs, or if no instance was compared
    #[arg(long)]
    fail_on_difference: bool,
}

#[derive(Debug, clap::Args)]
pub(crate) struct ControlArgs {
    #[command(flatten)]
    which: ShadowArgs,
    #[command(flatten)]
    record: RecordArgs,
}

#[derive(Debug, clap::Args)]
pub(crate) struct PromoteArgs {
    #[command(flatten)]
    which: ShadowArgs,
    /// Deploy although instances differ, or no instance was compared
    #[arg(long)]
    accept_differences: bool,
    /// Activate a lower version than the active one
    #[arg(long)]
    allow_downgrade: bool,
    #[command(flatten)]
    record: RecordArgs,
}

pub(crate) async fn run(command: Command, console: &Console) -> Result<(), CommandError> {
    match command {
        Command::Start(args) => start(*args, console).await,
        Command::List(args) => SHADOWS.list(args.prefix, &args.page, console).await,
        Command::Show(args) => SHADOWS.show(&args.server, &args.saga, console).await,
        Command::Report(args) => report(args, console).await,
        Command::Stop(ControlArgs { which, record }) => {
            let body = json!({ "user": record.user, "reason": record.reason });
            SHADOWS
                .change(&which.server, &which.saga, &["stop"], body, console)
                .await
        }
        Command::Promote(args) => promote(args, console).await,
    }
}

async fn start(args: StartArgs, console: &Console) -> Result<(), CommandError> {
    let client = ApiClient::new(&args.server)?;
    let is_dir = args.source.is_dir();
    let files = if is_dir {
        definitions::read_dir(&args.source)?
    } else {
        vec![definitions::read_file(&args.source)?]
    };
    // A directory also has schedules, which a shadow cannot compare. A stated file is checked by
    // the node.
    let files: Vec<_> = files
        .into_iter()
        .filter(|file| !is_dir || is_definition(&file.name()))
        .collect();

    let mut started = Vec::new();
    for file in &files {
        let body = fields([
            ("file", deploy::packed(file)),
            ("sample", json!(args.sample)),
            ("for", json!(args.duration)),
            ("max_instances", json!(args.max_instances)),
            ("user", json!(args.record.user)),
            ("reason", json!(args.record.reason)),
        ]);
        match client.send("/v1/shadows", &Value::Object(body)).await {
            Ok(shadow) => started.push(shadow),
            // A directory also has definitions that did not change.
            Err(ClientError::Problem { body, .. }) if is_dir && body["code"] == "OR0083" => {
                note(&format!("{}: {}", file.name(), text(&body, "detail")));
            }
            Err(trouble) => {
                // Diagnostics name the file without its directory.
                let dir = args
                    .source
                    .parent()
                    .filter(|_| !is_dir)
                    .unwrap_or(&args.source);
                return Err(deploy::rejection(&client, trouble, Some(dir), console)?);
            }
        }
    }

    print_started(&args.source, &started, console)
}

fn print_started(source: &Path, started: &[Value], console: &Console) -> Result<(), CommandError> {
    // Otherwise a script would wait for the report of a shadow that does not exist.
    if started.is_empty() {
        let text = format!(
            "{} has no definition that a shadow can compare with an active one",
            source.display()
        );
        return Err(CommandError::failed(text));
    }
    if console.is_json() {
        return console.json(&json!({ "items": started }));
    }

    for shadow in started {
        report::print_summary(shadow, console)?;
        note(&format!(
            "show the differences: orlog shadow report {}",
            text(shadow, "saga")
        ));
    }

    Ok(())
}

fn shadow_row(item: &Value) -> Vec<String> {
    let version = |side: &str| text(&item[side], "version");
    vec![
        text(item, "saga"),
        text(item, "status"),
        format!("{} -> {}", version("live"), version("candidate")),
        text(item, "sample"),
        text(item, "compared"),
        text(item, "different"),
        report::skipped(item).to_string(),
        text(item, "until"),
    ]
}

async fn report(args: ReportArgs, console: &Console) -> Result<(), CommandError> {
    let client = ApiClient::new(&args.which.server)?;
    let path = SHADOWS.path(&args.which.saga, &[]);
    let waiting = args.wait.begin();
    let mut found = client.get(&path, &[]).await?;
    // A shadow that is `ending` still compares the remaining instances.
    let is_running = |found: &Value| matches!(found["status"].as_str(), Some("running" | "ending"));
    while is_running(&found) && waiting.is_some_and(|waiting| !waiting.is_over()) {
        tokio::time::sleep(INTERVAL).await;
        found = client.get(&path, &[]).await?;
    }

    report::print(&found, console)?;
    // After the output: the differences so far are a result too.
    if waiting.is_some() && is_running(&found) {
        let status = format!("the shadow is {}", text(&found, "status"));
        return Err(not_ended(&status, "wait longer, or `orlog shadow stop`"));
    }

    let count = |name: &str| found[name].as_u64().unwrap_or_default();
    match (count("different"), count("compared")) {
        _ if !args.fail_on_difference => Ok(()),
        // An empty comparison proves nothing.
        (0, 0) => Err(CommandError::failed("no instance was compared")),
        (0, _) => Ok(()),
        (different, compared) => Err(CommandError::failed(format!(
            "{different} of {compared} compared instances differ"
        ))),
    }
}

async fn promote(args: PromoteArgs, console: &Console) -> Result<(), CommandError> {
    let PromoteArgs {
        which,
        accept_differences,
        allow_downgrade,
        record,
    } = args;
    let client = ApiClient::new(&which.server)?;
    let body = json!({
        "accept_differences": accept_differences,
        "allow_downgrade": allow_downgrade,
        "user": record.user,
        "reason": record.reason,
    });

    match client
        .send(&SHADOWS.path(&which.saga, &["promote"]), &body)
        .await
    {
        Ok(plan) if console.is_json() => console.json(&plan),
        Ok(plan) => deploy::report(&plan, console),
        Err(trouble) => Err(deploy::rejection(&client, trouble, None, console)?),
    }
}
