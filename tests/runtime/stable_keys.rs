//! Finding 6 of the audit: one idempotency key per step, purpose and round, also if a store forgets what it
//! has committed and decides again later, in another order.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use fastrand::Rng;
use orlog_model::{Clock, InstanceKey, Timestamp};
use orlog_testkit::SimClock;
use orlog_testkit::fake_upstreams::FakeUpstreams;
use orlog_testkit::runtime::{TestRuntimeConfig, drive_clock, seed, tenant};
use orlog_testkit::sagas::{PlannedOrder, order, order_key, order_placed, random_plan};

const TIMEOUT: Duration = Duration::from_hours(1);
const ORDERS: usize = 40;

fn copy(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap().map(Result::unwrap) {
        let to = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            copy(&entry.path(), &to);
        } else {
            std::fs::copy(entry.path(), &to).unwrap();
        }
    }
}

fn restore(saved: &Path, to: &Path) {
    std::fs::remove_dir_all(to).unwrap();
    copy(saved, to);
}

/// Runs orders, copies the named directories while work is in flight, lets all orders end, restores the
/// copies, and lets all orders end again at a later time.
async fn forget(seed: u64, directories: &[&str]) {
    let mut rng = Rng::with_seed(seed);
    let (home, saved) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let clock = SimClock::new(Timestamp::from_millis(1_700_000_000_000));
    let _driver = drive_clock(&clock);
    let upstreams = FakeUpstreams::new(Arc::clone(&clock) as Arc<dyn Clock>, 1);
    let config = TestRuntimeConfig::new(
        home.path().to_owned(),
        vec![order(TIMEOUT)],
        Arc::clone(&clock) as Arc<dyn Clock>,
    );
    let runtime = config.start(&upstreams).await;
    let mut orders: Vec<PlannedOrder> = Vec::new();
    for number in 0..ORDERS {
        let key = order_key(&tenant(), number);
        let plan = random_plan(&mut rng, true);
        runtime
            .publish(&order_placed(&key, &plan, clock.now()))
            .await;
        orders.push((key, plan));
    }
    let enough = rng.usize(1..ORDERS);
    runtime
        .wait_until("some work is executed", |it| {
            it.upstreams.executed().len() >= enough
        })
        .await;
    runtime.crash().await;
    for directory in directories {
        copy(&home.path().join(directory), &saved.path().join(directory));
    }

    let runtime = config.start(&upstreams).await;
    runtime.finish(&orders, &clock, TIMEOUT).await;
    runtime.crash().await;
    let executed_before = upstreams.executed().len();
    for directory in directories {
        restore(&saved.path().join(directory), &home.path().join(directory));
    }

    clock.advance(Duration::from_mins(7));
    let attempts = upstreams.attempts();
    let runtime = config.start(&upstreams).await;
    runtime.finish(&orders, &clock, TIMEOUT).await;
    assert!(
        upstreams.attempts() > attempts,
        "the restored store requested work again"
    );
    println!(
        "{executed_before} actions executed, {} after the restore",
        upstreams.executed().len()
    );
    let mut keys: BTreeMap<(InstanceKey, String), Vec<_>> = BTreeMap::new();
    for action in upstreams.executed() {
        keys.entry((action.instance, action.tag))
            .or_default()
            .push(action.key);
    }
    for (step, keys) in keys {
        assert_eq!(
            keys.len(),
            1,
            "{step:?} was executed under several keys: {keys:?}"
        );
    }
    runtime.stop().await;
}

/// A disk that loses the last commits of the store but keeps the event log, as after a power loss with
/// `durability = "interval"`.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn keys_are_stable_after_a_loss_of_the_last_commits() {
    for seed in seed(1)..seed(1) + 3 {
        forget(seed, &["shard-0"]).await;
    }
}

/// A backup of the store and the event log that is restored later.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn keys_are_stable_after_the_restore_of_a_backup() {
    for seed in seed(11)..seed(11) + 3 {
        forget(seed, &["shard-0", "bus"]).await;
    }
}
