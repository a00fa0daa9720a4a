//! Schema versions of effects over HTTP, at job workers, and over NATS.

use axum::http::{Method, StatusCode};
use orlog::config::Role;
use orlog_testkit::nats_server::NatsServer;
use serde_json::{Value, json};

use crate::effects::http_upstream::HttpUpstream;
use crate::effects::nats::node;
use crate::effects::node::{Dirs, Node};
use crate::effects::workers::worker_config;

const VERSIONED: &str = r"
saga: payment
version: 2
correlate: orderId
start: PaymentAsked
vars: { orderId: =event.orderId }
steps:
  - id: charge
    do:
      effect: pay.charge
      data: { orderId: =vars.orderId }
      version: 2
      responses: { accepts: [2, 3], upcast: { 2: { receipt: =event.id } }, on_unsupported: compensate }
    save: { receipt: =event.receipt }
    undo: { effect: pay.refund, data: { orderId: =vars.orderId } }
";

fn dirs(upstream: &str) -> Dirs {
    let dirs = Dirs::new(&[("pay", upstream)]);
    dirs.define("payment", VERSIONED);
    dirs
}

fn http(shop: &HttpUpstream) -> String {
    format!(
        "base_url = {:?}\n[effects.\"pay.charge\"]\npath = \"/charge\"\n[effects.\"pay.refund\"]\npath = \"/refund\"\n",
        shop.url
    )
}

fn outcome(saga: &Value) -> (&Value, &Value, &Value) {
    (
        &saga["status"],
        &saga["state"]["vars"]["receipt"],
        &saga["last_error"]["code"],
    )
}

/// Charges with a response of the version 2, and with one that has no version.
async fn charge(sagas: &Node, shop: &HttpUpstream) {
    shop.script(200, &[("ce-dataversion", "2")], r#"{ "id": 9 }"#);
    sagas.pay("acme", "o-1", json!({})).await;
    assert_eq!(
        outcome(&sagas.end("acme", "o-1").await),
        (&json!("completed"), &json!(9), &Value::Null)
    );
    assert_eq!(shop.received()[0].header("ce-dataversion"), "2");

    shop.script(200, &[], r#"{ "number": 9 }"#);
    sagas.pay("acme", "o-2", json!({})).await;
    let failed = sagas.end("acme", "o-2").await;
    assert_eq!(
        outcome(&failed),
        (&json!("failed"), &Value::Null, &json!("schema_version")),
        "{failed}"
    );
    let paths: Vec<_> = shop
        .received()
        .iter()
        .map(|request| request.uri.path().to_owned())
        .collect();
    assert_eq!(
        paths,
        ["/charge", "/charge", "/refund"],
        "the charge was executed"
    );
    assert_eq!(shop.received()[2].header("ce-dataversion"), "");
}

/// Requirements: R13.
#[tokio::test(flavor = "multi_thread")]
async fn http_requests_and_responses_have_versions() {
    let shop = HttpUpstream::open().await;
    let node = dirs(&http(&shop)).start().await;
    charge(&node, &shop).await;
}

/// Requirements: R13.
#[tokio::test(flavor = "multi_thread")]
async fn commands_and_results_on_nats_have_versions() {
    let (server, shop) = (NatsServer::start(), HttpUpstream::open().await);
    let dirs = dirs(&http(&shop));
    let sagas = node(&server, &dirs, Role::Saga, |_| {}).await;
    let effects = node(&server, &dirs, Role::Effect, |_| {}).await;
    charge(&sagas, &shop).await;
    effects.app.stop().await.unwrap();
    sagas.app.stop().await.unwrap();
}

/// Requirements: R13.
#[tokio::test(flavor = "multi_thread")]
async fn jobs_and_their_results_have_versions() {
    let node =
        dirs(&worker_config("").replace("[\"pay.charge\"]", "[\"pay.charge\", \"pay.refund\"]"))
            .start()
            .await;
    node.pay("acme", "o-1", json!({})).await;
    let request = json!({ "effects": ["pay.charge"], "worker": "w-1", "wait_seconds": 20 });
    let (_, response) = node
        .ask(Method::POST, "acme", "/v1/work/claim", &request)
        .await;
    let job = &response["jobs"][0];
    assert_eq!(job["version"], 2, "{response}");
    let path = format!("/v1/work/jobs/{}/result", job["job"].as_str().unwrap());
    let invalid =
        json!({ "claim": job["claim"], "result": "succeeded", "payload": {}, "version": 0 });
    let (status, problem) = node.ask(Method::POST, "acme", &path, &invalid).await;
    assert_eq!(
        (status, &problem["code"]),
        (StatusCode::UNPROCESSABLE_ENTITY, &json!("OR0002")),
        "{problem}"
    );
    let result = json!({ "claim": job["claim"], "result": "succeeded", "payload": { "id": 9 }, "version": 2 });
    assert_eq!(
        node.ask(Method::POST, "acme", &path, &result).await.0,
        StatusCode::OK
    );
    assert_eq!(
        outcome(&node.end("acme", "o-1").await),
        (&json!("completed"), &json!(9), &Value::Null)
    );
}
