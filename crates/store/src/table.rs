//! Tables of a shard.

/// Names under which tables can be inspected, by number: those of requirement R4, and the others.
pub const TABLES: &[&str] = &[
    "saga",
    "history",
    "outbox",
    "schedule",
    "dedupe",
    "checkpoint",
    "deadletter",
    "buffered_input",
    "definition",
    "meta",
    "task",
    "task_event",
    "dead_letter_outbox",
    "attention",
    "feed",
    "index",
    "count",
    "job_log",
    "job_claim",
];

/// Table. Journal records contain the numbers, so they never change.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub(crate) enum Table {
    /// (slot, tenant, saga, correlation) → snapshot.
    Instance = 0,
    /// (slot, tenant, saga, correlation, version) → history entry.
    History = 1,
    /// (priority and kind, tenant, name of the destination, sequence) → work item.
    Outbox = 2,
    /// (due, slot, tenant, saga, correlation, name, token) → nothing.
    Timer = 3,
    /// (bucket, slot, tenant, saga, correlation, event id) → nothing.
    Dedupe = 4,
    /// (stream, consumer) → stream position.
    Checkpoint = 5,
    /// (slot of the tenant, tenant, id) → dead letter.
    DeadLetter = 6,
    /// (slot, tenant, saga, correlation, number) → input.
    BufferedInput = 7,
    /// (hash) → definition ref and source.
    Definition = 8,
    /// (name) → metadata of the store.
    Meta = 9,
    /// (slot, tenant, task id) → task.
    Task = 10,
    /// (slot, tenant, task id, number) → task event.
    TaskEvent = 11,
    /// (sequence) → dead letter whose copy is not on the bus yet.
    DeadLetterOutbox = 12,
    /// (slot, tenant, saga, correlation) → status of a stuck or paused instance, and its start.
    Attention = 13,
    /// (position, part) → visible rows that a commit changed.
    Feed = 14,
    /// (index, fields of the index, instance) → nothing. Derived from the instances by each flush,
    /// so no journal record contains it.
    Index = 15,
    /// (tenant, saga, definition version, hash, status, paused) → number of instances.
    Count = 16,
    /// (slot, tenant, saga, correlation, number of the first line) → lines of a job; number 0 →
    /// range of the numbers.
    JobLog = 17,
    /// (slot, tenant, saga, correlation, work item) → claim of a worker.
    JobClaim = 18,
}

impl Table {
    /// All tables, in the order of their numbers.
    pub(crate) const ALL: [Table; 19] = [
        Table::Instance,
        Table::History,
        Table::Outbox,
        Table::Timer,
        Table::Dedupe,
        Table::Checkpoint,
        Table::DeadLetter,
        Table::BufferedInput,
        Table::Definition,
        Table::Meta,
        Table::Task,
        Table::TaskEvent,
        Table::DeadLetterOutbox,
        Table::Attention,
        Table::Feed,
        Table::Index,
        Table::Count,
        Table::JobLog,
        Table::JobClaim,
    ];

    /// Returns the table with this number.
    pub(crate) fn from_number(number: u8) -> Option<Self> {
        Self::ALL.get(usize::from(number)).copied()
    }

    /// Returns whether a node cannot run without every row: it would continue from a wrong position
    /// or without a definition.
    pub(crate) fn is_required(self) -> bool {
        matches!(self, Table::Checkpoint | Table::Definition | Table::Meta)
    }

    /// Returns whether a scan skips damaged rows. A feed with a missing row is incomplete.
    pub(crate) fn skips_damaged_rows(self) -> bool {
        !self.is_required() && self != Table::Feed
    }

    /// Returns the name on disk.
    pub(crate) fn name(self) -> &'static str {
        match self {
            // These names differ from the displayed ones.
            Table::Instance => "instance",
            Table::Timer => "timer",
            Table::DeadLetter => "dead_letter",
            other => TABLES[other as usize],
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn table_numbers_round_trip() {
        for table in Table::ALL {
            assert_eq!(Table::from_number(table as u8), Some(table));
        }
        assert_eq!(Table::from_number(19), None);
        assert_eq!(Table::ALL.len(), TABLES.len());
        assert_eq!(
            (Table::Outbox.name(), Table::Count.name()),
            ("outbox", "count")
        );
    }
}
