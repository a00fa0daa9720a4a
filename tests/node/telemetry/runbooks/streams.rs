//! Exercises of the runbooks of streams on NATS: lost streams, failed subscriptions, consumer lag.

use std::time::Duration;

use orlog::config::{BusKind, NatsConfig};
use orlog_testkit::nats_server::NatsServer;
use orlog_testkit::raw_nats::RawNatsClient;
use orlog_testkit::wait::until;
use serde_json::{Value, json};

use super::exercise::RunbookExercise;
use super::page::RunbookPage;
use super::process::{NodeProcess, on_nats};
use crate::telemetry::node::placed;

/// Stream of the events of the API.
const EVENTS: &str = "AGGREGATE_EVENTS";

async fn place(node: &NodeProcess, id: &str) {
    let event = format!("placed-{id}");
    node.publish(&event, "OrderPlaced", &json!({ "orderId": id }))
        .await;
}

async fn until_placed(node: &NodeProcess, id: &str) {
    node.until(&format!("/v1/sagas/order/{id}"), |order| {
        order["status"] == "running"
    })
    .await;
}

/// Deletes the stream of events and creates it again, empty.
fn recreate(server: &NatsServer) {
    let mut client = RawNatsClient::connect(server.port);
    let info = client.jetstream(&format!("STREAM.INFO.{EVENTS}"), &json!({}));
    client.jetstream(&format!("STREAM.DELETE.{EVENTS}"), &json!({}));
    client.jetstream(&format!("STREAM.CREATE.{EVENTS}"), &info["config"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn runbook_stream_lost() {
    let page = RunbookPage::open("stream-lost.md");
    let server = NatsServer::start();
    let node = NodeProcess::start(&on_nats(&server.url())).await;
    let (url, dir) = (node.url.clone(), node.dir.clone());
    let mut exercise =
        RunbookExercise::begin_on(node, &[&url], dir.path(), page, "OrlogStreamLost").await;
    place(&exercise.node, "o-1").await;
    until_placed(&exercise.node, "o-1").await;
    let copy = RawNatsClient::connect(server.port).back_up_stream(EVENTS);

    // 1. A copy exists.
    recreate(&server);
    exercise.until_it_fires().await;
    exercise.finds("was recreated").await;
    exercise.diagnose(EVENTS).await;
    let mut client = RawNatsClient::connect(server.port);
    client.jetstream(&format!("STREAM.DELETE.{EVENTS}"), &json!({}));
    client.restore_stream(&copy);
    exercise.page.perform("nats stream restore <directory>");
    exercise.until_it_resolves().await;
    place(&exercise.node, "o-2").await;
    until_placed(&exercise.node, "o-2").await;

    // 2. No copy exists: the producers publish again. `o-2` was applied, `o-3` was not.
    recreate(&server);
    exercise.until_it_fires().await;
    for id in ["o-2", "o-3"] {
        place(&exercise.node, id).await;
    }
    let version = version(&exercise.node, "o-2").await;
    let missing = exercise.node.send("GET", "/v1/sagas/order/o-3", None).await;
    missing.problem("OR0011");
    exercise.node.stop();
    exercise.node.restart(&["--accept-data-loss"]).await;
    until_placed(&exercise.node, "o-3").await;
    exercise.node.stop();
    exercise.node.restart(&[]).await;
    exercise.until_it_resolves().await;
    place(&exercise.node, "o-4").await;
    until_placed(&exercise.node, "o-4").await;
    assert_eq!(self::version(&exercise.node, "o-2").await, version);
}

async fn version(node: &NodeProcess, id: &str) -> Value {
    let order = node.until(&format!("/v1/sagas/order/{id}"), |_| true).await;
    order["version"].clone()
}

#[tokio::test(flavor = "multi_thread")]
async fn runbook_subscription_fails() {
    let page = RunbookPage::open("subscription-fails.md");
    let server = NatsServer::start();
    let node = NodeProcess::start(&on_nats(&server.url())).await;
    let (url, dir) = (node.url.clone(), node.dir.clone());
    let exercise =
        RunbookExercise::begin_on(node, &[&url], dir.path(), page, "OrlogSubscriptionFails").await;
    let stream = json!({});
    RawNatsClient::connect(server.port).jetstream(&format!("STREAM.DELETE.{EVENTS}"), &stream);
    exercise.until_it_fires().await;
    let is_logged = || async {
        let log = exercise.node.log();
        log.contains("subscription failed; retrying").then_some(())
    };
    until("the failure is logged", is_logged).await;
    exercise.follow("orlog streams apply", &[]).await;
    exercise.until_it_resolves().await;
    place(&exercise.node, "o-1").await;
    until_placed(&exercise.node, "o-1").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn runbook_consumer_lag() {
    let server = NatsServer::start();
    let nats = NatsConfig {
        servers: vec![server.url()],
        manage_aggregate_stream: true,
        ..NatsConfig::default()
    };
    let exercise =
        RunbookExercise::begin_with("consumer-lag.md", "OrlogConsumerLags", |config, _| {
            config.bus.kind = BusKind::Nats;
            config.nats = nats;
        })
        .await;
    let node = &exercise.node;
    let orders = |of: &str| (0..900).map(|n| placed(&format!("{of}-{n}"), 5)).collect();
    // Each group commit takes a second.
    node.disk.set_slow(Duration::from_secs(1));
    let events: Vec<Value> = orders("slow");
    for batch in events.chunks(300) {
        node.publish_batch("acme", batch).await;
    }
    exercise.until_it_fires().await;
    node.disk.set_slow(Duration::ZERO);
    exercise.until_it_resolves().await;
    for id in ["slow-0", "slow-899"] {
        let command = format!("orlog saga result order {id} --wait 30s");
        let output = exercise.run(&command).await;
        assert!(output.contains("completed"), "{output}");
    }
    exercise.end().await;
}
