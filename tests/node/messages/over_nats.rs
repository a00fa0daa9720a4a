//! Messages between nodes over NATS: the documented accounts, stolen and forged requests, unreachable routes, and peers that answer with
//! garbage.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use axum::http::Method;
use orlog::config::{BusKind, Config};
use orlog_bus::Message;
use orlog_bus::nats::{Connection, Options};
use orlog_bus::requests::{RequestClient as _, Response};
use orlog_testkit::WAIT_TIMEOUT;
use orlog_testkit::nats_server::NatsServer;
use orlog_testkit::wait::until;
use serde_json::{Value, json};

use super::nodes::{Identity, delivery, draft, inbox};
use super::{change, chat, context, received, send, until_status};
use crate::harness::node::Node;
use crate::signer::Draft;

/// Returns the configurations of NATS servers in docs/peers.md: of two accounts, of a leaf node, and of the servers it connects to.
/// Passwords are `secret`.
pub(super) fn documented() -> [String; 3] {
    let page = std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/peers.md"))
        .unwrap();
    let blocks = page
        .split("```conf\n")
        .skip(1)
        .map(|rest| rest.split_once("```").unwrap().0);
    let with_passwords = |text: &str| {
        let variables = [
            "$A_PASSWORD",
            "$B_PASSWORD",
            "$ORLOG_PASSWORD",
            "$LINK_PASSWORD",
            "PASSWORD",
        ];
        variables.iter().fold(text.to_owned(), |text, variable| {
            text.replace(variable, "secret")
        })
    };
    let blocks: Vec<_> = blocks.map(with_passwords).collect();
    blocks
        .try_into()
        .expect("the page has three configurations")
}

/// Returns the address over NATS of a node whose name has no characters to encode.
fn address(name: &str) -> String {
    format!("nats:orlog.node.{name}")
}

/// Connects a node to a server.
fn on(server: &NatsServer) -> impl FnOnce(&mut Config) {
    let url = server.url();
    move |config| {
        config.bus.kind = BusKind::Nats;
        config.nats.servers = vec![url];
        config.nats.manage_aggregate_stream = true;
    }
}

async fn connect(server: &NatsServer) -> Connection {
    let options = Options {
        servers: vec![server.url()],
        ..Options::default()
    };
    until("a connection", || async {
        Connection::open(&options).await.ok()
    })
    .await
}

/// Returns the message that carries a request to a node.
fn message(name: &str, draft: &Draft) -> Message {
    let target = format!("{} {}", draft.method, draft.path);
    let of_http = draft
        .headers
        .iter()
        .map(|(name, value)| (name.as_str(), value.to_str().unwrap()));
    let headers = of_http
        .chain([("orlog-request", &*target)])
        .map(|(name, value)| (name.into(), value.into()));
    let (headers, payload) = (headers.collect(), draft.body.clone().into_bytes().into());
    Message {
        subject: format!("orlog.node.{name}"),
        id: None,
        headers,
        payload,
    }
}

/// Sends a message, and returns the status and the body of the response.
async fn request(client: &Connection, message: &Message) -> (u16, Value) {
    let response = client.request(message.clone(), WAIT_TIMEOUT).await.unwrap();
    let status = response.header("orlog-status").unwrap().parse().unwrap();
    (status, serde_json::from_slice(&response.payload).unwrap())
}

/// Returns a request for a node, as its peer signs it.
fn signed(from: &Identity, to: &str, body: &Value) -> Draft {
    let mut draft = draft(body);
    draft.headers.insert("host", to.parse().unwrap());
    from.signer.sign(draft)
}

fn public_keys(document: &Value) -> Vec<Value> {
    let keys = document["keys"].as_array().unwrap().iter();
    keys.map(|key| json!({ "public_key": key["public_key"] }))
        .collect()
}

/// Adds a peer by the document at its address over NATS.
async fn add(node: &Node, name: &str) {
    let address = format!("nats:orlog.node.{}", name.replace('.', "%2E"));
    let document = until("the document of the peer", || async {
        let found = node
            .post("/v1/node-documents", &json!({ "address": address }))
            .await;
        found.status.is_success().then(|| found.ok())
    });
    let document = document.await;
    assert_eq!(
        (&document["name"], &document["address"]),
        (&json!(name), &json!(address))
    );
    let peer = json!({ "name": name, "address": address, "keys": public_keys(&document) });
    node.post("/v1/peers", &peer).await.ok();
}

/// Requirements: F6.
#[tokio::test(flavor = "multi_thread")]
async fn messages_and_results_of_two_accounts_travel_over_nats() {
    let [accounts, ..] = documented();
    let server = NatsServer::start_with(&accounts);
    let start = async |user: &str, name: &str| {
        let builder = Identity::new().builder(name).config(on(&server));
        let file = builder.dir.path().join("password");
        std::fs::write(&file, "secret").unwrap();
        let node = builder.config(|config| {
            user.clone_into(&mut config.nats.user);
            config.nats.password = Some(format!("file:{}", file.display()).parse().unwrap());
            config.identity.address = Some("https://unused.example".parse().unwrap());
        });
        let node = node.start().await;
        node.serve().await;
        node
    };
    let (a, b) = (
        start("a", "a.example.com").await,
        start("b", "b.example.com").await,
    );
    let own = a.get("/info").await.ok()["identity"]["nats_subject"].clone();
    assert_eq!(own, "orlog.node.a%2Eexample%2Ecom");
    add(&a, "b.example.com").await;
    a.post("/v1/peers/b.example.com/check", &json!({}))
        .await
        .rejected(502, "OR0124");
    add(&b, "a.example.com").await;
    let checked = a
        .post("/v1/peers/b.example.com/check", &json!({}))
        .await
        .ok();
    assert_eq!(checked["known_as"], "a.example.com");
    let refreshed = a
        .post("/v1/peers/b.example.com/refresh", &json!({}))
        .await
        .ok();
    assert_eq!(
        refreshed["address"], "nats:orlog.node.b%2Eexample%2Ecom",
        "it stays at NATS: {refreshed}"
    );
    context(&b, "shop", &[], &["context:shop@a.example.com"]).await;
    let flow = json!({ "jobs": [{ "id": "j", "type": "echo", "script": "seven" }] });
    send(
        &a,
        "shop",
        "m-1",
        &json!({ "to": "shop@b.example.com", "type": "job", "flow": flow }),
    )
    .await
    .ok();
    let ended = until_status(&a, "shop", "m-1", "processed").await;
    assert_eq!(ended["result"], json!({ "j": "seven" }));
    let mut rejected = chat("other@a.example.com", "t", "x");
    send(&b, "shop", "m-2", &rejected).await.ok();
    let ended = until_status(&b, "shop", "m-2", "error").await;
    assert_eq!(
        ended["failure"]["code"], "OR0111",
        "the rejection of the other node is final: {ended}"
    );
    context(&a, "shop", &["context:shop@b.example.com"], &[]).await;
    rejected["to"] = json!("shop@a.example.com");
    send(&b, "shop", "m-3", &rejected).await.ok();
    let chat = received(&a, "shop").await;
    change(
        &a,
        "shop",
        &chat["id"],
        "reject",
        &json!({ "reason": "not now" }),
    )
    .await
    .ok();
    let ended = until_status(&b, "shop", "m-3", "error").await;
    assert_eq!(
        ended["failure"],
        json!({ "code": "rejected", "message": "not now" })
    );
    // The trail has the peer, which has no address.
    let trail = b.get("/v1/audit").await.ok();
    let is_check = |item: &Value| {
        item["user"] == "peer:a.example.com" && item["route"] == "POST /v1/peer/check"
    };
    assert!(
        trail["items"].as_array().unwrap().iter().any(is_check),
        "{trail}"
    );
    a.stop().await;
    b.stop().await;
}

/// Requirements: F1, F6.
#[tokio::test(flavor = "multi_thread")]
async fn stolen_or_forged_request_over_nats_achieves_nothing() {
    let [a, stranger] = std::array::from_fn(|_| Identity::new());
    let (b_server, c_server) = (NatsServer::start(), NatsServer::start());
    let start = async |name: &str, server: &NatsServer| {
        let join = |config: &mut Config| a.join(config, "a", &address("a"));
        let node = Identity::new()
            .builder(name)
            .config(on(server))
            .config(join)
            .start()
            .await;
        node.serve().await;
        context(&node, "shop", &["context:shop@a"], &[]).await;
        node
    };
    // Both trust the sender.
    let (b, c) = (start("b", &b_server).await, start("c", &c_server).await);
    let (at_b, at_c) = (connect(&b_server).await, connect(&c_server).await);
    let stolen = signed(&a, "b", &delivery("shop@a", "shop@b", "m-1"));
    let sent = until("the node receives requests", || async {
        at_b.request(message("b", &stolen), WAIT_TIMEOUT).await.ok()
    });
    assert_eq!(sent.await.header("orlog-status"), Some("200"));
    until("the third node receives requests", || async {
        let document = Draft::new(Method::GET, "", "/.well-known/orlog-node", "");
        at_c.request(message("c", &document), WAIT_TIMEOUT)
            .await
            .ok()
    })
    .await;
    let code = |response: (u16, Value)| {
        (
            response.0,
            response.1["code"].as_str().unwrap_or_default().to_owned(),
        )
    };
    let replayed = code(request(&at_b, &message("b", &stolen)).await);
    assert_eq!(
        replayed,
        (401, "OR0075".to_owned()),
        "a signature is accepted once"
    );
    let at_third = code(request(&at_c, &message("c", &stolen)).await);
    assert_eq!(
        at_third,
        (401, "OR0073".to_owned()),
        "the signature is for the name of the other node"
    );
    let mut renamed = message("c", &stolen);
    renamed.payload = renamed.payload.to_vec().iter().copied().collect();
    renamed.headers.push(("host".into(), "b".into()));
    assert_eq!(
        code(request(&at_c, &renamed).await).0,
        401,
        "a header does not change the name of a node"
    );
    let fresh = |from: &Identity| signed(from, "b", &delivery("shop@a", "shop@b", "m-2"));
    let mut tampered = message("b", &fresh(&a));
    tampered.payload = String::from_utf8(tampered.payload.to_vec())
        .unwrap()
        .replace("\"x\"", "\"y\"")
        .into();
    assert_eq!(
        code(request(&at_b, &tampered).await),
        (401, "OR0073".to_owned())
    );
    assert_eq!(
        code(request(&at_b, &message("b", &fresh(&stranger))).await),
        (401, "OR0073".to_owned())
    );
    let unsigned = message("b", &draft(&delivery("shop@a", "shop@b", "m-2")));
    assert_eq!(
        code(request(&at_b, &unsigned).await),
        (403, "OR0042".to_owned())
    );
    let found: Vec<_> = inbox(&b)
        .await
        .iter()
        .map(|message| message["message_id"].clone())
        .collect();
    assert_eq!(found, ["m-1"]);
    assert_eq!(inbox(&c).await, [Value::Null; 0]);
    b.stop().await;
    c.stop().await;
}

/// Requirements: F1, F6.
#[tokio::test(flavor = "multi_thread")]
async fn only_requests_between_peers_are_reachable_over_nats() {
    let (a, server) = (Identity::new(), NatsServer::start());
    // Without authentication, every other route would be open.
    let join = |config: &mut Config| a.join(config, "a", &address("a"));
    let node = Identity::new()
        .builder("b")
        .config(on(&server))
        .config(join)
        .start()
        .await;
    node.serve().await;
    let client = connect(&server).await;
    let document = message(
        "b",
        &Draft::new(Method::GET, "", "/.well-known/orlog-node", ""),
    );
    let found = until("the document", || async {
        let response = client.request(document.clone(), WAIT_TIMEOUT).await.ok()?;
        serde_json::from_slice::<Value>(&response.payload).ok()
    });
    assert_eq!(found.await["name"], "b");
    for (method, path) in [
        (Method::GET, "/v1/sagas"),
        (Method::GET, "/info"),
        (Method::GET, "/metrics"),
        (Method::POST, "/v1/events"),
        (Method::POST, "/admin/drain"),
        (Method::POST, "/v1/peers"),
        (Method::DELETE, "/v1/peer/check"),
        (Method::POST, "/v1/peer/check?x"),
        (Method::POST, "/v1/peer/../sagas"),
        (Method::POST, "/.well-known/orlog-node"),
    ] {
        let draft = Draft::new(method, "shop", path, "{}").header("x-orlog-forwarded-by", "b");
        let (status, problem) = request(&client, &message("b", &a.signer.sign(draft))).await;
        assert_eq!(
            (status, &problem["code"]),
            (404, &json!("OR0009")),
            "{path}: {problem}"
        );
    }
    let mut without_target = document.clone();
    without_target.headers.clear();
    assert_eq!(request(&client, &without_target).await.0, 404);
    // Headers that no request of a peer needs are not applied: a grant of another pod is none.
    let granted = Draft::new(Method::POST, "", "/v1/peer/check", "{}");
    let granted = granted
        .header("x-orlog-forwarded-by", "b")
        .header("x-orlog-grant", "secret");
    let (status, problem) = request(&client, &message("b", &granted)).await;
    assert_eq!((status, &problem["code"]), (403, &json!("OR0042")));
    node.stop().await;
}

/// Requirements: F6.
#[tokio::test(flavor = "multi_thread")]
async fn peer_that_answers_with_garbage_over_nats_is_asked_again_until_the_timeout() {
    let (b, server) = (Identity::new(), NatsServer::start());
    let join = |config: &mut Config| b.join(config, "b", &address("b"));
    let node = Identity::new()
        .builder("a")
        .config(on(&server))
        .config(join)
        .start()
        .await;
    let detail = node
        .post("/v1/peers/b/check", &json!({}))
        .await
        .rejected(502, "OR0124");
    assert!(
        detail.contains("no node receives requests on this subject"),
        "{detail}"
    );
    let count = Arc::new(AtomicUsize::new(0));
    let mut requests = connect(&server)
        .await
        .requests("orlog.node.b", "orlog")
        .await
        .unwrap();
    let seen = Arc::clone(&count);
    // Every client that receives a request can answer it, but has no key of the peer.
    let report = "{\"status\": \"processed\", \"result\": 1}";
    tokio::spawn(async move {
        while let Some(request) = requests.next().await {
            let number = seen.fetch_add(1, Ordering::AcqRel);
            let (status, body) = [
                (Some("200"), report),
                (
                    Some("403"),
                    "{\"code\": \"OR0111\", \"detail\": \"denied\"}",
                ),
                (Some("200"), "{\"status\": \"done\"}"),
                (None, "{\"stream\": \"S\", \"seq\": 1}"),
                (Some("404"), "<html>"),
                (Some("fine"), "null"),
            ][number % 6];
            let headers = status
                .map(|status| ("orlog-status".into(), status.into()))
                .into_iter()
                .collect();
            request
                .respond(Response {
                    headers,
                    payload: body.into(),
                })
                .await
                .unwrap();
        }
    });
    let mut message = chat("shop@b", "t", "x");
    send(&node, "shop", "m-1", &message).await.ok();
    until("the node asks again", || async {
        (count.load(Ordering::Acquire) >= 6).then_some(())
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
    let detail = node
        .post("/v1/peers/b/check", &json!({}))
        .await
        .rejected(502, "OR0124");
    assert!(detail.contains("unexpected response"), "{detail}");
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
async fn messages_arrive_again_after_a_restart_of_the_nats_server() {
    let (a, mut server) = (Identity::new(), NatsServer::start());
    let join = |config: &mut Config| a.join(config, "a", &address("a"));
    let node = Identity::new()
        .builder("b")
        .config(on(&server))
        .config(join)
        .start()
        .await;
    node.serve().await;
    context(&node, "shop", &["context:shop@a"], &[]).await;
    server.restart();
    let client = connect(&server).await;
    // The subscription returns with the connection.
    let sent = until("the message arrives", || async {
        let draft = signed(&a, "b", &delivery("shop@a", "shop@b", "m-1"));
        let response = client
            .request(message("b", &draft), Duration::from_secs(5))
            .await
            .ok()?;
        (response.header("orlog-status") == Some("200")).then_some(response)
    });
    let report: Value = serde_json::from_slice(&sent.await.payload).unwrap();
    assert_eq!(report["status"], "dispatched");
    assert_eq!(inbox(&node).await.len(), 1);
    node.stop().await;
}
