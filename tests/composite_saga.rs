//! What comes from elsewhere, through the whole runtime: events before their instance, a task for a person, a child saga; crashed
//! after every commit, and with every message twice.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;

use orlog_actors::{CommitObserver, ControlError};
use orlog_model::{
    Action, Clock, Commit, Control, EventType, InstanceKey, SagaName, Status, TaskOrder, TaskStatus,
    Timestamp,
};
use orlog_store::TaskQuery;
use orlog_testkit::SimClock;
use orlog_testkit::fake_upstreams::World;
use orlog_testkit::faulty_bus::Faults;
use orlog_testkit::runtime::{Rig, Setup, control_id, passing, seed, tenant};
use orlog_testkit::sagas::composite::{self, Household};
use serde_json::json;
use tokio::sync::Notify;

const START: Timestamp = Timestamp::from_millis(1_700_000_000_000);

/// Stops the process after the n-th commit: it is on the disk, and nothing after it happens.
struct Crasher {
    commits: AtomicUsize,
    at: usize,
    frozen: Notify,
    thaw: Mutex<Option<mpsc::Receiver<()>>>,
}

impl CommitObserver for Crasher {
    fn committed(&self, _: &Commit) {
        if self.commits.fetch_add(1, Ordering::SeqCst) + 1 == self.at {
            let wait = self.thaw.lock().expect("nobody panics with this lock").take();
            self.frozen.notify_one();
            if let Some(wait) = wait {
                wait.recv().expect_err("the test only ever lets go");
            }
        }
    }
}

fn instance(rig: &Rig, key: &InstanceKey) -> Option<orlog_model::Instance> {
    rig.runtime.reader(key).and_then(|reader| reader.instance(key).ok().flatten())
}

fn house(rig: &Rig, key: &InstanceKey) -> Option<Household> {
    instance(rig, key).map(|instance| composite::read(&instance.state))
}

fn kept(rig: &Rig, key: &InstanceKey) -> usize {
    rig.runtime.reader(key).and_then(|reader| reader.held(key, 9).ok()).map_or(0, |held| held.len())
}

async fn instruct(rig: &Rig, key: &InstanceKey, label: &str, action: Action) -> bool {
    loop {
        let control = Control {
            id: control_id(label, 0),
            action: action.clone(),
            expected_version: None,
            at: START,
            by: Some("alice".to_owned()),
            reason: None,
            trace: None,
        };
        match rig.runtime.control(key, control).await {
            Ok(answer) => return answer.applied,
            Err(ControlError::Unavailable) => tokio::task::yield_now().await,
            Err(error) => panic!("{label}: {error}"),
        }
    }
}

/// Everything that happens, from the beginning; again after a crash.
async fn play(rig: &Rig) {
    let key = composite::key(&tenant(), 0);
    for number in 1..=3 {
        rig.publish(&composite::told(&key, number, START)).await;
    }
    rig.until("three events are kept", |rig| kept(rig, &key) == 3 || instance(rig, &key).is_some()).await;
    rig.publish(&composite::told(&key, 0, START)).await;
    rig.until("the household is open", |rig| instance(rig, &key).is_some()).await;
    rig.publish(&composite::told(&key, 4, START)).await;
    rig.until("all is noted", |rig| house(rig, &key).is_some_and(|house| house.notes.len() >= 4)).await;
    let task = instance(rig, &key).and_then(|instance| instance.tasks.first().map(|task| task.id));
    if let Some(id) = task {
        let roles = vec!["landlord".to_owned()];
        let order = |order| Action::Task { id, order, roles: roles.clone() };
        instruct(rig, &key, "claim", order(TaskOrder::Claim)).await;
        let outcome = EventType::new("Approved").ok();
        let complete = order(TaskOrder::Complete { outcome, data: json!({ "rent": 900 }) });
        instruct(rig, &key, "complete", complete.clone()).await;
        assert!(!instruct(rig, &key, "complete", complete).await, "a second time it is a repetition");
    }
    rig.until_ended(&[key.clone(), composite::errand_key(&key)]).await;
    rig.until_consumed().await;
}

/// Nothing is lost, doubled, out of order or left over.
async fn check(rig: &Rig) {
    let key = composite::key(&tenant(), 0);
    let expected = Household {
        notes: vec![1, 2, 3, 4],
        chosen: Some("Approved".to_owned()),
        brought: Some(json!({ "milk": 2 })),
    };
    assert_eq!(house(rig, &key), Some(expected), "{}", rig.state());
    let parent = instance(rig, &key).expect("it was there");
    assert_eq!(parent.status, Status::Completed);
    assert!(parent.tasks.is_empty() && parent.open.is_empty() && parent.timers.is_empty());
    let child = instance(rig, &composite::errand_key(&key)).expect("it was begun");
    assert_eq!((child.status, child.version), (Status::Completed, 2));
    assert_eq!(child.parent.expect("it has one").key, key);
    let mut told: Vec<String> = rig.facts().await.into_iter().map(|(_, _, kind)| kind.to_string()).collect();
    told.sort();
    assert_eq!(told, ["ErrandDone", "HouseholdClosed"]);
    let reader = rig.runtime.reader(&key).expect("this process owns every slot");
    for table in ["outbox", "schedule", "held", "deadletter"] {
        let rows = reader.rows(table, None, 10).expect("the store can be read");
        assert!(rows.is_empty(), "left in {table}: {rows:#?}");
    }
    let tasks = reader.tasks(&TaskQuery { tenant: tenant(), ..TaskQuery::default() });
    let tasks = tasks.expect("the store can be read").items;
    let [task] = &tasks[..] else { panic!("{tasks:#?}") };
    assert_eq!((task.status, task.task.claimed_by.as_deref()), (TaskStatus::Completed, Some("alice")));
    let events = reader.task_events(task, 99).expect("the store can be read");
    let steps: Vec<_> = events.iter().map(|event| event.step.as_str()).collect();
    assert_eq!(steps, ["opened", "claimed", "completed"]);
}

async fn scene(
    change: impl FnOnce(&mut Setup),
    echoes: usize,
) -> (Rig, Setup, Arc<World>, tempfile::TempDir) {
    let home = tempfile::tempdir().expect("a folder can be made");
    let clock = SimClock::new(START);
    // Until the process ends: a crashed runtime has another after it.
    std::mem::forget(passing(&clock));
    let world = World::new(Arc::clone(&clock) as Arc<dyn Clock>, echoes);
    let programs = composite::programs().into();
    let mut setup = Setup::new(home.path().to_owned(), programs, clock as Arc<dyn Clock>);
    change(&mut setup);
    (setup.start(&world).await, setup, world, home)
}

/// Plays with a crash after commit `at`; says whether it came to that.
async fn run(at: usize) -> bool {
    let (let_go, wait) = mpsc::channel();
    let commits = AtomicUsize::new(0);
    let crasher = Arc::new(Crasher { commits, at, frozen: Notify::new(), thaw: Mutex::new(Some(wait)) });
    let observer = Arc::clone(&crasher) as Arc<dyn CommitObserver>;
    let change = |setup: &mut Setup| {
        setup.limits.group = 1;
        setup.observer = Some(observer);
    };
    let (mut rig, setup, world, _home) = scene(change, 1).await;
    let finished = tokio::select! {
        () = play(&rig) => true,
        () = crasher.frozen.notified() => false,
    };
    if !finished {
        rig.crash().await;
        drop(let_go);
        rig = setup.start(&world).await;
        play(&rig).await;
    }
    check(&rig).await;
    rig.stop().await;
    !finished
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_process_that_stops_after_any_commit_changes_nothing_about_the_end() {
    let mut at = 1;
    while run(at).await {
        at += 1;
    }
    assert!(at > 12, "only {} commits were made", at - 1);
    println!("{} crash points", at - 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_message_twice_leads_to_the_same_end() {
    let (rig, _setup, _world, _home) = scene(|_| {}, 2).await;
    play(&rig).await;
    check(&rig).await;
    rig.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_message_refused_and_delivered_again_leads_to_the_same_end() {
    let seed = seed(1);
    let faults = Faults { lost_answers: 0, lost_acks: 50, twice: 100, late: 0 };
    let (rig, _setup, _world, _home) = scene(|setup| setup.faults = Some((faults, seed)), 1).await;
    play(&rig).await;
    check(&rig).await;
    rig.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_comes_early_is_dropped_when_its_instance_does_not_begin_in_time() {
    let home = tempfile::tempdir().expect("a folder can be made");
    let clock = SimClock::new(START);
    let world = World::new(Arc::clone(&clock) as Arc<dyn Clock>, 1);
    let programs = composite::programs().into();
    let setup = Setup::new(home.path().to_owned(), programs, Arc::clone(&clock) as Arc<dyn Clock>);
    let rig = setup.start(&world).await;
    let key = composite::key(&tenant(), 0);
    rig.publish(&composite::told(&key, 1, START)).await;
    rig.until("it is kept", |rig| kept(rig, &key) == 1).await;
    clock.advance(Duration::from_hours(24 * 364));
    rig.publish(&composite::told(&key, 2, START)).await;
    rig.until("both are kept", |rig| kept(rig, &key) == 2).await;
    clock.advance(Duration::from_hours(25));
    rig.until("the older is dropped", |rig| kept(rig, &key) == 1).await;
    rig.publish(&composite::told(&key, 0, START)).await;
    rig.until("the younger is noted", |rig| house(rig, &key).is_some_and(|house| house.notes == [2])).await;
    let schedule = rig.reader().rows("schedule", None, 9).expect("the store can be read");
    assert!(schedule.iter().all(|row| !row.key.ends_with(":early")), "{schedule:?}");
    rig.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_child_of_a_saga_that_nobody_defines_or_that_exists_fails_at_once() {
    let home = tempfile::tempdir().expect("a folder can be made");
    let clock = SimClock::new(START);
    let world = World::new(Arc::clone(&clock) as Arc<dyn Clock>, 1);
    let [parent, errand] = composite::programs();
    let mut setup = Setup::new(home.path().to_owned(), vec![parent], Arc::clone(&clock) as Arc<dyn Clock>);
    let brings = |rig: &Rig, key: &InstanceKey, code: &str| {
        house(rig, key).is_some_and(|house| house.brought == Some(json!(code)))
    };
    let rig = setup.start(&world).await;
    let key = composite::key(&tenant(), 0);
    rig.publish(&composite::told(&key, 0, START)).await;
    rig.until("it learns that there is no such saga", |rig| brings(rig, &key, "no_such_saga")).await;
    rig.stop().await;
    setup.programs.push(errand);
    let rig = setup.start(&world).await;
    let key = composite::key(&tenant(), 1);
    let saga = SagaName::new("errand").expect("a short word");
    let own = InstanceKey { saga, ..key.clone() };
    let mut wanted = composite::told(&own, 0, START);
    wanted.kind = EventType::new("Wanted").expect("a short word");
    wanted.data = json!({ "for": "nobody" });
    rig.publish(&wanted).await;
    rig.until("the errand is there", |rig| instance(rig, &own).is_some()).await;
    let opened = composite::told(&key, 0, START);
    let id = control_id("opened", 1);
    rig.publish(&orlog_model::Event { id, ..opened }).await;
    rig.until("it learns that it exists", |rig| brings(rig, &key, "already_exists")).await;
    assert!(instance(&rig, &own).expect("it was there").parent.is_none());
    rig.stop().await;
}
