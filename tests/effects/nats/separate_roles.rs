//! Sagas in one node, effects in another.

use axum::http::StatusCode;
use orlog::Config;
use orlog::config::{Layers, Role, Setting};
use orlog_testkit::nats_server::NatsServer;
use serde_json::json;

use super::{api, config, count, node, until};
use crate::http_upstream::Shop;
use crate::node::Folders;

fn pay(shop: &Shop) -> String {
    format!("base_url = {:?}\n[effects.\"pay.charge\"]\npath = \"/charge\"\n", shop.url)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_saga_here_and_its_effects_there() {
    let Some(server) = NatsServer::start() else { return };
    let shop = Shop::open().await;
    let folders = Folders::new(&[("pay", &pay(&shop))]);
    let sagas = node(&server, &folders, Role::Saga, |_| {}).await;
    let effects = node(&server, &folders, Role::Effect, |_| {}).await;
    assert_eq!(effects.get("/info").await["roles"], json!(["effect"]));
    assert_eq!(sagas.get("/info").await["roles"], json!(["saga"]));
    for (tenant, order) in [("", "o-1"), ("acme", "o-2")] {
        sagas.pay(tenant, order, json!({ "amount": 7 })).await;
        assert_eq!(sagas.end(tenant, order).await["status"], "completed");
    }
    shop.answers(402, &[], "{\"why\": \"no funds\"}");
    sagas.pay("acme", "o-3", json!({})).await;
    assert_eq!(sagas.end("acme", "o-3").await["status"], "failed");
    let asked = shop.asked();
    assert_eq!(asked.len(), 3);
    let keys: std::collections::BTreeSet<_> =
        asked.iter().map(|asked| asked.header("idempotency-key")).collect();
    assert_eq!(
        (keys.len(), asked[1].header("x-tenant-id"), asked[1].header("x-correlation-id")),
        (3, "acme", "o-2")
    );
    assert_eq!(count(&server, "WORKFLOW_EVENTS", "tenant.acme.effect_result.pay%2Echarge.*").await, 2);
    assert!(!folders.path("data").join("bus").exists());
    assert_eq!(effects.get("/health").await["status"], "ok");
    assert!(effects.app.drain().await);
    effects.app.stop().await.unwrap();
    sagas.app.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_result_that_came_while_the_sagas_were_down_is_found() {
    let Some(server) = NatsServer::start() else { return };
    let shop = Shop::open().await;
    let folders = Folders::new(&[("pay", &pay(&shop))]);
    let sagas = node(&server, &folders, Role::Saga, |_| {}).await;
    sagas.pay("", "o-1", json!({})).await;
    until(async || (count(&server, "WORKFLOW_COMMANDS", "effect.>").await == 1).then_some(())).await;
    sagas.app.stop().await.unwrap();
    let effects = node(&server, &folders, Role::Effect, |_| {}).await;
    until(async || (count(&server, "WORKFLOW_EVENTS", "effect_result.>").await == 1).then_some(())).await;
    effects.app.stop().await.unwrap();
    drop(sagas);
    let sagas = node(&server, &folders, Role::Saga, |_| {}).await;
    assert_eq!(sagas.end("", "o-1").await["status"], "completed");
    assert_eq!(shop.asked().len(), 1);
    sagas.app.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_command_that_the_servers_have_lost_is_offered_again() {
    let Some(server) = NatsServer::start() else { return };
    let shop = Shop::open().await;
    let folders = Folders::new(&[("pay", &pay(&shop))]);
    let sagas = node(&server, &folders, Role::Saga, |_| {}).await;
    sagas.pay("", "o-1", json!({})).await;
    until(async || (count(&server, "WORKFLOW_COMMANDS", "effect.>").await == 1).then_some(())).await;
    api(&server, "STREAM.PURGE.WORKFLOW_COMMANDS", &json!({})).await;
    let effects = node(&server, &folders, Role::Effect, |_| {}).await;
    assert_eq!(sagas.end("", "o-1").await["status"], "completed");
    assert_eq!(shop.asked().len(), 1);
    effects.app.stop().await.unwrap();
    sagas.app.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reload_brings_workers_for_new_effects() {
    let Some(server) = NatsServer::start() else { return };
    let shop = Shop::open().await;
    let folders = Folders::new(&[]);
    let effects = node(&server, &folders, Role::Effect, |_| {}).await;
    let sagas = node(&server, &folders, Role::Saga, |_| {}).await;
    sagas.pay("", "o-1", json!({})).await;
    until(async || (count(&server, "WORKFLOW_COMMANDS", "effect.>").await == 1).then_some(())).await;
    folders.describe("pay", &pay(&shop));
    assert_eq!(effects.reload().await.0, StatusCode::OK);
    assert_eq!(sagas.end("", "o-1").await["status"], "completed");
    effects.app.stop().await.unwrap();
    sagas.app.stop().await.unwrap();
}

#[test]
fn a_role_without_nats_is_refused() {
    for role in ["saga", "effect"] {
        let error = Layers::none().flags([Setting::flag("--roles", "roles", role)]).load().unwrap_err();
        let text = error.to_string();
        assert!(text.contains("bus.kind = \"nats\"") && text.starts_with("roles: "), "{text}");
    }
    assert_eq!(Config::default().roles, Role::Combined);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_definition_needs_no_upstream_where_effects_are_performed_elsewhere() {
    let Some(server) = NatsServer::start() else { return };
    let folders = Folders::new(&[]);
    let combined = config(&server, &folders, Role::Combined, |_| {});
    let error = orlog::App::start(combined).await.err().expect("nobody performs it");
    assert!(format!("{error:#}").contains("no upstream performs the effect pay.charge"), "{error:#}");
    let sagas = node(&server, &folders, Role::Saga, |_| {}).await;
    assert_eq!(sagas.get("/health").await["status"], "ok");
    sagas.app.stop().await.unwrap();
}
