//! Fixture of a bus under test, and helpers of the suite. Everything awaited has a deadline.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use orlog_bus::{Bus, Consumer, Delivery, MaxInFlight, Message, PublishAck, Subscription};

/// Deadline of an expected event.
const DEADLINE: Duration = Duration::from_mins(1);

/// Fixture of a bus under test.
pub trait BusFixture: Send + Sync {
    /// Opens the bus with the data that an earlier bus stored. The earlier bus was dropped.
    fn open(&self) -> impl Future<Output = Arc<dyn Bus>> + Send;
}

pub(super) fn message(subject: &str, body: u64) -> Message {
    let headers = vec![("x-number".into(), body.to_string().into())];
    Message {
        subject: subject.to_owned(),
        id: None,
        headers,
        payload: Bytes::from(body.to_string()),
    }
}

pub(super) fn with_id(subject: &str, id: &str) -> Message {
    Message {
        id: Some(id.to_owned()),
        ..message(subject, 0)
    }
}

pub(super) fn subscription(name: &str, filters: &[&str]) -> Subscription {
    let filters = filters.iter().map(|filter| (*filter).to_owned()).collect();
    Subscription {
        name: name.to_owned(),
        filters,
        partition: None,
        start_after: None,
        max_in_flight: MaxInFlight::total(1000),
    }
}

pub(super) async fn publish(
    bus: &dyn Bus,
    subject: &str,
    bodies: std::ops::Range<u64>,
) -> Vec<PublishAck> {
    let messages = bodies
        .map(|body| Arc::new(message(subject, body)))
        .collect();
    within("publish", bus.publish(messages))
        .await
        .expect("the bus accepts the messages")
}

pub(super) async fn subscribe(bus: &dyn Bus, subscription: Subscription) -> Box<dyn Consumer> {
    within("subscribe", bus.subscribe(subscription))
        .await
        .expect("the bus subscribes")
}

pub(super) async fn take(consumer: &mut dyn Consumer, count: usize) -> Vec<Delivery> {
    let mut all = Vec::new();
    while all.len() < count {
        let next = within("next", consumer.next(count - all.len()))
            .await
            .expect("the bus delivers");
        assert!(
            !next.is_empty() && next.len() <= count - all.len(),
            "next returns 1 to max messages"
        );
        all.extend(next);
    }
    all
}

pub(super) async fn within<T>(label: &str, future: impl Future<Output = T>) -> T {
    tokio::time::timeout(DEADLINE, future)
        .await
        .unwrap_or_else(|_| panic!("{label}: not within {DEADLINE:?}"))
}

pub(super) fn sequences(deliveries: &[Delivery]) -> Vec<u64> {
    deliveries
        .iter()
        .map(|delivery| delivery.sequence)
        .collect()
}

pub(super) fn bodies(deliveries: &[Delivery]) -> Vec<u64> {
    let body = |delivery: &Delivery| String::from_utf8_lossy(&delivery.message.payload).parse();
    deliveries
        .iter()
        .map(|delivery| body(delivery).expect("a number"))
        .collect()
}
