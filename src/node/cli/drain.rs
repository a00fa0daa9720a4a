//! `orlog drain`: drains a node and stops it.

use std::time::Duration;

use crate::cli::client::{ApiClient, ServerArgs};
use crate::cli::console::Console;
use crate::cli::exit::{CommandError, CommandExit};

/// Node to drain, and the maximum wait time.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Seconds to wait for the response; the node itself uses drain.timeout
    #[arg(long, value_name = "SECONDS", default_value_t = 600)]
    wait: u64,
    #[command(flatten)]
    server: ServerArgs,
}

pub(crate) async fn run(args: Args, console: &Console) -> Result<(), CommandError> {
    let client = ApiClient::new(&args.server)?;
    let response = client.post_with_timeout("/admin/drain", None, Duration::from_secs(args.wait)).await?;
    let drained = response["drained"].as_bool().unwrap_or_default();
    if console.is_json() {
        console.json(&response)?;
    } else if drained {
        console.line("node drained and stopping")?;
    }
    if drained {
        return Ok(());
    }
    let reason = "drain timed out; the node stops, and remaining work resumes at the next start";
    Err(CommandError::new(CommandExit::Unavailable, reason))
}
