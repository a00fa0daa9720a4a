//! `orlog task list`: lists tasks, page by page up to the limit.

use serde_json::{Value, json};

use crate::cli::client::{ApiClient, ServerArgs};
use crate::cli::console::{Console, items, note, text};
use crate::cli::exit::CommandError;

/// Filter of tasks.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
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
    /// Maximum number of results
    #[arg(long, default_value_t = 100)]
    limit: usize,
    /// Cursor of the previous page
    #[arg(long)]
    cursor: Option<String>,
    #[command(flatten)]
    server: ServerArgs,
}

impl Args {
    fn query(&self) -> Vec<(&'static str, String)> {
        let fields = [
            ("status", Some(self.status.join(","))),
            ("role", self.role.clone()),
            ("assignee", self.assignee.clone()),
            ("saga", self.saga.clone()),
            ("correlation", self.correlation.clone()),
        ];
        fields.into_iter().filter_map(|(name, value)| Some((name, value?))).collect()
    }
}

pub(crate) async fn run(args: Args, console: &Console) -> Result<(), CommandError> {
    let client = ApiClient::new(&args.server)?;
    let (mut found, mut cursor) = (Vec::new(), args.cursor.clone());
    while found.len() < args.limit {
        let mut query = args.query();
        query.push(("limit", (args.limit - found.len()).to_string()));
        query.extend(cursor.take().map(|cursor| ("cursor", cursor)));
        let page = client.get("/v1/tasks", &query).await?;
        found.extend_from_slice(items(&page, "items"));
        cursor = page["next_cursor"].as_str().map(str::to_owned);
        if cursor.is_none() {
            break;
        }
    }
    if console.is_json() {
        return console.json(&json!({ "items": found, "next_cursor": cursor }));
    }
    let rows: Vec<_> = found.iter().map(row).collect();
    let head = ["ID", "TITLE", "STATUS", "ROLES", "ASSIGNEE", "DUE", "SAGA", "CORRELATION"];
    console.table(&head, &rows, "no tasks")?;
    if let Some(cursor) = cursor {
        note(&format!("more results possible; use --cursor {cursor}, or raise --limit"));
    }
    Ok(())
}

fn row(task: &Value) -> Vec<String> {
    let roles = items(task, "roles").iter().filter_map(Value::as_str).collect::<Vec<_>>().join(", ");
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
