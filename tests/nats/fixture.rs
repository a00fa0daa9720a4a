//! Servers, a stream on them, and who publishes and reads.

use std::sync::Arc;
use std::time::Duration;

use orlog_bus::nats::{Connection, NatsStream, Options, Plan, StreamPlan, apply};
use orlog_bus::{Bus, Consumer, Delivery, Message, Receipt, Subscription};
use orlog_model::{StreamPosition, Timestamp};

/// Nothing in these tests takes longer.
pub(crate) const PATIENCE: Duration = Duration::from_mins(1);
pub(crate) const STREAM: &str = "S";
/// Between two looks.
const LOOK: Duration = Duration::from_millis(20);

pub(crate) fn within<T>(what: &str, future: impl Future<Output = T>) -> impl Future<Output = T> {
    let timed = tokio::time::timeout(PATIENCE, Box::pin(future));
    async move { timed.await.unwrap_or_else(|_| panic!("{what}: not within {PATIENCE:?}")) }
}

/// Looks until there is something.
pub(crate) async fn until<T, F: Future<Output = Option<T>>>(what: &str, mut look: impl FnMut() -> F) -> T {
    let looking = Box::pin(async {
        let mut again = tokio::time::interval(LOOK);
        loop {
            again.tick().await;
            if let Some(found) = look().await {
                return found;
            }
        }
    });
    within(what, looking).await
}

pub(crate) async fn connect(urls: &[String]) -> Connection {
    let options = Options { servers: urls.to_vec(), name: "test".to_owned(), ..Options::default() };
    until("a connection", || async { Connection::open(&options).await.ok() }).await
}

/// The stream, made where it is missing.
pub(crate) async fn open(urls: &[String], replicas: usize) -> Arc<NatsStream> {
    open_as(urls, replicas, "pod-1").await
}

pub(crate) async fn open_as(urls: &[String], replicas: usize, pod: &str) -> Arc<NatsStream> {
    let connection = connect(urls).await;
    let plan: Plan = StreamPlan::plain(STREAM, &["s.>"], replicas, Duration::from_mins(2)).into();
    let (connection, plan) = (&connection, &plan);
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

/// Publishes until the servers have it; the ids make trying again harmless.
pub(crate) async fn publish(bus: &NatsStream, numbers: std::ops::Range<u64>) -> Vec<Receipt> {
    let numbers = &numbers;
    until("a publish", || async move { bus.publish(numbers.clone().map(message).collect()).await.ok() }).await
}

pub(crate) fn subscription(name: &str, after: Option<StreamPosition>) -> Subscription {
    Subscription {
        name: name.to_owned(),
        filters: vec!["s.>".to_owned()],
        part: None,
        after,
        max_in_flight: 10_000,
    }
}

pub(crate) async fn subscribe(bus: &NatsStream, subscription: Subscription) -> Box<dyn Consumer> {
    within("a subscription", bus.subscribe(subscription)).await.unwrap()
}

/// The next messages, acknowledged.
pub(crate) async fn take(consumer: &mut dyn Consumer, count: usize) -> Vec<Delivery> {
    let mut all = Vec::new();
    while all.len() < count {
        let more = within("the next messages", consumer.next(count - all.len())).await.unwrap();
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
        .map(|delivery| std::str::from_utf8(&delivery.message.payload).unwrap().parse().unwrap())
        .collect()
}

/// The checkpoint of whoever has done everything so far.
pub(crate) fn checkpoint(consumer: &dyn Consumer) -> StreamPosition {
    let mark = consumer.acker().mark();
    StreamPosition { stream_id: consumer.start().stream_id, sequence: mark.sequence, at: mark.at }
}
