//! Scope of the reads of a request: readers whose scans end when the request ends, and what a view
//! needs besides them.

mod effects;

use std::sync::Arc;

use orlog_actors::ProgramRegistry;
use orlog_model::{Clock, InstanceKey, Timestamp};
use orlog_store::{Cancellation, Reader};

use orlog_node::app::App;
use orlog_node::config::HttpServerConfig;
use orlog_node::definitions::DefinitionSet;
use orlog_node::redact::Redaction;

/// Stores of this process as a request reads them.
pub(crate) struct ReadScope {
    app: Arc<App>,
    cancellation: Cancellation,
}

impl ReadScope {
    pub(crate) fn new(app: Arc<App>, cancellation: Cancellation) -> Self {
        Self { app, cancellation }
    }

    /// Returns the reader of the shard of an instance; `None` if another process owns it.
    pub(crate) fn reader(&self, key: &InstanceKey) -> Option<Reader> {
        self.app
            .runtime
            .reader(key)
            .map(|reader| self.cancelling(&reader))
    }

    /// Returns the readers of all shards of this process, ordered by number.
    pub(crate) fn readers(&self) -> impl Iterator<Item = Reader> {
        self.numbered_readers().map(|(_, reader)| reader)
    }

    /// Returns the readers with the numbers of their shards.
    pub(crate) fn numbered_readers(&self) -> impl Iterator<Item = (u16, Reader)> {
        self.app
            .runtime
            .numbered_readers()
            .map(|(shard, reader)| (shard, self.cancelling(&reader)))
    }

    /// Returns a reader whose scans end with the request.
    pub(crate) fn cancelling(&self, reader: &Reader) -> Reader {
        reader.with_cancellation(&self.cancellation)
    }

    /// Returns whether the request has ended.
    pub(crate) fn is_cancelled(&self) -> bool {
        self.cancellation.is_cancelled()
    }

    /// Returns the programs that interpret the stored states.
    pub(crate) fn programs(&self) -> &ProgramRegistry {
        &self.app.programs
    }

    /// Returns the active definitions.
    pub(crate) fn definitions(&self) -> &DefinitionSet {
        &self.app.definitions
    }

    /// Returns what responses do not show.
    pub(crate) fn redact(&self) -> &Redaction {
        &self.app.config.redact
    }

    /// Returns the limits of requests.
    pub(crate) fn http(&self) -> &HttpServerConfig {
        &self.app.config.http
    }

    /// Returns the clock of the node.
    pub(crate) fn clock(&self) -> &dyn Clock {
        self.app.clock.as_ref()
    }

    /// Returns the wall-clock time.
    pub(crate) fn now(&self) -> Timestamp {
        self.clock().now()
    }
}
