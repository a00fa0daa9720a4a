//! Sample data of the store suite.

use std::time::Duration;

use orlog_model::{
    Change, CheckpointKey, Commit, CorrelationId, DeadLetter, DeadLetterOriginal, DeadLetterReason,
    DedupeKey, DefinitionRef, Destination, Effect, EffectName, Event, EventId, EventType, Input,
    Instance, InstanceKey, Name, SagaName, Status, TenantId, Timer, Timestamp, Work, WorkItem,
    WorkKind,
};
use serde_json::json;
use uuid::Uuid;

pub(super) fn at(millis: i64) -> Timestamp {
    Timestamp::from_millis(millis)
}

pub(super) fn tenant(name: &str) -> TenantId {
    TenantId::new(name).expect("valid")
}

pub(super) fn saga(name: &str) -> SagaName {
    SagaName::new(name).expect("valid")
}

pub(super) fn event_id(text: &str) -> EventId {
    EventId::new(text).expect("valid")
}

pub(super) fn dedupe_key(text: &str) -> DedupeKey {
    DedupeKey::from_uuid(orlog_model::derive_id(at(0), &[text.as_bytes()]))
}

pub(super) fn name(text: &str) -> Name {
    Name::new(text).expect("valid")
}

pub(super) fn key(of: &str, correlation: &str) -> InstanceKey {
    let correlation = CorrelationId::new(correlation).expect("valid");
    InstanceKey {
        tenant: tenant(of),
        saga: saga("order"),
        correlation,
    }
}

pub(super) fn apply(commit: Commit) -> Change {
    Change::Apply(Box::new(commit))
}

pub(super) fn empty(key: &InstanceKey) -> Commit {
    Commit::empty(key.clone(), at(1))
}

pub(super) fn instance(version: u64, status: Status) -> Instance {
    Instance {
        definition: DefinitionRef {
            saga: saga("order"),
            version: 1,
            hash: [7; 16],
        },
        run_id: Uuid::from_u128(1),
        users: None,
        result: None,
        version,
        status,
        paused: false,
        state: vec![0, 1, 255],
        waits: vec![],
        timers: vec![],
        pending_work: vec![],
        reference: Some("R-1".into()),
        last_input: event_id("e"),
        last_error: None,
        node: "node-1".into(),
        trace: None,
        created_at: at(0),
        updated_at: at(i64::try_from(version).expect("small")),
        tasks: vec![],
        parent: None,
    }
}

pub(super) fn effect(key: &InstanceKey, effect: &str, id: u128) -> WorkItem {
    let work = Work::Effect(Effect {
        round: 0,
        tag: name("charge"),
        name: EffectName::new(effect).expect("valid"),
        payload: json!({"amount": 12.5, "lines": [1, null, "two"]}),
        timeout: Some(Duration::from_millis(1500)),
        retry: None,
        schema_version: 1,
        in_doubt: None,
        priority: orlog_model::Priority::Normal,
    });
    item(key, work, id)
}

pub(super) fn item(key: &InstanceKey, work: Work, id: u128) -> WorkItem {
    WorkItem {
        id: Uuid::from_u128(id),
        instance: key.clone(),
        work,
        deadline: Some(at(9)),
        causation: event_id("cause"),
        trace: None,
        created_at: at(1),
        priority: orlog_model::Priority::Normal,
    }
}

pub(super) fn destination(kind: WorkKind, name: &str) -> Destination {
    Destination {
        kind,
        tenant: tenant("acme"),
        name: name.into(),
        priority: orlog_model::Priority::Normal,
    }
}

pub(super) fn dead_letter(of: &str, id: u128) -> DeadLetter {
    DeadLetter {
        id: Uuid::from_u128(id),
        tenant: tenant(of),
        instance: None,
        reason: DeadLetterReason::Undecodable,
        message: "invalid JSON at byte 3".to_owned(),
        original: DeadLetterOriginal::Message {
            subject: "s".to_owned(),
            headers: vec![],
            payload: vec![0, 255],
        },
        attempts: 1,
        node: "node-1".to_owned(),
        at: at(4),
    }
}

pub(super) fn event(id: &str) -> Input {
    Input::Event(Event {
        id: event_id(id),
        tenant: tenant("acme"),
        kind: EventType::new("OrderPlaced").expect("valid"),
        source: "urn:shop".to_owned(),
        subject: None,
        time: at(3),
        correlation: None,
        causation: None,
        trace: None,
        schema_version: 1,
        data: json!({"total": 1}),
        user: None,
        attributes: None,
    })
}

pub(super) fn timer(due: i64, token: u64) -> Timer {
    Timer {
        due: at(due),
        name: name("timeout"),
        token,
    }
}

pub(super) fn source() -> CheckpointKey {
    CheckpointKey {
        stream: "events".to_owned(),
        consumer: "*".to_owned(),
    }
}
