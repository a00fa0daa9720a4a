//! Rolling change of the allowed tenants: nodes with different lists share the checkpoint of a shard.

use std::sync::Arc;

use orlog::App;
use orlog::config::{BusKind, TenantMode};
use orlog_model::{CorrelationId, DeadLetter, DeadLetterReason, InstanceKey, SagaName, TenantId};
use orlog_testkit::nats_server::NatsServer;
use orlog_testkit::raw_nats::RawNatsClient;
use orlog_testkit::wait::{until, within};
use serde_json::json;
use tempfile::TempDir;

use crate::harness::node::NodeBuilder;

const NOTE: &str = "
saga: note
version: 1
start: NoteAsked
correlate: id
vars: { id: =event.id }
steps: [{ id: read, do: { event: NoteRead } }]
";

fn tenant(name: &str) -> TenantId {
    TenantId::new(name).unwrap()
}

/// Starts a node with this list of tenants on the data directory and the streams of the one before.
async fn start(server: &NatsServer, dir: &Arc<TempDir>, allowed: &[&str]) -> Arc<App> {
    let builder = NodeBuilder::on(Arc::clone(dir)).definition("note", NOTE);
    let builder = builder.config(|config| {
        config.bus.kind = BusKind::Nats;
        config.nats.servers = vec![server.url()];
        config.nats.manage_aggregate_stream = true;
        config.tenants.mode = TenantMode::Allowlist;
        config.tenants.allowed = allowed.iter().map(|name| tenant(name)).collect();
    });
    builder.start().await.app
}

async fn stop(app: Arc<App>) {
    within("the drain", app.drain()).await;
    within("the stop", app.stop()).await.unwrap();
}

/// Publishes an event of a tenant, as a node that accepts the tenant does.
fn publish(server: &NatsServer, tenant: &str, kind: &str, id: &str) {
    let event = json!({
        "specversion": "1.0", "id": id, "source": "urn:desk", "type": kind, "data": { "id": id },
    });
    let subject = format!("tenant.{tenant}.workflow_event.event.{id}");
    RawNatsClient::connect(server.port)
        .request(&subject, event.to_string().as_bytes())
        .unwrap();
}

/// Waits until the instance exists.
async fn instance(app: &App, name: &str, id: &str) {
    let key = InstanceKey {
        tenant: tenant(name),
        saga: SagaName::new("note").unwrap(),
        correlation: CorrelationId::new(id).unwrap(),
    };
    until(&format!("the note {id} of {name}"), || async {
        app.runtime.reader(&key)?.instance(&key).unwrap()
    })
    .await;
}

fn dead_letters(app: &App, name: &str) -> Vec<DeadLetter> {
    app.runtime
        .readers()
        .flat_map(|reader| reader.dead_letters(&tenant(name), None, 100).unwrap())
        .collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn event_that_a_node_with_another_list_accepted_is_applied_when_the_node_accepts_it() {
    let server = NatsServer::start();
    let dir = Arc::new(tempfile::tempdir().unwrap());
    let app = start(&server, &dir, &["acme"]).await;
    publish(&server, "beta", "NoteAsked", "b-1");
    publish(&server, "beta", "UnusedFact", "b-2");
    // The checkpoint passes the messages of the other tenant.
    publish(&server, "acme", "NoteAsked", "a-1");
    instance(&app, "acme", "a-1").await;

    let rejected = || async { dead_letters(&app, "beta").into_iter().next() };
    let rejected = until("the dead letter of the event", rejected).await;
    assert_eq!(rejected.reason, DeadLetterReason::TenantNotAllowed);
    assert!(
        rejected.message.contains("tenants.allowed"),
        "{}",
        rejected.message
    );
    assert_eq!(
        dead_letters(&app, "beta").len(),
        1,
        "an event that no definition consumes needs no redrive"
    );
    stop(app).await;

    let app = start(&server, &dir, &["acme", "beta"]).await;
    instance(&app, "beta", "b-1").await;
    let removed = || async { dead_letters(&app, "beta").is_empty().then_some(()) };
    until("the removal of the dead letter", removed).await;
    stop(app).await;
}
