//! The tables of a shard.

/// The names under which tables can be inspected: those of requirement R4, and of the others.
pub const TABLES: &[&str] = &[
    "saga",
    "history",
    "outbox",
    "schedule",
    "dedupe",
    "checkpoint",
    "deadletter",
    "held",
    "definition",
    "meta",
    "task",
    "task_event",
    "letter_outbox",
    "attention",
    "feed",
];

/// A table. The numbers are written into journal records and stay what they are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub(crate) enum Table {
    /// (slot, tenant, saga, correlation) → snapshot.
    Instance = 0,
    /// (slot, tenant, saga, correlation, version) → record.
    History = 1,
    /// (lane kind, lane name, sequence) → work item.
    Outbox = 2,
    /// (due, slot, tenant, saga, correlation, name, token) → nothing.
    Timer = 3,
    /// (bucket, slot, tenant, saga, correlation, event id) → nothing.
    Applied = 4,
    /// (stream, consumer) → stream position.
    Checkpoint = 5,
    /// (the tenant's slot, tenant, id) → dead letter.
    DeadLetter = 6,
    /// (slot, tenant, saga, correlation, number) → input.
    Held = 7,
    /// (hash) → program and source.
    Definition = 8,
    /// (name) → what the store knows about itself.
    Meta = 9,
    /// (slot, tenant, task id) → task.
    Task = 10,
    /// (slot, tenant, task id, number) → what happened to it.
    TaskEvent = 11,
    /// (sequence) → dead letter whose copy the bus does not have yet.
    LetterOutbox = 12,
    /// (slot, tenant, saga, correlation) → where an instance stands that does not go on by itself, and since when.
    Attention = 13,
    /// (position, part) → what a commit touched of what people are shown.
    Feed = 14,
}

impl Table {
    /// All of them, in the order of their numbers.
    pub(crate) const ALL: [Table; 15] = [
        Table::Instance,
        Table::History,
        Table::Outbox,
        Table::Timer,
        Table::Applied,
        Table::Checkpoint,
        Table::DeadLetter,
        Table::Held,
        Table::Definition,
        Table::Meta,
        Table::Task,
        Table::TaskEvent,
        Table::LetterOutbox,
        Table::Attention,
        Table::Feed,
    ];

    /// The table with this number.
    pub(crate) fn numbered(number: u8) -> Option<Self> {
        Self::ALL.get(usize::from(number)).copied()
    }

    /// The name on disk.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Table::Instance => "instance",
            Table::History => "history",
            Table::Outbox => "outbox",
            Table::Timer => "timer",
            Table::Applied => "applied",
            Table::Checkpoint => "checkpoint",
            Table::DeadLetter => "dead_letter",
            Table::Held => "held",
            Table::Definition => "definition",
            Table::Meta => "meta",
            Table::Task => "task",
            Table::TaskEvent => "task_event",
            Table::LetterOutbox => "letter_outbox",
            Table::Attention => "attention",
            Table::Feed => "feed",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_table_is_found_by_its_number() {
        for table in Table::ALL {
            assert_eq!(Table::numbered(table as u8), Some(table));
        }
        assert_eq!(Table::numbered(15), None);
    }
}
