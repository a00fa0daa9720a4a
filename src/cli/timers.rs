//! `orlog timers`: what falls due next.

use serde_json::json;

use super::client::{Client, Server};
use super::console::{Console, items, remark, text};
use super::exit::Failure;

/// How many.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// At most so many
    #[arg(long, default_value_t = 100)]
    limit: usize,
    /// Go on where an earlier list ended
    #[arg(long)]
    cursor: Option<String>,
    #[command(flatten)]
    server: Server,
}

pub(super) async fn perform(args: Args, console: &Console) -> Result<(), Failure> {
    let client = Client::new(&args.server)?;
    let (mut found, mut cursor) = (Vec::new(), args.cursor);
    // A page may be short, or empty, and have a next one: the node looks at a bounded number of timers for each.
    while found.len() < args.limit {
        let mut query = vec![("limit", (args.limit - found.len()).to_string())];
        query.extend(cursor.take().map(|cursor| ("cursor", cursor)));
        let page = client.get("/v1/timers", &query).await?;
        found.extend_from_slice(items(&page, "items"));
        cursor = page["next"].as_str().map(str::to_owned);
        if cursor.is_none() {
            break;
        }
    }
    if console.is_json() {
        return console.json(&json!({ "items": found, "next": cursor }));
    }
    let fields = ["due", "name", "saga", "correlation"];
    let rows: Vec<_> = found.iter().map(|timer| fields.map(|field| text(timer, field)).into()).collect();
    console.table(&["DUE", "NAME", "SAGA", "CORRELATION"], &rows, "no timers")?;
    if let Some(cursor) = cursor {
        remark(&format!("there may be more: --cursor {cursor}, or a higher --limit"));
    }
    Ok(())
}
