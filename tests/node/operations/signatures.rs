//! Requests that actors sign: accepted once within their time, with the rights of the actor.

use std::sync::Arc;

use axum::http::{HeaderValue, Method, StatusCode};
use orlog::config::{AuthMode, Config};
use orlog_model::{ActorId, Timestamp};
use orlog_testkit::wait::{until_ok, within};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::harness::http::{self, HttpResponse, client};
use crate::harness::node::{Node, NodeBuilder};
use crate::signer::{Draft, Signer};

const DEFINITION: &str = "saga: order\nversion: 1\nstart: OrderPlaced\ncorrelate: orderId\n\
    steps:\n  - { id: paid, do: { event: OrderPaid } }\n";

fn event(id: &str) -> String {
    json!({
        "specversion": "1.0", "id": format!("e-{id}"), "source": "urn:shop", "type": "OrderPlaced",
        "data": { "orderId": id }
    })
    .to_string()
}

fn publish(id: &str) -> Draft {
    Draft::new(Method::POST, "acme", "/v1/events", event(id))
        .header("content-type", "application/cloudevents+json")
}

fn list() -> Draft {
    Draft::new(Method::GET, "acme", "/v1/sagas?limit=10", "")
}

fn builder(configure: impl FnOnce(&mut Config)) -> NodeBuilder {
    NodeBuilder::new()
        .definition("order", DEFINITION)
        .config(|config| config.auth.mode = AuthMode::Token)
        .config(configure)
}

/// Returns a node in the directory of an earlier one, with this administrator.
fn on(dir: Arc<TempDir>, admin: &Signer) -> NodeBuilder {
    NodeBuilder::on(dir).config(|config| {
        config.auth.mode = AuthMode::Token;
        admin.join(config, "ada", "admin", "*");
    })
}

/// Starts a node that accepts signatures from before its start, because it has the nonces of an earlier process.
async fn restarted(admin: &Signer) -> Node {
    let dir = builder(|_| {}).start().await.stop().await;
    on(dir, admin).start().await
}

async fn send(node: &Node, draft: &Draft) -> HttpResponse {
    node.send(draft.request()).await
}

/// Returns the value of a rejection counter.
async fn rejections(node: &Node, reason: &str) -> u64 {
    let token = std::fs::read_to_string(node.dir.path().join("data/admin-token")).unwrap();
    let request = list().header("authorization", &format!("Bearer {}", token.trim()));
    let request = Draft {
        path: "/metrics".to_owned(),
        ..request
    };
    let text = send(node, &request).await.text;
    let series = format!("orlog_http_signatures_rejected_total{{reason=\"{reason}\"}} ");
    text.lines()
        .find_map(|line| line.strip_prefix(&series))
        .map_or(0, |count| count.parse().unwrap())
}

/// Requirements: F1.
#[tokio::test(flavor = "multi_thread")]
async fn signed_request_has_the_rights_of_its_actor_and_a_record_with_its_key() {
    let (ada, bob) = (Signer::new(), Signer::new());
    let node = builder(|config| {
        ada.join(config, "ada", "operator", "acme");
        bob.join(config, "bob", "auditor", "*");
    });
    let node = node.start().await;
    send(&node, &ada.sign(publish("o-1"))).await.ok();
    send(&node, &ada.sign(list())).await.ok();
    // The only tenant of the actor applies without a header.
    send(
        &node,
        &ada.sign(Draft::new(Method::GET, "", "/v1/sagas", "")),
    )
    .await
    .ok();
    send(
        &node,
        &ada.sign(Draft::new(Method::GET, "beta", "/v1/sagas", "")),
    )
    .await
    .rejected(403, "OR0043");
    send(
        &node,
        &ada.sign(Draft::new(Method::POST, "", "/admin/drain", "")),
    )
    .await
    .rejected(403, "OR0042");
    send(&node, &bob.sign(publish("o-2")))
        .await
        .rejected(403, "OR0042");
    let caller = send(
        &node,
        &ada.sign(Draft::new(Method::GET, "", "/auth/caller", "")),
    )
    .await
    .ok();
    assert_eq!(
        (&caller["user"], &caller["key"]),
        (&json!("ada"), &json!(ada.key.key_id().to_string()))
    );
    let trail = send(
        &node,
        &bob.sign(Draft::new(Method::GET, "acme", "/v1/audit", "")),
    )
    .await
    .ok();
    let record = &trail["items"][0];
    assert_eq!(
        (&record["user"], &record["route"]),
        (&json!("ada"), &json!("POST /v1/events")),
        "{trail}"
    );
    assert_eq!(record["key"], ada.key.key_id().to_string());
    // Other credentials apply beside it.
    send(&node, &list()).await.rejected(401, "OR0040");
    let token = std::fs::read_to_string(node.dir.path().join("data/admin-token")).unwrap();
    let bearer = list().header("authorization", &format!("Bearer {}", token.trim()));
    send(&node, &bearer).await.ok();
}

/// Requirements: F1.
#[tokio::test(flavor = "multi_thread")]
async fn changed_request_and_unknown_key_are_rejected_with_the_same_message() {
    let (ada, eve) = (Signer::new(), Signer::new());
    let node = builder(|config| ada.join(config, "ada", "admin", "*"))
        .start()
        .await;
    let mut details = Vec::new();
    let signed = || ada.sign(publish("o-1").header("idempotency-key", "k"));
    let with = |name: &'static str, value: &str| signed().header(name, value);
    for changed in [
        Draft {
            method: Method::PUT,
            ..signed()
        },
        Draft {
            path: "/v1/events?x=1".to_owned(),
            ..signed()
        },
        Draft {
            path: "/v1/events/".to_owned(),
            ..signed()
        },
        with("host", "localhost:7071"),
        with("content-type", "application/json"),
        with("x-tenant-id", "beta"),
        with("idempotency-key", "l"),
        with(
            "content-digest",
            "sha-256=:X48E9qOokqqrvdts8nOJRJN3OWDUoyWxBf7kbu9DBPE=:",
        ),
    ] {
        let response = send(&node, &changed).await;
        if response.status == StatusCode::NOT_FOUND
            || response.status == StatusCode::METHOD_NOT_ALLOWED
        {
            // No such route, so no effect.
            continue;
        }
        details.push(response.rejected(401, "OR0073"));
    }
    assert!(details.len() >= 6, "{details:?}");
    let unknown = send(&node, &eve.sign(publish("o-1")))
        .await
        .rejected(401, "OR0073");
    let neutral =
        |detail: &str, signer: &Signer| detail.replace(&signer.key.key_id().to_string(), "KEY");
    for detail in &details {
        assert_eq!(neutral(detail, &ada), neutral(&unknown, &eve));
    }
    assert!(
        unknown.contains("the node does not know the key"),
        "{unknown}"
    );
    // A header that the signature does not cover, and one that the client removed.
    let added = ada.sign(publish("o-1")).header("ce-subject", "s");
    assert!(
        send(&node, &added)
            .await
            .rejected(401, "OR0073")
            .contains("does not cover ce-subject")
    );
    let mut removed = signed();
    removed.headers.remove("x-tenant-id");
    assert!(
        send(&node, &removed)
            .await
            .rejected(401, "OR0073")
            .contains("does not have")
    );
    let mut malformed = signed();
    malformed.headers.insert(
        "signature-input",
        HeaderValue::from_static("orlog=(\"@method\";tag=\"orlog\""),
    );
    assert!(
        send(&node, &malformed)
            .await
            .rejected(401, "OR0073")
            .contains("signature-input is malformed")
    );
    assert_eq!(
        rejections(&node, "not_authentic").await,
        details.len() as u64 + 1
    );
    assert_eq!(rejections(&node, "unreadable").await, 3);
    let found = send(
        &node,
        &ada.sign(Draft::new(Method::GET, "acme", "/v1/sagas", "")),
    )
    .await
    .ok();
    assert_eq!(found["items"], json!([]), "no request had an effect");
}

/// Requirements: F1.
#[tokio::test(flavor = "multi_thread")]
async fn signature_for_an_address_of_several_nodes_needs_the_name_of_the_node() {
    let ada = Signer::new();
    let node = restarted(&ada).await;
    let url = node.serve().await;
    let own = url.strip_prefix("http://").unwrap().to_owned();
    let name = node.app.config.identity_name().unwrap().to_string();
    let sender = client();
    let ask = async |host: &str, name: Option<&str>| {
        let mut draft = list().header("host", host);
        if let Some(name) = name {
            draft = draft.header("x-orlog-node", name);
        }
        let draft = ada.sign(draft);
        let headers: Vec<_> = draft
            .headers
            .iter()
            .map(|(name, value)| (name.as_str(), value.to_str().unwrap()))
            .collect();
        http::send(
            &sender,
            "GET",
            format!("{url}{}", draft.path),
            &headers,
            None,
        )
        .await
    };

    ask(&own, None).await.ok();
    ask("10.1.2.3:7070", Some(&name)).await.ok();
    for (host, name) in [
        ("127.0.0.1:1", None),
        ("localhost:1", None),
        ("10.1.2.3:7070", None),
        (own.as_str(), Some("another-node")),
    ] {
        let detail = ask(host, name).await.rejected(401, "OR0073");
        assert!(detail.contains("x-orlog-node"), "{host} {name:?}: {detail}");
    }
    assert_eq!(rejections(&node, "node").await, 4);
}

/// Requirements: F1.
#[tokio::test(flavor = "multi_thread")]
async fn body_that_is_not_the_signed_one_has_no_effect() {
    let ada = Signer::new();
    let node = builder(|config| ada.join(config, "ada", "admin", "*"))
        .start()
        .await;
    let forged = Draft {
        body: event("o-666"),
        ..ada.sign(publish("o-1"))
    };
    let detail = send(&node, &forged).await.rejected(401, "OR0073");
    assert!(
        detail.contains("does not have the signed digest"),
        "{detail}"
    );
    let emptied = Draft {
        body: String::new(),
        ..ada.sign(publish("o-1"))
    };
    send(&node, &emptied).await.rejected(401, "OR0073");
    // Without a body, a signature needs no digest; a body that someone adds has none.
    let added = Draft {
        body: event("o-666"),
        ..ada.sign(Draft {
            body: String::new(),
            ..publish("o-1")
        })
    };
    let detail = send(&node, &added).await.rejected(401, "OR0073");
    assert!(detail.contains("does not cover content-digest"), "{detail}");
    assert_eq!(rejections(&node, "digest").await, 2);
    send(&node, &ada.sign(publish("o-1"))).await.ok();
    let found = until_ok("the order", async || {
        let found = send(&node, &ada.sign(list())).await.ok();
        if found["items"]
            .as_array()
            .is_some_and(|items| !items.is_empty())
        {
            Ok(found)
        } else {
            Err(found.to_string())
        }
    });
    let found = found.await;
    let ids: Vec<_> = found["items"]
        .as_array()
        .unwrap()
        .iter()
        .map(|item| &item["correlation"])
        .collect();
    assert_eq!(ids, ["o-1"], "{found}");
}

/// Requirements: F1.
#[tokio::test(flavor = "multi_thread")]
async fn expired_signature_and_wrong_clock_are_rejected_with_the_time_of_the_node() {
    let ada = Signer::new();
    let node = restarted(&ada).await;
    for (offset, expected) in [
        (600, "s after the time of the node"),
        (-600, "s old, the limit is 300s"),
    ] {
        let draft = ada.sign(Draft { offset, ..list() });
        let detail = send(&node, &draft).await.rejected(401, "OR0074");
        assert!(detail.contains(expected), "{detail}");
        let (_, time) = detail.split_once("time of the node: ").unwrap();
        let time = Timestamp::parse(time).unwrap();
        let difference =
            time.as_millis() - orlog_model::Clock::now(&orlog::SystemClock).as_millis();
        assert!(difference.abs() < 60_000, "{detail}");
    }
    for offset in [20, -200] {
        send(&node, &ada.sign(Draft { offset, ..list() }))
            .await
            .ok();
    }
    assert_eq!(rejections(&node, "time").await, 2);
}

/// Requirements: F1.
#[tokio::test(flavor = "multi_thread")]
async fn repeated_signature_is_rejected_also_after_a_restart() {
    let ada = Signer::new();
    let node = builder(|config| ada.join(config, "ada", "admin", "*"))
        .start()
        .await;
    let (first, second) = (ada.sign(publish("o-1")), ada.sign(list()));
    send(&node, &first).await.ok();
    let detail = send(&node, &first).await.rejected(401, "OR0075");
    assert!(detail.contains("Sign the request again"), "{detail}");
    send(&node, &second).await.ok();
    assert_eq!(rejections(&node, "replayed").await, 1);
    let dir = node.stop().await;
    let node = on(dir, &ada).start().await;
    for repeated in [&first, &second] {
        send(&node, repeated).await.rejected(401, "OR0075");
    }
    send(&node, &ada.sign(list())).await.ok();
}

/// Returns the number of nonces in the files of a node.
fn stored_nonces(node: &Node) -> u64 {
    let files = std::fs::read_dir(node.dir.path().join("data/nonces")).unwrap();
    let nonces = files
        .map(|file| file.unwrap())
        .filter(|file| file.path().extension().is_some_and(|end| end == "log"));
    nonces.map(|file| file.metadata().unwrap().len() / 16).sum()
}

/// Requirements: F1.
#[tokio::test(flavor = "multi_thread")]
async fn denied_requests_use_the_rate_of_their_caller_before_they_store_a_nonce() {
    let rita = Signer::new();
    let node = builder(|config| {
        rita.join(config, "rita", "viewer", "acme");
        config.http.per_caller.max_requests_per_second = 1;
        config.http.per_caller.request_burst = 2;
    })
    .start()
    .await;

    let mut denied = 0;
    let mut limited = 0;
    for number in 0..60 {
        let request = rita.sign(publish(&format!("o-{number}")));
        match send(&node, &request).await.status.as_u16() {
            403 => denied += 1,
            429 => limited += 1,
            status => panic!("status {status}"),
        }
    }
    assert!(
        denied >= 2 && limited > 0,
        "{denied} denied, {limited} limited"
    );
    assert_eq!(stored_nonces(&node), denied);

    // Requests without a caller count for their address.
    let stranger = list().header("authorization", "Bearer unknown");
    let mut statuses = Vec::new();
    for _ in 0..60 {
        statuses.push(send(&node, &stranger).await.status.as_u16());
    }
    assert_eq!(statuses[0], 401);
    assert!(statuses.contains(&429), "{statuses:?}");
}

/// Requirements: F1.
#[tokio::test(flavor = "multi_thread")]
async fn repeated_signatures_use_the_rate_of_their_address_only() {
    let ada = Signer::new();
    let node = builder(|config| {
        ada.join(config, "ada", "admin", "*");
        config.http.per_caller.max_requests_per_second = 1;
        config.http.per_caller.request_burst = 2;
    })
    .start()
    .await;

    let request = ada.sign(list());
    send(&node, &request).await.ok();
    let mut statuses = Vec::new();
    for _ in 0..60 {
        statuses.push(send(&node, &request).await.status.as_u16());
    }
    assert_eq!(statuses[0], 401);
    assert!(statuses.contains(&429), "{statuses:?}");
    send(&node, &ada.sign(list())).await.ok();
}

/// Requirements: F1.
#[tokio::test(flavor = "multi_thread")]
async fn signature_before_the_start_is_rejected_if_the_nonces_are_lost() {
    let ada = Signer::new();
    let node = restarted(&ada).await;
    let accepted = ada.sign(Draft {
        offset: -10,
        ..publish("o-1")
    });
    send(&node, &accepted).await.ok();
    let dir = node.stop().await;
    std::fs::remove_dir_all(dir.path().join("data/nonces")).unwrap();
    let node = on(Arc::clone(&dir), &ada).start().await;
    let detail = send(&node, &accepted).await.rejected(401, "OR0074");
    assert!(
        detail.contains("older than the start of the node"),
        "{detail}"
    );
    send(&node, &ada.sign(list())).await.ok();
    node.stop().await;
    // The machine crashed: signatures of clients with fast clocks may have been accepted, too.
    std::fs::write(dir.path().join("data/nonces/boot"), "another boot").unwrap();
    let long = |config: &mut Config| config.auth.signatures.leeway = config.auth.signatures.window;
    let node = on(dir, &ada).config(long).start().await;
    let detail = send(&node, &ada.sign(list())).await.rejected(503, "OR0020");
    assert!(
        detail.contains("has crashed") && detail.contains("sign the request again in"),
        "{detail}"
    );
    send(
        &node,
        &ada.sign(Draft {
            offset: 29,
            ..list()
        }),
    )
    .await
    .rejected(503, "OR0020");
}

/// Requirements: F1.
#[tokio::test(flavor = "multi_thread")]
async fn revoked_and_expired_keys_are_rejected_and_only_their_owner_learns_it() {
    let [ada, old, early, eve] = [(); 4].map(|()| Signer::new());
    let now = orlog_model::Clock::now(&orlog::SystemClock).as_millis();
    let node = builder(|config| {
        ada.join(config, "ada", "admin", "*");
        old.join(config, "old", "admin", "*");
        early.join(config, "early", "admin", "*");
        let key = |config: &mut Config, id: &str| {
            config
                .auth
                .actors
                .get_mut(&ActorId::new(id).unwrap())
                .unwrap()
                .keys
                .remove(0)
        };
        for (id, change) in [("ada", 0), ("old", 1), ("early", 2)] {
            let mut key = key(config, id);
            match change {
                0 => key.revoked = true,
                1 => key.not_after = Some(Timestamp::from_millis(now - 1000)),
                _ => key.not_before = Some(Timestamp::from_millis(now + 3_600_000)),
            }
            config
                .auth
                .actors
                .get_mut(&ActorId::new(id).unwrap())
                .unwrap()
                .keys
                .push(key);
        }
    });
    let node = node.start().await;
    for (signer, expected) in [
        (&ada, "revoked"),
        (&old, "valid until"),
        (&early, "valid from"),
    ] {
        let detail = send(&node, &signer.sign(list()))
            .await
            .rejected(401, "OR0076");
        assert!(
            detail.contains(expected) && detail.contains(&signer.key.key_id().to_string()),
            "{detail}"
        );
    }
    // Another key that claims the id of the revoked one learns nothing about it.
    let mut stolen = eve.sign(list());
    let input = stolen.headers["signature-input"]
        .to_str()
        .unwrap()
        .to_owned();
    let input = input.replace(&eve.key.key_id().to_string(), &ada.key.key_id().to_string());
    stolen
        .headers
        .insert("signature-input", HeaderValue::from_str(&input).unwrap());
    send(&node, &stolen).await.rejected(401, "OR0073");
    assert_eq!(rejections(&node, "invalid_key").await, 3);
}

/// Requirements: F1, F2.
#[tokio::test(flavor = "multi_thread")]
async fn actor_of_the_registry_has_the_rights_of_its_contexts_until_its_key_is_revoked() {
    let (admin, robo) = (Signer::new(), Signer::new());
    let node = builder(|config| admin.join(config, "ada", "admin", "*"))
        .start()
        .await;
    let call = async |signer: &Signer, method: Method, path: &str, body: &Value| {
        let draft = Draft::new(method, "", path, body.to_string())
            .header("content-type", "application/json");
        send(&node, &signer.sign(draft)).await
    };
    let body = json!({ "id": "robo", "keys": [robo.key_of("robo")] });
    let created: Value = call(&admin, Method::POST, "/v1/actors", &body).await.ok();
    let key = created["keys"][0]["id"].as_str().unwrap();
    assert_eq!(key, robo.key.key_id().to_string());
    send(&node, &robo.sign(list()))
        .await
        .rejected(403, "OR0042");
    let lists = json!({ "admins": ["user:root"], "readers": ["actor:robo"] });
    let _: Value = call(&admin, Method::PUT, "/v1/contexts/acme", &lists)
        .await
        .ok();
    send(&node, &robo.sign(list())).await.ok();
    send(&node, &robo.sign(publish("o-1")))
        .await
        .rejected(403, "OR0042");
    call(&robo, Method::PUT, "/v1/contexts/acme", &lists)
        .await
        .rejected(403, "OR0042");
    let own: Value = send(
        &node,
        &robo.sign(Draft::new(Method::GET, "", "/v1/actors/robo", "")),
    )
    .await
    .ok();
    assert_eq!(own["id"], "robo");
    let revoke = format!("/v1/actors/robo/keys/{key}/revoke");
    let _: Value = call(&admin, Method::POST, &revoke, &json!({})).await.ok();
    send(&node, &robo.sign(list()))
        .await
        .rejected(401, "OR0076");
}

#[tokio::test(flavor = "multi_thread")]
async fn signatures_apply_without_authentication_of_other_requests() {
    let ada = Signer::new();
    let node = NodeBuilder::new().definition("order", DEFINITION);
    let node = node
        .config(|config| ada.join(config, "ada", "viewer", "acme"))
        .start()
        .await;
    send(&node, &ada.sign(list())).await.ok();
    send(&node, &ada.sign(publish("o-1")))
        .await
        .rejected(403, "OR0042");
    send(&node, &publish("o-1")).await.ok();
    // A signature of a proxy is not one of an actor.
    let proxied = list().header(
        "signature-input",
        "proxy=(\"@method\");created=1;keyid=\"p\"",
    );
    send(&node, &proxied.header("signature", "proxy=:AAAA:"))
        .await
        .ok();
    let caller: Value = send(
        &node,
        &ada.sign(Draft::new(Method::GET, "", "/auth/caller", "")),
    )
    .await
    .ok();
    assert_eq!(caller["tenants"], json!(["acme"]));
}

/// Requirements: F1, F2.
#[tokio::test(flavor = "multi_thread")]
async fn stream_ends_when_the_key_of_its_actor_is_revoked() {
    let (robo, node) = (Signer::new(), builder(|_| {}).start().await);
    let token = std::fs::read_to_string(node.dir.path().join("data/admin-token")).unwrap();
    let bearer = format!("Bearer {}", token.trim());
    let admin = async |method: Method, tenant: &str, path: &str, body: Value| {
        let draft =
            Draft::new(method, tenant, path, body.to_string()).header("authorization", &bearer);
        send(&node, &draft).await.ok()
    };
    admin(
        Method::POST,
        "",
        "/v1/actors",
        json!({ "id": "robo", "keys": [robo.key_of("robo")] }),
    )
    .await;
    let lists = json!({ "admins": ["user:ada"], "readers": ["actor:robo"] });
    admin(Method::PUT, "", "/v1/contexts/acme", lists).await;
    let flow = json!({ "jobs": [{ "id": "a", "type": "none", "script": "x" }] });
    let flow = admin(Method::POST, "acme", "/v1/flows", flow).await;
    let url = node.serve().await;
    let path = format!("/v1/flows/{}/lines", flow["id"].as_str().unwrap());
    let follow = Draft::new(Method::GET, "acme", &path, "").header("accept", "text/event-stream");
    let follow = robo.sign(follow.header("host", url.strip_prefix("http://").unwrap()));
    let stream = client()
        .get(format!("{url}{path}"))
        .headers(follow.headers)
        .send();
    let stream = within("the stream", stream).await.unwrap();
    assert_eq!(stream.status(), StatusCode::OK);
    let revoke = format!("/v1/actors/robo/keys/{}/revoke", robo.key.key_id());
    admin(Method::POST, "", &revoke, Value::Null).await;
    let text = within("the end of the stream", stream.text())
        .await
        .unwrap();
    assert!(!text.contains("event: end"), "{text}");
}
