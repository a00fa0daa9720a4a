//! A node that was stopped while its disk was full starts again, serves reads and rejects events until
//! space is free.

use std::os::unix::fs::symlink;
use std::sync::Arc;
use std::time::Instant;

use orlog::App;
use orlog_bus::codec::{self, DecodeDefaults};
use orlog_bus::{Error, PublishAck};
use orlog_model::Timestamp;
use orlog_testkit::{FaultyDisk, WAIT_TIMEOUT};
use tempfile::TempDir;

use crate::harness::http::client;
use crate::harness::node::{Node, NodeBuilder};
use crate::operations::node::{ORDER, placed};

async fn start(dir: &Arc<TempDir>, disk: &FaultyDisk) -> Node {
    let builder = NodeBuilder::on(Arc::clone(dir))
        .effect("test.charge")
        .config(|config| {
            config.store.journal_segment_size = 64 << 10;
            // A flush would free segments.
            config.store.memtable_max_age = WAIT_TIMEOUT * 10;
        });
    builder
        .overrides(|overrides| overrides.disk = Some(Arc::new(disk.clone())))
        .start()
        .await
}

async fn publish(app: &App, number: usize) -> Result<Vec<PublishAck>, Error> {
    let defaults = DecodeDefaults {
        tenant: None,
        now: Timestamp::default(),
    };
    app.publish(vec![
        codec::from_json(&placed(&format!("o-{number}")), &defaults).unwrap(),
    ])
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn node_starts_on_a_full_disk_and_continues_when_space_is_free() {
    let dir = Arc::new(tempfile::tempdir().unwrap());
    std::fs::create_dir(dir.path().join("definitions")).unwrap();
    std::fs::write(dir.path().join("definitions/order.saga.yaml"), ORDER).unwrap();
    let disk = FaultyDisk::default();
    let node = start(&dir, &disk).await;
    publish(&node.app, 0).await.unwrap();
    node.stop().await;

    // No file can grow: neither the journals, nor the audit trail, nor the layout.
    disk.set_full(true);
    let (audit, layout) = (
        dir.path().join("data/audit/audit-0000000001.jsonl"),
        dir.path().join("data/layout.new"),
    );
    std::fs::remove_file(&audit).unwrap();
    symlink("/dev/full", &audit).unwrap();
    symlink("/dev/full", &layout).unwrap();
    let node = start(&dir, &disk).await;
    let (url, http, app) = (node.serve().await, client(), &node.app);
    let deadline = Instant::now() + WAIT_TIMEOUT;
    // Allocated space is used first.
    let mut accepted = 1;
    while publish(app, accepted).await.is_ok() {
        accepted += 1;
        assert!(Instant::now() < deadline, "events are rejected");
    }
    let response = http
        .post(format!("{url}/v1/events"))
        .json(&placed("late"))
        .send()
        .await
        .unwrap();
    assert_eq!(response.status(), 507);
    let response = http.get(format!("{url}/v1/sagas")).send().await.unwrap();
    assert!(response.status() == 200 && response.text().await.unwrap().contains("o-0"));

    disk.set_full(false);
    std::fs::remove_file(&audit).unwrap();
    std::fs::remove_file(&layout).unwrap();
    while publish(app, accepted).await.is_err() {
        assert!(Instant::now() < deadline, "events are accepted again");
        tokio::task::yield_now().await;
    }
    node.stop().await;
    let node = start(&dir, &disk).await;
    let stored = || {
        node.app
            .runtime
            .readers()
            .map(|reader| {
                reader
                    .count(&orlog_model::TenantId::default_tenant())
                    .unwrap()
                    .values()
                    .sum::<u64>()
            })
            .sum::<u64>()
    };
    while stored() <= accepted as u64 {
        assert!(Instant::now() < deadline, "every accepted event is applied");
        tokio::task::yield_now().await;
    }
    node.stop().await;
}
