//! What is fixed when a data folder is made: how instances are divided. `layout.toml` remembers it.

use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use orlog_model::TenantId;
use serde::{Deserialize, Serialize};

use crate::backup::{Error as Cut, RESTORING};
use crate::config::{Config, Tenants};

const FILE: &str = "layout.toml";

#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Layout {
    shards: u16,
    spread: Vec<TenantId>,
}

/// Makes the data folder, or checks that it was made for the same division.
///
/// # Errors
/// When it was made for another one, or cannot be read or written.
pub(super) fn claim(config: &Config) -> anyhow::Result<()> {
    whole(&config.data)?;
    let wanted = Layout { shards: config.shards, spread: config.tenants.spread.clone() };
    let path = file(&config.data);
    match std::fs::read_to_string(&path) {
        Ok(text) => {
            let found =
                toml::from_str(&text).with_context(|| format!("{} cannot be read", path.display()))?;
            compare(&config.data, &found, &wanted)
        }
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => make(&config.data, &path, &wanted),
        Err(error) => Err(error).with_context(|| format!("{} cannot be read", path.display())),
    }
}

/// Checks that a data folder was made for the same division, where it is one.
///
/// # Errors
/// When it was made for another one, or cannot be read.
pub fn check(config: &Config) -> anyhow::Result<()> {
    whole(&config.data)?;
    let path = file(&config.data);
    if path.exists() {
        let found = std::fs::read_to_string(&path)?;
        let found = toml::from_str(&found).with_context(|| format!("{} cannot be read", path.display()))?;
        let wanted = Layout { shards: config.shards, spread: config.tenants.spread.clone() };
        compare(&config.data, &found, &wanted)?;
    }
    Ok(())
}

/// The configuration under which the data in this folder can be read.
///
/// # Errors
/// When it is no data folder.
pub(super) fn of(data: &Path) -> anyhow::Result<Config> {
    whole(data)?;
    let path = file(data);
    let text = std::fs::read_to_string(&path).with_context(|| {
        format!("{} is no data folder of Orlog: {} cannot be read", data.display(), path.display())
    })?;
    let Layout { shards, spread } =
        toml::from_str(&text).with_context(|| format!("{} cannot be read", path.display()))?;
    let tenants = Tenants { spread, ..Tenants::default() };
    Ok(Config { data: data.to_owned(), shards, tenants, ..Config::default() })
}

/// A folder in which a restoration was cut off is none, whatever it holds already.
fn whole(data: &Path) -> anyhow::Result<()> {
    if data.join(RESTORING).exists() {
        bail!(Cut::CutOff(data.to_owned()));
    }
    Ok(())
}

/// Where it is remembered.
pub(super) fn file(data: &Path) -> PathBuf {
    data.join(FILE)
}

/// The folder of a shard.
#[must_use]
pub fn shard(data: &Path, index: u16) -> PathBuf {
    data.join(format!("shard-{index}"))
}

fn compare(data: &Path, found: &Layout, wanted: &Layout) -> anyhow::Result<()> {
    let data = data.display();
    if found.shards != wanted.shards {
        let (found, wanted) = (found.shards, wanted.shards);
        bail!(
            "{data} was made with shards = {found}, now it is {wanted}; set it back, or begin with another folder"
        );
    }
    if found.spread != wanted.spread {
        let (found, wanted) = (&found.spread, &wanted.spread);
        bail!("{data} was made with tenants.spread = {found:?}, now it is {wanted:?}; set it back");
    }
    Ok(())
}

/// Written aside and renamed, so that a crash leaves a whole file or none.
fn make(data: &Path, path: &Path, layout: &Layout) -> anyhow::Result<()> {
    let text = toml::to_string(layout).context("a layout is plain data")?;
    let write = || -> std::io::Result<()> {
        std::fs::create_dir_all(data)?;
        let aside = path.with_extension("new");
        let mut file = std::fs::File::create(&aside)?;
        file.write_all(text.as_bytes())?;
        file.sync_all()?;
        std::fs::rename(&aside, path)?;
        std::fs::File::open(data)?.sync_all()
    };
    write().with_context(|| format!("the data folder {} cannot be made", data.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_that_was_made_for_another_division_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let config = Config { data: folder.path().join("data"), ..Config::default() };
        claim(&config).unwrap();
        claim(&config).unwrap();
        assert_eq!(of(&config.data).unwrap().shards, 1);
        let other = Config { shards: 2, ..config };
        let error = claim(&other).unwrap_err().to_string();
        assert!(error.contains("was made with shards = 1, now it is 2"), "{error}");
    }
}
