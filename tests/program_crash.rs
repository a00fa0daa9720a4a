//! A program that breaks down parks its instance: what comes later is kept in order until a person has seen to it.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};

use orlog_bus::Subscription;
use orlog_bus::subject::{self, Kind};
use orlog_model::{
    Action, Change, Clock, Control, CorrelationId, DeadLetter, DeadLetterReason, Event, Instance,
    InstanceKey, Original, ProgramRef, StreamPosition, Timestamp,
};
use orlog_program::{Context, Fault, Manifest, Program, Reaction, Stimulus};
use orlog_testkit::SimClock;
use orlog_testkit::fake_upstreams::World;
use orlog_testkit::runtime::{DEADLINE, Rig, Setup, control_id, tenant};
use orlog_testkit::sagas::Ledger;

const START: Timestamp = Timestamp::from_millis(1_700_000_000_000);

/// A ledger that breaks down over some numbers.
struct Fragile {
    ledger: Arc<dyn Program>,
    breaks: Arc<Mutex<BTreeSet<u64>>>,
}

impl Program for Fragile {
    fn reference(&self) -> &ProgramRef {
        self.ledger.reference()
    }

    fn manifest(&self) -> &Manifest {
        self.ledger.manifest()
    }

    fn correlate(&self, event: &Event) -> Result<CorrelationId, Fault> {
        self.ledger.correlate(event)
    }

    fn apply(
        &self,
        state: Option<&[u8]>,
        stimulus: &Stimulus<'_>,
        context: &Context<'_>,
    ) -> Result<Reaction, Fault> {
        let number = match stimulus {
            Stimulus::Event(event) => event.data["n"].as_u64(),
            _ => None,
        };
        let breaks = self.breaks.lock().unwrap_or_else(PoisonError::into_inner);
        if number.is_some_and(|number| breaks.contains(&number)) {
            return Err(Fault::Broken("it ran out of fuel".to_owned()));
        }
        self.ledger.apply(state, stimulus, context)
    }
}

fn instance(rig: &Rig, key: &InstanceKey) -> Option<Instance> {
    rig.reader().instance(key).ok().flatten()
}

fn numbers(rig: &Rig, key: &InstanceKey) -> Vec<u32> {
    instance(rig, key).map_or_else(Vec::new, |instance| Ledger::numbers(&instance.state))
}

fn letters(rig: &Rig) -> Vec<DeadLetter> {
    rig.reader().dead_letters(&tenant(), None, 10).unwrap_or_default()
}

async fn resume(rig: &Rig, key: &InstanceKey, number: usize) {
    let id = control_id("resume", number);
    let control = Control {
        id,
        action: Action::Resume,
        expected_version: None,
        at: START,
        by: None,
        reason: None,
        trace: None,
    };
    rig.runtime.control(key, control).await.expect("a paused instance can be resumed");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_comes_after_a_breakdown_is_kept_until_the_program_is_mended() {
    let home = tempfile::tempdir().expect("a folder can be made");
    let clock: Arc<dyn Clock> = SimClock::new(START);
    let world = World::new(Arc::clone(&clock), 1);
    let breaks = Arc::new(Mutex::new(BTreeSet::from([2, 4])));
    let program = Fragile { ledger: Ledger::program(), breaks: Arc::clone(&breaks) };
    let rig = Setup::new(home.path().to_owned(), vec![Arc::new(program)], clock).start(&world).await;
    let key = Ledger::key(&tenant(), 0);
    for number in 0..6 {
        rig.publish(&Ledger::event(&key, number, START)).await;
    }
    let kept = |rig: &Rig| rig.reader().held(&key, 10).map_or(0, |held| held.len());
    rig.until("what came later is kept", |rig| kept(rig) == 3).await;
    let parked = instance(&rig, &key).expect("it has begun");
    assert!(parked.paused && parked.last_error.is_some_and(|error| error.message == "it ran out of fuel"));
    assert_eq!((numbers(&rig, &key), letters(&rig).len()), (vec![0, 1], 1));

    resume(&rig, &key, 1).await;
    rig.until("it breaks down over the fourth", |rig| letters(rig).len() == 2).await;
    rig.until("the last one stays kept", |rig| kept(rig) == 1).await;
    assert!(instance(&rig, &key).is_some_and(|instance| instance.paused));
    assert_eq!(numbers(&rig, &key), [0, 1, 3]);

    breaks.lock().unwrap_or_else(PoisonError::into_inner).clear();
    resume(&rig, &key, 2).await;
    rig.until("the last one is applied", |rig| numbers(rig, &key) == [0, 1, 3, 5]).await;
    for letter in letters(&rig) {
        rig.runtime.redrive(letter).await.expect("the program is mended");
    }
    let mut all = numbers(&rig, &key);
    all.sort_unstable();
    assert_eq!(all, [0, 1, 2, 3, 4, 5]);
    rig.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_letter_that_was_kept_before_a_crash_is_published_after_it() {
    let home = tempfile::tempdir().expect("a folder can be made");
    let clock: Arc<dyn Clock> = SimClock::new(START);
    let world = World::new(Arc::clone(&clock), 1);
    let setup = Setup::new(home.path().to_owned(), vec![Ledger::program()], clock);
    let original = Original::Message { subject: "s".to_owned(), headers: Vec::new(), payload: vec![0, 255] };
    let why = "no JSON at byte 1".to_owned();
    let letter =
        orlog_engine::dead_letter(tenant(), original, DeadLetterReason::Undecodable, why, "node-1", START);
    {
        let folder = home.path().join("shard-0");
        let (mut writer, _) = orlog_store::open(&folder, setup.store.clone()).expect("a fresh store opens");
        let gone = Change::DropDeadLetter { tenant: tenant(), id: letter.id };
        let kept = Change::PutDeadLetter(Box::new(letter.clone()));
        writer.commit(&[kept, gone], START).expect("there is room");
    }
    let rig = setup.start(&world).await;
    let subscription = Subscription {
        name: "copies".to_owned(),
        filters: subject::filters(Some(&tenant()), Kind::DeadLetter, None),
        part: None,
        after: Some(StreamPosition::behind(rig.bus.stream_id(), 0)),
        max_in_flight: usize::MAX,
    };
    let mut copies = rig.bus.subscribe(subscription).await.expect("the bus can be read");
    let next = tokio::time::timeout(DEADLINE, copies.next(9)).await.expect("a copy comes");
    let next = next.expect("the bus can be read");
    let ids: Vec<_> = next.iter().map(|delivery| delivery.message.id.clone()).collect();
    assert_eq!(ids, [Some(letter.id.to_string())]);
    let waiting = |rig: &Rig| rig.reader().unpublished_letters(0, 9).map_or(9, |letters| letters.len());
    rig.until("none waits any more", |rig| waiting(rig) == 0).await;
    rig.stop().await;
}
