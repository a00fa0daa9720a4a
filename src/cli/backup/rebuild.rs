//! `orlog rebuild`: builds the damaged or missing tables of a shard again.

use std::path::PathBuf;

use serde_json::json;

use crate::cli::backup::failed;
use crate::cli::console::Console;
use crate::cli::exit::CommandError;
use orlog_node::backup::offline::rebuild;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Data directory; the node must be stopped
    #[arg(long, alias = "data", value_name = "DIR")]
    data_dir: PathBuf,
    /// Number of the shard
    #[arg(long, value_name = "N")]
    shard: u16,
    /// Backup to which the journal is applied; required if the journal does not contain all commits
    #[arg(long, value_name = "DIR")]
    backup: Option<PathBuf>,
}

pub(crate) async fn run(args: Args, console: &Console) -> Result<(), CommandError> {
    let Args {
        data_dir,
        shard,
        backup,
    } = args;
    let done =
        tokio::task::spawn_blocking(move || rebuild(&data_dir, shard, backup.as_deref())).await;
    let rebuilt = done
        .map_err(|error| CommandError::internal(error.to_string()))?
        .map_err(failed)?;

    // Absent if the shard had no tables. Old tables are kept, because the rebuild did not read
    // them.
    let aside = rebuilt
        .aside
        .as_deref()
        .map(|dir| dir.display().to_string());
    let position = rebuilt.position;
    let rows = rebuilt.rows;
    if console.is_json() {
        return console
            .json(&json!({ "shard": shard, "position": position, "rows": rows, "aside": aside }));
    }

    let kept = aside
        .map(|dir| format!("; the old tables are in {dir}"))
        .unwrap_or_default();
    console.line(&format!(
        "the tables of shard {shard} are rebuilt: {rows} rows at commit {position}{kept}"
    ))
}
