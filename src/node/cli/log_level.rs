//! `orlog log-level`: shows or changes the log filter of a running node.

use serde_json::json;

use crate::cli::client::{ApiClient, ServerArgs};
use crate::cli::console::{Console, text};
use crate::cli::exit::CommandError;

/// Path of the log filter resource.
const PATH: &str = "/admin/log";

/// Log filter and its duration.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Log filter, for example `info,orlog_actors=debug`; omit to print the current one
    filter: Option<String>,
    /// Duration, for example 10m; default: until the next change
    #[arg(long = "for", value_name = "DURATION", requires = "filter")]
    duration: Option<String>,
    /// Restore the configured filter
    #[arg(long, conflicts_with = "filter")]
    reset: bool,
    #[command(flatten)]
    server: ServerArgs,
}

pub(crate) async fn run(args: Args, console: &Console) -> Result<(), CommandError> {
    let client = ApiClient::new(&args.server)?;
    let response = match (&args.filter, args.reset) {
        (Some(filter), _) => client.put(PATH, &json!({ "filter": filter, "for": args.duration })).await?,
        (None, true) => client.delete(PATH).await?,
        (None, false) => client.get(PATH, &[]).await?,
    };
    if console.is_json() {
        return console.json(&response);
    }
    let (filter, configured) = (text(&response, "filter"), text(&response, "configured"));
    match text(&response, "until") {
        until if !until.is_empty() => console.line(&format!("{filter}, until {until}; then {configured}")),
        _ if filter == configured => console.line(&format!("{filter}, as configured")),
        _ => console.line(&format!("{filter}; configured: {configured}")),
    }
}
