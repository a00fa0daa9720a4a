//! Work on an offline data directory: its backup, and the rebuild of the tables of a shard.

use std::path::Path;
use std::sync::Arc;

use anyhow::{Context as _, anyhow, bail};
use orlog_bus::embedded::JournalRegistry;
use orlog_store::{DurablePosition, Error, RebuildBase, RebuiltTables};

use crate::backup::{self, Manifest};
use crate::config::Config;
use crate::stores::ReadOnlyStores;
use crate::{component_config, layout};

/// Builds the tables of a shard again: from its journal, or from a backup and the journal after it.
/// Blocks.
///
/// # Errors
/// Fails if `data` is not a data directory or is in use, the shard is replicated, the journal or
/// the backup does not suffice, and with [`backup::BackupFailure`]. Nothing is changed then.
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
    // Without the stored position, a journal that lost its end would look complete.
    let stored = layout::stored_shard_position(data, shard)?.with_context(|| no_position(&dir))?;
    let window = stored.dedupe_window();

    let options = component_config::store(&config);
    let rebuilt = orlog_store::rebuild_tables(
        &dir,
        DurablePosition::from(&stored),
        &options,
        |copy: &Path| match from {
            Some(from) => {
                backup::copy_shard(from, shard, copy)?;
                Ok(RebuildBase::Copy)
            }
            // Only the tables contained the window of the store; the configuration may have changed
            // since.
            None => match window {
                Some(dedupe_window) => Ok(RebuildBase::NewStore { dedupe_window }),
                None => bail!(
                    "layout.toml does not contain the dedupe window of shard {shard}, because an \
                     earlier release wrote it; use a backup (--backup)"
                ),
            },
        },
    );

    rebuilt.map_err(|error: anyhow::Error| match error.downcast::<Error>() {
        Ok(lost @ Error::Lost { .. }) => {
            anyhow!(
                "OR0061: {lost}; a rebuild requires the journal: restore the missing files or \
                a backup"
            )
        }
        Ok(damage @ Error::DamagedJournal { .. }) => {
            layout::explain_damage(damage, layout::DAMAGED_JOURNAL_REMEDY)
        }
        Ok(error) => error.into(),
        Err(error) => error,
    })
}

fn no_position(dir: &Path) -> String {
    let dir = dir.display();
    format!(
        "layout.toml has no durable position of {dir}; if the shard is replicated \
         (store.replication), its directory is a copy of its log on NATS: remove the directory \
         and start the node. Otherwise, restore a backup"
    )
}

/// Copies an offline data directory to the directory `to`, which must be new or empty. Blocks.
///
/// # Errors
/// Fails if the source is not a data directory, is in use or is damaged, and with
/// [`crate::backup::BackupFailure`].
pub fn backup_offline(data: &Path, to: &Path) -> anyhow::Result<Manifest> {
    // First: the open stores exclude a node that starts during the copy.
    let stores = ReadOnlyStores::open(data)?;
    let division = layout::stored_config(data)?.shards;
    let bus = open_bus(data)?;
    let registry =
        JournalRegistry::open(&data.join(layout::REGISTRY), None).map_err(layout::explain_open)?;
    let source = backup::BackupSource {
        shards: (0..).zip(stores.readers().cloned()).collect(),
        division,
        layout: layout::backup_text(data)?,
        bus: bus.as_ref(),
        registry: Some(&registry),
        node: String::new(),
        now: orlog_model::Clock::now(&crate::clock::SystemClock).to_string(),
    };

    Ok(backup::create(&source, to)?)
}

/// Opens the embedded log in a data directory, if it exists.
fn open_bus(data: &Path) -> anyhow::Result<Option<orlog_bus::embedded::Embedded>> {
    let dir = data.join("bus");
    if !dir.is_dir() {
        return Ok(None);
    }

    let options = component_config::bus(&Config::default());
    Ok(Some(orlog_bus::embedded::Embedded::open(
        dir,
        &options,
        Arc::new(crate::clock::SystemClock),
    )?))
}
