//! Received webhooks: signatures, mapping, duplicates and tenants.

use axum::http::{Request, StatusCode};
use orlog::SystemClock;
use orlog::config::WebhookConfig;
use orlog_model::Clock as _;
use ring::hmac;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::api::content_encoding::gzip;
use crate::api::node::Node;
use crate::harness::http::HttpResponse;
use crate::harness::node::NodeBuilder;
use crate::webhooks::signature as standard_signature;

/// Secrets in files.
struct Secrets(TempDir);

impl Secrets {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        for (name, text) in [
            ("stripe", "whsec_stripe"),
            ("github", "github secret"),
            ("old", "whsec_b2xkIGtleQ=="),
            ("new", "whsec_bmV3IGtleQ=="),
            ("form", "form secret"),
        ] {
            std::fs::write(dir.path().join(name), text).unwrap();
        }
        Self(dir)
    }

    fn webhooks(&self) -> Vec<(String, WebhookConfig)> {
        let text = r#"
            [stripe]
            scheme = "stripe"
            secrets = ["file:DIR/stripe"]
            type = "= body.type == 'order.placed' ? 'OrderPlaced' : 'stripe.' + body.type"
            data = { orderId = "= body.data.order", total = "= body.data.total" }

            [github]
            scheme = "github"
            secrets = ["file:DIR/github"]
            tenant = "acme"
            type = "OrderPlaced"
            correlation = "= body.order"
            subject = "= headers['x-github-event']"
            data = { orderId = "= body.order", total = 5 }

            [standard]
            scheme = "standard-webhooks"
            secrets = ["file:DIR/old", "file:DIR/new"]
            type = "OrderPlaced"

            [form]
            scheme = "hmac-sha256"
            secrets = ["file:DIR/form"]
            signature = { header = "X-Form-Signature", prefix = "sha256=" }
            type = "OrderPlaced"
            id = "= body.delivery"
            data = { orderId = "= body.order", total = "= int(body.total)" }
        "#;
        let text = text.replace("DIR", &self.0.path().display().to_string());
        toml::from_str::<std::collections::BTreeMap<_, _>>(&text)
            .unwrap()
            .into_iter()
            .collect()
    }

    async fn node(&self) -> Node {
        Node::start_with(|config| config.webhooks.extend(self.webhooks())).await
    }
}

fn hmac_hex(key: &str, parts: &[&[u8]]) -> String {
    let tag = hmac::sign(
        &hmac::Key::new(hmac::HMAC_SHA256, key.as_bytes()),
        &parts.concat(),
    );
    hex::encode(tag)
}

fn now() -> i64 {
    SystemClock.now().as_millis() / 1000
}

async fn send(node: &Node, name: &str, headers: &[(&str, String)], body: &str) -> HttpResponse {
    let request = Request::post(format!("/v1/webhooks/{name}"));
    let request = headers.iter().fold(request, |request, (name, value)| {
        request.header(*name, value)
    });
    node.send(request.body(body.to_owned().into()).unwrap())
        .await
}

async fn stripe(node: &Node, secret: &str, time: i64, body: &Value) -> HttpResponse {
    let body = body.to_string();
    let signature = hmac_hex(secret, &[format!("{time}.").as_bytes(), body.as_bytes()]);
    let header = ("stripe-signature", format!("t={time},v1={signature},v0=00"));
    send(
        node,
        "stripe",
        &[
            header,
            ("content-type", "application/json; charset=utf-8".to_owned()),
        ],
        &body,
    )
    .await
}

async fn github(node: &Node, delivery: &str, body: &Value) -> HttpResponse {
    let body = body.to_string();
    let signature = format!("sha256={}", hmac_hex("github secret", &[body.as_bytes()]));
    let headers = [
        ("x-hub-signature-256", signature),
        ("x-github-delivery", delivery.to_owned()),
        ("x-github-event", "push".to_owned()),
        ("content-type", "application/json".to_owned()),
    ];
    send(node, "github", &headers, &body).await
}

fn placed(id: &str, order: &str) -> Value {
    json!({ "id": id, "type": "order.placed", "data": { "order": order, "total": 5 } })
}

/// Returns the ids of the instances of a tenant.
async fn orders(node: &Node, tenant: &str) -> Vec<String> {
    let path = "/v1/sagas?saga=order";
    let found = node
        .ask(
            axum::http::Method::GET,
            tenant,
            path,
            axum::body::Body::empty(),
        )
        .await
        .ok();
    let items = found["items"].as_array().unwrap();
    items
        .iter()
        .map(|item| item["correlation"].as_str().unwrap().to_owned())
        .collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn repeated_delivery_starts_one_instance() {
    let secrets = Secrets::new();
    let node = secrets.node().await;
    let first = stripe(&node, "whsec_stripe", now(), &placed("evt_1", "o-1")).await;
    assert_eq!(first.status, StatusCode::ACCEPTED, "{first:?}");
    assert_eq!(
        first.json(),
        json!({ "id": "webhook:stripe:evt_1", "duplicate": false })
    );
    let order = node
        .until("", "/v1/sagas/order/o-1", |order| {
            order["status"] == "running"
        })
        .await;
    assert_eq!(order["history"]["items"][0]["input_label"], "OrderPlaced");
    // The sender signs each attempt with its time.
    let again = stripe(&node, "whsec_stripe", now() - 60, &placed("evt_1", "o-1"))
        .await
        .ok();
    assert_eq!(
        again,
        json!({ "id": "webhook:stripe:evt_1", "duplicate": true })
    );
    // The id is that of the delivery, so a different body with it has no effect.
    let other = stripe(&node, "whsec_stripe", now(), &placed("evt_1", "o-2"))
        .await
        .ok();
    assert_eq!(other["duplicate"], true);

    let node = node.restart(|_| ()).await;
    let again = stripe(&node, "whsec_stripe", now(), &placed("evt_1", "o-1"))
        .await
        .ok();
    assert_eq!(again["duplicate"], true, "after a restart");
    stripe(&node, "whsec_stripe", now(), &placed("evt_2", "o-3"))
        .await
        .ok();
    node.until("", "/v1/sagas/order/o-3", |_| true).await;
    assert_eq!(orders(&node, "").await.len(), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn signature_covers_the_encoded_body() {
    let secrets = Secrets::new();
    let node = secrets.node().await;
    let plain = json!({ "order": "o-1" }).to_string();
    let encoded = gzip(plain.as_bytes());
    let deliver = async |encoding: &str, signed: &[u8], body: &[u8]| {
        let signature = format!("sha256={}", hmac_hex("github secret", &[signed]));
        let request = Request::post("/v1/webhooks/github")
            .header("x-hub-signature-256", signature)
            .header("x-github-delivery", "d-1")
            .header("x-github-event", "push")
            .header("content-encoding", encoding)
            .header("content-type", "application/json");
        node.send(request.body(body.to_vec().into()).unwrap()).await
    };

    let response = deliver("gzip", plain.as_bytes(), &encoded).await;
    response.rejected(401, "OR0071");
    let response = deliver("br", &encoded, &encoded).await;
    response.rejected(415, "OR0004");
    let response = deliver("gzip", plain.as_bytes(), plain.as_bytes()).await;
    response.rejected(400, "OR0038");

    let response = deliver("gzip", &encoded, &encoded).await;
    assert_eq!(response.status, StatusCode::ACCEPTED, "{response:?}");
    node.until("acme", "/v1/sagas/order/o-1", |_| true).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn rejections_do_not_disclose_the_failed_check() {
    let secrets = Secrets::new();
    let node = secrets.node().await;
    let body = placed("evt_1", "o-1");
    let json = ("content-type", "application/json".to_owned());
    let rejected = [
        stripe(&node, "wrong", now(), &body).await,
        stripe(&node, "whsec_stripe", now() - 301, &body).await,
        stripe(&node, "whsec_stripe", now() + 310, &body).await,
        send(
            &node,
            "stripe",
            std::slice::from_ref(&json),
            &body.to_string(),
        )
        .await,
        send(
            &node,
            "stripe",
            &[json, ("stripe-signature", "v1=zz".to_owned())],
            "{",
        )
        .await,
    ];
    for response in rejected {
        let detail = response.rejected(401, "OR0071");
        assert_eq!(
            detail,
            "the signature is missing, invalid or expired; the log of the node has the reason"
        );
        assert_eq!(response.headers["www-authenticate"], "Signature");
    }
    assert_eq!(orders(&node, "").await, [""; 0]);
    let unknown = send(&node, "nothing", &[], "{}")
        .await
        .rejected(404, "OR0070");
    assert_eq!(unknown, "no webhook \"nothing\" is configured");
}

#[tokio::test(flavor = "multi_thread")]
async fn webhook_acts_for_its_configured_tenant() {
    let secrets = Secrets::new();
    let node = secrets.node().await;
    let accepted = github(&node, "72d3162e", &json!({ "order": "o-1" }))
        .await
        .ok();
    let digest = "webhook:github:sha256:";
    assert!(
        accepted["id"].as_str().unwrap().starts_with(digest),
        "{accepted}"
    );
    node.until("acme", "/v1/sagas/order/o-1", |_| true).await;
    assert_eq!(orders(&node, "").await, [""; 0]);

    let body = json!({ "order": "o-2" }).to_string();
    let signature = format!("sha256={}", hmac_hex("github secret", &[body.as_bytes()]));
    let headers = [
        ("x-hub-signature-256", signature),
        ("x-github-delivery", "other".to_owned()),
        ("x-github-event", "push".to_owned()),
        ("x-tenant-id", "beta".to_owned()),
    ];
    send(&node, "github", &headers, &body).await.ok();
    node.until("acme", "/v1/sagas/order/o-2", |_| true).await;
    assert_eq!(
        orders(&node, "beta").await,
        [""; 0],
        "the sender does not select the tenant"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn recorded_delivery_with_another_unsigned_id_is_a_duplicate() {
    let secrets = Secrets::new();
    let node = secrets.node().await;
    let body = json!({ "order": "o-1" });
    let first = github(&node, "72d3162e", &body).await.ok();
    let replayed = github(&node, "00000000", &body).await.ok();
    assert_eq!(
        (&replayed["id"], &replayed["duplicate"]),
        (&first["id"], &json!(true)),
        "{replayed}"
    );
    let other = github(&node, "72d3162e", &json!({ "order": "o-2" })).await;
    assert_eq!(other.ok()["duplicate"], false, "another signed body");
}

#[tokio::test(flavor = "multi_thread")]
async fn secret_is_rotated_without_a_gap() {
    let secrets = Secrets::new();
    let node = secrets.node().await;
    let deliver = async |id: &str, keys: &[&[u8]]| {
        let body = json!({ "orderId": id, "total": 5 }).to_string();
        let time = now().to_string();
        let signatures = keys
            .iter()
            .map(|key| standard_signature(key, id, &time, body.as_bytes()));
        let headers = [
            ("webhook-id", id.to_owned()),
            ("webhook-timestamp", time.clone()),
            (
                "webhook-signature",
                signatures.collect::<Vec<_>>().join(" "),
            ),
            ("content-type", "application/json".to_owned()),
        ];
        send(&node, "standard", &headers, &body).await
    };
    deliver("o-1", &[b"old key"]).await.ok();
    deliver("o-2", &[b"new key"]).await.ok();
    deliver("o-3", &[b"another key", b"new key"]).await.ok();
    deliver("o-4", &[b"another key"])
        .await
        .rejected(401, "OR0071");
    // A changed file is a new secret.
    std::fs::write(secrets.0.path().join("next"), "another key").unwrap();
    std::fs::rename(secrets.0.path().join("next"), secrets.0.path().join("old")).unwrap();
    deliver("o-4", &[b"another key"]).await.ok();
    deliver("o-5", &[b"old key"]).await.rejected(401, "OR0071");
    node.until("", "/v1/sagas/order/o-4", |_| true).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn form_is_mapped_to_an_event() {
    let secrets = Secrets::new();
    let node = secrets.node().await;
    let send_form = async |body: &str, content_type: &str| {
        let signature = format!("sha256={}", hmac_hex("form secret", &[body.as_bytes()]));
        let headers = [
            ("x-form-signature", signature),
            ("content-type", content_type.to_owned()),
        ];
        send(&node, "form", &headers, body).await
    };
    let form = "application/x-www-form-urlencoded";
    let accepted = send_form("delivery=7&order=o-1&total=5&note=a+b%26c", form)
        .await
        .ok();
    assert_eq!(accepted["id"], "webhook:form:7");
    node.until("", "/v1/sagas/order/o-1", |_| true).await;
    send_form("delivery=8", "text/plain")
        .await
        .rejected(415, "OR0004");
    let detail = send_form("delivery=8&order=o-2&total=many", form)
        .await
        .rejected(400, "OR0072");
    assert!(
        detail.starts_with("webhooks.form.data: ` int(body.total)`"),
        "{detail}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn deliveries_with_different_ids_that_are_not_unicode_are_two_events() {
    let secrets = Secrets::new();
    let node = secrets.node().await;
    for (delivery, order) in [(r"\ud83d", "o-1"), (r"\ud83e", "o-2")] {
        let body = format!(r#"{{"delivery":"{delivery}","order":"{order}","total":"5"}}"#);
        let signature = hmac_hex("form secret", &[body.as_bytes()]);
        let headers = [
            ("x-form-signature", format!("sha256={signature}")),
            ("content-type", "application/json".to_owned()),
        ];
        // A repetition of the same bytes is the same event.
        for _ in 0..2 {
            let sent = send(&node, "form", &headers, &body).await;
            assert!(sent.status.is_success(), "{sent:?}");
        }
    }
    node.until("", "/v1/sagas?saga=order", |page| {
        page["items"].as_array().is_some_and(|all| all.len() == 2)
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn unmapped_body_names_the_expression() {
    let secrets = Secrets::new();
    let node = secrets.node().await;
    let check = async |body: Value, expected: &str| {
        let detail = stripe(&node, "whsec_stripe", now(), &body)
            .await
            .rejected(400, "OR0072");
        assert!(detail.contains(expected), "{detail}");
    };
    check(
        json!({ "type": "a" }),
        "webhooks.stripe.id: ` body.id`: `id` does not exist",
    )
    .await;
    check(
        json!({ "id": null }),
        "webhooks.stripe.id: the value is null or empty",
    )
    .await;
    check(
        json!({ "id": { "a": 1 } }),
        "id: the value must be a text or a whole number, but is a map",
    )
    .await;
    check(
        json!({ "id": "evt_1", "type": "a" }),
        "webhooks.stripe.data: ` body.data.order`",
    )
    .await;
    let long = "x".repeat(300);
    check(
        json!({ "id": long, "type": "a", "data": { "order": 1, "total": 1 } }),
        "webhooks.stripe.id: ",
    )
    .await;
    let placed =
        |kind: &str| json!({ "id": "e", "type": kind, "data": { "order": "o", "total": 1 } });
    check(placed("a\u{7}b"), "webhooks.stripe.type: ").await;

    let body = "{\"id\":";
    let signature = hmac_hex(
        "whsec_stripe",
        &[format!("{}.", now()).as_bytes(), body.as_bytes()],
    );
    let headers = [("stripe-signature", format!("t={},v1={signature}", now()))];
    let detail = send(&node, "stripe", &headers, body)
        .await
        .rejected(400, "OR0001");
    assert!(detail.contains("line 1 column 6"), "{detail}");
}

#[tokio::test(flavor = "multi_thread")]
async fn body_above_the_limit_is_rejected() {
    let secrets = Secrets::new();
    let node = Node::start_with(|config| {
        config.webhooks.extend(secrets.webhooks());
        config.http.max_body_size = 1024;
    })
    .await;
    let body = json!({ "id": "evt_1", "fill": "x".repeat(1024) });
    stripe(&node, "whsec_stripe", now(), &body)
        .await
        .rejected(413, "OR0005");
}

#[tokio::test(flavor = "multi_thread")]
async fn invalid_webhooks_prevent_the_start() {
    let secrets = Secrets::new();
    let start = async |change: fn(&mut WebhookConfig)| {
        let mut webhooks = secrets.webhooks();
        for (_, webhook) in &mut webhooks {
            change(webhook);
        }
        let builder = NodeBuilder::new().config(|config| config.webhooks.extend(webhooks));
        format!("{:#}", builder.try_start().await.err().unwrap())
    };
    let expression = start(|webhook| webhook.kind = "= bdy.type".to_owned()).await;
    assert!(
        expression.contains("webhooks.form: type: line 1, column 2"),
        "{expression}"
    );
    let secret =
        start(|webhook| webhook.secrets = vec!["file:/nowhere/secret".parse().unwrap()]).await;
    assert!(
        secret.contains("webhooks.form: cannot read secret file:/nowhere/secret"),
        "{secret}"
    );
}
