//! Guarantees of consumption: ack floor, redelivery, limits, waiting, durable names.

use std::sync::Arc;

use orlog_bus::{Error, MaxInFlight, Partition, Subscription};
use orlog_model::{SLOTS, SlotAssigner, StreamPosition, TenantId};

use super::fixture::{
    BusFixture, bodies, message, publish, sequences, subscribe, subscription, take, within,
};

/// A consumer that reopens the same name receives every message after the ack floor again, in order.
pub async fn unacknowledged_messages_are_redelivered_after_reopening(fixture: &impl BusFixture) {
    let bus = fixture.open().await;
    publish(&*bus, "a.b", 0..10).await;
    let mut consumer = subscribe(&*bus, subscription("c", &["a.b"])).await;
    let deliveries = take(&mut *consumer, 10).await;
    for delivery in &deliveries[..4] {
        consumer.acker().ack(delivery.sequence);
    }
    drop(consumer);
    drop(bus);
    let bus = fixture.open().await;
    let mut consumer = subscribe(&*bus, subscription("c", &["a.b"])).await;
    let redelivered = take(&mut *consumer, 6).await;
    assert_eq!(sequences(&redelivered), sequences(&deliveries[4..]));
    let mut other = subscribe(&*bus, subscription("d", &["a.b"])).await;
    assert_eq!(
        sequences(&take(&mut *other, 10).await),
        sequences(&deliveries)
    );
}

/// The durable ack floor of a subscription is the end of the gapless prefix of its acknowledged
/// messages.
pub async fn ack_floor_is_the_end_of_the_gapless_prefix(fixture: &impl BusFixture) {
    let bus = fixture.open().await;
    publish(&*bus, "a.b", 0..6).await;
    let mut consumer = subscribe(&*bus, subscription("c", &["a.b"])).await;
    let acker = consumer.acker();
    let delivered = sequences(&take(&mut *consumer, 6).await);
    for index in [1, 2, 4] {
        acker.ack(delivered[index]);
        assert!(acker.ack_floor() < delivered[0]);
    }
    acker.ack(delivered[0]);
    assert!((delivered[2]..delivered[3]).contains(&acker.ack_floor()));
    drop(consumer);
    let mut consumer = subscribe(&*bus, subscription("c", &["a.b"])).await;
    assert_eq!(
        sequences(&take(&mut *consumer, 3).await),
        delivered[3..],
        "the gap and all later messages"
    );
}

/// A message with a negative acknowledgement (`nak`) is redelivered.
pub async fn nak_redelivers(fixture: &impl BusFixture) {
    let bus = fixture.open().await;
    publish(&*bus, "a.b", 0..3).await;
    let mut consumer = subscribe(&*bus, subscription("c", &["a.b"])).await;
    let acker = consumer.acker();
    let delivered = sequences(&take(&mut *consumer, 3).await);
    acker.ack(delivered[2]);
    acker.nak(delivered[1]);
    let redelivered = take(&mut *consumer, 1).await;
    assert_eq!(
        (redelivered[0].sequence, redelivered[0].attempt),
        (delivered[1], 2)
    );
    assert_eq!(*redelivered[0].message, message("a.b", 1));
    acker.nak(delivered[1]);
    acker.nak(delivered[0]);
    let mut redelivered: Vec<_> = take(&mut *consumer, 2)
        .await
        .iter()
        .map(|delivery| (delivery.sequence, delivery.attempt))
        .collect();
    redelivered.sort_unstable();
    assert_eq!(redelivered, [(delivered[0], 2), (delivered[1], 3)]);
    acker.ack(delivered[0]);
    acker.ack(delivered[1]);
    assert!(acker.ack_floor() >= delivered[2]);
}

/// At most `max_in_flight` messages are unacknowledged.
pub async fn max_in_flight_is_enforced(fixture: &impl BusFixture) {
    let bus = fixture.open().await;
    publish(&*bus, "a.b", 0..20).await;
    let mut consumer = subscribe(
        &*bus,
        Subscription {
            max_in_flight: MaxInFlight::total(4),
            ..subscription("c", &["a.b"])
        },
    )
    .await;
    let acker = consumer.acker();
    let mut open = take(&mut *consumer, 4).await;
    let mut seen = 4;
    while seen < 20 {
        let extra = tokio::select! {
            biased;
            extra = consumer.next(10) => Some(extra),
            () = std::future::ready(()) => None,
        };
        assert!(extra.is_none(), "a fifth message is in flight");
        acker.ack(open.remove(seen % open.len()).sequence);
        open.extend(take(&mut *consumer, 1).await);
        seen += 1;
        assert_eq!(open.len(), 4);
    }
    acker.nak(open[2].sequence);
    assert_eq!(take(&mut *consumer, 1).await[0].sequence, open[2].sequence);
}

/// A tenant at its limit does not delay the messages of another one.
pub async fn tenants_are_served_in_turn(fixture: &impl BusFixture) {
    let bus = fixture.open().await;
    publish(&*bus, "tenant.loud.a.b", 0..10).await;
    let limit = MaxInFlight {
        total: 100,
        per_tenant: Some(2),
    };
    let filters = ["tenant.*.a.b"];
    let mut consumer = subscribe(
        &*bus,
        Subscription {
            max_in_flight: limit,
            ..subscription("c", &filters)
        },
    )
    .await;
    let acker = consumer.acker();
    let first = take(&mut *consumer, 2).await;
    publish(&*bus, "tenant.quiet.a.b", 10..12).await;
    let quiet = take(&mut *consumer, 2).await;
    assert_eq!((bodies(&first), bodies(&quiet)), (vec![0, 1], vec![10, 11]));
    acker.ack_all(&sequences(&quiet));
    assert!(
        acker.ack_floor() < first[0].sequence,
        "messages that wait are below the later ones"
    );
    acker.ack(first[1].sequence);
    assert_eq!(bodies(&take(&mut *consumer, 1).await), [2]);
    acker.nak(first[0].sequence);
    assert_eq!(bodies(&take(&mut *consumer, 1).await), [0]);
    for body in 3..10 {
        acker.ack_all(&sequences(&first));
        let next = take(&mut *consumer, 1).await;
        assert_eq!(bodies(&next), [body]);
        acker.ack_all(&sequences(&next));
    }
}

/// A consumer can start after a given sequence instead of the ack floor.
pub async fn consumer_can_start_after_a_position(fixture: &impl BusFixture) {
    let bus = fixture.open().await;
    let published: Vec<_> = publish(&*bus, "a.b", 0..6)
        .await
        .iter()
        .map(|receipt| receipt.sequence)
        .collect();
    let position = |sequence| Some(StreamPosition::after(bus.stream_id(), sequence));
    let after = |sequence| Subscription {
        start_after: position(sequence),
        ..subscription("c", &["a.b"])
    };
    let mut consumer = subscribe(&*bus, after(published[1])).await;
    assert_eq!(sequences(&take(&mut *consumer, 4).await), published[2..]);
    for sequence in &published[2..] {
        consumer.acker().ack(*sequence);
    }
    drop(consumer);
    let mut consumer = subscribe(&*bus, after(published[3])).await;
    assert_eq!(
        sequences(&take(&mut *consumer, 2).await),
        published[4..],
        "after the position"
    );
    assert!((published[3]..published[4]).contains(&consumer.acker().ack_floor()));
    drop(consumer);
    let mut consumer = subscribe(&*bus, after(published[5])).await;
    let next = publish(&*bus, "a.b", 6..7).await;
    assert_eq!(take(&mut *consumer, 1).await[0].sequence, next[0].sequence);
}

/// Each durable name has its own ack floor and its own deliveries.
pub async fn subscriptions_are_independent(fixture: &impl BusFixture) {
    let bus = fixture.open().await;
    publish(&*bus, "a.b", 0..5).await;
    let mut first = subscribe(&*bus, subscription("first", &["a.b"])).await;
    let mut second = subscribe(&*bus, subscription("second", &["a.b"])).await;
    for delivery in take(&mut *first, 5).await {
        first.acker().ack(delivery.sequence);
    }
    let deliveries = take(&mut *second, 5).await;
    assert!(deliveries.iter().all(|delivery| delivery.attempt == 1));
    assert!(second.acker().ack_floor() < deliveries[0].sequence);
    drop(second);
    let mut second = subscribe(&*bus, subscription("second", &["a.b"])).await;
    assert_eq!(
        sequences(&take(&mut *second, 5).await),
        sequences(&deliveries)
    );
}

/// `next` waits and returns when a message arrives.
pub async fn waiting_consumer_wakes_on_publish(fixture: &impl BusFixture) {
    let bus = fixture.open().await;
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

/// Dropping the future of `next` loses no message.
pub async fn dropping_next_is_cancel_safe(fixture: &impl BusFixture) {
    let bus = fixture.open().await;
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

/// A durable name has one consumer at a time.
pub async fn durable_name_has_one_consumer(fixture: &impl BusFixture) {
    let bus = fixture.open().await;
    let consumer = subscribe(&*bus, subscription("c", &["a"])).await;
    let second = bus.subscribe(subscription("c", &["a"])).await.map(|_| ());
    assert!(
        matches!(&second, Err(Error::InUse(name)) if name == "c"),
        "{second:?}"
    );
    drop(consumer);
    subscribe(&*bus, subscription("c", &["a"])).await;
}

/// Acknowledgement calls return immediately and are idempotent.
pub async fn ack_is_idempotent(fixture: &impl BusFixture) {
    let bus = fixture.open().await;
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
    assert!((delivered[0]..delivered[1]).contains(&acker.ack_floor()));
    assert_eq!(
        bodies(&take(&mut *consumer, 1).await),
        [2],
        "neither repeated nor skipped"
    );
    drop(consumer);
    acker.ack(delivered[1]);
    let mut consumer = subscribe(&*bus, subscription("c", &["a.b"])).await;
    let last = take(&mut *consumer, 1).await;
    assert!(last[0].sequence > delivered[0]);
}

/// A partition receives only the messages of its slots. Each message belongs to one partition, and the
/// ack floor passes messages of other partitions.
pub async fn partition_receives_its_slots_only(fixture: &impl BusFixture) {
    let bus = fixture.open().await;
    let slots = SlotAssigner::with_key_sharded([TenantId::new("big").expect("a valid tenant id")]);
    let partition = |range| Partition {
        slots: slots.clone(),
        range,
    };
    let partitions = [partition(0..300), partition(300..SLOTS)];
    let names = (0..20).flat_map(|n| {
        [
            format!("tenant.t{n}.a.b"),
            format!("tenant.big.workflow.saga.{n}"),
        ]
    });
    let subjects: Vec<String> = names.collect();
    for (subject, body) in subjects.iter().zip(0..) {
        publish(&*bus, subject, body..body + 1).await;
    }
    let last = bus.last_sequence().await.expect("the bus responds");
    for (name, partition) in ["low", "high"].into_iter().zip(partitions) {
        let own_bodies: Vec<u64> = subjects
            .iter()
            .zip(0..)
            .filter(|(subject, _)| partition.contains(subject))
            .map(|(_, body)| body)
            .collect();
        assert!(!own_bodies.is_empty() && own_bodies.len() < subjects.len());
        let own = Subscription {
            partition: Some(partition),
            ..subscription(name, &["tenant.>"])
        };
        let mut consumer = subscribe(&*bus, own).await;
        let deliveries = take(&mut *consumer, own_bodies.len()).await;
        assert_eq!(bodies(&deliveries), own_bodies);
        let acker = consumer.acker();
        for delivery in &deliveries {
            acker.ack(delivery.sequence);
        }
        within("the ack floor", async {
            while acker.ack_floor() < last {
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
