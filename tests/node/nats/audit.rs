//! Audit records that a node publishes to a subject.

use std::path::Path;
use std::sync::Arc;

use orlog::audit::{AuditOutcome, AuditRecord};
use orlog::config::{BusKind, Config, NatsConfig};
use orlog::{App, AppOverrides};
use orlog_testkit::nats_server::NatsServer;
use uuid::Uuid;

use super::fixture::{open, subscribe, subscription, take, until};

async fn start(dir: &Path, server: &NatsServer) -> Arc<App> {
    let mut config = Config {
        node_name: "pod-1".to_owned(),
        data_dir: dir.to_owned(),
        nats: NatsConfig {
            servers: vec![server.url()],
            manage_aggregate_stream: true,
            ..NatsConfig::default()
        },
        ..Config::default()
    };
    config.bus.kind = BusKind::Nats;
    // The stream of the tests stores it.
    "s.audit".clone_into(&mut config.audit.nats_subject);
    App::start_with(config, AppOverrides::default()).await.unwrap()
}

fn record() -> AuditRecord {
    AuditRecord {
        id: Uuid::now_v7(),
        at: "2026-01-02T03:04:05Z".to_owned(),
        user: None,
        role: None,
        tenant: None,
        route: "POST /admin/reload".to_owned(),
        target: String::new(),
        outcome: AuditOutcome::Succeeded,
        status: 200,
        code: None,
        request_id: String::new(),
        source: None,
        forwarded_for: None,
        forwarded_by: None,
        node: String::new(),
    }
}

/// Every record is published once and in order, also those of an outage and of the time before a restart.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn audit_records_are_published_to_the_subject() {
    let Some(mut server) = NatsServer::start() else { return };
    let (bus, dir) = (open(&[server.url()], 1).await, tempfile::tempdir().unwrap());
    let mut copies = subscribe(&bus, subscription("copies", None)).await;
    let app = start(dir.path(), &server).await;
    (0..300).for_each(|_| app.audit.record(&record()));
    let mut received = take(&mut *copies, 300).await;
    server.kill();
    app.audit.record(&record());
    let failure = || async { (app.audit.publish_failures().get() > 0).then_some(()) };
    until("a failed publish", failure).await;
    server.restart();
    app.audit.record(&record());
    received.extend(take(&mut *copies, 2).await);
    app.stop().await.unwrap();
    app.audit.record(&record());
    drop(app);
    let app = start(dir.path(), &server).await;
    received.extend(take(&mut *copies, 1).await);
    app.stop().await.unwrap();
    let received: Vec<String> = received
        .iter()
        .map(|delivery| String::from_utf8(delivery.message.payload.to_vec()).unwrap())
        .collect();
    let files = (1..=9).filter_map(|number| {
        std::fs::read_to_string(dir.path().join(format!("audit/audit-{number:010}.jsonl"))).ok()
    });
    let stored: Vec<String> =
        files.flat_map(|text| text.lines().map(str::to_owned).collect::<Vec<_>>()).collect();
    assert_eq!(received, stored);
}
