//! Sagas in one process, effects in another: one trace across both, and the tenant beside it.

use std::sync::Arc;
use std::time::Duration;

use orlog::Config;
use orlog::config::{Bus, BusKind, Nats, Queue, Role};
use orlog_testkit::nats_server::NatsServer;
use orlog_testkit::otlp_collector::Collector;

use crate::fixture::{TRACE, attribute, caller, check_line, node, one, publish, until};
use crate::http_upstream::Shop;
use crate::node::Folders;

fn over_nats(config: &mut Config, server: &NatsServer, role: Role, folder: std::path::PathBuf) {
    config.node = format!("{}-1", role.as_str());
    config.data = folder;
    config.roles = role;
    config.bus = Bus { kind: BusKind::Nats, ..Bus::default() };
    config.nats = Nats { servers: vec![server.url()], own_aggregate_stream: true, ..Nats::default() };
    let second = Duration::from_secs(1);
    config.queue = Queue { ack_wait: second, patience: second, ..Queue::default() };
}

#[tokio::test(flavor = "multi_thread")]
async fn a_trace_goes_through_both_pods_and_back() {
    let Some(server) = NatsServer::start() else { return };
    let (collector, shop) = (Arc::new(Collector::new()), Shop::open().await);
    let pay = format!("base_url = {:?}\n[effects.\"pay.charge\"]\npath = \"/charge\"\n", shop.url);
    let folders = Folders::new(&[("pay", &pay)]);
    let start = |role: Role, data: &'static str| {
        let (server, folder) = (&server, folders.path(data));
        node(&folders, &collector.url, move |config| over_nats(config, server, role, folder))
    };
    let sagas = start(Role::Saga, "data").await;
    let effects = start(Role::Effect, "effects-data").await;
    publish(&sagas, "PaymentAsked", "o-1", Some(&caller("01"))).await;
    assert_eq!(sagas.end("acme", "o-1").await["status"], "completed");
    let spans = until(&collector, &["payment succeeded", "work pay.charge", "job pay.charge"]).await;

    let (begun, work) = (one(&spans, "payment PaymentAsked"), one(&spans, "work pay.charge"));
    let attempt = |node: &str| {
        spans.iter().find(|span| span.name == "pay.charge" && span.node == node).expect("an attempt")
    };
    let (asked, job) = (attempt("saga-1"), one(&spans, "job pay.charge"));
    let (done, ended) = (attempt("effect-1"), one(&spans, "payment succeeded"));
    check_line(&spans, &[one(&spans, "ingest PaymentAsked"), begun, work, asked, job, done, ended]);
    assert_eq!((begun.trace.as_str(), job.kind, job.node.as_str()), (TRACE, 5, "effect-1"));
    assert_eq!(attribute(job, "messaging.system"), "nats");
    let link = (done.trace.clone(), done.span.clone(), "answered".to_owned());
    assert_eq!(asked.links, [link]);
    let header = |name: &str| shop.asked()[0].header(name).to_owned();
    assert_eq!(header("traceparent"), format!("00-{TRACE}-{}-01", done.span));
    assert_eq!(header("baggage"), "tenant=acme");
    effects.app.stop().await.unwrap();
    sagas.app.stop().await.unwrap();
}
