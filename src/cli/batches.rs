//! `orlog batch`: sends an instruction to all instances that match a filter, and shows the
//! progress.

mod watch;

use clap::{Subcommand, ValueEnum};
use serde_json::{Map, Value, json};

use crate::cli::client::{ApiClient, ServerArgs, fields};
use crate::cli::console::{Console, items, note, text};
use crate::cli::exit::{CommandError, CommandExit};
use crate::cli::filter::filter_value;
use crate::cli::list::PageArgs;
use crate::cli::resource::Resource;

const BATCHES: Resource = Resource {
    name: "batches",
    head: &[
        "BATCH", "STATUS", "ACTION", "SAGA", "PROGRESS", "FAILED", "USER", "CREATED",
    ],
    row: batch_row,
    empty: "no batches",
    print,
};

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Send an instruction to all instances that match
    Create(Box<CreateArgs>),
    /// List batches
    List(ListArgs),
    /// Show a batch with its progress and its first failures
    Show(ShowArgs),
    /// Pause a batch
    Pause(ControlArgs),
    /// Resume a paused batch, or approve its canary
    Resume(ControlArgs),
    /// Stop a batch; it cannot be resumed
    Stop(ControlArgs),
}

/// Instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Action {
    Cancel,
    Pause,
    Resume,
    Retry,
    Skip,
    ForceComplete,
    Signal,
    Migrate,
}

#[derive(Debug, clap::Args)]
pub(crate) struct CreateArgs {
    /// Instruction to each instance
    action: Action,
    #[command(flatten)]
    selection: SelectionArgs,
    /// Event type of a signal
    #[arg(long = "type", value_name = "TYPE", required_if_eq("action", "signal"))]
    kind: Option<String>,
    /// Event payload of a signal as JSON
    #[arg(long, value_name = "JSON", default_value = "null")]
    data: String,
    /// Target definition of a migration: version or hash prefix [default: the active one]
    #[arg(long, value_name = "VERSION|HASH")]
    to: Option<String>,
    /// Number of instances per second [default: 50]
    #[arg(long, value_name = "COUNT")]
    rate: Option<u32>,
    /// Wait for an approval after this number of instances
    #[arg(long, value_name = "COUNT")]
    canary: Option<u32>,
    /// Print what the batch would do (dry run)
    #[arg(long)]
    dry_run: bool,
    /// Show the progress until the batch ends or waits
    #[arg(long, conflicts_with = "dry_run")]
    watch: bool,
    #[command(flatten)]
    options: OptionArgs,
    #[command(flatten)]
    server: ServerArgs,
}

/// Instances.
#[derive(Debug, clap::Args)]
struct SelectionArgs {
    /// Saga
    #[arg(long)]
    saga: String,
    /// Filter by status: running, compensating, completed, failed, cancelled, stuck
    #[arg(long, value_delimiter = ',', value_parser = filter_value)]
    status: Vec<String>,
    /// Filter by prefix of the correlation id
    #[arg(long, value_parser = filter_value)]
    prefix: Option<String>,
    /// Updated at or after this time (RFC 3339)
    #[arg(long, value_name = "TIME", value_parser = filter_value)]
    updated_from: Option<String>,
    /// Updated before this time (RFC 3339)
    #[arg(long, value_name = "TIME", value_parser = filter_value)]
    updated_until: Option<String>,
    /// Started at or after this time (RFC 3339)
    #[arg(long, value_name = "TIME", value_parser = filter_value)]
    created_from: Option<String>,
    /// Started before this time (RFC 3339)
    #[arg(long, value_name = "TIME", value_parser = filter_value)]
    created_until: Option<String>,
    /// Filter with a CEL condition, for example "vars.total > 100" (docs/queries.md)
    #[arg(long, value_name = "CEL", value_parser = filter_value)]
    filter: Option<String>,
    /// All instances of the saga; required without a filter
    #[arg(
        long,
        conflicts_with_all = [
            "status",
            "prefix",
            "updated_from",
            "updated_until",
            "created_from",
            "created_until",
            "filter"
        ]
    )]
    all: bool,
}

impl SelectionArgs {
    fn has_filter(&self) -> bool {
        let times = [
            &self.updated_from,
            &self.updated_until,
            &self.created_from,
            &self.created_until,
        ];
        // The saga does not count: without another filter, the batch reaches all of its instances.
        let filters = times.into_iter().chain([&self.prefix, &self.filter]);
        !self.status.is_empty() || filters.into_iter().any(Option::is_some)
    }
}

/// Options of every change.
#[derive(Debug, clap::Args)]
struct OptionArgs {
    /// Idempotency key of the request; of a new batch, also its id
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
pub(crate) struct ListArgs {
    /// Filter by prefix of the id
    #[arg(long)]
    prefix: Option<String>,
    #[command(flatten)]
    page: PageArgs,
}

#[derive(Debug, clap::Args)]
pub(crate) struct BatchArgs {
    /// Id of the batch
    batch: String,
    #[command(flatten)]
    server: ServerArgs,
}

#[derive(Debug, clap::Args)]
pub(crate) struct ShowArgs {
    #[command(flatten)]
    which: BatchArgs,
    /// Show the progress until the batch ends or waits
    #[arg(long)]
    watch: bool,
}

#[derive(Debug, clap::Args)]
pub(crate) struct ControlArgs {
    #[command(flatten)]
    which: BatchArgs,
    #[command(flatten)]
    options: OptionArgs,
}

pub(crate) async fn run(command: Command, console: &Console) -> Result<(), CommandError> {
    match command {
        Command::Create(args) => create(*args, console).await,
        Command::List(args) => BATCHES.list(args.prefix, &args.page, console).await,
        Command::Show(args) => {
            let client = ApiClient::new(&args.which.server)?;
            let found = client
                .get(&BATCHES.path(&args.which.batch, &[]), &[])
                .await?;

            if args.watch {
                watch(&client, found, console).await
            } else {
                print(&found, console)
            }
        }
        Command::Pause(args) => control("pause", args, console).await,
        Command::Resume(args) => control("resume", args, console).await,
        Command::Stop(args) => control("stop", args, console).await,
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

async fn create(args: CreateArgs, console: &Console) -> Result<(), CommandError> {
    let data: Value = serde_json::from_str(&args.data)
        .map_err(|error| CommandError::usage(format!("--data is not JSON: {error}")))?;
    // Only these actions have fields, and the node rejects unknown fields.
    let action = match args.action {
        Action::Signal => json!({ "type": "signal", "signal": args.kind, "data": data }),
        Action::Migrate => json!({ "type": "migrate", "to": args.to }),
        other => json!({ "type": name(other).replace('-', "_") }),
    };
    // The node accepts such a batch. A missing filter would instruct every instance, so that the
    // command requires the intent.
    if !args.dry_run && !args.selection.all && !args.selection.has_filter() {
        return Err(CommandError::usage(format!(
            "the batch has no filter and would {} all instances of {}; add a filter, or --all; \
             --dry-run shows the number",
            name(args.action),
            args.selection.saga
        )));
    }

    let SelectionArgs {
        saga,
        status,
        prefix,
        filter,
        ..
    } = args.selection;
    let SelectionArgs {
        updated_from,
        updated_until,
        created_from,
        created_until,
        ..
    } = args.selection;

    let mut body = args.options.fields();
    body.extend(fields([
        ("saga", json!(saga)),
        ("status", json!((!status.is_empty()).then_some(status))),
        ("prefix", json!(prefix)),
        ("updated_from", json!(updated_from)),
        ("updated_until", json!(updated_until)),
        ("created_from", json!(created_from)),
        ("created_until", json!(created_until)),
        ("filter", json!(filter)),
        ("action", action),
        ("rate", json!(args.rate)),
        ("canary", json!(args.canary)),
        ("dry_run", json!(args.dry_run)),
    ]));

    let client = ApiClient::new(&args.server)?;
    let created = client
        .post("/v1/batches", Some(&Value::Object(body)))
        .await?;
    match () {
        () if args.dry_run => print_dry_run(&name(args.action), &created, console),
        () if args.watch => watch(&client, created, console).await,
        () => print(&created, console),
    }
}

fn name(action: Action) -> String {
    action
        .to_possible_value()
        .map(|value| value.get_name().to_owned())
        .unwrap_or_default()
}

/// Watches a batch and prints it. The exit code is that of its end.
async fn watch(client: &ApiClient, batch: Value, console: &Console) -> Result<(), CommandError> {
    // The id of the response, because the node creates one if the user stated none.
    let batch = watch::until_end(client, &BATCHES.path(&text(&batch, "id"), &[]), batch).await?;
    print(&batch, console)?;
    let failed = batch["failed"].as_u64().unwrap_or_default();
    // The order matters: a batch that failed or was stopped can also have failed instances.
    match batch["status"].as_str() {
        Some("failed") => Err(CommandError::failed(format!(
            "the batch failed: {}",
            text(&batch, "error")
        ))),
        Some("stopped") => Err(CommandError::new(
            CommandExit::Rejected,
            "the batch was stopped",
        )),
        _ if failed > 0 => Err(CommandError::failed(format!("{failed} instances failed"))),
        _ => Ok(()),
    }
}

fn batch_row(item: &Value) -> Vec<String> {
    // Skipped instances count: the batch does not visit them again.
    let processed = ["done", "skipped", "failed"]
        .iter()
        .filter_map(|count| item[*count].as_u64())
        .sum::<u64>();
    vec![
        text(item, "id"),
        text(item, "status"),
        text(&item["action"], "type"),
        text(&item["selection"], "saga"),
        format!("{processed}/{}", text(item, "matched")),
        text(item, "failed"),
        text(item, "user"),
        text(item, "created_at"),
    ]
}

async fn control(verb: &str, args: ControlArgs, console: &Console) -> Result<(), CommandError> {
    let ControlArgs { which, options } = args;
    let body = Value::Object(options.fields());
    BATCHES
        .change(&which.server, &which.batch, &[verb], body, console)
        .await
}

fn print_dry_run(action: &str, result: &Value, console: &Console) -> Result<(), CommandError> {
    if console.is_json() {
        return console.json(result);
    }

    let rows: Vec<_> = items(result, "items").iter().map(instance_row).collect();
    console.table(
        &["INSTANCE", "STATUS", "NOT APPLICABLE"],
        &rows,
        "no instances",
    )?;
    filter_note(result);

    // The search of a dry run ends at the limits of one request.
    let at_least = if result["exact"] == true {
        ""
    } else {
        "at least "
    };
    let matched = text(result, "matched");
    let skipped = text(result, "not_applicable");

    console.line(&format!(
        "{action}: {at_least}{matched} instances match, {skipped} would be skipped; dry run: no \
         changes made"
    ))
}

fn instance_row(item: &Value) -> Vec<String> {
    ["correlation", "status", "not_applicable"]
        .map(|field| text(item, field))
        .to_vec()
}

fn filter_note(result: &Value) {
    if let Some(reason) = result["first_filter_error"].as_str() {
        note(&format!(
            "filter failed for {} instances; first: {reason}",
            result["filter_errors"]
        ));
    }
}

/// Prints a batch.
fn print(batch: &Value, console: &Console) -> Result<(), CommandError> {
    if console.is_json() {
        return console.json(batch);
    }

    console.status(
        &format!("{}: ", text(batch, "id")),
        &text(batch, "status"),
        "",
    )?;

    let selection = &batch["selection"];
    let action = &batch["action"];
    let status: Vec<_> = items(selection, "status")
        .iter()
        .filter_map(Value::as_str)
        .collect();
    let detail = ["signal", "version"]
        .map(|field| text(action, field))
        .concat();
    let matched = if batch["counted"] == true {
        text(batch, "matched")
    } else {
        format!("{} so far", text(batch, "matched"))
    };

    let counts = ["done", "skipped", "failed"]
        .map(|count| format!("{count} {}", text(batch, count)))
        .join(", ");
    let lines = [
        (
            "action",
            format!("{} {detail}", text(action, "type"))
                .trim_end()
                .to_owned(),
        ),
        ("saga", text(selection, "saga")),
        ("status", status.join(", ")),
        ("prefix", text(selection, "prefix")),
        ("filter", text(selection, "filter")),
        ("rate", format!("{}/s", text(batch, "rate"))),
        ("canary", text(batch, "canary")),
        ("user", text(batch, "user")),
        ("reason", text(batch, "reason")),
        ("matched", matched),
        ("progress", counts),
        ("error", text(batch, "error")),
    ];

    for (name, value) in lines.into_iter().filter(|(_, value)| !value.is_empty()) {
        console.field(&format!("  {name}"), 14, &value)?;
    }
    filter_note(batch);

    // Failures first, because they need a decision. The node stores the first 20 of each outcome.
    let reasons = [("failed", "failures"), ("skipped", "skips")];
    let rows = reasons.iter().flat_map(|(outcome, field)| {
        items(batch, field).iter().map(|one| {
            vec![
                text(one, "correlation"),
                (*outcome).to_owned(),
                text(one, "reason"),
            ]
        })
    });
    let rows: Vec<_> = rows.collect();
    if !rows.is_empty() {
        console.line("")?;
        console.table(&["INSTANCE", "OUTCOME", "REASON"], &rows, "")?;
    }

    // The batch waits without a time limit, and no other output names the command that continues
    // it.
    if batch["status"] == "awaiting_approval" {
        note(&format!(
            "the canary is done; check its instances, then: orlog batch resume {}",
            text(batch, "id")
        ));
    }
    Ok(())
}
