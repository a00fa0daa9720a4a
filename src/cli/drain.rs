//! `orlog drain`: a node finishes what is under way, and ends.

use std::time::Duration;

use super::client::{Client, Server};
use super::console::Console;
use super::exit::{Exit, Failure};

/// Which node, and how long to wait for it.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// Seconds to wait for the answer; the node's own deadline is drain.deadline
    #[arg(long, value_name = "SECONDS", default_value_t = 600)]
    wait: u64,
    #[command(flatten)]
    server: Server,
}

pub(super) async fn perform(args: Args, console: &Console) -> Result<(), Failure> {
    let client = Client::new(&args.server)?;
    let answer = client.post_patiently("/admin/drain", None, Duration::from_secs(args.wait)).await?;
    let at_rest = answer["drained"].as_bool().unwrap_or_default();
    if console.is_json() {
        console.json(&answer)?;
    } else if at_rest {
        console.line("the node is at rest and ends")?;
    }
    if at_rest {
        return Ok(());
    }
    let why =
        "not everything came to rest in time; the node ends, and what is left goes on at its next start";
    Err(Failure::new(Exit::Unavailable, why))
}
