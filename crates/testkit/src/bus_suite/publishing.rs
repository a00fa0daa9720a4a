//! Guarantees of publishing: durable, ordered, deduplicated, with valid subjects only.

use std::sync::Arc;

use bytes::Bytes;
use orlog_bus::{Error, MaxInFlight, Message, PublishAck, Subscription};

use super::fixture::{
    BusFixture, bodies, message, publish, sequences, subscribe, subscription, take, with_id,
};

/// A publish that returned is durable.
pub async fn publish_is_durable(fixture: &impl BusFixture) {
    let bus = fixture.open().await;
    let receipts = publish(&*bus, "a.b", 0..50).await;
    let last = bus.last_sequence().await.expect("the bus responds");
    assert_eq!(receipts.last().map(|receipt| receipt.sequence), Some(last));
    drop(bus);
    let bus = fixture.open().await;
    assert_eq!(bus.last_sequence().await.expect("the bus responds"), last);
    let mut consumer = subscribe(&*bus, subscription("c", &["a.b"])).await;
    assert!(
        bodies(&take(&mut *consumer, 50).await)
            .into_iter()
            .eq(0..50)
    );
    let more = publish(&*bus, "a.b", 50..51).await;
    assert!(more[0].sequence > last, "sequences continue");
}

/// Messages are delivered to every matching subscription, in sequence order and with complete content.
pub async fn messages_arrive_intact_and_in_order(fixture: &impl BusFixture) {
    let bus = fixture.open().await;
    let receipts = publish(&*bus, "a.b", 0..2000).await;
    assert!(receipts.is_sorted_by(|a, b| a.sequence < b.sequence));
    assert!(receipts.iter().all(|receipt| !receipt.duplicate));
    let mut consumer = subscribe(
        &*bus,
        Subscription {
            max_in_flight: MaxInFlight::total(5000),
            ..subscription("c", &[">"])
        },
    )
    .await;
    let deliveries = take(&mut *consumer, 2000).await;
    for ((receipt, delivery), body) in receipts.iter().zip(&deliveries).zip(0..) {
        assert_eq!((receipt.sequence, 1), (delivery.sequence, delivery.attempt));
        assert_eq!(*delivery.message, message("a.b", body));
    }
}

/// Each message has its own sequence number under concurrent publishers; each publish stays in order.
pub async fn concurrent_publishers_get_unique_sequences(fixture: &impl BusFixture) {
    let bus = fixture.open().await;
    let mut publishers = tokio::task::JoinSet::new();
    for publisher in 0..50 {
        let bus = Arc::clone(&bus);
        publishers
            .spawn(async move { publish(&*bus, "a.b", publisher * 10..publisher * 10 + 10).await });
    }
    let mut all = Vec::new();
    for receipts in publishers.join_all().await {
        assert!(receipts.is_sorted_by(|a, b| a.sequence < b.sequence));
        all.extend(receipts.iter().map(|receipt| receipt.sequence));
    }
    all.sort_unstable();
    let mut consumer = subscribe(&*bus, subscription("c", &["a.b"])).await;
    assert_eq!(sequences(&take(&mut *consumer, 500).await), all);
}

/// Within the dedupe window a message id is stored once; publishing it again returns the first
/// sequence.
pub async fn duplicate_message_id_is_stored_once(fixture: &impl BusFixture) {
    let bus = fixture.open().await;
    let first = bus
        .publish(vec![with_id("a", "1").into(), with_id("a", "2").into()])
        .await
        .expect("accepted");
    let repeated = bus
        .publish(vec![with_id("a", "2").into(), with_id("a", "3").into()])
        .await
        .expect("accepted");
    assert_eq!(
        repeated[0],
        PublishAck {
            sequence: first[1].sequence,
            duplicate: true
        }
    );
    assert!(!repeated[1].duplicate);
    drop(bus);
    let bus = fixture.open().await;
    let later = bus
        .publish(vec![with_id("a", "1").into()])
        .await
        .expect("accepted");
    assert_eq!(
        later,
        [PublishAck {
            sequence: first[0].sequence,
            duplicate: true
        }]
    );
    publish(&*bus, "a", 7..8).await;
    publish(&*bus, "a", 7..8).await;
    let mut consumer = subscribe(&*bus, subscription("c", &["a"])).await;
    let deliveries = take(&mut *consumer, 5).await;
    let ids: Vec<_> = deliveries
        .iter()
        .map(|delivery| delivery.message.id.as_deref())
        .collect();
    assert_eq!(
        ids,
        [Some("1"), Some("2"), Some("3"), None, None],
        "messages without an id are never duplicates"
    );
}

/// `*` and `>` follow the rules of NATS.
pub async fn filters_follow_nats_rules(fixture: &impl BusFixture) {
    let bus = fixture.open().await;
    let subjects = ["a", "a.b", "a.c", "a.b.c", "b.b", "tenant.t%2E1.a.b"];
    for (body, subject) in (0..).zip(subjects) {
        publish(&*bus, subject, body..body + 1).await;
    }
    for (name, filters, expected) in [
        ("exact", &["a.b"][..], &[1][..]),
        ("star", &["a.*"], &[1, 2]),
        ("first", &["*.b"], &[1, 4]),
        ("rest", &["a.>"], &[1, 2, 3]),
        ("all", &[">"], &[0, 1, 2, 3, 4, 5]),
        ("two", &["b.b", "tenant.*.a.>"], &[4, 5]),
        ("encoded", &["tenant.t%2E1.>"], &[5]),
    ] {
        // The last message matches every filter list: an earlier unexpected message is an error.
        let mut filters = filters.to_vec();
        filters.push("end");
        let mut consumer = subscribe(&*bus, subscription(name, &filters)).await;
        let end = publish(&*bus, "end", 99..100).await[0].sequence;
        let mut found = Vec::new();
        loop {
            let delivery = take(&mut *consumer, 1).await.remove(0);
            if delivery.sequence == end {
                break;
            }
            found.extend(bodies(&[delivery]).into_iter().filter(|body| *body != 99));
        }
        assert_eq!(found, expected, "{name}");
    }
}

/// A message that matches several filters is delivered once.
pub async fn overlapping_filters_deliver_once(fixture: &impl BusFixture) {
    let bus = fixture.open().await;
    let mut consumer = subscribe(&*bus, subscription("c", &["a.*", "a.b"])).await;
    publish(&*bus, "a.b", 0..1).await;
    publish(&*bus, "a.c", 1..2).await;
    assert_eq!(bodies(&take(&mut *consumer, 2).await), [0, 1]);
}

/// Invalid subjects and filters are rejected, and such a publish stores nothing.
pub async fn invalid_subjects_are_rejected(fixture: &impl BusFixture) {
    let bus = fixture.open().await;
    let long = "x".repeat(5000);
    for subject in [
        "",
        ".",
        "a.",
        ".a",
        "a..b",
        "a b",
        "a.*",
        "a.>",
        "a\r\nb",
        "a\0",
        "$JS.API.INFO",
        &long,
    ] {
        let rejected = bus
            .publish(vec![message("a.b", 0).into(), message(subject, 1).into()])
            .await;
        assert!(
            matches!(rejected, Err(Error::InvalidSubject { .. })),
            "{subject:?}"
        );
    }
    for filter in ["", "a..b", "a.b*", ">.a", "a b", "$JS.>"] {
        let rejected = bus
            .subscribe(subscription("c", &[filter]))
            .await
            .map(|_| ());
        assert!(
            matches!(rejected, Err(Error::InvalidSubject { .. })),
            "{filter:?}"
        );
    }
    let mut consumer = subscribe(&*bus, subscription("c", &[">"])).await;
    publish(&*bus, "end", 9..10).await;
    assert_eq!(
        bodies(&take(&mut *consumer, 1).await),
        [9],
        "nothing was stored, and the name is unused"
    );
}

/// Bodies with arbitrary bytes, empty bodies, no headers and several headers are preserved.
pub async fn arbitrary_payloads_round_trip(fixture: &impl BusFixture) {
    let bus = fixture.open().await;
    let header = |name: &str, value: &str| (name.into(), value.into());
    let base = Message {
        subject: "a".to_owned(),
        id: None,
        headers: Vec::new(),
        payload: Bytes::new(),
    };
    let all = [
        base.clone(),
        Message {
            payload: Bytes::from((0..=255).collect::<Vec<u8>>()),
            ..base.clone()
        },
        Message {
            headers: vec![header("A-B", "c%20d"), header("e", "f:g")],
            ..base.clone()
        },
        Message {
            id: Some("%C3%A9:1".to_owned()),
            payload: Bytes::from(vec![7; 300_000]),
            ..base
        },
    ];
    bus.publish(all.iter().cloned().map(Arc::new).collect())
        .await
        .expect("accepted");
    drop(bus);
    let bus = fixture.open().await;
    let mut consumer = subscribe(&*bus, subscription("c", &["a"])).await;
    for (expected, delivery) in all.iter().zip(take(&mut *consumer, all.len()).await) {
        assert_eq!(*expected, *delivery.message);
    }
}

/// The stream identity is created with the stream and stays the same.
pub async fn stream_id_is_stable(fixture: &impl BusFixture) {
    let bus = fixture.open().await;
    let id = bus.stream_id();
    assert!(!id.is_nil());
    assert_eq!(bus.last_sequence().await.expect("the bus responds"), 0);
    publish(&*bus, "a", 0..1).await;
    drop(bus);
    assert_eq!(fixture.open().await.stream_id(), id);
}
