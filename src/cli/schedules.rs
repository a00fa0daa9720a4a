//! `orlog schedule`: lists, creates, changes and triggers schedules, and shows due times without a
//! node.

use clap::Subcommand;
use orlog_model::{Clock as _, Timestamp};
use orlog_sagas::schedule::{Overlap, ScheduleSpec};
use serde_json::{Value, json};

use crate::cli::client::{ApiClient, ServerArgs};
use crate::cli::console::{Console, items, text};
use crate::cli::exit::CommandError;
use crate::cli::list::PageArgs;
use crate::cli::resource::Resource;
use orlog_node::clock::SystemClock;

const SCHEDULES: Resource = Resource {
    name: "schedules",
    head: &[
        "NAME", "STATUS", "TIMES", "SAGA", "NEXT", "RUNNING", "FAILED", "MISSED",
    ],
    row: schedule_row,
    empty: "no schedules",
    print,
};

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// List schedules
    List(ListArgs),
    /// Show a schedule with its next start times and its last runs
    Show(ShowArgs),
    /// Create or replace a schedule
    Create(CreateArgs),
    /// Pause a schedule: due times are ignored until it is resumed
    Pause(ControlArgs),
    /// Resume a schedule after the current time
    Resume(ControlArgs),
    /// Trigger a run now, under the overlap policy
    Trigger(ControlArgs),
    /// Delete a schedule; its runs in progress continue
    Delete(ControlArgs),
    /// Print the next due times of a cron expression, an interval or a date, without a node
    Next(NextArgs),
}

#[derive(Debug, clap::Args)]
pub(crate) struct ListArgs {
    /// Filter by prefix of the name
    #[arg(long)]
    prefix: Option<String>,
    #[command(flatten)]
    page: PageArgs,
}

#[derive(Debug, clap::Args)]
pub(crate) struct NameArgs {
    /// Name of the schedule
    name: String,
    #[command(flatten)]
    server: ServerArgs,
}

#[derive(Debug, clap::Args)]
pub(crate) struct ShowArgs {
    #[command(flatten)]
    which: NameArgs,
    /// Number of the next start times
    #[arg(long, value_name = "COUNT", default_value_t = 10)]
    next: usize,
}

#[derive(Debug, clap::Args)]
pub(crate) struct ControlArgs {
    #[command(flatten)]
    which: NameArgs,
    /// Idempotency key of the request
    #[arg(long, visible_alias = "idempotency-key", value_name = "KEY")]
    id: Option<String>,
    /// User name recorded in the history
    #[arg(long, value_name = "NAME", env = "USER", hide_env_values = true)]
    user: Option<String>,
    /// Reason recorded in the history
    #[arg(long)]
    reason: Option<String>,
}

/// Due times.
#[derive(Debug, clap::Args)]
pub(crate) struct TimesArgs {
    /// Cron expression of five fields, for example "0 2 * * *"
    #[arg(
        long,
        value_name = "EXPRESSION",
        required_unless_present_any = ["every", "at"],
        conflicts_with_all = ["every", "at"]
    )]
    cron: Option<String>,
    /// Interval, for example 15m
    #[arg(long, value_name = "DURATION", conflicts_with = "at")]
    every: Option<String>,
    /// One date: a local time in the zone, or a time with an offset
    #[arg(long, value_name = "TIME")]
    at: Option<String>,
    /// Time from which the intervals count (RFC 3339)
    #[arg(long, value_name = "TIME", requires = "every")]
    anchor: Option<String>,
    /// Time zone of --cron and --at, for example Europe/Berlin [default: UTC]
    #[arg(long)]
    zone: Option<String>,
}

#[derive(Debug, clap::Args)]
pub(crate) struct CreateArgs {
    #[command(flatten)]
    which: NameArgs,
    /// Saga that the schedule starts
    #[arg(long)]
    saga: String,
    /// Start event [default: the first start event of the saga]
    #[arg(long)]
    event: Option<String>,
    /// Data of the start event as JSON; a text that starts with = is an expression
    #[arg(long, value_name = "JSON", default_value = "null")]
    data: String,
    #[command(flatten)]
    times: TimesArgs,
    /// Policy for a due time while an earlier run has not ended: skip, queue, allow, cancel
    #[arg(long, value_name = "POLICY", default_value = "skip", value_parser = overlap)]
    overlap: Overlap,
    /// Time for which a due time can start late [default: 24h]
    #[arg(long, value_name = "DURATION")]
    catch_up: Option<String>,
    /// Maximum delay of a start
    #[arg(long, value_name = "DURATION")]
    jitter: Option<String>,
}

#[derive(Debug, clap::Args)]
pub(crate) struct NextArgs {
    #[command(flatten)]
    times: TimesArgs,
    /// Number of due times
    #[arg(long, default_value_t = 10)]
    count: usize,
    /// Time after which the due times are printed (RFC 3339) [default: now]
    #[arg(long, value_name = "TIME")]
    after: Option<String>,
}

pub(crate) async fn run(command: Command, console: &Console) -> Result<(), CommandError> {
    match command {
        Command::List(args) => SCHEDULES.list(args.prefix, &args.page, console).await,
        Command::Show(args) => {
            let client = ApiClient::new(&args.which.server)?;
            let found = client
                .get(&args.which.path(), &[("next", args.next.to_string())])
                .await?;
            print(&found, console)
        }
        Command::Create(args) => create(args, console).await,
        Command::Pause(args) => control("pause", &args, console).await,
        Command::Resume(args) => control("resume", &args, console).await,
        Command::Trigger(args) => control("trigger", &args, console).await,
        Command::Delete(args) => {
            let ControlArgs {
                which,
                id,
                user,
                reason,
            } = args;
            let query = [("id", id), ("user", user), ("reason", reason)];
            let query: Vec<_> = query
                .into_iter()
                .filter_map(|(name, value)| Some((name, value?)))
                .collect();
            ApiClient::new(&which.server)?
                .delete(&which.path(), &query)
                .await?;

            if console.is_json() {
                return console.json(&json!({ "name": which.name, "deleted": true }));
            }
            console.line(&format!("{}: deleted", which.name))
        }
        Command::Next(args) => next(args, console),
    }
}

impl NameArgs {
    fn path(&self) -> String {
        SCHEDULES.path(&self.name, &[])
    }
}

fn schedule_row(item: &Value) -> Vec<String> {
    vec![
        text(item, "name"),
        text(item, "status"),
        times(&item["spec"]),
        text(&item["spec"], "saga"),
        items(item, "next")
            .first()
            .and_then(Value::as_str)
            .unwrap_or_default()
            .to_owned(),
        items(item, "running").len().to_string(),
        text(item, "failed"),
        text(item, "missed"),
    ]
}

async fn create(args: CreateArgs, console: &Console) -> Result<(), CommandError> {
    let data: Value = serde_json::from_str(&args.data)
        .map_err(|error| CommandError::usage(format!("--data is not JSON: {error}")))?;
    let CreateArgs {
        which,
        saga,
        event,
        times,
        overlap,
        catch_up,
        jitter,
        ..
    } = args;

    let spec = ScheduleSpec {
        saga,
        event,
        data,
        overlap,
        catch_up,
        jitter,
        ..times.spec()
    };
    let client = ApiClient::new(&which.server)?;

    print(&client.put(&which.path(), &json!(spec)).await?, console)
}

async fn control(verb: &str, args: &ControlArgs, console: &Console) -> Result<(), CommandError> {
    let ControlArgs {
        which,
        id,
        user,
        reason,
    } = args;
    let body = json!({ "id": id, "user": user, "reason": reason });
    SCHEDULES
        .change(&which.server, &which.name, &[verb], body, console)
        .await
}

fn next(args: NextArgs, console: &Console) -> Result<(), CommandError> {
    let after = args.after.as_deref().map(Timestamp::parse).transpose();
    let after = after.map_err(|error| CommandError::usage(format!("--after: {error}")))?;
    let spec = args.times.spec();
    let times = spec
        .times()
        .map_err(|error| CommandError::usage(error.to_string()))?;
    // The same computation as in a node, so that a zone or a cron expression can be tried before.
    let next = times
        .after(after.unwrap_or_else(|| SystemClock.now()))
        .take(args.count);

    // The local time shows the effect of daylight saving time.
    let zone = spec.zone.as_deref().unwrap_or("UTC");
    let next: Vec<_> = next
        .map(|time| {
            (
                time.to_string(),
                orlog_sagas::schedule::local_time(time, zone),
            )
        })
        .collect();
    if console.is_json() {
        let next = next
            .iter()
            .map(|(time, local)| json!({ "time": time, "local": local }));
        return console.json(&json!({ "next": next.collect::<Vec<_>>() }));
    }

    let rows: Vec<_> = next
        .into_iter()
        .map(|(time, local)| vec![time, local])
        .collect();
    console.table(&["TIME", &zone.to_uppercase()], &rows, "no further time")
}

impl TimesArgs {
    fn spec(self) -> ScheduleSpec {
        let Self {
            cron,
            every,
            at,
            anchor,
            zone,
        } = self;
        ScheduleSpec {
            cron,
            every,
            at,
            anchor,
            zone,
            ..ScheduleSpec::default()
        }
    }
}

fn overlap(text: &str) -> Result<Overlap, String> {
    serde_json::from_value(Value::from(text))
        .map_err(|_| "policies: skip, queue, allow, cancel".to_owned())
}

/// Returns the times of a specification in one line.
fn times(spec: &Value) -> String {
    let kind = ["cron", "every", "at"]
        .into_iter()
        .find(|kind| spec[kind].is_string())
        .unwrap_or("cron");
    let zone = text(spec, "zone");
    let prefix = if kind == "cron" {
        String::new()
    } else {
        format!("{kind} ")
    };

    format!("{prefix}{} {zone}", text(spec, kind))
        .trim_end()
        .to_owned()
}

fn print(schedule: &Value, console: &Console) -> Result<(), CommandError> {
    if console.is_json() {
        return console.json(schedule);
    }

    console.status(
        &format!("{}: ", text(schedule, "name")),
        &text(schedule, "status"),
        "",
    )?;

    let spec = &schedule["spec"];
    let counts = ["started", "completed", "failed", "skipped", "missed"];
    let counts = counts
        .map(|count| format!("{count} {}", text(schedule, count)))
        .join(", ");
    let lines = [
        (
            "starts",
            format!("{} {}", text(spec, "saga"), text(spec, "event"))
                .trim_end()
                .to_owned(),
        ),
        ("times", times(spec)),
        ("overlap", text(spec, "overlap")),
        ("catch-up", text(spec, "catch_up")),
        ("jitter", text(spec, "jitter")),
        ("file", text(schedule, "file")),
        ("runs", counts),
        ("queued", text(&schedule["queued"], "due")),
    ];

    for (name, value) in lines.into_iter().filter(|(_, value)| !value.is_empty()) {
        console.field(&format!("  {name}"), 14, &value)?;
    }
    console.line("")?;

    let rows: Vec<_> = items(schedule, "next")
        .iter()
        .filter_map(Value::as_str)
        .map(|time| vec![time.to_owned()])
        .collect();
    console.table(&["NEXT"], &rows, "no further time")?;
    console.line("")?;

    let runs = items(schedule, "running")
        .iter()
        .chain(items(schedule, "recent"));
    let rows: Vec<_> = runs.map(run_row).collect();
    console.table(
        &["RUN", "STATUS", "STARTED", "ENDED", "REASON"],
        &rows,
        "no runs",
    )
}

fn run_row(run: &Value) -> Vec<String> {
    // A run has no status field: a cancelled one is in progress until its instance has ended.
    let status = match (run["ended_at"].is_string(), run["failure"].is_string()) {
        (false, _) if run["cancelled"] == true => "cancelling",
        (false, _) => "running",
        (true, false) => "completed",
        (true, true) => "failed",
    };
    let mut row = vec![
        format!("{} {}", text(run, "saga"), text(run, "correlation")),
        status.to_owned(),
    ];
    row.extend(["started_at", "ended_at", "failure"].map(|field| text(run, field)));

    row
}
