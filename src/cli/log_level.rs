//! `orlog log-level`: which lines a node logs, looked at and changed while it runs.

use serde_json::json;

use super::client::{Client, Server};
use super::console::{Console, text};
use super::exit::Failure;

/// The path of the one resource that this is about.
const PATH: &str = "/admin/log";

/// What to log, and for how long.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// A level, and levels for modules, for example `info,orlog_actors=debug`; absent: only look
    filter: Option<String>,
    /// For how long, for example 10m; absent: until it is changed again
    #[arg(long = "for", value_name = "DURATION", requires = "filter")]
    lasting: Option<String>,
    /// Log again as the configuration says
    #[arg(long, conflicts_with = "filter")]
    reset: bool,
    #[command(flatten)]
    server: Server,
}

pub(super) async fn perform(args: Args, console: &Console) -> Result<(), Failure> {
    let client = Client::new(&args.server)?;
    let answer = match (&args.filter, args.reset) {
        (Some(filter), _) => client.put(PATH, &json!({ "filter": filter, "for": args.lasting })).await?,
        (None, true) => client.delete(PATH).await?,
        (None, false) => client.get(PATH, &[]).await?,
    };
    if console.is_json() {
        return console.json(&answer);
    }
    let (filter, configured) = (text(&answer, "filter"), text(&answer, "configured"));
    match text(&answer, "until") {
        until if !until.is_empty() => console.line(&format!("{filter}, until {until}; then {configured}")),
        _ if filter == configured => console.line(&format!("{filter}, as configured")),
        _ => console.line(&format!("{filter}; configured is {configured}")),
    }
}
