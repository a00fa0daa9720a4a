//! Counts of the operations that a saga costs, for the price list `benches/price.md`. They are
//! compiled only with the feature `count`, which the tests of the price list enable; otherwise they
//! cost nothing.

/// Operation that is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// Start of a saga actor.
    ActorStart,
    /// Message to an actor of a shard.
    ActorMessage,
    /// Acquisition of a lock on the path of an event: a mailbox, a queue between actors, a limit,
    /// the store.
    Lock,
    /// Event decoded from a bus message.
    EventDecode,
    /// Event encoded into a bus message.
    EventEncode,
    /// State of an instance decoded from bytes.
    StateDecode,
    /// State of an instance encoded into bytes.
    StateEncode,
    /// Work item decoded from its row.
    WorkItemDecode,
    /// Work item encoded into its row.
    WorkItemEncode,
    /// Row written to or deleted from a memtable.
    MemtableWrite,
    /// Row written to or deleted from a table on disk.
    TableWrite,
}

impl Operation {
    /// All operations.
    pub const ALL: [Self; 11] = [
        Self::ActorStart,
        Self::ActorMessage,
        Self::Lock,
        Self::EventDecode,
        Self::EventEncode,
        Self::StateDecode,
        Self::StateEncode,
        Self::WorkItemDecode,
        Self::WorkItemEncode,
        Self::MemtableWrite,
        Self::TableWrite,
    ];
}

#[cfg(feature = "count")]
static COUNTS: [std::sync::atomic::AtomicU64; Operation::ALL.len()] =
    [const { std::sync::atomic::AtomicU64::new(0) }; Operation::ALL.len()];

/// Counts one operation.
#[inline]
pub fn count(operation: Operation) {
    #[cfg(feature = "count")]
    COUNTS[operation as usize].fetch_add(1, std::sync::atomic::Ordering::Relaxed);
    #[cfg(not(feature = "count"))]
    let _ = operation;
}

/// Returns the number of operations since the start of the process.
#[cfg(feature = "count")]
#[must_use]
pub fn counted(operation: Operation) -> u64 {
    COUNTS[operation as usize].load(std::sync::atomic::Ordering::Relaxed)
}
