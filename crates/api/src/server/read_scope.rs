//! Scope of the reads of a request: the stores, and what else is true of their instances now.

mod effects;

use std::sync::Arc;

use orlog_actors::ProgramRegistry;
use orlog_model::{Clock, InstanceKey, Timestamp};
use orlog_store::Reader;

use orlog_node::app::App;
use orlog_node::config::HttpServerConfig;
use orlog_node::definitions::DefinitionSet;
use orlog_node::reads::StoreScope;
use orlog_node::redact::Redaction;

/// Stores of this process as a request reads them.
pub(crate) struct ReadScope {
    app: Arc<App>,
    stores: StoreScope,
}

impl ReadScope {
    pub(crate) fn new(app: Arc<App>, stores: StoreScope) -> Self {
        Self { app, stores }
    }

    /// Returns the stores, for services of the node.
    pub(crate) fn stores(&self) -> &StoreScope {
        &self.stores
    }

    /// Returns the reader of the shard of an instance; `None` if another process owns it.
    pub(crate) fn reader(&self, key: &InstanceKey) -> Option<Reader> {
        self.stores.reader(key)
    }

    /// Returns the readers of all shards of this process, ordered by number.
    pub(crate) fn readers(&self) -> impl Iterator<Item = Reader> {
        self.stores.numbered_readers().map(|(_, reader)| reader)
    }

    /// Returns a reader whose scans end with the request.
    pub(crate) fn cancelling(&self, reader: &Reader) -> Reader {
        self.stores.cancelling(reader)
    }

    /// Returns the programs that interpret the stored states.
    pub(crate) fn programs(&self) -> &ProgramRegistry {
        self.stores.programs()
    }

    /// Returns the active definitions.
    pub(crate) fn definitions(&self) -> &DefinitionSet {
        self.stores.definitions()
    }

    /// Returns what responses do not show.
    pub(crate) fn redact(&self) -> &Redaction {
        self.stores.redact()
    }

    /// Returns the limits of requests.
    pub(crate) fn http(&self) -> &HttpServerConfig {
        self.stores.http()
    }

    /// Returns the clock of the node.
    pub(crate) fn clock(&self) -> &dyn Clock {
        self.stores.clock()
    }

    /// Returns the wall-clock time.
    pub(crate) fn now(&self) -> Timestamp {
        self.stores.now()
    }
}
