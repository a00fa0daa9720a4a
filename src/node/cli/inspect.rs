//! `orlog inspect`: prints the stored rows of a table, from a running node or an offline data
//! directory.

use std::path::{Path, PathBuf};

use orlog_model::TenantId;
use serde_json::{Value, json};

use crate::app::ReadOnlyStores;

use crate::cli::client::{ApiClient, ServerArgs, path};
use crate::cli::console::{Console, items, text};
use crate::cli::exit::CommandError;

/// Table, tenant and number of rows.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Table name; an unknown name lists the tables
    table: String,
    /// Maximum number of rows
    #[arg(long, default_value_t = 100)]
    limit: usize,
    /// Read this data directory (the node must be stopped), all tenants unless --tenant is set
    #[arg(long, value_name = "DIR")]
    data_dir: Option<PathBuf>,
    #[command(flatten)]
    server: ServerArgs,
}

pub(crate) async fn run(args: Args, console: &Console) -> Result<(), CommandError> {
    let found = if let Some(data) = &args.data_dir {
        offline(data, &args)?
    } else {
        let client = ApiClient::new(&args.server)?;
        client.get(&path(&["v1", "inspect", &args.table]), &[("limit", args.limit.to_string())]).await?
    };
    if console.is_json() {
        return console.json(&found);
    }
    for row in items(&found, "rows") {
        console.line(&format!("{}  {}", text(row, "key"), row["value"]))?;
    }
    Ok(())
}

fn offline(data: &Path, args: &Args) -> Result<Value, CommandError> {
    let tenant = args.server.tenant().map(TenantId::new).transpose();
    let tenant = tenant.map_err(|error| CommandError::usage(format!("--tenant: {error}")))?;
    let stores = ReadOnlyStores::open(data)?;
    let mut rows = Vec::new();
    for reader in stores.readers() {
        let left = args.limit - rows.len();
        let found = reader
            .inspect_rows(&args.table, tenant.as_ref(), left)
            .map_err(|error| CommandError::failed(error.to_string()))?;
        rows.extend(found.into_iter().map(|row| json!({ "key": row.key, "value": row.value })));
    }
    Ok(json!({ "table": args.table, "rows": rows }))
}
