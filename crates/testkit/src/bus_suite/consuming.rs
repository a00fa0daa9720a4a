//! The promises about what comes out: cursors, redelivery, bounds, waiting, names.

use std::sync::Arc;

use orlog_bus::{Error, Part, Subscription};
use orlog_model::{SLOTS, Slots, StreamPosition, TenantId};

use super::fixture::{Ground, bodies, message, publish, sequences, subscribe, subscription, take, within};

/// "A consumer that comes back under the same name is given everything after the cursor again, in order."
pub async fn what_was_not_acknowledged_is_delivered_again_after_reopening(ground: &impl Ground) {
    let bus = ground.open().await;
    publish(&*bus, "a.b", 0..10).await;
    let mut consumer = subscribe(&*bus, subscription("c", &["a.b"])).await;
    let deliveries = take(&mut *consumer, 10).await;
    for delivery in &deliveries[..4] {
        consumer.acker().ack(delivery.sequence);
    }
    drop(consumer);
    drop(bus);
    let bus = ground.open().await;
    let mut consumer = subscribe(&*bus, subscription("c", &["a.b"])).await;
    let again = take(&mut *consumer, 6).await;
    assert_eq!(sequences(&again), sequences(&deliveries[4..]));
    let mut other = subscribe(&*bus, subscription("d", &["a.b"])).await;
    assert_eq!(sequences(&take(&mut *other, 10).await), sequences(&deliveries));
}

/// "A subscription's durable cursor is the end of the gapless prefix of what it acknowledged."
pub async fn the_cursor_is_the_end_of_the_gapless_prefix(ground: &impl Ground) {
    let bus = ground.open().await;
    publish(&*bus, "a.b", 0..6).await;
    let mut consumer = subscribe(&*bus, subscription("c", &["a.b"])).await;
    let acker = consumer.acker();
    let delivered = sequences(&take(&mut *consumer, 6).await);
    for place in [1, 2, 4] {
        acker.ack(delivered[place]);
        assert!(acker.floor() < delivered[0]);
    }
    acker.ack(delivered[0]);
    assert!((delivered[2]..delivered[3]).contains(&acker.floor()));
    drop(consumer);
    let mut consumer = subscribe(&*bus, subscription("c", &["a.b"])).await;
    assert_eq!(sequences(&take(&mut *consumer, 3).await), delivered[3..], "the gap and all behind it");
}

/// "What was refused (`nak`) is delivered again."
pub async fn a_refused_message_is_delivered_again(ground: &impl Ground) {
    let bus = ground.open().await;
    publish(&*bus, "a.b", 0..3).await;
    let mut consumer = subscribe(&*bus, subscription("c", &["a.b"])).await;
    let acker = consumer.acker();
    let delivered = sequences(&take(&mut *consumer, 3).await);
    acker.ack(delivered[2]);
    acker.nak(delivered[1]);
    let again = take(&mut *consumer, 1).await;
    assert_eq!((again[0].sequence, again[0].attempt), (delivered[1], 2));
    assert_eq!(*again[0].message, message("a.b", 1));
    acker.nak(delivered[1]);
    acker.nak(delivered[0]);
    let mut again: Vec<_> =
        take(&mut *consumer, 2).await.iter().map(|delivery| (delivery.sequence, delivery.attempt)).collect();
    again.sort_unstable();
    assert_eq!(again, [(delivered[0], 2), (delivered[1], 3)]);
    acker.ack(delivered[0]);
    acker.ack(delivered[1]);
    assert!(acker.floor() >= delivered[2]);
}

/// "Never more than `max_in_flight` messages are unacknowledged."
pub async fn never_more_than_max_in_flight_are_unacknowledged(ground: &impl Ground) {
    let bus = ground.open().await;
    publish(&*bus, "a.b", 0..20).await;
    let mut consumer =
        subscribe(&*bus, Subscription { max_in_flight: 4, ..subscription("c", &["a.b"]) }).await;
    let acker = consumer.acker();
    let mut open = take(&mut *consumer, 4).await;
    let mut seen = 4;
    while seen < 20 {
        let extra = tokio::select! {
            biased;
            extra = consumer.next(10) => Some(extra),
            () = std::future::ready(()) => None,
        };
        assert!(extra.is_none(), "a fifth one is in flight");
        acker.ack(open.remove(seen % open.len()).sequence);
        open.extend(take(&mut *consumer, 1).await);
        seen += 1;
        assert_eq!(open.len(), 4);
    }
    acker.nak(open[2].sequence);
    assert_eq!(take(&mut *consumer, 1).await[0].sequence, open[2].sequence);
}

/// "Begin after this sequence instead of after the cursor."
pub async fn a_consumer_may_begin_where_it_says(ground: &impl Ground) {
    let bus = ground.open().await;
    let published: Vec<_> =
        publish(&*bus, "a.b", 0..6).await.iter().map(|receipt| receipt.sequence).collect();
    let position = |sequence| Some(StreamPosition::behind(bus.stream_id(), sequence));
    let after = |sequence| Subscription { after: position(sequence), ..subscription("c", &["a.b"]) };
    let mut consumer = subscribe(&*bus, after(published[1])).await;
    assert_eq!(sequences(&take(&mut *consumer, 4).await), published[2..]);
    for sequence in &published[2..] {
        consumer.acker().ack(*sequence);
    }
    drop(consumer);
    let mut consumer = subscribe(&*bus, after(published[3])).await;
    assert_eq!(sequences(&take(&mut *consumer, 2).await), published[4..], "behind the cursor");
    assert!((published[3]..published[4]).contains(&consumer.acker().floor()));
    drop(consumer);
    let mut consumer = subscribe(&*bus, after(published[5])).await;
    let next = publish(&*bus, "a.b", 6..7).await;
    assert_eq!(take(&mut *consumer, 1).await[0].sequence, next[0].sequence);
}

/// Each durable name has its own cursor and its own deliveries.
pub async fn subscriptions_do_not_disturb_each_other(ground: &impl Ground) {
    let bus = ground.open().await;
    publish(&*bus, "a.b", 0..5).await;
    let mut first = subscribe(&*bus, subscription("first", &["a.b"])).await;
    let mut second = subscribe(&*bus, subscription("second", &["a.b"])).await;
    for delivery in take(&mut *first, 5).await {
        first.acker().ack(delivery.sequence);
    }
    let deliveries = take(&mut *second, 5).await;
    assert!(deliveries.iter().all(|delivery| delivery.attempt == 1));
    assert!(second.acker().floor() < deliveries[0].sequence);
    drop(second);
    let mut second = subscribe(&*bus, subscription("second", &["a.b"])).await;
    assert_eq!(sequences(&take(&mut *second, 5).await), sequences(&deliveries));
}

/// `next` waits, and returns when something comes.
pub async fn a_waiting_consumer_is_woken(ground: &impl Ground) {
    let bus = ground.open().await;
    let mut consumer = subscribe(&*bus, subscription("c", &["a.b"])).await;
    for round in 0..20 {
        let publisher = async {
            tokio::task::yield_now().await;
            publish(&*bus, "other", 0..1).await;
            publish(&*bus, "a.b", round..round + 1).await
        };
        let (deliveries, receipts) = tokio::join!(take(&mut *consumer, 1), publisher);
        assert_eq!(deliveries[0].sequence, receipts[0].sequence);
    }
}

/// "Dropping the future loses nothing."
pub async fn dropping_next_loses_nothing(ground: &impl Ground) {
    let bus = ground.open().await;
    let mut consumer = subscribe(&*bus, subscription("c", &["a.b"])).await;
    let publisher = {
        let bus = Arc::clone(&bus);
        tokio::spawn(async move {
            for body in 0..30 {
                publish(&*bus, "a.b", body * 3..body * 3 + 3).await;
            }
        })
    };
    let mut found = Vec::new();
    let collect = async {
        while found.len() < 90 {
            tokio::select! {
                biased;
                next = consumer.next(3) => {
                    let next = next.expect("the bus delivers");
                    for delivery in &next {
                        consumer.acker().ack(delivery.sequence);
                    }
                    found.extend(bodies(&next));
                }
                () = tokio::task::yield_now() => {}
            }
        }
    };
    within("all messages", collect).await;
    publisher.await.expect("the publisher ends");
    assert!(found.into_iter().eq(0..90));
}

/// "One consumer a name at a time."
pub async fn a_name_has_one_consumer_at_a_time(ground: &impl Ground) {
    let bus = ground.open().await;
    let consumer = subscribe(&*bus, subscription("c", &["a"])).await;
    let second = bus.subscribe(subscription("c", &["a"])).await.map(|_| ());
    assert!(matches!(&second, Err(Error::InUse(name)) if name == "c"), "{second:?}");
    drop(consumer);
    subscribe(&*bus, subscription("c", &["a"])).await;
}

/// "Calls return at once and are harmless when repeated."
pub async fn acknowledging_is_harmless_when_repeated_or_wrong(ground: &impl Ground) {
    let bus = ground.open().await;
    publish(&*bus, "a.b", 0..3).await;
    let mut consumer = subscribe(&*bus, subscription("c", &["a.b"])).await;
    let acker = consumer.acker();
    let delivered = sequences(&take(&mut *consumer, 2).await);
    for sequence in [0, delivered[1] + 1, u64::MAX] {
        acker.ack(sequence);
        acker.nak(sequence);
    }
    for _ in 0..3 {
        acker.ack(delivered[0]);
        acker.nak(delivered[0]);
    }
    assert!((delivered[0]..delivered[1]).contains(&acker.floor()));
    assert_eq!(bodies(&take(&mut *consumer, 1).await), [2], "neither again nor left out");
    drop(consumer);
    acker.ack(delivered[1]);
    let mut consumer = subscribe(&*bus, subscription("c", &["a.b"])).await;
    let last = take(&mut *consumer, 1).await;
    assert!(last[0].sequence > delivered[0]);
}

/// "Only what lies in these slots", each message in one of the parts, and the floor passes what is not the part's own.
pub async fn a_part_is_given_what_lies_in_its_slots(ground: &impl Ground) {
    let bus = ground.open().await;
    let slots = Slots::spreading([TenantId::new("big").expect("a short word")]);
    let part = |range| Part { slots: slots.clone(), range };
    let parts = [part(0..300), part(300..SLOTS)];
    let names = (0..20).flat_map(|n| [format!("tenant.t{n}.a.b"), format!("tenant.big.workflow.saga.{n}")]);
    let subjects: Vec<String> = names.collect();
    for (subject, body) in subjects.iter().zip(0..) {
        publish(&*bus, subject, body..body + 1).await;
    }
    let last = bus.last_sequence().await.expect("the bus answers");
    for (name, part) in ["low", "high"].into_iter().zip(parts) {
        let takes: Vec<u64> = subjects
            .iter()
            .zip(0..)
            .filter(|(subject, _)| part.takes(subject))
            .map(|(_, body)| body)
            .collect();
        assert!(!takes.is_empty() && takes.len() < subjects.len());
        let own = Subscription { part: Some(part), ..subscription(name, &["tenant.>"]) };
        let mut consumer = subscribe(&*bus, own).await;
        let deliveries = take(&mut *consumer, takes.len()).await;
        assert_eq!(bodies(&deliveries), takes);
        let acker = consumer.acker();
        for delivery in &deliveries {
            acker.ack(delivery.sequence);
        }
        within("the floor", async {
            while acker.floor() < last {
                tokio::select! {
                    biased;
                    more = consumer.next(1) => panic!("{more:?}"),
                    () = tokio::task::yield_now() => {}
                }
            }
        })
        .await;
    }
}
