//! Servers, a stream on them, publishers and consumers.

use std::sync::Arc;
use std::time::Duration;

use orlog_bus::nats::{Connection, NatsStream, Options, StreamSet, StreamSpec, apply};
use orlog_bus::{Bus, Consumer, Delivery, MaxInFlight, Message, PublishAck, Subscription};
use orlog_model::{StreamPosition, Timestamp};
use orlog_testkit::wait::{until, within};

pub(crate) const STREAM: &str = "S";

pub(crate) async fn connect(urls: &[String]) -> Connection {
    let options = Options {
        servers: urls.to_vec(),
        name: "test".to_owned(),
        ..Options::default()
    };
    until("a connection", || async {
        Connection::open(&options).await.ok()
    })
    .await
}

/// Opens the stream; creates it if it is missing.
pub(crate) async fn open(urls: &[String], replicas: usize) -> Arc<NatsStream> {
    open_as(urls, replicas, "pod-1").await
}

pub(crate) async fn open_as(urls: &[String], replicas: usize, pod: &str) -> Arc<NatsStream> {
    open_on(&connect(urls).await, replicas, pod).await
}

/// Opens the stream on a connection.
pub(crate) async fn open_on(
    connection: &Connection,
    replicas: usize,
    pod: &str,
) -> Arc<NatsStream> {
    let plan: StreamSet =
        StreamSpec::new(STREAM, &["s.>"], replicas, Duration::from_mins(2)).into();
    let plan = &plan;
    until("the stream", || async move {
        apply(connection, plan, Timestamp::default()).await.ok()?;
        NatsStream::open(connection, STREAM, pod).await.ok()
    })
    .await
}

pub(crate) fn message(number: u64) -> Message {
    Message {
        subject: format!("s.{}", number % 7),
        id: Some(number.to_string()),
        headers: Vec::new(),
        payload: number.to_string().into(),
    }
}

/// Publishes until the servers accept the messages; message ids make retries no-ops.
pub(crate) async fn publish(bus: &NatsStream, numbers: std::ops::Range<u64>) -> Vec<PublishAck> {
    let numbers = &numbers;
    let messages = || {
        numbers
            .clone()
            .map(|number| Arc::new(message(number)))
            .collect()
    };
    until(
        "a publish",
        || async move { bus.publish(messages()).await.ok() },
    )
    .await
}

pub(crate) fn subscription(name: &str, after: Option<StreamPosition>) -> Subscription {
    Subscription {
        name: name.to_owned(),
        filters: vec!["s.>".to_owned()],
        partition: None,
        start_after: after,
        max_in_flight: MaxInFlight::total(10_000),
    }
}

pub(crate) async fn subscribe(bus: &NatsStream, subscription: Subscription) -> Box<dyn Consumer> {
    within("a subscription", bus.subscribe(subscription))
        .await
        .unwrap()
}

/// Reads and acknowledges the next messages.
pub(crate) async fn take(consumer: &mut dyn Consumer, count: usize) -> Vec<Delivery> {
    let mut all = Vec::new();
    while all.len() < count {
        let more = within("the next messages", consumer.next(count - all.len()))
            .await
            .unwrap();
        for delivery in &more {
            consumer.acker().ack(delivery.sequence);
        }
        all.extend(more);
    }
    all
}

pub(crate) fn numbers(deliveries: &[Delivery]) -> Vec<u64> {
    deliveries
        .iter()
        .map(|delivery| {
            std::str::from_utf8(&delivery.message.payload)
                .unwrap()
                .parse()
                .unwrap()
        })
        .collect()
}

/// Returns the checkpoint of a consumer that has processed all messages so far.
pub(crate) fn checkpoint(consumer: &dyn Consumer) -> StreamPosition {
    let position = consumer.acker().ack_position();
    StreamPosition {
        stream_id: consumer.subscription_start().stream_id,
        sequence: position.sequence,
        at: position.at,
    }
}
