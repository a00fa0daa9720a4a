//! Scope of the reads of a request: the node, with readers whose scans end when the request ends.

use std::ops::Deref;
use std::sync::Arc;

use orlog_model::InstanceKey;
use orlog_store::{Cancellation, Reader};

use orlog_node::app::App;

/// Node as a request reads it.
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
}

impl Deref for ReadScope {
    type Target = App;

    fn deref(&self) -> &App {
        &self.app
    }
}
