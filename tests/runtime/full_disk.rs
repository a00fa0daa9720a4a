//! Full disk: new work is rejected, commits stay durable, and the node continues when space is free. A
//! failing disk is recovered.

use std::sync::Arc;
use std::time::Duration;

use fastrand::Rng;
use orlog_model::{Clock, Timestamp};
use orlog_testkit::fake_upstreams::FakeUpstreams;
use orlog_testkit::runtime::{
    ClockDriver, TestRuntime, TestRuntimeConfig, drive_clock, seed, tenant,
};
use orlog_testkit::sagas::{PlannedOrder, order, order_key, order_placed, random_plan};
use orlog_testkit::{FaultyDisk, SimClock};
use tempfile::TempDir;

const TIMEOUT: Duration = Duration::from_hours(1);

struct Scene {
    rng: Rng,
    home: TempDir,
    clock: Arc<SimClock>,
    _clock_driver: ClockDriver,
    upstreams: Arc<FakeUpstreams>,
    disk: FaultyDisk,
    orders: Vec<PlannedOrder>,
}

impl Scene {
    fn new(default_seed: u64) -> Self {
        let clock = SimClock::new(Timestamp::from_millis(1_700_000_000_000));
        Self {
            rng: Rng::with_seed(seed(default_seed)),
            home: tempfile::tempdir().expect("a directory can be created"),
            _clock_driver: drive_clock(&clock),
            upstreams: FakeUpstreams::new(Arc::clone(&clock) as Arc<dyn Clock>, 1),
            clock,
            disk: FaultyDisk::default(),
            orders: Vec::new(),
        }
    }

    /// Starts a runtime on the data of the previous one.
    async fn start(&self) -> TestRuntime {
        let (home, clock) = (
            self.home.path().to_owned(),
            Arc::clone(&self.clock) as Arc<dyn Clock>,
        );
        let mut config = TestRuntimeConfig::new(home, vec![order(TIMEOUT)], clock);
        config.disk = Arc::new(self.disk.clone());
        // Every few orders require a new segment, and therefore disk space.
        config.store.journal_segment_bytes = 16 << 10;
        // No flush: it deletes segments, and the space of a deleted segment would be available on a full disk.
        config.store.memtable_bytes = 64 << 20;
        config.start(&self.upstreams).await
    }

    async fn place_orders(&mut self, runtime: &TestRuntime, count: usize) {
        for _ in 0..count {
            let key = order_key(&tenant(), self.orders.len());
            let plan = random_plan(&mut self.rng, false);
            runtime
                .publish(&order_placed(&key, &plan, self.clock.now()))
                .await;
            self.orders.push((key, plan));
        }
    }

    /// Runs all orders to their end, and checks them.
    async fn finish(&self, runtime: TestRuntime) {
        runtime.finish(&self.orders, &self.clock, TIMEOUT).await;
        runtime.assert_consistent(&self.orders).await;
        runtime.stop().await;
    }
}

/// Requirements: E8.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn full_store_rejects_events_keeps_commits_and_recovers_when_space_is_freed() {
    let mut scene = Scene::new(1);
    let disk = scene.disk.clone();
    let runtime = scene.start().await;
    for round in 1..=3 {
        scene.place_orders(&runtime, 30).await;
        disk.set_full(true);
        scene.place_orders(&runtime, 30).await;
        runtime
            .wait_until("the store says that it is full", |runtime| {
                !runtime.runtime.health().has_capacity
            })
            .await;
        let position = runtime.reader().position();
        let rejected = disk.rejected();
        runtime
            .wait_until("it has tried again", |_| disk.rejected() > rejected)
            .await;
        assert_eq!(
            runtime.reader().position(),
            position,
            "round {round}: nothing is accepted on a full disk"
        );
        assert!(
            runtime.runtime.health().is_running,
            "round {round}: a full disk is no failure"
        );
        disk.set_full(false);
        runtime
            .wait_until("there is room again", |runtime| {
                runtime.runtime.health().has_capacity
            })
            .await;
    }
    scene.finish(runtime).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn commits_are_retried_while_the_journal_cannot_open_a_segment() {
    let mut scene = Scene::new(3);
    let disk = scene.disk.clone();
    let runtime = scene.start().await;
    for round in 1..=2 {
        disk.set_no_descriptors(true);
        scene.place_orders(&runtime, 60).await;
        let blocked = |runtime: &TestRuntime| runtime.runtime.metrics().commit_failure();
        runtime
            .wait_until("commits are blocked", |runtime| blocked(runtime).is_some())
            .await;
        let rejected = disk.rejected();
        runtime
            .wait_until("it has tried again", |_| disk.rejected() > rejected)
            .await;
        let health = runtime.runtime.health();
        assert!(
            health.is_running && health.has_capacity,
            "round {round}: a failed rotation is no failure"
        );
        disk.set_no_descriptors(false);
        runtime
            .wait_until("commits continue", |runtime| blocked(runtime).is_none())
            .await;
    }
    scene.finish(runtime).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn restart_after_disk_full_continues_from_the_last_commit() {
    let mut scene = Scene::new(2);
    let disk = scene.disk.clone();
    let runtime = scene.start().await;
    scene.place_orders(&runtime, 30).await;
    disk.set_full(true);
    scene.place_orders(&runtime, 30).await;
    runtime
        .wait_until("the store says that it is full", |runtime| {
            !runtime.runtime.health().has_capacity
        })
        .await;
    runtime.crash().await;
    disk.set_full(false);
    let runtime = scene.start().await;
    scene.finish(runtime).await;
}

/// Requirements: E4.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn failed_fsync_is_recovered_without_loss_or_duplicates() {
    let mut scene = Scene::new(3);
    let disk = scene.disk.clone();
    let runtime = scene.start().await;
    for _ in 0..8 {
        scene.place_orders(&runtime, 5).await;
        disk.fail_syncs(1 + scene.rng.usize(..3));
        scene.place_orders(&runtime, 1).await;
        runtime
            .wait_until("the disk has failed", |_| disk.syncs_to_fail() == 0)
            .await;
    }
    scene.finish(runtime).await;
}
