//! Contexts that require signed events: what actors and other clients publish to the subjects of a node.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use orlog::access::{Actor, Context, Key, Keyed as _};
use orlog::config::{BusKind, Config};
use orlog::{App, SystemClock};
use orlog_bus::Message;
use orlog_bus::nats::{Connection, NatsRegistry, Options};
use orlog_bus::registry::Registry as _;
use orlog_bus::requests::RequestClient as _;
use orlog_model::{
    Clock as _, CorrelationId, DeadLetter, DeadLetterReason, Instance, InstanceKey, SagaName,
    TenantId, Timestamp,
};
use orlog_signature::{EVENT_SIGNATURE, EventMessage, PublicKey, SigningKey};
use orlog_testkit::host::missing;
use orlog_testkit::nats_server::NatsServer;
use orlog_testkit::wait::{until, within};
use orlog_testkit::{SettableClock, WAIT_TIMEOUT};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::harness::node::NodeBuilder;
use crate::harness::process::run;
use crate::signer::Signer;

/// Starts a child saga, and waits for its fact.
const ORDER: &str = "
saga: order
version: 1
correlate: orderId
start: OrderPlaced
vars: { orderId: =event.orderId }
steps:
  - id: paid
    do: { saga: payment, correlation: '=vars.orderId + \"-pay\"', data: { orderId: =vars.orderId } }
  - id: packed
    do: { event: OrderPacked }
";
const PAYMENT: &str = "
saga: payment
version: 1
correlate: orderId
start: PaymentAsked
vars: { orderId: =event.orderId }
steps: [{ id: wait, do: { event: Paid } }]
completed: { fact: PaymentDone, data: { orderId: =vars.orderId } }
";
/// Starts with the fact of another saga.
const RECEIPT: &str = "
saga: receipt
version: 1
correlate: orderId
start: PaymentDone
vars: { orderId: =event.orderId }
steps: [{ id: sent, do: { event: ReceiptSent } }]
";

const KEY: &str = "0123456789abcdef0123456789abcdef";
const MINUTE: i64 = 60;

struct Fixture {
    server: NatsServer,
    dir: Arc<TempDir>,
    registry: NatsRegistry,
    connection: Connection,
    robo: Signer,
}

impl Fixture {
    /// Starts a server, and a node that creates the streams. The context `acme` has the admin robo.
    async fn start(key_sharded: bool) -> (Self, Arc<App>) {
        let server = NatsServer::start();
        let dir = Arc::new(tempfile::tempdir().unwrap());
        std::fs::write(dir.path().join("signing-key"), KEY).unwrap();
        let app = node(&server, &dir, key_sharded, Duration::ZERO).await;
        let options = Options {
            servers: vec![server.url()],
            name: "test".to_owned(),
            ..Options::default()
        };
        let connection = Connection::open(&options).await.unwrap();
        let registry = NatsRegistry::open(&connection).await.unwrap();
        let fixture = Self {
            server,
            dir,
            registry,
            connection,
            robo: Signer::new(),
        };
        fixture.put_actor("robo", &fixture.robo).await;
        let mut context = Context::new(now());
        context.replace(
            [members(&["actor:robo"]), BTreeSet::new(), BTreeSet::new()],
            now(),
            None,
        );
        context.set_require_signed_events(true, now(), None);
        fixture.put("context.acme", &context, 0).await;
        // What the bus stores from now on is subject to the requirement.
        let changed = now();
        until("the next millisecond", || async {
            (now() > changed).then_some(())
        })
        .await;
        (fixture, app)
    }

    async fn put(&self, key: &str, record: &impl serde::Serialize, seen: u64) -> u64 {
        self.registry
            .put(key, Some(serde_json::to_string(record).unwrap()), seen)
            .await
            .unwrap()
            .unwrap()
    }

    async fn put_actor(&self, id: &str, signer: &Signer) -> (Actor, u64) {
        let mut actor = Actor::new(now());
        let public_key: PublicKey = signer.key.public_key();
        let key = Key::new(public_key, now());
        actor.add_key(key, now(), None).unwrap();
        let revision = self.put(&format!("actor.{id}"), &actor, 0).await;
        (actor, revision)
    }

    /// Publishes a message, without a deduplication id.
    async fn publish(&self, message: Message) {
        let ack = self
            .connection
            .request(message, WAIT_TIMEOUT)
            .await
            .unwrap();
        let ack: Value = serde_json::from_slice(&ack.payload).unwrap();
        assert!(ack["seq"].is_u64(), "{ack}");
    }
}

async fn node(
    server: &NatsServer,
    dir: &Arc<TempDir>,
    key_sharded: bool,
    ahead: Duration,
) -> Arc<App> {
    let key = format!("file:{}", dir.path().join("signing-key").display());
    let configure = |config: &mut Config| {
        "pod-1".clone_into(&mut config.node_name);
        config.bus.kind = BusKind::Nats;
        (config.nats.servers, config.nats.manage_aggregate_stream) = (vec![server.url()], true);
        config.nats.signing.keys = vec![key.parse().unwrap()];
        config.shards = 4;
        if key_sharded {
            config.tenants.key_sharded = vec![TenantId::new("acme").unwrap()];
        }
    };
    let builder = NodeBuilder::on(Arc::clone(dir)).config(configure);
    let builder = builder
        .definition("order", ORDER)
        .definition("payment", PAYMENT)
        .definition("receipt", RECEIPT);
    let clock = SettableClock::default();
    clock.set_offset(i64::try_from(ahead.as_millis()).unwrap());
    builder
        .overrides(|overrides| overrides.clock = Some(Arc::new(clock)))
        .start()
        .await
        .app
}

fn now() -> Timestamp {
    SystemClock.now()
}

fn members(names: &[&str]) -> BTreeSet<orlog::access::Member> {
    names.iter().map(|name| name.parse().unwrap()).collect()
}

/// Returns an event for an order, without a signature.
fn event(kind: &str, order: &str) -> Message {
    let headers = [
        ("ce-specversion", "1.0".to_owned()),
        ("ce-id", format!("{kind}-{order}")),
        ("ce-type", kind.to_owned()),
        ("ce-source", "urn:shop".to_owned()),
        ("content-type", "application/json".to_owned()),
    ];
    Message {
        subject: format!("tenant.acme.workflow_event.event.{order}"),
        id: None,
        headers: headers
            .map(|(name, value)| (name.into(), value.into()))
            .to_vec(),
        payload: json!({ "orderId": order }).to_string().into(),
    }
}

/// Signs an event with a clock that differs by this number of seconds.
fn signed(signer: &Signer, mut message: Message, offset: i64) -> Message {
    let headers = message
        .headers
        .iter()
        .map(|(name, value)| (name.as_str(), value.as_str()));
    let covered = EventMessage {
        subject: &message.subject,
        headers,
        data: &message.payload,
    };
    let created = now().as_millis() / 1000 + offset;
    let signature = signer
        .key
        .sign_event(covered, created, Duration::from_mins(1));
    message
        .headers
        .push((EVENT_SIGNATURE.into(), signature.into()));
    message
}

fn key(saga: &str, id: &str) -> InstanceKey {
    InstanceKey {
        tenant: TenantId::new("acme").unwrap(),
        saga: SagaName::new(saga).unwrap(),
        correlation: CorrelationId::new(id).unwrap(),
    }
}

fn find(app: &App, saga: &str, id: &str) -> Option<Instance> {
    let key = key(saga, id);
    app.runtime.reader(&key)?.instance(&key).unwrap()
}

async fn instance(app: &App, saga: &str, id: &str) -> Instance {
    until(&format!("{saga} {id}"), || async { find(app, saga, id) }).await
}

/// Returns the dead letters of all shards.
fn dead_letters(app: &App) -> Vec<DeadLetter> {
    let tenant = TenantId::new("acme").unwrap();
    app.runtime
        .readers()
        .flat_map(|reader| reader.dead_letters(&tenant, None, 1000).unwrap())
        .collect()
}

/// Waits for the dead letter of a message with this text in its reason.
async fn rejection(app: &App, message: &Message, part: &str) {
    let found = || async {
        dead_letters(app).into_iter().find(|letter| {
            let original = serde_json::to_value(&letter.original).unwrap().to_string();
            letter.reason == DeadLetterReason::Unauthenticated
                && original.contains(&message.subject)
                && letter.message.contains(part)
        })
    };
    until(&format!("{}: {part}; dead letters", message.subject), found).await;
}

async fn stop(app: Arc<App>) {
    within("the drain", app.drain()).await;
    within("the stop", app.stop()).await.unwrap();
}

/// A tenant without the requirement accepts an unsigned event.
async fn check_free_tenant(fixture: &Fixture, app: &App) {
    let free = Message {
        subject: "tenant.beta.workflow_event.event.o".to_owned(),
        ..event("OrderPlaced", "o")
    };
    fixture.publish(free).await;
    let beta = InstanceKey {
        tenant: TenantId::new("beta").unwrap(),
        ..key("order", "o")
    };
    until("the order of beta", || async {
        app.runtime.reader(&beta)?.instance(&beta).unwrap()
    })
    .await;
}

/// Requirements: F1.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn context_applies_events_with_a_valid_signature_of_a_member_only() {
    let (fixture, app) = Fixture::start(false).await;
    let (robo, reader, stranger) = (&fixture.robo, Signer::new(), Signer::new());
    fixture.put_actor("reader", &reader).await;
    let changed = |order: &str, change: &dyn Fn(&mut Message)| {
        let mut message = signed(robo, event("OrderPlaced", order), 0);
        change(&mut message);
        message
    };
    let rejected = [
        (event("OrderPlaced", "unsigned"), "has none"),
        (
            signed(&stranger, event("OrderPlaced", "unknown"), 0),
            "not by a known key",
        ),
        (
            signed(&reader, event("OrderPlaced", "no-member"), 0),
            "may not publish",
        ),
        (
            signed(robo, event("OrderPlaced", "ahead"), 10 * MINUTE),
            "correct the clock",
        ),
        (
            signed(robo, event("OrderPlaced", "behind"), -10 * MINUTE),
            "is 60",
        ),
        (
            signed(robo, event("OrderPlaced", "expired"), -2 * MINUTE),
            "expired 6",
        ),
        (
            changed("data", &|message| {
                message.payload = r#"{"orderId":"data","total":1}"#.into();
            }),
            "not by a known key",
        ),
        (
            changed("attribute", &|message| {
                message.headers[3].1 = "urn:other".into();
            }),
            "not by a known key",
        ),
        (
            changed("added", &|message| {
                message.headers.push(("ce-extra".into(), "1".into()));
            }),
            "not by a known key",
        ),
        (
            changed("subject", &|message| message.subject.push('s')),
            "not by a known key",
        ),
        // An event is no signal to an instance.
        (
            changed("signal", &|message| {
                "tenant.acme.workflow.order.signal".clone_into(&mut message.subject);
            }),
            "not by a known key",
        ),
        (
            changed("twice", &|message| {
                message.headers.push(message.headers[5].clone());
            }),
            "several signatures",
        ),
        (
            changed("malformed", &|message| message.headers[5].1 = "v1.x".into()),
            "malformed",
        ),
    ];
    for (message, _) in &rejected {
        fixture.publish(message.clone()).await;
    }
    // Three times: the id in the message makes the repetitions duplicates, without an id for the servers.
    let valid = signed(robo, event("OrderPlaced", "valid"), 0);
    for _ in 0..3 {
        fixture.publish(valid.clone()).await;
    }
    let started = instance(&app, "order", "valid").await;
    assert_eq!(
        started.users.unwrap().started_by.as_deref(),
        Some("robo"),
        "the signer is the user"
    );
    for (message, part) in &rejected {
        rejection(&app, message, part).await;
    }
    // A signal needs a signature for its own subject.
    let paid = signed(robo, event("Paid", "valid"), 0);
    let mut signal = Message {
        subject: "tenant.acme.workflow.payment.valid-pay".to_owned(),
        ..paid
    };
    signal.headers.pop();
    fixture.publish(signal.clone()).await;
    rejection(&app, &signal, "has none").await;
    let signal = signed(
        robo,
        Message {
            headers: signal.headers,
            ..signal
        },
        0,
    );
    fixture.publish(signal).await;
    instance(&app, "receipt", "valid").await;
    assert_eq!(
        dead_letters(&app).len(),
        rejected.len() + 1,
        "{:?}",
        dead_letters(&app)
    );
    for (message, _) in &rejected {
        let order = message.subject.rsplit('.').next().unwrap();
        assert!(find(&app, "order", order).is_none(), "{order}");
    }
    check_free_tenant(&fixture, &app).await;
    stop(app).await;
}

/// Requirements: F1.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn python_publisher_signs_its_events() {
    let (fixture, app) = Fixture::start(false).await;
    let root = env!("CARGO_MANIFEST_DIR");
    let library = format!("{root}/.tools/nats-py");
    if !Path::new(&library).is_dir() {
        missing("nats-py", "nats");
    }
    let (key_file, pem) = (
        fixture.dir.path().join("maker.pem"),
        SigningKey::generate_pem().unwrap(),
    );
    std::fs::write(&key_file, &pem).unwrap();
    let publish = async |order: &str| {
        let mut python = std::process::Command::new("python3");
        let script = format!("{root}/examples/publishers/nats/publisher.py");
        let data = json!({ "orderId": order, "note": "ä" }).to_string();
        python.args([&script, "acme", "OrderPlaced", order, &data]);
        python
            .env("PYTHONPATH", &library)
            .env("NATS_URL", fixture.server.url())
            .env("ORLOG_KEY_FILE", &key_file);
        let (code, output, error) = run(python).await;
        assert!(
            code == 0 && output.contains("stored as"),
            "{output} {error}"
        );
    };
    publish("unknown").await;
    let unknown = event("OrderPlaced", "unknown");
    rejection(&app, &unknown, "not by a known key").await;
    let maker = Signer {
        key: SigningKey::from_pem(&pem).unwrap(),
    };
    fixture.put_actor("maker", &maker).await;
    let view = fixture.registry.view().borrow().clone();
    let record = &view.records["context.acme"];
    let mut context: Context = serde_json::from_str(&record.value).unwrap();
    context.replace(
        [
            members(&["actor:robo", "actor:maker"]),
            BTreeSet::new(),
            BTreeSet::new(),
        ],
        now(),
        None,
    );
    fixture.put("context.acme", &context, record.revision).await;
    publish("o-1").await;
    let started = instance(&app, "order", "o-1").await;
    assert_eq!(started.users.unwrap().started_by.as_deref(), Some("maker"));
    stop(app).await;
}

/// Requirements: F1, R14.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn facts_and_child_sagas_of_a_spread_context_are_applied_and_forged_ones_are_not() {
    let (fixture, app) = Fixture::start(true).await;
    for number in 0..8 {
        let order = format!("o-{number}");
        fixture
            .publish(signed(&fixture.robo, event("OrderPlaced", &order), 0))
            .await;
        let child = format!("{order}-pay");
        instance(&app, "payment", &child).await;
        let forged = Message {
            subject: format!("tenant.acme.workflow_event.payment.{child}"),
            ..event("PaymentDone", &format!("forged-{number}"))
        };
        fixture.publish(forged.clone()).await;
        rejection(&app, &forged, "has none").await;
        let mut paid = event("Paid", &order);
        paid.subject = format!("tenant.acme.workflow.payment.{child}");
        fixture.publish(signed(&fixture.robo, paid, 0)).await;
        // The home shard forwards the events, and the fact starts another saga.
        instance(&app, "receipt", &order).await;
    }
    assert!(
        dead_letters(&app)
            .iter()
            .all(|letter| letter.message.contains("has none"))
    );
    assert!((0..8).all(|number| find(&app, "receipt", &format!("forged-{number}")).is_none()));
    stop(app).await;
}

/// Requirements: F1, R1.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn events_that_were_stored_in_time_are_applied_after_a_day() {
    let (fixture, app) = Fixture::start(false).await;
    stop(app).await;
    fixture
        .publish(signed(&fixture.robo, event("OrderPlaced", "before"), 0))
        .await;
    // The key is revoked, and the actor removed, after the bus has stored the event.
    let stored = now();
    until("the next millisecond", || async {
        (now() > stored).then_some(())
    })
    .await;
    let view = fixture.registry.view().borrow().clone();
    let revision = |key: &str| view.records[key].revision;
    let mut actor: Actor = serde_json::from_str(&view.records["actor.robo"].value).unwrap();
    let mut known: Context = serde_json::from_str(&view.records["context.acme"].value).unwrap();
    actor
        .revoke_key("robo", &actor.keys[0].id.clone(), now(), None)
        .unwrap();
    fixture
        .put("actor.robo", &actor, revision("actor.robo"))
        .await;
    known.replace(
        [members(&["user:ada"]), BTreeSet::new(), BTreeSet::new()],
        now(),
        None,
    );
    fixture
        .put("context.acme", &known, revision("context.acme"))
        .await;
    let after = signed(&fixture.robo, event("OrderPlaced", "after"), 0);
    fixture.publish(after.clone()).await;
    let app = node(
        &fixture.server,
        &fixture.dir,
        false,
        Duration::from_hours(26),
    )
    .await;
    instance(&app, "order", "before").await;
    rejection(&app, &after, "it is revoked").await;
    assert!(find(&app, "order", "after").is_none() && dead_letters(&app).len() == 1);
    stop(app).await;
}

/// Requirements: F1.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn forged_events_do_not_fill_the_store_and_do_not_delay_valid_ones() {
    let (fixture, app) = Fixture::start(false).await;
    for number in 0..150 {
        fixture
            .publish(event("OrderPlaced", &format!("forged-{number}")))
            .await;
    }
    fixture
        .publish(signed(&fixture.robo, event("OrderPlaced", "valid"), 0))
        .await;
    instance(&app, "order", "valid").await;
    assert_eq!(dead_letters(&app).len(), 100, "at most 100 in a minute");
    let mut metrics = String::new();
    app.metrics_registry.lock().encode(&mut metrics).unwrap();
    assert!(
        metrics.contains("orlog_events_rejected_total 150"),
        "{metrics}"
    );
    stop(app).await;
}
