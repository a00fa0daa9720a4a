//! Open sagas: counted events, a start event that matters later, and a child saga for each event survive a crash after
//! any commit.

use std::sync::Arc;

use orlog_actors::CommitObserver;
use orlog_model::{
    Clock, CorrelationId, Event, EventId, EventType, Instance, InstanceKey, SagaName, Status,
    Timestamp,
};
use orlog_program::{Program, compile_yaml};
use orlog_testkit::SimClock;
use orlog_testkit::fake_upstreams::FakeUpstreams;
use orlog_testkit::runtime::{TestRuntime, TestRuntimeConfig, drive_clock, tenant};
use serde_json::{Value, json};

use crate::crash_points::{CrashAfterCommit, CrashKind};

const BASKET: &str = "saga: basket
version: 1
start: BasketOpened
keep_active: true
vars: { opened: 1, limit: =event.limit }
timeout: =vars.limit
on:
  - { event: BasketOpened, save: { opened: =vars.opened + 1 } }
  - { event: LineAdded, do: { saga: parcel, correlation: =event.line, data: =event, on_parent_end: wait } }
  - { event: BasketClosed, then: complete }
steps:
  - { id: signed, do: { event: Signed, count: 2 }, save: { by: '=events.map(e, e.by).sort()' }, timeout: =vars.limit }
completed: { fact: BasketSent, data: =vars }
";
const PARCEL: &str = "saga: parcel
version: 1
start: ParcelRequested
steps: [{ id: sent, do: { wait: =1.5 } }]
";
const START: Timestamp = Timestamp::from_millis(1_700_000_000_000);
const LINES: [&str; 3] = ["l-1", "l-2", "l-3"];

fn key(saga: &str, correlation: &str) -> InstanceKey {
    InstanceKey {
        tenant: tenant(),
        saga: SagaName::new(saga).expect("a valid name"),
        correlation: CorrelationId::new(correlation).expect("a valid id"),
    }
}

fn event(id: &str, kind: &str, data: Value) -> Event {
    Event {
        id: EventId::new(id).expect("a valid id"),
        tenant: tenant(),
        kind: EventType::new(kind).expect("a valid event type"),
        source: "urn:shop".to_owned(),
        subject: None,
        time: START,
        correlation: Some(CorrelationId::new("b-1").expect("a valid id")),
        causation: None,
        trace: None,
        schema_version: 1,
        data,
        user: None,
        attributes: None,
    }
}

fn instance(runtime: &TestRuntime, key: &InstanceKey) -> Option<Instance> {
    runtime.reader().instance(key).ok().flatten()
}

fn status(runtime: &TestRuntime, saga: &str, correlation: &str) -> Option<Status> {
    instance(runtime, &key(saga, correlation)).map(|instance| instance.status)
}

fn view(runtime: &TestRuntime, program: &dyn Program) -> Option<Value> {
    program.view_state(&instance(runtime, &key("basket", "b-1"))?.state)
}

/// Runs the scenario. After a crash it runs again; repeated events are no-ops.
async fn play(runtime: &TestRuntime, basket: &dyn Program) {
    runtime
        .publish(&event("open-1", "BasketOpened", json!({ "limit": "60d" })))
        .await;
    runtime
        .publish(&event("open-2", "BasketOpened", json!({ "limit": 1 })))
        .await;
    for (id, by) in [("s-1", "ada"), ("s-1", "ada"), ("s-2", "bob")] {
        runtime
            .publish(&event(id, "Signed", json!({ "by": by })))
            .await;
    }
    for line in LINES {
        runtime
            .publish(&event(line, "LineAdded", json!({ "line": line })))
            .await;
    }
    let is_filled = |runtime: &TestRuntime| {
        let is_signed = view(runtime, basket).is_some_and(|view| {
            view["vars"]["opened"] == 2 && view["steps"][0]["state"] == "completed"
        });
        is_signed
            && LINES
                .iter()
                .all(|line| status(runtime, "parcel", line).is_some())
    };
    runtime
        .wait_until(
            "the basket is signed and its lines are requested",
            is_filled,
        )
        .await;
    runtime
        .publish(&event("close", "BasketClosed", json!({})))
        .await;
    let parcels = LINES.map(|line| key("parcel", line));
    let ended: Vec<_> = parcels.into_iter().chain([key("basket", "b-1")]).collect();
    runtime.wait_until_ended(&ended).await;
}

/// Runs the scenario with a crash after commit `at`; returns whether the crash occurred.
async fn run(at: usize, crash: CrashKind) -> bool {
    let home = tempfile::tempdir().expect("a directory can be created");
    let clock = SimClock::new(START);
    let _clock_driver = drive_clock(&clock);
    let world = FakeUpstreams::new(Arc::clone(&clock) as Arc<dyn Clock>, 1);
    let [basket, parcel] = [BASKET, PARCEL].map(|text| {
        Arc::new(compile_yaml(text, "t").unwrap_or_else(|found| panic!("{found:?}")))
            as Arc<dyn Program>
    });
    let programs = vec![Arc::clone(&basket), parcel];
    let mut setup = TestRuntimeConfig::new(
        home.path().to_owned(),
        programs,
        Arc::clone(&clock) as Arc<dyn Clock>,
    );
    let (crasher, thaw) = CrashAfterCommit::new(at, crash);
    setup.limits.max_group_commit = 1;
    setup.limits.max_in_flight_per_instance = 1;
    setup.observer = Some(Arc::clone(&crasher) as Arc<dyn CommitObserver>);
    let mut runtime = setup.start(&world).await;
    let finished = tokio::select! {
        () = play(&runtime, &*basket) => true,
        () = crasher.frozen.notified() => false,
    };
    if finished {
        // A commit after the end of the scenario waits as well.
        drop(thaw);
    } else {
        runtime.crash().await;
        drop(thaw);
        runtime = setup.start(&world).await;
        play(&runtime, &*basket).await;
    }
    let vars = view(&runtime, &*basket).expect("the instance exists")["vars"].clone();
    let expected = json!({ "opened": 2, "limit": "60d", "by": ["ada", "bob"] });
    assert_eq!(vars, expected, "after a crash at {at}, {crash:?}");
    for line in LINES {
        assert_eq!(
            status(&runtime, "parcel", line),
            Some(Status::Completed),
            "{line}, crash at {at}, {crash:?}"
        );
    }
    let basket = instance(&runtime, &key("basket", "b-1")).expect("the instance exists");
    assert_eq!(
        basket.status,
        Status::Completed,
        "after a crash at {at}, {crash:?}"
    );
    assert_eq!(
        (basket.pending_work.len(), basket.timers.len()),
        (0, 0),
        "nothing remains, crash at {at}"
    );
    runtime.stop().await;
    crasher.has_crashed()
}

async fn after_every_commit(crash: CrashKind) {
    let mut at = 1;
    while run(at, crash).await {
        at += 1;
    }
    assert!(at > 12, "only {} commits were made", at - 1);
}

/// Requirements: R9.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn committer_crash_does_not_change_an_open_saga() {
    after_every_commit(CrashKind::Shard).await;
}

/// Requirements: R8.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn process_crash_does_not_change_an_open_saga() {
    after_every_commit(CrashKind::Process).await;
}
