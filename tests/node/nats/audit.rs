//! Audit records that a node publishes to a subject.

use std::sync::Arc;

use orlog::audit::{AuditOutcome, AuditRecord};
use orlog::config::BusKind;
use orlog_testkit::nats_server::NatsServer;
use orlog_testkit::wait::until;
use tempfile::TempDir;
use uuid::Uuid;

use super::fixture::{open, subscribe, subscription, take};
use crate::harness::node::{Node, NodeBuilder};

async fn start(dir: &Arc<TempDir>, server: &NatsServer) -> Node {
    let builder = NodeBuilder::on(Arc::clone(dir)).config(|config| {
        "pod-1".clone_into(&mut config.node_name);
        config.nats.servers = vec![server.url()];
        config.nats.manage_aggregate_stream = true;
        config.bus.kind = BusKind::Nats;
        // The stream of the tests stores it.
        "s.audit".clone_into(&mut config.audit.nats_subject);
    });
    builder.start().await
}

fn record() -> AuditRecord {
    AuditRecord {
        id: Uuid::now_v7(),
        at: "2026-01-02T03:04:05Z".to_owned(),
        user: None,
        key: None,
        named_user: None,
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
        edit: None,
    }
}

/// Every record is published once and in order, also those of an outage and of the time before a restart.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn audit_records_are_published_to_the_subject() {
    let mut server = NatsServer::start();
    let (bus, dir) = (
        open(&[server.url()], 1).await,
        Arc::new(tempfile::tempdir().unwrap()),
    );
    let mut copies = subscribe(&bus, subscription("copies", None)).await;
    let node = start(&dir, &server).await;
    (0..300).for_each(|_| node.app.audit.record(&record()));
    let mut received = take(&mut *copies, 300).await;
    server.kill();
    node.app.audit.record(&record());
    let failure = || async { (node.app.audit.publish_failures().get() > 0).then_some(()) };
    until("a failed publish", failure).await;
    server.restart();
    node.app.audit.record(&record());
    received.extend(take(&mut *copies, 2).await);
    node.app.stop().await.unwrap();
    node.app.audit.record(&record());
    drop(node);
    let node = start(&dir, &server).await;
    received.extend(take(&mut *copies, 1).await);
    node.stop().await;
    let received: Vec<String> = received
        .iter()
        .map(|delivery| String::from_utf8(delivery.message.payload.to_vec()).unwrap())
        .collect();
    let files = (1..=9).filter_map(|number| {
        std::fs::read_to_string(
            dir.path()
                .join(format!("data/audit/audit-{number:010}.jsonl")),
        )
        .ok()
    });
    let stored: Vec<String> = files
        .flat_map(|text| text.lines().map(str::to_owned).collect::<Vec<_>>())
        .collect();
    assert_eq!(received, stored);
}
