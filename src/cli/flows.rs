//! `orlog flow`: submits graphs of jobs, and shows and controls them.

use std::path::PathBuf;

use clap::Subcommand;
use orlog_program::document::Document;
use orlog_sagas::flow;
use serde_json::{Map, Value, json};

use crate::cli::client::{ApiClient, ServerArgs, fields, path};
use crate::cli::console::{Console, items, text};
use crate::cli::exit::{CommandError, CommandExit};
use crate::cli::list::PageArgs;
use crate::cli::resource::Resource;
use crate::cli::wait::{Outage, WAIT_TIMEOUT, WaitArgs, Waiting, not_ended};

const FLOWS: Resource = Resource {
    name: "flows",
    head: &["FLOW", "NAME", "STATUS", "FINISHED", "USER", "CREATED"],
    row: flow_row,
    empty: "no flows",
    print,
};

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Submit a flow from a file in YAML or JSON
    Submit(SubmitArgs),
    /// List flows
    List(ListArgs),
    /// Show a flow with its jobs and results
    Show(FlowArgs),
    /// Print the lines that the jobs of a flow wrote
    Logs(LogArgs),
    /// Cancel a flow
    Cancel(ControlArgs),
    /// Execute the failed jobs again
    Retry(ControlArgs),
    /// Execute a job again, and all jobs that follow it
    Rerun(RerunArgs),
}

#[derive(Debug, clap::Args)]
pub(crate) struct SubmitArgs {
    /// File of the flow
    file: PathBuf,
    #[command(flatten)]
    wait: WaitArgs,
    /// Id of the flow and idempotency key of the request [default: a new id]
    #[arg(long, visible_alias = "idempotency-key")]
    id: Option<String>,
    /// User name recorded in the history
    #[arg(long, value_name = "NAME", env = "USER", hide_env_values = true)]
    user: Option<String>,
    #[command(flatten)]
    server: ServerArgs,
}

#[derive(Debug, clap::Args)]
pub(crate) struct ListArgs {
    /// Filter by prefix of the id
    #[arg(long)]
    prefix: Option<String>,
    #[command(flatten)]
    page: PageArgs,
}

#[derive(Debug, clap::Args)]
pub(crate) struct FlowArgs {
    /// Id of the flow
    flow: String,
    #[command(flatten)]
    server: ServerArgs,
}

#[derive(Debug, clap::Args)]
pub(crate) struct LogArgs {
    #[command(flatten)]
    which: FlowArgs,
    /// Job whose lines are printed [default: all]
    #[arg(long)]
    job: Option<String>,
    /// Print lines until the flow ends
    #[arg(long, short)]
    follow: bool,
}

/// Options of every change.
#[derive(Debug, clap::Args)]
struct OptionArgs {
    /// Idempotency key of the request
    #[arg(long)]
    id: Option<String>,
    /// User name recorded in the history
    #[arg(long, value_name = "NAME", env = "USER", hide_env_values = true)]
    user: Option<String>,
    /// Reason recorded in the history
    #[arg(long)]
    reason: Option<String>,
}

#[derive(Debug, clap::Args)]
pub(crate) struct ControlArgs {
    #[command(flatten)]
    which: FlowArgs,
    #[command(flatten)]
    options: OptionArgs,
}

#[derive(Debug, clap::Args)]
pub(crate) struct RerunArgs {
    #[command(flatten)]
    which: FlowArgs,
    /// Job from which the flow is executed again
    job: String,
    #[command(flatten)]
    options: OptionArgs,
}

pub(crate) async fn run(command: Command, console: &Console) -> Result<(), CommandError> {
    match command {
        Command::Submit(args) => submit(args, console).await,
        Command::List(args) => FLOWS.list(args.prefix, &args.page, console).await,
        Command::Show(args) => FLOWS.show(&args.server, &args.flow, console).await,
        Command::Logs(args) => logs(args, console).await,
        Command::Cancel(ControlArgs { which, options }) => {
            change(&which, &["cancel"], options, console).await
        }
        Command::Retry(ControlArgs { which, options }) => {
            change(&which, &["retry"], options, console).await
        }
        Command::Rerun(RerunArgs {
            which,
            job,
            options,
        }) => change(&which, &["jobs", &job, "rerun"], options, console).await,
    }
}

impl OptionArgs {
    fn fields(self) -> Map<String, Value> {
        let Self { id, user, reason } = self;
        fields([
            ("id", json!(id)),
            ("user", json!(user)),
            ("reason", json!(reason)),
        ])
    }
}

async fn submit(args: SubmitArgs, console: &Console) -> Result<(), CommandError> {
    let SubmitArgs {
        file,
        wait,
        id,
        user,
        server,
    } = args;
    // Compiled here too: errors have the lines of the file, which the node does not have.
    let body = read(&file)?;

    // A repetition of the request must not submit a second flow.
    let id = id.unwrap_or_else(|| uuid::Uuid::now_v7().to_string());
    // The key is the id of the flow, so that the later requests can name it.
    let client = ApiClient::new(&server)?.with_idempotency_key(Some(&id))?;
    let mut query: Vec<_> = user.map(|user| ("user", user)).into_iter().collect();
    let waiting = wait.begin();
    query.extend(waiting.map(|waiting| waiting.next_part()));

    let ended = async {
        let mut submitted = client
            .post_query("/v1/flows", &query, &body, WAIT_TIMEOUT)
            .await?;
        // The result of the instance can be awaited, the flow cannot: it is read afterwards for the
        // output.
        while let Some(waiting) = waiting.filter(|waiting| !waiting.is_over())
            && !has_ended(&submitted)
        {
            let result = path(&["v1", "sagas", flow::SAGA, &id, "result"]);
            client
                .get_with_timeout(&result, &[waiting.next_part()], WAIT_TIMEOUT)
                .await?;
            submitted = client.get(&FLOWS.path(&id, &[]), &[]).await?;
        }

        Ok(submitted)
    };

    // Without a response, the id is the only way to find out whether the flow was submitted.
    let advice = format!(
        "the flow may be submitted; repeat the command with --id {id}, which submits it only once"
    );
    let submitted = ended
        .await
        .map_err(|error: CommandError| error.advise_if_unavailable(&advice))?;
    print(&submitted, console)?;

    // A cancelled flow also has the status `error`.
    match submitted["status"].as_str() {
        Some("error") if submitted["cancelled"] == true => Err(CommandError::new(
            CommandExit::Rejected,
            "the flow was cancelled",
        )),
        Some("error") => Err(CommandError::failed("the flow failed")),
        _ if waiting.is_some() && !has_ended(&submitted) => {
            let status = format!("the flow is {}", text(&submitted, "status"));
            Err(not_ended(
                &status,
                &format!("wait longer, or `orlog flow show {id}`"),
            ))
        }
        _ => Ok(()),
    }
}

/// Reads a flow, and checks it before it is sent.
pub(super) fn read(file: &PathBuf) -> Result<Value, CommandError> {
    let name = file.display().to_string();
    let source = std::fs::read_to_string(file).map_err(|error: std::io::Error| {
        CommandError::usage(format!("cannot read {name}: {error}"))
    })?;
    // The compiled flow is not sent: the node compiles it again.
    flow::compile(&source, &name).map_err(|diagnostics| {
        let lines: Vec<_> = diagnostics.iter().map(ToString::to_string).collect();
        CommandError::usage(lines.join("\n"))
    })?;

    let document =
        Document::read(&source, &name).map_err(|found| CommandError::usage(found.to_string()))?;
    Ok(document.root().json())
}

fn has_ended(flow: &Value) -> bool {
    matches!(flow["status"].as_str(), Some("finished" | "error"))
}

fn flow_row(item: &Value) -> Vec<String> {
    let jobs = item["jobs_by_status"].as_object().into_iter().flatten();
    let total: u64 = jobs.filter_map(|(_, count)| count.as_u64()).sum();
    let finished = item["jobs_by_status"]["finished"]
        .as_u64()
        .unwrap_or_default();

    vec![
        text(item, "id"),
        text(item, "name"),
        text(item, "status"),
        format!("{finished}/{total}"),
        text(item, "user"),
        text(item, "created_at"),
    ]
}

async fn change(
    which: &FlowArgs,
    verb: &[&str],
    options: OptionArgs,
    console: &Console,
) -> Result<(), CommandError> {
    let body = Value::Object(options.fields());
    FLOWS
        .change(&which.server, &which.flow, verb, body, console)
        .await
}

/// Prints the stored lines, then with `--follow` each line that a job writes until the flow ends.
async fn logs(args: LogArgs, console: &Console) -> Result<(), CommandError> {
    let LogArgs { which, job, follow } = args;
    let client = ApiClient::new(&which.server)?;
    let path = FLOWS.path(&which.flow, &["lines"]);
    let mut after = 0;
    let mut outage = Outage::default();

    loop {
        let mut query = vec![("after", after.to_string())];
        query.extend(job.clone().map(|job| ("job", job)));
        if follow {
            query.push(Waiting::unlimited().next_part());
        }

        // `after` moves only after a page was printed, so that a repeated request loses and repeats
        // no line.
        let mut page = client.get_with_timeout(&path, &query, WAIT_TIMEOUT).await;
        if follow {
            let Some(found) = outage.bridge(page).await? else {
                continue;
            };
            page = Ok(found);
        }

        let page = page?;
        for line in items(&page, "items") {
            if console.is_json() {
                console.json(line)?;
            } else {
                console.line(&format!(
                    "{} {} {}",
                    text(line, "at"),
                    text(line, "job"),
                    text(line, "text")
                ))?;
            }
        }

        let last = page["last"].as_u64().unwrap_or_default();
        // Without `--follow`, an empty page is the end of the stored lines.
        let is_complete = page["ended"] == true || !follow && last == after;
        if is_complete {
            return Ok(());
        }
        after = last;
    }
}

fn print(flow: &Value, console: &Console) -> Result<(), CommandError> {
    if console.is_json() {
        return console.json(flow);
    }

    let note = if flow["cancelled"] == true {
        " (cancelled)"
    } else {
        ""
    };
    console.status(
        &format!("{}: ", text(flow, "id")),
        &text(flow, "status"),
        note,
    )?;

    let labels = flow["labels"].as_object().into_iter().flatten();
    let labels: Vec<_> = labels
        .map(|(name, value)| format!("{name}={}", value.as_str().unwrap_or_default()))
        .collect();
    let lines = [
        ("name", text(flow, "name")),
        ("labels", labels.join(" ")),
        ("user", text(flow, "user")),
        ("submitted", text(flow, "created_at")),
        ("updated", text(flow, "updated_at")),
    ];

    for (name, value) in lines.into_iter().filter(|(_, value)| !value.is_empty()) {
        console.field(&format!("  {name}"), 14, &value)?;
    }
    console.line("")?;

    let row = |job: &Value| {
        let failure = &job["failure"];
        let reason = match failure["code"].as_str() {
            Some(code) => format!("{code}: {}", text(failure, "message")),
            None => String::new(),
        };
        let result = flow["results"]
            .get(text(job, "id"))
            .map(Value::to_string)
            .unwrap_or_default();

        let outcome = [text(job, "waits_for"), reason, result]
            .into_iter()
            .find(|text| !text.is_empty());
        let outcome = outcome.unwrap_or_default();
        let fields =
            ["id", "type", "status", "attempts", "lines", "runner"].map(|field| text(job, field));

        fields.into_iter().chain([outcome]).collect()
    };

    let rows: Vec<_> = items(flow, "jobs").iter().map(row).collect();
    console.table(
        &[
            "JOB", "TYPE", "STATUS", "ATTEMPTS", "LINES", "RUNNER", "RESULT",
        ],
        &rows,
        "no jobs",
    )
}
