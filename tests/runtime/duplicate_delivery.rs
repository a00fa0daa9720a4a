//! Every message twice, and every step failing in turn, through the complete runtime.

use std::sync::Arc;
use std::time::Duration;

use orlog_actors::{CommitObserver, Redriven};
use orlog_model::{
    Change, Clock, Commit, DeadLetter, DeadLetterOriginal, DeadLetterReason, Event, EventId,
    EventType, Failure, Input, InstanceKey, OutboxKey, StreamPosition, Timestamp, WorkOutcome,
    WorkResult,
};
use orlog_testkit::SimClock;
use orlog_testkit::fake_upstreams::FakeUpstreams;
use orlog_testkit::faulty_bus::Faults;
use orlog_testkit::runtime::{TestRuntime, TestRuntimeConfig, drive_clock, seed, tenant};
use orlog_testkit::sagas::{EventRecorder, PlannedOrder, STEPS, order, order_key, order_placed};
use parking_lot::Mutex;
use serde_json::{Value, json};
use uuid::Uuid;

const TIMEOUT: Duration = Duration::from_hours(1);

/// Returns an order that completes, and one for each step and each of its failures; and the same again
/// with every first response lost.
fn orders() -> Vec<PlannedOrder> {
    let mut plans = vec![json!({})];
    for step in STEPS {
        let behaviors: &[&str] = if step == "reserve" {
            &["error", "reject", "silent"]
        } else {
            &["error"]
        };
        plans.extend(behaviors.iter().map(|behavior| json!({ step: behavior })));
    }
    let lost: Vec<Value> = plans.iter().map(with_lost_responses).collect();
    plans.extend(lost);
    // A rejected compensation: the instance is stuck and requests no more work.
    plans.push(json!({ "notify": "error", "compensate:charge": "error" }));
    plans
        .into_iter()
        .enumerate()
        .map(|(number, plan)| (order_key(&tenant(), number), plan))
        .collect()
}

fn with_lost_responses(plan: &Value) -> Value {
    let mut plan = plan.clone();
    for tag in STEPS
        .iter()
        .flat_map(|step| [(*step).to_owned(), format!("compensate:{step}")])
    {
        if plan.get(&tag).is_none() {
            plan[tag] = json!("lost");
        }
    }
    plan
}

struct DuplicateScenario {
    runtime: TestRuntime,
    clock: Arc<SimClock>,
    _clock_driver: orlog_testkit::runtime::ClockDriver,
    _home: tempfile::TempDir,
}

async fn scene(echoes: usize, change: impl FnOnce(&mut TestRuntimeConfig)) -> DuplicateScenario {
    let home = tempfile::tempdir().expect("a directory can be created");
    let clock = SimClock::new(Timestamp::from_millis(1_700_000_000_000));
    let world = FakeUpstreams::new(Arc::clone(&clock) as Arc<dyn Clock>, echoes);
    let mut setup = TestRuntimeConfig::new(
        home.path().to_owned(),
        vec![order(TIMEOUT)],
        Arc::clone(&clock) as Arc<dyn Clock>,
    );
    change(&mut setup);
    let runtime = setup.start(&world).await;
    DuplicateScenario {
        runtime,
        _clock_driver: drive_clock(&clock),
        clock,
        _home: home,
    }
}

async fn play(scene: &DuplicateScenario) {
    for (key, plan) in orders() {
        scene
            .runtime
            .publish(&order_placed(&key, &plan, scene.clock.now()))
            .await;
    }
    scene.runtime.finish(&orders(), &scene.clock, TIMEOUT).await;
    scene.runtime.wait_until_consumed().await;
    scene.runtime.assert_consistent(&orders()).await;
}

/// Requirements: T3.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn failure_of_each_step_compensates_completed_steps_in_reverse() {
    let scene = scene(1, |_| {}).await;
    play(&scene).await;
    scene.runtime.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn duplicate_delivery_does_not_change_the_result() {
    let scene = scene(2, |_| {}).await;
    play(&scene).await;
    scene.runtime.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn redelivery_after_nak_does_not_change_the_result() {
    let seed = seed(1);
    let faults = Faults {
        lost_responses: 0,
        lost_acks: 50,
        duplicates: 100,
        delays: 0,
        signing_panics: 0,
        defects: 0,
    };
    let scene = scene(1, |setup| setup.faults = Some((faults, seed))).await;
    play(&scene).await;
    scene.runtime.stop().await;
}

/// Stored work results.
#[derive(Default)]
struct StoredResults(Mutex<Vec<(InstanceKey, Uuid, OutboxKey)>>);

impl CommitObserver for StoredResults {
    fn on_commit(&self, commit: &Commit) {
        let (Some(outbox), Some(record)) = (&commit.settles, &commit.history) else {
            return;
        };
        let id = record
            .input_id
            .as_str()
            .strip_prefix("outcome:")
            .expect("only outcomes settle");
        let id = id
            .parse()
            .expect("the id of an outcome holds the id of the work");
        self.0.lock().push((commit.key.clone(), id, outbox.clone()));
    }
}

/// Returns a dead letter that redelivers a work result: the only external path, used by operators.
fn dead_letter(
    key: &InstanceKey,
    work_id: Uuid,
    outbox: &OutboxKey,
    work_outcome: WorkOutcome,
    at: Timestamp,
) -> DeadLetter {
    let outcome = WorkResult {
        requested_at: at,
        work_id,
        outbox_key: outbox.clone(),
        outcome: work_outcome,
        attempts: 1,
        at,
        facts: Vec::new(),
        publishes: false,
        trace: None,
        attempt_log: None,
    };
    DeadLetter {
        id: work_id,
        tenant: key.tenant.clone(),
        instance: Some(key.clone()),
        reason: DeadLetterReason::ProgramError,
        message: "a repetition".to_owned(),
        original: DeadLetterOriginal::Input(Box::new(Input::WorkResult(outcome))),
        attempts: 1,
        node: "test".to_owned(),
        at,
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn duplicate_and_contradicting_results_are_ignored() {
    let outcomes = Arc::new(StoredResults::default());
    let observer = Arc::clone(&outcomes) as Arc<dyn CommitObserver>;
    let scene = scene(1, |setup| setup.observer = Some(observer)).await;
    play(&scene).await;
    let stored = std::mem::take(&mut *outcomes.0.lock());
    assert!(
        stored.len() > 30,
        "only {} outcomes were stored",
        stored.len()
    );
    let failure = Failure {
        code: "contrary".to_owned(),
        message: "it failed after all".to_owned(),
    };
    let work_outcomes = [
        WorkOutcome::succeeded(None, Value::Null),
        WorkOutcome::Accepted,
        WorkOutcome::Failed {
            event: Some(EventType::new("Contrary").expect("a short word")),
            failure,
            payload: Value::Null,
        },
    ];
    for (key, id, outbox) in &stored {
        for work_outcome in work_outcomes.clone() {
            let dead_letter = dead_letter(key, *id, outbox, work_outcome, scene.clock.now());
            let result = scene
                .runtime
                .runtime
                .redrive(dead_letter)
                .await
                .expect("the shard is there");
            let Redriven::Applied(result) = result else {
                panic!("{key}: {result:?}")
            };
            assert!(
                !result.applied && result.reason.is_some(),
                "{key}: a second outcome was applied: {result:?}"
            );
        }
    }
    scene.runtime.assert_consistent(&orders()).await;
    scene.runtime.stop().await;
}

/// Deletes the checkpoints: a checkpoint may lag behind the applied inputs, here by the maximum.
fn forget_checkpoints(home: &std::path::Path, setup: &TestRuntimeConfig) {
    let (mut writer, reader) = orlog_store::open(&home.join("shard-0"), setup.store.clone())
        .expect("the lock is released");
    for (source, stored) in reader.checkpoints().expect("it is open") {
        let position = StreamPosition::after(stored.stream_id, 0);
        writer
            .commit(&[Change::Checkpoint(source, position)], setup.clock.now())
            .expect("there is room");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn duplicates_after_long_downtime_are_ignored() {
    let home = tempfile::tempdir().expect("a directory can be created");
    let clock = SimClock::new(Timestamp::from_millis(1_700_000_000_000));
    let present = Arc::clone(&clock) as Arc<dyn Clock>;
    let world = FakeUpstreams::new(Arc::clone(&present), 1);
    let setup = TestRuntimeConfig::new(
        home.path().to_owned(),
        vec![EventRecorder::program()],
        present,
    );
    let key = EventRecorder::key(&tenant(), 1);
    let day = Duration::from_hours(24);
    // Ten days pass after the first run; the second run is short.
    for (run, downtime) in [Duration::ZERO, day * 10, Duration::from_mins(5)]
        .into_iter()
        .enumerate()
    {
        clock.advance(downtime);
        let runtime = setup.start(&world).await;
        let first = u32::try_from(run * 4).expect("small");
        for number in first..first + 4 {
            runtime
                .publish(&EventRecorder::event(&key, number, clock.now()))
                .await;
        }
        runtime.wait_until_consumed().await;
        let state = runtime
            .reader()
            .instance(&key)
            .expect("it is open")
            .expect("it was opened")
            .state;
        assert_eq!(
            EventRecorder::numbers(&state),
            (0..first + 4).collect::<Vec<_>>(),
            "life {run}"
        );
        runtime.stop().await;
        forget_checkpoints(home.path(), &setup);
    }
}

/// When a commit is visible, the checkpoint in the same store covers its message.
///
/// Requirements: R7.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn checkpoint_is_in_the_commit_of_its_messages() {
    let home = tempfile::tempdir().expect("a directory can be created");
    let clock = SimClock::new(Timestamp::from_millis(1_700_000_000_000));
    let present = Arc::clone(&clock) as Arc<dyn Clock>;
    let world = FakeUpstreams::new(Arc::clone(&present), 1);
    let setup = TestRuntimeConfig::new(
        home.path().to_owned(),
        vec![EventRecorder::program()],
        present,
    );
    let runtime = setup.start(&world).await;
    let key = EventRecorder::key(&tenant(), 1);
    for number in 0..50 {
        runtime
            .publish(&EventRecorder::event(&key, number, clock.now()))
            .await;
        let published = runtime.bus.last_sequence().await.expect("the bus is open");
        let is_applied = |runtime: &TestRuntime| {
            let instance = runtime.reader().instance(&key).expect("it is open");
            instance
                .is_some_and(|instance| EventRecorder::numbers(&instance.state).contains(&number))
        };
        runtime.wait_until("the event is applied", is_applied).await;
        let checkpoints = runtime.reader().checkpoints().expect("it is open");
        let stored = checkpoints
            .first()
            .map_or(0, |(_, position)| position.sequence);
        assert!(
            stored >= published,
            "message {published} is applied, the checkpoint is {stored}"
        );
    }
    runtime.stop().await;
}

/// CloudEvents identifies an event by its source and its id together: sources may use the same id.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn events_of_several_sources_with_one_id_are_all_applied() {
    let scenario = scene(1, |setup| setup.programs = vec![EventRecorder::program()]).await;
    let runtime = &scenario.runtime;
    let key = EventRecorder::key(&tenant(), 0);
    let event = |source: &str, number| Event {
        id: EventId::new("1").expect("a valid name"),
        source: source.to_owned(),
        ..EventRecorder::event(&key, number, Timestamp::from_millis(1_700_000_000_000))
    };
    for (source, number) in [
        ("urn:shop", 0),
        ("urn:bank", 1),
        ("urn:desk", 2),
        ("urn:mill", 3),
    ] {
        runtime.publish(&event(source, number)).await;
        runtime.publish(&event(source, number)).await;
    }
    let numbers = |runtime: &TestRuntime| {
        let instance = runtime.reader().instance(&key).ok().flatten();
        let mut numbers =
            instance.map_or_else(Vec::new, |instance| EventRecorder::numbers(&instance.state));
        numbers.sort_unstable();
        numbers
    };
    runtime
        .wait_until("each event is applied", |runtime| {
            numbers(runtime).len() >= 4
        })
        .await;
    runtime.wait_until_consumed().await;
    assert_eq!(numbers(runtime), [0, 1, 2, 3]);
    scenario.runtime.stop().await;
}
