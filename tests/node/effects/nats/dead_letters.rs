//! Dead letters of effect workers, stored by the node that runs sagas.

use axum::http::{Method, StatusCode};
use orlog::config::Role;
use orlog_bus::Message;
use orlog_bus::effect_queue::EffectQueue as _;
use orlog_bus::nats::{Connection, NatsEffectQueue, Options};
use orlog_testkit::nats_server::NatsServer;
use serde_json::{Value, json};

use super::{count, node, until};
use crate::effects::http_upstream::HttpUpstream;
use crate::effects::node::{Dirs, Node};

const COMMAND: &str = "tenant.acme.effect.pay%2Echarge.7f9c0000-0000-4000-8000-000000000001";

/// Returns the dead letters of a tenant if there are this many.
async fn letters(node: &Node, tenant: &str, expected: usize) -> Option<Vec<Value>> {
    let page = node.get_as(tenant, "/v1/dead-letters").await;
    page["items"]
        .as_array()
        .filter(|items| items.len() == expected)
        .cloned()
}

/// Requirements: R12, E9.
#[tokio::test(flavor = "multi_thread")]
async fn dead_letter_of_a_worker_is_listed_redriven_and_discarded() {
    let server = NatsServer::start();
    let shop = HttpUpstream::open().await;
    let upstream = format!(
        "base_url = {:?}\n[effects.\"pay.charge\"]\npath = \"/charge\"\n",
        shop.url
    );
    let dirs = Dirs::new(&[("pay", &upstream)]);
    let sagas = node(&server, &dirs, Role::Saga, |_| {}).await;
    let effects = node(&server, &dirs, Role::Effect, |_| {}).await;
    let options = Options {
        servers: vec![server.url()],
        name: "test".to_owned(),
        ..Options::default()
    };
    let queue = NatsEffectQueue::new(Connection::open(&options).await.unwrap());
    let poison = Message {
        subject: COMMAND.to_owned(),
        id: None,
        headers: vec![("x-sender".into(), "an older release".into())],
        payload: "{\"amount\": 7".into(),
    };
    queue.enqueue(poison, true).await.unwrap();
    let listed = until(async || letters(&sagas, "acme", 1).await).await;
    let letter = &listed[0];
    assert_eq!(
        (&letter["reason"], &letter["label"], &letter["node"]),
        (&json!("undecodable"), &json!(COMMAND), &json!("effect-1"))
    );
    assert!(
        letter["message"]
            .as_str()
            .unwrap()
            .contains("not an effect command"),
        "{letter}"
    );
    assert_eq!(
        letters(&sagas, "", 0).await,
        Some(Vec::new()),
        "it belongs to its tenant"
    );
    let path = format!("/v1/dead-letters/{}", letter["id"].as_str().unwrap());
    let shown = sagas.get_as("acme", &path).await;
    let original = &shown["original"]["message"];
    assert_eq!(
        (
            &original["subject"],
            &original["headers"]["x-sender"],
            &original["payload"]
        ),
        (
            &json!(COMMAND),
            &json!("an older release"),
            &json!("{\"amount\": 7")
        )
    );

    // The worker still cannot decode the command: the redrive replaces the dead letter by another one.
    let redrive = format!("{path}/redrive");
    assert_eq!(
        sagas
            .ask(Method::POST, "acme", &redrive, &json!({}))
            .await
            .0,
        StatusCode::OK
    );
    let other = until(async || {
        letters(&sagas, "acme", 1)
            .await
            .filter(|now| now[0]["id"] != letter["id"])
    })
    .await;
    assert_eq!(
        count(
            &server,
            "WORKFLOW_DEADLETTERS",
            "tenant.acme.deadletter.effect.*"
        )
        .await,
        2
    );

    let path = format!("/v1/dead-letters/{}", other[0]["id"].as_str().unwrap());
    assert_eq!(
        sagas
            .ask(Method::DELETE, "acme", &path, &Value::Null)
            .await
            .0,
        StatusCode::NO_CONTENT
    );
    sagas.app.stop().await.unwrap();
    drop(sagas);
    // The stream still has the messages; the checkpoint of the shard is after them.
    let sagas = node(&server, &dirs, Role::Saga, |_| {}).await;
    sagas.pay("acme", "o-1", json!({})).await;
    assert_eq!(sagas.end("acme", "o-1").await["status"], "completed");
    assert_eq!(letters(&sagas, "acme", 0).await, Some(Vec::new()));
    effects.app.stop().await.unwrap();
    sagas.app.stop().await.unwrap();
}

/// An original that is no effect command of the tenant is never published by a redrive.
#[tokio::test(flavor = "multi_thread")]
async fn forged_dead_letter_of_a_worker_is_stored_as_received() {
    let server = NatsServer::start();
    let sagas = node(&server, &Dirs::new(&[]), Role::Saga, |_| {}).await;
    let options = Options {
        servers: vec![server.url()],
        name: "test".to_owned(),
        ..Options::default()
    };
    let queue = NatsEffectQueue::new(Connection::open(&options).await.unwrap());
    let body = json!({
        "tenant_id": "acme", "reason": "no", "node": "worker-1", "at": "2026-11-21T08:31:00Z",
        "original": { "subject": "tenant.other.workflow.payment.o-1", "headers": {}, "payload": "{}" },
    });
    let subject = "tenant.acme.deadletter.effect.1".to_owned();
    let forged = Message {
        subject: subject.clone(),
        id: None,
        headers: Vec::new(),
        payload: body.to_string().into(),
    };
    queue.dead_letter(forged).await.unwrap();
    let listed = until(async || letters(&sagas, "acme", 1).await).await;
    assert_eq!(
        (&listed[0]["label"], &listed[0]["node"]),
        (&json!(subject), &json!("saga-1")),
        "{listed:?}"
    );
    sagas.app.stop().await.unwrap();
}
