//! `orlog task`: lists, claims and completes human tasks.

mod actions;

use clap::Subcommand;
use serde_json::Value;

use crate::cli::client::{ApiClient, ServerArgs, path};
use crate::cli::console::{Console, items, text};
use crate::cli::exit::CommandError;
use crate::cli::list::PageArgs;

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// List tasks
    List(List),
    /// Show a task with its events
    Show(Show),
    /// Claim a task exclusively
    Claim(actions::TaskActionArgs),
    /// Release a claimed task
    Release(actions::TaskActionArgs),
    /// Assign a task to another user
    Assign(actions::Assign),
    /// Complete a task; its saga continues
    Complete(actions::Complete),
}

#[derive(Debug, clap::Args)]
pub(crate) struct List {
    /// Filter by status: open, claimed, completed, closed
    #[arg(long, value_delimiter = ',', default_value = "open,claimed")]
    status: Vec<String>,
    /// Filter by role that may claim the task
    #[arg(long)]
    role: Option<String>,
    /// Filter by assignee or claimant
    #[arg(long, value_name = "NAME")]
    assignee: Option<String>,
    /// Filter by saga
    #[arg(long)]
    saga: Option<String>,
    /// Filter by correlation id
    #[arg(long)]
    correlation: Option<String>,
    #[command(flatten)]
    page: PageArgs,
}

#[derive(Debug, clap::Args)]
pub(crate) struct Show {
    /// Task id
    task: String,
    #[command(flatten)]
    server: ServerArgs,
}

pub(crate) async fn run(command: Command, console: &Console) -> Result<(), CommandError> {
    match command {
        Command::List(args) => list(args, console).await,
        Command::Show(args) => show(args, console).await,
        Command::Claim(args) => actions::claim_or_release("claim", args, console).await,
        Command::Release(args) => actions::claim_or_release("release", args, console).await,
        Command::Assign(args) => actions::assign(args, console).await,
        Command::Complete(args) => actions::complete(args, console).await,
    }
}

async fn list(args: List, console: &Console) -> Result<(), CommandError> {
    let query = [
        ("status", Some(args.status.join(","))),
        ("role", args.role),
        ("assignee", args.assignee),
        ("saga", args.saga),
        ("correlation", args.correlation),
    ];
    let head = [
        "ID",
        "TITLE",
        "STATUS",
        "ROLES",
        "ASSIGNEE",
        "DUE",
        "SAGA",
        "CORRELATION",
    ];

    args.page
        .fetch("/v1/tasks", &query)
        .await?
        .print(&head, row, "no tasks", console)
}

fn row(task: &Value) -> Vec<String> {
    let roles = items(task, "roles")
        .iter()
        .filter_map(Value::as_str)
        .collect::<Vec<_>>()
        .join(", ");
    // The claimant comes first, because a claim is exclusive.
    let assignee = match text(task, "claimed_by") {
        claimed if claimed.is_empty() => text(task, "assignee"),
        claimed => claimed,
    };

    vec![
        text(task, "id"),
        text(task, "title"),
        text(task, "status"),
        roles,
        assignee,
        text(task, "due"),
        text(task, "saga"),
        text(task, "correlation"),
    ]
}

async fn show(args: Show, console: &Console) -> Result<(), CommandError> {
    let client = ApiClient::new(&args.server)?;
    let task = client.get(&path(&["v1", "tasks", &args.task]), &[]).await?;
    if console.is_json() {
        return console.json(&task);
    }

    console.status(
        &format!("{}: ", text(&task, "title")),
        &text(&task, "status"),
        "",
    )?;

    let joined = |field: &str| {
        items(&task, field)
            .iter()
            .filter_map(Value::as_str)
            .collect::<Vec<_>>()
            .join(", ")
    };
    let lines = [
        (
            "saga",
            format!("{} {}", text(&task, "saga"), text(&task, "correlation")),
        ),
        ("step", text(&task, "tag")),
        ("roles", joined("roles")),
        ("assignee", text(&task, "assignee")),
        ("claimed by", text(&task, "claimed_by")),
        ("due", text(&task, "due")),
        ("outcomes", joined("outcomes")),
        ("outcome", text(&task, "outcome")),
        ("data", text(&task, "data")),
    ];

    for (name, value) in lines.into_iter().filter(|(_, value)| !value.is_empty()) {
        console.field(&format!("  {name}"), 16, &value)?;
    }
    console.line("")?;

    let fields = ["at", "kind", "user", "assignee", "outcome", "reason"];
    let rows: Vec<Vec<String>> = items(&task, "events")
        .iter()
        .map(|event| fields.map(|field| text(event, field)).into())
        .collect();
    console.table(
        &["TIME", "EVENT", "USER", "ASSIGNEE", "OUTCOME", "REASON"],
        &rows,
        "no events",
    )
}
