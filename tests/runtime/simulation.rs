//! Simulation on one thread: simulated time, and a bus that loses responses and acknowledgements and
//! delivers duplicates, late and out of order. It runs many seeds; a failing one is printed and
//! repeated with `ORLOG_SEED`.

use std::sync::Arc;
use std::time::Duration;

use fastrand::Rng;
use orlog_model::{Clock, Status, Timestamp};
use orlog_testkit::SimClock;
use orlog_testkit::fake_upstreams::FakeUpstreams;
use orlog_testkit::faulty_bus::Faults;
use orlog_testkit::runtime::consistency::final_statuses;
use orlog_testkit::runtime::{TestRuntime, TestRuntimeConfig, drive_clock, seed, tenant};
use orlog_testkit::sagas::{
    EventRecorder, PlannedOrder, order, order_key, order_placed, random_plan,
};

const TIMEOUT: Duration = Duration::from_hours(1);

/// Prints the seed of a failed run.
struct Seed(u64);

impl Drop for Seed {
    fn drop(&mut self) {
        if std::thread::panicking() {
            println!("failed with ORLOG_SEED={}", self.0);
        }
    }
}

/// One run: orders are placed, the process crashes at random, and the records are reconciled at the
/// end.
async fn simulate(seed: u64, count: usize) {
    let _seed_printer = Seed(seed);
    let mut rng = Rng::with_seed(seed);
    let home = tempfile::tempdir().expect("a directory can be created");
    let clock = SimClock::new(Timestamp::from_millis(1_700_000_000_000));
    let _clock_driver = drive_clock(&clock);
    let world = FakeUpstreams::new(Arc::clone(&clock) as Arc<dyn Clock>, 1 + rng.usize(..2));
    let programs = vec![order(TIMEOUT), EventRecorder::program()];
    let mut setup = TestRuntimeConfig::new(
        home.path().to_owned(),
        programs,
        Arc::clone(&clock) as Arc<dyn Clock>,
    );
    setup.shards = rng.u16(1..3);
    setup.limits.max_group_commit = [1, 3, 1024][rng.usize(..3)];
    setup.limits.max_in_flight_per_instance = [1, 128][rng.usize(..2)];
    setup.limits.max_live_instances = [2, 1000][rng.usize(..2)];
    setup.limits.max_in_flight_per_window = [1, 4096][rng.usize(..2)];
    setup.limits.max_fresh_rows = [1, 7, 16_384][rng.usize(..3)];
    let faults = Faults {
        lost_responses: rng.u8(..30),
        lost_acks: rng.u8(..40),
        duplicates: rng.u8(..60),
        delays: rng.u8(..50),
        signing_panics: rng.u8(..30),
        defects: 0,
    };
    let mut orders: Vec<PlannedOrder> = Vec::new();
    for run in 0..3 {
        setup.faults = Some((faults, seed ^ run));
        let runtime = setup.start(&world).await;
        for _ in 0..count / 3 {
            let key = order_key(&tenant(), orders.len());
            let plan = random_plan(&mut rng, true);
            runtime
                .publish(&order_placed(&key, &plan, clock.now()))
                .await;
            orders.push((key, plan));
        }
        let enough = rng.usize(..count);
        // The orders may require less work than that. One whose upstream is silent waits for its timeout.
        let answered = orders
            .iter()
            .filter(|(_, plan)| plan["reserve"] != "silent");
        let answered: Vec<_> = answered.map(|(key, _)| key.clone()).collect();
        let worked = |runtime: &TestRuntime| {
            let ended = |(_, status): &(String, Option<Status>)| {
                status.is_some_and(|status| status.is_final() || status == Status::Stuck)
            };
            runtime.upstreams.executed().len() >= enough
                || final_statuses(runtime, &answered).iter().all(ended)
        };
        runtime.wait_until("some work is done", worked).await;
        runtime.crash().await;
    }
    let runtime = setup.start(&world).await;
    runtime.finish(&orders, &clock, TIMEOUT).await;
    runtime.assert_consistent(&orders).await;
    runtime.stop().await;
}

#[tokio::test]
async fn no_loss_and_no_duplicates_under_bus_faults_and_crashes() {
    let first = seed(1);
    for seed in first..first + 12 {
        simulate(seed, 18).await;
    }
}

#[tokio::test]
#[ignore = "long; make stress"]
async fn no_loss_and_no_duplicates_under_bus_faults_and_crashes_long() {
    let first = seed(10_000);
    for seed in first..first + 500 {
        simulate(seed, 60).await;
    }
}
