//! Immutable settings of a data directory: partitioning of the instances. Stored in `layout.toml`.

use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use orlog_model::TenantId;
use serde::{Deserialize, Serialize};

use crate::backup::{BackupFailure as Cut, RESTORING};
use crate::config::{Config, TenantsConfig};

const FILE: &str = "layout.toml";

#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct DataLayout {
    shards: u16,
    spread: Vec<TenantId>,
}

/// Creates the data directory, or checks that it has the configured partitioning.
///
/// # Errors
/// Fails if it has another partitioning, or cannot be read or written.
pub(super) fn claim_data_dir(config: &Config) -> anyhow::Result<()> {
    whole(&config.data_dir)?;
    let expected = DataLayout { shards: config.shards, spread: config.tenants.key_sharded.clone() };
    let path = file(&config.data_dir);
    match std::fs::read_to_string(&path) {
        Ok(text) => {
            let found =
                toml::from_str(&text).with_context(|| format!("{} cannot be read", path.display()))?;
            compare(&config.data_dir, &found, &expected)
        }
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            make(&config.data_dir, &path, &expected)
        }
        Err(error) => Err(error).with_context(|| format!("{} cannot be read", path.display())),
    }
}

/// Checks that an existing data directory has the configured partitioning.
///
/// # Errors
/// Fails if it has another partitioning, or cannot be read.
pub fn check_data_dir(config: &Config) -> anyhow::Result<()> {
    whole(&config.data_dir)?;
    let path = file(&config.data_dir);
    if path.exists() {
        let found = std::fs::read_to_string(&path)?;
        let found = toml::from_str(&found).with_context(|| format!("{} cannot be read", path.display()))?;
        let expected = DataLayout { shards: config.shards, spread: config.tenants.key_sharded.clone() };
        compare(&config.data_dir, &found, &expected)?;
    }
    Ok(())
}

/// Returns the configuration that can read the data in this directory.
///
/// # Errors
/// Fails if it is not a data directory.
pub(super) fn stored_config(data: &Path) -> anyhow::Result<Config> {
    whole(data)?;
    let path = file(data);
    let text = std::fs::read_to_string(&path).with_context(|| {
        format!("{} is not an Orlog data directory: {} cannot be read", data.display(), path.display())
    })?;
    let DataLayout { shards, spread } =
        toml::from_str(&text).with_context(|| format!("{} cannot be read", path.display()))?;
    let tenants = TenantsConfig { key_sharded: spread, ..TenantsConfig::default() };
    Ok(Config { data_dir: data.to_owned(), shards, tenants, ..Config::default() })
}

/// Rejects a directory with an incomplete restore.
fn whole(data: &Path) -> anyhow::Result<()> {
    if data.join(RESTORING).exists() {
        bail!(Cut::Interrupted(data.to_owned()));
    }
    Ok(())
}

/// Returns the path of the layout file.
pub(super) fn file(data: &Path) -> PathBuf {
    data.join(FILE)
}

/// Returns the directory of a shard.
#[must_use]
pub fn shard_dir(data: &Path, index: u16) -> PathBuf {
    data.join(format!("shard-{index}"))
}

fn compare(data: &Path, found: &DataLayout, expected: &DataLayout) -> anyhow::Result<()> {
    let data = data.display();
    if found.shards != expected.shards {
        let (found, expected) = (found.shards, expected.shards);
        bail!(
            "{data} was created with shards = {found}, configured is {expected}; restore the setting, or use another directory"
        );
    }
    if found.spread != expected.spread {
        let (found, expected) = (&found.spread, &expected.spread);
        bail!(
            "{data} was created with tenants.spread = {found:?}, configured is {expected:?}; restore the setting"
        );
    }
    Ok(())
}

/// Writes a temporary file and renames it, so that a crash leaves a complete file or none.
fn make(data: &Path, path: &Path, layout: &DataLayout) -> anyhow::Result<()> {
    let text = toml::to_string(layout).context("a layout can be serialized")?;
    let write = || -> std::io::Result<()> {
        std::fs::create_dir_all(data)?;
        let temporary = path.with_extension("new");
        let mut file = std::fs::File::create(&temporary)?;
        file.write_all(text.as_bytes())?;
        file.sync_all()?;
        std::fs::rename(&temporary, path)?;
        std::fs::File::open(data)?.sync_all()
    };
    write().with_context(|| format!("the data directory {} cannot be created", data.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn data_dir_with_another_shard_count_is_rejected() {
        let dir = tempfile::tempdir().unwrap();
        let config = Config { data_dir: dir.path().join("data"), ..Config::default() };
        claim_data_dir(&config).unwrap();
        claim_data_dir(&config).unwrap();
        assert_eq!(stored_config(&config.data_dir).unwrap().shards, 1);
        let other = Config { shards: 2, ..config };
        let error = claim_data_dir(&other).unwrap_err().to_string();
        assert!(
            error.contains(
                "was created with shards = 1, configured is 2; restore the setting, or use another directory"
            ),
            "{error}"
        );
    }
}
