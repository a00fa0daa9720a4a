//! Ingestion of messages: events that no program consumes, and messages that are not events.

use std::sync::Arc;
use std::time::Duration;

use orlog_bus::{Message, codec, workflow};
use orlog_model::{Clock, DeadLetter, DeadLetterOriginal, Event, EventType, Timestamp};
use orlog_testkit::SimClock;
use orlog_testkit::fake_upstreams::FakeUpstreams;
use orlog_testkit::faulty_bus::Faults;
use orlog_testkit::runtime::{TestRuntimeConfig, tenant};
use orlog_testkit::sagas::{order, order_key, order_placed};
use serde_json::json;

const START: Timestamp = Timestamp::from_millis(1_700_000_000_000);

fn subject(dead_letter: &DeadLetter) -> String {
    match &dead_letter.original {
        DeadLetterOriginal::Message { subject, .. } => subject.clone(),
        DeadLetterOriginal::Input(input) => panic!("{input:?}"),
    }
}

/// Requirements: R12.
#[tokio::test]
async fn malformed_messages_become_dead_letters_unless_no_program_consumes_their_type() {
    let home = tempfile::tempdir().expect("a directory can be created");
    let clock: Arc<dyn Clock> = SimClock::new(START);
    let upstreams = FakeUpstreams::new(Arc::clone(&clock), 1);
    let programs = vec![order(Duration::from_hours(1))];
    let mut config = TestRuntimeConfig::new(home.path().to_owned(), programs, clock);
    config.shards = 2;
    let runtime = config.start(&upstreams).await;
    let key = order_key(&tenant(), 0);
    let consumed = order_placed(&key, &json!({}), START);
    let unconsumed = Event {
        kind: EventType::new("Unknown").unwrap(),
        ..consumed.clone()
    };
    let message = |event: &Event, name: &str| Message {
        id: None,
        ..codec::encode(event, format!("tenant.{}.aggregate.x.{name}", tenant()))
    };
    let malformed = |event: &Event, name| Message {
        payload: "{".into(),
        ..message(event, name)
    };
    let without_source = |name| {
        let mut message = message(&unconsumed, name);
        message.headers.retain(|(name, _)| name != "ce-source");
        message
    };
    let messages = [
        message(&unconsumed, "unconsumed"),
        malformed(&unconsumed, "unconsumed-malformed"),
        malformed(&consumed, "consumed-malformed"),
        without_source("no-source"),
        message(&consumed, "consumed"),
    ];
    runtime
        .bus
        .publish(messages.map(Arc::new).to_vec())
        .await
        .unwrap();
    runtime.wait_until_consumed().await;
    let readers = || runtime.runtime.readers();
    let dead_letters =
        readers().flat_map(|reader| reader.dead_letters(&tenant(), None, 9).unwrap());
    let mut subjects: Vec<_> = dead_letters
        .map(|dead_letter| subject(&dead_letter))
        .collect();
    subjects.sort();
    let expected = ["consumed-malformed", "no-source"]
        .map(|name| format!("tenant.{}.aggregate.x.{name}", tenant()));
    assert_eq!(subjects, expected);
    assert!(readers().any(|reader| reader.instance(&key).unwrap().is_some()));
    runtime.stop().await;
}

#[tokio::test]
async fn message_that_the_bus_cannot_read_completely_becomes_one_dead_letter() {
    let home = tempfile::tempdir().expect("a directory can be created");
    let clock: Arc<dyn Clock> = SimClock::new(START);
    let upstreams = FakeUpstreams::new(Arc::clone(&clock), 1);
    let programs = vec![order(Duration::from_hours(1))];
    let mut config = TestRuntimeConfig::new(home.path().to_owned(), programs, clock);
    config.shards = 2;
    let faults = Faults {
        lost_responses: 0,
        lost_acks: 0,
        duplicates: 0,
        delays: 0,
        defects: 100,
        ..Faults::default()
    };
    config.faults = Some((faults, 1));
    let runtime = config.start(&upstreams).await;
    let key = order_key(&tenant(), 0);
    let event = order_placed(&key, &json!({}), START);
    let of_tenant = codec::encode(&event, format!("tenant.{}.aggregate.x.y", tenant()));
    let of_instance = workflow::encode_signal(&key, &event);
    let sent = [of_tenant, of_instance].map(|message| Message {
        id: None,
        ..message
    });
    let mut expected = sent.clone().map(|message| message.subject);
    expected.sort();
    let sent = sent.map(Arc::new).to_vec();
    runtime.bus.publish(sent).await.unwrap();
    runtime.wait_until_consumed().await;

    let readers = || runtime.runtime.readers();
    let dead_letters: Vec<_> = readers()
        .flat_map(|reader| reader.dead_letters(&tenant(), None, 9).unwrap())
        .collect();
    let mut subjects: Vec<_> = dead_letters.iter().map(subject).collect();
    subjects.sort();
    assert_eq!(subjects, expected);
    assert!(
        dead_letters
            .iter()
            .all(|dead_letter| dead_letter.message == "injected defect"),
        "{dead_letters:?}"
    );
    assert!(readers().all(|reader| reader.instance(&key).unwrap().is_none()));
    runtime.stop().await;
}
