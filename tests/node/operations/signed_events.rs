//! Contexts that require signed events, over HTTP: signed requests, and events with the signatures of their publishers.

use std::time::Duration;

use axum::http::{HeaderName, Method};
use orlog::SystemClock;
use orlog_bus::codec::{self, DecodeDefaults};
use orlog_bus::subject::SubjectKind;
use orlog_bus::{Message, ScanStart};
use orlog_effect::config::{UpstreamConfig as _, UpstreamSite};
use orlog_effect::worker::WorkerConfig;
use orlog_model::{Clock as _, CorrelationId, InstanceKey, SagaName, TenantId};
use orlog_signature::{EVENT_SIGNATURE, EventMessage, EventSignature, SigningKey};
use serde_json::{Value, json};

use crate::harness::http::HttpResponse;
use crate::harness::node::{Node, NodeBuilder};
use crate::harness::process::{orlog, run};
use crate::signer::{Draft, Signer};

const ORDER: &str = "saga: order\nversion: 1\nstart: OrderPlaced\ncorrelate: orderId\n\
    steps:\n  - { id: paid, do: { event: OrderPaid } }\n";

/// Node with a context that requires signed events. Its admin is robo; any request without a signature has all rights.
struct Fixture {
    node: Node,
    robo: Signer,
}

impl Fixture {
    async fn start() -> Self {
        Self::start_with(|builder| builder).await
    }

    async fn start_with(change: impl FnOnce(NodeBuilder) -> NodeBuilder) -> Self {
        let robo = Signer::new();
        // A node without nonces rejects signatures that were created in the second of its start.
        let dir = NodeBuilder::new()
            .definition("order", ORDER)
            .start()
            .await
            .stop()
            .await;
        let node = NodeBuilder::on(dir).config(|config| {
            robo.join(config, "robo", "viewer", "acme");
            config
                .auth
                .actors
                .values_mut()
                .for_each(|actor| actor.groups = vec!["makers".to_owned()]);
        });
        let fixture = Self {
            node: change(node).start().await,
            robo,
        };
        let lists = json!({
            "admins": ["group:makers"], "executors": ["group:hands"], "require_signed_events": true,
        });
        fixture
            .node
            .ask(Method::PUT, "", "/v1/contexts/acme", lists.to_string())
            .await
            .ok();
        fixture
    }

    async fn publish(&self, body: &Value) -> HttpResponse {
        self.node
            .ask(Method::POST, "acme", "/v1/events", body.to_string())
            .await
    }

    /// Sends a request that robo signs.
    async fn signed(&self, path: &str, body: &Value) -> HttpResponse {
        self.signed_by(&self.robo, path, body).await
    }

    async fn signed_by(&self, signer: &Signer, path: &str, body: &Value) -> HttpResponse {
        let draft = Draft::new(Method::POST, "acme", path, body.to_string());
        self.node.send(signer.sign(draft).request()).await
    }

    /// Sends a request without a signature.
    async fn unsigned(&self, path: &str, body: &Value) -> HttpResponse {
        self.node
            .ask(Method::POST, "acme", path, body.to_string())
            .await
    }

    async fn orders(&self) -> usize {
        let page = self
            .node
            .ask(Method::GET, "acme", "/v1/sagas?saga=order", "")
            .await
            .ok();
        page["items"].as_array().unwrap().len()
    }

    /// Waits for the instance of an order, and returns the user who started it.
    async fn started_by(&self, order: &str) -> String {
        self.node
            .until("acme", &format!("/v1/sagas/order/{order}"), |_| true)
            .await;
        let (tenant, saga) = (
            TenantId::new("acme").unwrap(),
            SagaName::new("order").unwrap(),
        );
        let key = InstanceKey {
            tenant,
            saga,
            correlation: CorrelationId::new(order).unwrap(),
        };
        let instance = self
            .node
            .app
            .runtime
            .reader(&key)
            .unwrap()
            .instance(&key)
            .unwrap()
            .unwrap();
        instance.users.unwrap().started_by.unwrap()
    }

    /// Returns the signatures of all events in the log that are by a key.
    async fn signatures_on_the_bus(&self, key: &SigningKey) -> usize {
        let filters = vec!["tenant.acme.>".to_owned()];
        let mut scan = self
            .node
            .app
            .bus
            .scan(filters, ScanStart::Sequence(1))
            .await
            .unwrap();
        let messages = scan
            .next()
            .await
            .unwrap()
            .into_iter()
            .map(|delivery| delivery.message);
        let is_signed = |message: &std::sync::Arc<Message>| {
            let signature = EventSignature::read(covered(message)).unwrap();
            signature.is_some_and(|signature| signature.is_by(&key.public_key()))
        };
        messages.filter(is_signed).count()
    }
}

fn covered(message: &Message) -> EventMessage<'_, impl Iterator<Item = (&str, &str)> + Clone> {
    let headers = message
        .headers
        .iter()
        .map(|(name, value)| (name.as_str(), value.as_str()));
    EventMessage {
        subject: &message.subject,
        headers,
        data: &message.payload,
    }
}

fn placed(order: &str) -> Value {
    json!({
        "specversion": "1.0", "id": format!("e-{order}"), "source": "urn:shop", "type": "OrderPlaced",
        "region": "eu west", "data": { "orderId": order, "total": 12.50 },
    })
}

/// Returns the message of an event with the signature of an actor, whose clock differs by this number of seconds.
fn message(signer: &Signer, event: &Value, offset: i64) -> Message {
    let now = SystemClock.now();
    let defaults = DecodeDefaults {
        tenant: Some(TenantId::new("acme").unwrap()),
        now,
    };
    let event = codec::from_json(event, &defaults).unwrap();
    let mut message = codec::encode(
        &event,
        codec::subject_with_kind(&event, SubjectKind::WorkflowEvent),
    );
    let created = now.as_millis() / 1000 + offset;
    let signature = signer
        .key
        .sign_event(covered(&message), created, Duration::from_mins(1));
    message
        .headers
        .push((EVENT_SIGNATURE.into(), signature.into()));
    message
}

fn signed(signer: &Signer, event: &Value, offset: i64) -> Value {
    let message = message(signer, event, offset);
    Value::Object(codec::to_structured(&message.headers, &message.payload).unwrap())
}

/// Requirements: F1.
#[tokio::test(flavor = "multi_thread")]
async fn unsigned_events_starts_and_signals_have_no_effect_and_signed_requests_have() {
    let fixture = Fixture::start().await;
    let shown = fixture.node.get("/v1/contexts/acme").await.ok();
    assert_eq!(shown["require_signed_events"], true);
    assert!(
        shown["changes"]
            .to_string()
            .contains(r#"["require_signed_events"]"#),
        "{shown}"
    );
    let (start, signal) = ("/v1/sagas/order", "/v1/sagas/order/o-1/signal");
    let paid = json!({ "type": "OrderPaid" });
    let batch = json!([signed(&fixture.robo, &placed("o-2"), 0), placed("o-3")]);
    for (path, body) in [
        ("/v1/events", placed("o-1")),
        (start, json!({ "orderId": "o-1" })),
        (signal, paid.clone()),
        ("/v1/events", batch),
    ] {
        let response = fixture
            .node
            .ask(Method::POST, "acme", path, body.to_string())
            .await;
        response.rejected(403, "OR0106");
    }
    assert_eq!(fixture.orders().await, 0, "a batch is atomic");
    fixture
        .signed("/v1/events", &json!([placed("o-1"), placed("o-2")]))
        .await
        .ok();
    assert_eq!(fixture.started_by("o-1").await, "robo");
    fixture.signed(signal, &paid).await.ok();
    fixture
        .signed(start, &json!({ "orderId": "o-4" }))
        .await
        .ok();
    fixture
        .node
        .until("acme", "/v1/sagas/order/o-1", |order| {
            order["status"] == "completed"
        })
        .await;
    // A request that replaces the lists does not withdraw the requirement; an admin can.
    let put = async |body: Value| {
        let revision = fixture.node.get("/v1/contexts/acme").await.ok()["revision"].to_string();
        let request = Draft::new(Method::PUT, "", "/v1/contexts/acme", body.to_string())
            .header("if-match", &revision);
        fixture.node.send(request.request()).await.ok()
    };
    let lists = json!({ "admins": ["group:makers", "user:ada"] });
    assert_eq!(put(lists.clone()).await["require_signed_events"], true);
    let mut free = lists;
    free["require_signed_events"] = json!(false);
    assert_eq!(put(free).await["require_signed_events"], false);
    fixture.publish(&placed("o-5")).await.ok();
}

/// Requirements: F1.
#[tokio::test(flavor = "multi_thread")]
async fn batches_of_signals_and_schedules_need_a_signed_request() {
    let fixture = Fixture::start().await;
    let signals = |canary: Option<u32>| {
        let action = json!({ "type": "signal", "signal": "OrderPaid" });
        json!({ "saga": "order", "action": action, "canary": canary, "id": "b-1" })
    };
    let batches = "/v1/batches";
    fixture
        .unsigned(batches, &signals(None))
        .await
        .rejected(403, "OR0106");
    let mut dry_run = signals(None);
    dry_run["dry_run"] = json!(true);
    fixture.unsigned(batches, &dry_run).await.ok();
    fixture.signed(batches, &signals(Some(1))).await.ok();
    fixture
        .unsigned("/v1/batches/b-1/resume", &json!({}))
        .await
        .rejected(403, "OR0106");
    fixture
        .unsigned("/v1/batches/b-1/stop", &json!({}))
        .await
        .ok();
    // A batch without signals needs the usual rights only.
    let pause = json!({ "saga": "order", "action": { "type": "pause" }, "id": "b-2" });
    fixture.unsigned(batches, &pause).await.ok();

    // A schedule starts instances.
    let hourly = json!({ "saga": "order", "every": "1h" });
    let path = "/v1/schedules/hourly";
    let put = fixture
        .node
        .ask(Method::PUT, "acme", path, hourly.to_string());
    put.await.rejected(403, "OR0106");
    let signed = Draft::new(Method::PUT, "acme", path, hourly.to_string());
    fixture
        .node
        .send(fixture.robo.sign(signed).request())
        .await
        .ok();
    for (verb, is_accepted) in [("trigger", false), ("resume", false), ("pause", true)] {
        let response = fixture
            .unsigned(&format!("{path}/{verb}"), &json!({}))
            .await;
        if is_accepted {
            response.ok();
        } else {
            response.rejected(403, "OR0106");
        }
    }
}

const PAYMENT: &str = "saga: payment\nversion: 1\nstart: OrderPlaced\ncorrelate: orderId\n\
    steps:\n  - { id: charge, do: { effect: pay.charge } }\n";

/// Requirements: F1.
#[tokio::test(flavor = "multi_thread")]
async fn facts_of_workers_need_a_signature_the_right_to_publish_and_a_declaration() {
    let hand = Signer::new();
    let workers: WorkerConfig =
        toml::from_str("effects = ['pay.charge']\nfacts = ['PointsEarned']").unwrap();
    let upstream = workers.upstream(UpstreamSite::new("pay")).unwrap();
    let fixture = Fixture::start_with(|builder| {
        builder
            .definition("payment", PAYMENT)
            .upstream(upstream)
            .config(|config| {
                hand.join(config, "hand", "worker", "acme");
                let actors = config.auth.actors.values_mut();
                for actor in actors.filter(|actor| actor.groups.is_empty()) {
                    actor.groups = vec!["hands".to_owned()];
                }
            })
    })
    .await;
    fixture.signed("/v1/events", &placed("o-1")).await.ok();
    let request = json!({ "effects": ["pay.charge"], "worker": "w-1", "wait_seconds": 20 });
    let claimed = fixture.unsigned("/v1/work/claim", &request).await.ok();
    let job = &claimed["jobs"][0];
    let id = job["job"].as_str().unwrap();
    let path = format!("/v1/work/jobs/{id}/result");
    let result = |fact: &str| {
        let facts = json!([{ "type": fact, "data": { "orderId": "o-2" } }]);
        json!({ "claim": job["claim"], "result": "succeeded", "facts": facts })
    };

    let earned = result("PointsEarned");
    fixture
        .unsigned(&path, &earned)
        .await
        .rejected(403, "OR0106");
    let mut item = earned.clone();
    item["job"] = json!(id);
    let exchange = json!({ "results": [item] });
    let exchanged = fixture.unsigned("/v1/work/exchange", &exchange).await.ok();
    assert_eq!(exchanged["results"][0]["status"], "invalid", "{exchanged}");
    assert_eq!(exchanged["results"][0]["problem"]["code"], "OR0106");
    let detail = fixture
        .signed_by(&hand, &path, &earned)
        .await
        .rejected(403, "OR0042");
    assert!(detail.contains("right to publish"), "{detail}");
    let detail = fixture
        .signed(&path, &result("OrderPlaced"))
        .await
        .problem("OR0002");
    assert!(detail.contains("declares no facts of the type"), "{detail}");
    assert_eq!(fixture.orders().await, 1, "no fact started an instance");

    fixture.signed(&path, &earned).await.ok();
    fixture
        .node
        .until("acme", "/v1/sagas/payment/o-1", |payment| {
            payment["status"] == "completed"
        })
        .await;
}

/// Requirements: F1.
#[tokio::test(flavor = "multi_thread")]
async fn event_is_published_with_the_signature_and_the_user_of_its_publisher() {
    let fixture = Fixture::start().await;
    let (robo, stranger) = (&fixture.robo, Signer::new());
    let valid = signed(robo, &placed("o-1"), 0);
    for duplicate in [false, true] {
        let accepted = fixture.publish(&valid).await.ok();
        assert_eq!(
            accepted["accepted"][0]["duplicate"], duplicate,
            "{accepted}"
        );
    }
    assert_eq!(fixture.started_by("o-1").await, "robo");
    // In binary mode, the body stays as it was sent.
    let sent = message(robo, &placed("o-2"), 0);
    let mut request = Draft::new(
        Method::POST,
        "acme",
        "/v1/events",
        String::from_utf8(sent.payload.to_vec()).unwrap(),
    );
    for (name, value) in &sent.headers {
        request.headers.insert(
            HeaderName::try_from(name.as_str()).unwrap(),
            value.parse().unwrap(),
        );
    }
    fixture.node.send(request.request()).await.ok();
    assert_eq!(fixture.started_by("o-2").await, "robo");
    assert_eq!(fixture.signatures_on_the_bus(&robo.key).await, 2);
    // A forged header cannot become part of a message that the node vouches for.
    let reserved = request.header("ce-orlogeffect", "pay.charge");
    fixture
        .node
        .send(reserved.request())
        .await
        .rejected(422, "OR0107");

    let changed = |name: &str, value: Value| {
        let mut event = signed(robo, &placed("o-3"), 0);
        event[name] = value;
        event
    };
    for (event, part) in [
        (signed(&stranger, &placed("o-3"), 0), "not by a known key"),
        (signed(robo, &placed("o-3"), -600), "is 60"),
        (signed(robo, &placed("o-3"), 600), "correct the clock"),
        (changed("id", json!("other")), "not by a known key"),
        (changed("correlationid", json!("o-9")), "not by a known key"),
        (changed("region", json!("us")), "not by a known key"),
        (changed("data_base64", json!("e30=")), "not by a known key"),
        (changed("orlogsignature", json!("v1.none")), "malformed"),
        (
            changed("orlogeffect", json!("pay.charge")),
            "only Orlog sets this attribute",
        ),
    ] {
        let detail = fixture.publish(&event).await.rejected(422, "OR0107");
        assert!(detail.contains(part), "{detail}");
    }
    let mut plain = signed(robo, &placed("o-3"), 0);
    (plain["data"], plain["data_base64"]) = (json!({ "orderId": "o-3" }), Value::Null);
    assert!(
        fixture
            .publish(&plain)
            .await
            .rejected(422, "OR0107")
            .contains("data_base64")
    );
    assert_eq!(fixture.orders().await, 2);
}

/// Requirements: F1.
#[tokio::test(flavor = "multi_thread")]
async fn command_line_signs_each_event_with_its_key() {
    let fixture = Fixture::start().await;
    let url = fixture.node.serve().await;
    let path = |name: &str| fixture.node.dir.path().join(name).display().to_string();
    let pem = SigningKey::generate_pem().unwrap();
    let maker = Signer {
        key: SigningKey::from_pem(&pem).unwrap(),
    };
    let (key_file, events) = (path("key.pem"), path("events.jsonl"));
    std::fs::write(&key_file, &pem).unwrap();
    std::fs::set_permissions(
        &key_file,
        std::os::unix::fs::PermissionsExt::from_mode(0o600),
    )
    .unwrap();
    std::fs::write(&events, format!("{}\n{}\n", placed("o-1"), placed("o-2"))).unwrap();
    let publish = async |args: &[&str]| {
        let fixed = ["publish", &events, "--url", &url, "--tenant", "acme"];
        let mut command = orlog(&[&fixed[..], args].concat());
        command.env("XDG_CONFIG_HOME", path("none"));
        run(command).await
    };
    let (code, _, error) = publish(&["--sign"]).await;
    assert!(
        code == 2 && error.contains("--sign: no key"),
        "{code} {error}"
    );
    let (_, _, error) = publish(&[]).await;
    assert!(error.contains("OR0106"), "{error}");
    let (_, _, error) = publish(&["--key", &key_file]).await;
    assert!(error.contains("OR0073"), "{error}");
    let actor = json!({ "id": "maker", "keys": [maker.key_of("maker")] });
    fixture
        .node
        .ask(Method::POST, "", "/v1/actors", actor.to_string())
        .await
        .ok();
    let revision = fixture.node.get("/v1/contexts/acme").await.ok()["revision"].to_string();
    let lists = json!({ "admins": ["actor:maker"] }).to_string();
    let request =
        Draft::new(Method::PUT, "", "/v1/contexts/acme", lists).header("if-match", &revision);
    fixture.node.send(request.request()).await.ok();
    let (code, output, error) = publish(&["--key", &key_file]).await;
    assert!(
        code == 0 && output.contains("2 events accepted"),
        "{output} {error}"
    );
    assert_eq!(fixture.started_by("o-2").await, "maker");
    assert_eq!(fixture.signatures_on_the_bus(&maker.key).await, 2);
}
