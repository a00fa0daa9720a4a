//! Contexts and actors: lists at run time, enforced at once, durable, without hints to strangers.

use std::sync::Arc;

use axum::body::Body;
use axum::http::Method;
use futures::StreamExt as _;
use orlog_testkit::wait::{until, within};
use serde_json::{Value, json};
use tokio::net::TcpStream;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::client::IntoClientRequest as _;

use crate::harness::http::{HttpResponse, client};
use crate::harness::node::{self, NodeBuilder};
use crate::operations::issuer::{Jwks, Key, claims};
use crate::operations::node::{Node, ORDER, placed, with_issuer};

/// Node with signed tokens.
pub(super) struct Fixture {
    pub(super) node: Node,
    pub(super) key: Key,
    _jwks: Jwks,
}

impl Fixture {
    pub(super) async fn start() -> Self {
        let key = Key::ed("a");
        let jwks = Jwks::open(&[&key]).await;
        let node = Node::with_tokens(|config| config.auth.jwt.jwks_url.clone_from(&jwks.url)).await;
        Self {
            node,
            key,
            _jwks: jwks,
        }
    }

    pub(super) fn root(&self) -> String {
        self.key.token("root", "admin", &json!("*"))
    }

    /// Returns the token of a user without roles and tenants.
    pub(super) fn user(&self, name: &str) -> String {
        self.key.token(name, "", &json!([]))
    }

    pub(super) async fn call(
        &self,
        token: &str,
        method: &str,
        path: &str,
        body: Option<&Value>,
    ) -> HttpResponse {
        self.node.call(token, "", method, path, body).await
    }

    async fn put(
        &self,
        token: &str,
        tenant: &str,
        revision: Option<u64>,
        lists: &Value,
    ) -> HttpResponse {
        let bearer = format!("Bearer {token}");
        let revision = revision.map(|revision| format!("\"{revision}\""));
        let mut headers = vec![("authorization", bearer.as_str())];
        headers.extend(revision.as_deref().map(|revision| ("if-match", revision)));
        self.node
            .send(
                "PUT",
                &format!("/v1/contexts/{tenant}"),
                &headers,
                Some(lists),
            )
            .await
    }

    async fn context(&self, tenant: &str, lists: Value) -> Value {
        let response = self.put(&self.root(), tenant, None, &lists).await;
        response.ok();
        response.json()
    }
}

/// Requirements: F2.
#[tokio::test(flavor = "multi_thread")]
async fn lists_of_a_context_decide_who_reads_executes_and_administers() {
    let fixture = Fixture::start().await;
    let lists =
        json!({ "admins": ["user:ada"], "readers": ["group:audit"], "executors": ["user:robo"] });
    let created = fixture.context("acme", lists).await;
    assert_eq!(created["admins"], json!(["user:ada"]));
    let [ada, robo, eve] = ["ada", "robo", "eve"].map(|name| fixture.user(name));
    let mut grouped = claims("gwen", "", &json!([]));
    grouped["groups"] = json!(["audit"]);
    let gwen = fixture.key.sign(&grouped);
    let node = &fixture.node;
    let claim = json!({ "effects": ["test.charge"], "worker": "w", "wait_seconds": 0 });
    let event = placed("o-1");
    for (name, token, reads, executes, creates) in [
        ("ada", &ada, true, true, true),
        ("gwen", &gwen, true, false, false),
        ("robo", &robo, false, true, false),
        ("eve", &eve, false, false, false),
    ] {
        let denied = |response: &HttpResponse| response.status == 403;
        let listed = node.call(token, "acme", "GET", "/v1/sagas", None).await;
        assert_eq!(denied(&listed), !reads, "{name} reads: {listed:?}");
        let shown = fixture.call(token, "GET", "/v1/contexts/acme", None).await;
        assert_eq!(shown.status == 200, reads, "{name}: {shown:?}");
        let claimed = node
            .call(token, "acme", "POST", "/v1/work/claim", Some(&claim))
            .await;
        assert_eq!(denied(&claimed), !executes, "{name} executes: {claimed:?}");
        let published = node
            .call(token, "acme", "POST", "/v1/events", Some(&event))
            .await;
        assert_eq!(
            denied(&published),
            !creates,
            "{name} creates: {published:?}"
        );
        let all = fixture.call(token, "GET", "/v1/contexts", None).await;
        all.ok();
        assert_eq!(
            all.json()["items"].as_array().unwrap().len(),
            usize::from(reads),
            "{name}: {all:?}"
        );
        // The roles apply in this context only, and never to the node.
        assert!(
            denied(&node.call(token, "beta", "GET", "/v1/sagas", None).await),
            "{name}"
        );
        assert!(
            denied(
                &node
                    .call(token, "acme", "POST", "/admin/collect", None)
                    .await
            ),
            "{name}"
        );
        let audit = node
            .call(token, "acme", "GET", "/v1/audit?all=true", None)
            .await;
        assert!(denied(&audit), "{name}: {audit:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn stranger_cannot_tell_a_context_from_a_tenant_that_does_not_exist() {
    let fixture = Fixture::start().await;
    fixture
        .context("acme", json!({ "admins": ["user:ada"] }))
        .await;
    let denial =
        async |token: &str, tenant: &str, method: &str, path: &str, body: Option<&Value>| {
            let path = path.replace("{tenant}", tenant);
            let response = fixture.node.call(token, tenant, method, &path, body).await;
            let text = response.text.replace(tenant, "TENANT");
            (response.status.as_u16(), text)
        };
    let lists = json!({ "admins": ["user:eve"] });
    let tokens = [
        fixture.user("eve"),
        fixture.key.token("eve", "operator", &json!(["gamma"])),
        fixture.key.token("eve", "admin", &json!(["gamma"])),
    ];
    for token in &tokens {
        for (method, path, body) in [
            ("GET", "/v1/sagas", None),
            ("GET", "/v1/sagas/order/o-1", None),
            ("GET", "/v1/contexts/{tenant}", None),
            ("PUT", "/v1/contexts/{tenant}", Some(&lists)),
            ("DELETE", "/v1/contexts/{tenant}", None),
        ] {
            let existing = denial(token, "acme", method, path, body).await;
            assert_eq!(
                existing,
                denial(token, "gone", method, path, body).await,
                "{method} {path}"
            );
            assert_eq!(existing.0, 403, "{method} {path}: {existing:?}");
        }
    }
    // Roles for the tenant in a token do not replace the membership.
    let outsider = fixture.key.token("eve", "admin", &json!(["acme"]));
    let detail = fixture
        .node
        .call(&outsider, "acme", "GET", "/v1/sagas", None)
        .await
        .rejected(403, "OR0043");
    assert_eq!(detail, "no access to the tenant \"acme\"");
    let observer = fixture.key.token("eve", "viewer", &json!("*"));
    fixture
        .node
        .call(&observer, "acme", "GET", "/v1/sagas", None)
        .await
        .rejected(403, "OR0043");
    fixture
        .node
        .call(&observer, "beta", "GET", "/v1/sagas", None)
        .await
        .ok();
    fixture
        .node
        .call(&fixture.root(), "acme", "GET", "/v1/sagas", None)
        .await
        .ok();
}

/// Requirements: F2.
#[tokio::test(flavor = "multi_thread")]
async fn reads_of_all_tenants_omit_contexts_of_which_the_caller_is_no_member() {
    let key = Key::ed("a");
    let jwks = Jwks::open(&[&key]).await;
    let node = Node::with_tokens(|config| {
        config.auth.jwt.jwks_url.clone_from(&jwks.url);
        config.export.enabled = true;
    })
    .await;
    let fixture = Fixture {
        node,
        key,
        _jwks: jwks,
    };
    fixture
        .context(
            "acme",
            json!({ "admins": ["user:ada"], "readers": ["user:bob"] }),
        )
        .await;
    let root = fixture.root();
    for (tenant, order) in [("acme", "o-closed"), ("beta", "o-open")] {
        fixture
            .node
            .call(&root, tenant, "POST", "/v1/events", Some(&placed(order)))
            .await
            .ok();
        until("the instance", async || {
            let path = format!("/v1/sagas/order/{order}");
            let shown = fixture.node.call(&root, tenant, "GET", &path, None).await;
            (shown.status == 200).then_some(())
        })
        .await;
    }
    let read = async |token: &str, path: &str| {
        let response = fixture.call(token, "GET", path, None).await;
        assert_eq!(response.status, 200, "{response:?}");
        response.text
    };
    for (name, role, is_member) in [
        ("root", "admin", true),
        ("eve", "auditor", false),
        ("bob", "auditor", true),
    ] {
        let token = fixture.key.token(name, role, &json!("*"));
        let exported = read(&token, "/v1/export?all=true").await;
        assert!(exported.contains("o-open"), "{name}: {exported}");
        assert_eq!(
            exported.contains("o-closed") || exported.contains("acme"),
            is_member,
            "{name}: {exported}"
        );
        let audited = read(&token, "/v1/audit?all=true").await;
        assert!(audited.contains("\"tenant\":\"beta\""), "{name}: {audited}");
        assert_eq!(
            audited.contains("\"tenant\":\"acme\""),
            is_member,
            "{name}: {audited}"
        );
    }
    // The rows of definitions have their sources, which belong to the node.
    let bob = fixture.user("bob");
    fixture
        .node
        .call(&bob, "acme", "GET", "/v1/inspect/saga", None)
        .await
        .ok();
    let detail = fixture
        .node
        .call(&bob, "acme", "GET", "/v1/inspect/definition", None)
        .await
        .rejected(403, "OR0043");
    assert!(detail.contains("data of the node"), "{detail}");
    assert!(
        read(&root, "/v1/inspect/definition")
            .await
            .contains("saga: order")
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn roles_of_the_token_add_to_those_of_the_lists() {
    let fixture = Fixture::start().await;
    fixture
        .context(
            "acme",
            json!({ "admins": ["user:ada"], "readers": ["user:bob", "user:eve"] }),
        )
        .await;
    let publish = async |token: &str| {
        fixture
            .node
            .call(token, "acme", "POST", "/v1/events", Some(&placed("o-1")))
            .await
            .status
            .as_u16()
    };
    assert_eq!(
        publish(&fixture.key.token("bob", "publisher", &json!(["acme"]))).await,
        202
    );
    assert_eq!(publish(&fixture.user("eve")).await, 403);
    assert_eq!(
        publish(&fixture.key.token("eve", "publisher", &json!(["beta"]))).await,
        403,
        "of another tenant"
    );
    assert_eq!(
        publish(&fixture.key.token("cleo", "publisher", &json!(["acme"]))).await,
        403,
        "no member"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn change_requires_the_revision_and_applies_to_the_next_request() {
    let fixture = Fixture::start().await;
    let ada = fixture.user("ada");
    let first = fixture
        .context(
            "acme",
            json!({ "admins": ["user:ada"], "readers": ["user:bob"] }),
        )
        .await;
    let revision = first["revision"].as_u64().unwrap();
    let reads = async |name: &str| {
        fixture
            .node
            .call(&fixture.user(name), "acme", "GET", "/v1/sagas", None)
            .await
            .status
            == 200
    };
    assert!(reads("bob").await && !reads("cleo").await);
    let next = json!({ "admins": ["user:ada"], "readers": ["user:cleo"] });
    let detail = fixture
        .put(&ada, "acme", None, &next)
        .await
        .rejected(412, "OR0101");
    assert!(
        detail.contains(&format!("if-match: \"{revision}\"")),
        "{detail}"
    );
    fixture
        .put(&ada, "acme", Some(revision + 1), &next)
        .await
        .rejected(412, "OR0101");
    assert!(reads("bob").await);
    let changed = fixture.put(&ada, "acme", Some(revision), &next).await;
    changed.ok();
    assert!(!reads("bob").await && reads("cleo").await);
    let changed = changed.json();
    assert_eq!(changed["changes"][0]["by"], "ada");
    assert_eq!(changed["changes"][0]["added"], json!(["readers user:cleo"]));
    assert_eq!(
        changed["changes"][0]["removed"],
        json!(["readers user:bob"])
    );
    // A repetition of the same change is not an error, also with the old revision.
    let again = fixture.put(&ada, "acme", Some(revision), &next).await;
    again.ok();
    assert_eq!(again.json()["revision"], changed["revision"]);
    // The audit trail has the change, for its tenant.
    let audited = fixture
        .node
        .call(&ada, "acme", "GET", "/v1/audit", None)
        .await;
    audited.ok();
    let items = audited.json()["items"].clone();
    let puts: Vec<_> = items
        .as_array()
        .unwrap()
        .iter()
        .filter(|item| item["route"] == "PUT /v1/contexts/{tenant}")
        .collect();
    assert!(
        puts.iter()
            .any(|item| item["user"] == "ada" && item["tenant"] == "acme" && item["status"] == 200),
        "{items}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn invalid_lists_are_rejected_with_the_place_and_the_remedy() {
    let fixture = Fixture::start().await;
    let root = fixture.root();
    for (lists, expected) in [
        (
            json!({ "admins": [] }),
            "/admins: a context has at least one admin",
        ),
        (
            json!({ "admins": ["ada"] }),
            "write actor:<id>, context:<context>@<node>, group:<name> or user:<name>",
        ),
        (
            json!({ "admins": ["user:a"], "readers": ["actor:none"] }),
            "/readers: no actor \"none\"; create it",
        ),
        (
            json!({ "admins": ["user:a"], "owners": [] }),
            "unknown field `owners`",
        ),
        (json!(["user:a"]), "an object"),
    ] {
        let detail = fixture
            .put(&root, "acme", None, &lists)
            .await
            .rejected(422, "OR0002");
        assert!(detail.contains(expected), "{lists}: {detail}");
    }
    let many: Vec<_> = (0..257).map(|number| format!("user:{number}")).collect();
    let detail = fixture
        .put(&root, "acme", None, &json!({ "admins": many }))
        .await
        .rejected(422, "OR0002");
    assert!(detail.contains("at most 256 members"), "{detail}");
    fixture
        .call(&root, "GET", "/v1/contexts/acme", None)
        .await
        .rejected(404, "OR0100");
    fixture
        .call(&root, "DELETE", "/v1/contexts/acme", None)
        .await
        .rejected(404, "OR0100");
    fixture
        .put(&root, "a%00b", None, &json!({ "admins": ["user:a"] }))
        .await
        .rejected(400, "OR0006");
}

#[tokio::test(flavor = "multi_thread")]
async fn context_with_instances_is_not_deleted() {
    let fixture = Fixture::start().await;
    let root = fixture.root();
    for tenant in ["acme", "empty"] {
        fixture
            .context(tenant, json!({ "admins": ["user:ada"] }))
            .await;
    }
    fixture
        .node
        .call(&root, "acme", "POST", "/v1/events", Some(&placed("o-1")))
        .await;
    until("the instance", async || {
        let shown = fixture
            .node
            .call(&root, "acme", "GET", "/v1/sagas/order/o-1", None)
            .await;
        (shown.status == 200).then_some(())
    })
    .await;
    let ada = fixture.user("ada");
    let detail = fixture
        .call(&ada, "DELETE", "/v1/contexts/acme", None)
        .await
        .rejected(409, "OR0102");
    assert!(detail.contains("has instances"), "{detail}");
    // An event without a correlation becomes a dead letter.
    let mut invalid = placed("o-2");
    invalid["data"] = json!({});
    fixture
        .node
        .call(&root, "empty", "POST", "/v1/events", Some(&invalid))
        .await
        .ok();
    let letter = until("the dead letter", async || {
        let listed = fixture
            .node
            .call(&root, "empty", "GET", "/v1/dead-letters", None)
            .await
            .ok();
        listed["items"][0]["id"].as_str().map(ToOwned::to_owned)
    })
    .await;
    let detail = fixture
        .call(&ada, "DELETE", "/v1/contexts/empty", None)
        .await
        .rejected(409, "OR0102");
    assert!(detail.contains("has dead letters"), "{detail}");
    let discarded = fixture
        .node
        .call(
            &root,
            "empty",
            "DELETE",
            &format!("/v1/dead-letters/{letter}"),
            None,
        )
        .await;
    assert!(discarded.status.is_success(), "{discarded:?}");
    let deleted = fixture
        .call(&ada, "DELETE", "/v1/contexts/empty", None)
        .await;
    assert_eq!(deleted.status, 204, "{deleted:?}");
    // Now the roles of tokens decide.
    let viewer = fixture.key.token("eve", "viewer", &json!(["empty"]));
    fixture
        .node
        .call(&viewer, "empty", "GET", "/v1/sagas", None)
        .await
        .ok();
}

/// Requirements: F2.
#[tokio::test(flavor = "multi_thread")]
async fn waiting_worker_receives_no_job_after_its_access_is_revoked() {
    let effects = tempfile::tempdir().unwrap();
    std::fs::write(
        effects.path().join("media.toml"),
        "kind = \"worker\"\neffects = [\"media.cut\"]\n",
    )
    .unwrap();
    let definition = ORDER.replace("test.charge", "media.cut");
    let key = Key::ed("a");
    let jwks = Jwks::open(&[&key]).await;
    let node = Node::start_with(&definition, |config| {
        config.upstreams_dir = Some(effects.path().to_owned());
        with_issuer(config, &jwks.url);
        config.http.per_caller.max_long_polls = 1;
    })
    .await;
    let fixture = Fixture {
        node,
        key,
        _jwks: jwks,
    };
    let lists = json!({ "admins": ["user:ada"], "executors": ["user:robo", "user:rita"] });
    let created = fixture.context("acme", lists).await;
    let claim = json!({ "effects": ["media.cut"], "worker": "w", "wait_seconds": 25 });
    let [robo, rita] = ["robo", "rita"].map(|name| fixture.user(name));
    // The node serves one waiting request of a caller: another one shows that the first waits.
    let send = async || {
        fixture
            .node
            .call(&robo, "acme", "POST", "/v1/work/claim", Some(&claim))
            .await
    };
    let waiting = until("a response", async || {
        Some(send().await).filter(|response| response.status != 429)
    });
    let rest = async {
        let short = json!({ "effects": ["media.cut"], "worker": "w", "wait_seconds": 1 });
        until("the long poll", async || {
            let other = fixture
                .node
                .call(&robo, "acme", "POST", "/v1/work/claim", Some(&short))
                .await;
            (other.status == 429).then_some(())
        })
        .await;
        let lists = json!({ "admins": ["user:ada"], "executors": ["user:rita"] });
        fixture
            .put(
                &fixture.root(),
                "acme",
                created["revision"].as_u64(),
                &lists,
            )
            .await
            .ok();
        fixture
            .node
            .call(
                &fixture.root(),
                "acme",
                "POST",
                "/v1/events",
                Some(&placed("o-1")),
            )
            .await
            .ok();
    };
    let (denied, ()) = tokio::join!(waiting, rest);
    denied.rejected(403, "OR0042");
    assert!(!denied.text.contains("o-1"), "{denied:?}");
    fixture
        .node
        .call(&rita, "acme", "GET", "/v1/work", None)
        .await
        .rejected(403, "OR0042");
}

/// Requirements: F2.
#[tokio::test(flavor = "multi_thread")]
async fn stream_of_a_worker_ends_when_its_access_is_revoked() {
    let fixture = Fixture::start().await;
    let lists = json!({ "admins": ["user:ada"], "executors": ["user:robo"] });
    let created = fixture.context("acme", lists).await;
    let address = fixture.node.url.strip_prefix("http://").unwrap();
    let mut request = format!("ws://{address}/v1/work/exchange")
        .into_client_request()
        .unwrap();
    let bearer = format!("Bearer {}", fixture.user("robo"));
    request
        .headers_mut()
        .insert("authorization", bearer.parse().unwrap());
    request
        .headers_mut()
        .insert("x-tenant-id", "acme".parse().unwrap());
    let connection = TcpStream::connect(address).await.unwrap();
    let (mut stream, _) = tokio_tungstenite::client_async(request, connection)
        .await
        .unwrap();
    // A change that keeps the worker does not end its stream.
    let lists =
        json!({ "admins": ["user:ada"], "readers": ["user:eve"], "executors": ["user:robo"] });
    let kept = fixture
        .put(
            &fixture.root(),
            "acme",
            created["revision"].as_u64(),
            &lists,
        )
        .await
        .ok();
    let lists = json!({ "admins": ["user:ada"], "readers": ["user:robo"] });
    let root = fixture.root();
    let revoked = fixture.put(&root, "acme", kept["revision"].as_u64(), &lists);
    let closed = async {
        loop {
            match within("the end of the stream", stream.next())
                .await
                .unwrap()
                .unwrap()
            {
                Message::Close(Some(frame)) => return frame.reason.to_string(),
                Message::Ping(_) => {}
                other => panic!("{other:?}"),
            }
        }
    };
    let (revoked, reason) = tokio::join!(revoked, closed);
    revoked.ok();
    assert_eq!(reason, "the access to the context was revoked");
}

/// Requirements: F2.
#[tokio::test(flavor = "multi_thread")]
async fn stream_of_lines_ends_when_its_reader_is_revoked() {
    let fixture = Fixture::start().await;
    let lists = json!({ "admins": ["user:ada"], "readers": ["user:bob"] });
    let created = fixture.context("acme", lists).await;
    let (root, bob) = (fixture.root(), fixture.user("bob"));
    let flow = json!({ "jobs": [{ "id": "a", "type": "none", "script": "x" }] });
    let flow = fixture
        .node
        .call(&root, "acme", "POST", "/v1/flows", Some(&flow))
        .await
        .ok();
    let path = format!("/v1/flows/{}/lines", flow["id"].as_str().unwrap());
    let request = client()
        .get(format!("{}{path}", fixture.node.url))
        .bearer_auth(&bob);
    let request = request
        .header("accept", "text/event-stream")
        .header("x-tenant-id", "acme");
    let stream = within("the stream", request.send()).await.unwrap();
    assert_eq!(stream.status(), 200);
    let mut rest = std::pin::pin!(stream.text());
    // A change that keeps the reader does not end the stream.
    let lists = json!({ "admins": ["user:ada"], "readers": ["user:bob", "user:eve"] });
    let kept = fixture
        .put(&root, "acme", created["revision"].as_u64(), &lists)
        .await
        .ok();
    assert!(futures::poll!(&mut rest).is_pending());
    let lists = json!({ "admins": ["user:ada"], "executors": ["user:bob"] });
    fixture
        .put(&root, "acme", kept["revision"].as_u64(), &lists)
        .await
        .ok();
    let text = within("the end of the stream", rest).await.unwrap();
    assert!(!text.contains("event: end"), "{text}");
    fixture
        .node
        .call(&bob, "acme", "GET", &path, None)
        .await
        .rejected(403, "OR0042");
}

#[tokio::test(flavor = "multi_thread")]
async fn contexts_survive_a_restart_and_a_restore_but_not_a_loss_of_their_files() {
    let dir = Arc::new(tempfile::tempdir().unwrap());
    let lists = r#"{ "admins": ["user:ada"], "readers": ["user:bob"] }"#;
    let show = async |node: &node::Node| {
        node.ask(Method::GET, "", "/v1/contexts/acme", Body::empty())
            .await
            .ok()
    };
    let first = NodeBuilder::on(Arc::clone(&dir)).start().await;
    first
        .ask(Method::PUT, "", "/v1/contexts/acme", Body::from(lists))
        .await
        .ok();
    first
        .ask(
            Method::POST,
            "",
            "/v1/actors",
            Body::from(r#"{ "id": "robo" }"#),
        )
        .await
        .ok();
    let before = show(&first).await;
    first.stop().await;
    let second = NodeBuilder::on(Arc::clone(&dir)).start().await;
    assert_eq!(show(&second).await, before);
    second.stop().await;

    let (data, copy) = (dir.path().join("data"), dir.path().join("copy"));
    orlog::backup::offline::backup_offline(&data, &copy).unwrap();
    let restored = Arc::new(tempfile::tempdir().unwrap());
    orlog::backup::restore(&copy, &restored.path().join("data")).unwrap();
    let third = NodeBuilder::on(restored).start().await;
    assert_eq!(show(&third).await, before);
    let actor = third
        .ask(Method::GET, "", "/v1/actors/robo", Body::empty())
        .await
        .ok();
    assert_eq!(actor["id"], "robo");
    third.stop().await;

    std::fs::remove_dir_all(data.join("registry")).unwrap();
    let lost = NodeBuilder::on(Arc::clone(&dir))
        .try_start()
        .await
        .err()
        .unwrap()
        .to_string();
    assert!(
        lost.contains("OR0061") && lost.contains("registry"),
        "{lost}"
    );
    let accepted = NodeBuilder::on(dir)
        .overrides(|overrides| overrides.accept_data_loss = true)
        .start()
        .await;
    accepted
        .ask(Method::GET, "", "/v1/contexts/acme", Body::empty())
        .await
        .rejected(404, "OR0100");
}
