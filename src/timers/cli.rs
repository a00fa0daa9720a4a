//! `orlog timers`: lists timers by due time.

use serde_json::json;

use crate::cli::client::{ApiClient, ServerArgs};
use crate::cli::console::{Console, items, note, text};
use crate::cli::exit::CommandError;

/// Page of timers.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Maximum number of results
    #[arg(long, default_value_t = 100)]
    limit: usize,
    /// Cursor of the previous page
    #[arg(long)]
    cursor: Option<String>,
    #[command(flatten)]
    server: ServerArgs,
}

pub(crate) async fn run(args: Args, console: &Console) -> Result<(), CommandError> {
    let client = ApiClient::new(&args.server)?;
    let (mut found, mut cursor) = (Vec::new(), args.cursor);
    // A page can be short or empty and still have a next page: the node scans a bounded number of timers.
    while found.len() < args.limit {
        let mut query = vec![("limit", (args.limit - found.len()).to_string())];
        query.extend(cursor.take().map(|cursor| ("cursor", cursor)));
        let page = client.get("/v1/timers", &query).await?;
        found.extend_from_slice(items(&page, "items"));
        cursor = page["next_cursor"].as_str().map(str::to_owned);
        if cursor.is_none() {
            break;
        }
    }
    if console.is_json() {
        return console.json(&json!({ "items": found, "next_cursor": cursor }));
    }
    let fields = ["due", "name", "saga", "correlation"];
    let rows: Vec<_> = found.iter().map(|timer| fields.map(|field| text(timer, field)).into()).collect();
    console.table(&["DUE", "NAME", "SAGA", "CORRELATION"], &rows, "no timers")?;
    if let Some(cursor) = cursor {
        note(&format!("more results possible; use --cursor {cursor}, or raise --limit"));
    }
    Ok(())
}
