//! `orlog saga list`: instances, page after page until there are enough.

use serde_json::{Value, json};

use crate::cli::client::{Client, Server};
use crate::cli::console::{Console, items, remark, text};
use crate::cli::exit::Failure;

/// Which instances.
#[derive(Debug, clap::Args)]
pub(in crate::cli) struct Args {
    /// Of this saga only
    #[arg(long)]
    saga: Option<String>,
    /// In these statuses only: running, compensating, completed, failed, cancelled, stuck
    #[arg(long, value_delimiter = ',')]
    status: Vec<String>,
    /// With a correlation id that begins so
    #[arg(long)]
    prefix: Option<String>,
    /// Last changed then or later (RFC 3339)
    #[arg(long, value_name = "TIME")]
    updated_from: Option<String>,
    /// Last changed before (RFC 3339)
    #[arg(long, value_name = "TIME")]
    updated_until: Option<String>,
    /// Started then or later (RFC 3339)
    #[arg(long, value_name = "TIME")]
    created_from: Option<String>,
    /// Started before (RFC 3339)
    #[arg(long, value_name = "TIME")]
    created_until: Option<String>,
    /// That this condition in CEL holds of, for example "vars.total > 100" (docs/queries.md)
    #[arg(long, value_name = "CEL")]
    filter: Option<String>,
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

pub(super) async fn perform(args: Args, console: &Console) -> Result<(), Failure> {
    let client = Client::new(&args.server)?;
    let (mut found, mut cursor) = (Vec::new(), args.cursor.clone());
    let (mut failed, mut failure) = (0, None);
    // A page may be short, or empty, and have a next one: the node looks at a bounded number of instances for each.
    while found.len() < args.limit {
        let mut query = args.query();
        query.push(("limit", (args.limit - found.len()).to_string()));
        query.extend(cursor.take().map(|cursor| ("cursor", cursor)));
        let page = client.get("/v1/sagas", &query).await?;
        found.extend_from_slice(items(&page, "items"));
        failed += page["failed"].as_u64().unwrap_or_default();
        failure = failure.or_else(|| page["failure"].as_str().map(str::to_owned));
        cursor = page["next"].as_str().map(str::to_owned);
        if cursor.is_none() {
            break;
        }
    }
    if console.is_json() {
        return console.json(&json!({ "items": found, "next": cursor }));
    }
    let rows: Vec<_> = found.iter().map(row).collect();
    let head = ["SAGA", "CORRELATION", "STATUS", "VERSION", "WAITS FOR", "UPDATED"];
    console.table(&head, &rows, "no instances")?;
    if let Some(why) = failure {
        remark(&format!("of {failed} it cannot be told, the first is {why}"));
    }
    if let Some(cursor) = cursor {
        remark(&format!("there may be more: --cursor {cursor}, or a higher --limit"));
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
