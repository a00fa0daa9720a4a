//! Everything twice, and every step failing in turn, through the whole runtime.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use orlog_actors::CommitObserver;
use orlog_model::{
    Change, Clock, Commit, DeadLetter, DeadLetterReason, EventType, Failure, Input, InstanceKey, Original,
    OutboxKey, Outcome, StreamPosition, Timestamp, Verdict,
};
use orlog_testkit::SimClock;
use orlog_testkit::fake_upstreams::World;
use orlog_testkit::faulty_bus::Faults;
use orlog_testkit::runtime::{Rig, Setup, passing, seed, tenant};
use orlog_testkit::sagas::{Ledger, Order, STEPS, order, order_key, order_placed};
use serde_json::{Value, json};
use uuid::Uuid;

const TIMEOUT: Duration = Duration::from_hours(1);

/// An order that completes, and for each step and each way in which it can fail one that fails there; and the same once
/// more with every answer lost at first.
fn orders() -> Vec<Order> {
    let mut plans = vec![json!({})];
    for step in STEPS {
        let ways: &[&str] = if step == "reserve" { &["refuse", "reject", "silent"] } else { &["refuse"] };
        plans.extend(ways.iter().map(|way| json!({ step: way })));
    }
    let lost: Vec<Value> = plans.iter().map(with_lost_answers).collect();
    plans.extend(lost);
    // An undo that is refused: the instance is stuck, and asks nothing more.
    plans.push(json!({ "notify": "refuse", "undo:charge": "refuse" }));
    plans.into_iter().enumerate().map(|(number, plan)| (order_key(&tenant(), number), plan)).collect()
}

fn with_lost_answers(plan: &Value) -> Value {
    let mut plan = plan.clone();
    for tag in STEPS.iter().flat_map(|step| [(*step).to_owned(), format!("undo:{step}")]) {
        if plan.get(&tag).is_none() {
            plan[tag] = json!("lost");
        }
    }
    plan
}

struct Scene {
    rig: Rig,
    clock: Arc<SimClock>,
    _passing: orlog_testkit::runtime::Passing,
    _home: tempfile::TempDir,
}

async fn scene(echoes: usize, change: impl FnOnce(&mut Setup)) -> Scene {
    let home = tempfile::tempdir().expect("a folder can be made");
    let clock = SimClock::new(Timestamp::from_millis(1_700_000_000_000));
    let world = World::new(Arc::clone(&clock) as Arc<dyn Clock>, echoes);
    let mut setup =
        Setup::new(home.path().to_owned(), vec![order(TIMEOUT)], Arc::clone(&clock) as Arc<dyn Clock>);
    change(&mut setup);
    let rig = setup.start(&world).await;
    Scene { rig, _passing: passing(&clock), clock, _home: home }
}

async fn play(scene: &Scene) {
    for (key, plan) in orders() {
        scene.rig.publish(&order_placed(&key, &plan, scene.clock.now())).await;
    }
    scene.rig.finish(&orders(), &scene.clock, TIMEOUT).await;
    scene.rig.until_consumed().await;
    scene.rig.audit(&orders()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_step_failing_in_turn_undoes_what_was_done_in_reverse() {
    let scene = scene(1, |_| {}).await;
    play(&scene).await;
    scene.rig.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_message_twice_leads_to_the_same_end() {
    let scene = scene(2, |_| {}).await;
    play(&scene).await;
    scene.rig.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_message_refused_and_delivered_again_leads_to_the_same_end() {
    let seed = seed(1);
    let faults = Faults { lost_answers: 0, lost_acks: 50, twice: 100, late: 0 };
    let scene = scene(1, |setup| setup.faults = Some((faults, seed))).await;
    play(&scene).await;
    scene.rig.stop().await;
}

/// The outcomes that were stored.
#[derive(Default)]
struct Outcomes(Mutex<Vec<(InstanceKey, Uuid, OutboxKey)>>);

impl CommitObserver for Outcomes {
    fn committed(&self, commit: &Commit) {
        let (Some(outbox), Some(record)) = (&commit.settles, &commit.history) else { return };
        let id = record.input.as_str().strip_prefix("outcome:").expect("only outcomes settle");
        let id = id.parse().expect("the id of an outcome holds the id of the work");
        self.0.lock().expect("nobody panics with this lock").push((commit.key.clone(), id, outbox.clone()));
    }
}

/// A letter that brings an outcome to its instance: the way of an operator, and the only one from outside.
fn letter(
    key: &InstanceKey,
    work_id: Uuid,
    outbox: &OutboxKey,
    verdict: Verdict,
    at: Timestamp,
) -> DeadLetter {
    let outcome =
        Outcome { work_id, outbox: outbox.clone(), verdict, attempts: 1, at, facts: Vec::new(), trace: None };
    DeadLetter {
        id: work_id,
        tenant: key.tenant.clone(),
        instance: Some(key.clone()),
        reason: DeadLetterReason::ProgramError,
        message: "a repetition".to_owned(),
        original: Original::Input(Box::new(Input::Outcome(outcome))),
        attempts: 1,
        node: "test".to_owned(),
        at,
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_outcome_twice_and_then_its_contrary_changes_nothing() {
    let outcomes = Arc::new(Outcomes::default());
    let observer = Arc::clone(&outcomes) as Arc<dyn CommitObserver>;
    let scene = scene(1, |setup| setup.observer = Some(observer)).await;
    play(&scene).await;
    let stored = std::mem::take(&mut *outcomes.0.lock().expect("nobody panics with this lock"));
    assert!(stored.len() > 30, "only {} outcomes were stored", stored.len());
    let failure = Failure { code: "contrary".to_owned(), message: "it failed after all".to_owned() };
    let verdicts = [
        Verdict::Succeeded { event: None, payload: Value::Null },
        Verdict::Accepted,
        Verdict::Failed {
            event: Some(EventType::new("Contrary").expect("a short word")),
            failure,
            payload: Value::Null,
        },
    ];
    for (key, id, outbox) in &stored {
        for verdict in verdicts.clone() {
            let letter = letter(key, *id, outbox, verdict, scene.clock.now());
            let answer = scene.rig.runtime.redrive(letter).await.expect("the shard is there");
            assert!(
                !answer.applied && answer.why.is_some(),
                "{key}: a second outcome was applied: {answer:?}"
            );
        }
    }
    scene.rig.audit(&orders()).await;
    scene.rig.stop().await;
}

/// The checkpoint lags behind what was applied; here it lags by everything, as far as it can.
fn forget_checkpoints(home: &std::path::Path, setup: &Setup) {
    let (mut writer, reader) =
        orlog_store::open(&home.join("shard-0"), setup.store.clone()).expect("it was let go");
    for (source, _) in reader.checkpoints().expect("it is open") {
        let position = StreamPosition::behind(Uuid::new_v4(), 1);
        writer.commit(&[Change::Checkpoint(source, position)], setup.clock.now()).expect("there is room");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_event_twice_after_a_long_rest_leads_to_the_same_end() {
    let home = tempfile::tempdir().expect("a folder can be made");
    let clock = SimClock::new(Timestamp::from_millis(1_700_000_000_000));
    let present = Arc::clone(&clock) as Arc<dyn Clock>;
    let world = World::new(Arc::clone(&present), 1);
    let setup = Setup::new(home.path().to_owned(), vec![Ledger::program()], present);
    let key = Ledger::key(&tenant(), 1);
    let day = Duration::from_hours(24);
    // After the first life ten days pass; the second one is short.
    for (life, rest) in [Duration::ZERO, day * 10, Duration::from_mins(5)].into_iter().enumerate() {
        clock.advance(rest);
        let rig = setup.start(&world).await;
        let first = u32::try_from(life * 4).expect("small");
        for number in first..first + 4 {
            rig.publish(&Ledger::event(&key, number, clock.now())).await;
        }
        rig.until_consumed().await;
        let state = rig.reader().instance(&key).expect("it is open").expect("it was opened").state;
        assert_eq!(Ledger::numbers(&state), (0..first + 4).collect::<Vec<_>>(), "life {life}");
        rig.stop().await;
        forget_checkpoints(home.path(), &setup);
    }
}
