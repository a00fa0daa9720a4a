//! Tests of the codec: every format, every rejected rule, and no panic on arbitrary input.

use bytes::Bytes;
use orlog_model::{
    CorrelationId, Event, EventId, EventType, TenantId, Timestamp, TraceParent,
    is_direction_control,
};
use proptest::prelude::*;
use serde_json::json;

use super::*;

const NOW: Timestamp = Timestamp::from_millis(1_700_000_000_123);
const TRACE: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

fn defaults(tenant: Option<&str>) -> DecodeDefaults {
    DecodeDefaults {
        tenant: tenant.map(|t| TenantId::new(t).unwrap()),
        now: NOW,
    }
}

fn message(subject: &str, headers: &[(&str, &str)], body: &str) -> Message {
    let headers = headers
        .iter()
        .map(|(n, v)| ((*n).into(), (*v).into()))
        .collect();
    Message {
        subject: subject.to_owned(),
        id: None,
        headers,
        payload: Bytes::from(body.to_owned()),
    }
}

fn event() -> Event {
    Event {
        id: EventId::new("e-1").unwrap(),
        tenant: TenantId::new("acme").unwrap(),
        kind: EventType::new("OrderPlaced").unwrap(),
        source: "urn:shop".to_owned(),
        subject: Some("o-1".to_owned()),
        time: Timestamp::parse("2026-11-21T08:30:00.250Z").unwrap(),
        correlation: Some(CorrelationId::new("c-1").unwrap()),
        causation: Some("cmd-7".to_owned()),
        trace: TraceParent::new(TRACE),
        schema_version: 3,
        data: json!({"total": 12.5, "lines": [1, 2]}),
        user: Some("ada ä".to_owned()),
        attributes: None,
    }
}

#[test]
fn text_that_is_not_unicode_is_replaced_in_the_data_only() {
    let read = |content_type: &str, body: &str| {
        let headers = [("content-type", content_type)];
        decode(&message("workflow_event.order.o-1", &headers, body), NOW)
    };
    let structured = "application/cloudevents+json";

    let data = r#"{"specversion":"1.0","id":"e-1","type":"OrderPlaced","source":"urn:shop",
        "data":{"text":"a\ud800"}}"#;
    let event = read(structured, data).unwrap();
    assert_eq!(event.data, json!({"text": "a\u{fffd}"}));

    let source = r#"{"specversion":"1.0","id":"e-1","type":"OrderPlaced","source":"\ud800"}"#;
    let error = read(structured, source).unwrap_err().to_string();
    assert!(error.contains("attribute source is not"), "{error}");

    let metadata = r#"{"event_id":"e-1","metadata":{"correlation_id":"\udc00"}}"#;
    let error = read("application/json", metadata).unwrap_err().to_string();
    assert!(error.contains("attribute metadata is not"), "{error}");
}

#[test]
fn reads_binary_cloud_events() {
    let headers = [
        ("CE-SpecVersion", "1.0"),
        ("ce-id", "e-1"),
        ("ce-type", "OrderPlaced"),
        ("ce-source", "urn:shop"),
        ("ce-time", "2026-11-21T08:30:00.250Z"),
        ("ce-subject", "\"o-1\""),
        ("ce-correlationid", "c%2D1"),
        ("ce-causationid", "cmd-7"),
        ("ce-orloguser", "ada%20%C3%A4"),
        ("ce-dataversion", "3"),
        ("traceparent", TRACE),
        ("Content-Type", "application/json; charset=utf-8"),
    ];
    let read = decode(
        &message("tenant.acme.x", &headers, r#"{"total":12.5,"lines":[1,2]}"#),
        NOW,
    )
    .unwrap();
    assert_eq!(read, event());
}

#[test]
fn reads_structured_cloud_events_with_or_without_their_content_type() {
    let body = json!({
        "specversion": "1.0", "id": "e-1", "type": "OrderPlaced", "source": "urn:shop", "subject": "o-1",
        "time": "2026-11-21T09:30:00.250+01:00", "tenantid": "acme", "correlationid": "c-1", "causationid": "cmd-7",
        "orloguser": "ada ä", "traceparent": TRACE, "dataversion": 3, "data": {"total": 12.5, "lines": [1, 2]}, "other": null,
    });
    assert_eq!(from_structured(&body, &defaults(None)).unwrap(), event());
    let text = body.to_string();
    let typed = [("content-type", "application/cloudevents+json")];
    assert_eq!(
        decode(&message("tenant.acme.x", &typed, &text), NOW).unwrap(),
        event()
    );
    assert_eq!(
        decode(&message("tenant.acme.x", &[], &text), NOW).unwrap(),
        event()
    );
}

#[test]
fn reads_the_aggregate_envelope() {
    let body = json!({
        "tenant_id": "acme", "event_id": "e-1", "aggregate_id": "o-1", "aggregate_type": "order",
        "event_type": "OrderPlaced", "payload_json": "{\"total\":12.5,\"lines\":[1,2]}", "version": 3,
        "timestamp": "2026-11-21T08:30:00.250Z",
        "metadata": {"correlation_id": "c-1", "causation_id": "cmd-7", "trace_id": TRACE},
    });
    let expected = Event {
        source: "urn:aggregate:order".to_owned(),
        user: None,
        ..event()
    };
    assert_eq!(
        from_envelope(&body, &defaults(Some("acme"))).unwrap(),
        expected
    );
    assert_eq!(
        decode(&message("tenant.acme.x", &[], &body.to_string()), NOW).unwrap(),
        expected
    );
    assert_eq!(
        aggregate_subject(&expected),
        "tenant.acme.aggregate.order.o-1"
    );
}

#[test]
fn envelope_accepts_objects_milliseconds_and_bare_trace_ids() {
    let body = json!({
        "event_id": "e", "aggregate_id": "a", "aggregate_type": "t", "event_type": "E", "payload": {"x": 1},
        "timestamp": 5, "metadata": {"trace_id": "4bf92f3577b34da6a3ce929d0e0e4736"},
    });
    let read = from_envelope(&body, &defaults(None)).unwrap();
    assert_eq!(
        (read.time.as_millis(), &read.data, read.schema_version),
        (5, &json!({"x": 1}), 1)
    );
    assert_eq!(
        read.trace.unwrap().trace_id(),
        "4bf92f3577b34da6a3ce929d0e0e4736"
    );
}

#[test]
fn defaults_apply_to_missing_attributes() {
    let body = json!({"specversion": "1.0", "id": "e", "type": "T", "source": "s", "time": null});
    let read = from_structured(&body, &defaults(Some("acme"))).unwrap();
    assert_eq!(
        (read.time, read.schema_version, &read.data),
        (NOW, 1, &Value::Null)
    );
    assert_eq!(read.tenant.as_str(), "acme");
    assert_eq!(aggregate_subject(&read), "tenant.acme.aggregate.event.e");
}

#[test]
fn base64_data_is_decoded_by_content_type() {
    let mut body = json!({"specversion": "1.0", "id": "e", "type": "T", "source": "s", "data_base64": "eyJhIjoxfQ=="});
    assert_eq!(
        from_structured(&body, &defaults(None)).unwrap().data,
        json!({"a": 1})
    );
    body["datacontenttype"] = json!("text/plain");
    assert_eq!(
        from_structured(&body, &defaults(None)).unwrap().data,
        json!("{\"a\":1}")
    );
    body["datacontenttype"] = json!("application/octet-stream");
    assert_eq!(
        from_structured(&body, &defaults(None)).unwrap().data,
        json!("eyJhIjoxfQ==")
    );
}

#[track_caller]
fn check_rejection(patch: &serde_json::Value, expected: &str) {
    let mut body = json!({"specversion": "1.0", "id": "e", "type": "T", "source": "s"});
    for (name, value) in patch.as_object().unwrap() {
        body[name] = value.clone();
    }
    let error = from_structured(&body, &defaults(Some("acme")))
        .unwrap_err()
        .to_string();
    assert_eq!(error, expected);
}

#[test]
fn decode_error_names_attribute_rule_and_value() {
    check_rejection(
        &json!({"specversion": "0.3"}),
        "attribute specversion is invalid: it must be \"1.0\", got \"0.3\"",
    );
    check_rejection(
        &json!({"specversion": null}),
        "attribute specversion is missing: it must be \"1.0\"",
    );
    check_rejection(
        &json!({"id": 5}),
        "attribute id is invalid: it must be a string, got 5",
    );
    check_rejection(
        &json!({"id": null}),
        "attribute id is missing: it identifies the event and makes repeated publishes idempotent",
    );
    check_rejection(
        &json!({"correlationid": "a\u{0}b"}),
        "attribute correlationid is invalid: correlation id contains control character '\\0' at byte 1; remove it, \
         got \"a\\0b\"",
    );
    check_rejection(
        &json!({"time": "yesterday"}),
        "attribute time is invalid: it must be an RFC 3339 time such as 2026-11-21T08:30:00Z, got \"yesterday\"",
    );
    check_rejection(
        &json!({"dataversion": -1}),
        "attribute dataversion is invalid: it must be a whole number from 1 to 4294967295, got \"-1\"",
    );
    check_rejection(
        &json!({"tenantid": "globex"}),
        "event has tenant \"globex\", but the subject has tenant \"acme\"",
    );
    check_rejection(
        &json!({"data_base64": "?"}),
        "attribute data_base64 is invalid: it must be a base64 string, got \"?\"",
    );
    check_rejection(
        &json!({"data": 1, "data_base64": "AA=="}),
        "attribute data_base64 is invalid: data and data_base64 are mutually exclusive, got \"AA==\"",
    );
}

#[test]
fn non_event_messages_are_rejected() {
    let deep = format!("{}{}", "[".repeat(200), "]".repeat(200));
    let batch = [("content-type", "application/cloudevents-batch+json")];
    for (message, expected) in [
        (message("a", &[], "{"), "the body is not valid JSON: EOF"),
        (message("a", &[], &deep), "recursion limit"),
        (message("a", &[], "{}"), "neither a specversion"),
        (message("a", &[], "\u{0}"), "not valid JSON"),
        (message("a", &batch, "[]"), "a message contains one event"),
        (
            message("a", &[("ce-id", "1")], ""),
            "ce-specversion is missing",
        ),
        (
            message("a", &[("ce-id", "1"), ("ce-id", "2")], ""),
            "duplicate attribute",
        ),
        (message("tenant.%00.a", &[], "{}"), "control character"),
        (
            message("a", &[], &"x".repeat(MAX_MESSAGE_BYTES)),
            "the limit is 1048576",
        ),
    ] {
        let error = decode(&message, NOW).unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
    }
}

#[test]
fn an_unprefixed_subject_belongs_to_the_default_tenant_only() {
    let body =
        json!({"specversion": "1.0", "id": "e", "type": "T", "source": "s", "tenantid": "acme"});
    let error = decode(&message("aggregate.order.1", &[], &body.to_string()), NOW).unwrap_err();
    assert_eq!(
        error,
        DecodeError::Tenant {
            claimed: "acme".to_owned(),
            expected: String::new()
        }
    );
}

#[test]
fn type_is_read_without_decoding_if_the_required_attributes_are_valid() {
    let valid = encode(&event(), "tenant.acme.x");
    let kind = |change: &dyn Fn(&mut Message)| {
        let mut message = valid.clone();
        change(&mut message);
        event_type(&message).map(|kind| kind.to_string())
    };
    let set = |name: &'static str, value: &'static str| {
        move |message: &mut Message| {
            message.headers.retain(|(other, _)| other != name);
            message.headers.push((name.into(), value.into()));
        }
    };
    let placed = Some("OrderPlaced".to_owned());
    assert_eq!(kind(&|_| ()), placed);
    assert_eq!(
        kind(&|message| message.payload = "{".into()),
        placed,
        "the body is not read"
    );
    assert_eq!(kind(&|message| message.headers.reverse()), placed);
    assert_eq!(
        kind(&set("ce-type", "Order%20Placed")).as_deref(),
        Some("Order Placed")
    );
    for attribute in ["ce-specversion", "ce-id", "ce-source", "ce-type"] {
        assert_eq!(
            kind(&|message| message.headers.retain(|(name, _)| name != attribute)),
            None,
            "{attribute}"
        );
    }
    for change in [
        &set("ce-type", "") as &dyn Fn(&mut Message),
        &set("ce-type", "%FF"),
        &set("ce-specversion", "0.3"),
        &set("ce-tenantid", "other"),
        &set(
            "content-type",
            "application/cloudevents+json; charset=utf-8",
        ),
        &set("content-type", "application/cloudevents-batch+json"),
        &|message: &mut Message| message.headers.push(("CE-Type".into(), "Other".into())),
        &|message: &mut Message| "tenant.%00.x".clone_into(&mut message.subject),
        &|message: &mut Message| message.payload = vec![b' '; MAX_MESSAGE_BYTES].into(),
    ] {
        assert_eq!(kind(change), None);
    }
}

#[test]
fn the_same_event_id_of_two_tenants_or_sources_makes_two_message_ids() {
    let ids = [
        event(),
        Event {
            tenant: TenantId::default(),
            ..event()
        },
        Event {
            source: "b:c".to_owned(),
            ..event()
        },
    ]
    .map(|event| encode(&event, "x").id.unwrap());
    assert_eq!(
        ids,
        ["acme:urn%3Ashop:e-1", "%:urn%3Ashop:e-1", "acme:b%3Ac:e-1"]
    );
}

fn text(max: usize) -> impl Strategy<Value = String> {
    proptest::collection::vec(
        any::<char>().prop_filter("control", |c| !c.is_control() && !is_direction_control(*c)),
        1..max / 4,
    )
    .prop_map(String::from_iter)
    // No URL can contain such an id.
    .prop_filter("dots", |text| text != "." && text != "..")
}

fn value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<String>().prop_map(Value::from),
    ];
    leaf.prop_recursive(4, 32, 4, |inner| {
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            proptest::collection::hash_map(any::<String>(), inner, 0..4)
                .prop_map(|map| Value::from_iter(map.into_iter().collect::<Vec<_>>())),
        ]
    })
}

prop_compose! {
    fn any_event()(
        id in text(128), tenant in prop_oneof![Just(String::new()), text(64)], kind in text(128), source in text(512),
        subject in proptest::option::of(text(512)), millis in -60_000_000_000_000i64..250_000_000_000_000,
        correlation in proptest::option::of(text(256)), causation in proptest::option::of(text(512)),
        trace in any::<bool>(), schema_version in 1u32.., data in value(), user in proptest::option::of(text(512)),
    ) -> Event {
        Event {
            id: EventId::new(id).unwrap(),
            tenant: TenantId::new(tenant).unwrap(),
            kind: EventType::new(kind).unwrap(),
            source,
            subject,
            time: Timestamp::from_millis(millis),
            correlation: correlation.map(|c| CorrelationId::new(c).unwrap()),
            causation,
            trace: if trace { TraceParent::new(TRACE) } else { None },
            schema_version,
            data,
            user,
            attributes: None,
        }
    }
}

proptest! {
    #[test]
    fn event_encoding_round_trips(event in any_event()) {
        // Header values never lose surrounding white space: it is escaped.
        let message = encode(&event, aggregate_subject(&event));
        crate::subject::check_subject(&message.subject).unwrap();
        prop_assert!(message.headers.iter().all(|(_, v)| v.bytes().all(|b| b.is_ascii_graphic())));
        prop_assert_eq!(event_type(&message), Some(event.kind.clone()));
        prop_assert_eq!(decode(&message, NOW).unwrap(), event);
    }

    #[test]
    fn arbitrary_messages_never_panic(
        subject in any::<String>(),
        headers in proptest::collection::vec(("(ce-(specversion|id|type|time|data)|content-type|.{0,8})", any::<String>()), 0..8),
        payload in any::<Vec<u8>>(),
    ) {
        let headers = headers.into_iter().map(|(name, value)| (name.into(), value.into())).collect();
        let message = Message { subject, id: None, headers, payload: Bytes::from(payload) };
        let kind = event_type(&message);
        if let Ok(event) = decode(&message, NOW) {
            prop_assert!(kind.is_none_or(|kind| kind == event.kind));
            prop_assert_eq!(decode(&message, NOW).unwrap(), event);
        }
    }

    #[test]
    fn arbitrary_members_never_panic(
        members in proptest::collection::vec(
            ("(specversion|id|type|source|time|tenantid|data|data_base64|event_id|aggregate_id|aggregate_type|event_type|payload|payload_json|metadata|timestamp|version)", value()),
            0..12,
        ),
    ) {
        let body = Value::from_iter(members);
        for result in [from_structured(&body, &defaults(None)), from_envelope(&body, &defaults(None))] {
            let Ok(event) = result else { continue };
            let message = encode(&event, aggregate_subject(&event));
            prop_assert_eq!(decode(&message, NOW).unwrap(), event);
        }
    }
}
