//! Stream anomalies: a stream that contradicts its checkpoint is detected and reported, and no message
//! is skipped.

use std::path::Path;

use orlog_bus::{Bus, Consumer, StreamAnomaly};
use orlog_model::StreamPosition;
use orlog_testkit::nats_server::NatsServer;
use orlog_testkit::raw_nats::RawNatsClient;
use serde_json::json;

use crate::cluster::proxy::Proxy;

use super::fixture::{checkpoint, numbers, open, publish, subscribe, subscription, take};

/// Creates a stream, reads it to its end and returns the checkpoint there.
async fn read_to_the_end(server: &NatsServer, count: u64) -> StreamPosition {
    let bus = open(&[server.url()], 1).await;
    publish(&bus, 0..count).await;
    let mut consumer = subscribe(&bus, subscription("c", None)).await;
    take(&mut *consumer, usize::try_from(count).unwrap()).await;
    let position = checkpoint(&*consumer);
    assert_eq!(position.sequence, count);
    assert!(position.at.is_some());
    position
}

/// Starts a consumer at a checkpoint; returns its anomaly.
async fn start_consumer(
    server: &NatsServer,
    position: StreamPosition,
) -> (Box<dyn Consumer>, Option<StreamAnomaly>) {
    let bus = open(&[server.url()], 1).await;
    let consumer = subscribe(&bus, subscription("c", Some(position))).await;
    let found = consumer.subscription_start().anomaly.clone();
    (consumer, found)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn unchanged_stream_has_no_anomaly() {
    let mut server = NatsServer::start();
    let position = read_to_the_end(&server, 20).await;
    server.stop();
    server.restart();
    let (mut consumer, found) = start_consumer(&server, position).await;
    assert_eq!(found, None);
    publish(&*open(&[server.url()], 1).await, 20..22).await;
    assert_eq!(numbers(&take(&mut *consumer, 2).await), [20, 21]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn purged_unread_messages_are_detected() {
    let server = NatsServer::start();
    let position = read_to_the_end(&server, 20).await;
    let bus = open(&[server.url()], 1).await;
    publish(&bus, 20..40).await;
    RawNatsClient::connect(server.port).jetstream("STREAM.PURGE.S", &json!({ "seq": 31 }));
    let (mut consumer, found) = start_consumer(&server, position).await;
    assert_eq!(
        found,
        Some(StreamAnomaly::Purged {
            checkpoint: 20,
            first: 31
        })
    );
    assert_eq!(
        numbers(&take(&mut *consumer, 10).await),
        (30..40).collect::<Vec<_>>()
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn messages_purged_before_the_checkpoint_are_ignored() {
    let server = NatsServer::start();
    let position = read_to_the_end(&server, 20).await;
    RawNatsClient::connect(server.port).jetstream("STREAM.PURGE.S", &json!({}));
    let bus = open(&[server.url()], 1).await;
    publish(&bus, 20..22).await;
    let (mut consumer, found) = start_consumer(&server, position).await;
    assert_eq!(found, None);
    assert_eq!(numbers(&take(&mut *consumer, 2).await), [20, 21]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn recreated_stream_is_read_from_the_start() {
    let server = NatsServer::start();
    let position = read_to_the_end(&server, 20).await;
    RawNatsClient::connect(server.port).jetstream("STREAM.DELETE.S", &json!({}));
    let bus = open(&[server.url()], 1).await;
    publish(&bus, 100..130).await;
    let (mut consumer, found) = start_consumer(&server, position).await;
    let other = StreamAnomaly::StreamRecreated {
        expected: position.stream_id,
        found: bus.stream_id(),
    };
    assert_eq!(found, Some(other));
    assert_eq!(
        numbers(&take(&mut *consumer, 30).await),
        (100..130).collect::<Vec<_>>()
    );
}

/// Restores an earlier disk state of the server.
fn restore(server: &mut NatsServer, saved: &Path) {
    server.stop();
    let store = server.dir().join("js");
    std::fs::remove_dir_all(&store).unwrap();
    copy(saved, &store);
    server.restart();
}

fn save(server: &mut NatsServer, to: &Path) {
    server.stop();
    copy(&server.dir().join("js"), to);
    server.restart();
}

fn copy(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let target = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            copy(&entry.path(), &target);
        } else {
            std::fs::copy(entry.path(), target).unwrap();
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn truncated_stream_resumes_by_timestamp() {
    let mut server = NatsServer::start();
    read_to_the_end(&server, 20).await;
    let saved = tempfile::tempdir().unwrap();
    save(&mut server, saved.path());
    let bus = open(&[server.url()], 1).await;
    publish(&bus, 20..50).await;
    let mut consumer = subscribe(&bus, subscription("c", None)).await;
    take(&mut *consumer, 50).await;
    let position = checkpoint(&*consumer);
    drop(consumer);
    restore(&mut server, saved.path());

    let (mut consumer, found) = start_consumer(&server, position).await;
    assert_eq!(
        found,
        Some(StreamAnomaly::Truncated {
            checkpoint: 50,
            last: 20
        })
    );
    let bus = open(&[server.url()], 1).await;
    publish(&bus, 1000..1010).await;
    let mut seen = Vec::new();
    while seen.last() != Some(&1009) {
        seen.extend(numbers(&take(&mut *consumer, 1).await));
    }
    // Messages published within the clock skew before it are redelivered; none of the new ones is missing.
    assert!(
        seen.ends_with(&(1000..1010).collect::<Vec<_>>()),
        "{seen:?}"
    );

    // The stream continues beyond the checkpoint: that position now has another message.
    publish(&bus, 1010..1040).await;
    let (mut consumer, found) = start_consumer(&server, position).await;
    assert!(
        matches!(found, Some(StreamAnomaly::Replaced { checkpoint: 50, .. })),
        "{found:?}"
    );
    let mut seen = Vec::new();
    while seen.last() != Some(&1039) {
        seen.extend(numbers(&take(&mut *consumer, 1).await));
    }
    assert!(
        seen.ends_with(&(1000..1040).collect::<Vec<_>>()),
        "{seen:?}"
    );
}

/// The identity of a restored stream differs: it has another creation time.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn restored_stream_continues_at_the_checkpoint() {
    let server = NatsServer::start();
    let position = read_to_the_end(&server, 20).await;
    let mut wire = RawNatsClient::connect(server.port);
    let backup = wire.back_up_stream("S");
    wire.jetstream("STREAM.DELETE.S", &json!({}));
    wire.restore_stream(&backup);
    let (mut consumer, found) = start_consumer(&server, position).await;
    assert_eq!(found, None);
    let restored = consumer.subscription_start().stream_id;
    assert_ne!(restored, position.stream_id);

    publish(&*open(&[server.url()], 1).await, 20..22).await;
    assert_eq!(numbers(&take(&mut *consumer, 2).await), [20, 21]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn stream_restored_from_an_older_copy_has_an_anomaly() {
    let server = NatsServer::start();
    read_to_the_end(&server, 10).await;
    let mut wire = RawNatsClient::connect(server.port);
    let backup = wire.back_up_stream("S");
    let position = read_to_the_end(&server, 20).await;
    wire.jetstream("STREAM.DELETE.S", &json!({}));
    wire.restore_stream(&backup);
    let recreated =
        |found: Option<StreamAnomaly>| matches!(found, Some(StreamAnomaly::StreamRecreated { .. }));
    let (_, found) = start_consumer(&server, position).await;
    assert!(recreated(found), "the stream ends before the checkpoint");

    publish(&*open(&[server.url()], 1).await, 100..120).await;
    let (_, found) = start_consumer(&server, position).await;
    assert!(recreated(found), "another message is at the checkpoint");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn stream_that_lost_its_end_and_grew_during_an_outage_stops_the_reader() {
    let mut server = NatsServer::start();
    publish(&*open(&[server.url()], 1).await, 0..20).await;
    let saved = tempfile::tempdir().unwrap();
    save(&mut server, saved.path());
    publish(&*open(&[server.url()], 1).await, 20..30).await;

    let proxy = Proxy::to(server.port).await;
    let bus = open(std::slice::from_ref(&proxy.url), 1).await;
    let mut consumer = subscribe(&bus, subscription("c", None)).await;
    take(&mut *consumer, 30).await;

    // While the reader is cut off, the stream loses ten messages and gets twenty others.
    proxy.partition();
    restore(&mut server, saved.path());
    publish(&*open(&[server.url()], 1).await, 100..120).await;
    proxy.heal();
    let ended = orlog_testkit::wait::within("the end", consumer.next(100))
        .await
        .map(|read| numbers(&read));
    let reason = ended.unwrap_err().to_string();
    assert!(reason.contains("another message at 30"), "{reason}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn stream_recreated_while_reading_stops_the_reader() {
    let server = NatsServer::start();
    let bus = open(&[server.url()], 1).await;
    publish(&bus, 0..5).await;
    let mut consumer = subscribe(&bus, subscription("c", None)).await;
    take(&mut *consumer, 5).await;
    let position = checkpoint(&*consumer);
    RawNatsClient::connect(server.port).jetstream("STREAM.DELETE.S", &json!({}));
    open(&[server.url()], 1).await;
    let ended = orlog_testkit::wait::within("the end", consumer.next(10))
        .await
        .unwrap_err()
        .to_string();
    assert!(ended.contains("was recreated"), "{ended}");
    drop(consumer);
    publish(&bus, 50..55).await;
    let mut consumer = subscribe(&bus, subscription("c", Some(position))).await;
    assert_eq!(
        consumer
            .subscription_start()
            .anomaly
            .as_ref()
            .map(StreamAnomaly::as_str),
        Some("stream_recreated")
    );
    assert_eq!(
        numbers(&take(&mut *consumer, 5).await),
        (50..55).collect::<Vec<_>>()
    );
}
