//! Passivation, shutdown and actor crashes lose no input: each input is applied once, in the order of
//! its instance.

use std::sync::Arc;
use std::time::Duration;

use fastrand::Rng;
use orlog_model::{Clock, ControlAction, ControlRequest, InstanceKey, Timestamp};
use orlog_testkit::SimClock;
use orlog_testkit::WAIT_TIMEOUT;
use orlog_testkit::fake_upstreams::FakeUpstreams;
use orlog_testkit::runtime::{
    TestRuntime, TestRuntimeConfig, control_request_id, drive_clock, seed, tenant,
};
use orlog_testkit::sagas::{
    EventRecorder, PlannedOrder, order, order_key, order_placed, random_plan,
};

use crate::gated::{Gate, GatedProgram};

const TIMEOUT: Duration = Duration::from_hours(1);
const START: Timestamp = Timestamp::from_millis(1_700_000_000_000);

fn numbers(runtime: &TestRuntime, key: &InstanceKey) -> Vec<u32> {
    let instance = runtime.reader().instance(key).ok().flatten();
    instance.map_or_else(Vec::new, |instance| EventRecorder::numbers(&instance.state))
}

/// Kills some saga actors: the children of the shard that accept inputs; they outnumber the helper
/// actors.
fn kill_sagas(runtime: &TestRuntime, rng: &mut Rng, count: usize) {
    let shards = runtime
        .runtime
        .root()
        .get_children()
        .into_iter()
        .max_by_key(|shard| shard.get_children().len());
    let mut children = shards.map_or_else(Vec::new, |shard| shard.get_children());
    let helpers = 4;
    children.sort_by_key(ractor::ActorCell::get_id);
    let mut sagas = children.split_off(helpers.min(children.len()));
    rng.shuffle(&mut sagas);
    sagas.iter().take(count).for_each(ractor::ActorCell::kill);
}

/// Publishes the events of many ledgers, interleaved; the events of one ledger stay in order.
async fn load(
    runtime: &TestRuntime,
    rng: &mut Rng,
    ledgers: usize,
    events: u32,
    mut between: impl FnMut(&TestRuntime, &mut Rng),
) {
    let mut open: Vec<(usize, u32)> = (0..ledgers).map(|ledger| (ledger, 0)).collect();
    let mut published = 0;
    while !open.is_empty() {
        let chosen = rng.usize(..open.len());
        let (ledger, number) = open[chosen];
        runtime
            .publish(&EventRecorder::event(
                &EventRecorder::key(&tenant(), ledger),
                number,
                START,
            ))
            .await;
        open[chosen].1 += 1;
        if number + 1 == events {
            open.swap_remove(chosen);
        }
        published += 1;
        if published % 50 == 0 {
            between(runtime, rng);
        }
    }
}

async fn until_full(runtime: &TestRuntime, ledgers: usize, events: u32) {
    let keys: Vec<InstanceKey> = (0..ledgers)
        .map(|ledger| EventRecorder::key(&tenant(), ledger))
        .collect();
    runtime
        .wait_until("every ledger is full", |runtime| {
            keys.iter()
                .all(|key| numbers(runtime, key).len() >= events as usize)
        })
        .await;
    for key in &keys {
        assert!(
            numbers(runtime, key).into_iter().eq(0..events),
            "{key}: {:?}",
            numbers(runtime, key)
        );
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn low_live_instance_cap_preserves_inputs_and_order() {
    let mut rng = Rng::with_seed(seed(1));
    let home = tempfile::tempdir().expect("a directory can be created");
    let clock: Arc<dyn Clock> = SimClock::new(START);
    let world = FakeUpstreams::new(Arc::clone(&clock), 1);
    let mut setup = TestRuntimeConfig::new(
        home.path().to_owned(),
        vec![EventRecorder::program()],
        clock,
    );
    setup.limits.max_live_instances = 5;
    setup.limits.max_in_flight_per_instance = 4;
    let runtime = setup.start(&world).await;
    let mut max_live = 0;
    load(&runtime, &mut rng, 60, 15, |runtime, _| {
        max_live = max_live.max(runtime.runtime.metrics().live_instances());
    })
    .await;
    until_full(&runtime, 60, 15).await;
    runtime
        .wait_until("idle instances are put to rest", |runtime| {
            runtime.runtime.metrics().live_instances() <= 5
        })
        .await;
    println!("at most {max_live} live instances were seen, 5 allowed");
    runtime.stop().await;
}

/// Requirements: R7.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn events_are_applied_in_order_across_actor_crashes_and_passivation() {
    let mut rng = Rng::with_seed(seed(2));
    let home = tempfile::tempdir().expect("a directory can be created");
    let clock: Arc<dyn Clock> = SimClock::new(START);
    let world = FakeUpstreams::new(Arc::clone(&clock), 1);
    let mut setup = TestRuntimeConfig::new(
        home.path().to_owned(),
        vec![EventRecorder::program()],
        clock,
    );
    setup.limits.max_live_instances = 8;
    setup.limits.idle_timeout = Duration::from_millis(4);
    let runtime = setup.start(&world).await;
    load(&runtime, &mut rng, 12, 60, |runtime, rng| {
        kill_sagas(runtime, rng, 3);
    })
    .await;
    until_full(&runtime, 12, 60).await;
    runtime.stop().await;
}

/// Requirements: R15.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn drain_under_load_completes_and_remaining_work_resumes_after_restart() {
    let mut rng = Rng::with_seed(seed(3));
    let home = tempfile::tempdir().expect("a directory can be created");
    let clock = SimClock::new(START);
    let _clock_driver = drive_clock(&clock);
    let world = FakeUpstreams::new(Arc::clone(&clock) as Arc<dyn Clock>, 1);
    let setup = TestRuntimeConfig::new(
        home.path().to_owned(),
        vec![order(TIMEOUT)],
        Arc::clone(&clock) as Arc<dyn Clock>,
    );
    let mut orders: Vec<PlannedOrder> = Vec::new();
    for _ in 0..4 {
        let runtime = setup.start(&world).await;
        for _ in 0..25 {
            let key = order_key(&tenant(), orders.len());
            let plan = random_plan(&mut rng, false);
            runtime
                .publish(&order_placed(&key, &plan, clock.now()))
                .await;
            orders.push((key, plan));
        }
        assert!(
            runtime.runtime.drain(WAIT_TIMEOUT).await,
            "idle in time: {}",
            runtime.state()
        );
        let (position, executed) = (runtime.reader().position(), world.executed());
        assert_eq!(runtime.outbox_depth(), 0, "a drained runtime has no work");
        let late = order_key(&tenant(), orders.len());
        runtime
            .publish(&order_placed(&late, &serde_json::json!({}), clock.now()))
            .await;
        orders.push((late, serde_json::json!({})));
        assert_eq!(
            runtime
                .runtime
                .reader(&orders[0].0)
                .map(|reader| reader.position()),
            Some(position)
        );
        assert_eq!(world.executed(), executed, "a drained runtime does nothing");
        assert!(!runtime.runtime.health().accepting);
        runtime.stop().await;
    }
    let runtime = setup.start(&world).await;
    runtime.finish(&orders, &clock, TIMEOUT).await;
    runtime.assert_consistent(&orders).await;
    runtime.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
#[expect(
    clippy::await_holding_lock,
    reason = "the gate is closed by holding the lock, and no thread waits for it here"
)]
async fn inputs_above_the_mailbox_limit_are_spilled() {
    let home = tempfile::tempdir().expect("a directory can be created");
    let clock: Arc<dyn Clock> = SimClock::new(START);
    let world = FakeUpstreams::new(Arc::clone(&clock), 1);
    let gate = Arc::<Gate>::default();
    let programs = vec![GatedProgram::program(&gate)];
    let mut setup = TestRuntimeConfig::new(home.path().to_owned(), programs, clock);
    setup.limits.max_in_flight_per_instance = 16;
    let runtime = setup.start(&world).await;
    let key = EventRecorder::key(&tenant(), 0);
    let closed = gate.close();
    runtime.publish(&EventRecorder::event(&key, 0, START)).await;
    runtime
        .wait_until("the first input is in its transition", |_| {
            gate.arrived() == 1
        })
        .await;
    for number in 1..50 {
        runtime
            .publish(&EventRecorder::event(&key, number, START))
            .await;
    }
    let deepest = |runtime: &TestRuntime| {
        runtime
            .runtime
            .deepest_mailboxes(1)
            .first()
            .map_or(0, |(_, depth)| *depth)
    };
    runtime
        .wait_until("the inputs wait for the actor", |runtime| {
            deepest(runtime) == 50
        })
        .await;
    drop(closed);
    until_full(&runtime, 1, 50).await;
    runtime
        .wait_until("the mailbox is empty", |runtime| deepest(runtime) == 0)
        .await;
    // The first input starts the instance. The queue was longer than 16 when the actor was free again.
    assert_eq!(runtime.runtime.metrics().inputs_spilled(), 49);
    runtime.stop().await;
}

fn control(number: usize, action: ControlAction) -> ControlRequest {
    ControlRequest {
        id: control_request_id("resumed", number),
        action,
        expected_version: None,
        at: START,
        user: None,
        reason: None,
        trace: None,
        wait_token: None,
    }
}

/// Buffers events of a paused instance, and resumes it while other instances start and more events arrive.
async fn resume_under_pressure() {
    const BUFFERED: u32 = 300;
    const TOTAL: u32 = BUFFERED + 40;
    let home = tempfile::tempdir().expect("a directory can be created");
    let clock: Arc<dyn Clock> = SimClock::new(START);
    let world = FakeUpstreams::new(Arc::clone(&clock), 1);
    let mut setup = TestRuntimeConfig::new(
        home.path().to_owned(),
        vec![EventRecorder::program()],
        clock,
    );
    setup.limits.max_live_instances = 1;
    setup.limits.max_in_flight_per_instance = 128;
    let runtime = setup.start(&world).await;
    let key = EventRecorder::key(&tenant(), 0);
    runtime.publish(&EventRecorder::event(&key, 0, START)).await;
    runtime
        .wait_until("it exists", |runtime| {
            runtime.reader().instance(&key).unwrap().is_some()
        })
        .await;
    runtime
        .runtime
        .control(&key, control(0, ControlAction::Pause))
        .await
        .unwrap();
    for number in 1..BUFFERED {
        runtime
            .publish(&EventRecorder::event(&key, number, START))
            .await;
    }
    runtime.wait_until_consumed().await;
    runtime
        .runtime
        .control(&key, control(1, ControlAction::Resume))
        .await
        .unwrap();
    for number in BUFFERED..TOTAL {
        let other = EventRecorder::key(&tenant(), 1 + number as usize % 3);
        runtime
            .publish(&EventRecorder::event(&other, 0, START))
            .await;
        runtime
            .publish(&EventRecorder::event(&key, number, START))
            .await;
    }
    runtime.wait_until_consumed().await;
    assert!(
        numbers(&runtime, &key).into_iter().eq(0..TOTAL),
        "{:?}",
        numbers(&runtime, &key)
    );
    let versions = runtime
        .reader()
        .instance(&key)
        .unwrap()
        .map(|instance| instance.version);
    let history = runtime.reader().history(&key, 0, usize::MAX).unwrap().len() as u64;
    assert_eq!(versions, Some(history), "one actor numbers the transitions");
    runtime.stop().await;
}

/// Requirements: R8, E4.
#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn instance_that_applies_buffered_inputs_keeps_its_actor() {
    for _ in 0..8 {
        resume_under_pressure().await;
    }
}
