//! Test data of this crate.

use std::sync::Arc;
use std::time::Duration;

use orlog_model::{
    Change, CheckpointKey, Commit, CorrelationId, DedupeKey, DefinitionRef, Effect, EffectName,
    EventId, HistoryEntry, Instance, InstanceKey, Name, SagaName, Status, StreamPosition, TenantId,
    Timer, Timestamp, Work, WorkItem,
};
use serde_json::json;
use uuid::Uuid;

use crate::options::Options;

/// Returns options with small files that flush only on request.
pub(crate) fn small() -> Options {
    Options {
        max_bytes: 16 << 20,
        memtable_max_age: Duration::from_hours(1),
        journal_segment_bytes: 64 << 10,
        ..Options::default()
    }
}

pub(crate) fn at(millis: i64) -> Timestamp {
    Timestamp::from_millis(millis)
}

pub(crate) fn key(tenant: &str, correlation: &str) -> InstanceKey {
    InstanceKey {
        tenant: TenantId::new(tenant).unwrap(),
        saga: SagaName::new("order").unwrap(),
        correlation: CorrelationId::new(correlation).unwrap(),
    }
}

pub(crate) fn instance(version: u64, status: Status) -> Instance {
    Instance {
        definition: DefinitionRef {
            saga: SagaName::new("order").unwrap(),
            version: 1,
            hash: [7; 16],
        },
        version,
        status,
        paused: false,
        state: format!(
            "{{\"step\":{version},\"items\":[\"a\",\"b\"],\"amount\":\"12.50\",\"customer\":\"c-1\"}}"
        )
        .into_bytes(),
        waits: vec![],
        timers: vec![],
        pending_work: vec![],
        reference: None,
        run_id: uuid::Uuid::nil(),
        users: None,
        result: None,
        last_input: EventId::new(format!("event-{version}")).unwrap(),
        last_error: None,
        node: "node-1".into(),
        trace: None,
        created_at: at(1),
        updated_at: at(i64::try_from(version).unwrap()),
        tasks: vec![],
        parent: None,
    }
}

pub(crate) fn work(key: &InstanceKey, effect: &str, id: u128) -> WorkItem {
    WorkItem {
        id: Uuid::from_u128(id),
        instance: key.clone(),
        work: Work::Effect(Effect {
            round: 0,
            tag: Name::new("charge").unwrap(),
            name: EffectName::new(effect).unwrap(),
            payload: json!({"amount": 1250, "currency": "EUR"}),
            timeout: Some(Duration::from_secs(30)),
            retry: None,
            schema_version: 1,
            in_doubt: None,
            priority: orlog_model::Priority::Normal,
        }),
        deadline: None,
        causation: EventId::new("cause").unwrap(),
        trace: None,
        created_at: at(5),
        priority: orlog_model::Priority::Normal,
    }
}

pub(crate) fn timer(due: i64, token: u64) -> Timer {
    Timer {
        due: at(due),
        name: Name::new("timeout").unwrap(),
        token,
    }
}

pub(crate) fn record(version: u64) -> HistoryEntry {
    HistoryEntry {
        version,
        at: at(i64::try_from(version).unwrap()),
        input_id: EventId::new(format!("event-{version}")).unwrap(),
        input_label: "OrderPlaced".into(),
        note: "reserve: requested".to_owned(),
        status: Status::Running,
        work: vec![(
            "inventory.ReserveStock".into(),
            Uuid::from_u128(u128::from(version)),
        )],
        origin: orlog_model::InputOrigin::default(),
        payloads: orlog_model::RecordedPayloads::default(),
        failure: None,
        input: None,
    }
}

/// Returns the dedupe key of the event that causes a version.
pub(crate) fn dedupe_key(version: u64) -> DedupeKey {
    DedupeKey::from_uuid(uuid::Uuid::from_u128(version.into()))
}

/// Returns a complete transition: snapshot, history entry, dedupe key, one work item.
pub(crate) fn transition(key: &InstanceKey, version: u64) -> Commit {
    let before = (version > 1).then(|| Arc::new(instance(version - 1, Status::Running)));
    Commit {
        before,
        instance: Some(Arc::new(instance(version, Status::Running))),
        work: vec![work(key, "payments.charge", u128::from(version))],
        dedupe_key: Some(dedupe_key(version)),
        history: Some(record(version)),
        ..Commit::empty(key.clone(), at(5))
    }
}

pub(crate) fn apply(commit: Commit) -> Change {
    Change::Apply(Box::new(commit))
}

pub(crate) fn checkpoint(sequence: u64) -> Change {
    let source = CheckpointKey {
        stream: "events".to_owned(),
        consumer: "*".to_owned(),
    };
    Change::Checkpoint(source, StreamPosition::after(Uuid::from_u128(1), sequence))
}
