//! Registry: small records that every node holds in memory, changed with compare-and-set.
//!
//! The embedded registry is a journal in the data directory ([`crate::embedded::JournalRegistry`]);
//! on NATS it is a bucket that all nodes share ([`crate::nats::NatsRegistry`]).

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;

use async_trait::async_trait;
use orlog_journal::DurablePosition;
use tokio::sync::watch;

use crate::Error;

/// Identity of the position of every registry: a node has one.
pub(crate) const IDENTITY: [u8; 16] = *b"orlog-registry\0\0";

/// Record of a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// Number that changes with every write of the key and is never used again.
    pub revision: u64,
    /// Content.
    pub value: Arc<str>,
}

/// All records, as this node knows them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RegistryView {
    /// Records by key.
    pub records: BTreeMap<String, Record>,
    /// Largest revision, including those of removed records.
    pub revision: u64,
    /// Whether it is the current state; false while the servers are unavailable.
    pub is_current: bool,
    /// Time since which it is not the current state.
    pub outdated_since: Option<Instant>,
}

impl RegistryView {
    /// Returns the revision of a record; 0 if there is none.
    #[must_use]
    pub fn revision_of(&self, key: &str) -> u64 {
        self.records.get(key).map_or(0, |record| record.revision)
    }

    /// Applies a write; `None` removes the record.
    pub(crate) fn apply(&mut self, key: &str, revision: u64, value: Option<&str>) {
        match value {
            Some(value) => {
                self.records.insert(
                    key.to_owned(),
                    Record {
                        revision,
                        value: value.into(),
                    },
                );
            }
            None => {
                self.records.remove(key);
            }
        }
        // The entries of a copy are in the order of their keys, so a later entry can have a smaller
        // revision.
        self.revision = self.revision.max(revision);
    }
}

/// Registry of records.
#[async_trait]
pub trait Registry: Send + Sync + 'static {
    /// Returns a receiver of all records and their changes.
    fn view(&self) -> watch::Receiver<Arc<RegistryView>>;

    /// Returns the durable position, which only increases; `None` if nothing was written. Owners
    /// store it elsewhere, to detect a registry that lost records.
    fn durable_position(&self) -> Option<DurablePosition>;

    /// Returns when the view has all records that were durable at the time of the call.
    ///
    /// # Errors
    /// If the servers do not respond.
    async fn refresh(&self) -> Result<(), Error>;

    /// Writes a record, or removes it with `None`, if its revision is `seen` (0: there is no
    /// record). Returns the new revision when the change is durable and in the view of this node;
    /// `None`: the record has another revision.
    ///
    /// # Errors
    /// If it is unknown whether the change was stored ([`Error::Unavailable`]), or if nothing was
    /// stored.
    async fn put(&self, key: &str, value: Option<String>, seen: u64) -> Result<Option<u64>, Error>;
}
