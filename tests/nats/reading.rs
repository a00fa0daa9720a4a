//! Many subscriptions on one reader: parts, pace, and what operators see.

use std::ops::Range;
use std::sync::Arc;

use orlog_bus::{Bus, Error, Message, Part, Subscription};
use orlog_model::{SLOTS, Slots, TenantId};
use orlog_testkit::nats_server::NatsServer;
use orlog_testkit::raw_nats::Wire;
use serde_json::{Value, json};

use super::fixture::{numbers, open, open_as, publish, subscribe, subscription, take, until};

/// What the servers know of the consumers of the stream, by name.
fn consumers(server: &NatsServer) -> Vec<Value> {
    let list = Wire::connect(server.port).jetstream("CONSUMER.LIST.S", &json!({}));
    list["consumers"].as_array().unwrap().clone()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_consumer_on_the_servers_serves_all_subscriptions_that_keep_up() {
    let Some(server) = NatsServer::start() else { return };
    let bus = open(&[server.url()], 1).await;
    publish(&bus, 0..100).await;
    let mut all = Vec::new();
    for name in ["a", "b", "c", "d"] {
        all.push(subscribe(&bus, subscription(name, None)).await);
    }
    for consumer in &mut all {
        assert_eq!(numbers(&take(&mut **consumer, 100).await), (0..100).collect::<Vec<_>>());
    }
    publish(&bus, 100..200).await;
    for consumer in &mut all {
        assert_eq!(numbers(&take(&mut **consumer, 100).await), (100..200).collect::<Vec<_>>());
    }
    let readers = || consumers(&server).iter().filter(|c| c["config"]["ack_policy"] == "none").count();
    until("one reader", || async { (readers() == 1).then_some(()) }).await;
    drop(all);
    until("no reader", || async { (readers() == 0).then_some(()) }).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_subscription_that_stands_still_holds_up_nobody_and_misses_nothing() {
    let Some(server) = NatsServer::start() else { return };
    let bus = open(&[server.url()], 1).await;
    let mut slow = subscribe(&bus, subscription("slow", None)).await;
    let mut quick = subscribe(&bus, subscription("quick", None)).await;
    // More than the window holds.
    let total = 40_000;
    for begin in (0..total).step_by(4000) {
        publish(&bus, begin..begin + 4000).await;
        assert_eq!(numbers(&take(&mut *quick, 4000).await), (begin..begin + 4000).collect::<Vec<_>>());
    }
    let all = take(&mut *slow, usize::try_from(total).unwrap()).await;
    assert_eq!(numbers(&all), (0..total).collect::<Vec<_>>());
    // Level again, it takes part as before.
    publish(&bus, total..total + 10).await;
    assert_eq!(numbers(&take(&mut *slow, 10).await), (total..total + 10).collect::<Vec<_>>());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_message_comes_to_the_one_part_that_it_is_for() {
    let Some(server) = NatsServer::start() else { return };
    let connection = super::fixture::connect(&[server.url()]).await;
    let plan = orlog_bus::nats::StreamPlan::plain("P", &["tenant.>"], 1, std::time::Duration::from_mins(2));
    orlog_bus::nats::apply(&connection, &plan.into(), orlog_model::Timestamp::default()).await.unwrap();
    let bus = orlog_bus::nats::NatsStream::open(&connection, "P", "pod").await.unwrap();
    let slots = Slots::spreading([TenantId::new("big").unwrap()]);
    let part = |name: &str, range: Range<u16>| Subscription {
        filters: vec!["tenant.>".to_owned()],
        part: Some(Part { slots: slots.clone(), range }),
        ..subscription(name, None)
    };
    let bounds = [0, 200, 700, SLOTS];
    let mut parts = Vec::new();
    for (at, bound) in bounds.windows(2).enumerate() {
        parts.push(subscribe(&bus, part(&at.to_string(), bound[0]..bound[1])).await);
    }
    let mut subjects: Vec<String> = (0..50).map(|n| format!("tenant.t{n}.aggregate.order.{n}")).collect();
    subjects.extend((0..50).map(|n| format!("tenant.big.workflow.order.o-{n}")));
    let messages = subjects.iter().map(|subject| Message {
        subject: subject.clone(),
        id: None,
        headers: Vec::new(),
        payload: Vec::new().into(),
    });
    bus.publish(messages.collect()).await.unwrap();
    let last = bus.last_sequence().await.unwrap();
    let mut found = Vec::new();
    for (at, consumer) in parts.iter_mut().enumerate() {
        let range = bounds[at]..bounds[at + 1];
        let expected =
            subjects.iter().filter(|s| Part { slots: slots.clone(), range: range.clone() }.takes(s)).count();
        let own = take(&mut **consumer, expected).await;
        found.extend(own.iter().map(|delivery| delivery.message.subject.clone()));
        // Its floor passes what is not its own.
        let acker = consumer.acker();
        tokio::select! {
            more = consumer.next(1) => panic!("{more:?}"),
            () = until("the floor", || async { (acker.floor() == last).then_some(()) }) => {}
        }
    }
    found.sort();
    subjects.sort();
    assert_eq!(found, subjects);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn operators_see_in_a_durable_consumer_how_far_a_pod_has_got() {
    let Some(server) = NatsServer::start() else { return };
    let bus = open_as(&[server.url()], 1, "pod.7").await;
    publish(&bus, 0..10).await;
    let mut far = subscribe(&bus, subscription("far", None)).await;
    let mut near = subscribe(&bus, subscription("near", None)).await;
    take(&mut *far, 8).await;
    take(&mut *near, 4).await;
    let seen = || {
        let all = consumers(&server);
        let durable = all.iter().find(|consumer| consumer["name"] == "orlog-pod%2E7")?;
        let number = |value: &Value| value.as_u64().unwrap();
        Some((number(&durable["ack_floor"]["stream_seq"]), number(&durable["num_pending"])))
    };
    bus.save_cursors().await.unwrap();
    assert_eq!(seen(), Some((4, 6)));
    take(&mut *near, 6).await;
    // By itself, every few seconds.
    until("the floor", || async { (seen() == Some((8, 2))).then_some(()) }).await;
    drop((far, near, bus));
    let bus = open_as(&[server.url()], 1, "pod.7").await;
    let mut far = subscribe(&bus, subscription("far", None)).await;
    assert_eq!(numbers(&take(&mut *far, 2).await), [8, 9]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_publish_that_is_refused_says_why() {
    let Some(server) = NatsServer::start() else { return };
    let bus = open(&[server.url()], 1).await;
    let full = json!({ "name": "F", "subjects": ["f"], "max_bytes": 2000, "discard": "new" });
    Wire::connect(server.port).jetstream("STREAM.CREATE.F", &full);
    let to = |subject: &str, bytes: usize| {
        let message = Message {
            subject: subject.to_owned(),
            payload: vec![0; bytes].into(),
            ..super::fixture::message(0)
        };
        vec![Message { id: None, ..message }]
    };
    let publish = |subject, bytes| bus.publish(to(subject, bytes));
    publish("f", 1000).await.unwrap();
    let refused = publish("f", 1500).await;
    assert!(matches!(&refused, Err(Error::Full(why)) if why.contains("raise the limits")), "{refused:?}");
    let refused = publish("s.1", 2 << 20).await;
    assert!(matches!(refused, Err(Error::TooLarge { .. })), "{refused:?}");
    let refused = publish("nobody", 1).await;
    assert!(
        matches!(&refused, Err(Error::Unavailable(why)) if why.contains("no stream takes nobody")),
        "{refused:?}"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_publish_outlasts_a_moment_in_which_nobody_takes_its_subject() {
    let Some(server) = NatsServer::start() else { return };
    let bus = open(&[server.url()], 1).await;
    let subjects = ["late", "s.1"];
    let message =
        |subject: &str| Message { subject: subject.to_owned(), id: None, ..super::fixture::message(0) };
    let publisher = {
        let (bus, messages) = (Arc::clone(&bus), subjects.map(message).to_vec());
        tokio::spawn(async move { bus.publish(messages).await })
    };
    until("its second message", || async { (bus.last_sequence().await.ok()? == 1).then_some(()) }).await;
    Wire::connect(server.port).jetstream("STREAM.CREATE.L", &json!({ "name": "L", "subjects": ["late"] }));
    let receipts = publisher.await.unwrap().expect("it was sent again");
    assert_eq!(receipts.iter().map(|receipt| receipt.sequence).collect::<Vec<_>>(), [1, 1]);
    let again = bus.publish(vec![message("s.1")]).await.unwrap();
    assert_eq!(again[0].sequence, 2, "what had been taken was not sent again");
}
