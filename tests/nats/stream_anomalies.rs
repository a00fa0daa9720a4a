//! A stream that is no longer what it was at the checkpoint: noticed, told, and nothing is skipped.

use std::path::Path;

use orlog_bus::{Bus, Consumer, Finding};
use orlog_model::StreamPosition;
use orlog_testkit::nats_server::NatsServer;
use orlog_testkit::raw_nats::Wire;
use serde_json::json;

use super::fixture::{checkpoint, numbers, open, publish, subscribe, subscription, take};

/// A server with a stream that was read to its end, and the checkpoint there.
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

/// What is found at a checkpoint.
async fn begun(server: &NatsServer, position: StreamPosition) -> (Box<dyn Consumer>, Option<Finding>) {
    let bus = open(&[server.url()], 1).await;
    let consumer = subscribe(&bus, subscription("c", Some(position))).await;
    let found = consumer.start().found.clone();
    (consumer, found)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn all_is_well_when_nothing_has_happened() {
    let Some(mut server) = NatsServer::start() else { return };
    let position = read_to_the_end(&server, 20).await;
    server.stop();
    server.restart();
    let (mut consumer, found) = begun(&server, position).await;
    assert_eq!(found, None);
    publish(&*open(&[server.url()], 1).await, 20..22).await;
    assert_eq!(numbers(&take(&mut *consumer, 2).await), [20, 21]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn messages_that_were_purged_before_they_were_read_are_noticed() {
    let Some(server) = NatsServer::start() else { return };
    let position = read_to_the_end(&server, 20).await;
    let bus = open(&[server.url()], 1).await;
    publish(&bus, 20..40).await;
    Wire::connect(server.port).jetstream("STREAM.PURGE.S", &json!({ "seq": 31 }));
    let (mut consumer, found) = begun(&server, position).await;
    assert_eq!(found, Some(Finding::Purged { checkpoint: 20, first: 31 }));
    assert_eq!(numbers(&take(&mut *consumer, 10).await), (30..40).collect::<Vec<_>>());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn messages_purged_behind_the_checkpoint_are_nobodys_loss() {
    let Some(server) = NatsServer::start() else { return };
    let position = read_to_the_end(&server, 20).await;
    Wire::connect(server.port).jetstream("STREAM.PURGE.S", &json!({}));
    let bus = open(&[server.url()], 1).await;
    publish(&bus, 20..22).await;
    let (mut consumer, found) = begun(&server, position).await;
    assert_eq!(found, None);
    assert_eq!(numbers(&take(&mut *consumer, 2).await), [20, 21]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stream_that_was_made_anew_is_read_from_its_beginning() {
    let Some(server) = NatsServer::start() else { return };
    let position = read_to_the_end(&server, 20).await;
    Wire::connect(server.port).jetstream("STREAM.DELETE.S", &json!({}));
    let bus = open(&[server.url()], 1).await;
    publish(&bus, 100..130).await;
    let (mut consumer, found) = begun(&server, position).await;
    let other = Finding::OtherStream { expected: position.stream_id, found: bus.stream_id() };
    assert_eq!(found, Some(other));
    assert_eq!(numbers(&take(&mut *consumer, 30).await), (100..130).collect::<Vec<_>>());
}

/// Takes the server back to an earlier state of its disk.
fn restore(server: &mut NatsServer, saved: &Path) {
    server.stop();
    let store = server.folder().join("js");
    std::fs::remove_dir_all(&store).unwrap();
    copy(saved, &store);
    server.restart();
}

fn save(server: &mut NatsServer, to: &Path) {
    server.stop();
    copy(&server.folder().join("js"), to);
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
async fn a_stream_that_lost_its_end_is_read_on_by_its_time() {
    let Some(mut server) = NatsServer::start() else { return };
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

    let (mut consumer, found) = begun(&server, position).await;
    assert_eq!(found, Some(Finding::LostTail { checkpoint: 50, last: 20 }));
    let bus = open(&[server.url()], 1).await;
    publish(&bus, 1000..1010).await;
    let mut seen = Vec::new();
    while seen.last() != Some(&1009) {
        seen.extend(numbers(&take(&mut *consumer, 1).await));
    }
    // What was published within the skew of the clocks before comes again; of the new none is missing.
    assert!(seen.ends_with(&(1000..1010).collect::<Vec<_>>()), "{seen:?}");

    // It goes on beyond the checkpoint: there lies another message now.
    publish(&bus, 1010..1040).await;
    let (mut consumer, found) = begun(&server, position).await;
    assert!(matches!(found, Some(Finding::Replaced { checkpoint: 50, .. })), "{found:?}");
    let mut seen = Vec::new();
    while seen.last() != Some(&1039) {
        seen.extend(numbers(&take(&mut *consumer, 1).await));
    }
    assert!(seen.ends_with(&(1000..1040).collect::<Vec<_>>()), "{seen:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stream_that_is_made_anew_under_way_ends_the_reading() {
    let Some(server) = NatsServer::start() else { return };
    let bus = open(&[server.url()], 1).await;
    publish(&bus, 0..5).await;
    let mut consumer = subscribe(&bus, subscription("c", None)).await;
    take(&mut *consumer, 5).await;
    let position = checkpoint(&*consumer);
    Wire::connect(server.port).jetstream("STREAM.DELETE.S", &json!({}));
    open(&[server.url()], 1).await;
    let ended = super::fixture::within("the end", consumer.next(10)).await.unwrap_err().to_string();
    assert!(ended.contains("was made anew"), "{ended}");
    drop(consumer);
    publish(&bus, 50..55).await;
    let mut consumer = subscribe(&bus, subscription("c", Some(position))).await;
    assert_eq!(consumer.start().found.as_ref().map(Finding::as_str), Some("other_stream"));
    assert_eq!(numbers(&take(&mut *consumer, 5).await), (50..55).collect::<Vec<_>>());
}
