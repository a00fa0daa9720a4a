//! Values: a format byte, then MessagePack without field names.
//!
//! A field can be added at the end of a struct with `#[serde(default)]`: values without it remain
//! readable. Any other change requires a new format.

use std::fmt;

use orlog_model::count::{Operation, count};
use serde::de::Visitor;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::error::Error;
use crate::table::Table;

/// Only format of values.
const FORMAT: u8 = 1;

/// Value of rows whose key contains all data.
pub(crate) const EMPTY: &[u8] = &[FORMAT];

/// Appends a value.
pub(crate) fn encode<T: Serialize>(buffer: &mut Vec<u8>, value: &T) {
    buffer.push(FORMAT);
    rmp_serde::encode::write(buffer, value)
        .expect("values of the model are encodable and fit in memory");
}

/// Decodes a value of `table`.
pub(crate) fn decode<'de, T: Deserialize<'de>>(table: Table, bytes: &'de [u8]) -> Result<T, Error> {
    let corrupt = |reason: String| Error::Corrupt {
        location: format!("a value of table {}", table.name()),
        reason,
    };

    if table == Table::Outbox {
        count(Operation::WorkItemDecode);
    }

    match bytes.split_first() {
        Some((&FORMAT, body)) => {
            rmp_serde::from_slice(body).map_err(|error| corrupt(error.to_string()))
        }
        Some((format, _)) => Err(corrupt(format!(
            "unsupported format {format}; this release supports {FORMAT}"
        ))),
        None => Err(corrupt("it is empty".to_owned())),
    }
}

/// Returns `None` for a row that cannot be read, so that a scan continues. The instance of the row
/// is quarantined when it is loaded.
pub(crate) fn readable<T>(row: Result<T, Error>) -> Result<Option<T>, Error> {
    match row {
        Err(error) if error.is_damage() => Ok(None),
        row => row.map(Some),
    }
}

/// Definition source to write, as bytes. Sources were strings before WebAssembly modules were
/// supported; values of both kinds can be read.
pub(crate) struct DefinitionSourceRef<'a>(pub(crate) &'a [u8]);

/// Definition source that was read.
pub(crate) struct DefinitionSourceBytes(pub(crate) Vec<u8>);

impl Serialize for DefinitionSourceRef<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_bytes(self.0)
    }
}

impl<'de> Deserialize<'de> for DefinitionSourceBytes {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(TextOrBytes)
    }
}

struct TextOrBytes;

impl Visitor<'_> for TextOrBytes {
    type Value = DefinitionSourceBytes;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a string or bytes")
    }

    fn visit_str<E>(self, text: &str) -> Result<DefinitionSourceBytes, E> {
        Ok(DefinitionSourceBytes(text.as_bytes().to_vec()))
    }

    fn visit_bytes<E>(self, bytes: &[u8]) -> Result<DefinitionSourceBytes, E> {
        Ok(DefinitionSourceBytes(bytes.to_vec()))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use orlog_model::{
        ArmedTimer, ControlAction, ControlRequest, Destination, Effect, EffectName, Event, EventId,
        EventType, HistoryEntry, InDoubtPolicy, Input, InputKind, InputOrigin, Name, OutboxKey,
        Priority, RetryPolicy, ScheduledSignal, StreamPosition, TenantId, Timestamp, TraceParent,
        Wait, WaitKind, WorkKind, WorkOutcome, WorkResult,
    };
    use serde_json::{Value, json};
    use uuid::Uuid;

    use super::*;

    #[test]
    fn event_encoding_is_backward_compatible() {
        let event = scheduled_signal().event;
        let older = (
            &event.id,
            &event.tenant,
            &event.kind,
            &event.source,
            &event.subject,
            event.time,
            &event.correlation,
            &event.causation,
            &event.trace,
            event.schema_version,
            &event.data,
        );
        let mut before = Vec::new();
        encode(&mut before, &older);
        assert_eq!(
            decode::<Event>(Table::BufferedInput, &before).unwrap(),
            event
        );
        let extensions = [("region".to_owned(), "eu".to_owned())].into();
        let attributes = orlog_model::EventAttributes {
            content_type: None,
            data_schema: None,
            extensions,
        }
        .boxed();
        for user in [None, Some("ada".to_owned())] {
            for attributes in [None, attributes.clone()] {
                let event = Event {
                    user: user.clone(),
                    attributes,
                    ..event.clone()
                };
                let mut bytes = Vec::new();
                encode(&mut bytes, &event);
                assert_eq!(
                    decode::<Event>(Table::BufferedInput, &bytes).unwrap(),
                    event
                );
            }
        }
    }

    #[test]
    fn effect_encoding_is_backward_compatible() {
        let retry = Some(RetryPolicy {
            max_attempts: Some(3),
            initial_backoff: None,
        });
        let effect = Effect {
            round: 0,
            tag: Name::new("charge").unwrap(),
            name: EffectName::new("payments.charge").unwrap(),
            payload: json!({ "amount": 12 }),
            timeout: Some(Duration::from_secs(5)),
            retry,
            schema_version: 1,
            in_doubt: None,
            priority: orlog_model::Priority::Normal,
        };
        let older: (&str, &str, Value, Option<Duration>, Option<RetryPolicy>) = (
            "charge",
            "payments.charge",
            effect.payload.clone(),
            effect.timeout,
            retry,
        );
        let (mut before, mut after) = (Vec::new(), Vec::new());
        encode(&mut before, &older);
        encode(&mut after, &effect);
        assert_eq!(before, after);
        assert_eq!(decode::<Effect>(Table::Outbox, &before).unwrap(), effect);

        let with_in_doubt = Effect {
            in_doubt: Some(InDoubtPolicy::Ask),
            ..effect.clone()
        };
        let with_version = Effect {
            schema_version: 2,
            ..effect
        };
        for effect in [with_in_doubt, with_version] {
            let mut bytes = Vec::new();
            encode(&mut bytes, &effect);
            assert_eq!(decode::<Effect>(Table::Outbox, &bytes).unwrap(), effect);
        }
    }

    #[test]
    fn work_item_without_priority_is_readable_and_encoded_as_before() {
        let item = crate::samples::work(&crate::samples::key("acme", "a"), "payments.charge", 7);
        let older = (
            item.id,
            &item.instance,
            &item.work,
            item.deadline,
            &item.causation,
            &item.trace,
            item.created_at,
        );
        let (mut before, mut after) = (Vec::new(), Vec::new());
        encode(&mut before, &older);
        encode(&mut after, &item);
        assert_eq!(before, after);
        let urgent = orlog_model::WorkItem {
            priority: Priority::High,
            ..item
        };
        after.clear();
        encode(&mut after, &urgent);
        assert_eq!(
            decode::<orlog_model::WorkItem>(Table::Outbox, &after).unwrap(),
            urgent
        );

        let destination = urgent.destination();
        let (mut before, mut after) = (Vec::new(), Vec::new());
        encode(
            &mut before,
            &(destination.kind, &destination.tenant, &destination.name),
        );
        let normal = Destination {
            priority: Priority::Normal,
            ..destination.clone()
        };
        encode(&mut after, &normal);
        assert_eq!(
            (
                &before,
                decode::<Destination>(Table::Outbox, &before).unwrap()
            ),
            (&after, normal)
        );
        after.clear();
        encode(&mut after, &destination);
        assert_eq!(
            decode::<Destination>(Table::Outbox, &after).unwrap(),
            destination
        );
    }

    #[test]
    fn history_encoding_is_backward_compatible() {
        let record = crate::samples::record(7);
        let older = (
            7,
            record.at,
            &record.input_id,
            &record.input_label,
            &record.note,
            record.status,
            &record.work,
        );
        let mut before = Vec::new();
        encode(&mut before, &older);
        assert_eq!(
            decode::<HistoryEntry>(Table::History, &before).unwrap(),
            record
        );
        before.clear();
        let (work, origin) = (&record.work, &record.origin);
        let with_origin = (
            7,
            record.at,
            &record.input_id,
            &record.input_label,
            &record.note,
            record.status,
            work,
            origin,
        );
        encode(&mut before, &with_origin);
        assert_eq!(
            decode::<HistoryEntry>(Table::History, &before).unwrap(),
            record
        );

        let origin = InputOrigin {
            kind: Some(InputKind::Timer),
            node: "node-1".into(),
            delay_ms: Some(1500),
            attributes: None,
        };
        let mut payloads = orlog_model::RecordedPayloads::default();
        payloads.push(Some(&json!({ "total": 3 })), 100);
        let attempts = Some(orlog_model::AttemptLog {
            records: Vec::new(),
            omitted: 3,
        });
        let failure = Some(Box::new(orlog_model::RecordedFailure {
            failure: None,
            attempts,
        }));
        let new = HistoryEntry {
            origin,
            payloads,
            failure,
            ..record
        };
        let mut bytes = Vec::new();
        encode(&mut bytes, &new);
        assert_eq!(decode::<HistoryEntry>(Table::History, &bytes).unwrap(), new);
        let due = Timestamp::from_millis(4);
        let name = orlog_model::Name::new("saga").unwrap();
        let input = Some(Box::new(Input::Timer(orlog_model::TimerFired {
            name,
            token: 7,
            due,
        })));
        let recorded = HistoryEntry {
            failure: None,
            input,
            ..new
        };
        bytes.clear();
        encode(&mut bytes, &recorded);
        assert_eq!(
            decode::<HistoryEntry>(Table::History, &bytes).unwrap(),
            recorded
        );
    }

    #[test]
    fn checkpoint_encoding_is_backward_compatible() {
        let position = StreamPosition::after(Uuid::from_u128(7), 40);
        let (mut before, mut after) = (Vec::new(), Vec::new());
        encode(&mut before, &(Uuid::from_u128(7), 40_u64));
        encode(&mut after, &position);
        assert_eq!(before, after);
        assert_eq!(
            decode::<StreamPosition>(Table::Checkpoint, &before).unwrap(),
            position
        );

        let timed = StreamPosition {
            at: Some(Timestamp::from_millis(9)),
            ..position
        };
        let mut bytes = Vec::new();
        encode(&mut bytes, &timed);
        assert_eq!(
            decode::<StreamPosition>(Table::Checkpoint, &bytes).unwrap(),
            timed
        );
    }

    #[test]
    fn task_and_instance_encoding_is_backward_compatible() {
        let mut before = Vec::new();
        encode(
            &mut before,
            &("approve", "Approve", ["clerk"], (), (), ["Approved"], ()),
        );
        let spec = decode::<orlog_model::TaskSpec>(Table::Task, &before).unwrap();
        assert_eq!(
            (spec.roles, spec.not_by, spec.is_in_doubt),
            (vec!["clerk".to_owned()], vec![], false)
        );

        let instance = crate::samples::instance(1, orlog_model::Status::Running);
        let mut before = Vec::new();
        encode(&mut before, &instance);
        // An array of 18 values, as earlier releases wrote it.
        assert_eq!(before[1..4], [0xdc, 0, 18]);
        assert_eq!(
            decode::<orlog_model::Instance>(Table::Instance, &before).unwrap(),
            instance
        );
        let (mut bytes, users) = (Vec::new(), Some(orlog_model::InstanceUsers::default()));
        let recorded = orlog_model::Instance { users, ..instance };
        encode(&mut bytes, &recorded);
        assert_eq!(
            decode::<orlog_model::Instance>(Table::Instance, &bytes).unwrap(),
            recorded
        );
        let result = orlog_model::SagaResult {
            event: orlog_model::EventType::new("OrderCompleted").unwrap(),
            data: json!({ "total": 7, "items": [null, "a"] }),
        };
        let ended = orlog_model::Instance {
            result: Some(Box::new(result)),
            ..recorded
        };
        bytes.clear();
        encode(&mut bytes, &ended);
        assert_eq!(
            decode::<orlog_model::Instance>(Table::Instance, &bytes).unwrap(),
            ended
        );
    }

    #[test]
    fn result_and_timer_encoding_is_backward_compatible() {
        let trace = TraceParent::new("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01");
        let (work_id, at) = (Uuid::from_u128(7), Timestamp::from_millis(9));
        let outbox = OutboxKey {
            destination: Destination {
                kind: WorkKind::Effect,
                tenant: TenantId::new("acme").unwrap(),
                name: "pay.charge".into(),
                priority: orlog_model::Priority::Normal,
            },
            sequence: 3,
        };
        let facts = Vec::new();
        let untraced = WorkResult {
            requested_at: at,
            work_id,
            outbox_key: outbox,
            outcome: WorkOutcome::Accepted,
            attempts: 1,
            at,
            facts,
            publishes: false,
            trace: None,
            attempt_log: None,
        };
        let mut older = Vec::new();
        encode(
            &mut older,
            &(
                work_id,
                untraced.outbox_key.clone(),
                WorkOutcome::Accepted,
                at,
                1,
                at,
            ),
        );
        assert_eq!(
            decode::<WorkResult>(Table::BufferedInput, &older).unwrap(),
            untraced
        );
        let log = Some(Box::new(orlog_model::AttemptLog {
            records: Vec::new(),
            omitted: 3,
        }));
        for (trace, attempt_log) in [(trace.clone(), None), (None, log)] {
            let (mut bytes, result) = (
                Vec::new(),
                WorkResult {
                    trace,
                    attempt_log,
                    ..untraced.clone()
                },
            );
            encode(&mut bytes, &result);
            assert_eq!(
                decode::<WorkResult>(Table::BufferedInput, &bytes).unwrap(),
                result
            );
        }

        let untraced = ArmedTimer {
            name: Name::new("late").unwrap(),
            token: 2,
            due: at,
            trace: None,
            signal: None,
        };
        let (mut before, mut after) = (Vec::new(), Vec::new());
        encode(&mut before, &("late", 2, at));
        encode(&mut after, &untraced);
        assert_eq!(
            (
                &before,
                decode::<ArmedTimer>(Table::Instance, &before).unwrap()
            ),
            (&after, untraced.clone())
        );
        let trace = trace.map(Box::new);
        for (trace, signal) in [
            (trace.clone(), None),
            (None, Some(scheduled_signal())),
            (trace, Some(scheduled_signal())),
        ] {
            let (mut bytes, timer) = (
                Vec::new(),
                ArmedTimer {
                    trace,
                    signal,
                    ..untraced.clone()
                },
            );
            encode(&mut bytes, &timer);
            assert_eq!(
                decode::<ArmedTimer>(Table::Instance, &bytes).unwrap(),
                timer
            );
        }
    }

    fn scheduled_signal() -> Box<ScheduledSignal> {
        let event = Event {
            id: EventId::new("s-1").unwrap(),
            tenant: TenantId::default_tenant(),
            kind: EventType::new("Approved").unwrap(),
            source: "urn:desk".to_owned(),
            subject: None,
            time: Timestamp::from_millis(1),
            correlation: None,
            causation: None,
            trace: None,
            schema_version: 1,
            data: json!({ "by": "ada" }),
            user: None,
            attributes: None,
        };
        Box::new(ScheduledSignal {
            event,
            wait_token: Some("0f3a91c2b4d5e678".parse().unwrap()),
        })
    }

    #[test]
    fn waits_and_requests_of_earlier_releases_are_read() {
        let wait = Wait::new(WaitKind::Event, Name::new("Paid").unwrap(), None);
        let (mut before, mut after) = (Vec::new(), Vec::new());
        encode(&mut before, &("event", "Paid", None::<Timestamp>));
        encode(&mut after, &wait);
        assert_eq!(
            (&before, decode::<Wait>(Table::Instance, &before).unwrap()),
            (&after, wait.clone())
        );
        let later = Wait { origin: 7, ..wait };
        after.clear();
        encode(&mut after, &later);
        assert_eq!(decode::<Wait>(Table::Instance, &after).unwrap(), later);

        let request = ControlRequest {
            id: EventId::new("r-1").unwrap(),
            action: ControlAction::Retry,
            expected_version: Some(3),
            at: Timestamp::from_millis(1),
            user: None,
            reason: None,
            trace: None,
            wait_token: None,
        };
        before.clear();
        encode(
            &mut before,
            &("r-1", "retry", Some(3), 1, None::<&str>, None::<&str>),
        );
        assert_eq!(
            decode::<ControlRequest>(Table::BufferedInput, &before).unwrap(),
            request
        );
        let guarded = ControlRequest {
            wait_token: Some("0f3a91c2b4d5e678".parse().unwrap()),
            ..request
        };
        after.clear();
        encode(&mut after, &guarded);
        assert_eq!(
            decode::<ControlRequest>(Table::BufferedInput, &after).unwrap(),
            guarded
        );
    }

    #[track_caller]
    fn check_source<T: Serialize>(written: &T, read: &[u8]) {
        let mut buffer = Vec::new();
        encode(&mut buffer, written);
        let DefinitionSourceBytes(source) = decode(Table::Definition, &buffer).unwrap();
        assert_eq!(source, read);
    }

    #[test]
    fn source_bytes_and_legacy_text_are_decoded() {
        check_source(&"saga: order", b"saga: order");
        check_source(&DefinitionSourceRef(b"saga: order"), b"saga: order");
        check_source(&DefinitionSourceRef(b"\0asm\xff"), b"\0asm\xff");
    }
}
