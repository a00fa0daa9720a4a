//! `orlog saga list`: lists instances, page by page up to the limit.

use serde_json::{Value, json};

use crate::cli::client::{ApiClient, ServerArgs};
use crate::cli::console::{Console, items, note, text};
use crate::cli::exit::CommandError;

/// Filter of instances.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Filter by saga
    #[arg(long)]
    saga: Option<String>,
    /// Filter by status: running, compensating, completed, failed, cancelled, stuck
    #[arg(long, value_delimiter = ',')]
    status: Vec<String>,
    /// Filter by prefix of the correlation id
    #[arg(long)]
    prefix: Option<String>,
    /// Updated at or after this time (RFC 3339)
    #[arg(long, value_name = "TIME")]
    updated_from: Option<String>,
    /// Updated before this time (RFC 3339)
    #[arg(long, value_name = "TIME")]
    updated_until: Option<String>,
    /// Started at or after this time (RFC 3339)
    #[arg(long, value_name = "TIME")]
    created_from: Option<String>,
    /// Started before this time (RFC 3339)
    #[arg(long, value_name = "TIME")]
    created_until: Option<String>,
    /// Filter with a CEL condition, for example "vars.total > 100" (docs/queries.md)
    #[arg(long, value_name = "CEL")]
    filter: Option<String>,
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
        let status = Some(self.status.join(",")).filter(|status| !status.is_empty());
        let fields = [
            ("saga", self.saga.clone()),
            ("status", status),
            ("prefix", self.prefix.clone()),
            ("updated_from", self.updated_from.clone()),
            ("updated_until", self.updated_until.clone()),
            ("created_from", self.created_from.clone()),
            ("created_until", self.created_until.clone()),
            ("filter", self.filter.clone()),
        ];
        fields.into_iter().filter_map(|(name, value)| Some((name, value?))).collect()
    }
}

pub(crate) async fn run(args: Args, console: &Console) -> Result<(), CommandError> {
    let client = ApiClient::new(&args.server)?;
    let (mut found, mut cursor) = (Vec::new(), args.cursor.clone());
    let (mut failed, mut failure) = (0, None);
    // A page can be short or empty and still have a next page: the node scans a bounded number of
    // instances.
    while found.len() < args.limit {
        let mut query = args.query();
        query.push(("limit", (args.limit - found.len()).to_string()));
        query.extend(cursor.take().map(|cursor| ("cursor", cursor)));
        let page = client.get("/v1/sagas", &query).await?;
        found.extend_from_slice(items(&page, "items"));
        failed += page["failed"].as_u64().unwrap_or_default();
        failure = failure.or_else(|| page["failure"].as_str().map(str::to_owned));
        cursor = page["next_cursor"].as_str().map(str::to_owned);
        if cursor.is_none() {
            break;
        }
    }
    if console.is_json() {
        return console.json(&json!({ "items": found, "next_cursor": cursor }));
    }
    let rows: Vec<_> = found.iter().map(row).collect();
    let head = ["SAGA", "CORRELATION", "STATUS", "VERSION", "WAITING FOR", "UPDATED"];
    console.table(&head, &rows, "no instances")?;
    if let Some(reason) = failure {
        note(&format!("filter failed for {failed} instances; first: {reason}"));
    }
    if let Some(cursor) = cursor {
        note(&format!("more results possible; use --cursor {cursor}, or raise --limit"));
    }
    Ok(())
}

fn row(item: &Value) -> Vec<String> {
    let paused = item["paused"].as_bool().unwrap_or_default();
    let waits = items(item, "waits").iter().map(|wait| text(wait, "name")).collect::<Vec<_>>().join(", ");
    let status = if paused { format!("{} (paused)", text(item, "status")) } else { text(item, "status") };
    vec![
        text(item, "saga"),
        text(item, "correlation"),
        status,
        text(item, "version"),
        waits,
        text(item, "updated_at"),
    ]
}
