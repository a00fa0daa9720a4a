//! Loops, restarts and policies of child sagas through the complete runtime, with a crash after each commit.

use std::sync::Arc;

use orlog_actors::CommitObserver;
use orlog_model::{
    Clock, Event, EventId, EventType, Instance, InstanceKey, SagaName, Status, Timestamp,
};
use orlog_program::{Program, compile_yaml};
use orlog_testkit::SimClock;
use orlog_testkit::fake_upstreams::FakeUpstreams;
use orlog_testkit::runtime::consistency::{check_keys, check_leftovers};
use orlog_testkit::runtime::{TestRuntime, TestRuntimeConfig, drive_clock, tenant};
use serde_json::{Value, json};

use super::crash_points::{CrashAfterCommit, CrashKind};

const START: Timestamp = Timestamp::from_millis(1_700_000_000_000);

/// Two runs with two rounds each; the second run fails after its loop.
const PLAN: &str = "
saga: plan
version: 1
start: PlanBegun
vars: { run: =event.run }
steps:
  - id: a
    do: { effect: payments.charge, data: { tag: '=string(vars.run) + \".a\" + string(round)' } }
    undo: { effect: payments.refund, data: { tag: '=string(vars.run) + \".undo a\" + string(round)' } }
  - id: kid
    do: { saga: kid, data: {}, on_parent_end: wait }
    undo: { effect: payments.refund, data: { tag: '=string(vars.run) + \".undo kid\" + string(round)' } }
  - { id: twice, do: { repeat: a, while: round < 1, max: 2 } }
  - { id: route, do: { switch: [{ when: vars.run < 2, then: next }, { then: last }] } }
  - { id: last, do: { effect: payments.charge, data: { tag: last, plan: { last: error } } } }
  - { id: next, after: [route], do: { restart_as_new: PlanBegun, data: { run: =vars.run + 1 } } }
";

const KID: &str = "
saga: kid
version: 1
start: KidBegun
steps: [{ id: work, do: { effect: payments.charge, data: { tag: work } } }]
";

const LEAVING: &str = "
saga: leaving
version: 1
start: LeavingBegun
steps:
  - { id: kid, after: [], do: { saga: slow, data: {}, on_parent_end: abandon }, undo: { effect: payments.refund, data: { tag: never } } }
  - { id: bad, after: [], do: { effect: payments.charge, data: { tag: bad, plan: { bad: error } } } }
";

const SLOW: &str = "
saga: slow
version: 1
start: SlowBegun
steps: [{ id: wait, do: { event: Finish }, timeout: 30d }]
";

fn program(text: &str) -> Arc<dyn Program> {
    Arc::new(compile_yaml(text, "test.saga.yaml").unwrap())
}

fn key(saga: &str, correlation: &str) -> InstanceKey {
    let saga = SagaName::new(saga).unwrap();
    InstanceKey {
        tenant: tenant(),
        saga,
        correlation: correlation.parse().unwrap(),
    }
}

fn event(kind: &str, correlation: &str, data: Value) -> Event {
    Event {
        id: EventId::new(kind).unwrap(),
        tenant: tenant(),
        kind: EventType::new(kind).unwrap(),
        source: "urn:test".to_owned(),
        subject: None,
        time: START,
        correlation: Some(correlation.parse().unwrap()),
        causation: None,
        trace: None,
        schema_version: 1,
        data,
        user: None,
        attributes: None,
    }
}

fn instance(runtime: &TestRuntime, key: &InstanceKey) -> Option<Instance> {
    runtime.runtime.reader(key)?.instance(key).ok().flatten()
}

async fn play(runtime: &TestRuntime) {
    runtime
        .publish(&event("PlanBegun", "p", json!({ "run": 1 })))
        .await;
    runtime.wait_until_ended(&[key("plan", "p")]).await;
}

/// Runs the plan with a crash after commit `at`; returns whether the crash occurred.
async fn run(at: usize) -> bool {
    let home = tempfile::tempdir().unwrap();
    let clock = SimClock::new(START);
    let _driver = drive_clock(&clock);
    let upstreams = FakeUpstreams::new(Arc::clone(&clock) as Arc<dyn Clock>, 1);
    let programs = vec![program(PLAN), program(KID)];
    let mut setup = TestRuntimeConfig::new(
        home.path().to_owned(),
        programs,
        Arc::clone(&clock) as Arc<dyn Clock>,
    );
    let (crasher, thaw) = CrashAfterCommit::new(at, CrashKind::Process);
    setup.limits.max_group_commit = 1;
    setup.limits.max_in_flight_per_instance = 1;
    setup.observer = Some(Arc::clone(&crasher) as Arc<dyn CommitObserver>);
    let runtime = setup.start(&upstreams).await;
    let finished = tokio::select! {
        () = play(&runtime) => true,
        () = crasher.frozen.notified() => false,
    };
    let runtime = if finished {
        // A commit after the end of the saga waits as well.
        drop(thaw);
        runtime
    } else {
        runtime.crash().await;
        drop(thaw);
        let runtime = setup.start(&upstreams).await;
        play(&runtime).await;
        runtime
    };
    let expected = [
        "1.a0",
        "1.a1",
        "2.a0",
        "2.a1",
        "2.undo kid1",
        "2.undo a1",
        "2.undo kid0",
        "2.undo a0",
    ];
    assert_eq!(
        upstreams.executed_for(&key("plan", "p")),
        expected,
        "after a crash at {at}"
    );
    for child in ["p:kid[0]", "p:kid[1]", "p:kid[0]:run-2", "p:kid[1]:run-2"] {
        let child =
            instance(&runtime, &key("kid", child)).unwrap_or_else(|| panic!("{child} is missing"));
        assert_eq!(child.status, Status::Completed);
    }
    let parent = instance(&runtime, &key("plan", "p")).unwrap();
    assert_eq!(parent.status, Status::Failed);
    let history = runtime
        .reader()
        .history(&key("plan", "p"), 0, usize::MAX)
        .unwrap();
    let oldest = history.first().map(|record| record.version).unwrap();
    assert!(
        oldest > 1 && history.len() < 16,
        "the history starts at {oldest}: {}",
        history.len()
    );
    check_keys(&upstreams);
    check_leftovers(&runtime.reader());
    runtime.stop().await;
    crasher.has_crashed()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rounds_and_runs_are_executed_once_after_a_crash_at_any_commit() {
    let mut at = 1;
    while run(at).await {
        at += 1;
    }
    assert!(at > 20, "only {} commits were made", at - 1);
    println!("{} crash points", at - 1);
}

#[tokio::test]
async fn abandoned_child_outlives_its_parent_without_dead_letters() {
    let home = tempfile::tempdir().unwrap();
    let clock = SimClock::new(START);
    let _driver = drive_clock(&clock);
    let upstreams = FakeUpstreams::new(Arc::clone(&clock) as Arc<dyn Clock>, 1);
    let programs = vec![program(LEAVING), program(SLOW)];
    let config = TestRuntimeConfig::new(
        home.path().to_owned(),
        programs,
        Arc::clone(&clock) as Arc<dyn Clock>,
    );
    let runtime = config.start(&upstreams).await;
    let (parent, child) = (key("leaving", "l"), key("slow", "l:kid"));
    runtime
        .publish(&event("LeavingBegun", "l", json!({})))
        .await;
    runtime
        .wait_until_ended(std::slice::from_ref(&parent))
        .await;
    let ended = instance(&runtime, &parent).unwrap();
    assert!(
        ended.is_finished(),
        "no work is pending: {:?}",
        ended.pending_work
    );
    runtime
        .wait_until("the child runs", |runtime| {
            instance(runtime, &child).is_some()
        })
        .await;
    assert_eq!(instance(&runtime, &child).unwrap().status, Status::Running);

    runtime.publish(&event("Finish", "l:kid", json!({}))).await;
    runtime.wait_until_ended(std::slice::from_ref(&child)).await;
    runtime
        .wait_until("the parent has ignored the end of the child", |runtime| {
            runtime.outbox_depth() == 0
        })
        .await;
    assert_eq!(instance(&runtime, &parent).unwrap().version, ended.version);
    assert_eq!(upstreams.executed_for(&parent), Vec::<String>::new());
    runtime.stop().await;

    let runtime = config.start(&upstreams).await;
    check_leftovers(&runtime.reader());
    assert_eq!(
        instance(&runtime, &child).unwrap().status,
        Status::Completed
    );
    runtime.stop().await;
}
