//! A node on JetStream, from the event to the fact.

use std::collections::BTreeMap;
use std::sync::Arc;

use orlog::App;
use orlog::config::{BusKind, NatsConfig};
use orlog_bus::codec::{self, DecodeDefaults};
use orlog_effect::{FunctionCall, FunctionProvider, Policy};
use orlog_model::{CorrelationId, InstanceKey, SagaName, Status, TenantId, Timestamp};
use orlog_testkit::nats_server::NatsServer;
use orlog_testkit::raw_nats::RawNatsClient;
use orlog_testkit::wait::{until, within};
use parking_lot::Mutex;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::harness::node::NodeBuilder;

const ORDER: &str = r"
saga: order
version: 1
correlate: orderId
start: OrderPlaced
vars: { orderId: =event.orderId }
steps:
  - id: charge
    do: { effect: test.charge, data: { orderId: =vars.orderId } }
    ok: Charged
    fail: Declined
completed: { fact: OrderCompleted, data: { orderId: =vars.orderId } }
failed: { fact: OrderFailed, data: { orderId: =vars.orderId } }
";

/// Number of charges by order.
type Charges = Arc<Mutex<BTreeMap<String, u32>>>;

struct NatsNode {
    dir: Arc<TempDir>,
    charges: Charges,
    nats: NatsConfig,
    shards: u16,
    spread: Vec<TenantId>,
}

impl NatsNode {
    fn on(server: &NatsServer) -> Self {
        let dir = Arc::new(tempfile::tempdir().unwrap());
        let nats = NatsConfig {
            servers: vec![server.url()],
            manage_aggregate_stream: true,
            ..NatsConfig::default()
        };
        Self {
            dir,
            charges: Charges::default(),
            nats,
            shards: 1,
            spread: Vec::new(),
        }
    }

    async fn start(&self) -> anyhow::Result<Arc<App>> {
        self.start_with(false).await
    }

    async fn start_with(&self, accept_data_loss: bool) -> anyhow::Result<Arc<App>> {
        let charges = Arc::clone(&self.charges);
        let charge = move |call: FunctionCall| {
            let order = call.payload["orderId"]
                .as_str()
                .unwrap_or_default()
                .to_owned();
            *charges.lock().entry(order).or_default() += 1;
            async { Ok(json!({})) }
        };
        let bank = FunctionProvider::new()
            .effect("test.charge", charge)
            .upstream("bank", Policy::default());
        let builder = NodeBuilder::on(Arc::clone(&self.dir))
            .definition("order", ORDER)
            .upstream(bank);
        let builder = builder.config(|config| {
            "pod-1".clone_into(&mut config.node_name);
            config.nats.clone_from(&self.nats);
            config.shards = self.shards;
            config.bus.kind = BusKind::Nats;
            config.tenants.key_sharded.clone_from(&self.spread);
        });
        let builder = builder.overrides(|overrides| overrides.accept_data_loss = accept_data_loss);
        Ok(builder.try_start().await?.app)
    }
}

fn placed(id: &str) -> Value {
    json!({
        "specversion": "1.0", "id": format!("placed-{id}"), "type": "OrderPlaced", "source": "urn:shop",
        "time": "2026-01-02T03:04:05Z", "data": { "orderId": id },
    })
}

fn key(tenant: &str, id: &str) -> InstanceKey {
    InstanceKey {
        tenant: TenantId::new(tenant).unwrap(),
        saga: SagaName::new("order").unwrap(),
        correlation: CorrelationId::new(id).unwrap(),
    }
}

async fn submit(app: &App, tenant: &str, ids: &[String]) {
    let defaults = DecodeDefaults {
        tenant: Some(TenantId::new(tenant).unwrap()),
        now: Timestamp::default(),
    };
    let events: Vec<_> = ids
        .iter()
        .map(|id| codec::from_json(&placed(id), &defaults).unwrap())
        .collect();
    let events = &events;
    until("the events are taken", || async move {
        app.publish(events.clone()).await.ok()
    })
    .await;
}

async fn completes(app: &App, key: &InstanceKey) {
    let poll = || async {
        let instance = app.runtime.reader(key)?.instance(key).ok()??;
        (instance.status == Status::Completed).then_some(())
    };
    until(&format!("{key} completes"), poll).await;
}

async fn stop(app: &App) {
    within("the drain", app.drain()).await;
    within("the stop", app.stop()).await.unwrap();
}

/// Requirements: R1, R6, R7, R16.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn event_runs_a_saga_and_restart_resumes_from_the_checkpoint() {
    let mut server = NatsServer::start();
    let shop = NatsNode::on(&server);
    let app = shop.start().await.unwrap();
    submit(&app, "acme", &["o-1".to_owned()]).await;
    completes(&app, &key("acme", "o-1")).await;
    let info = app.info(&[]);
    assert_eq!(
        (info.bus.kind, info.bus.connected, info.bus.streams.len()),
        ("nats", true, 4)
    );
    let consumer = info.shards[0]
        .consumers
        .iter()
        .find(|it| it.stream == "WORKFLOW_EVENTS")
        .unwrap();
    assert_eq!(consumer.name, "shard-0");
    assert!(
        consumer
            .filters
            .iter()
            .any(|filter| filter == "tenant.*.workflow_event.>"),
        "{consumer:?}"
    );
    let durable = consumer.durable.as_ref().unwrap();
    let shown = async || {
        let subject = format!("$JS.API.CONSUMER.INFO.WORKFLOW_EVENTS.{durable}");
        let response = RawNatsClient::connect(server.port)
            .request(&subject, b"{}")
            .unwrap();
        let consumer: Value = serde_json::from_slice(&response).unwrap();
        consumer["config"]["metadata"]["orlog.cursor.shard-0"]
            .is_string()
            .then_some(())
    };
    until("the durable consumer with the position of the shard", shown).await;
    let fact = || async {
        let get = json!({ "last_by_subj": "tenant.acme.workflow_event.order.o-1" });
        let response = RawNatsClient::connect(server.port).request(
            "$JS.API.STREAM.MSG.GET.WORKFLOW_EVENTS",
            get.to_string().as_bytes(),
        );
        let response: Value = serde_json::from_slice(&response.unwrap()).unwrap();
        response["message"].is_object().then_some(())
    };
    until("the fact", fact).await;
    stop(&app).await;
    drop(app);
    server.kill();
    server.restart();
    let app = shop.start().await.unwrap();
    submit(&app, "", &["o-2".to_owned()]).await;
    completes(&app, &key("", "o-2")).await;
    stop(&app).await;
    assert_eq!(
        *shop.charges.lock(),
        BTreeMap::from([("o-1".to_owned(), 1), ("o-2".to_owned(), 1)])
    );
}

/// Requirements: R3.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn aggregate_event_is_ingested_and_tenant_mismatch_is_dead_lettered() {
    let server = NatsServer::start();
    let shop = NatsNode::on(&server);
    let app = shop.start().await.unwrap();
    let mut wire = RawNatsClient::connect(server.port);
    let mut lie = placed("o-1");
    lie["tenantid"] = json!("other");
    wire.request(
        "tenant.acme.aggregate.order.o-1",
        lie.to_string().as_bytes(),
    )
    .unwrap();
    wire.request(
        "tenant.acme.aggregate.order.o-2",
        placed("o-2").to_string().as_bytes(),
    )
    .unwrap();
    completes(&app, &key("acme", "o-2")).await;
    let dead_letters = || async {
        let reader = app.runtime.reader(&key("acme", "o-1"))?;
        let dead_letters = reader
            .dead_letters(&TenantId::new("acme").unwrap(), None, 10)
            .ok()?;
        dead_letters.into_iter().next()
    };
    let dead_letter = until("the dead letter", dead_letters).await;
    assert!(
        dead_letter.message.contains("other"),
        "{}",
        dead_letter.message
    );
    for tenant in ["acme", "other", ""] {
        let key = key(tenant, "o-1");
        assert!(
            app.runtime
                .reader(&key)
                .unwrap()
                .instance(&key)
                .unwrap()
                .is_none(),
            "{tenant}"
        );
    }
    stop(&app).await;
}

/// Requirements: R14.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn key_sharded_tenant_events_reach_the_instance_shard() {
    let server = NatsServer::start();
    let shop = NatsNode {
        shards: 4,
        spread: vec![TenantId::new("big").unwrap()],
        ..NatsNode::on(&server)
    };
    let app = shop.start().await.unwrap();
    let ids: Vec<String> = (0..40).map(|n| format!("o-{n}")).collect();
    submit(&app, "big", &ids).await;
    submit(&app, "small", &["s-1".to_owned()]).await;
    for id in &ids {
        completes(&app, &key("big", id)).await;
    }
    completes(&app, &key("small", "s-1")).await;
    let charges = shop.charges.lock().clone();
    assert!(
        charges.len() == 41 && charges.values().all(|count| *count == 1),
        "{charges:?}"
    );
    let info =
        RawNatsClient::connect(server.port).jetstream("STREAM.INFO.WORKFLOW_COMMANDS", &json!({}));
    assert_eq!(info["state"]["messages"], 40, "one signal an instance");
    stop(&app).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn missing_streams_prevent_startup() {
    let server = NatsServer::start();
    let mut shop = NatsNode::on(&server);
    shop.nats.provision = false;
    let error = shop.start().await.err().unwrap().to_string();
    assert!(
        error.contains("missing; make it with `orlog streams apply`"),
        "{error}"
    );
    (shop.nats.provision, shop.nats.manage_aggregate_stream) = (true, false);
    let error = shop.start().await.err().unwrap().to_string();
    assert!(error.contains("the Aggregate service owns it"), "{error}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn submitted_events_use_the_workflow_stream_when_aggregates_are_external() {
    let server = NatsServer::start();
    let theirs =
        json!({ "name": "AGGREGATE_EVENTS", "subjects": ["tenant.*.aggregate.>", "aggregate.>"] });
    let mut wire = RawNatsClient::connect(server.port);
    wire.jetstream("STREAM.CREATE.AGGREGATE_EVENTS", &theirs);
    let mut shop = NatsNode::on(&server);
    shop.nats.manage_aggregate_stream = false;
    let app = shop.start().await.unwrap();
    submit(&app, "acme", &["o-1".to_owned()]).await;
    completes(&app, &key("acme", "o-1")).await;
    let info = wire.jetstream("STREAM.INFO.AGGREGATE_EVENTS", &json!({}));
    assert_eq!(info["state"]["messages"], 0);
    stop(&app).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn recreated_stream_is_not_read_until_the_loss_is_accepted() {
    let server = NatsServer::start();
    let shop = NatsNode::on(&server);
    let app = shop.start().await.unwrap();
    submit(&app, "acme", &["o-1".to_owned()]).await;
    completes(&app, &key("acme", "o-1")).await;
    stop(&app).await;
    RawNatsClient::connect(server.port).jetstream("STREAM.DELETE.AGGREGATE_EVENTS", &json!({}));
    let app = shop.start().await.unwrap();
    let counted = || async {
        let mut text = String::new();
        app.metrics_registry.lock().encode(&mut text).unwrap();
        let line = "orlog_stream_anomalies_detected_total{stream=\"AGGREGATE_EVENTS\",kind=\"stream_recreated\"} 1";
        text.contains(line).then_some(())
    };
    until("the metric", counted).await;
    submit(&app, "acme", &["o-2".to_owned()]).await;
    let reason = app
        .runtime
        .lost_streams()
        .remove("AGGREGATE_EVENTS")
        .unwrap();
    assert!(reason.contains("the stream was recreated"), "{reason}");
    let errors: Vec<_> = app
        .diagnostics(None)
        .into_iter()
        .filter(|found| found.name == "streams")
        .collect();
    assert!(
        errors.len() == 1 && errors[0].message.starts_with("OR0061: "),
        "{errors:?}"
    );
    let o_2 = key("acme", "o-2");
    assert!(
        app.runtime
            .reader(&o_2)
            .unwrap()
            .instance(&o_2)
            .unwrap()
            .is_none()
    );
    stop(&app).await;
    let app = shop.start_with(true).await.unwrap();
    completes(&app, &o_2).await;
    // The accepted position is stored: the next start needs no acceptance.
    stop(&app).await;
    let app = shop.start().await.unwrap();
    submit(&app, "acme", &["o-3".to_owned()]).await;
    completes(&app, &key("acme", "o-3")).await;
    assert!(app.runtime.lost_streams().is_empty());
    stop(&app).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn stream_recreated_while_running_is_not_read() {
    let server = NatsServer::start();
    let shop = NatsNode::on(&server);
    let app = shop.start().await.unwrap();
    submit(&app, "acme", &["o-1".to_owned()]).await;
    completes(&app, &key("acme", "o-1")).await;
    let mut wire = RawNatsClient::connect(server.port);
    let config = wire.jetstream("STREAM.INFO.AGGREGATE_EVENTS", &json!({}))["config"].clone();
    wire.jetstream("STREAM.DELETE.AGGREGATE_EVENTS", &json!({}));
    wire.jetstream("STREAM.CREATE.AGGREGATE_EVENTS", &config);
    let lost = || async { app.runtime.lost_streams().remove("AGGREGATE_EVENTS") };
    let reason = until("the detection", lost).await;
    assert!(reason.contains("the stream was recreated"), "{reason}");
    stop(&app).await;
}

/// First remedy of docs/runbooks/stream-lost.md.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn restored_stream_is_read_again_without_a_restart() {
    let server = NatsServer::start();
    let shop = NatsNode::on(&server);
    let app = shop.start().await.unwrap();
    submit(&app, "acme", &["o-1".to_owned()]).await;
    completes(&app, &key("acme", "o-1")).await;
    let mut wire = RawNatsClient::connect(server.port);
    let backup = wire.back_up_stream("AGGREGATE_EVENTS");
    let config = wire.jetstream("STREAM.INFO.AGGREGATE_EVENTS", &json!({}))["config"].clone();
    wire.jetstream("STREAM.DELETE.AGGREGATE_EVENTS", &json!({}));
    wire.jetstream("STREAM.CREATE.AGGREGATE_EVENTS", &config);
    let lost = || async { app.runtime.lost_streams().remove("AGGREGATE_EVENTS") };
    until("the loss", lost).await;

    wire.jetstream("STREAM.DELETE.AGGREGATE_EVENTS", &json!({}));
    wire.restore_stream(&backup);
    let is_read = || async { app.runtime.lost_streams().is_empty().then_some(()) };
    until("the stream is read", is_read).await;
    submit(&app, "acme", &["o-2".to_owned()]).await;
    completes(&app, &key("acme", "o-2")).await;
    stop(&app).await;
    assert_eq!(
        *shop.charges.lock(),
        BTreeMap::from([("o-1".to_owned(), 1), ("o-2".to_owned(), 1)])
    );
}
