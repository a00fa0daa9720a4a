//! Outages: servers are killed and consumers deleted during publish and read; every message arrives
//! once and in order.

use std::sync::Arc;

use orlog_bus::nats::NatsStream;
use orlog_testkit::nats_server::{NatsCluster, NatsServer};
use orlog_testkit::raw_nats::RawNatsClient;
use serde_json::{Value, json};
use tokio::task::JoinHandle;

use super::fixture::{numbers, open, publish, subscribe, subscription, take};

/// Messages per publish.
const BATCH: u64 = 50;

/// Publishes all messages, for as long as the servers are down.
fn publishing(bus: &Arc<NatsStream>, total: u64) -> JoinHandle<()> {
    let bus = Arc::clone(bus);
    tokio::spawn(async move {
        for start in (0..total).step_by(usize::try_from(BATCH).unwrap()) {
            publish(&bus, start..start + BATCH).await;
        }
    })
}

/// Reads all messages with two subscriptions; calls `trouble` after each tenth of them.
async fn survives(bus: &Arc<NatsStream>, total: u64, mut trouble: impl FnMut(u64)) {
    let mut one = subscribe(bus, subscription("one", None)).await;
    let mut other = subscribe(bus, subscription("other", None)).await;
    let published = publishing(bus, total);
    let tenth = total / 10;
    let (mut found, mut sequences) = (Vec::new(), Vec::new());
    for round in 0..10 {
        let batch = take(&mut *one, usize::try_from(tenth).unwrap()).await;
        found.extend(numbers(&batch));
        sequences.extend(batch.iter().map(|delivery| delivery.sequence));
        trouble(round);
    }
    published.await.unwrap();
    assert!(sequences.is_sorted_by(|a, b| a < b), "each once, in the order of the stream");
    // A retried publish keeps its ids, and the order of messages that were not stored yet.
    let mut sorted = found.clone();
    sorted.sort_unstable();
    sorted.dedup();
    assert_eq!(sorted, (0..total).collect::<Vec<_>>(), "every message");
    assert_eq!(
        numbers(&take(&mut *other, usize::try_from(total).unwrap()).await),
        found,
        "the other saw the same"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn deleted_consumer_is_recreated_without_a_gap() {
    let Some(server) = NatsServer::start() else { return };
    let bus = open(&[server.url()], 1).await;
    survives(&bus, 5000, |_| {
        let mut wire = RawNatsClient::connect(server.port);
        let list = wire.jetstream("CONSUMER.LIST.S", &json!({}));
        for consumer in list["consumers"].as_array().unwrap() {
            let name = consumer["name"].as_str().unwrap();
            // It may already be deleted.
            wire.request(&format!("$JS.API.CONSUMER.DELETE.S.{name}"), b"").unwrap();
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn server_restart_causes_no_loss_and_no_duplicates() {
    let Some(mut server) = NatsServer::start() else { return };
    let bus = open(&[server.url()], 1).await;
    survives(&bus, 5000, |round| {
        if round % 3 == 0 {
            server.kill();
            server.restart();
        }
    })
    .await;
}

/// Returns the node that leads the stream.
fn leader(cluster: &NatsCluster) -> Option<usize> {
    let up =
        cluster.nodes.iter().find(|node| std::net::TcpStream::connect(("127.0.0.1", node.port)).is_ok())?;
    let info = RawNatsClient::connect(up.port).request("$JS.API.STREAM.INFO.S", b"").ok()?;
    let info: Value = serde_json::from_slice(&info).ok()?;
    info["cluster"]["leader"].as_str()?.strip_prefix('n')?.parse().ok()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn leader_failure_causes_no_loss_and_no_duplicates() {
    let Some(mut cluster) = NatsCluster::start(3) else { return };
    let bus = open(&cluster.urls(), 3).await;
    survives(&bus, 3000, |round| {
        if round == 2 {
            let leader = leader(&cluster).expect("there is a leader");
            cluster.nodes[leader].kill();
        }
        if round == 7 {
            // Killed nodes restart and catch up.
            for node in &mut cluster.nodes {
                if std::net::TcpStream::connect(("127.0.0.1", node.port)).is_err() {
                    node.restart();
                }
            }
        }
    })
    .await;
}
