//! A simulation on one thread: simulated time, and a bus that loses answers and acknowledgements, delivers twice, late and
//! in another order. Many seeds; one that fails is printed and can be had again with `ORLOG_SEED`.

use std::sync::Arc;
use std::time::Duration;

use fastrand::Rng;
use orlog_model::{Clock, Timestamp};
use orlog_testkit::SimClock;
use orlog_testkit::fake_upstreams::World;
use orlog_testkit::faulty_bus::Faults;
use orlog_testkit::runtime::{Setup, passing, seed, tenant};
use orlog_testkit::sagas::{Ledger, Order, order, order_key, order_placed, random_plan};

const TIMEOUT: Duration = Duration::from_hours(1);

/// Who writes down with which seed a run failed.
struct Seed(u64);

impl Drop for Seed {
    fn drop(&mut self) {
        if std::thread::panicking() {
            println!("failed with ORLOG_SEED={}", self.0);
        }
    }
}

/// One run: orders are placed, the process crashes now and then, and in the end the books agree.
async fn simulate(seed: u64, count: usize) {
    let _told = Seed(seed);
    let mut rng = Rng::with_seed(seed);
    let home = tempfile::tempdir().expect("a folder can be made");
    let clock = SimClock::new(Timestamp::from_millis(1_700_000_000_000));
    let _passing = passing(&clock);
    let world = World::new(Arc::clone(&clock) as Arc<dyn Clock>, 1 + rng.usize(..2));
    let programs = vec![order(TIMEOUT), Ledger::program()];
    let mut setup = Setup::new(home.path().to_owned(), programs, Arc::clone(&clock) as Arc<dyn Clock>);
    setup.shards = rng.u16(1..3);
    setup.limits.group = [1, 3, 1024][rng.usize(..3)];
    setup.limits.live_instances = [2, 1000][rng.usize(..2)];
    setup.limits.offered_per_lane = [1, 4096][rng.usize(..2)];
    let faults = Faults {
        lost_answers: rng.u8(..30),
        lost_acks: rng.u8(..40),
        twice: rng.u8(..60),
        late: rng.u8(..50),
    };
    let mut orders: Vec<Order> = Vec::new();
    for life in 0..3 {
        setup.faults = Some((faults, seed ^ life));
        let rig = setup.start(&world).await;
        for _ in 0..count / 3 {
            let key = order_key(&tenant(), orders.len());
            let plan = random_plan(&mut rng, true);
            rig.publish(&order_placed(&key, &plan, clock.now())).await;
            orders.push((key, plan));
        }
        let enough = rng.usize(..count);
        rig.until("some work is done", |rig| rig.world.deeds().len() >= enough).await;
        rig.crash().await;
    }
    let rig = setup.start(&world).await;
    rig.finish(&orders, &clock, TIMEOUT).await;
    rig.audit(&orders).await;
    rig.stop().await;
}

#[tokio::test]
async fn a_faulty_bus_and_crashes_lose_and_double_nothing() {
    let first = seed(1);
    for seed in first..first + 12 {
        simulate(seed, 18).await;
    }
}

#[tokio::test]
#[ignore = "long; make torture"]
async fn a_faulty_bus_and_crashes_lose_and_double_nothing_long() {
    let first = seed(10_000);
    for seed in first..first + 500 {
        simulate(seed, 60).await;
    }
}
