//! Crash after every commit: for each n, everything stops after commit n and begins anew on what is durable. The end must
//! be that of a run without a crash.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;

use orlog_actors::{CommitObserver, ControlError};
use orlog_model::{Action, Clock, Commit, Control, Timestamp};
use orlog_store::Bookmark;
use orlog_testkit::SimClock;
use orlog_testkit::fake_upstreams::World;
use orlog_testkit::runtime::{Rig, Setup, control_id, passing, tenant};
use orlog_testkit::sagas::{Ledger, Order, order, order_key, order_placed};
use serde_json::json;
use tokio::sync::Notify;

const TIMEOUT: Duration = Duration::from_hours(1);

/// How a crash comes about.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Crash {
    /// The committer panics: the shard is started anew, its store recovered; the rest of the process goes on.
    OfTheShard,
    /// The process stops: the commit is on the disk, nothing after it happens, not even an acknowledgement.
    OfTheProcess,
}

/// Hears of every commit and crashes after the n-th.
struct Crasher {
    commits: AtomicUsize,
    at: usize,
    crash: Crash,
    frozen: Notify,
    thaw: Mutex<Option<mpsc::Receiver<()>>>,
}

impl Crasher {
    fn new(at: usize, crash: Crash) -> (Arc<Self>, mpsc::Sender<()>) {
        let (thaw, wait) = mpsc::channel();
        let thaw_when = Mutex::new(Some(wait));
        let commits = AtomicUsize::new(0);
        (Arc::new(Self { commits, at, crash, frozen: Notify::new(), thaw: thaw_when }), thaw)
    }

    fn has_crashed(&self) -> bool {
        self.commits.load(Ordering::SeqCst) >= self.at
    }
}

impl CommitObserver for Crasher {
    fn committed(&self, _: &Commit) {
        if self.commits.fetch_add(1, Ordering::SeqCst) + 1 != self.at {
            return;
        }
        match self.crash {
            Crash::OfTheShard => panic!("the committer dies after commit {}, as the test wants", self.at),
            Crash::OfTheProcess => {
                let wait = self.thaw.lock().expect("nobody panics with this lock").take();
                self.frozen.notify_one();
                if let Some(wait) = wait {
                    wait.recv().expect_err("the test only ever lets go");
                }
            }
        }
    }
}

fn orders() -> Vec<Order> {
    let plans = [
        json!({}),
        json!({ "notify": "refuse", "ship": "lost" }),
        json!({ "reserve": "silent" }),
        json!({ "charge": "refuse", "undo:reserve": "lost" }),
    ];
    plans.into_iter().enumerate().map(|(number, plan)| (order_key(&tenant(), number), plan)).collect()
}

/// Instructs until there is an answer; the shard may be away for a moment.
async fn instruct(rig: &Rig, label: &str, action: Action) {
    let key = Ledger::key(&tenant(), 0);
    loop {
        let control = Control {
            id: control_id(label, 0),
            action: action.clone(),
            expected_version: None,
            by: None,
            reason: None,
            trace: None,
            at: Timestamp::from_millis(1_700_000_000_000),
        };
        match rig.runtime.control(&key, control).await {
            Ok(_) => return,
            Err(ControlError::Unavailable) => tokio::task::yield_now().await,
            Err(error) => panic!("{label}: {error}"),
        }
    }
}

fn numbers(rig: &Rig) -> Vec<u32> {
    let instance = rig.reader().instance(&Ledger::key(&tenant(), 0));
    instance.ok().flatten().map_or_else(Vec::new, |instance| Ledger::numbers(&instance.state))
}

/// Everything that happens, from the beginning. Played again after a crash: what has happened already is a repetition.
async fn play(rig: &Rig, clock: &SimClock) {
    let time = Timestamp::from_millis(1_700_000_000_000);
    let ledger = Ledger::key(&tenant(), 0);
    rig.publish(&Ledger::event(&ledger, 0, time)).await;
    for (key, plan) in orders() {
        rig.publish(&order_placed(&key, &plan, time)).await;
    }
    rig.until("the ledger is open", |rig| !numbers(rig).is_empty()).await;
    instruct(rig, "pause", Action::Pause).await;
    for number in 1..=3 {
        rig.publish(&Ledger::event(&ledger, number, time)).await;
    }
    rig.until("three events are kept", |rig| {
        let held = rig.reader().held(&ledger, 9).map_or(0, |held| held.len());
        held + numbers(rig).len() >= 4
    })
    .await;
    instruct(rig, "resume", Action::Resume).await;
    rig.publish(&Ledger::event(&ledger, 4, time)).await;
    rig.finish(&orders(), clock, TIMEOUT).await;
    rig.until("the ledger is full", |rig| numbers(rig).len() >= 5).await;
}

/// Plays with a crash after commit `at`; says whether it came to that.
async fn run(at: usize, crash: Crash) -> bool {
    let home = tempfile::tempdir().expect("a folder can be made");
    let clock = SimClock::new(Timestamp::from_millis(1_700_000_000_000));
    let _passing = passing(&clock);
    let world = World::new(Arc::clone(&clock) as Arc<dyn Clock>, 1);
    let programs = vec![order(TIMEOUT), Ledger::program()];
    let mut setup = Setup::new(home.path().to_owned(), programs, Arc::clone(&clock) as Arc<dyn Clock>);
    let (crasher, thaw) = Crasher::new(at, crash);
    setup.limits.group = 1;
    setup.observer = Some(Arc::clone(&crasher) as Arc<dyn CommitObserver>);
    let mut rig = setup.start(&world).await;
    let finished = tokio::select! {
        () = play(&rig, &clock) => true,
        () = crasher.frozen.notified() => false,
    };
    if !finished {
        rig.crash().await;
        drop(thaw);
        rig = setup.start(&world).await;
        play(&rig, &clock).await;
    }
    assert_eq!(numbers(&rig), [0, 1, 2, 3, 4], "the ledger after a crash at {at}, {crash:?}");
    rig.audit(&orders()).await;
    rig.stop().await;
    crasher.has_crashed()
}

async fn after_every_commit(crash: Crash) {
    let mut at = 1;
    while run(at, crash).await {
        at += 1;
    }
    assert!(at > 20, "only {} commits were made", at - 1);
    println!("{} crash points, {crash:?}", at - 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_committer_that_dies_after_any_commit_changes_nothing_about_the_end() {
    after_every_commit(Crash::OfTheShard).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_process_that_stops_after_any_commit_changes_nothing_about_the_end() {
    after_every_commit(Crash::OfTheProcess).await;
}

/// Every purge is a commit, and the process stops after each: what is forgotten stays so, what is not is whole.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_forgotten_before_a_crash_stays_forgotten() {
    let home = tempfile::tempdir().expect("a folder can be made");
    let clock = SimClock::new(Timestamp::from_millis(1_700_000_000_000));
    let world = World::new(Arc::clone(&clock) as Arc<dyn Clock>, 1);
    let programs = vec![order(TIMEOUT), Ledger::program()];
    let setup = Setup::new(home.path().to_owned(), programs, Arc::clone(&clock) as Arc<dyn Clock>);
    let mut rig = setup.start(&world).await;
    {
        let _passing = passing(&clock);
        play(&rig, &clock).await;
    }
    let over = |rig: &Rig| {
        let stretch = rig.reader().sweep_instances(&Bookmark::default(), (99, 99), |_, i| i.is_over());
        stretch.expect("the store can be read").found
    };
    let ledger = numbers(&rig);
    let mut left = over(&rig);
    let mut commits = 0;
    assert!(left.len() >= 2, "{left:?}");
    while let Some((key, version)) = left.pop() {
        // Its actor goes with its end, a little later than its last commit.
        while !rig.runtime.purge_instance(key.clone(), version).await.expect("the shard is up") {
            tokio::task::yield_now().await;
        }
        commits += 1;
        rig.crash().await;
        rig = setup.start(&world).await;
        assert_eq!(rig.reader().instance(&key).expect("the store can be read"), None, "{key}");
        assert_eq!(rig.reader().history(&key, 0, 9).expect("the store can be read"), [], "{key}");
        assert_eq!(over(&rig), left);
        for (key, version) in &left {
            let history = rig.reader().history(key, 0, usize::MAX).expect("the store can be read");
            assert!(history.iter().map(|record| record.version).eq(1..=*version), "{key}: {history:?}");
        }
        assert_eq!(numbers(&rig), ledger);
    }
    println!("{commits} crash points");
    rig.stop().await;
}
