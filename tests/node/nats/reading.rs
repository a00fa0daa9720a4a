//! Many subscriptions on one reader: partitions, rate, and the state that operators see.

use std::ops::Range;
use std::sync::Arc;

use orlog_bus::{Bus, Error, Message, Partition, Subscription};
use orlog_model::{SLOTS, SlotAssigner, TenantId};
use orlog_testkit::nats_server::NatsServer;
use orlog_testkit::raw_nats::RawNatsClient;
use orlog_testkit::wait::until;
use serde_json::{Value, json};

use super::fixture::{numbers, open, open_as, publish, subscribe, subscription, take};

/// Returns the servers' state of the stream's consumers, by name.
fn consumers(server: &NatsServer) -> Vec<Value> {
    let list = RawNatsClient::connect(server.port).jetstream("CONSUMER.LIST.S", &json!({}));
    list["consumers"].as_array().unwrap().clone()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn shared_reader_serves_all_caught_up_subscriptions() {
    let server = NatsServer::start();
    let bus = open(&[server.url()], 1).await;
    publish(&bus, 0..100).await;
    let mut all = Vec::new();
    for name in ["a", "b", "c", "d"] {
        all.push(subscribe(&bus, subscription(name, None)).await);
    }
    for consumer in &mut all {
        assert_eq!(
            numbers(&take(&mut **consumer, 100).await),
            (0..100).collect::<Vec<_>>()
        );
    }
    publish(&bus, 100..200).await;
    for consumer in &mut all {
        assert_eq!(
            numbers(&take(&mut **consumer, 100).await),
            (100..200).collect::<Vec<_>>()
        );
    }
    let readers = || {
        consumers(&server)
            .iter()
            .filter(|c| c["config"]["ack_policy"] == "none")
            .count()
    };
    until("one reader", || async { (readers() == 1).then_some(()) }).await;
    drop(all);
    until("no reader", || async { (readers() == 0).then_some(()) }).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn stalled_subscription_does_not_block_others() {
    let server = NatsServer::start();
    let bus = open(&[server.url()], 1).await;
    let mut slow = subscribe(&bus, subscription("slow", None)).await;
    let mut quick = subscribe(&bus, subscription("quick", None)).await;
    // More than the window size.
    let total = 40_000;
    for begin in (0..total).step_by(4000) {
        publish(&bus, begin..begin + 4000).await;
        assert_eq!(
            numbers(&take(&mut *quick, 4000).await),
            (begin..begin + 4000).collect::<Vec<_>>()
        );
    }
    let all = take(&mut *slow, usize::try_from(total).unwrap()).await;
    assert_eq!(numbers(&all), (0..total).collect::<Vec<_>>());
    // Caught up, it participates as before.
    publish(&bus, total..total + 10).await;
    assert_eq!(
        numbers(&take(&mut *slow, 10).await),
        (total..total + 10).collect::<Vec<_>>()
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn message_reaches_exactly_one_partition() {
    let server = NatsServer::start();
    let connection = super::fixture::connect(&[server.url()]).await;
    let plan =
        orlog_bus::nats::StreamSpec::new("P", &["tenant.>"], 1, std::time::Duration::from_mins(2));
    orlog_bus::nats::apply(&connection, &plan.into(), orlog_model::Timestamp::default())
        .await
        .unwrap();
    let bus = orlog_bus::nats::NatsStream::open(&connection, "P", "pod")
        .await
        .unwrap();
    let slots = SlotAssigner::with_key_sharded([TenantId::new("big").unwrap()]);
    let partition_subscription = |name: &str, range: Range<u16>| Subscription {
        filters: vec!["tenant.>".to_owned()],
        partition: Some(Partition {
            slots: slots.clone(),
            range,
        }),
        ..subscription(name, None)
    };
    let bounds = [0, 200, 700, SLOTS];
    let mut partition_consumers = Vec::new();
    for (at, bound) in bounds.windows(2).enumerate() {
        partition_consumers.push(
            subscribe(
                &bus,
                partition_subscription(&at.to_string(), bound[0]..bound[1]),
            )
            .await,
        );
    }
    let mut subjects: Vec<String> = (0..50)
        .map(|n| format!("tenant.t{n}.aggregate.order.{n}"))
        .collect();
    subjects.extend((0..50).map(|n| format!("tenant.big.workflow.order.o-{n}")));
    let message = |subject: &String| Message {
        subject: subject.clone(),
        id: None,
        headers: Vec::new(),
        payload: Vec::new().into(),
    };
    let messages = subjects.iter().map(|subject| Arc::new(message(subject)));
    bus.publish(messages.collect()).await.unwrap();
    let last = bus.last_sequence().await.unwrap();
    let mut found = Vec::new();
    for (at, consumer) in partition_consumers.iter_mut().enumerate() {
        let range = bounds[at]..bounds[at + 1];
        let expected = subjects
            .iter()
            .filter(|s| {
                Partition {
                    slots: slots.clone(),
                    range: range.clone(),
                }
                .contains(s)
            })
            .count();
        let own = take(&mut **consumer, expected).await;
        found.extend(own.iter().map(|delivery| delivery.message.subject.clone()));
        // Its ack floor passes messages of other partitions.
        let acker = consumer.acker();
        tokio::select! {
            more = consumer.next(1) => panic!("{more:?}"),
            () = until("the floor", || async { (acker.ack_floor() == last).then_some(()) }) => {}
        }
    }
    found.sort();
    subjects.sort();
    assert_eq!(found, subjects);
}

/// Requirements: R7.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn durable_consumer_shows_pod_progress() {
    let server = NatsServer::start();
    let bus = open_as(&[server.url()], 1, "pod.7").await;
    publish(&bus, 0..10).await;
    let mut far = subscribe(&bus, subscription("far", None)).await;
    let mut near = subscribe(&bus, subscription("near", None)).await;
    take(&mut *far, 8).await;
    take(&mut *near, 4).await;
    let seen = || {
        let all = consumers(&server);
        let durable = all
            .iter()
            .find(|consumer| consumer["name"] == "orlog-pod%2E7")?;
        let number = |value: &Value| value.as_u64().unwrap();
        Some((
            number(&durable["ack_floor"]["stream_seq"]),
            number(&durable["num_pending"]),
        ))
    };
    bus.save_cursors().await.unwrap();
    assert_eq!(seen(), Some((4, 6)));
    take(&mut *near, 6).await;
    // Updated automatically every few seconds.
    until("the floor", || async {
        (seen() == Some((8, 2))).then_some(())
    })
    .await;
    drop((far, near, bus));
    let bus = open_as(&[server.url()], 1, "pod.7").await;
    let mut far = subscribe(&bus, subscription("far", None)).await;
    assert_eq!(numbers(&take(&mut *far, 2).await), [8, 9]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rejected_publish_reports_the_reason() {
    let server = NatsServer::start();
    let bus = open(&[server.url()], 1).await;
    let full = json!({ "name": "F", "subjects": ["f"], "max_bytes": 2000, "discard": "new" });
    RawNatsClient::connect(server.port).jetstream("STREAM.CREATE.F", &full);
    let to = |subject: &str, bytes: usize| {
        let message = Message {
            subject: subject.to_owned(),
            payload: vec![0; bytes].into(),
            ..super::fixture::message(0)
        };
        vec![Arc::new(Message {
            id: None,
            ..message
        })]
    };
    let publish = |subject, bytes| bus.publish(to(subject, bytes));
    publish("f", 1000).await.unwrap();
    let result = publish("f", 1500).await;
    assert!(
        matches!(&result, Err(Error::Full(reason)) if reason.contains("raise the limits")),
        "{result:?}"
    );
    let result = publish("s.1", 2 << 20).await;
    assert!(matches!(result, Err(Error::TooLarge { .. })), "{result:?}");
    let result = publish("unbound", 1).await;
    assert!(
        matches!(&result, Err(Error::Unavailable(reason)) if reason.contains("no stream accepts unbound")),
        "{result:?}"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn publish_retries_while_the_leader_is_elected() {
    let server = NatsServer::start();
    let bus = open(&[server.url()], 1).await;
    let subjects = ["late", "s.1"];
    let message = |subject: &str| {
        Arc::new(Message {
            subject: subject.to_owned(),
            id: None,
            ..super::fixture::message(0)
        })
    };
    let publisher = {
        let (bus, messages) = (Arc::clone(&bus), subjects.map(message).to_vec());
        tokio::spawn(async move { bus.publish(messages).await })
    };
    until("its second message", || async {
        (bus.last_sequence().await.ok()? == 1).then_some(())
    })
    .await;
    RawNatsClient::connect(server.port).jetstream(
        "STREAM.CREATE.L",
        &json!({ "name": "L", "subjects": ["late"] }),
    );
    let receipts = publisher.await.unwrap().expect("it was sent again");
    assert_eq!(
        receipts
            .iter()
            .map(|receipt| receipt.sequence)
            .collect::<Vec<_>>(),
        [1, 1]
    );
    let republished = bus.publish(vec![message("s.1")]).await.unwrap();
    assert_eq!(
        republished[0].sequence, 2,
        "what had been taken was not sent again"
    );
}
