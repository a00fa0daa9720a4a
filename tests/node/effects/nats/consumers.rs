//! Consumers of effect nodes with different tenants, as operators and autoscalers see them.

use axum::http::{Method, StatusCode};
use orlog::Config;
use orlog::config::{Role, TenantMode};
use orlog_model::TenantId;
use orlog_testkit::nats_server::NatsServer;
use serde_json::{Value, json};

use super::{node, until};
use crate::effects::http_upstream::HttpUpstream;
use crate::effects::node::{Dirs, Node};

const SHARED: &str = "effect-pay%2Echarge";

fn dirs(shop: &HttpUpstream) -> Dirs {
    let pay = format!(
        "base_url = {:?}\n[effects.\"pay.charge\"]\npath = \"/charge\"\n",
        shop.url
    );
    Dirs::new(&[("pay", &pay)])
}

/// Changes a configuration to that of another node, which serves these tenants.
fn serves(tenants: &'static [&'static str]) -> impl Fn(&mut Config) {
    move |config| {
        config.node_name = format!("effect-{}", tenants.join("-"));
        config.tenants.mode = TenantMode::Allowlist;
        let tenants = tenants.iter().map(|name| TenantId::new(*name).unwrap());
        config.tenants.allowed = tenants.collect();
    }
}

/// Returns the reason why a node is not ready; `None` if it is.
async fn problem(node: &Node) -> Option<String> {
    let (status, body) = node.ask(Method::GET, "", "/ready", &Value::Null).await;
    (status != StatusCode::OK).then(|| body.to_string())
}

async fn metrics(node: &Node) -> String {
    node.get("/metrics").await.as_str().unwrap().to_owned()
}

/// Requirements: R7, R17.
#[tokio::test(flavor = "multi_thread")]
async fn effect_nodes_of_different_tenants_execute_their_effects() {
    let server = NatsServer::start();
    let shop = HttpUpstream::open().await;
    let dirs = dirs(&shop);
    let sagas = node(&server, &dirs, Role::Saga, |_| ()).await;
    let acme = node(&server, &dirs, Role::Effect, serves(&["acme"])).await;
    let beta = node(&server, &dirs, Role::Effect, serves(&["beta"])).await;
    for node in [&acme, &beta] {
        until(async || problem(node).await.is_none().then_some(())).await;
    }
    for tenant in ["acme", "beta"] {
        sagas.pay(tenant, "o-1", json!({ "amount": 7 })).await;
        assert_eq!(sagas.end(tenant, "o-1").await["status"], "completed");
    }
    assert_eq!(shop.received().len(), 2);

    let info = acme.get("/info").await;
    let consumers = info["effect_consumers"].as_array().unwrap();
    let names: Vec<&str> = consumers
        .iter()
        .filter_map(|consumer| consumer["consumer"].as_str())
        .collect();
    assert_eq!(names, [format!("{SHARED}@%"), format!("{SHARED}@acme")]);
    assert_eq!(consumers[1]["problem"], Value::Null);
    assert_eq!(consumers[1]["waiting"], 0);

    // A job of a node that has gone waits, with its age.
    let line = |metric: &str| {
        format!("orlog_{metric}{{effect=\"pay.charge\",consumer=\"{SHARED}@acme\"}} ")
    };
    let text = metrics(&acme).await;
    for metric in [
        "effect_queue_depth",
        "effect_queue_in_flight",
        "effect_queue_oldest_age_seconds",
    ] {
        assert!(text.contains(&line(metric)), "{metric}: {text}");
    }
    assert!(
        text.contains("orlog_effect_subscriptions_failing 0"),
        "{text}"
    );
    for node in [acme, beta, sagas] {
        node.app.stop().await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn effect_node_with_a_conflicting_consumer_is_not_ready_and_states_the_reason() {
    let server = NatsServer::start();
    let shop = HttpUpstream::open().await;
    let dirs = dirs(&shop);
    let open = node(&server, &dirs, Role::Effect, |_| ()).await;
    until(async || problem(&open).await.is_none().then_some(())).await;
    let listed = node(&server, &dirs, Role::Effect, serves(&["acme"])).await;
    let reason = until(async || {
        let reason = problem(&listed).await?;
        reason.contains(SHARED).then_some(reason)
    })
    .await;
    assert!(reason.contains("jobs of pay.charge"), "{reason}");
    assert_eq!(problem(&open).await, None);

    let info = listed.get("/info").await;
    let problems = info["effect_consumers"].as_array().unwrap();
    assert_eq!(problems.len(), 2);
    assert!(problems[0]["problem"].as_str().unwrap().contains(SHARED));
    let text = metrics(&listed).await;
    assert!(
        text.contains("orlog_effect_subscriptions_failing 2"),
        "{text}"
    );
    let doctor = listed.get("/admin/diagnostics").await;
    assert!(doctor.to_string().contains("effect consumers"), "{doctor}");
    for node in [listed, open] {
        node.app.stop().await.unwrap();
    }
}
