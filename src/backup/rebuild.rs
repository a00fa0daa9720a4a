//! Rebuild of the tables of a shard in an offline data directory.

use std::path::Path;

use anyhow::{Context as _, anyhow, bail};
use orlog_store::{DurablePosition, Error, RebuildBase, RebuiltTables};

use crate::app::{component_config, layout};
use crate::backup;

/// Builds the tables of a shard again: from its journal, or from a backup and the journal after it. Blocks.
///
/// # Errors
/// Fails if `data` is not a data directory or is in use, the shard is replicated, the journal or the
/// backup does not suffice, and with [`backup::BackupFailure`]. Nothing is changed then.
pub fn rebuild(data: &Path, shard: u16, from: Option<&Path>) -> anyhow::Result<RebuiltTables> {
    let config = layout::stored_config(data)?;
    if shard >= config.shards {
        bail!(
            "shard {shard} does not exist: {} has {} shards, numbered from 0",
            data.display(),
            config.shards
        );
    }
    let dir = layout::shard_dir(data, shard);
    let stored = layout::stored_shard_position(data, shard)?.with_context(|| no_position(&dir))?;
    let window = stored.dedupe_window();
    let base = |copy: &Path| match from {
        Some(from) => {
            backup::copy_shard(from, shard, copy)?;
            Ok(RebuildBase::Copy)
        }
        None => match window {
            Some(dedupe_window) => Ok(RebuildBase::NewStore { dedupe_window }),
            None => bail!(
                "layout.toml does not contain the dedupe window of shard {shard}, because an earlier release wrote it; \
                 use a backup (--backup)"
            ),
        },
    };
    let options = component_config::store(&config);
    let rebuilt = orlog_store::rebuild_tables(&dir, DurablePosition::from(&stored), &options, base);
    rebuilt.map_err(|error: anyhow::Error| match error.downcast::<Error>() {
        Ok(lost @ Error::Lost { .. }) => {
            anyhow!("OR0061: {lost}; a rebuild requires the journal: restore the missing files or a backup")
        }
        Ok(error) => error.into(),
        Err(error) => error,
    })
}

fn no_position(dir: &Path) -> String {
    let dir = dir.display();
    format!(
        "layout.toml has no durable position of {dir}; if the shard is replicated (store.replication), its directory is \
         a copy of its log on NATS: remove the directory and start the node. Otherwise, restore a backup"
    )
}
