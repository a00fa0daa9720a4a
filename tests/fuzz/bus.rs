//! Messages of the bus: events in all formats, workflow commands, effect commands and results; and their subjects.

use bytes::Bytes;
use orlog_bus::subject::{Filter, Subject, check_subject, decode_token, encode_token, tenant_of};
use orlog_bus::{Message, codec, effect_queue, workflow};
use orlog_model::Timestamp;
use orlog_testkit::fuzz::{Random, mutate};

const SUBJECTS: [&str; 6] = [
    "aggregate.order.o-1",
    "tenant.acme.aggregate.order.o%2E1",
    "workflow.order.o-1",
    "tenant.acme.workflow.order.o-1",
    "tenant.acme.effect.payment%2Echarge.018f4d4e-0000-7000-8000-000000000001",
    "tenant.acme.effect_result.payment%2Echarge.018f4d4e-0000-7000-8000-000000000001",
];

/// Headers of events whose body is the data.
const HEADERS: [(&str, &str); 12] = [
    ("ce-specversion", "1.0"),
    ("ce-id", "e-1"),
    ("ce-type", "OrderPlaced"),
    ("ce-source", "urn:shop"),
    ("ce-time", "2026-01-01T00:00:00.123456789+02:00"),
    (
        "ce-traceparent",
        "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
    ),
    ("content-type", "application/xml"),
    ("ce-dataschema", "urn:order"),
    ("ce-region", "eu%20west"),
    (
        "ce-causationid",
        "outcome:018f4d4e-0000-7000-8000-000000000001",
    ),
    ("ce-orlogeffect", "payment.charge"),
    ("ce-orlogresult", "Succeeded"),
];

/// Subjects and bodies of messages without headers.
const BODIES: [(&str, &str); 5] = [
    (
        "aggregate.order.o-1",
        r#"{"specversion":"1.0","id":"e-1","type":"OrderPlaced","source":"urn:shop","time":"2026-01-01T00:00:00Z","data":{"orderId":"o-1","items":[1,2.5,null]}}"#,
    ),
    (
        "tenant.acme.aggregate.order.o-1",
        r#"{"specversion":"1.0","id":"e-1","type":"OrderPlaced","source":"urn:shop","datacontenttype":"text/plain","data_base64":"aGVsbG8="}"#,
    ),
    (
        "aggregate.order.o-1",
        r#"{"event_id":"e-1","aggregate_type":"order","aggregate_id":"o-1","event_type":"OrderPlaced","payload":{"a":1},"timestamp":"2026-01-01T00:00:00Z"}"#,
    ),
    (
        "tenant.acme.effect.payment%2Echarge.018f4d4e-0000-7000-8000-000000000001",
        r#"{"tenant_id":"acme","command_id":"018f4d4e-0000-7000-8000-000000000001","effect_name":"payment.charge","payload":{},"metadata":{"saga":"order","correlation_id":"o-1","causation_id":"e-1","tag":"charge","idempotency_key":"018f4d4e-0000-7000-8000-000000000001","created_at":"2026-01-01T00:00:00Z"}}"#,
    ),
    (
        "tenant.acme.effect_result.payment%2Echarge.018f4d4e-0000-7000-8000-000000000001",
        r#"{"tenant_id":"acme","command_id":"018f4d4e-0000-7000-8000-000000000001","effect_name":"payment.charge","result_type":"Succeeded","payload":{},"timestamp":"2026-01-01T00:00:00Z"}"#,
    ),
];

pub(super) fn make(random: &mut Random) -> Message {
    let ((subject, body), (other_subject, other)) = (
        BODIES[random.below(BODIES.len())],
        BODIES[random.below(BODIES.len())],
    );
    let valid = Message {
        subject: subject.to_owned(),
        id: None,
        headers: Vec::new(),
        payload: Bytes::from_static(body.as_bytes()),
    };
    let mut message = match random.below(4) {
        // A signal to an instance, and an event whose attributes are headers.
        0 => signal(),
        1 => {
            let headers = HEADERS
                .map(|(name, value)| (name.into(), value.into()))
                .to_vec();
            Message {
                headers,
                payload: Bytes::from_static(b"{\"orderId\":\"o-1\"}"),
                ..valid
            }
        }
        _ => valid,
    };
    if random.once_in(4) {
        message.subject = text(&mutate(
            random,
            message.subject.as_bytes(),
            other_subject.as_bytes(),
        ));
    }
    for (_, value) in &mut message.headers {
        if random.once_in(6) {
            *value = text(&mutate(random, value.as_bytes(), other.as_bytes())).into();
        }
    }
    message.payload = Bytes::from(mutate(random, &message.payload, other.as_bytes()));
    message
}

fn signal() -> Message {
    let defaults = codec::DecodeDefaults {
        tenant: None,
        now: Timestamp::from_millis(1),
    };
    let event = serde_json::from_str(BODIES[0].1).unwrap();
    let event = codec::from_json(&event, &defaults).unwrap();
    workflow::encode_signal(&workflow::instance_of(SUBJECTS[2]).unwrap(), &event)
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Decodes the message as each kind. Returns whether it is one of them.
pub(super) fn run(message: &Message) -> bool {
    let at = Timestamp::from_millis(1);
    let event = codec::decode(message, at);
    if let Ok(event) = &event {
        let encoded = codec::encode(event, message.subject.clone());
        assert_eq!(
            codec::decode(&encoded, at).as_ref(),
            Ok(event),
            "the encoded event differs"
        );
    }
    let errors = [
        event.err(),
        workflow::decode(message, at).err(),
        effect_queue::decode_command(message).err(),
        effect_queue::decode_result(message).err(),
        effect_queue::decode_carried(message).and_then(Result::err),
    ];
    errors
        .iter()
        .flatten()
        .for_each(|error| assert_short(&error.to_string()));
    // Most messages carry no result, which is no error.
    errors[..4].iter().any(Option::is_none)
}

pub(super) fn make_subject(random: &mut Random) -> String {
    let (subject, other) = (random.pick(&SUBJECTS), random.pick(&SUBJECTS));
    text(&mutate(random, subject.as_bytes(), other.as_bytes()))
}

pub(super) fn run_subject(subject: &str) -> bool {
    if let Ok(filter) = Filter::parse(subject) {
        assert_eq!(filter.as_str(), subject);
        assert_eq!(filter.matches(SUBJECTS[0]), filter.matches(SUBJECTS[0]));
    }
    let token = encode_token(subject);
    assert_eq!(decode_token(&token).as_deref(), Ok(subject), "{token}");
    drop((
        check_subject(subject),
        tenant_of(subject),
        workflow::instance_of(subject),
    ));
    match Subject::parse(subject) {
        Ok(parsed) => {
            let text = parsed.to_string();
            let again = Subject::parse(&text).unwrap().to_string();
            assert_eq!(again, text, "of {subject:?}");
            true
        }
        Err(error) => {
            assert_short(&error.to_string());
            false
        }
    }
}

fn assert_short(error: &str) {
    assert!(error.len() < 20_000, "{} bytes of error", error.len());
}
