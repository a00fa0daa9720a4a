//! A full disk stops acceptance, keeps what is committed, and is over as soon as there is room; a failing one is recovered.

use std::sync::Arc;
use std::time::Duration;

use fastrand::Rng;
use orlog_model::{Clock, Timestamp};
use orlog_testkit::fake_upstreams::World;
use orlog_testkit::runtime::{Rig, Setup, passing, seed, tenant};
use orlog_testkit::sagas::{Order, order, order_key, order_placed, random_plan};
use orlog_testkit::{FaultyDisk, SimClock};

const TIMEOUT: Duration = Duration::from_hours(1);

async fn place(rig: &Rig, orders: &mut Vec<Order>, rng: &mut Rng, clock: &SimClock, count: usize) {
    for _ in 0..count {
        let key = order_key(&tenant(), orders.len());
        let plan = random_plan(rng, false);
        rig.publish(&order_placed(&key, &plan, clock.now())).await;
        orders.push((key, plan));
    }
}

fn setup(home: &std::path::Path, clock: &Arc<SimClock>, disk: &FaultyDisk) -> Setup {
    let clock = Arc::clone(clock) as Arc<dyn Clock>;
    let mut setup = Setup::new(home.to_owned(), vec![order(TIMEOUT)], clock);
    setup.disk = Arc::new(disk.clone());
    // A new segment, and with it room, is needed after every few orders.
    setup.store.journal_segment_bytes = 16 << 10;
    // No fold: it drops segments, and a dropped one is room that a full disk does not refuse.
    setup.store.generation_bytes = 64 << 20;
    setup
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_full_store_stops_acceptance_keeps_what_is_committed_and_goes_on_when_there_is_room() {
    let mut rng = Rng::with_seed(seed(1));
    let home = tempfile::tempdir().expect("a folder can be made");
    let clock = SimClock::new(Timestamp::from_millis(1_700_000_000_000));
    let _passing = passing(&clock);
    let world = World::new(Arc::clone(&clock) as Arc<dyn Clock>, 1);
    let disk = FaultyDisk::default();
    let rig = setup(home.path(), &clock, &disk).start(&world).await;
    let mut orders = Vec::new();
    for round in 1..=3 {
        place(&rig, &mut orders, &mut rng, &clock, 30).await;
        disk.set_full(true);
        place(&rig, &mut orders, &mut rng, &clock, 30).await;
        rig.until("the store says that it is full", |rig| !rig.runtime.health().room).await;
        let position = rig.reader().position();
        let refused = disk.refused();
        rig.until("it has tried again", |_| disk.refused() > refused).await;
        assert_eq!(rig.reader().position(), position, "round {round}: nothing is accepted on a full disk");
        assert!(rig.runtime.health().up, "round {round}: a full disk is no failure");
        disk.set_full(false);
        rig.until("there is room again", |rig| rig.runtime.health().room).await;
    }
    rig.finish(&orders, &clock, TIMEOUT).await;
    rig.audit(&orders).await;
    rig.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_process_that_ends_on_a_full_disk_goes_on_from_what_is_committed() {
    let mut rng = Rng::with_seed(seed(2));
    let home = tempfile::tempdir().expect("a folder can be made");
    let clock = SimClock::new(Timestamp::from_millis(1_700_000_000_000));
    let _passing = passing(&clock);
    let world = World::new(Arc::clone(&clock) as Arc<dyn Clock>, 1);
    let disk = FaultyDisk::default();
    let setup = setup(home.path(), &clock, &disk);
    let rig = setup.start(&world).await;
    let mut orders = Vec::new();
    place(&rig, &mut orders, &mut rng, &clock, 30).await;
    disk.set_full(true);
    place(&rig, &mut orders, &mut rng, &clock, 30).await;
    rig.until("the store says that it is full", |rig| !rig.runtime.health().room).await;
    rig.crash().await;
    disk.set_full(false);
    let rig = setup.start(&world).await;
    rig.finish(&orders, &clock, TIMEOUT).await;
    rig.audit(&orders).await;
    rig.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_disk_that_fails_to_sync_is_recovered_and_nothing_is_lost_or_doubled() {
    let mut rng = Rng::with_seed(seed(3));
    let home = tempfile::tempdir().expect("a folder can be made");
    let clock = SimClock::new(Timestamp::from_millis(1_700_000_000_000));
    let _passing = passing(&clock);
    let world = World::new(Arc::clone(&clock) as Arc<dyn Clock>, 1);
    let disk = FaultyDisk::default();
    let rig = setup(home.path(), &clock, &disk).start(&world).await;
    let mut orders = Vec::new();
    for _ in 0..8 {
        place(&rig, &mut orders, &mut rng, &clock, 5).await;
        disk.fail_syncs(1 + rng.usize(..3));
        place(&rig, &mut orders, &mut rng, &clock, 1).await;
        rig.until("the disk has failed", |_| disk.syncs_to_fail() == 0).await;
    }
    rig.finish(&orders, &clock, TIMEOUT).await;
    rig.audit(&orders).await;
    rig.stop().await;
}
