//! Peers: identity, documents, keys and signed requests between two nodes.

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::sync::Arc;

use axum::Router;
use axum::http::Method;
use axum::routing::get;
use orlog_signature::SigningKey;
use orlog_testkit::SettableClock;
use orlog_testkit::wait::within;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::net::TcpListener;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use crate::harness::http::HttpResponse;
use crate::harness::node::{Node, NodeBuilder};
use crate::signer::{Draft, Signer};

/// Node that others reach at a URL.
struct Served {
    node: Node,
    url: String,
    /// Ends the server.
    shutdown: oneshot::Sender<()>,
    server: JoinHandle<std::io::Result<()>>,
}

impl Served {
    async fn start(name: &str) -> Self {
        Self::of(NodeBuilder::new(), name).await
    }

    async fn of(builder: NodeBuilder, name: &str) -> Self {
        let node = builder
            .config(|config| config.identity.name = Some(name.parse().unwrap()))
            .start()
            .await;
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let (shutdown, stopped) = oneshot::channel::<()>();
        let ended = async move { drop(stopped.await) };
        let server = tokio::spawn(orlog::api::serve(Arc::clone(&node.app), listener, ended));
        Self {
            node,
            url,
            shutdown,
            server,
        }
    }

    /// Stops the node, and returns its directory.
    async fn stop(self) -> Arc<TempDir> {
        self.shutdown.send(()).unwrap();
        within("the end of the server", self.server)
            .await
            .unwrap()
            .unwrap();
        self.node.stop().await
    }

    async fn call(&self, method: Method, path: &str, body: &Value) -> HttpResponse {
        self.node.ask(method, "", path, body.to_string()).await
    }

    async fn post(&self, path: &str, body: &Value) -> HttpResponse {
        self.call(Method::POST, path, body).await
    }

    /// Adds a peer by its document.
    async fn add(&self, other: &Self) -> Value {
        let document = self
            .post("/v1/node-documents", &json!({ "address": other.url }))
            .await
            .ok();
        let keys: Vec<_> = document["keys"]
            .as_array()
            .unwrap()
            .iter()
            .map(public)
            .collect();
        let body =
            json!({ "name": document["name"], "address": document["address"], "keys": keys });
        self.post("/v1/peers", &body).await.ok()
    }

    async fn check(&self, peer: &str) -> HttpResponse {
        self.post(&format!("/v1/peers/{peer}/check"), &json!({}))
            .await
    }

    async fn identity(&self) -> Value {
        self.node.get("/info").await.ok()["identity"].clone()
    }
}

fn public(key: &Value) -> Value {
    json!({ "public_key": key["public_key"] })
}

/// Creates a private key in a file.
fn create_key(file: &Path) {
    std::fs::write(file, SigningKey::generate_pem().unwrap()).unwrap();
    std::fs::set_permissions(file, std::fs::Permissions::from_mode(0o600)).unwrap();
}

/// Serves a document at an address of this machine.
async fn document_server(body: Vec<u8>) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let handler = get(move || std::future::ready(body.clone()));
    let router = Router::new().route("/.well-known/orlog-node", handler);
    tokio::spawn(async move { axum::serve(listener, router).await });
    url
}

/// Requirements: F6.
#[tokio::test(flavor = "multi_thread")]
async fn peers_accept_signed_requests_of_each_other_until_one_is_removed() {
    let (a, b) = (
        Served::start("a.example").await,
        Served::start("b.example").await,
    );
    let own = b.identity().await;
    assert_eq!(own["name"], "b.example");
    let added = a.add(&b).await;
    assert_eq!(
        (&added["name"], &added["address"]),
        (&json!("b.example"), &json!(b.url)),
        "{added}"
    );
    assert_eq!(
        (&added["keys"][0]["id"], &added["keys"][0]["valid"]),
        (&own["key"], &json!(true))
    );
    // The other node does not know this one yet.
    let detail = a.check("b.example").await.rejected(502, "OR0124");
    assert!(
        detail.contains("HTTP status 401") && detail.contains("does not know the key"),
        "{detail}"
    );
    b.add(&a).await;
    let checked = a.check("b.example").await.ok();
    assert_eq!(
        (&checked["peer"], &checked["known_as"]),
        (&json!("b.example"), &json!("a.example"))
    );
    b.check("a.example").await.ok();
    let listed = a.node.get("/v1/peers").await.ok();
    assert_eq!(listed["items"].as_array().unwrap().len(), 1, "{listed}");
    let removed = b
        .call(Method::DELETE, "/v1/peers/a.example", &json!({}))
        .await;
    assert_eq!(removed.status, 204);
    a.check("b.example").await.rejected(502, "OR0124");
    b.check("a.example").await.rejected(404, "OR0121");
    b.call(Method::DELETE, "/v1/peers/a.example", &json!({}))
        .await
        .rejected(404, "OR0121");
    // The audit trail of the node has both changes, and the request of the peer.
    let trail = b.node.get("/v1/audit").await.ok();
    let routes: Vec<_> = trail["items"]
        .as_array()
        .unwrap()
        .iter()
        .map(|item| &item["route"])
        .collect();
    for route in [
        "POST /v1/peers",
        "DELETE /v1/peers/{peer}",
        "POST /v1/peer/check",
    ] {
        assert!(routes.contains(&&json!(route)), "{route}: {trail}");
    }
    let of_peer = trail["items"]
        .as_array()
        .unwrap()
        .iter()
        .find(|item| item["user"] == "peer:a.example");
    assert_eq!(of_peer.unwrap()["key"], a.identity().await["key"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn identity_and_peers_survive_a_restart() {
    let b = Served::start("b.example").await;
    let (a, before) = (Served::start("a.example").await, b.identity().await);
    a.add(&b).await;
    b.add(&a).await;
    let (dir, known): (Arc<TempDir>, _) = (a.stop().await, b.node.get("/v1/peers").await.ok());
    let a = Served::of(NodeBuilder::on(dir), "a.example").await;
    a.check("b.example").await.ok();
    assert_eq!(b.identity().await, before);
    // The node has another address now.
    let moved = b
        .call(
            Method::PUT,
            "/v1/peers/a.example",
            &json!({ "address": a.url }),
        )
        .await
        .ok();
    assert_eq!(moved["keys"], known["items"][0]["keys"]);
    b.check("a.example").await.ok();
}

#[tokio::test(flavor = "multi_thread")]
async fn peer_has_no_rights_and_only_peers_reach_their_routes() {
    let (robo, peer) = (Signer::new(), Signer::new());
    let a = Served::of(
        NodeBuilder::new().config(|config| robo.join(config, "robo", "admin", "*")),
        "a",
    )
    .await;
    let keys = json!([{ "public_key": peer.key.public_key().to_string() }]);
    a.post(
        "/v1/peers",
        &json!({ "name": "b", "address": "https://b.example", "keys": keys }),
    )
    .await
    .ok();
    let send = async |signer: &Signer, method: Method, path: &str| {
        a.node
            .send(signer.sign(Draft::new(method, "", path, "")).request())
            .await
    };
    let answer = send(&peer, Method::POST, "/v1/peer/check").await.ok();
    assert_eq!(
        (&answer["node"], &answer["caller"]),
        (&json!("a"), &json!("b"))
    );
    for (method, path) in [
        (Method::GET, "/v1/sagas"),
        (Method::GET, "/v1/peers"),
        (Method::GET, "/info"),
        (Method::POST, "/v1/events"),
        (Method::POST, "/admin/drain"),
    ] {
        send(&peer, method, path).await.rejected(403, "OR0042");
    }
    send(&robo, Method::POST, "/v1/peer/check")
        .await
        .rejected(403, "OR0042");
    // Without authentication of other requests, an unsigned request is none of a peer.
    a.post("/v1/peer/check", &json!({}))
        .await
        .rejected(403, "OR0042");
    let key = peer.key.key_id();
    a.post(&format!("/v1/peers/b/keys/{key}/revoke"), &json!({}))
        .await
        .ok();
    send(&peer, Method::POST, "/v1/peer/check")
        .await
        .rejected(401, "OR0076");
    let again = json!({ "key": { "public_key": peer.key.public_key().to_string() } });
    a.post("/v1/peers/b/keys", &again)
        .await
        .rejected(409, "OR0122");
    a.post("/v1/peers/b/keys/none/revoke", &json!({}))
        .await
        .rejected(404, "OR0121");
}

/// A restored registry may name a peer as this node is called now.
#[tokio::test(flavor = "multi_thread")]
async fn peer_with_the_name_of_the_node_is_not_the_node() {
    let (peer, a) = (Signer::new(), Served::start("a").await);
    let keys = json!([{ "public_key": peer.key.public_key().to_string() }]);
    a.post(
        "/v1/peers",
        &json!({ "name": "b", "address": "https://b.example", "keys": keys }),
    )
    .await
    .ok();
    let b = Served::of(NodeBuilder::on(a.stop().await), "b").await;
    let signed = peer.sign(Draft::new(Method::POST, "", "/v1/peer/check", ""));
    b.node.send(signed.request()).await.rejected(401, "OR0073");
}

#[tokio::test(flavor = "multi_thread")]
async fn name_and_key_belong_to_one_peer() {
    let (robo, configured) = (Signer::new(), Signer::new());
    let builder = NodeBuilder::new().config(|config| {
        robo.join(config, "robo", "viewer", "acme");
        let keys = configured.actor("", "").keys;
        let peer = orlog::config::PeerConfig {
            address: "https://c.example".parse().unwrap(),
            keys,
        };
        config.peers.insert("c.example".parse().unwrap(), peer);
    });
    let a = Served::of(builder, "a.example").await;
    let own = a.identity().await["public_key"].clone();
    let add = async |name: &str, key: &Value| {
        let body = json!({ "name": name, "address": "https://b.example", "keys": [{ "public_key": key }] });
        a.post("/v1/peers", &body).await
    };
    let peer = Signer::new();
    let [first, second] =
        [&peer, &Signer::new()].map(|signer| json!(signer.key.public_key().to_string()));
    add("b.example", &first).await.ok();
    for (name, key, reason) in [
        ("b.example", &second, "exists"),
        ("a.example", &second, "name of this node"),
        ("c.example", &second, "in the configuration"),
        ("d.example", &first, "another actor or peer"),
        ("d.example", &own, "belongs to this node"),
        (
            "d.example",
            &json!(robo.key.public_key().to_string()),
            "another actor or peer",
        ),
        (
            "d.example",
            &json!(configured.key.public_key().to_string()),
            "another actor or peer",
        ),
    ] {
        let detail = add(name, key).await.rejected(409, "OR0122");
        assert!(detail.contains(reason), "{name}: {detail}");
    }
    for (body, place) in [
        (
            json!({ "name": "b c", "address": "https://b.example", "keys": [{ "public_key": second }] }),
            "/name",
        ),
        (
            json!({ "name": "d", "address": "http://d.example", "keys": [{ "public_key": second }] }),
            "/address",
        ),
        (
            json!({ "name": "d", "address": "https://d.example", "keys": [] }),
            "/keys",
        ),
        (
            json!({ "name": "d", "address": "https://d.example", "keys": [{ "public_key": "x" }] }),
            "/keys/0",
        ),
    ] {
        let detail = a.post("/v1/peers", &body).await.rejected(422, "OR0002");
        assert!(detail.contains(place), "{place}: {detail}");
    }
    // The key of a peer cannot become the key of an actor.
    let actor = json!({ "id": "eve", "keys": [peer.key_of("eve")] });
    a.post("/v1/actors", &actor).await.rejected(409, "OR0104");
    // A peer of the configuration is listed, and changed there only.
    let listed = a.node.get("/v1/peers").await.ok();
    let names: Vec<_> = listed["items"]
        .as_array()
        .unwrap()
        .iter()
        .map(|item| &item["name"])
        .collect();
    assert_eq!(names, ["b.example", "c.example"], "{listed}");
    assert_eq!(
        a.node.get("/v1/peers/c.example").await.ok()["configured"],
        true
    );
    let address = json!({ "address": "https://e.example" });
    a.call(Method::PUT, "/v1/peers/c.example", &address)
        .await
        .rejected(409, "OR0122");
    a.call(Method::DELETE, "/v1/peers/c.example", &json!({}))
        .await
        .rejected(409, "OR0122");
    let draft = configured.sign(Draft::new(Method::POST, "", "/v1/peer/check", ""));
    assert_eq!(
        a.node.send(draft.request()).await.ok()["caller"],
        "c.example"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn address_over_nats_requires_nats() {
    let a = Served::start("a.example").await;
    assert_eq!(a.identity().await["nats_subject"], Value::Null);
    let address = json!({ "address": "nats:orlog.node.b" });
    let keys = json!([{ "public_key": Signer::new().key.public_key().to_string() }]);
    let peer = |address: &str| json!({ "name": "b", "address": address, "keys": keys });
    let over_nats = a
        .post("/v1/peers", &peer("nats:orlog.node.b"))
        .await
        .rejected(422, "OR0002");
    a.post("/v1/peers", &peer("https://b.example")).await.ok();
    let replaced = a
        .call(Method::PUT, "/v1/peers/b", &address)
        .await
        .rejected(422, "OR0002");
    let document = a
        .post("/v1/node-documents", &address)
        .await
        .rejected(422, "OR0002");
    for detail in [over_nats, replaced, document] {
        assert!(
            detail.contains("/address") && detail.contains("bus.kind = \"nats\""),
            "{detail}"
        );
    }
    for address in [
        "nats:tenant.acme.workflow_event.order.o-1",
        "nats:$JS.API.STREAM.DELETE.S",
    ] {
        let detail = a
            .post("/v1/node-documents", &json!({ "address": address }))
            .await
            .rejected(422, "OR0002");
        assert!(detail.contains("nats:orlog.node.<name>"), "{detail}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn unusable_document_is_rejected_with_the_reason() {
    let (a, b) = (
        Served::start("a.example").await,
        Served::start("b.example").await,
    );
    let document = b.node.get("/.well-known/orlog-node").await.ok();
    let mut forged = document.clone();
    forged["name"] = json!("c.example");
    for (body, code, reason) in [
        (serde_json::to_vec(&forged).unwrap(), "OR0123", "is wrong"),
        (
            b"<html>welcome</html>".to_vec(),
            "OR0123",
            "no document of a node",
        ),
        (b"{}".to_vec(), "OR0123", "no document of a node"),
        (vec![b' '; 10 << 20], "OR0124", "more than 65536 bytes"),
    ] {
        let url = document_server(body).await;
        let detail = a
            .post("/v1/node-documents", &json!({ "address": url }))
            .await
            .rejected(502, code);
        assert!(detail.contains(reason) && detail.contains(&url), "{detail}");
    }
    let closed = TcpListener::bind("127.0.0.1:0")
        .await
        .unwrap()
        .local_addr()
        .unwrap();
    let body = json!({ "address": format!("http://{closed}") });
    let detail = a
        .post("/v1/node-documents", &body)
        .await
        .rejected(502, "OR0124");
    assert!(detail.contains("cannot be reached"), "{detail}");
    let internal = json!({ "address": "http://169.254.169.254" });
    let detail = a
        .post("/v1/node-documents", &internal)
        .await
        .rejected(422, "OR0002");
    assert!(detail.contains("write https://"), "{detail}");
}

#[tokio::test(flavor = "multi_thread")]
async fn difference_of_the_clocks_is_reported() {
    let clock = Arc::new(SettableClock::default());
    let slow = Arc::clone(&clock);
    let builder = NodeBuilder::new().overrides(|overrides| overrides.clock = Some(slow));
    let (a, b) = (
        Served::start("a.example").await,
        Served::of(builder, "b.example").await,
    );
    a.add(&b).await;
    b.add(&a).await;
    clock.set_offset(-600_000);
    let detail = a
        .post("/v1/node-documents", &json!({ "address": b.url }))
        .await
        .rejected(502, "OR0123");
    assert!(detail.contains("synchronize the clocks"), "{detail}");
    let detail = b.check("a.example").await.rejected(502, "OR0124");
    assert!(
        detail.contains("outside its time window") && detail.contains("600s old"),
        "{detail}"
    );
    clock.set_offset(0);
    b.check("a.example").await.ok();
}

#[tokio::test(flavor = "multi_thread")]
async fn key_is_replaced_without_a_rejected_request() {
    let (a, b) = (
        Served::start("a.example").await,
        Served::start("b.example").await,
    );
    a.add(&b).await;
    b.add(&a).await;
    let first = b.identity().await["key"].clone();
    let dir = b.stop().await;
    let [current, next] =
        ["node-key", "node-key.next"].map(|file| dir.path().join("data").join(file));
    create_key(&next);
    let b = Served::of(NodeBuilder::on(dir), "b.example").await;
    let rotating = b.identity().await;
    assert_eq!(rotating["key"], first, "the current key signs");
    a.call(
        Method::PUT,
        "/v1/peers/b.example",
        &json!({ "address": b.url }),
    )
    .await
    .ok();
    let refreshed = a.post("/v1/peers/b.example/refresh", &json!({})).await.ok();
    let ids: Vec<_> = refreshed["keys"]
        .as_array()
        .unwrap()
        .iter()
        .map(|key| &key["id"])
        .collect();
    assert_eq!(ids, [&first, &rotating["next_key"]]);
    b.check("a.example").await.ok();
    let dir = b.stop().await;
    std::fs::rename(&next, &current).unwrap();
    let b = Served::of(NodeBuilder::on(dir), "b.example").await;
    assert_eq!(b.identity().await["key"], rotating["next_key"]);
    b.check("a.example").await.ok();
    a.call(
        Method::PUT,
        "/v1/peers/b.example",
        &json!({ "address": b.url }),
    )
    .await
    .ok();
    let refreshed = a.post("/v1/peers/b.example/refresh", &json!({})).await.ok();
    assert!(
        refreshed["keys"][0]["valid_until"].is_string(),
        "the previous key ends: {refreshed}"
    );
    assert!(refreshed["keys"][1]["valid_until"].is_null(), "{refreshed}");
    // A node that lost its key is not accepted by its document.
    let dir = b.stop().await;
    create_key(&current);
    let b = Served::of(NodeBuilder::on(dir), "b.example").await;
    a.call(
        Method::PUT,
        "/v1/peers/b.example",
        &json!({ "address": b.url }),
    )
    .await
    .ok();
    let detail = a
        .post("/v1/peers/b.example/refresh", &json!({}))
        .await
        .rejected(502, "OR0123");
    assert!(
        detail.contains("no valid key of the peer b.example signed"),
        "{detail}"
    );
    b.check("a.example").await.rejected(502, "OR0124");
    let key = json!({ "key": { "public_key": b.identity().await["public_key"] } });
    a.post("/v1/peers/b.example/keys", &key).await.ok();
    b.check("a.example").await.ok();
}

#[tokio::test(flavor = "multi_thread")]
async fn another_node_at_the_address_of_a_peer_is_noticed() {
    let [a, b, c] = ["a.example", "b.example", "c.example"].map(Served::start);
    let (a, b, c) = tokio::join!(a, b, c);
    a.add(&b).await;
    c.add(&a).await;
    a.call(
        Method::PUT,
        "/v1/peers/b.example",
        &json!({ "address": c.url }),
    )
    .await
    .ok();
    let detail = a.check("b.example").await.rejected(502, "OR0124");
    let reason = "signed for another node: x-orlog-node is not \"c.example\"";
    assert!(detail.contains(reason), "{detail}");
    let detail = a
        .post("/v1/peers/b.example/refresh", &json!({}))
        .await
        .rejected(502, "OR0123");
    assert!(detail.contains("is the document of c.example"), "{detail}");
    let garbage = document_server(Vec::new()).await;
    a.call(
        Method::PUT,
        "/v1/peers/b.example",
        &json!({ "address": garbage }),
    )
    .await
    .ok();
    let detail = a.check("b.example").await.rejected(502, "OR0124");
    assert!(
        detail.contains("its response is no problem of a node"),
        "{detail}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn unusable_key_file_prevents_the_start() {
    let dir = Arc::new(tempfile::tempdir().unwrap());
    let file = dir.path().join("key");
    let start = async || {
        let builder = NodeBuilder::on(Arc::clone(&dir));
        let builder = builder.config(|config| config.identity.key_file = Some(file.clone()));
        let error = builder.try_start().await.err();
        error.map(|error| format!("{error:#}")).unwrap_or_default()
    };
    let error = start().await;
    assert!(
        error.contains("OR0120") && error.contains("cannot read"),
        "{error}"
    );
    create_key(&file);
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o644)).unwrap();
    let error = start().await;
    assert!(
        error.contains("OR0120") && error.contains("chmod 640"),
        "{error}"
    );
}
