//! Undispatched work items of a destination: the next ones in memory, the others in the store.
//!
//! Guarantee: the items are taken in the order of their sequences, each once.

use std::collections::VecDeque;
use std::sync::Arc;

use orlog_model::Destination;
use orlog_store::Reader;

use crate::effects::work_dispatch::DestinationWindow;
use crate::shard::fresh_rows::StoredWork;

/// Maximum number of items in memory, and number of items read per page.
const PAGE: usize = 256;

/// Queue of a destination; see the module documentation.
pub(crate) struct DestinationQueue {
    /// Sequence of the last item that was taken.
    after: u64,
    /// Next items, in order.
    pub(crate) items: VecDeque<StoredWork>,
    /// The store may have items behind those in memory.
    is_behind: bool,
    pub(crate) window: Arc<DestinationWindow>,
}

impl DestinationQueue {
    /// Creates the queue of a destination without items.
    pub(crate) fn new(destination: &Destination) -> Self {
        let window = Arc::new(DestinationWindow::new(destination.clone()));
        Self { after: 0, items: VecDeque::new(), is_behind: false, window }
    }

    /// Adds an item of a durable commit. An item that the store has already returned is ignored; an item
    /// that does not fit is read from the store later.
    pub(crate) fn offer(&mut self, row: StoredWork) {
        let last = self.items.back().map_or(self.after, |(key, _)| key.sequence);
        if self.is_behind || row.0.sequence <= last {
            return;
        }
        if self.items.len() < PAGE {
            self.items.push_back(row);
        } else {
            self.is_behind = true;
        }
    }

    /// Drops the items in memory; they are read from the store again.
    pub(crate) fn reset(&mut self) {
        self.items.clear();
        self.is_behind = true;
    }

    /// Reads the next page from the store if no item is in memory and the store may have more.
    pub(crate) fn fill(
        &mut self,
        destination: &Destination,
        reader: &Reader,
    ) -> Result<(), orlog_store::Error> {
        if self.items.is_empty() && self.is_behind {
            self.items.extend(reader.outbox(destination, self.after, PAGE)?);
            // Later commits are handed over in memory.
            self.is_behind = self.items.len() == PAGE;
        }
        Ok(())
    }

    /// Takes up to `count` items.
    pub(crate) fn take(&mut self, count: usize) -> Vec<StoredWork> {
        let count = count.min(self.items.len());
        let taken: Vec<_> = self.items.drain(..count).collect();
        if let Some((last, _)) = taken.last() {
            self.after = last.sequence;
        }
        taken
    }
}
