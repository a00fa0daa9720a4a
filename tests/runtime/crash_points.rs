//! Crash after every commit: for each n, the process stops after commit n and restarts from durable
//! state. The final state must equal that of a run without a crash.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};
use std::time::Duration;

use orlog_actors::{CommitObserver, ControlError};
use orlog_model::{
    Clock, Commit, ControlAction, ControlRequest, EventType, OnExisting, StartRequest, StartSignal,
    Timestamp,
};
use orlog_store::InstanceQuery;
use orlog_testkit::SimClock;
use orlog_testkit::fake_upstreams::FakeUpstreams;
use orlog_testkit::runtime::{
    TestRuntime, TestRuntimeConfig, control_request_id, drive_clock, tenant,
};
use orlog_testkit::sagas::{EventRecorder, PlannedOrder, order, order_key, order_placed};
use parking_lot::Mutex;
use serde_json::json;
use tokio::sync::Notify;

const TIMEOUT: Duration = Duration::from_hours(1);

/// Kind of a crash.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum CrashKind {
    /// The committer panics: the shard restarts and its store is recovered; the rest of the process
    /// continues.
    Shard,
    /// The process stops: the commit is durable, but no later action happens, not even an acknowledgement.
    Process,
}

/// Commit observer that crashes after the n-th commit.
pub(crate) struct CrashAfterCommit {
    commits: AtomicUsize,
    at: usize,
    crash: CrashKind,
    pub(crate) frozen: Notify,
    thaw: Mutex<Option<mpsc::Receiver<()>>>,
}

impl CrashAfterCommit {
    pub(crate) fn new(at: usize, crash: CrashKind) -> (Arc<Self>, mpsc::Sender<()>) {
        let (thaw, wait) = mpsc::channel();
        let thaw_when = Mutex::new(Some(wait));
        let commits = AtomicUsize::new(0);
        (
            Arc::new(Self {
                commits,
                at,
                crash,
                frozen: Notify::new(),
                thaw: thaw_when,
            }),
            thaw,
        )
    }

    pub(crate) fn has_crashed(&self) -> bool {
        self.commits.load(Ordering::SeqCst) >= self.at
    }
}

impl CommitObserver for CrashAfterCommit {
    fn on_commit(&self, _: &Commit) {
        if self.commits.fetch_add(1, Ordering::SeqCst) + 1 != self.at {
            return;
        }
        match self.crash {
            CrashKind::Shard => panic!(
                "the committer dies after commit {}, as the test wants",
                self.at
            ),
            CrashKind::Process => {
                let wait = self.thaw.lock().take();
                self.frozen.notify_one();
                if let Some(wait) = wait {
                    wait.recv().expect_err("the test only drops the sender");
                }
            }
        }
    }
}

fn orders() -> Vec<PlannedOrder> {
    let plans = [
        json!({}),
        json!({ "notify": "error", "ship": "lost" }),
        json!({ "reserve": "silent" }),
        json!({ "charge": "error", "compensate:reserve": "lost" }),
    ];
    plans
        .into_iter()
        .enumerate()
        .map(|(number, plan)| (order_key(&tenant(), number), plan))
        .collect()
}

/// Repeats a control request until it has a response; the shard may be unavailable for a moment.
async fn instruct(runtime: &TestRuntime, (label, ledger): (&str, usize), action: ControlAction) {
    let key = EventRecorder::key(&tenant(), ledger);
    loop {
        let control = ControlRequest {
            id: control_request_id(label, 0),
            action: action.clone(),
            expected_version: None,
            user: None,
            reason: None,
            trace: None,
            at: Timestamp::from_millis(1_700_000_000_000),
            wait_token: None,
        };
        match runtime.runtime.control(&key, control).await {
            Ok(_) => return,
            Err(ControlError::Unavailable) => tokio::task::yield_now().await,
            Err(error) => panic!("{label}: {error}"),
        }
    }
}

/// Returns the request that opens a ledger and adds the number 1.
fn signal_with_start() -> ControlAction {
    let kind = |name| EventType::new(name).expect("a valid name");
    ControlAction::Start(Box::new(StartRequest {
        event: Some(kind("Opened")),
        data: json!({ "n": 0 }),
        schema_version: 1,
        subject: None,
        on_existing: OnExisting::Return,
        signal: Some(StartSignal {
            kind: kind("Noted"),
            data: json!({ "n": 1 }),
            due_at: None,
        }),
    }))
}

fn numbers(runtime: &TestRuntime) -> Vec<u32> {
    numbers_of(runtime, 0)
}

fn numbers_of(runtime: &TestRuntime, ledger: usize) -> Vec<u32> {
    let instance = runtime
        .reader()
        .instance(&EventRecorder::key(&tenant(), ledger));
    instance
        .ok()
        .flatten()
        .map_or_else(Vec::new, |instance| EventRecorder::numbers(&instance.state))
}

/// Runs the complete scenario. After a crash it runs again; repeated inputs are no-ops.
async fn play(runtime: &TestRuntime, clock: &SimClock) {
    let time = Timestamp::from_millis(1_700_000_000_000);
    let ledger = EventRecorder::key(&tenant(), 0);
    runtime
        .publish(&EventRecorder::event(&ledger, 0, time))
        .await;
    for (key, plan) in orders() {
        runtime.publish(&order_placed(&key, &plan, time)).await;
    }
    runtime
        .wait_until("the ledger is open", |runtime| !numbers(runtime).is_empty())
        .await;
    instruct(runtime, ("start", 1), signal_with_start()).await;
    instruct(runtime, ("pause", 0), ControlAction::Pause).await;
    for number in 1..=3 {
        runtime
            .publish(&EventRecorder::event(&ledger, number, time))
            .await;
    }
    runtime
        .wait_until("three events are kept", |runtime| {
            let buffered = runtime
                .reader()
                .buffered_inputs(&ledger, 9)
                .map_or(0, |buffered| buffered.len());
            let spilled = runtime
                .reader()
                .spilled_inputs(&ledger, 9)
                .map_or(0, |spilled| spilled.len());
            buffered + spilled + numbers(runtime).len() >= 4
        })
        .await;
    instruct(runtime, ("resume", 0), ControlAction::Resume).await;
    runtime
        .publish(&EventRecorder::event(&ledger, 4, time))
        .await;
    runtime.finish(&orders(), clock, TIMEOUT).await;
    runtime
        .wait_until("the ledger is full", |runtime| numbers(runtime).len() >= 5)
        .await;
    runtime
        .wait_until("the signal is applied", |runtime| {
            numbers_of(runtime, 1).len() >= 2
        })
        .await;
}

/// Runs the scenario with a crash after commit `at`; returns whether the crash occurred.
async fn run(at: usize, crash: CrashKind) -> bool {
    let home = tempfile::tempdir().expect("a directory can be created");
    let clock = SimClock::new(Timestamp::from_millis(1_700_000_000_000));
    let _clock_driver = drive_clock(&clock);
    let world = FakeUpstreams::new(Arc::clone(&clock) as Arc<dyn Clock>, 1);
    let programs = vec![order(TIMEOUT), EventRecorder::program()];
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
        () = play(&runtime, &clock) => true,
        () = crasher.frozen.notified() => false,
    };
    if finished {
        // A commit after the end of the scenario waits as well.
        drop(thaw);
    } else {
        runtime.crash().await;
        drop(thaw);
        runtime = setup.start(&world).await;
        play(&runtime, &clock).await;
    }
    assert_eq!(
        numbers(&runtime),
        [0, 1, 2, 3, 4],
        "the ledger after a crash at {at}, {crash:?}"
    );
    assert_eq!(
        numbers_of(&runtime, 1),
        [0, 1],
        "the started ledger after a crash at {at}, {crash:?}"
    );
    runtime.assert_consistent(&orders()).await;
    runtime.stop().await;
    crasher.has_crashed()
}

async fn after_every_commit(crash: CrashKind) {
    let mut at = 1;
    while run(at, crash).await {
        at += 1;
    }
    assert!(at > 20, "only {} commits were made", at - 1);
    println!("{} crash points, {crash:?}", at - 1);
}

/// Requirements: R9.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn committer_crash_after_any_commit_does_not_change_the_result() {
    after_every_commit(CrashKind::Shard).await;
}

/// Requirements: R8.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn process_crash_after_any_commit_does_not_change_the_result() {
    after_every_commit(CrashKind::Process).await;
}

/// Every purge is a commit, and the process stops after each: purged rows stay purged, the others stay
/// complete.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn purged_data_stays_purged_after_a_crash() {
    let home = tempfile::tempdir().expect("a directory can be created");
    let clock = SimClock::new(Timestamp::from_millis(1_700_000_000_000));
    let world = FakeUpstreams::new(Arc::clone(&clock) as Arc<dyn Clock>, 1);
    let programs = vec![order(TIMEOUT), EventRecorder::program()];
    let setup = TestRuntimeConfig::new(
        home.path().to_owned(),
        programs,
        Arc::clone(&clock) as Arc<dyn Clock>,
    );
    let mut runtime = setup.start(&world).await;
    {
        let _clock_driver = drive_clock(&clock);
        play(&runtime, &clock).await;
    }
    let over = |runtime: &TestRuntime| {
        let query = InstanceQuery {
            tenant: tenant(),
            ..InstanceQuery::default()
        };
        let page = runtime
            .reader()
            .instances(&query)
            .expect("the store can be read");
        let finished = page
            .items
            .into_iter()
            .filter(|found| found.instance.is_finished());
        finished
            .map(|found| (found.key, found.instance.version))
            .collect::<Vec<_>>()
    };
    let ledger = numbers(&runtime);
    let mut remaining = over(&runtime);
    let mut commits = 0;
    assert!(remaining.len() >= 2, "{remaining:?}");
    while let Some((key, version)) = remaining.pop() {
        // The actor stops shortly after the last commit of its instance.
        while !runtime
            .runtime
            .purge_instance(key.clone(), version)
            .await
            .expect("the shard is up")
        {
            tokio::task::yield_now().await;
        }
        commits += 1;
        runtime.crash().await;
        runtime = setup.start(&world).await;
        assert_eq!(
            runtime
                .reader()
                .instance(&key)
                .expect("the store can be read"),
            None,
            "{key}"
        );
        assert_eq!(
            runtime
                .reader()
                .history(&key, 0, 9)
                .expect("the store can be read"),
            [],
            "{key}"
        );
        assert_eq!(over(&runtime), remaining);
        for (key, version) in &remaining {
            let history = runtime
                .reader()
                .history(key, 0, usize::MAX)
                .expect("the store can be read");
            assert!(
                history.iter().map(|record| record.version).eq(1..=*version),
                "{key}: {history:?}"
            );
        }
        assert_eq!(numbers(&runtime), ledger);
    }
    println!("{commits} crash points");
    runtime.stop().await;
}
