//! Exercises of the runbooks of NATS, on pods that are processes.

use orlog_testkit::nats_server::{NatsCluster, NatsServer};
use orlog_testkit::wait::until;
use serde_json::json;

use super::exercise::RunbookExercise;
use super::page::RunbookPage;
use super::process::{NodeProcess, directory, on_nats};
use crate::cluster::obstacles::limit_log;
use crate::cluster::pods::Pods;
use crate::cluster::proxy::Proxy;

/// Returns the status of the response to an order.
async fn place(pods: &Pods, pod: &str, id: &str) -> u16 {
    let order = json!({
        "specversion": "1.0", "id": id, "type": "OrderPlaced", "source": "urn:shop", "data": { "orderId": id },
    });
    let request = pods
        .ask(pod, "POST", "/v1/events")
        .header("content-type", "application/cloudevents+json");
    request
        .body(order.to_string())
        .send()
        .await
        .map_or(0, |response| response.status().as_u16())
}

fn url(pods: &Pods, pod: &str) -> String {
    pods.urls.lock()[pod].clone()
}

#[tokio::test(flavor = "multi_thread")]
async fn runbook_lost_nats_quorum() {
    let mut nats = NatsCluster::start(3);
    let mut pods = Pods::new(&nats.urls(), 3).await;
    pods.start_all(&["a"]).await;
    let a = url(&pods, "a");
    let exercise = RunbookExercise::begin_on(
        pods,
        &[&a],
        &std::env::temp_dir(),
        "nats-quorum.md",
        "OrlogBusUnavailable",
    )
    .await;
    let pods = &exercise.node;
    assert_eq!(place(pods, "a", "before").await, 202);
    nats.nodes[1].kill();
    nats.nodes[2].kill();
    exercise.until_it_fires().await;
    exercise
        .finds("the streams on NATS are not available: ")
        .await;
    exercise
        .inspect(&[
            &["the bus does not respond"],
            &["restart the missing NATS servers"],
        ])
        .await;
    nats.nodes[1].restart();
    nats.nodes[2].restart();
    exercise.cure().await;
    exercise.until_it_resolves().await;
    exercise.finds_nothing("bus").await;
    until("an order is accepted", async || {
        (place(pods, "a", "after").await == 202).then_some(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn runbook_pod_cut_off() {
    let nats = NatsServer::start();
    let wire = Proxy::to(nats.port).await;
    let mut pods = Pods::new(&[nats.url()], 1).await;
    pods.start_through("a", vec![wire.url.clone()]).await;
    pods.start("b").await;
    pods.until_spread().await;
    let (a, b) = (url(&pods, "a"), url(&pods, "b"));
    let mut exercise = RunbookExercise::begin_on(
        pods,
        &[&a, &b],
        &std::env::temp_dir(),
        "pod-cut-off.md",
        "OrlogPodCutOff",
    )
    .await;
    wire.partition();
    exercise.until_it_fires().await;
    let alert = exercise.prometheus.query(&exercise.firing()).await.unwrap();
    assert_eq!(alert.len(), 1, "{alert:?}");
    assert_eq!(
        Some(alert[0]["metric"]["instance"].as_str().unwrap()),
        a.strip_prefix("http://")
    );
    exercise
        .finds("this node is cut off from NATS, which pod b reaches")
        .await;
    exercise.finds("a cannot renew its lease on NATS").await;
    exercise
        .inspect(&[&["the bus does not respond"], &["restore the network"]])
        .await;
    exercise.node.exclude("a");
    exercise.node.wait_for_owners(&["b"]).await;
    assert_eq!(place(&exercise.node, "b", "meanwhile").await, 202);
    wire.heal();
    exercise.cure().await;
    exercise.until_it_resolves().await;
    exercise.finds_nothing("bus").await;
    exercise.node.until_spread().await;
    // The pod moves to another machine.
    exercise.follow("orlog drain", &[]).await;
    exercise.node.exclude("a");
    exercise.node.wait_for_owners(&["b"]).await;
}

/// Starts the exercise on two pods, each of which keeps its shard.
async fn without_a_pod(page: &RunbookPage, nats: &NatsServer) {
    let dir = directory();
    let config = format!(
        "shards = 2\n{}[cluster]\nmode = \"static\"\nname = \"static\"\npod_count = 2\n",
        on_nats(&nats.url())
    );
    let killed = NodeProcess::start_in(&dir, "pod-0", &config).await;
    let other = NodeProcess::start_in(&dir, "pod-1", &config).await;
    let urls = [killed.url.clone(), other.url.clone()];
    let urls = urls.each_ref().map(String::as_str);
    let alert = "OrlogShardWithoutOwner";
    let mut exercise =
        RunbookExercise::begin_on(killed, &urls, dir.path(), page.clone(), alert).await;
    exercise.node.kill();
    exercise.until_it_fires().await;
    exercise.until_alert("OrlogDown").await;
    exercise.node.restart(&[]).await;
    exercise.until_it_resolves().await;
    exercise.run("orlog doctor --node-only").await;
}

/// A pod without a lease, and then with leases whose shards do not start.
async fn with_obstacles(page: &RunbookPage, nats: &NatsServer) {
    let wire = Proxy::to(nats.port).await;
    let mut pods = Pods::new(&[nats.url()], 1).await;
    pods.start_through("a", vec![wire.url.clone()]).await;
    pods.until_spread().await;
    let a = url(&pods, "a");
    let dir = std::env::temp_dir();
    let alert = "OrlogPodWithoutLease";
    let mut exercise = RunbookExercise::begin_on(pods, &[&a], &dir, page.clone(), alert).await;
    wire.partition();
    exercise.until_it_fires().await;
    exercise.finds("cannot renew its lease on NATS").await;
    limit_log(nats, |state| state["bytes"].clone());
    wire.heal();
    exercise.until_alert("OrlogShardFails").await;
    exercise.diagnose("the shard does not run: ").await;
    exercise.finds("the shard does not run: ").await;
    limit_log(nats, |_| json!(-1));
    exercise.until_it_resolves().await;
    exercise.node.wait_for_owners(&["a"]).await;

    // A pod that is down: another one acquires its shards.
    exercise.node.start("b").await;
    exercise.node.until_spread().await;
    exercise.node.kill("a");
    exercise.node.wait_for_owners(&["b"]).await;
}

/// Two nodes with `cluster.mode = "standalone"` use the same servers.
async fn with_a_second_node(nats: &NatsServer) {
    let config = format!(
        "[store]\nreplication = \"jetstream\"\n{}",
        on_nats(&nats.url())
    );
    let mut first = NodeProcess::start(&config).await;
    first.until("/ready", |_| true).await;
    let mut second = NodeProcess::start(&config).await;
    let reason = "another process has taken over its replicated log";
    until("the first node reports the second one", async || {
        let order = json!({ "orderId": "o-1" });
        let event = crate::telemetry::node::event("placed-1", "OrderPlaced", &order);
        first.send("POST", "/v1/events", Some(&event)).await;
        let health = first.send("GET", "/health", None).await;
        health.text.contains(reason).then_some(())
    })
    .await;
    second.stop();
    first.stop();
    first.restart(&[]).await;
    first
        .until("/v1/sagas/order/o-1", |order| order["status"] == "running")
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn runbook_shard_without_owner() {
    let page = RunbookPage::open("shard-without-owner.md");
    without_a_pod(&page, &NatsServer::start()).await;
    with_obstacles(&page, &NatsServer::start()).await;
    with_a_second_node(&NatsServer::start()).await;
}
