//! Layout of a data directory, stored in `layout.toml`: the partitioning of the instances, and the
//! durable position of each store and of the embedded log.
//!
//! The partitioning is immutable. The durable positions are updated while the node runs; they are
//! never ahead of the disk. A store or log that is missing, replaced or shortened contradicts its
//! position.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Context, bail};
use orlog_bus::RetryLog;
use orlog_bus::embedded::OpenError;
use orlog_model::TenantId;
use orlog_store::{DurablePosition, Reader};
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};

use crate::config::{Config, TenantsConfig};
use crate::private_file;

const FILE: &str = "layout.toml";
/// Marker file of an unfinished restore. A node does not start on a directory that contains it.
pub const RESTORING: &str = "restoring";

/// A directory contains an incomplete copy of a backup.
#[derive(Debug, thiserror::Error)]
#[error("{} contains an interrupted restore; empty it and restore again", .0.display())]
pub struct InterruptedRestore(pub PathBuf);

/// Directory of the embedded log, and its name in the layout.
pub(crate) const BUS: &str = "bus";
/// Directory of the registry of contexts and actors, and its name in the layout.
pub(crate) const REGISTRY: &str = "registry";

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct DataLayout {
    shards: u16,
    /// Key-sharded tenants; their order has no meaning.
    spread: BTreeSet<TenantId>,
    /// By directory.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    durable: BTreeMap<String, StoredPosition>,
}

/// Durable position of one directory.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct StoredPosition {
    identity: uuid::Uuid,
    position: u64,
    /// Dedupe window of a store: a rebuild of its tables requires it, and only the tables contain
    /// it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    dedupe_window_ms: Option<u64>,
}

impl StoredPosition {
    /// Returns the dedupe window; `None` if an earlier release wrote the layout.
    pub(crate) fn dedupe_window(&self) -> Option<Duration> {
        self.dedupe_window_ms.map(Duration::from_millis)
    }
}

impl From<DurablePosition> for StoredPosition {
    fn from(DurablePosition { identity, position }: DurablePosition) -> Self {
        Self {
            identity: uuid::Uuid::from_bytes(identity),
            position,
            dedupe_window_ms: None,
        }
    }
}

impl From<&StoredPosition> for DurablePosition {
    fn from(stored: &StoredPosition) -> Self {
        Self {
            identity: stored.identity.into_bytes(),
            position: stored.position,
        }
    }
}

impl DataLayout {
    fn configured(config: &Config) -> Self {
        let spread = config.tenants.key_sharded.iter().cloned().collect();
        Self {
            shards: config.shards,
            spread,
            durable: BTreeMap::new(),
        }
    }
}

/// Durable positions of the stores and the embedded log of a data directory.
pub(crate) struct DurablePositions {
    data: PathBuf,
    layout: Mutex<DataLayout>,
    /// Whether the layout is new, and written when the partitioning is that of the cluster.
    is_unconfirmed: AtomicBool,
    /// Failed writes.
    retries: Mutex<RetryLog>,
}

impl DurablePositions {
    /// Creates the data directory, or checks that it has the configured partitioning. A node that
    /// runs no sagas has none.
    ///
    /// # Errors
    /// Fails if it has another partitioning, lost its layout, or cannot be read or written.
    pub(crate) fn claim(config: &Config, accept_data_loss: bool) -> anyhow::Result<Self> {
        let data = config.data_dir.clone();
        let expected = DataLayout::configured(config);
        if !config.role.runs_sagas() {
            return Ok(Self {
                data,
                layout: Mutex::new(expected),
                is_unconfirmed: AtomicBool::new(false),
                retries: Mutex::default(),
            });
        }

        // Before the layout: the copied directory of an interrupted restore can have a valid one.
        whole(&data)?;
        let mut is_unconfirmed = false;
        let layout = if let Some(found) = read(&data)? {
            // With another partitioning, instances would not be found, and their events would start
            // new ones.
            compare(&data, &found, &expected)?;
            found
        } else {
            if !accept_data_loss {
                check_is_new(&data)?;
            }

            // A pod that the record of its cluster rejects must start with the corrected value.
            is_unconfirmed = config.shares_state();

            if !is_unconfirmed {
                write(&data, &expected)?;
            }

            expected
        };

        Ok(Self {
            data,
            layout: Mutex::new(layout),
            is_unconfirmed: AtomicBool::new(is_unconfirmed),
            retries: Mutex::default(),
        })
    }

    /// Writes a new layout after the comparison with the record of the cluster, before a store is
    /// created.
    ///
    /// # Errors
    /// If it cannot be written.
    pub(crate) fn confirm(&self) -> anyhow::Result<()> {
        // A failed write ends the start, so that the mark is not needed again.
        if self.is_unconfirmed.swap(false, Ordering::AcqRel) {
            write(&self.data, &self.layout.lock())?;
        }
        Ok(())
    }

    /// Returns the stored position of a directory; `None` if it is new.
    pub(crate) fn get(&self, name: &str) -> Option<DurablePosition> {
        self.layout.lock().durable.get(name).map(Into::into)
    }

    /// Stores positions, durably, if they changed. A failure is logged, because a node must start
    /// on a full disk: the earlier positions stay valid, and the next call tries again.
    pub(crate) fn store(&self, found: impl IntoIterator<Item = (String, StoredPosition)>) {
        // The lock is held during the write: a concurrent call with earlier positions must not
        // replace the file last.
        let mut layout = self.layout.lock();
        let mut next = layout.clone();
        next.durable.extend(found);

        // Two syncs are saved while nothing is committed.
        if next == *layout {
            return;
        }

        // The copy in memory changes only after the file, so that the next call finds the
        // difference again and retries.
        match write(&self.data, &next) {
            Ok(()) => {
                *layout = next;
                self.retries.lock().succeeded(|failures| {
                    tracing::info!(failures, "durable positions are stored again");
                });
            }
            Err(error) => self.retries.lock().failed(|failures| {
                tracing::warn!(
                    failures,
                    "durable positions not stored; retrying: {error:#}"
                );
            }),
        }
    }
}

/// Adds the code and the remedy to an error about missing data.
pub(crate) fn explain_loss(lost: impl std::fmt::Display) -> anyhow::Error {
    anyhow::anyhow!(
        "OR0061: {lost}; restore the missing files or a backup; `orlog rebuild` creates missing \
         tables again. To continue without the lost data, start once with --accept-data-loss"
    )
}

/// Remedy for a corrupt journal or event log.
pub(crate) const DAMAGED_JOURNAL_REMEDY: &str = "keep a copy of the directory and check the disk; \
    then restore a backup with `orlog restore` (docs/backup.md). `orlog rebuild` creates only \
    tables, from an intact journal";

/// Adds the code and the remedy to an error about a corrupt journal or event log.
pub(crate) fn explain_damage(damage: impl std::fmt::Display, remedy: &str) -> anyhow::Error {
    anyhow::anyhow!("OR0063: {damage}; {remedy}")
}

/// Adds the code and the remedy to an error of the event log or the registry that is missing,
/// shortened or damaged.
pub(crate) fn explain_open(error: OpenError) -> anyhow::Error {
    match (damaged_log_remedy(&error), error) {
        (Some(remedy), damage) => explain_damage(damage, remedy),
        (None, lost @ (OpenError::Lost { .. } | OpenError::ConsumerBehind { .. })) => {
            explain_loss(lost)
        }
        (None, other) => other.into(),
    }
}

/// Returns the remedy for a damaged event log; `None` if the error has another cause.
pub(crate) fn damaged_log_remedy(error: &OpenError) -> Option<&'static str> {
    match error {
        OpenError::StreamId { .. } => Some(
            "write the `identity` of [durable.bus] in layout.toml to the file, or restore a backup \
             with `orlog restore`",
        ),
        error => error.is_damage().then_some(DAMAGED_JOURNAL_REMEDY),
    }
}

/// Returns the name and the durable position of the store of a shard; `None` for a store without a
/// journal.
pub(crate) fn shard_position(index: u16, reader: &Reader) -> Option<(String, StoredPosition)> {
    let window = u64::try_from(reader.dedupe_window().as_millis()).unwrap_or(u64::MAX);
    let position = StoredPosition {
        dedupe_window_ms: Some(window),
        ..reader.durable_position()?.into()
    };
    Some((shard_name(index), position))
}

/// Returns the stored position of a shard; `None` if it has none.
pub(crate) fn stored_shard_position(
    data: &Path,
    index: u16,
) -> anyhow::Result<Option<StoredPosition>> {
    Ok(read(data)?.and_then(|mut layout| layout.durable.remove(&shard_name(index))))
}

/// Returns the stored positions of a data directory by name; empty if it does not exist.
///
/// # Errors
/// Fails if the file cannot be read.
pub fn durable_positions(data: &Path) -> anyhow::Result<BTreeMap<String, DurablePosition>> {
    let durable = read(data)?.map(|layout| layout.durable).unwrap_or_default();
    Ok(durable
        .iter()
        .map(|(name, stored)| (name.clone(), stored.into()))
        .collect())
}

/// Returns the layout for a backup: without positions, because the copied stores have their own.
pub(crate) fn backup_text(data: &Path) -> anyhow::Result<String> {
    let layout = read(data)?.with_context(|| format!("{} is missing", file(data).display()))?;
    Ok(toml::to_string(&DataLayout {
        durable: BTreeMap::new(),
        ..layout
    })?)
}

/// Checks that an existing data directory has the configured partitioning.
///
/// # Errors
/// Fails if it has another partitioning, or cannot be read.
pub fn check_data_dir(config: &Config) -> anyhow::Result<()> {
    whole(&config.data_dir)?;
    match read(&config.data_dir)? {
        Some(found) => compare(&config.data_dir, &found, &DataLayout::configured(config)),
        None => check_is_new(&config.data_dir),
    }
}

/// Rejects a directory without a layout that contains stores or the event log: with another number
/// of shards, instances would not be found, and their events would be applied again.
fn check_is_new(data: &Path) -> anyhow::Result<()> {
    let entries = match std::fs::read_dir(data) {
        Ok(entries) => entries,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(()),
        Err(error) => {
            return Err(error).with_context(|| format!("{} cannot be read", data.display()));
        }
    };
    for entry in entries {
        let name = entry?.file_name();
        // Other entries do not depend on the layout.
        if name == BUS || name == REGISTRY || name.to_string_lossy().starts_with("shard-") {
            let layout = file(data);
            let data = data.display();
            let lost = format!(
                "{} is missing, but {data} contains {}",
                layout.display(),
                name.display()
            );
            return Err(explain_loss(lost));
        }
    }

    Ok(())
}

/// Returns the configuration that can read the data in this directory.
///
/// # Errors
/// Fails if it is not a data directory.
pub(crate) fn stored_config(data: &Path) -> anyhow::Result<Config> {
    whole(data)?;
    let DataLayout { shards, spread, .. } = read(data)?.with_context(|| {
        format!(
            "{} is not an Orlog data directory: {} is missing",
            data.display(),
            file(data).display()
        )
    })?;

    let tenants = TenantsConfig {
        key_sharded: spread.into_iter().collect(),
        ..TenantsConfig::default()
    };
    Ok(Config {
        data_dir: data.to_owned(),
        shards,
        tenants,
        ..Config::default()
    })
}

/// Rejects a directory with an incomplete restore.
fn whole(data: &Path) -> anyhow::Result<()> {
    if data.join(RESTORING).exists() {
        return Err(InterruptedRestore(data.to_owned()).into());
    }
    Ok(())
}

fn file(data: &Path) -> PathBuf {
    data.join(FILE)
}

fn read(data: &Path) -> anyhow::Result<Option<DataLayout>> {
    let path = file(data);
    let unreadable = || format!("{} cannot be read", path.display());
    match std::fs::read_to_string(&path) {
        Ok(text) => Ok(Some(toml::from_str(&text).with_context(unreadable)?)),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error).with_context(unreadable),
    }
}

/// Returns the name of the directory of a shard.
#[must_use]
pub fn shard_name(index: u16) -> String {
    format!("shard-{index}")
}

/// Returns the directory of a shard.
#[must_use]
pub fn shard_dir(data: &Path, index: u16) -> PathBuf {
    data.join(shard_name(index))
}

fn compare(data: &Path, found: &DataLayout, expected: &DataLayout) -> anyhow::Result<()> {
    let data = data.display();
    if found.shards != expected.shards {
        let found = found.shards;
        let expected = expected.shards;
        bail!(
            "{data} was created with shards = {found}, configured is {expected}; restore the \
             setting, or use another directory"
        );
    }

    if found.spread != expected.spread {
        let found: Vec<&str> = found.spread.iter().map(TenantId::as_str).collect();
        let expected: Vec<&str> = expected.spread.iter().map(TenantId::as_str).collect();
        bail!(
            "{data} was created with tenants.key_sharded = {found:?}, configured is {expected:?}; \
             restore the setting, or use another directory"
        );
    }

    Ok(())
}

fn write(data: &Path, layout: &DataLayout) -> anyhow::Result<()> {
    let text = toml::to_string(layout).context("a layout can be serialized")?;
    let path = file(data);
    private_file::replace(&path, text.as_bytes())
        .with_context(|| format!("{} cannot be written", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::ClusterMode;

    #[test]
    fn data_dir_with_another_shard_count_is_rejected() {
        let dir = tempfile::tempdir().unwrap();
        let config = Config {
            data_dir: dir.path().join("data"),
            ..Config::default()
        };
        DurablePositions::claim(&config, false).unwrap();
        DurablePositions::claim(&config, false).unwrap();
        assert_eq!(stored_config(&config.data_dir).unwrap().shards, 1);
        let other = Config {
            shards: 2,
            ..config
        };
        let error = DurablePositions::claim(&other, false)
            .err()
            .unwrap()
            .to_string();
        assert!(
            error.contains(
                "was created with shards = 1, configured is 2; restore the setting, or use another \
                 directory"
            ),
            "{error}"
        );
    }

    #[test]
    fn data_dir_with_other_key_sharded_tenants_is_rejected_with_the_key() {
        let dir = tempfile::tempdir().unwrap();
        let mut config = Config {
            data_dir: dir.path().join("data"),
            ..Config::default()
        };
        DurablePositions::claim(&config, false).unwrap();
        config.tenants.key_sharded = vec![TenantId::new("big").unwrap()];
        let error = DurablePositions::claim(&config, false).err().unwrap();
        let expected = "was created with tenants.key_sharded = [], configured is [\"big\"]; \
            restore the setting, or use another directory";
        assert!(error.to_string().contains(expected), "{error}");
    }

    #[test]
    fn order_of_key_sharded_tenants_has_no_meaning() {
        let dir = tempfile::tempdir().unwrap();
        let mut config = Config {
            data_dir: dir.path().join("data"),
            ..Config::default()
        };
        let tenant = |name: &str| TenantId::new(name).unwrap();
        config.tenants.key_sharded = vec![tenant("b"), tenant("a")];
        DurablePositions::claim(&config, false).unwrap();

        // As earlier releases wrote it.
        let path = file(&config.data_dir);
        let text = std::fs::read_to_string(&path).unwrap();
        std::fs::write(&path, text.replace("\"a\", \"b\"", "\"b\", \"a\"")).unwrap();
        assert_ne!(std::fs::read_to_string(&path).unwrap(), text);

        config.tenants.key_sharded = vec![tenant("a"), tenant("b"), tenant("a")];
        DurablePositions::claim(&config, false).unwrap();
    }

    #[test]
    fn new_layout_of_a_pod_is_written_after_the_comparison_with_the_cluster() {
        let dir = tempfile::tempdir().unwrap();
        let mut config = Config {
            data_dir: dir.path().join("data"),
            shards: 8,
            ..Config::default()
        };
        config.cluster.mode = ClusterMode::Leases;
        drop(DurablePositions::claim(&config, false).unwrap());
        config.shards = 6;
        let positions = DurablePositions::claim(&config, false).unwrap();
        positions.confirm().unwrap();
        assert_eq!(stored_config(&config.data_dir).unwrap().shards, 6);
    }

    #[test]
    fn data_dir_without_its_layout_is_rejected() {
        let dir = tempfile::tempdir().unwrap();
        let config = Config {
            data_dir: dir.path().to_owned(),
            ..Config::default()
        };
        check_data_dir(&config).unwrap();
        std::fs::create_dir(shard_dir(dir.path(), 0)).unwrap();
        for error in [
            check_data_dir(&config).err(),
            DurablePositions::claim(&config, false).err(),
        ] {
            let error = error.unwrap().to_string();
            assert!(
                error.contains("layout.toml is missing") && error.contains("contains shard-0"),
                "{error}"
            );
        }
        DurablePositions::claim(&config, true).unwrap();
    }
}
