//! Exercises of the runbooks of NATS, on pods that are processes.

use orlog_testkit::nats_server::{NatsCluster, NatsServer};
use orlog_testkit::wait::until;
use serde_json::json;

use super::exercise::RunbookExercise;
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
    pods.urls.lock().unwrap()[pod].clone()
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
