//! `orlog timers`: what falls due next.

use super::client::{Client, Server};
use super::console::{Console, items, text};
use super::exit::Failure;

/// How many.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// At most so many
    #[arg(long, default_value_t = 100)]
    limit: usize,
    #[command(flatten)]
    server: Server,
}

pub(super) async fn perform(args: Args, console: &Console) -> Result<(), Failure> {
    let client = Client::new(&args.server)?;
    let timers = client.get("/v1/timers", &[("limit", args.limit.to_string())]).await?;
    if console.is_json() {
        return console.json(&timers);
    }
    let fields = ["due", "name", "saga", "correlation"];
    let rows: Vec<_> =
        items(&timers, "items").iter().map(|timer| fields.map(|field| text(timer, field)).into()).collect();
    console.table(&["DUE", "NAME", "SAGA", "CORRELATION"], &rows, "no timers")
}
