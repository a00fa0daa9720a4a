//! Commands that inspect and control one node: `orlog drain`, `orlog log-level` and `orlog
//! inspect`.

use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::time::Duration;

use orlog_model::TenantId;
use serde_json::{Value, json};

use crate::cli::client::{ApiClient, ServerArgs, path};
use crate::cli::console::{Console, items, note, text};
use crate::cli::exit::{CommandError, CommandExit};
use orlog_node::stores::ReadOnlyStores;

/// Path of the log filter resource.
const LOG_PATH: &str = "/admin/log";

#[derive(Debug, clap::Args)]
pub(crate) struct Drain {
    /// Seconds to wait for the response; the node itself uses drain.timeout
    #[arg(long, value_name = "SECONDS", default_value_t = 600)]
    wait: u64,
    #[command(flatten)]
    server: ServerArgs,
}

#[derive(Debug, clap::Args)]
pub(crate) struct LogLevel {
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

#[derive(Debug, clap::Args)]
pub(crate) struct Inspect {
    /// Table name; an unknown name lists the tables
    table: String,
    /// Maximum number of rows
    #[arg(long, default_value = "100")]
    limit: NonZeroUsize,
    /// Read this data directory (the node must be stopped), all tenants unless --tenant is set
    #[arg(long, value_name = "DIR")]
    data_dir: Option<PathBuf>,
    #[command(flatten)]
    server: ServerArgs,
}

pub(crate) async fn drain(args: Drain, console: &Console) -> Result<(), CommandError> {
    let client = ApiClient::new(&args.server)?;
    let response = client
        // The node responds when the drain has ended, which takes longer than other requests.
        .post_with_timeout("/admin/drain", None, Duration::from_secs(args.wait))
        .await?;
    let drained = response["drained"].as_bool().unwrap_or_default();

    if console.is_json() {
        console.json(&response)?;
    } else if drained {
        console.line("node drained and stopping")?;
    }

    // The node stops after a timeout too, but a script can distinguish that work is left.
    if drained {
        return Ok(());
    }

    let reason = "drain timed out; the node stops, and remaining work resumes at the next start";
    Err(CommandError::new(CommandExit::Unavailable, reason))
}

pub(crate) async fn log_level(args: LogLevel, console: &Console) -> Result<(), CommandError> {
    let client = ApiClient::new(&args.server)?;
    let response = match (&args.filter, args.reset) {
        (Some(filter), _) => {
            client
                .put(LOG_PATH, &json!({ "filter": filter, "for": args.duration }))
                .await?
        }
        (None, true) => client.delete(LOG_PATH, &[]).await?,
        (None, false) => client.get(LOG_PATH, &[]).await?,
    };
    if console.is_json() {
        return console.json(&response);
    }

    let filter = text(&response, "filter");
    let configured = text(&response, "configured");
    match text(&response, "until") {
        until if !until.is_empty() => {
            console.line(&format!("{filter}, until {until}; then {configured}"))
        }
        _ if filter == configured => console.line(&format!("{filter}, as configured")),
        _ => console.line(&format!("{filter}; configured: {configured}")),
    }
}

/// Prints the stored rows of a table, from a running node or an offline data directory.
pub(crate) async fn inspect(args: Inspect, console: &Console) -> Result<(), CommandError> {
    if let Some(data) = &args.data_dir {
        // Without a node, this process opens the stores, which fails while a node uses them.
        return print_rows(&offline(data, &args)?, console);
    }
    let client = ApiClient::new(&args.server)?;
    print_rows(&online(&client, &args).await?, console)?;
    client.check_complete()
}

fn print_rows(found: &Value, console: &Console) -> Result<(), CommandError> {
    if console.is_json() {
        return console.json(found);
    }

    for row in items(found, "rows") {
        console.line(&format!("{}  {}", text(row, "key"), row["value"]))?;
    }
    if found["next_cursor"].is_string() || found["has_more"] == true {
        note("more rows possible; raise --limit");
    }
    Ok(())
}

/// Reads pages until the limit or the end.
async fn online(client: &ApiClient, args: &Inspect) -> Result<Value, CommandError> {
    let path = path(&["v1", "inspect", &args.table]);
    let mut rows = Vec::new();
    let mut cursor = None::<String>;
    loop {
        let mut query = vec![("limit", (args.limit.get() - rows.len()).to_string())];
        query.extend(cursor.map(|cursor| ("cursor", cursor)));
        let page = client.get(&path, &query).await?;
        rows.extend_from_slice(items(&page, "rows"));
        // A page of large rows can be shorter than its limit.
        cursor = page["next_cursor"].as_str().map(str::to_owned);
        if cursor.is_none() || rows.len() >= args.limit.get() {
            break;
        }
    }

    Ok(json!({ "table": args.table, "rows": rows, "next_cursor": cursor }))
}

fn offline(data: &Path, args: &Inspect) -> Result<Value, CommandError> {
    let tenant = args.server.tenant().map(TenantId::new).transpose();
    let tenant = tenant.map_err(|error| CommandError::usage(format!("--tenant: {error}")))?;
    let stores = ReadOnlyStores::open(data)?;
    let mut rows = Vec::new();

    for reader in stores.readers() {
        // One more than the limit shows whether there are more rows. This is 0 after it: the
        // remaining stores then return no rows.
        let left = args.limit.get() + 1 - rows.len();
        let found = reader
            .inspect_rows(&args.table, tenant.as_ref(), left)
            .map_err(|error| CommandError::failed(error.to_string()))?;
        rows.extend(
            found
                .into_iter()
                .map(|row| json!({ "key": row.key, "value": row.value })),
        );
    }

    let has_more = rows.len() > args.limit.get();
    rows.truncate(args.limit.get());
    Ok(json!({ "table": args.table, "rows": rows, "has_more": has_more }))
}
