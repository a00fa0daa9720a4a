//! Messages between nodes in this process: stolen and forged requests, peers that answer with garbage, and a node that was away.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use axum::Router;
use axum::http::{Method, StatusCode};
use axum::routing::post;
use orlog::config::{ActorKeyConfig, Config, PeerConfig};
use orlog_effect::{FunctionProvider, Policy};
use orlog_signature::SigningKey;
use orlog_testkit::wait::until;
use serde_json::{Value, json};
use tokio::net::TcpListener;

use super::{change, chat, context, received, send, until_status};
use crate::harness::node::{Node, NodeBuilder};
use crate::signer::{Draft, Signer};

const PATH: &str = "/v1/peer/messages";

/// Key of a node, as a file and as a signer.
pub(super) struct Identity {
    pub(super) signer: Signer,
    pem: String,
}

impl Identity {
    pub(super) fn new() -> Self {
        let pem = SigningKey::generate_pem().unwrap();
        Self {
            signer: Signer {
                key: SigningKey::from_pem(&pem).unwrap(),
            },
            pem,
        }
    }

    /// Returns a builder of the node with this key.
    pub(super) fn builder(&self, name: &str) -> NodeBuilder {
        use std::os::unix::fs::PermissionsExt as _;
        let builder = NodeBuilder::new();
        let file = builder.dir.path().join("key");
        std::fs::write(&file, &self.pem).unwrap();
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o600)).unwrap();
        let jobs = FunctionProvider::new().effect("job.echo", |call| async move {
            Ok(call.payload["script"].clone())
        });
        builder
            .upstream(jobs.upstream("jobs", Policy::default()))
            .config(|config| {
                config.identity.name = Some(name.parse().unwrap());
                config.identity.key_file = Some(file);
            })
    }

    /// Adds the node with this key to the peers of a configuration.
    pub(super) fn join(&self, config: &mut Config, name: &str, address: &str) {
        let public = self.signer.key.public_key();
        let keys = vec![ActorKeyConfig {
            public,
            not_before: None,
            not_after: None,
            revoked: false,
        }];
        config.peers.insert(
            name.parse().unwrap(),
            PeerConfig {
                address: address.parse().unwrap(),
                keys,
            },
        );
    }
}

/// Returns an address at which nothing listens.
pub(super) async fn unused_address() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    format!("http://{}", listener.local_addr().unwrap())
}

pub(super) fn delivery(from: &str, to: &str, id: &str) -> Value {
    let message = json!({
        "id": id, "from": from, "to": to, "type": "chat", "format": "text", "thread": "t", "body": "x",
        "sent_at": 1_764_000_000_000_i64,
    });
    json!({ "type": "deliver", "message": message })
}

pub(super) fn draft(body: &Value) -> Draft {
    Draft::new(Method::POST, "", PATH, body.to_string())
}

pub(super) async fn inbox(node: &Node) -> Vec<Value> {
    node.ask(Method::GET, "shop", "/v1/messages", "").await.ok()["items"]
        .as_array()
        .unwrap()
        .clone()
}

/// Requirements: F1, F6.
#[tokio::test(flavor = "multi_thread")]
async fn stolen_or_forged_message_achieves_nothing() {
    let [a, thief, stranger] = std::array::from_fn(|_| Identity::new());
    let address = unused_address().await;
    let node = Identity::new().builder("b").config(|config| {
        a.join(config, "a", &address);
        thief.join(config, "thief", &address);
    });
    let node = node.start().await;
    context(
        &node,
        "shop",
        &["context:shop@a", "context:shop@thief"],
        &[],
    )
    .await;
    let sent = a.signer.sign(draft(&delivery("shop@a", "shop@b", "m-1")));
    assert_eq!(node.send(sent.request()).await.ok()["status"], "dispatched");
    node.send(sent.request()).await.rejected(401, "OR0075");
    let again = a.signer.sign(draft(&delivery("shop@a", "shop@b", "m-1")));
    assert_eq!(
        node.send(again.request()).await.ok()["status"],
        "dispatched",
        "a repetition is harmless"
    );
    let mut changed = delivery("shop@a", "shop@b", "m-1");
    changed["message"]["body"] = json!("y");
    node.send(a.signer.sign(draft(&changed)).request())
        .await
        .rejected(409, "OR0113");
    let forged = thief
        .signer
        .sign(draft(&delivery("shop@a", "shop@b", "m-2")));
    let detail = node.send(forged.request()).await.rejected(403, "OR0115");
    assert!(detail.contains("thief"), "{detail}");
    let elsewhere = a.signer.sign(draft(&delivery("shop@a", "shop@c", "m-2")));
    node.send(elsewhere.request()).await.rejected(403, "OR0115");
    let unknown = stranger
        .signer
        .sign(draft(&delivery("shop@a", "shop@b", "m-2")));
    node.send(unknown.request()).await.rejected(401, "OR0073");
    node.send(draft(&delivery("shop@a", "shop@b", "m-2")).request())
        .await
        .rejected(403, "OR0042");
    let mut tampered = a.signer.sign(draft(&delivery("shop@a", "shop@b", "m-2")));
    tampered.body = tampered.body.replace("\"x\"", "\"y\"");
    node.send(tampered.request()).await.rejected(401, "OR0073");
    // A node cannot claim the rights of users of this one.
    let mut bold = delivery("other@a", "shop@b", "m-2");
    bold["acts_for_receiver"] = json!(true);
    let denied = node
        .send(a.signer.sign(draft(&bold)).request())
        .await
        .rejected(403, "OR0111");
    let unknown = a.signer.sign(draft(&delivery("other@a", "none@b", "m-2")));
    let unknown = node.send(unknown.request()).await.rejected(403, "OR0111");
    assert_eq!(
        denied.replace("shop@b", "none@b"),
        unknown,
        "a denied context looks like an unknown one"
    );
    let found: Vec<_> = inbox(&node)
        .await
        .iter()
        .map(|message| message["message_id"].clone())
        .collect();
    assert_eq!(found, ["m-1"]);
    // Two senders may choose the same id.
    let mut own = delivery("shop@thief", "shop@b", "m-1");
    own["message"]["type"] = json!("mail");
    own["mail"] = json!({ "effect": "job.echo", "to": ["eve@x.io"] });
    node.send(thief.signer.sign(draft(&own)).request())
        .await
        .ok();
    let found = inbox(&node).await;
    assert_eq!(found.len(), 2);
    let mail = found
        .iter()
        .find(|message| message["type"] == "mail")
        .unwrap();
    let path = format!("/v1/sagas/orlog.inbox/{}", mail["id"].as_str().unwrap());
    let mail = node.ask(Method::GET, "shop", &path, "").await.ok();
    assert_eq!(
        (&mail["pending_work"], &mail["version"]),
        (&json!([]), &json!(1)),
        "a sender requests no effect"
    );
    node.stop().await;
}

/// Requirements: F6.
#[tokio::test(flavor = "multi_thread")]
async fn only_the_receiver_reports_the_status_of_a_message() {
    let [b, thief] = std::array::from_fn(|_| Identity::new());
    let address = unused_address().await;
    let node = Identity::new().builder("a").config(|config| {
        b.join(config, "b", &address);
        thief.join(config, "thief", &address);
    });
    let node = node.start().await;
    send(&node, "shop", "m-1", &chat("shop@b", "t", "x"))
        .await
        .ok();
    let report = |to: &str| {
        let report = json!({ "status": "processed", "result": 7 });
        json!({ "type": "report", "id": "m-1", "from": "shop@a", "to": to, "report": report })
    };
    let as_b = node
        .send(thief.signer.sign(draft(&report("shop@b"))).request())
        .await;
    as_b.rejected(403, "OR0115");
    let as_itself = node
        .send(thief.signer.sign(draft(&report("shop@thief"))).request())
        .await;
    let as_itself = as_itself.rejected(404, "OR0112");
    let missing = report("shop@thief").to_string().replace("m-1", "m-9");
    let missing: Value = serde_json::from_str(&missing).unwrap();
    let missing = node
        .send(thief.signer.sign(draft(&missing)).request())
        .await
        .rejected(404, "OR0112");
    assert_eq!(
        as_itself.replace("m-1", "m-9"),
        missing,
        "the response does not tell whether the message exists"
    );
    let waiting = node
        .ask(Method::GET, "shop", "/v1/messages/m-1", "")
        .await
        .ok();
    assert_eq!(waiting["status"], "dispatched");
    let mut long = report("shop@b");
    long["report"]["result"] = json!("x".repeat(600_000));
    node.send(b.signer.sign(draft(&long)).request())
        .await
        .rejected(413, "OR0005");
    node.send(b.signer.sign(draft(&report("shop@b"))).request())
        .await
        .ok();
    let ended = until_status(&node, "shop", "m-1", "processed").await;
    assert_eq!(ended["result"], 7);
    // What arrives later changes nothing.
    let mut late = report("shop@b");
    late["report"]["status"] = json!("error");
    node.send(b.signer.sign(draft(&late)).request()).await.ok();
    let after = node
        .ask(Method::GET, "shop", "/v1/messages/m-1", "")
        .await
        .ok();
    assert_eq!(
        (&after["status"], &after["ended_at"]),
        (&json!("processed"), &ended["ended_at"])
    );
    node.stop().await;
}

/// Requirements: F6.
#[tokio::test(flavor = "multi_thread")]
async fn peer_that_answers_with_garbage_is_asked_again_until_the_timeout() {
    let b = Identity::new();
    let requests = Arc::new(AtomicUsize::new(0));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = format!("http://{}", listener.local_addr().unwrap());
    let seen = Arc::clone(&requests);
    let answer = move || {
        let number = seen.fetch_add(1, Ordering::AcqRel);
        // The rejections are those of a pod without an identity, and of an older one without the route.
        std::future::ready(
            [
                (StatusCode::OK, "{\"status\": \"done\"}"),
                (
                    StatusCode::CONFLICT,
                    "{\"code\": \"OR0120\", \"detail\": \"no identity\"}",
                ),
                (StatusCode::OK, "<html>"),
                (
                    StatusCode::NOT_FOUND,
                    "{\"code\": \"OR0009\", \"detail\": \"no route\"}",
                ),
                (StatusCode::OK, "null"),
            ][number % 5],
        )
    };
    tokio::spawn(
        async move { axum::serve(listener, Router::new().route(PATH, post(answer))).await },
    );
    let node = Identity::new()
        .builder("a")
        .config(|config| b.join(config, "b", &address))
        .start()
        .await;
    let mut message = chat("shop@b", "t", "x");
    send(&node, "shop", "m-1", &message).await.ok();
    until("the node asks again", || async {
        (requests.load(Ordering::Acquire) >= 6).then_some(())
    })
    .await;
    let waiting = node
        .ask(Method::GET, "shop", "/v1/messages/m-1", "")
        .await
        .ok();
    assert_eq!(
        (&waiting["status"], &waiting["delivered_at"]),
        (&json!("dispatched"), &Value::Null)
    );
    change(&node, "shop", &json!("m-1"), "cancel", &json!({}))
        .await
        .ok();
    message["timeouts"] = json!({ "delivery": "300ms" });
    send(&node, "shop", "m-2", &message).await.ok();
    let ended = until_status(&node, "shop", "m-2", "error").await;
    assert_eq!(ended["failure"]["code"], "delivery_timeout");
    node.stop().await;
}

/// Requirements: F6, E8.
#[tokio::test(flavor = "multi_thread")]
async fn node_that_was_away_receives_what_waits_and_its_results_return() {
    let [a, b] = std::array::from_fn(|_| Identity::new());
    let [a_listener, b_listener] = [
        TcpListener::bind("127.0.0.1:0").await.unwrap(),
        TcpListener::bind("127.0.0.1:0").await.unwrap(),
    ];
    let [a_address, b_address] = [&a_listener, &b_listener]
        .map(|listener| format!("http://{}", listener.local_addr().unwrap()));
    drop(b_listener);
    let node_a = a
        .builder("a")
        .config(|config| b.join(config, "b", &b_address))
        .start()
        .await;
    tokio::spawn(orlog::api::serve(
        Arc::clone(&node_a.app),
        a_listener,
        std::future::pending(),
    ));
    let flow = json!({ "jobs": [{ "id": "j", "type": "echo", "script": "seven" }] });
    send(
        &node_a,
        "shop",
        "m-1",
        &json!({ "to": "shop@b", "type": "job", "flow": flow }),
    )
    .await
    .ok();
    send(&node_a, "shop", "m-2", &chat("shop@b", "t", "x"))
        .await
        .ok();
    let path = "/v1/sagas/orlog.message/m-1";
    node_a
        .until("shop", path, |saga| {
            saga["pending_work"][0]["tag"] == "deliver"
        })
        .await;
    let node_b = b
        .builder("b")
        .config(|config| a.join(config, "a", &a_address))
        .start()
        .await;
    context(&node_b, "shop", &[], &["context:shop@a"]).await;
    let listener = TcpListener::bind(b_address.trim_start_matches("http://"))
        .await
        .unwrap();
    tokio::spawn(orlog::api::serve(
        Arc::clone(&node_b.app),
        listener,
        std::future::pending(),
    ));
    let ended = until_status(&node_a, "shop", "m-1", "processed").await;
    assert_eq!(ended["result"], json!({ "j": "seven" }));
    node_b
        .until("shop", "/v1/messages?type=chat", |page| {
            page["items"][0]["id"].is_string()
        })
        .await;
    let chat = node_b
        .ask(Method::GET, "shop", "/v1/messages?type=chat", "")
        .await
        .ok()["items"][0]
        .clone();
    change(
        &node_b,
        "shop",
        &chat["id"],
        "reject",
        &json!({ "reason": "not now" }),
    )
    .await
    .ok();
    let rejected = until_status(&node_a, "shop", "m-2", "error").await;
    assert_eq!(
        rejected["failure"],
        json!({ "code": "rejected", "message": "not now" })
    );
    drop(received(&node_b, "shop").await);
}
