//! A node that was stopped while its disk was full starts again, serves reads and rejects events until
//! space is free.

use std::os::unix::fs::symlink;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use orlog::config::Config;
use orlog::{App, AppOverrides};
use orlog_bus::codec::{self, DecodeDefaults};
use orlog_bus::{Error, PublishAck};
use orlog_effect::{FunctionProvider, Policy};
use orlog_model::Timestamp;
use orlog_testkit::FaultyDisk;
use serde_json::json;
use tokio::net::TcpListener;

use crate::operations::node::{ORDER, TIMEOUT, placed};

async fn start(dir: &Path, disk: &FaultyDisk) -> anyhow::Result<Arc<App>> {
    let mut config = Config {
        data_dir: dir.join("data"),
        definitions_dir: Some(dir.join("definitions")),
        ..Config::default()
    };
    config.store.journal_segment_size = 64 << 10;
    // A flush would free segments.
    config.store.memtable_max_age = TIMEOUT * 10;
    let pay = |_| async { Ok(json!({})) };
    let upstreams =
        vec![FunctionProvider::new().effect("test.charge", pay).upstream("bank", Policy::default())];
    let overrides = AppOverrides { upstreams, disk: Some(Arc::new(disk.clone())), ..AppOverrides::default() };
    App::start_with(config, overrides).await
}

async fn publish(app: &App, number: usize) -> Result<Vec<PublishAck>, Error> {
    let defaults = DecodeDefaults { tenant: None, now: Timestamp::default() };
    app.publish(vec![codec::from_json(&placed(&format!("o-{number}")), &defaults).unwrap()]).await
}

#[tokio::test(flavor = "multi_thread")]
async fn node_starts_on_a_full_disk_and_continues_when_space_is_free() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::create_dir(dir.path().join("definitions")).unwrap();
    std::fs::write(dir.path().join("definitions/order.saga.yaml"), ORDER).unwrap();
    let disk = FaultyDisk::default();
    let app = start(dir.path(), &disk).await.unwrap();
    publish(&app, 0).await.unwrap();
    app.stop().await.unwrap();

    // No file can grow: neither the journals, nor the audit trail, nor the layout.
    disk.set_full(true);
    let (audit, layout) =
        (dir.path().join("data/audit/audit-0000000001.jsonl"), dir.path().join("data/layout.new"));
    std::fs::remove_file(&audit).unwrap();
    symlink("/dev/full", &audit).unwrap();
    symlink("/dev/full", &layout).unwrap();
    let app = start(dir.path(), &disk).await.unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    tokio::spawn(orlog::api::serve(Arc::clone(&app), listener, std::future::pending()));
    let http = orlog_effect::http::client().timeout(TIMEOUT).build().unwrap();
    let deadline = Instant::now() + TIMEOUT;
    // Allocated space is used first.
    let mut accepted = 1;
    while publish(&app, accepted).await.is_ok() {
        accepted += 1;
        assert!(Instant::now() < deadline, "events are rejected");
    }
    let response = http.post(format!("{url}/v1/events")).json(&placed("late")).send().await.unwrap();
    assert_eq!(response.status(), 507);
    let response = http.get(format!("{url}/v1/sagas")).send().await.unwrap();
    assert!(response.status() == 200 && response.text().await.unwrap().contains("o-0"));

    disk.set_full(false);
    std::fs::remove_file(&audit).unwrap();
    std::fs::remove_file(&layout).unwrap();
    while publish(&app, accepted).await.is_err() {
        assert!(Instant::now() < deadline, "events are accepted again");
        tokio::task::yield_now().await;
    }
    app.stop().await.unwrap();
    let app = start(dir.path(), &disk).await.unwrap();
    let stored = || {
        app.runtime
            .readers()
            .map(|reader| {
                reader.count(&orlog_model::TenantId::default_tenant()).unwrap().values().sum::<u64>()
            })
            .sum::<u64>()
    };
    while stored() <= accepted as u64 {
        assert!(Instant::now() < deadline, "every accepted event is applied");
        tokio::task::yield_now().await;
    }
    app.stop().await.unwrap();
}
