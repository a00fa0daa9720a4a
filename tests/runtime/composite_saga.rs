//! Composite saga through the complete runtime: early events, a human task, a child saga; with a crash
//! after every commit and with duplicate delivery of every message.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};
use std::time::Duration;

use orlog_actors::{CommitObserver, ControlError};
use orlog_model::{
    Clock, Commit, ControlAction, ControlRequest, EventType, InstanceKey, SagaName, Status,
    TaskAction, TaskStatus, Timestamp,
};
use orlog_store::TaskQuery;
use orlog_testkit::SimClock;
use orlog_testkit::fake_upstreams::FakeUpstreams;
use orlog_testkit::faulty_bus::Faults;
use orlog_testkit::runtime::{
    TestRuntime, TestRuntimeConfig, control_request_id, drive_clock, seed, tenant,
};
use orlog_testkit::sagas::composite::{self, CompositeState};
use parking_lot::Mutex;
use serde_json::json;
use tokio::sync::Notify;

const START: Timestamp = Timestamp::from_millis(1_700_000_000_000);

/// Stops the process after the n-th commit: the commit is durable, and no later action happens.
struct CrashAfterCommit {
    commits: AtomicUsize,
    at: usize,
    frozen: Notify,
    thaw: Mutex<Option<mpsc::Receiver<()>>>,
}

impl CommitObserver for CrashAfterCommit {
    fn on_commit(&self, _: &Commit) {
        if self.commits.fetch_add(1, Ordering::SeqCst) + 1 == self.at {
            let wait = self.thaw.lock().take();
            self.frozen.notify_one();
            if let Some(wait) = wait {
                wait.recv().expect_err("the test only drops the sender");
            }
        }
    }
}

fn instance(runtime: &TestRuntime, key: &InstanceKey) -> Option<orlog_model::Instance> {
    runtime
        .runtime
        .reader(key)
        .and_then(|reader| reader.instance(key).ok().flatten())
}

fn composite_state(runtime: &TestRuntime, key: &InstanceKey) -> Option<CompositeState> {
    instance(runtime, key).map(|instance| composite::decode_state(&instance.state))
}

fn buffered_count(runtime: &TestRuntime, key: &InstanceKey) -> usize {
    runtime
        .runtime
        .reader(key)
        .and_then(|reader| reader.buffered_inputs(key, 9).ok())
        .map_or(0, |inputs| inputs.len())
}

async fn instruct(
    runtime: &TestRuntime,
    key: &InstanceKey,
    label: &str,
    action: ControlAction,
) -> bool {
    loop {
        let control = ControlRequest {
            id: control_request_id(label, 0),
            action: action.clone(),
            expected_version: None,
            at: START,
            user: Some("alice".to_owned()),
            reason: None,
            trace: None,
            wait_token: None,
        };
        match runtime.runtime.control(key, control).await {
            Ok(result) => return result.applied,
            Err(ControlError::Unavailable) => tokio::task::yield_now().await,
            Err(error) => panic!("{label}: {error}"),
        }
    }
}

/// Runs the complete scenario; repeated after a crash.
async fn play(runtime: &TestRuntime) {
    let key = composite::parent_key(&tenant(), 0);
    for number in 1..=3 {
        runtime
            .publish(&composite::note_event(&key, number, START))
            .await;
    }
    runtime
        .wait_until("three events are kept", |runtime| {
            buffered_count(runtime, &key) == 3 || instance(runtime, &key).is_some()
        })
        .await;
    runtime
        .publish(&composite::note_event(&key, 0, START))
        .await;
    runtime
        .wait_until("the composite is open", |runtime| {
            instance(runtime, &key).is_some()
        })
        .await;
    runtime
        .publish(&composite::note_event(&key, 4, START))
        .await;
    runtime
        .wait_until("all is noted", |runtime| {
            composite_state(runtime, &key)
                .is_some_and(|composite_state| composite_state.notes.len() >= 4)
        })
        .await;
    let task =
        instance(runtime, &key).and_then(|instance| instance.tasks.first().map(|task| task.id));
    if let Some(id) = task {
        let roles = vec!["landlord".to_owned()];
        let order = |order| ControlAction::Task {
            id,
            order,
            roles: roles.clone(),
        };
        instruct(runtime, &key, "claim", order(TaskAction::Claim)).await;
        let outcome = EventType::new("Approved").ok();
        let complete = order(TaskAction::Complete {
            outcome,
            data: json!({ "rent": 900 }),
        });
        instruct(runtime, &key, "complete", complete.clone()).await;
        assert!(
            !instruct(runtime, &key, "complete", complete).await,
            "a second time it is a repetition"
        );
    }
    runtime
        .wait_until_ended(&[key.clone(), composite::child_key(&key)])
        .await;
    runtime.wait_until_consumed().await;
}

/// Asserts no loss, no duplicates, the correct order and no pending work.
async fn check(runtime: &TestRuntime) {
    let key = composite::parent_key(&tenant(), 0);
    let expected = CompositeState {
        notes: vec![1, 2, 3, 4],
        chosen: Some("Approved".to_owned()),
        brought: Some(json!({ "milk": 2 })),
    };
    assert_eq!(
        composite_state(runtime, &key),
        Some(expected),
        "{}",
        runtime.state()
    );
    let parent = instance(runtime, &key).expect("it was there");
    assert_eq!(parent.status, Status::Completed);
    assert!(parent.tasks.is_empty() && parent.pending_work.is_empty() && parent.timers.is_empty());
    let child = instance(runtime, &composite::child_key(&key)).expect("it was begun");
    assert_eq!((child.status, child.version), (Status::Completed, 2));
    assert_eq!(child.parent.expect("it has one").key, key);
    let mut facts: Vec<String> = runtime
        .facts()
        .await
        .into_iter()
        .map(|(_, _, kind)| kind.to_string())
        .collect();
    facts.sort();
    assert_eq!(facts, ["ChildDone", "CompositeClosed"]);
    let reader = runtime
        .runtime
        .reader(&key)
        .expect("this process owns every slot");
    for table in ["outbox", "schedule", "buffered_input", "deadletter"] {
        let rows = reader
            .inspect_rows(table, None, 10)
            .expect("the store can be read");
        assert!(rows.is_empty(), "left in {table}: {rows:#?}");
    }
    let tasks = reader.tasks(&TaskQuery {
        tenant: tenant(),
        ..TaskQuery::default()
    });
    let tasks = tasks.expect("the store can be read").items;
    let [task] = &tasks[..] else {
        panic!("{tasks:#?}")
    };
    assert_eq!(
        (task.status, task.task.claimed_by.as_deref()),
        (TaskStatus::Completed, Some("alice"))
    );
    let events = reader.task_events(task, 99).expect("the store can be read");
    let steps: Vec<_> = events.iter().map(|event| event.kind.as_str()).collect();
    assert_eq!(steps, ["opened", "claimed", "completed"]);
}

async fn scene(
    change: impl FnOnce(&mut TestRuntimeConfig),
    echoes: usize,
) -> (
    TestRuntime,
    TestRuntimeConfig,
    Arc<FakeUpstreams>,
    tempfile::TempDir,
) {
    let home = tempfile::tempdir().expect("a directory can be created");
    let clock = SimClock::new(START);
    // Runs until the process ends: a crashed runtime is followed by another one.
    std::mem::forget(drive_clock(&clock));
    let world = FakeUpstreams::new(Arc::clone(&clock) as Arc<dyn Clock>, echoes);
    let programs = composite::programs().into();
    let mut setup =
        TestRuntimeConfig::new(home.path().to_owned(), programs, clock as Arc<dyn Clock>);
    change(&mut setup);
    (setup.start(&world).await, setup, world, home)
}

/// Runs the scenario with a crash after commit `at`; returns whether the crash occurred.
async fn run(at: usize) -> bool {
    let (release, wait) = mpsc::channel();
    let commits = AtomicUsize::new(0);
    let crasher = Arc::new(CrashAfterCommit {
        commits,
        at,
        frozen: Notify::new(),
        thaw: Mutex::new(Some(wait)),
    });
    let observer = Arc::clone(&crasher) as Arc<dyn CommitObserver>;
    let change = |setup: &mut TestRuntimeConfig| {
        setup.limits.max_group_commit = 1;
        setup.observer = Some(observer);
    };
    let (mut runtime, setup, world, _home) = scene(change, 1).await;
    let finished = tokio::select! {
        () = play(&runtime) => true,
        () = crasher.frozen.notified() => false,
    };
    if !finished {
        runtime.crash().await;
        drop(release);
        runtime = setup.start(&world).await;
        play(&runtime).await;
    }
    check(&runtime).await;
    runtime.stop().await;
    !finished
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn process_crash_after_any_commit_does_not_change_the_result() {
    let mut at = 1;
    while run(at).await {
        at += 1;
    }
    assert!(at > 12, "only {} commits were made", at - 1);
    println!("{} crash points", at - 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn duplicate_delivery_does_not_change_the_result() {
    let (runtime, _setup, _world, _home) = scene(|_| {}, 2).await;
    play(&runtime).await;
    check(&runtime).await;
    runtime.stop().await;
}

/// Requirements: E4.
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
    let (runtime, _setup, _world, _home) =
        scene(|setup| setup.faults = Some((faults, seed)), 1).await;
    play(&runtime).await;
    check(&runtime).await;
    runtime.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn panic_while_a_message_is_created_loses_no_message() {
    let faults = Faults {
        lost_responses: 0,
        lost_acks: 0,
        duplicates: 0,
        delays: 0,
        signing_panics: 50,
        defects: 0,
    };
    let (runtime, _setup, _world, _home) =
        scene(|setup| setup.faults = Some((faults, seed(1))), 1).await;
    play(&runtime).await;
    check(&runtime).await;
    runtime.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn early_inputs_expire_when_the_instance_never_starts() {
    let home = tempfile::tempdir().expect("a directory can be created");
    let clock = SimClock::new(START);
    let world = FakeUpstreams::new(Arc::clone(&clock) as Arc<dyn Clock>, 1);
    let programs = composite::programs().into();
    let setup = TestRuntimeConfig::new(
        home.path().to_owned(),
        programs,
        Arc::clone(&clock) as Arc<dyn Clock>,
    );
    let runtime = setup.start(&world).await;
    let key = composite::parent_key(&tenant(), 0);
    runtime
        .publish(&composite::note_event(&key, 1, START))
        .await;
    runtime
        .wait_until("it is kept", |runtime| buffered_count(runtime, &key) == 1)
        .await;
    clock.advance(Duration::from_hours(24 * 364));
    runtime
        .publish(&composite::note_event(&key, 2, START))
        .await;
    runtime
        .wait_until("both are kept", |runtime| {
            buffered_count(runtime, &key) == 2
        })
        .await;
    clock.advance(Duration::from_hours(25));
    runtime
        .wait_until("the older is dropped", |runtime| {
            buffered_count(runtime, &key) == 1
        })
        .await;
    runtime
        .publish(&composite::note_event(&key, 0, START))
        .await;
    runtime
        .wait_until("the younger is noted", |runtime| {
            composite_state(runtime, &key)
                .is_some_and(|composite_state| composite_state.notes == [2])
        })
        .await;
    let schedule = runtime
        .reader()
        .inspect_rows("schedule", None, 9)
        .expect("the store can be read");
    assert!(
        schedule.iter().all(|row| !row.key.ends_with(":early")),
        "{schedule:?}"
    );
    runtime.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn starting_an_unknown_or_existing_child_fails_immediately() {
    let home = tempfile::tempdir().expect("a directory can be created");
    let clock = SimClock::new(START);
    let world = FakeUpstreams::new(Arc::clone(&clock) as Arc<dyn Clock>, 1);
    let [parent, child] = composite::programs();
    let mut setup = TestRuntimeConfig::new(
        home.path().to_owned(),
        vec![parent],
        Arc::clone(&clock) as Arc<dyn Clock>,
    );
    let brings = |runtime: &TestRuntime, key: &InstanceKey, code: &str| {
        composite_state(runtime, key)
            .is_some_and(|composite_state| composite_state.brought == Some(json!(code)))
    };
    let runtime = setup.start(&world).await;
    let key = composite::parent_key(&tenant(), 0);
    runtime
        .publish(&composite::note_event(&key, 0, START))
        .await;
    runtime
        .wait_until("it learns that there is no such saga", |runtime| {
            brings(runtime, &key, "unknown_saga")
        })
        .await;
    runtime.stop().await;
    setup.programs.push(child);
    let runtime = setup.start(&world).await;
    let key = composite::parent_key(&tenant(), 1);
    let saga = SagaName::new("child").expect("a short word");
    let own = InstanceKey {
        saga,
        ..key.clone()
    };
    let mut request = composite::note_event(&own, 0, START);
    request.kind = EventType::new("Wanted").expect("a short word");
    request.data = json!({ "for": "none" });
    runtime.publish(&request).await;
    runtime
        .wait_until("the child saga is there", |runtime| {
            instance(runtime, &own).is_some()
        })
        .await;
    let opened = composite::note_event(&key, 0, START);
    let id = control_request_id("opened", 1);
    runtime.publish(&orlog_model::Event { id, ..opened }).await;
    runtime
        .wait_until("it learns that it exists", |runtime| {
            brings(runtime, &key, "already_exists")
        })
        .await;
    assert!(
        instance(&runtime, &own)
            .expect("it was there")
            .parent
            .is_none()
    );
    runtime.stop().await;
}
