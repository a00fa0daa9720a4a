//! The promises about what goes in: durable, in order, once, and under well-formed subjects only.

use std::sync::Arc;

use bytes::Bytes;
use orlog_bus::{Error, Message, Receipt, Subscription};

use super::fixture::{Ground, bodies, message, publish, sequences, subscribe, subscription, take, with_id};

/// "A publish that returned is durable."
pub async fn what_was_published_is_there_after_reopening(ground: &impl Ground) {
    let bus = ground.open().await;
    let receipts = publish(&*bus, "a.b", 0..50).await;
    let last = bus.last_sequence().await.expect("the bus answers");
    assert_eq!(receipts.last().map(|receipt| receipt.sequence), Some(last));
    drop(bus);
    let bus = ground.open().await;
    assert_eq!(bus.last_sequence().await.expect("the bus answers"), last);
    let mut consumer = subscribe(&*bus, subscription("c", &["a.b"])).await;
    assert!(bodies(&take(&mut *consumer, 50).await).into_iter().eq(0..50));
    let more = publish(&*bus, "a.b", 50..51).await;
    assert!(more[0].sequence > last, "numbers go on");
}

/// "… delivered to every matching subscription, in sequence order", with everything that was published.
pub async fn messages_arrive_whole_and_in_order(ground: &impl Ground) {
    let bus = ground.open().await;
    let receipts = publish(&*bus, "a.b", 0..2000).await;
    assert!(receipts.is_sorted_by(|a, b| a.sequence < b.sequence));
    assert!(receipts.iter().all(|receipt| !receipt.duplicate));
    let mut consumer =
        subscribe(&*bus, Subscription { max_in_flight: 5000, ..subscription("c", &[">"]) }).await;
    let deliveries = take(&mut *consumer, 2000).await;
    for ((receipt, delivery), body) in receipts.iter().zip(&deliveries).zip(0..) {
        assert_eq!((receipt.sequence, 1), (delivery.sequence, delivery.attempt));
        assert_eq!(*delivery.message, message("a.b", body));
    }
}

/// A sequence number belongs to one message, whoever publishes at the same time; each publish stays in order.
pub async fn concurrent_publishers_get_numbers_of_their_own(ground: &impl Ground) {
    let bus = ground.open().await;
    let mut publishers = tokio::task::JoinSet::new();
    for publisher in 0..50 {
        let bus = Arc::clone(&bus);
        publishers.spawn(async move { publish(&*bus, "a.b", publisher * 10..publisher * 10 + 10).await });
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

/// "Within the deduplication window a message id is stored once; publishing it again answers with the first sequence."
pub async fn an_id_is_stored_once(ground: &impl Ground) {
    let bus = ground.open().await;
    let first = bus.publish(vec![with_id("a", "1"), with_id("a", "2")]).await.expect("accepted");
    let again = bus.publish(vec![with_id("a", "2"), with_id("a", "3")]).await.expect("accepted");
    assert_eq!(again[0], Receipt { sequence: first[1].sequence, duplicate: true });
    assert!(!again[1].duplicate);
    drop(bus);
    let bus = ground.open().await;
    let later = bus.publish(vec![with_id("a", "1")]).await.expect("accepted");
    assert_eq!(later, [Receipt { sequence: first[0].sequence, duplicate: true }]);
    publish(&*bus, "a", 7..8).await;
    publish(&*bus, "a", 7..8).await;
    let mut consumer = subscribe(&*bus, subscription("c", &["a"])).await;
    let deliveries = take(&mut *consumer, 5).await;
    let ids: Vec<_> = deliveries.iter().map(|delivery| delivery.message.id.as_deref()).collect();
    assert_eq!(ids, [Some("1"), Some("2"), Some("3"), None, None], "without an id nothing is a duplicate");
}

/// "`*` and `>` as in NATS."
pub async fn filters_match_as_in_nats(ground: &impl Ground) {
    let bus = ground.open().await;
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
        // The last one matches every filter list: whatever comes before it and is not expected came wrongly.
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

/// "A message that matches any is delivered once."
pub async fn a_message_that_matches_twice_is_delivered_once(ground: &impl Ground) {
    let bus = ground.open().await;
    let mut consumer = subscribe(&*bus, subscription("c", &["a.*", "a.b"])).await;
    publish(&*bus, "a.b", 0..1).await;
    publish(&*bus, "a.c", 1..2).await;
    assert_eq!(bodies(&take(&mut *consumer, 2).await), [0, 1]);
}

/// Malformed subjects and filters are refused, and nothing of such a publish is stored.
pub async fn hostile_subjects_are_refused(ground: &impl Ground) {
    let bus = ground.open().await;
    let long = "x".repeat(5000);
    for subject in ["", ".", "a.", ".a", "a..b", "a b", "a.*", "a.>", "a\r\nb", "a\0", "$JS.API.INFO", &long]
    {
        let refused = bus.publish(vec![message("a.b", 0), message(subject, 1)]).await;
        assert!(matches!(refused, Err(Error::Subject { .. })), "{subject:?}");
    }
    for filter in ["", "a..b", "a.b*", ">.a", "a b", "$JS.>"] {
        let refused = bus.subscribe(subscription("c", &[filter])).await.map(|_| ());
        assert!(matches!(refused, Err(Error::Subject { .. })), "{filter:?}");
    }
    let mut consumer = subscribe(&*bus, subscription("c", &[">"])).await;
    publish(&*bus, "end", 9..10).await;
    assert_eq!(bodies(&take(&mut *consumer, 1).await), [9], "nothing was stored, and the name is free");
}

/// Bodies of any bytes, also none; no headers, and several of them.
pub async fn strange_contents_survive(ground: &impl Ground) {
    let bus = ground.open().await;
    let header = |name: &str, value: &str| (name.to_owned(), value.to_owned());
    let plain = Message { subject: "a".to_owned(), id: None, headers: Vec::new(), payload: Bytes::new() };
    let all = [
        plain.clone(),
        Message { payload: Bytes::from((0..=255).collect::<Vec<u8>>()), ..plain.clone() },
        Message { headers: vec![header("A-B", "c%20d"), header("e", "f:g")], ..plain.clone() },
        Message { id: Some("%C3%A9:1".to_owned()), payload: Bytes::from(vec![7; 300_000]), ..plain },
    ];
    bus.publish(all.to_vec()).await.expect("accepted");
    drop(bus);
    let bus = ground.open().await;
    let mut consumer = subscribe(&*bus, subscription("c", &["a"])).await;
    for (expected, delivery) in all.iter().zip(take(&mut *consumer, all.len()).await) {
        assert_eq!(*expected, *delivery.message);
    }
}

/// "Identity of the stream, made when the stream was made."
pub async fn the_stream_keeps_its_identity(ground: &impl Ground) {
    let bus = ground.open().await;
    let id = bus.stream_id();
    assert!(!id.is_nil());
    assert_eq!(bus.last_sequence().await.expect("the bus answers"), 0);
    publish(&*bus, "a", 0..1).await;
    drop(bus);
    assert_eq!(ground.open().await.stream_id(), id);
}
