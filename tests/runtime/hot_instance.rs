//! One instance with many events or a large state does not delay others, and keeps its order.

use std::collections::BTreeMap;
use std::sync::Arc;

use fastrand::Rng;
use orlog_actors::CommitObserver;
use orlog_model::{
    Clock, Commit, ControlAction, ControlRequest, DeadLetterOriginal, DeadLetterReason, Event,
    EventId, EventType, InstanceKey, SagaName, Timestamp,
};
use orlog_program::compile_yaml;
use orlog_testkit::SimClock;
use orlog_testkit::fake_upstreams::FakeUpstreams;
use orlog_testkit::faulty_bus::Faults;
use orlog_testkit::runtime::{TestRuntime, TestRuntimeConfig, control_request_id, seed, tenant};
use orlog_testkit::sagas::EventRecorder;
use parking_lot::{Condvar, Mutex};
use serde_json::json;
use tempfile::TempDir;

use crate::gated::{Gate, GatedProgram};

const START: Timestamp = Timestamp::from_millis(1_700_000_000_000);
const LIMIT: usize = 4;

struct Scene {
    home: TempDir,
    upstreams: Arc<FakeUpstreams>,
    clock: Arc<dyn Clock>,
    gate: Arc<Gate>,
}

impl Scene {
    fn new() -> Self {
        let clock: Arc<dyn Clock> = SimClock::new(START);
        let upstreams = FakeUpstreams::new(Arc::clone(&clock), 1);
        let home = tempfile::tempdir().expect("a directory can be created");
        Self {
            home,
            upstreams,
            clock,
            gate: Arc::default(),
        }
    }

    fn config(&self) -> TestRuntimeConfig {
        let programs = vec![GatedProgram::program(&self.gate)];
        let mut config = TestRuntimeConfig::new(
            self.home.path().to_owned(),
            programs,
            Arc::clone(&self.clock),
        );
        config.limits.max_in_flight_per_instance = LIMIT;
        // While a transition is blocked, the messages for its instance take places of the tenant.
        config.limits.max_in_flight_per_tenant = 1024;
        config
    }

    /// Publishes the second event, whose transition waits at the closed gate. An instance that
    /// finds more inputs before its transition spills some of them.
    async fn block_transition(&self, runtime: &TestRuntime) {
        let arrived = self.gate.arrived();
        publish(runtime, &key(0), 1..2).await;
        runtime
            .wait_until("the transition is blocked", |_| {
                self.gate.arrived() > arrived
            })
            .await;
    }
}

fn key(number: usize) -> InstanceKey {
    EventRecorder::key(&tenant(), number)
}

fn numbers(runtime: &TestRuntime, key: &InstanceKey) -> Vec<u32> {
    let instance = runtime.reader().instance(key).ok().flatten();
    instance.map_or_else(Vec::new, |instance| EventRecorder::numbers(&instance.state))
}

async fn publish(runtime: &TestRuntime, key: &InstanceKey, numbers: std::ops::Range<u32>) {
    for number in numbers {
        runtime
            .publish(&EventRecorder::event(key, number, START))
            .await;
    }
}

fn spilled(runtime: &TestRuntime) -> usize {
    runtime
        .reader()
        .spilled_inputs(&key(0), usize::MAX)
        .map_or(0, |inputs| inputs.len())
}

async fn until_all(runtime: &TestRuntime, count: u32) {
    let is_complete = |runtime: &TestRuntime| numbers(runtime, &key(0)).len() >= count as usize;
    runtime
        .wait_until("all events are applied", is_complete)
        .await;
    runtime
        .wait_until("no input is spilled", |runtime| spilled(runtime) == 0)
        .await;
    assert!(
        numbers(runtime, &key(0)).into_iter().eq(0..count),
        "{:?}",
        numbers(runtime, &key(0))
    );
}

async fn control(runtime: &TestRuntime, label: &str, action: ControlAction) {
    let request = ControlRequest {
        id: control_request_id(label, 0),
        action,
        expected_version: None,
        user: None,
        reason: None,
        trace: None,
        at: START,
        wait_token: None,
    };
    runtime
        .runtime
        .control(&key(0), request)
        .await
        .expect("the request is accepted");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
#[expect(
    clippy::await_holding_lock,
    reason = "the gate is closed by holding the lock"
)]
async fn full_instance_does_not_delay_another_instance() {
    let scene = Scene::new();
    let runtime = scene.config().start(&scene.upstreams).await;
    publish(&runtime, &key(0), 0..1).await;
    until_all(&runtime, 1).await;
    let closed = scene.gate.close();
    scene.block_transition(&runtime).await;
    publish(&runtime, &key(0), 2..200).await;
    publish(&runtime, &key(1), 0..20).await;
    runtime
        .wait_until("the other instance is done", |runtime| {
            numbers(runtime, &key(1)).len() == 20
        })
        .await;
    assert_eq!(numbers(&runtime, &key(0)), [0]);
    // The other instance has a queue of the same length, and may have spilled inputs.
    let spilled_by_the_other = runtime.runtime.metrics().inputs_spilled();
    drop(closed);
    until_all(&runtime, 200).await;
    let spilled = runtime.runtime.metrics().inputs_spilled() - spilled_by_the_other;
    assert_eq!(spilled, 198, "all but the first are spilled");
    // The queue in memory is used again.
    publish(&runtime, &key(0), 200..202).await;
    until_all(&runtime, 202).await;
    runtime.stop().await;
}

/// The process crashes while inputs are spilled and applied; the bus delivers duplicates.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn spilled_inputs_survive_crashes_in_order() {
    let mut rng = Rng::with_seed(seed(1));
    let scene = Scene::new();
    let mut config = scene.config();
    config.limits.max_in_flight_per_instance = 2;
    let (mut published, mut most) = (0, 0);
    for round in 0..25 {
        config.limits.max_group_commit = [1, 3, 1024][rng.usize(..3)];
        let faults = Faults {
            lost_responses: 10,
            lost_acks: 20,
            duplicates: 50,
            delays: 0,
            signing_panics: 0,
            defects: 0,
        };
        config.faults = Some((faults, round));
        let runtime = config.start(&scene.upstreams).await;
        let count = rng.u32(1..40);
        publish(&runtime, &key(0), published..published + count).await;
        published += count;
        let enough = rng.usize(..=published as usize);
        let is_enough = |runtime: &TestRuntime| numbers(runtime, &key(0)).len() >= enough;
        runtime
            .wait_until("some events are applied", is_enough)
            .await;
        most = most.max(spilled(&runtime));
        runtime.crash().await;
    }
    let runtime = config.start(&scene.upstreams).await;
    until_all(&runtime, published).await;
    println!("{published} events; up to {most} were spilled at a crash");
    assert!(most > 0, "no input was spilled at a crash");
    runtime.stop().await;
}

/// Inputs that were spilled before a pause, during it, and by an earlier process keep their order.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
#[expect(
    clippy::await_holding_lock,
    reason = "the gate is closed by holding the lock"
)]
async fn paused_instance_keeps_the_order_of_its_spilled_inputs() {
    let scene = Scene::new();
    let runtime = scene.config().start(&scene.upstreams).await;
    publish(&runtime, &key(0), 0..1).await;
    until_all(&runtime, 1).await;
    let closed = scene.gate.close();
    scene.block_transition(&runtime).await;
    publish(&runtime, &key(0), 2..50).await;
    // The request waits behind the inputs in memory. They are spilled before it is processed.
    let pause = control(&runtime, "pause", ControlAction::Pause);
    let open = async {
        runtime
            .wait_until("the request is queued", |runtime| deepest(runtime) == 50)
            .await;
        drop(closed);
    };
    tokio::join!(pause, open);
    let applied = numbers(&runtime, &key(0)).len();
    assert!(
        applied <= 2,
        "{applied} events were applied before the pause"
    );
    publish(&runtime, &key(0), 50..60).await;
    runtime.wait_until_consumed().await;
    runtime.crash().await;
    let runtime = scene.config().start(&scene.upstreams).await;
    publish(&runtime, &key(0), 60..70).await;
    runtime.wait_until_consumed().await;
    assert_eq!(
        numbers(&runtime, &key(0)).len(),
        applied,
        "a paused instance applies nothing"
    );
    control(&runtime, "resume", ControlAction::Resume).await;
    until_all(&runtime, 70).await;
    runtime.stop().await;
}

fn deepest(runtime: &TestRuntime) -> usize {
    runtime
        .runtime
        .deepest_mailboxes(1)
        .first()
        .map_or(0, |(_, depth)| *depth)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn input_that_makes_the_state_too_large_is_a_dead_letter() {
    let scene = Scene::new();
    let mut config = scene.config();
    // `[0,1,2,3,4,5,6,7,8,9]` has 21 bytes.
    config.limits.max_state_size = 21;
    let runtime = config.start(&scene.upstreams).await;
    publish(&runtime, &key(0), 0..12).await;
    let dead_letters = |runtime: &TestRuntime| {
        runtime
            .reader()
            .dead_letters(&tenant(), None, 9)
            .expect("the store can be read")
    };
    runtime
        .wait_until("two events are rejected", |runtime| {
            dead_letters(runtime).len() == 2
        })
        .await;
    assert!(numbers(&runtime, &key(0)).into_iter().eq(0..10));
    for dead_letter in dead_letters(&runtime) {
        assert_eq!(dead_letter.reason, DeadLetterReason::StateTooLarge);
        assert!(
            dead_letter.message.contains("limits.max_state_size is 21"),
            "{}",
            dead_letter.message
        );
        assert!(matches!(dead_letter.original, DeadLetterOriginal::Input(_)));
    }
    runtime.stop().await;
    config.limits.max_state_size = 1 << 20;
    let runtime = config.start(&scene.upstreams).await;
    for dead_letter in dead_letters(&runtime) {
        runtime
            .runtime
            .redrive(dead_letter)
            .await
            .expect("the limit is large enough");
    }
    assert_eq!(numbers(&runtime, &key(0)).len(), 12);
    assert!(dead_letters(&runtime).is_empty());
    runtime.stop().await;
}

const COLLECTOR: &str = "
saga: collector
version: 1
correlate: id
start: Begun
vars: { entries: '=[]', count: 0 }
on:
  - { event: Collected, save: { entries: '=vars.entries + [event.entry]' } }
  - { event: Counted, save: { count: '=vars.count + 1' } }
steps:
  - { id: end, do: { event: Ended }, timeout: 1h }
";

/// Stops the committer thread at its next commit while the test asks for it.
#[derive(Default)]
struct StoppedCommitter {
    stopped: Mutex<bool>,
    changed: Condvar,
}

impl StoppedCommitter {
    fn set(&self, stopped: bool) {
        *self.stopped.lock() = stopped;
        self.changed.notify_all();
    }
}

impl CommitObserver for StoppedCommitter {
    fn on_commit(&self, _: &Commit) {
        let mut stopped = self.stopped.lock();
        self.changed.wait_while(&mut stopped, |stopped| *stopped);
    }
}

/// While commits wait, an instance with a state of 200 kB decides at most five inputs ahead: its commits leave
/// place in the next group. A small instance decides all of its inputs.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn instance_with_a_large_state_takes_a_limited_part_of_a_group() {
    let scene = Scene::new();
    let collector =
        compile_yaml(COLLECTOR, "collector.saga.yaml").expect("the definition is valid");
    let committer = Arc::new(StoppedCommitter::default());
    let mut config = scene.config();
    config.limits.max_in_flight_per_instance = 256;
    config.programs.push(Arc::new(collector));
    config.observer = Some(Arc::clone(&committer) as Arc<dyn CommitObserver>);
    let runtime = config.start(&scene.upstreams).await;
    let large = InstanceKey {
        saga: SagaName::new("collector").expect("a valid name"),
        ..key(9)
    };
    let event = |kind: &str, number: usize, entry: &str| Event {
        id: EventId::new(format!("{kind}-{number}")).expect("a valid name"),
        kind: EventType::new(kind).expect("a valid name"),
        data: json!({ "id": "l9", "entry": entry }),
        ..EventRecorder::event(&large, 0, START)
    };
    let size = |runtime: &TestRuntime| {
        let instance = runtime.reader().instance(&large).ok().flatten();
        instance.map_or(0, |instance| instance.state.len())
    };
    runtime.publish(&event("Begun", 0, "")).await;
    for number in 0..2 {
        runtime
            .publish(&event("Collected", number, &"x".repeat(100_000)))
            .await;
    }
    runtime
        .wait_until("the state is large", |runtime| size(runtime) > 200_000)
        .await;
    committer.set(true);
    for number in 0..20 {
        runtime.publish(&event("Counted", number, "")).await;
    }
    publish(&runtime, &key(1), 0..20).await;
    let depths = |runtime: &TestRuntime| -> BTreeMap<InstanceKey, usize> {
        runtime.runtime.deepest_mailboxes(9).into_iter().collect()
    };
    let only_the_large_waits = |runtime: &TestRuntime| {
        let depths = depths(runtime);
        depths.get(&large).is_some_and(|depth| *depth >= 14) && depths.get(&key(1)) == Some(&0)
    };
    runtime
        .wait_until("only the large instance waits", only_the_large_waits)
        .await;
    committer.set(false);
    let is_done = |runtime: &TestRuntime| {
        numbers(runtime, &key(1)).len() == 20 && depths(runtime).values().all(|depth| *depth == 0)
    };
    runtime.wait_until("all inputs are applied", is_done).await;
    runtime.stop().await;
}
