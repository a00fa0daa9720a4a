//! A program that breaks down parks its instance: what comes later is kept in order until a person has seen to it.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};

use orlog_model::{
    Action, Clock, Control, CorrelationId, DeadLetter, Event, Instance, InstanceKey, ProgramRef, Timestamp,
};
use orlog_program::{Context, Fault, Manifest, Program, Reaction, Stimulus};
use orlog_testkit::SimClock;
use orlog_testkit::rig::{Rig, Setup, control_id, tenant};
use orlog_testkit::sagas::Ledger;
use orlog_testkit::world::World;

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
    let control =
        Control { id, action: Action::Resume, expected_version: None, at: START, by: None, reason: None };
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
