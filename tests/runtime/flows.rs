//! Flows survive a crash after any commit: each job ends once, a retry has one new key, and the results are those of the jobs.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use orlog_actors::{CommitObserver, ControlError};
use orlog_effect::{FunctionCall, FunctionProvider, Policy, ProviderError, Upstream};
use orlog_model::{
    Clock, ControlAction, ControlRequest, CorrelationId, EventType, Instance, InstanceKey,
    SagaName, Status, Timestamp,
};
use orlog_program::Program;
use orlog_sagas::flow;
use orlog_testkit::SimClock;
use orlog_testkit::fake_upstreams::FakeUpstreams;
use orlog_testkit::runtime::{
    TestRuntime, TestRuntimeConfig, control_request_id, drive_clock, tenant,
};
use parking_lot::Mutex;
use serde_json::{Value, json};
use uuid::Uuid;

use crate::crash_points::{CrashAfterCommit, CrashKind};

/// `b` fails under its first key.
const FLOW: &str = "
jobs:
  - { id: a, type: t, script: '[1, 2]' }
  - { id: b, type: t, script: '7' }
  - { id: each, type: t, script: '5', dependencies: a, foreach: { in: results.a, as: n }, args: =n }
  - { id: end, type: t, script: '9', dependencies: [each, b] }
";
const START: Timestamp = Timestamp::from_millis(1_700_000_000_000);

/// Keys under which each job was executed, in their order.
type Executed = Arc<Mutex<BTreeMap<String, Vec<Uuid>>>>;

fn key() -> InstanceKey {
    InstanceKey {
        tenant: tenant(),
        saga: SagaName::new(flow::SAGA).expect("a valid name"),
        correlation: CorrelationId::new("f-1").expect("a valid id"),
    }
}

/// Returns the upstream of the jobs: the result of a job is its script.
fn jobs(executed: &Executed) -> Upstream {
    let executed = Arc::clone(executed);
    let execute = move |call: FunctionCall| {
        let job = format!(
            "{}{}",
            call.payload["job"].as_str().unwrap_or_default(),
            call.payload["args"]
        );
        let mut all = executed.lock();
        let keys = all.entry(job.clone()).or_default();
        if !keys.contains(&call.idempotency_key) {
            keys.push(call.idempotency_key);
        }
        let fails = job == "bnull" && keys.first() == Some(&call.idempotency_key);
        let script = call.payload["script"]
            .as_str()
            .unwrap_or_default()
            .to_owned();
        async move {
            if fails {
                return Err(ProviderError::permanent("exit_1", "no such file"));
            }
            Ok(serde_json::from_str::<Value>(&script).expect("the script is JSON"))
        }
    };
    FunctionProvider::new()
        .effect("job.t", execute)
        .upstream("jobs", Policy::default())
}

fn instance(runtime: &TestRuntime) -> Option<Instance> {
    runtime.reader().instance(&key()).ok().flatten()
}

async fn send(runtime: &TestRuntime, kind: &str, data: Value) {
    let control = ControlRequest {
        id: control_request_id(kind, 1),
        action: ControlAction::Signal {
            kind: EventType::new(kind).expect("a valid type"),
            data,
            due_at: None,
        },
        expected_version: None,
        at: START,
        user: None,
        reason: None,
        trace: None,
        wait_token: None,
    };
    // A repetition after a crash of the shard has the same id.
    while let Err(ControlError::Unavailable) =
        runtime.runtime.control(&key(), control.clone()).await
    {
        tokio::task::yield_now().await;
    }
}

/// Runs the scenario. After a crash it runs again; repeated requests are no-ops.
async fn play(runtime: &TestRuntime) {
    send(runtime, flow::SUBMIT, json!({ "source": FLOW })).await;
    let ended = |runtime: &TestRuntime| instance(runtime).is_some_and(|it| it.status.is_final());
    runtime.wait_until("the flow has ended", ended).await;
    send(runtime, flow::RETRY, Value::Null).await;
    let completed =
        |runtime: &TestRuntime| instance(runtime).is_some_and(|it| it.status == Status::Completed);
    runtime.wait_until("the flow has finished", completed).await;
}

/// Runs the scenario with a crash after commit `at`; returns whether the crash occurred.
async fn run(at: usize, crash: CrashKind) -> bool {
    let home = tempfile::tempdir().expect("a directory can be created");
    let clock = SimClock::new(START);
    let _clock_driver = drive_clock(&clock);
    let world = FakeUpstreams::new(Arc::clone(&clock) as Arc<dyn Clock>, 1);
    let programs = vec![Arc::new(flow::program()) as Arc<dyn Program>];
    let mut setup = TestRuntimeConfig::new(
        home.path().to_owned(),
        programs,
        Arc::clone(&clock) as Arc<dyn Clock>,
    );
    let (crasher, thaw) = CrashAfterCommit::new(at, crash);
    let executed = Executed::default();
    setup.more_upstreams = vec![jobs(&executed)];
    setup.limits.max_group_commit = 1;
    setup.limits.max_in_flight_per_instance = 1;
    setup.observer = Some(Arc::clone(&crasher) as Arc<dyn CommitObserver>);
    let mut runtime = setup.start(&world).await;
    let finished = tokio::select! {
        () = play(&runtime) => true,
        () = crasher.frozen.notified() => false,
    };
    if finished {
        // A commit after the end of the scenario waits as well.
        drop(thaw);
    } else {
        runtime.crash().await;
        drop(thaw);
        runtime = setup.start(&world).await;
        play(&runtime).await;
    }
    let flow = instance(&runtime).expect("the flow exists");
    let view = flow::program()
        .view_state(&flow.state)
        .expect("the state is readable");
    let expected = json!({ "a": [1, 2], "b": 7, "each": [5, 5], "end": 9 });
    assert_eq!(
        view["flow"]["results"], expected,
        "after a crash at {at}, {crash:?}"
    );
    assert_eq!(
        (flow.pending_work.len(), flow.timers.len()),
        (0, 0),
        "nothing remains, crash at {at}"
    );
    let keys = executed.lock().clone();
    let counts: BTreeMap<_, _> = keys
        .iter()
        .map(|(job, keys)| (job.as_str(), keys.len()))
        .collect();
    let expected = BTreeMap::from([
        ("anull", 1),
        ("bnull", 2),
        ("each1", 1),
        ("each2", 1),
        ("endnull", 1),
    ]);
    assert_eq!(
        counts, expected,
        "each run of a job has one key, crash at {at}, {crash:?}"
    );
    let all: BTreeSet<_> = keys.values().flatten().collect();
    assert_eq!(all.len(), 6, "no two jobs share a key");
    runtime.stop().await;
    crasher.has_crashed()
}

async fn after_every_commit(crash: CrashKind) {
    let mut at = 1;
    while run(at, crash).await {
        at += 1;
    }
    assert!(at > 8, "only {} commits were made", at - 1);
}

/// Requirements: F3, R9.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn committer_crash_does_not_change_a_flow() {
    after_every_commit(CrashKind::Shard).await;
}

/// Requirements: F3, F4, R8.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn process_crash_does_not_change_a_flow() {
    after_every_commit(CrashKind::Process).await;
}
