//! Sagas in one process, effects in another: one trace across both, with the tenant.

use std::sync::Arc;
use std::time::Duration;

use orlog::Config;
use orlog::config::{BusConfig, BusKind, NatsConfig, QueueConfig, Role};
use orlog_testkit::nats_server::NatsServer;
use orlog_testkit::otlp_collector::OtlpCollector;

use super::fixture::{TRACE, attribute, caller, check_line, node, one, publish, until};
use crate::effects::http_upstream::HttpUpstream;
use crate::effects::node::Dirs;

fn over_nats(config: &mut Config, server: &NatsServer, role: Role, dir: std::path::PathBuf) {
    config.node_name = format!("{}-1", role.as_str());
    config.data_dir = dir;
    config.role = role;
    config.bus = BusConfig {
        kind: BusKind::Nats,
        ..BusConfig::default()
    };
    config.nats = NatsConfig {
        servers: vec![server.url()],
        manage_aggregate_stream: true,
        ..NatsConfig::default()
    };
    let second = Duration::from_secs(1);
    config.queue = QueueConfig {
        ack_wait: second,
        redispatch_after: second,
        ..QueueConfig::default()
    };
}

#[tokio::test(flavor = "multi_thread")]
async fn trace_spans_saga_and_effect_pods() {
    let server = NatsServer::start();
    let (collector, shop) = (Arc::new(OtlpCollector::new()), HttpUpstream::open().await);
    let pay = format!(
        "base_url = {:?}\n[effects.\"pay.charge\"]\npath = \"/charge\"\n",
        shop.url
    );
    let dirs = Dirs::new(&[("pay", &pay)]);
    let start = |role: Role, data: &'static str| {
        let (server, dir) = (&server, dirs.path(data));
        node(&dirs, &collector.url, move |config| {
            over_nats(config, server, role, dir);
        })
    };
    let sagas = start(Role::Saga, "data").await;
    let effects = start(Role::Effect, "effects-data").await;
    publish(&sagas, "PaymentAsked", "o-1", Some(&caller("01"))).await;
    assert_eq!(sagas.end("acme", "o-1").await["status"], "completed");
    let spans = until(
        &collector,
        &["payment succeeded", "execute pay.charge", "job pay.charge"],
    )
    .await;

    let (started, work) = (
        one(&spans, "payment PaymentAsked"),
        one(&spans, "execute pay.charge"),
    );
    let attempt = |node: &str| {
        spans
            .iter()
            .find(|span| span.name == "pay.charge" && span.node == node)
            .expect("an attempt")
    };
    let (requested, job) = (attempt("saga-1"), one(&spans, "job pay.charge"));
    let (done, ended) = (attempt("effect-1"), one(&spans, "payment succeeded"));
    check_line(
        &spans,
        &[
            one(&spans, "ingest PaymentAsked"),
            started,
            work,
            requested,
            job,
            done,
            ended,
        ],
    );
    assert_eq!(
        (started.trace.as_str(), job.kind, job.node.as_str()),
        (TRACE, 5, "effect-1")
    );
    assert_eq!(attribute(job, "messaging.system"), "nats");
    let link = (done.trace.clone(), done.span.clone(), "remote".to_owned());
    assert_eq!(requested.links, [link]);
    let header = |name: &str| shop.received()[0].header(name).to_owned();
    assert_eq!(
        header("traceparent"),
        format!("00-{TRACE}-{}-01", done.span)
    );
    assert_eq!(header("baggage"), "tenant=acme");
    effects.app.stop().await.unwrap();
    sagas.app.stop().await.unwrap();
}
