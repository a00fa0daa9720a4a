//! Manifest of a backup.

use std::fs;
use std::path::Path;

use serde::{Deserialize, Serialize};

use super::error::BackupFailure;
use super::files::{FileChecksum, MANIFEST, SUMS, checksum, write_durably};

/// Backup format that this release writes and reads.
pub const FORMAT: u32 = 1;

/// Content of a backup.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Manifest {
    /// Format version, see [`FORMAT`].
    pub format: u32,
    /// Orlog release that created the backup.
    pub version: String,
    /// Name of the node.
    pub node: String,
    /// Start time of the backup, RFC 3339.
    pub taken_at: String,
    /// Total number of shards.
    pub division: u16,
    /// The copied stores.
    pub shards: Vec<ShardBackup>,
    /// The event stream.
    pub bus: BusBackup,
    /// The stored definitions.
    pub definitions: Vec<DefinitionEntry>,
    /// All files except the manifest and the checksum file.
    pub files: Vec<FileChecksum>,
}

/// Copy of a store.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ShardBackup {
    /// Shard number.
    pub shard: u16,
    /// Number of commits in the copy.
    pub position: u64,
    /// Stream positions that the store has processed.
    pub checkpoints: Vec<Checkpoint>,
}

/// Stream position that a store has processed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Checkpoint {
    /// Name of the stream.
    pub stream: String,
    /// Name of the consumer.
    pub consumer: String,
    /// Sequence of the last message that is processed, with all messages before it.
    pub sequence: u64,
}

/// Backup of the event stream.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "lowercase")]
pub enum BusBackup {
    /// The embedded log, part of the backup.
    Embedded {
        /// Stream identity.
        stream: String,
        /// Sequence of the last message in the copy.
        last_sequence: u64,
    },
    /// NATS JetStream, which requires a separate backup.
    Nats,
}

/// Definition in a backup.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DefinitionEntry {
    /// Name of the saga.
    pub saga: String,
    /// Version number set by the author.
    pub version: u32,
    /// Hash of the definition.
    pub hash: String,
}

impl Manifest {
    /// Writes the manifest, then the checksum file, which completes the backup.
    pub(super) fn write(&self, to: &Path) -> Result<(), BackupFailure> {
        let text = serde_json::to_string_pretty(self).unwrap_or_default();
        write_durably(&to.join(MANIFEST), text.as_bytes())?;
        write_durably(
            &to.join(SUMS),
            self.sums(&checksum(&to.join(MANIFEST))?.sha256).as_bytes(),
        )
    }

    /// Returns the content of the checksum file; `own` is the checksum of the manifest.
    fn sums(&self, own: &str) -> String {
        let lines = self
            .files
            .iter()
            .map(|file| (file.sha256.as_str(), file.path.as_str()));
        lines
            .chain([(own, MANIFEST)])
            .flat_map(|(sum, path)| [sum, "  ", path, "\n"])
            .collect()
    }

    /// Reads the manifest of a backup and verifies its checksum.
    pub(super) fn read(from: &Path) -> Result<Self, BackupFailure> {
        let invalid = |reason: String| BackupFailure::NoBackup {
            path: from.to_owned(),
            reason,
        };
        let missing = |name: &str| {
            invalid(format!(
                "{name} is missing; the backup is possibly incomplete"
            ))
        };
        let sums = fs::read_to_string(from.join(SUMS)).map_err(|_| missing(SUMS))?;
        let path = from.join(MANIFEST);
        let text = fs::read(from.join(MANIFEST)).map_err(|_| missing(MANIFEST))?;

        let own = checksum(&path)?.sha256;
        let stated = sums
            .lines()
            .last()
            .and_then(|line| line.strip_suffix(&format!("  {MANIFEST}")));
        if stated != Some(own.as_str()) {
            return Err(BackupFailure::Damaged(vec![format!(
                "{MANIFEST} does not match {SUMS}"
            )]));
        }

        // The format first, without the type: a newer manifest may have fields that this release
        // rejects.
        let format = serde_json::from_slice::<serde_json::Value>(&text)
            .map_err(|error| invalid(error.to_string()))?;
        if let Some(found) = format["format"]
            .as_u64()
            .filter(|found| *found > u64::from(FORMAT))
        {
            let reason = format!(
                "format {found} is newer than the supported format {FORMAT}; use a newer release"
            );
            return Err(invalid(reason));
        }

        let manifest: Self =
            serde_json::from_slice(&text).map_err(|error| invalid(error.to_string()))?;
        // Users can verify a backup by the checksum file alone, so it must name the same files as
        // the manifest.
        if manifest.sums(&own) != sums {
            return Err(BackupFailure::Damaged(vec![format!(
                "{SUMS} does not match the manifest"
            )]));
        }

        Ok(manifest)
    }

    /// Returns the total size of all files in bytes.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.files.iter().map(|file| file.bytes).sum()
    }
}
