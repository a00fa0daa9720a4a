//! What a backup says about itself.

use std::fs;
use std::path::Path;

use serde::{Deserialize, Serialize};

use super::error::Error;
use super::files::{FileSum, MANIFEST, SUMS, sum, written};

/// The format of backups as this release writes and reads them.
pub const FORMAT: u32 = 1;

/// What is in a backup.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Manifest {
    /// See [`FORMAT`].
    pub format: u32,
    /// The release that made it.
    pub version: String,
    /// Who was copied.
    pub node: String,
    /// When it was begun, RFC 3339.
    pub taken_at: String,
    /// Into how many stores the instances are divided.
    pub division: u16,
    /// The stores.
    pub shards: Vec<ShardCopy>,
    /// The stream of events.
    pub bus: BusCopy,
    /// The definitions that are kept.
    pub definitions: Vec<Definition>,
    /// All files but the manifest and the sums.
    pub files: Vec<FileSum>,
}

/// The copy of a store.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ShardCopy {
    /// Its number.
    pub shard: u16,
    /// Commits that it holds.
    pub position: u64,
    /// Up to where it had read.
    pub checkpoints: Vec<Checkpoint>,
}

/// How far a store had read.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Checkpoint {
    /// Which stream.
    pub stream: String,
    /// Under which name.
    pub consumer: String,
    /// The last message that it is done with, and with all before.
    pub sequence: u64,
}

/// The stream of events.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "lowercase")]
pub enum BusCopy {
    /// Copied too.
    Embedded {
        /// Its identity.
        stream: String,
        /// The last message that it holds.
        last_sequence: u64,
    },
    /// On NATS, which has its own backup.
    Nats,
}

/// A definition.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Definition {
    /// Its saga.
    pub saga: String,
    /// The author's number for it.
    pub version: u32,
    /// Its identity.
    pub hash: String,
}

impl Manifest {
    /// Writes the manifest, and then the sums, with which the backup is whole.
    pub(super) fn write(&self, to: &Path) -> Result<(), Error> {
        let text = serde_json::to_string_pretty(self).unwrap_or_default();
        written(&to.join(MANIFEST), text.as_bytes())?;
        written(&to.join(SUMS), self.sums(&sum(&to.join(MANIFEST))?.sha256).as_bytes())
    }

    /// The text of the sums; `own` is that of the manifest.
    fn sums(&self, own: &str) -> String {
        let lines = self.files.iter().map(|file| (file.sha256.as_str(), file.path.as_str()));
        lines.chain([(own, MANIFEST)]).flat_map(|(sum, path)| [sum, "  ", path, "\n"]).collect()
    }

    /// Reads the manifest of a backup whose sums say that it is what was written.
    pub(super) fn read(from: &Path) -> Result<Self, Error> {
        let wrong = |reason: String| Error::NoBackup { path: from.to_owned(), reason };
        let missing = |name: &str| wrong(format!("there is no {name} in it; was it written to its end?"));
        let sums = fs::read_to_string(from.join(SUMS)).map_err(|_| missing(SUMS))?;
        let (path, text) =
            (from.join(MANIFEST), fs::read(from.join(MANIFEST)).map_err(|_| missing(MANIFEST))?);
        let own = sum(&path)?.sha256;
        let stated = sums.lines().last().and_then(|line| line.strip_suffix(&format!("  {MANIFEST}")));
        if stated != Some(own.as_str()) {
            return Err(Error::Damaged(vec![format!(
                "{MANIFEST} is not what was written, or {SUMS} is not"
            )]));
        }
        let format =
            serde_json::from_slice::<serde_json::Value>(&text).map_err(|error| wrong(error.to_string()))?;
        if let Some(found) = format["format"].as_u64().filter(|found| *found > u64::from(FORMAT)) {
            let reason =
                format!("it has format {found}, this release reads up to {FORMAT}: use the newer release");
            return Err(wrong(reason));
        }
        let manifest: Self = serde_json::from_slice(&text).map_err(|error| wrong(error.to_string()))?;
        if manifest.sums(&own) != sums {
            return Err(Error::Damaged(vec![format!("{SUMS} is not what was written")]));
        }
        Ok(manifest)
    }

    /// Bytes of all files.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.files.iter().map(|file| file.bytes).sum()
    }
}
