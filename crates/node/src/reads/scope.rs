//! Scope of a read: readers whose scans end when the reading request ends, and what a view needs
//! besides them.

use std::sync::Arc;

use orlog_actors::{LocalShards, ProgramRegistry};
use orlog_model::{Clock, InstanceKey, Timestamp};
use orlog_store::{Cancellation, Reader};

use crate::config::{Config, HttpServerConfig};
use crate::definitions::DefinitionSet;
use crate::redact::Redaction;

/// Parts of the node that a read needs, besides the stores, to interpret what it reads.
pub(crate) struct ReadParts {
    pub(crate) config: Arc<Config>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) shards: LocalShards,
    pub(crate) programs: Arc<ProgramRegistry>,
    pub(crate) definitions: Arc<DefinitionSet>,
}

/// Stores of this process as one read sees them.
pub struct StoreScope {
    parts: Arc<ReadParts>,
    cancellation: Cancellation,
}

impl StoreScope {
    pub(super) fn new(parts: Arc<ReadParts>, cancellation: Cancellation) -> Self {
        Self {
            parts,
            cancellation,
        }
    }

    /// Returns the reader of the shard of an instance; `None` if another process owns it.
    #[must_use]
    pub fn reader(&self, key: &InstanceKey) -> Option<Reader> {
        self.parts
            .shards
            .reader(key)
            .map(|reader| self.cancelling(&reader))
    }

    /// Returns the readers with the numbers of their shards, ordered by number.
    pub fn numbered_readers(&self) -> impl Iterator<Item = (u16, Reader)> {
        self.parts
            .shards
            .numbered_readers()
            .map(|(shard, reader)| (shard, self.cancelling(&reader)))
    }

    /// Returns a reader whose scans end with the request.
    #[must_use]
    pub fn cancelling(&self, reader: &Reader) -> Reader {
        reader.with_cancellation(&self.cancellation)
    }

    /// Returns whether the request has ended.
    pub(crate) fn is_cancelled(&self) -> bool {
        self.cancellation.is_cancelled()
    }

    /// Returns the programs that interpret the stored states.
    #[must_use]
    pub fn programs(&self) -> &ProgramRegistry {
        &self.parts.programs
    }

    /// Returns the active definitions.
    #[must_use]
    pub fn definitions(&self) -> &DefinitionSet {
        &self.parts.definitions
    }

    /// Returns what responses do not show.
    #[must_use]
    pub fn redact(&self) -> &Redaction {
        &self.parts.config.redact
    }

    /// Returns the limits of requests, which also apply to pages.
    #[must_use]
    pub fn http(&self) -> &HttpServerConfig {
        &self.parts.config.http
    }

    /// Returns the clock of the node.
    #[must_use]
    pub fn clock(&self) -> &dyn Clock {
        self.parts.clock.as_ref()
    }

    /// Returns the wall-clock time.
    #[must_use]
    pub fn now(&self) -> Timestamp {
        self.clock().now()
    }
}
