//! Sagas on one node, effects on another.

use axum::http::StatusCode;
use orlog::Config;
use orlog::config::{Layers, Role, Setting};
use orlog_testkit::nats_server::NatsServer;
use serde_json::json;

use super::{api, config, count, node, until};
use crate::effects::http_upstream::HttpUpstream;
use crate::effects::node::Dirs;

fn pay(shop: &HttpUpstream) -> String {
    format!(
        "base_url = {:?}\n[effects.\"pay.charge\"]\npath = \"/charge\"\n",
        shop.url
    )
}

/// Requirements: R2.
#[tokio::test(flavor = "multi_thread")]
async fn saga_and_effect_roles_run_in_separate_nodes() {
    let server = NatsServer::start();
    let shop = HttpUpstream::open().await;
    let dirs = Dirs::new(&[("pay", &pay(&shop))]);
    let sagas = node(&server, &dirs, Role::Saga, |_| {}).await;
    let effects = node(&server, &dirs, Role::Effect, |_| {}).await;
    assert_eq!(effects.get("/info").await["roles"], json!(["effect"]));
    assert_eq!(sagas.get("/info").await["roles"], json!(["saga"]));
    for (tenant, order) in [("", "o-1"), ("acme", "o-2")] {
        sagas.pay(tenant, order, json!({ "amount": 7 })).await;
        assert_eq!(sagas.end(tenant, order).await["status"], "completed");
    }
    shop.script(402, &[], "{\"why\": \"no funds\"}");
    sagas.pay("acme", "o-3", json!({})).await;
    assert_eq!(sagas.end("acme", "o-3").await["status"], "failed");
    let received = shop.received();
    assert_eq!(received.len(), 3);
    let keys: std::collections::BTreeSet<_> = received
        .iter()
        .map(|received| received.header("idempotency-key"))
        .collect();
    assert_eq!(
        (
            keys.len(),
            received[1].header("x-tenant-id"),
            received[1].header("x-correlation-id")
        ),
        (3, "acme", "o-2")
    );
    assert_eq!(
        count(
            &server,
            "WORKFLOW_EVENTS",
            "tenant.acme.effect_result.pay%2Echarge.*"
        )
        .await,
        2
    );
    assert!(!dirs.path("data").join("bus").exists());
    assert_eq!(effects.get("/health").await["status"], "ok");
    assert!(effects.app.drain().await);
    effects.app.stop().await.unwrap();
    sagas.app.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn result_published_during_saga_downtime_is_found() {
    let server = NatsServer::start();
    let shop = HttpUpstream::open().await;
    let dirs = Dirs::new(&[("pay", &pay(&shop))]);
    let sagas = node(&server, &dirs, Role::Saga, |_| {}).await;
    sagas.pay("", "o-1", json!({})).await;
    until(async || (count(&server, "WORKFLOW_COMMANDS", "effect.>").await == 1).then_some(()))
        .await;
    sagas.app.stop().await.unwrap();
    let effects = node(&server, &dirs, Role::Effect, |_| {}).await;
    until(async || (count(&server, "WORKFLOW_EVENTS", "effect_result.>").await == 1).then_some(()))
        .await;
    effects.app.stop().await.unwrap();
    drop(sagas);
    let sagas = node(&server, &dirs, Role::Saga, |_| {}).await;
    assert_eq!(sagas.end("", "o-1").await["status"], "completed");
    assert_eq!(shop.received().len(), 1);
    sagas.app.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn lost_command_is_dispatched_again() {
    let server = NatsServer::start();
    let shop = HttpUpstream::open().await;
    let dirs = Dirs::new(&[("pay", &pay(&shop))]);
    let sagas = node(&server, &dirs, Role::Saga, |_| {}).await;
    sagas.pay("", "o-1", json!({})).await;
    until(async || (count(&server, "WORKFLOW_COMMANDS", "effect.>").await == 1).then_some(()))
        .await;
    api(&server, "STREAM.PURGE.WORKFLOW_COMMANDS", &json!({})).await;
    let effects = node(&server, &dirs, Role::Effect, |_| {}).await;
    assert_eq!(sagas.end("", "o-1").await["status"], "completed");
    assert_eq!(shop.received().len(), 1);
    effects.app.stop().await.unwrap();
    sagas.app.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn reload_starts_workers_for_new_effects() {
    let server = NatsServer::start();
    let shop = HttpUpstream::open().await;
    let dirs = Dirs::new(&[]);
    let effects = node(&server, &dirs, Role::Effect, |_| {}).await;
    let sagas = node(&server, &dirs, Role::Saga, |_| {}).await;
    sagas.pay("", "o-1", json!({})).await;
    until(async || (count(&server, "WORKFLOW_COMMANDS", "effect.>").await == 1).then_some(()))
        .await;
    dirs.describe("pay", &pay(&shop));
    assert_eq!(effects.reload().await.0, StatusCode::OK);
    assert_eq!(sagas.end("", "o-1").await["status"], "completed");
    effects.app.stop().await.unwrap();
    sagas.app.stop().await.unwrap();
}

#[test]
fn separate_role_without_nats_is_rejected() {
    for role in ["saga", "effect"] {
        let error = Layers::none()
            .flags([Setting::flag("--role", "role", role)])
            .load()
            .unwrap_err();
        let text = error.to_string();
        assert!(
            text.contains("bus.kind = \"nats\"") && text.starts_with("role: "),
            "{text}"
        );
    }
    assert_eq!(Config::default().role, Role::Combined);
}

/// Requirements: R2.
#[tokio::test(flavor = "multi_thread")]
async fn saga_role_needs_no_upstreams() {
    let server = NatsServer::start();
    let dirs = Dirs::new(&[]);
    let combined = config(&server, &dirs, Role::Combined, |_| {});
    let error = orlog::App::start(combined)
        .await
        .err()
        .expect("no upstream executes it");
    assert!(
        format!("{error:#}").contains("no upstream executes the effect pay.charge"),
        "{error:#}"
    );
    let sagas = node(&server, &dirs, Role::Saga, |_| {}).await;
    assert_eq!(sagas.get("/health").await["status"], "ok");
    sagas.app.stop().await.unwrap();
}
