//! Commits, and the readable state after them.

use std::time::Duration;

use orlog_model::{
    Change, CheckpointKey, Commit, CorrelationId, DedupeKey, Effect, EffectName, EventId,
    HistoryEntry, InstanceKey, Name, SagaName, Status, StreamPosition, TenantId, Timestamp, Work,
    WorkItem,
};
use orlog_store::{Options, Reader, TABLES};
use serde_json::json;
use uuid::Uuid;

pub(crate) fn small() -> Options {
    Options {
        feed: true,
        max_bytes: 16 << 20,
        memtable_max_age: Duration::from_hours(1),
        journal_segment_bytes: 64 << 10,
        ..Options::default()
    }
}

pub(crate) fn at(millis: u64) -> Timestamp {
    Timestamp::from_millis(i64::try_from(millis).expect("small"))
}

/// Returns the commit with this number; every third one has more than 3000 bytes.
pub(crate) fn group(number: u64) -> Vec<Change> {
    sized(number, 3000)
}

/// Returns the commit with this number: history entry, work and checkpoint of an instance; every third
/// one has the given size.
pub(crate) fn sized(number: u64, large: usize) -> Vec<Change> {
    let key = InstanceKey {
        tenant: TenantId::new("acme").expect("valid"),
        saga: SagaName::new("order").expect("valid"),
        correlation: CorrelationId::new(format!("o-{}", number % 3)).expect("valid"),
    };
    let id = EventId::new(format!("event-{number}")).expect("valid");
    let size = if number.is_multiple_of(3) { large } else { 400 };
    let effect = Effect {
        round: 0,
        tag: Name::new("charge").expect("valid"),
        name: EffectName::new("payments.charge").expect("valid"),
        payload: json!({"text": "x".repeat(size)}),
        timeout: None,
        retry: None,
        schema_version: 1,
        in_doubt: None,
        priority: orlog_model::Priority::Normal,
    };
    let item = WorkItem {
        id: Uuid::from_u128(u128::from(number)),
        instance: key.clone(),
        work: Work::Effect(effect),
        deadline: None,
        causation: id.clone(),
        trace: None,
        created_at: at(number),
        priority: orlog_model::Priority::Normal,
    };
    let record = HistoryEntry {
        version: number,
        at: at(number),
        input_id: id.clone(),
        input_label: "OrderPlaced".into(),
        note: "charge: asked".to_owned(),
        status: Status::Running,
        work: vec![],
        origin: orlog_model::InputOrigin::default(),
        payloads: orlog_model::RecordedPayloads::default(),
        failure: None,
        input: None,
    };
    let commit = Commit {
        work: vec![item],
        dedupe_key: Some(DedupeKey::from_uuid(Uuid::from_u128(number.into()))),
        history: Some(record),
        ..Commit::empty(key, at(number))
    };
    let source = CheckpointKey {
        stream: "events".to_owned(),
        consumer: "*".to_owned(),
    };
    let position = StreamPosition {
        stream_id: Uuid::from_u128(1),
        sequence: number,
        at: None,
    };
    vec![
        Change::Apply(Box::new(commit)),
        Change::Checkpoint(source, position),
    ]
}

/// Returns all readable state as text.
pub(crate) fn everything(reader: &Reader) -> String {
    // Flushes and openings derive `index` and `count` from the instances.
    let tables = TABLES
        .iter()
        .filter(|table| !["meta", "index", "count"].contains(table));
    let rows = tables.flat_map(|table| {
        reader
            .inspect_rows(table, None, usize::MAX)
            .expect("the store is open")
    });
    let rows: Vec<_> = rows
        .map(|row| format!("{} {}\n", row.key, row.value))
        .collect();
    format!(
        "{} {}\n{}",
        reader.position(),
        reader.outbox_depth().expect("the store is open"),
        rows.concat()
    )
}
