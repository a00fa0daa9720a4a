//! Full disk: new work is rejected, commits stay durable, and the node continues when space is free. A
//! failing disk is recovered.

use std::sync::Arc;
use std::time::Duration;

use fastrand::Rng;
use orlog_model::{Clock, Timestamp};
use orlog_testkit::fake_upstreams::FakeUpstreams;
use orlog_testkit::runtime::{TestRuntime, TestRuntimeConfig, drive_clock, seed, tenant};
use orlog_testkit::sagas::{PlannedOrder, order, order_key, order_placed, random_plan};
use orlog_testkit::{FaultyDisk, SimClock};

const TIMEOUT: Duration = Duration::from_hours(1);

async fn place_orders(
    runtime: &TestRuntime,
    orders: &mut Vec<PlannedOrder>,
    rng: &mut Rng,
    clock: &SimClock,
    count: usize,
) {
    for _ in 0..count {
        let key = order_key(&tenant(), orders.len());
        let plan = random_plan(rng, false);
        runtime.publish(&order_placed(&key, &plan, clock.now())).await;
        orders.push((key, plan));
    }
}

fn setup(home: &std::path::Path, clock: &Arc<SimClock>, disk: &FaultyDisk) -> TestRuntimeConfig {
    let clock = Arc::clone(clock) as Arc<dyn Clock>;
    let mut setup = TestRuntimeConfig::new(home.to_owned(), vec![order(TIMEOUT)], clock);
    setup.disk = Arc::new(disk.clone());
    // Every few orders require a new segment, and therefore disk space.
    setup.store.journal_segment_bytes = 16 << 10;
    // No flush: it deletes segments, and the space of a deleted segment would be available on a full disk.
    setup.store.memtable_bytes = 64 << 20;
    setup
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn full_store_rejects_events_keeps_commits_and_recovers_when_space_is_freed() {
    let mut rng = Rng::with_seed(seed(1));
    let home = tempfile::tempdir().expect("a directory can be created");
    let clock = SimClock::new(Timestamp::from_millis(1_700_000_000_000));
    let _clock_driver = drive_clock(&clock);
    let world = FakeUpstreams::new(Arc::clone(&clock) as Arc<dyn Clock>, 1);
    let disk = FaultyDisk::default();
    let runtime = setup(home.path(), &clock, &disk).start(&world).await;
    let mut orders = Vec::new();
    for round in 1..=3 {
        place_orders(&runtime, &mut orders, &mut rng, &clock, 30).await;
        disk.set_full(true);
        place_orders(&runtime, &mut orders, &mut rng, &clock, 30).await;
        runtime
            .wait_until("the store says that it is full", |runtime| !runtime.runtime.health().has_capacity)
            .await;
        let position = runtime.reader().position();
        let rejected = disk.rejected();
        runtime.wait_until("it has tried again", |_| disk.rejected() > rejected).await;
        assert_eq!(
            runtime.reader().position(),
            position,
            "round {round}: nothing is accepted on a full disk"
        );
        assert!(runtime.runtime.health().is_running, "round {round}: a full disk is no failure");
        disk.set_full(false);
        runtime.wait_until("there is room again", |runtime| runtime.runtime.health().has_capacity).await;
    }
    runtime.finish(&orders, &clock, TIMEOUT).await;
    runtime.assert_consistent(&orders).await;
    runtime.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn commits_are_retried_while_the_journal_cannot_open_a_segment() {
    let mut rng = Rng::with_seed(seed(3));
    let home = tempfile::tempdir().expect("a directory can be created");
    let clock = SimClock::new(Timestamp::from_millis(1_700_000_000_000));
    let _clock_driver = drive_clock(&clock);
    let world = FakeUpstreams::new(Arc::clone(&clock) as Arc<dyn Clock>, 1);
    let disk = FaultyDisk::default();
    let runtime = setup(home.path(), &clock, &disk).start(&world).await;
    let mut orders = Vec::new();
    for round in 1..=2 {
        disk.set_no_descriptors(true);
        place_orders(&runtime, &mut orders, &mut rng, &clock, 60).await;
        let blocked = |runtime: &TestRuntime| runtime.runtime.metrics().commit_failure();
        runtime.wait_until("commits are blocked", |runtime| blocked(runtime).is_some()).await;
        let rejected = disk.rejected();
        runtime.wait_until("it has tried again", |_| disk.rejected() > rejected).await;
        let health = runtime.runtime.health();
        assert!(health.is_running && health.has_capacity, "round {round}: a failed rotation is no failure");
        disk.set_no_descriptors(false);
        runtime.wait_until("commits continue", |runtime| blocked(runtime).is_none()).await;
    }
    runtime.finish(&orders, &clock, TIMEOUT).await;
    runtime.assert_consistent(&orders).await;
    runtime.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn restart_after_disk_full_continues_from_the_last_commit() {
    let mut rng = Rng::with_seed(seed(2));
    let home = tempfile::tempdir().expect("a directory can be created");
    let clock = SimClock::new(Timestamp::from_millis(1_700_000_000_000));
    let _clock_driver = drive_clock(&clock);
    let world = FakeUpstreams::new(Arc::clone(&clock) as Arc<dyn Clock>, 1);
    let disk = FaultyDisk::default();
    let setup = setup(home.path(), &clock, &disk);
    let runtime = setup.start(&world).await;
    let mut orders = Vec::new();
    place_orders(&runtime, &mut orders, &mut rng, &clock, 30).await;
    disk.set_full(true);
    place_orders(&runtime, &mut orders, &mut rng, &clock, 30).await;
    runtime
        .wait_until("the store says that it is full", |runtime| !runtime.runtime.health().has_capacity)
        .await;
    runtime.crash().await;
    disk.set_full(false);
    let runtime = setup.start(&world).await;
    runtime.finish(&orders, &clock, TIMEOUT).await;
    runtime.assert_consistent(&orders).await;
    runtime.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn failed_fsync_is_recovered_without_loss_or_duplicates() {
    let mut rng = Rng::with_seed(seed(3));
    let home = tempfile::tempdir().expect("a directory can be created");
    let clock = SimClock::new(Timestamp::from_millis(1_700_000_000_000));
    let _clock_driver = drive_clock(&clock);
    let world = FakeUpstreams::new(Arc::clone(&clock) as Arc<dyn Clock>, 1);
    let disk = FaultyDisk::default();
    let runtime = setup(home.path(), &clock, &disk).start(&world).await;
    let mut orders = Vec::new();
    for _ in 0..8 {
        place_orders(&runtime, &mut orders, &mut rng, &clock, 5).await;
        disk.fail_syncs(1 + rng.usize(..3));
        place_orders(&runtime, &mut orders, &mut rng, &clock, 1).await;
        runtime.wait_until("the disk has failed", |_| disk.syncs_to_fail() == 0).await;
    }
    runtime.finish(&orders, &clock, TIMEOUT).await;
    runtime.assert_consistent(&orders).await;
    runtime.stop().await;
}
