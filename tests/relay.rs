//! Relay and timer through the complete runtime: what they read from the store, and how tenants share
//! them.

use std::sync::Arc;
use std::time::Duration;

use orlog_model::{Clock, InstanceKey, Timestamp};
use orlog_testkit::SimClock;
use orlog_testkit::fake_upstreams::FakeUpstreams;
use orlog_testkit::runtime::{TestRuntime, TestRuntimeConfig, tenant};
use orlog_testkit::sagas::{order, order_key, order_placed};
use serde_json::json;

const TIMEOUT: Duration = Duration::from_hours(1);
const START: Timestamp = Timestamp::from_millis(1_700_000_000_000);

fn config(home: &tempfile::TempDir) -> (TestRuntimeConfig, Arc<FakeUpstreams>) {
    let clock: Arc<dyn Clock> = SimClock::new(START);
    let upstreams = FakeUpstreams::new(Arc::clone(&clock), 1);
    (TestRuntimeConfig::new(home.path().to_owned(), vec![order(TIMEOUT)], clock), upstreams)
}

async fn place(runtime: &TestRuntime, numbers: std::ops::Range<usize>) -> Vec<InstanceKey> {
    let keys: Vec<_> = numbers.map(|number| order_key(&tenant(), number)).collect();
    for key in &keys {
        runtime.publish(&order_placed(key, &json!({}), START)).await;
    }
    keys
}

/// Returns the scans of the tables `outbox` and `timer` since the store was opened.
fn scans(runtime: &TestRuntime) -> u64 {
    let stats = runtime.reader().stats();
    let tables = stats.scans.iter().filter(|(table, _)| ["outbox", "timer"].contains(table));
    tables.map(|(_, scans)| scans).sum()
}

#[tokio::test]
async fn commits_cause_no_scan_of_the_outbox_and_the_timers() {
    let home = tempfile::tempdir().expect("a directory can be created");
    let (config, upstreams) = config(&home);
    let runtime = config.start(&upstreams).await;
    runtime.wait_until_ended(&place(&runtime, 0..5).await).await;
    let before = (scans(&runtime), runtime.reader().position());
    for number in 5..55 {
        runtime.wait_until_ended(&place(&runtime, number..number + 1).await).await;
    }
    let commits = runtime.reader().position() - before.1;
    assert!(commits >= 50, "{commits} commits");
    assert_eq!(scans(&runtime) - before.0, 0, "scans in {commits} commits");
    runtime.stop().await;
}

#[tokio::test]
async fn overflow_of_the_memory_falls_back_to_the_store() {
    let home = tempfile::tempdir().expect("a directory can be created");
    let (mut config, upstreams) = config(&home);
    config.limits.max_fresh_rows = 1;
    let runtime = config.start(&upstreams).await;
    let before = scans(&runtime);
    let keys = place(&runtime, 0..200).await;
    runtime.wait_until_ended(&keys).await;
    assert!(scans(&runtime) > before, "no overflow");
    for key in &keys {
        assert_eq!(runtime.upstreams.executed_for(key), ["reserve", "charge", "ship", "notify"]);
    }
    runtime.stop().await;
}
