//! Outages: servers are killed and consumers deleted during publish and read; every message arrives
//! once and in order.

use std::collections::BTreeSet;
use std::sync::Arc;

use orlog_bus::nats::NatsStream;
use orlog_bus::{Bus as _, ScanStart};
use orlog_testkit::nats_server::{NatsCluster, NatsServer};
use orlog_testkit::raw_nats::RawNatsClient;
use orlog_testkit::wait::{until, within};
use serde_json::{Value, json};
use tokio::task::JoinHandle;

use super::fixture::{checkpoint, numbers, open, open_as, publish, subscribe, subscription, take};

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
    assert!(
        sequences.is_sorted_by(|a, b| a < b),
        "each once, in the order of the stream"
    );
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
    let server = NatsServer::start();
    let bus = open(&[server.url()], 1).await;
    survives(&bus, 5000, |_| {
        let mut wire = RawNatsClient::connect(server.port);
        let list = wire.jetstream("CONSUMER.LIST.S", &json!({}));
        for consumer in list["consumers"].as_array().unwrap() {
            let name = consumer["name"].as_str().unwrap();
            // It may already be deleted.
            wire.request(&format!("$JS.API.CONSUMER.DELETE.S.{name}"), b"")
                .unwrap();
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn server_restart_causes_no_loss_and_no_duplicates() {
    let mut server = NatsServer::start();
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
    let up = cluster
        .nodes
        .iter()
        .find(|node| std::net::TcpStream::connect(("127.0.0.1", node.port)).is_ok())?;
    let info = RawNatsClient::connect(up.port)
        .request("$JS.API.STREAM.INFO.S", b"")
        .ok()?;
    let info: Value = serde_json::from_slice(&info).ok()?;
    info["cluster"]["leader"]
        .as_str()?
        .strip_prefix('n')?
        .parse()
        .ok()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn leader_failure_causes_no_loss_and_no_duplicates() {
    let mut cluster = NatsCluster::start(3);
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

/// Returns the names of the consumers of the stream that the leader of the cluster has assigned to a server.
fn consumers(port: u16) -> BTreeSet<String> {
    let list = RawNatsClient::connect(port).jetstream("CONSUMER.NAMES.S", &json!({}));
    list["consumers"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
        .map(str::to_owned)
        .collect()
}

/// Returns when the server last became the leader of the cluster, as its log states it.
fn elected_at(server: &NatsServer) -> Option<String> {
    let log = server.log();
    let line = log
        .lines()
        .rfind(|line| line.contains("Self is new JetStream cluster metadata leader"))?;
    line.split_once(' ').map(|(_, rest)| rest.to_owned())
}

/// Pods with a stream of 3 servers, one of which lacks all messages from 100 to 600 and is paused.
struct LaggingServer {
    cluster: NatsCluster,
    pods: Vec<Arc<NatsStream>>,
    leads: usize,
    behind: usize,
}

impl LaggingServer {
    async fn start() -> Self {
        let cluster = NatsCluster::start(3);
        let first = open(&cluster.urls(), 3).await;
        publish(&first, 0..100).await;
        let leads = leader(&cluster).expect("there is a leader");
        // Without the leader of the cluster, no consumer could be assigned to a server.
        let leads_cluster = (0..3).max_by_key(|node| elected_at(&cluster.nodes[*node]));
        let behind = (0..3)
            .find(|node| *node != leads && Some(*node) != leads_cluster)
            .expect("a third server");
        let urls = [cluster.nodes[leads].url()];
        let mut pods = Vec::new();
        for pod in 0..12 {
            pods.push(open_as(&urls, 3, &format!("pod-{pod}")).await);
        }
        // All replicas have the first messages, and none of the further ones is on the paused server.
        let current = || async {
            let info = RawNatsClient::connect(cluster.nodes[leads].port)
                .jetstream("STREAM.INFO.S", &json!({}));
            let replicas = info["cluster"]["replicas"].as_array()?;
            replicas
                .iter()
                .all(|replica| replica["current"] == true)
                .then_some(())
        };
        until("replicas that are up to date", current).await;
        cluster.nodes[behind].pause();
        publish(&pods[0], 100..600).await;
        Self {
            cluster,
            pods,
            leads,
            behind,
        }
    }

    /// Resumes the server when each reader has ended or waits for a consumer, whose name contains `kind`.
    /// A consumer that the cluster has assigned to the paused server exists until that server is resumed.
    async fn resume<T>(&self, readers: &[JoinHandle<T>], kind: &str) {
        let port = self.cluster.nodes[self.leads].port;
        until("the consumers", || {
            let ended = readers.iter().filter(|reader| reader.is_finished()).count();
            let found = consumers(port)
                .iter()
                .filter(|name| name.contains(kind))
                .count();
            async move { (ended + found >= readers.len()).then_some(()) }
        })
        .await;
        self.cluster.nodes[self.behind].resume();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn subscription_on_a_lagging_server_skips_nothing() {
    let mut lagging = LaggingServer::start().await;
    let mut reading = subscribe(&lagging.pods[0], subscription("reader", None)).await;
    take(&mut *reading, 100).await;
    let after = checkpoint(&*reading);
    drop(reading);
    let pods = lagging.pods.split_off(0);
    let read = pods.into_iter().enumerate().map(|(number, pod)| {
        let name = format!("late-{number}");
        tokio::spawn(async move {
            let mut consumer = subscribe(&pod, subscription(&name, Some(after))).await;
            numbers(&take(&mut *consumer, 500).await)
        })
    });
    let read: Vec<_> = read.collect();
    lagging.resume(&read, "hub").await;
    for reading in read {
        assert_eq!(
            within("all messages", reading).await.unwrap(),
            (100..600).collect::<Vec<_>>()
        );
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn scan_on_a_lagging_server_is_complete() {
    let mut lagging = LaggingServer::start().await;
    let pods = lagging.pods.split_off(0);
    let read = pods.into_iter().map(|pod| {
        tokio::spawn(async move {
            let mut scan = until("a scan", || {
                let pod = Arc::clone(&pod);
                async move {
                    pod.scan(vec!["s.>".to_owned()], ScanStart::Sequence(101))
                        .await
                        .ok()
                }
            })
            .await;
            let mut all = Vec::new();
            loop {
                let batch = within("a batch", scan.next()).await.unwrap();
                if batch.is_empty() {
                    return numbers(&all);
                }
                all.extend(batch);
            }
        })
    });
    let read: Vec<_> = read.collect();
    lagging.resume(&read, "past").await;
    for reading in read {
        assert_eq!(
            within("all messages", reading).await.unwrap(),
            (100..600).collect::<Vec<_>>()
        );
    }
}
