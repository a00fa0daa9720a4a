//! `orlog task list`: tasks, page after page until there are enough.

use serde_json::{Value, json};

use crate::cli::client::{Client, Server};
use crate::cli::console::{Console, items, remark, text};
use crate::cli::exit::Failure;

/// Which tasks.
#[derive(Debug, clap::Args)]
pub(in crate::cli) struct Args {
    /// In these statuses only: open, claimed, completed, closed
    #[arg(long, value_delimiter = ',', default_value = "open,claimed")]
    status: Vec<String>,
    /// That somebody with this role may take
    #[arg(long)]
    role: Option<String>,
    /// That this person is to do, or has taken
    #[arg(long, value_name = "NAME")]
    assignee: Option<String>,
    /// Of this saga only
    #[arg(long)]
    saga: Option<String>,
    /// Of the instances with this correlation id only
    #[arg(long)]
    correlation: Option<String>,
    /// At most so many
    #[arg(long, default_value_t = 100)]
    limit: usize,
    /// Go on where an earlier list ended
    #[arg(long)]
    cursor: Option<String>,
    #[command(flatten)]
    server: Server,
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

pub(super) async fn perform(args: Args, console: &Console) -> Result<(), Failure> {
    let client = Client::new(&args.server)?;
    let (mut found, mut cursor) = (Vec::new(), args.cursor.clone());
    while found.len() < args.limit {
        let mut query = args.query();
        query.push(("limit", (args.limit - found.len()).to_string()));
        query.extend(cursor.take().map(|cursor| ("cursor", cursor)));
        let page = client.get("/v1/tasks", &query).await?;
        found.extend_from_slice(items(&page, "items"));
        cursor = page["next"].as_str().map(str::to_owned);
        if cursor.is_none() {
            break;
        }
    }
    if console.is_json() {
        return console.json(&json!({ "items": found, "next": cursor }));
    }
    let rows: Vec<_> = found.iter().map(row).collect();
    let head = ["ID", "TITLE", "STATUS", "ROLES", "WHO", "DUE", "SAGA", "CORRELATION"];
    console.table(&head, &rows, "no tasks")?;
    if let Some(cursor) = cursor {
        remark(&format!("there may be more: --cursor {cursor}, or a higher --limit"));
    }
    Ok(())
}

fn row(task: &Value) -> Vec<String> {
    let roles = items(task, "roles").iter().filter_map(Value::as_str).collect::<Vec<_>>().join(", ");
    let who = match text(task, "claimed_by") {
        claimed if claimed.is_empty() => text(task, "assignee"),
        claimed => claimed,
    };
    vec![
        text(task, "id"),
        text(task, "title"),
        text(task, "status"),
        roles,
        who,
        text(task, "due"),
        text(task, "saga"),
        text(task, "correlation"),
    ]
}
