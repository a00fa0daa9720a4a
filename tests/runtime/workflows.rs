//! Workflows of the Rust library: a crash after every commit does not change their results.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use orlog_actors::CommitObserver;
use orlog_model::{
    Clock, CorrelationId, Event, EventId, EventType, InstanceKey, SagaName, Status, Timestamp,
};
use orlog_testkit::SimClock;
use orlog_testkit::fake_upstreams::FakeUpstreams;
use orlog_testkit::runtime::{TestRuntime, TestRuntimeConfig, drive_clock, tenant};
use orlog_workflow::{Context, NodeParts, Retry, TaskError, Workflow};
use parking_lot::Mutex;
use serde_json::json;

use crate::crash_points::{CrashAfterCommit, CrashKind};

const START: Timestamp = Timestamp::from_millis(1_700_000_000_000);

/// What an upstream knows of a task: its key, and the number of its calls.
type Ledger = Arc<Mutex<BTreeMap<String, Vec<String>>>>;

/// Returns a workflow with a fork, a list, a delay and compensations; the last task fails for odd numbers.
fn workflow(ledger: &Ledger) -> Workflow<u32, u32> {
    let call = |ledger: &Ledger, step: &str, context: &Context| {
        let mut ledger = ledger.lock();
        let keys = ledger
            .entry(format!("{} {step}", context.instance()))
            .or_default();
        if !keys.contains(&context.idempotency_key()) {
            keys.push(context.idempotency_key());
        }
    };
    let task = |step: &'static str| {
        let ledger = Arc::clone(ledger);
        Recorded(Arc::new(move |context: &Context| {
            call(&ledger, step, context);
        }))
    };
    Workflow::builder("parcel")
        .then("reserve", task("reserve"))
        .undo(task("release"))
        .fork(|fork| {
            fork.branch("left", task("left"))
                .branch("right", task("right"))
                .undo(task("undo right"))
        })
        .join("join", |(left, _): (u32, u32)| async move { Ok(left) })
        .delay("pause", Duration::from_millis(50))
        .each(
            "list",
            |number: &u32| vec![*number; 3],
            |body| body.then("element", task("element")),
        )
        .map("end", |numbers: Vec<u32>| async move {
            if numbers[0] % 2 == 1 {
                Err(TaskError::permanent("odd"))
            } else {
                Ok(numbers[0])
            }
        })
        .retry(Retry::attempts(3))
        .build()
        .expect("valid")
}

/// Task or compensation that is recorded.
struct Recorded(Arc<dyn Fn(&Context) + Send + Sync>);

impl orlog_workflow::Task<u32> for Recorded {
    type Out = u32;

    async fn run(&self, context: &Context, number: u32) -> Result<u32, TaskError> {
        (self.0)(context);
        Ok(number)
    }
}

impl orlog_workflow::Compensation<u32, u32> for Recorded {
    async fn run(&self, context: &Context, input: u32, output: u32) -> Result<(), TaskError> {
        assert_eq!(input, output);
        (self.0)(context);
        Ok(())
    }
}

fn key(number: u32) -> InstanceKey {
    InstanceKey {
        tenant: tenant(),
        saga: SagaName::new("parcel").expect("a valid name"),
        correlation: CorrelationId::new(format!("p-{number}")).expect("a valid id"),
    }
}

fn event(number: u32) -> Event {
    Event {
        id: EventId::new(format!("e-{number}")).expect("a valid id"),
        tenant: tenant(),
        kind: EventType::new("parcel.start").expect("a valid type"),
        source: "urn:test".to_owned(),
        subject: None,
        time: START,
        correlation: Some(key(number).correlation),
        causation: None,
        trace: None,
        schema_version: 1,
        data: json!(number),
        user: None,
        attributes: None,
    }
}

async fn play(runtime: &TestRuntime) {
    for number in [0, 1] {
        runtime.publish(&event(number)).await;
    }
    runtime.wait_until_ended(&[key(0), key(1)]).await;
}

/// Runs two instances with a crash after commit `at`; returns whether the crash occurred.
async fn run(at: usize, crash: CrashKind) -> bool {
    let home = tempfile::tempdir().expect("a directory can be created");
    let clock = SimClock::new(START);
    let _clock_driver = drive_clock(&clock);
    let world = FakeUpstreams::new(Arc::clone(&clock) as Arc<dyn Clock>, 1);
    let ledger = Ledger::default();
    let parts = NodeParts::of([workflow(&ledger).on_node()]).expect("valid");
    let mut setup = TestRuntimeConfig::new(
        home.path().to_owned(),
        parts.programs,
        Arc::clone(&clock) as Arc<dyn Clock>,
    );
    setup.more_upstreams.extend(parts.upstream);
    let (crasher, thaw) = CrashAfterCommit::new(at, crash);
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
    let statuses = [0, 1].map(|number| {
        let instance = runtime
            .reader()
            .instance(&key(number))
            .expect("the store can be read");
        instance.map(|instance| (instance.status, instance.is_finished()))
    });
    let expected = [
        Some((Status::Completed, true)),
        Some((Status::Failed, true)),
    ];
    assert_eq!(statuses, expected, "after a crash at {at}, {crash:?}");
    let ledger = ledger.lock().clone();
    let calls = ledger
        .iter()
        .map(|(call, keys)| (call.as_str(), keys.len()))
        .collect::<Vec<_>>();
    assert_eq!(
        calls,
        [
            ("p-0 element", 3),
            ("p-0 left", 1),
            ("p-0 reserve", 1),
            ("p-0 right", 1),
            ("p-1 element", 3),
            ("p-1 left", 1),
            ("p-1 release", 1),
            ("p-1 reserve", 1),
            ("p-1 right", 1),
            ("p-1 undo right", 1),
        ],
        "each task has one key, after a crash at {at}, {crash:?}"
    );
    runtime.stop().await;
    crasher.has_crashed()
}

/// Requirements: R8, S4.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn crash_after_any_commit_does_not_change_the_result_of_a_workflow() {
    for crash in [CrashKind::Shard, CrashKind::Process] {
        let mut at = 1;
        while run(at, crash).await {
            at += 1;
        }
        assert!(at > 20, "only {} commits were made", at - 1);
    }
}
