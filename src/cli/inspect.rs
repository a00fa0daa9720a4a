//! `orlog inspect`: the rows of a table as they are stored, from a running node or from a data folder at rest.

use std::path::{Path, PathBuf};

use orlog_model::TenantId;
use serde_json::{Value, json};

use crate::app::Look;

use super::client::{Client, Server, path};
use super::console::{Console, items, text};
use super::exit::Failure;

/// Which rows, and whose.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// Which table; an unknown name is answered with those there are
    table: String,
    /// Rows at most
    #[arg(long, default_value_t = 100)]
    limit: usize,
    /// Read this data folder, which no node may be using, and all tenants in it unless --tenant names one
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,
    #[command(flatten)]
    server: Server,
}

pub(super) async fn perform(args: Args, console: &Console) -> Result<(), Failure> {
    let found = if let Some(data) = &args.data {
        offline(data, &args)?
    } else {
        let client = Client::new(&args.server)?;
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

fn offline(data: &Path, args: &Args) -> Result<Value, Failure> {
    let tenant = args.server.tenant().map(TenantId::new).transpose();
    let tenant = tenant.map_err(|error| Failure::usage(format!("--tenant: {error}")))?;
    let look = Look::into(data)?;
    let mut rows = Vec::new();
    for reader in look.readers() {
        let left = args.limit - rows.len();
        let found = reader
            .rows(&args.table, tenant.as_ref(), left)
            .map_err(|error| Failure::failed(error.to_string()))?;
        rows.extend(found.into_iter().map(|row| json!({ "key": row.key, "value": row.value })));
    }
    Ok(json!({ "table": args.table, "rows": rows }))
}
