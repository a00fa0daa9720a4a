//! Incomplete metrics of the last scrape, so that the log has each change once.

use std::collections::BTreeSet;

use parking_lot::Mutex;

/// Values of a shard.
pub(crate) type ShardValues = (u16, &'static str);

/// Incomplete values of the last scrape.
#[derive(Default)]
pub(crate) struct LoggedReads {
    /// Values that could not be read.
    pub(crate) failed: Mutex<BTreeSet<ShardValues>>,
    /// Values of which not all rows were counted.
    pub(crate) truncated: Mutex<BTreeSet<ShardValues>>,
}
