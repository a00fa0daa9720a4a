//! Dead letters of tenants that a node did not admit: it redrives them when it starts with another list, and on a reload.

use axum::http::{Method, StatusCode};
use orlog::SystemClock;
use orlog::config::TenantMode;
use orlog_model::{Change, Clock as _, DeadLetter, DeadLetterOriginal, DeadLetterReason, TenantId};
use orlog_testkit::nats_server::NatsServer;
use orlog_testkit::raw_nats::RawNatsClient;
use orlog_testkit::wait::until;
use serde_json::{Value, json};
use uuid::Uuid;

use crate::harness::http::{client, send};
use crate::harness::node::{Node, NodeBuilder};
use crate::harness::process::Process;

/// Each dead letter is stored in all of them.
const SHARDS: u16 = 2;

const NOTES: &str = "
saga: note
version: 1
start: NoteAsked
correlate: id
vars: { id: =event.id, texts: '=[]' }
on:
  - event: TextAdded
    save: { texts: '=vars.texts + [event.text]' }
steps: [{ id: read, do: { event: NoteRead } }]
";

fn tenant(name: &str) -> TenantId {
    TenantId::new(name).unwrap()
}

fn builder(allowed: &[&str]) -> impl FnOnce(NodeBuilder) -> NodeBuilder {
    let allowed: Vec<_> = allowed.iter().copied().map(tenant).collect();
    move |builder| {
        builder.definition("note", NOTES).config(|config| {
            config.tenants.mode = TenantMode::Allowlist;
            config.tenants.allowed = allowed;
            config.shards = SHARDS;
        })
    }
}

/// Dead letter of a text that is added to the note `n-1`.
fn dead_letter(of: &str, number: u16, reason: DeadLetterReason) -> DeadLetter {
    let (kind, data) = match number {
        0 => ("NoteAsked", json!({ "id": "n-1" })),
        text => ("TextAdded", json!({ "id": "n-1", "text": text })),
    };
    let event = json!({
        "specversion": "1.0", "id": format!("e-{number}"), "source": "urn:desk", "type": kind, "data": data,
    });
    DeadLetter {
        // Ids of dead letters increase with time.
        id: Uuid::from_u128((1_u128 << 80) + u128::from(number)),
        tenant: tenant(of),
        instance: None,
        reason,
        message: String::new(),
        original: DeadLetterOriginal::Message {
            subject: format!("tenant.{of}.workflow_event.event.n-1"),
            headers: Vec::new(),
            payload: event.to_string().into_bytes(),
        },
        attempts: 1,
        node: "node".to_owned(),
        // Not purged by its retention.
        at: SystemClock.now(),
    }
}

/// Stores a dead letter in every shard.
async fn store(node: &Node, dead_letter: DeadLetter) {
    let change = Change::PutDeadLetter(Box::new(dead_letter));
    node.app.runtime.apply_to_all_shards(&change).await.unwrap();
}

fn stored(node: &Node, of: &str) -> Vec<Uuid> {
    let readers = node.app.runtime.readers();
    let found = readers.flat_map(|reader| reader.dead_letters(&tenant(of), None, 100).unwrap());
    found.map(|dead_letter| dead_letter.id).collect()
}

async fn until_empty(node: &Node, of: &str) {
    let label = format!("the redrive of {of}");
    until(&label, async || stored(node, of).is_empty().then_some(())).await;
}

/// Returns the note once it has this many texts.
async fn note(node: &Node, of: &str, count: usize) -> Value {
    until("the note with its texts", async || {
        let path = "/v1/sagas/note/n-1";
        let response = node.ask(Method::GET, of, path, String::new()).await;
        let instance = response.status.is_success().then(|| response.json())?;
        let texts = instance["state"]["vars"]["texts"].as_array()?.len();
        (texts >= count).then_some(instance)
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn start_with_an_admitted_tenant_redrives_its_dead_letters_in_order_and_no_others() {
    // More than a page redrives.
    const TEXTS: u16 = 100;
    let rejected = DeadLetterReason::TenantNotAllowed;
    let node = builder(&["acme"])(NodeBuilder::new()).start().await;
    for number in 0..=TEXTS {
        store(&node, dead_letter("beta", number, rejected)).await;
    }
    let other_reason = dead_letter("acme", 0, DeadLetterReason::Undecodable);
    let other_tenant = dead_letter("gamma", 0, rejected);
    for dead_letter in [&other_reason, &other_tenant] {
        store(&node, dead_letter.clone()).await;
    }
    let dir = node.stop().await;
    let node = builder(&["acme", "beta"])(NodeBuilder::on(dir))
        .start()
        .await;
    until_empty(&node, "beta").await;
    let instance = note(&node, "beta", usize::from(TEXTS)).await;
    let texts: Vec<_> = (1..=TEXTS).map(|text| json!(text)).collect();
    assert_eq!(instance["state"]["vars"]["texts"], json!(texts));
    assert_eq!(stored(&node, "acme"), [other_reason.id; SHARDS as usize]);
    assert_eq!(stored(&node, "gamma"), [other_tenant.id; SHARDS as usize]);

    // As after a crash between the publication of the message and the removal of its dead letter.
    store(&node, dead_letter("beta", 1, rejected)).await;
    let dir = node.stop().await;
    let node = builder(&["acme", "beta"])(NodeBuilder::on(dir))
        .start()
        .await;
    until_empty(&node, "beta").await;
    store(&node, dead_letter("beta", TEXTS + 1, rejected)).await;
    let dir = node.stop().await;
    let node = builder(&["acme", "beta"])(NodeBuilder::on(dir))
        .start()
        .await;
    let instance = note(&node, "beta", usize::from(TEXTS) + 1).await;
    let texts: Vec<_> = (1..=TEXTS + 1).map(|text| json!(text)).collect();
    assert_eq!(instance["state"]["vars"]["texts"], json!(texts));
    node.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn dead_letters_of_a_tenant_that_is_not_admitted_can_be_discarded_but_not_redriven() {
    let node = builder(&["acme"])(NodeBuilder::new()).start().await;
    let rejected = dead_letter("beta", 0, DeadLetterReason::TenantNotAllowed);
    let path = format!("/v1/dead-letters/{}", rejected.id);
    store(&node, rejected).await;
    let ask = async |method: Method, path: &str| node.ask(method, "beta", path, "").await;

    ask(Method::GET, &path).await.ok();
    ask(Method::POST, &format!("{path}/redrive"))
        .await
        .rejected(403, "OR0007");
    let listed = ask(Method::GET, "/v1/dead-letters").await.ok();
    assert_eq!(listed["items"].as_array().unwrap().len(), 1);
    let discarded = ask(Method::DELETE, &path).await;
    assert_eq!(discarded.status, StatusCode::NO_CONTENT, "{discarded:?}");
    assert_eq!(stored(&node, "beta"), Vec::<Uuid>::new());
    node.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn reload_that_admits_a_tenant_redrives_its_dead_letters_also_if_the_bus_is_down() {
    let mut server = NatsServer::start();
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name).display().to_string();
    let url = server.url();
    let configure = |allowed: &str| {
        let text = format!(
            "[tenants]\nmode = \"allowlist\"\nallowed = [{allowed}]\n[bus]\nkind = \"nats\"\n\
             [nats]\nservers = [{url:?}]\nmanage_aggregate_stream = true\n"
        );
        std::fs::write(path("orlog.toml"), text).unwrap();
    };
    configure("\"acme\"");
    std::fs::create_dir(path("definitions")).unwrap();
    std::fs::write(path("definitions/note.saga.yaml"), NOTES).unwrap();
    let node = Process::start(&[
        "--config",
        &path("orlog.toml"),
        "--data-dir",
        &path("data"),
        "--definitions-dir",
        &path("definitions"),
    ]);
    let client = client();
    let ask = async |method: &str, target: &str| {
        let url = format!("{}{target}", node.url);
        send(&client, method, url, &[("x-tenant-id", "beta")], None).await
    };

    // Another node accepted these messages. The second one is no event.
    let mut publisher = RawNatsClient::connect(server.port);
    let event = json!({
        "specversion": "1.0", "id": "e-1", "source": "urn:desk", "type": "NoteAsked", "data": { "id": "n-1" },
    });
    for body in [event.to_string(), "{}".to_owned()] {
        let subject = "tenant.beta.workflow_event.event.n-1";
        publisher.request(subject, body.as_bytes()).unwrap();
    }
    until("the dead letters", async || {
        let metrics = ask("GET", "/metrics").await.text;
        let is_rejected = metrics.contains("\norlog_events_rejected_total 1\n");
        let is_undecodable = metrics.lines().any(|line| {
            line.starts_with("orlog_dead_letters_created_total{")
                && line.contains("undecodable")
                && line.ends_with(" 1")
        });
        (is_rejected && is_undecodable).then_some(())
    })
    .await;

    configure("\"acme\", \"beta\"");
    server.stop();
    ask("POST", "/admin/reload").await.ok();
    // The redrive starts without the bus.
    server.restart();
    until("the note", async || {
        let shown = ask("GET", "/v1/sagas/note/n-1").await;
        shown.status.is_success().then_some(())
    })
    .await;
    let remaining = until("the removal of the dead letter", async || {
        let listed = ask("GET", "/v1/dead-letters").await.ok();
        let items = listed["items"].as_array().unwrap().clone();
        (items.len() == 1).then_some(items)
    })
    .await;
    assert_eq!(remaining[0]["reason"], "undecodable");
    until("the audit record", async || {
        let records = ask("GET", "/v1/audit").await.ok();
        let items = records["items"].as_array().unwrap().clone();
        items.into_iter().find(|record| {
            record["route"] == "redrive of an admitted tenant"
                && record["tenant"] == "beta"
                && record["target"] == "reason=tenant_not_allowed&count=1"
        })
    })
    .await;
    node.stop();
}
