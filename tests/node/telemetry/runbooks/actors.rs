//! Exercises of the runbooks of components: actors that restart, and consumers of effect nodes.

use orlog::config::{BusKind, NatsConfig};
use orlog_testkit::nats_server::NatsServer;
use orlog_testkit::wait::until;
use serde_json::json;

use super::exercise::RunbookExercise;
use super::page::RunbookPage;
use super::process::{NodeProcess, directory, on_nats};
use crate::effects::http_upstream::HttpUpstream;
use crate::telemetry::node::placed;

/// Saga with one effect.
const PAYMENT: &str = r"
saga: payment
version: 1
correlate: orderId
start: PaymentAsked
vars: { orderId: =event.orderId }
steps:
  - { id: charge, do: { effect: pay.charge, data: { orderId: =vars.orderId } } }
";

#[tokio::test(flavor = "multi_thread")]
async fn runbook_actor_restarts() {
    let server = NatsServer::start();
    let nats = NatsConfig {
        servers: vec![server.url()],
        manage_aggregate_stream: true,
        ..NatsConfig::default()
    };
    let exercise = RunbookExercise::begin_with("restarts.md", "OrlogRestarts", |config, _| {
        config.bus.kind = BusKind::Nats;
        config.nats = nats;
    })
    .await;
    let node = &exercise.node;
    // More restarts than the alert allows, and fewer than those after which the node stops.
    for restarts in 1..=5 {
        node.disk.fail_syncs(1);
        let order = placed(&format!("o-{restarts}"), 5);
        // A node rejects events while its shard restarts.
        until("the order is accepted", async || {
            (node.try_publish("acme", &order).await == 202).then_some(())
        })
        .await;
        let series = "orlog_actors_restarted_total{supervisor=\"root\",kind=\"shard\"}";
        let line = format!("{series} {restarts}");
        node.until("the shard restarts", &line).await;
    }
    exercise.until_it_fires().await;
    // The store is restored: no further sync fails.
    assert_eq!(node.disk.syncs_to_fail(), 0);
    exercise.until_it_resolves().await;
    for order in 1..=5 {
        let command = format!("orlog saga result order o-{order} --wait 10s");
        let output = exercise.run(&command).await;
        assert!(output.contains("completed"), "{output}");
    }
    exercise.end().await;
}

/// Returns the configuration of a node of a role, which serves the listed tenants or all.
fn config(server: &NatsServer, role: &str, tenants: Option<&str>) -> String {
    let tenants =
        tenants.map(|tenant| format!("[tenants]\nmode = \"allowlist\"\nallowed = [{tenant:?}]\n"));
    format!(
        "role = {role:?}\nupstreams_dir = \"effects\"\n{}{}",
        on_nats(&server.url()),
        tenants.unwrap_or_default()
    )
}

#[tokio::test(flavor = "multi_thread")]
async fn runbook_effect_consumers() {
    let page = RunbookPage::open("effect-consumers.md");
    let (server, shop) = (NatsServer::start(), HttpUpstream::open().await);
    let dir = directory();
    std::fs::write(dir.path().join("definitions/payment.saga.yaml"), PAYMENT).unwrap();
    std::fs::create_dir(dir.path().join("effects")).unwrap();
    let pay = format!(
        "base_url = {:?}\n[effects.\"pay.charge\"]\npath = \"/charge\"\n",
        shop.url
    );
    std::fs::write(dir.path().join("effects/pay.toml"), pay).unwrap();
    let all = config(&server, "effect", None);
    let sagas = NodeProcess::start_in(&dir, "orlog", &config(&server, "saga", None)).await;
    let mut open = NodeProcess::start_in(&dir, "open", &all).await;
    let listed = NodeProcess::start_in(&dir, "effect", &all).await;
    listed.until("/ready", |_| true).await;
    let url = listed.url.clone();
    let mut exercise = RunbookExercise::begin_on(
        listed,
        &[&url],
        dir.path(),
        page,
        "OrlogEffectConsumerFails",
    )
    .await;

    // One of two nodes of an effect serves a list.
    exercise.node.stop();
    let acme = config(&server, "effect", Some("acme"));
    exercise.node.configure(&acme);
    exercise.node.restart(&[]).await;
    exercise.until_it_fires().await;
    exercise.finds("jobs of pay.charge").await;
    exercise.diagnose("pay.charge").await;

    // Both nodes serve lists.
    exercise.node.stop();
    open.stop();
    let diff = "orlog streams diff --config effect.toml";
    exercise.page.perform(diff);
    let (code, output) = exercise.try_run(diff).await;
    assert!(code == Some(1) && output.contains("effect-pay"), "{output}");
    exercise
        .follow("orlog streams apply --config effect.toml", &[])
        .await;
    exercise.run(diff).await;
    exercise.node.restart(&[]).await;
    open.configure(&config(&server, "effect", Some("beta")));
    open.restart(&[]).await;
    exercise.until_it_resolves().await;
    for node in [&exercise.node, &open] {
        until("the node is ready", async || {
            let response = node.send("GET", "/ready", None).await;
            (response.status == 200).then_some(())
        })
        .await;
    }
    let asked = json!({ "orderId": "o-1" });
    sagas.publish("asked-1", "PaymentAsked", &asked).await;
    sagas
        .until("/v1/sagas/payment/o-1", |saga| {
            saga["status"] == "completed"
        })
        .await;
    assert_eq!(shop.received().len(), 1);
}
