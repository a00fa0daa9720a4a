//! Moving instances to another definition, through the whole runtime: first what would become of each, then the move.

use std::sync::Arc;

use orlog_actors::ControlError;
use orlog_engine::{Plan, Refusal};
use orlog_model::{
    Action, Clock, Control, CorrelationId, Event, InstanceKey, ProgramRef, Status, Timestamp, Transition,
};
use orlog_program::{Context, Fault, Manifest, Migration, Program, Reaction, Stimulus};
use orlog_testkit::SimClock;
use orlog_testkit::fake_upstreams::World;
use orlog_testkit::runtime::{Rig, Setup, control_id, tenant};
use orlog_testkit::sagas::Ledger;

const START: Timestamp = Timestamp::from_millis(1_700_000_000_000);

/// A ledger that goes on with those of the first version, but not when they are longer than three.
struct Newer {
    old: Arc<dyn Program>,
    reference: ProgramRef,
}

impl Newer {
    fn new() -> Self {
        let old = Ledger::program();
        let reference = ProgramRef { version: 2, hash: [8; 16], ..old.reference().clone() };
        Self { old, reference }
    }
}

impl Program for Newer {
    fn reference(&self) -> &ProgramRef {
        &self.reference
    }

    fn manifest(&self) -> &Manifest {
        self.old.manifest()
    }

    fn correlate(&self, event: &Event) -> Result<CorrelationId, Fault> {
        self.old.correlate(event)
    }

    fn apply(
        &self,
        state: Option<&[u8]>,
        stimulus: &Stimulus<'_>,
        context: &Context<'_>,
    ) -> Result<Reaction, Fault> {
        self.old.apply(state, stimulus, context)
    }

    fn migrate(&self, _: &dyn Program, state: &[u8], _: &Context<'_>) -> Result<Migration, Vec<String>> {
        let numbers = Ledger::numbers(state);
        if numbers.len() > 3 {
            return Err(vec![format!("{} numbers do not fit", numbers.len())]);
        }
        let transition = Transition {
            state: state.to_vec(),
            status: Status::Running,
            work: Vec::new(),
            timers: Vec::new(),
            tasks: Vec::new(),
            waits: Vec::new(),
            reference: None,
            failure: None,
            note: String::new(),
        };
        Ok(Migration { transition, tags: Vec::new(), mapped: numbers.len() > 1 })
    }
}

fn numbers(rig: &Rig, key: &InstanceKey) -> Vec<u32> {
    let instance = rig.runtime.reader(key).and_then(|reader| reader.instance(key).ok().flatten());
    instance.map_or_else(Vec::new, |instance| Ledger::numbers(&instance.state))
}

/// Opens the ledger of that number with so many entries.
async fn ledger(rig: &Rig, number: usize, entries: u32) -> InstanceKey {
    let key = Ledger::key(&tenant(), number);
    for entry in 0..entries {
        rig.publish(&Ledger::event(&key, entry, START)).await;
    }
    rig.until("all is noted", |rig| numbers(rig, &key).len() == entries as usize).await;
    key
}

async fn migrate(rig: &Rig, key: &InstanceKey, version: u64, to: [u8; 16]) -> Result<bool, ControlError> {
    let control = Control {
        id: control_id("migrate", 0),
        action: Action::Migrate { to },
        expected_version: Some(version),
        at: START,
        by: Some("alice".to_owned()),
        reason: None,
        trace: None,
    };
    rig.runtime.control(key, control).await.map(|answer| answer.applied)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn instances_are_planned_moved_or_left_with_the_reasons() {
    let home = tempfile::tempdir().expect("a folder can be made");
    let clock = SimClock::new(START) as Arc<dyn Clock>;
    let world = World::new(Arc::clone(&clock), 1);
    let mut setup = Setup::new(home.path().to_owned(), vec![Ledger::program()], clock);
    let rig = setup.start(&world).await;
    let (one, two, four) = (ledger(&rig, 1, 1).await, ledger(&rig, 2, 2).await, ledger(&rig, 4, 4).await);
    rig.stop().await;
    let newer = Arc::new(Newer::new());
    setup.programs.push(Arc::clone(&newer) as Arc<dyn Program>);
    let rig = setup.start(&world).await;
    let saga = &one.saga;
    let mut planned = rig.runtime.plan_migration(&tenant(), saga, newer.as_ref()).expect("readable");
    planned.sort_by(|a, b| a.key.cmp(&b.key));
    let plans: Vec<_> =
        planned.iter().map(|planned| (&planned.key, planned.version, &planned.plan)).collect();
    let blocked = Plan::Blocked(vec!["4 numbers do not fit".to_owned()]);
    assert_eq!(plans, [(&one, 1, &Plan::Safe), (&two, 2, &Plan::Mapped), (&four, 4, &blocked)]);

    let hash = newer.reference().hash;
    let stale = migrate(&rig, &two, 1, hash).await;
    assert_eq!(stale, Err(ControlError::Refused(Refusal::Version { expected: 1, actual: 2 })));
    assert_eq!(migrate(&rig, &two, 2, hash).await, Ok(true));
    let Err(ControlError::Refused(refusal)) = migrate(&rig, &four, 4, hash).await else {
        panic!("it is blocked")
    };
    assert_eq!(refusal.to_string(), "it must stay with its definition: 4 numbers do not fit");
    let moved = rig.reader().instance(&two).expect("readable").expect("it is there");
    assert_eq!((moved.program.version, moved.version), (2, 3));
    let history = rig.reader().history(&two, 2, 9).expect("readable");
    assert_eq!(history[0].note, "migrate by alice; migrated from 1 to 2");
    rig.publish(&Ledger::event(&two, 2, START)).await;
    rig.until("it goes on", |rig| numbers(rig, &two) == [0, 1, 2]).await;
    let left = rig.runtime.plan_migration(&tenant(), saga, newer.as_ref()).expect("readable");
    assert_eq!(left.len(), 2, "what was moved is not planned again");
    rig.stop().await;
}
