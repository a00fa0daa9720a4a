//! The oracle: random operations through engine and store, and through a naive model; equal answers, equal books.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use fastrand::Rng;
use orlog_engine::{Decision, Kept, Subject, decide};
use orlog_model::{
    Action, Change, Commit, Control, Event, EventId, EventType, Failure, Input, InstanceKey, OutboxKey,
    Outcome, TimerFired, Timestamp, Verdict, WorkItem,
};
use orlog_program::Program;
use orlog_store::{Options, Reader, Writer};
use orlog_testkit::oracle::{Answer, Op, Oracle, Result};
use orlog_testkit::runtime::{seed, tenant};
use orlog_testkit::sagas::{order, order_key, order_placed};
use serde_json::{Value, json};
use uuid::Uuid;

const TIMEOUT: Duration = Duration::from_mins(30);
const INSTANCES: usize = 6;
/// What must have come about at least once before a run may end.
const MUST: [&str; 25] = [
    "OrderPlaced applied",
    "StockReserved applied",
    "StockRejected applied",
    "StockReleased applied",
    "Accepted applied",
    "Succeeded applied",
    "Failed applied",
    "TimedOut applied",
    "timer applied",
    "cancel applied",
    "pause applied",
    "resume applied",
    "retry applied",
    "cancel refused",
    "event repeated",
    "event held",
    "outcome held",
    "control repeated",
    "fact settled",
    "stuck",
    "late success",
    "early event applied",
    "early event dropped",
    "forgotten",
    "begun anew",
];

/// A row of the outbox, in the oracle's words.
type Row = (String, String, usize);

/// Engine and store, without anything that runs.
struct System {
    program: Arc<dyn Program>,
    /// `None` only while it is opened anew.
    store: Option<(Writer, Reader)>,
    now: Timestamp,
    /// Which work the oracle means.
    known: BTreeMap<Uuid, Row>,
    asked: BTreeMap<(String, String), usize>,
}

impl System {
    fn open(dir: &Path, now: Timestamp) -> Self {
        let mut system = Self {
            program: order(TIMEOUT),
            store: None,
            now,
            known: BTreeMap::new(),
            asked: BTreeMap::new(),
        };
        system.reopen(dir);
        system
    }

    /// Begins anew on what is durable.
    fn reopen(&mut self, dir: &Path) {
        self.store = None;
        let options = Options {
            generation_bytes: 16 << 10,
            journal_segment_bytes: 64 << 10,
            max_bytes: 1 << 28,
            ..Options::default()
        };
        self.store = Some(orlog_store::open(dir, options).expect("the store opens"));
    }

    fn reader(&self) -> &Reader {
        &self.store.as_ref().expect("it is open").1
    }

    fn commit(&mut self, change: Change) {
        let now = self.now;
        self.store.as_mut().expect("it is open").0.commit(&[change], now).expect("the store takes it");
    }

    fn take(&mut self, key: &InstanceKey, input: &Input) -> Answer {
        let before = self.reader().instance(key).expect("the store can be read");
        let can_repeat = before.is_some() && matches!(input, Input::Event(_) | Input::Control(_));
        if can_repeat && self.reader().applied(key, &input.id(), self.now).expect("the store can be read") {
            return Answer::Repeated;
        }
        let answer = self.decide(key, input, Vec::new());
        let paused = self
            .reader()
            .instance(key)
            .expect("the store can be read")
            .is_some_and(|instance| instance.paused);
        let exists = self.reader().instance(key).expect("the store can be read").is_some();
        if before.is_none_or(|instance| instance.paused) && exists && !paused {
            for (number, held) in self.reader().held(key, usize::MAX).expect("the store can be read") {
                let held = held.unkept();
                self.decide(key, &held, vec![number]);
            }
        }
        answer
    }

    /// What is kept for an instance that does not exist.
    fn early(&self, key: &InstanceKey) -> Vec<Kept> {
        let held = self.reader().held(key, usize::MAX).expect("the store can be read");
        let kept = |(number, input)| match input {
            Input::Early(early) => Some(Kept { number, id: early.input.id(), until: early.until }),
            _ => None,
        };
        held.into_iter().filter_map(kept).collect()
    }

    fn decide(&mut self, key: &InstanceKey, input: &Input, release: Vec<u64>) -> Answer {
        let instance = self.reader().instance(key).expect("the store can be read");
        let early = if instance.is_none() { self.early(key) } else { Vec::new() };
        let program = self.program.as_ref();
        let subject =
            Subject { key, instance: instance.as_ref(), program, now: self.now, node: "test", early: &early };
        let (answer, commit) = match decide(&subject, input) {
            Decision::Commit(commit) if commit.hold.is_some() => (Answer::Held, Some(*commit)),
            Decision::Commit(commit) => {
                assert!(commit.dead_letter.is_none(), "{:?}", commit.dead_letter);
                (Answer::Applied, Some(*commit))
            }
            Decision::Ignore { clear, .. } => (Answer::Ignored, clear.map(|commit| *commit)),
            Decision::Refuse(_) => (Answer::Refused, None),
        };
        let nothing = || (!release.is_empty()).then(|| Commit::empty(key.clone(), input.at()));
        if let Some(mut commit) = commit.or_else(nothing) {
            if !release.is_empty() && matches!(input, Input::Event(_)) {
                commit.applied = Some(input.id());
            }
            commit.release.extend(release);
            self.commit(Change::Apply(Box::new(commit)));
        }
        answer
    }

    /// The rows of the outbox, with their names for the oracle.
    fn outbox(&mut self) -> Vec<(OutboxKey, WorkItem, Row)> {
        let lanes = self.reader().lanes().expect("the store can be read");
        let rows: Vec<_> = lanes
            .iter()
            .flat_map(|lane| self.reader().outbox(lane, 0, usize::MAX).expect("the store can be read"))
            .collect();
        rows.into_iter()
            .map(|(key, item)| {
                let row = self.name(&item);
                (key, item, row)
            })
            .collect()
    }

    fn name(&mut self, item: &WorkItem) -> Row {
        let tag = item.work.tag().map_or_else(|| item.work.label(), ToString::to_string);
        let of = item.instance.correlation.to_string();
        if !self.known.contains_key(&item.id) {
            let asked = self.asked.entry((of.clone(), tag.clone())).or_default();
            *asked += 1;
            self.known.insert(item.id, (of, tag, *asked));
        }
        self.known[&item.id].clone()
    }
}

/// An operation, for both.
#[derive(Clone)]
struct Both {
    key: InstanceKey,
    input: Input,
    op: Op,
}

struct Run {
    rng: Rng,
    system: System,
    oracle: Oracle,
    number: usize,
    past: Vec<Both>,
    seen: BTreeSet<String>,
    forgotten: BTreeSet<InstanceKey>,
}

impl Run {
    fn key(&mut self) -> InstanceKey {
        // New instances take the place of old ones, so that there is always one to begin.
        order_key(&tenant(), self.number / 20 + self.rng.usize(..INSTANCES))
    }

    fn event(&mut self) -> Both {
        let key = self.key();
        let kinds = [
            "OrderPlaced",
            "OrderPlaced",
            "StockReserved",
            "StockReserved",
            "StockReleased",
            "StockRejected",
        ];
        let kind = kinds[self.rng.usize(..kinds.len())];
        let id = format!("e{}", self.number);
        let placed = order_placed(&key, &json!({}), self.system.now);
        let event = Event {
            id: EventId::new(id.as_str()).expect("a short word"),
            kind: EventType::new(kind).expect("a short word"),
            ..placed
        };
        Both { key, input: Input::Event(event), op: Op::Event(kind, id) }
    }

    fn control(&mut self) -> Both {
        let key = self.key();
        let (label, action) = match self.rng.u8(..8) {
            0..=2 => ("cancel", Action::Cancel { reason: "a test".to_owned() }),
            3 => ("pause", Action::Pause),
            4 | 5 => ("resume", Action::Resume),
            _ => ("retry", Action::Retry),
        };
        let id = format!("c{}", self.number);
        let at = self.system.now;
        let control = Control {
            id: EventId::new(id.as_str()).expect("a short word"),
            action,
            expected_version: None,
            by: None,
            reason: None,
            trace: None,
            at,
        };
        Both { key, input: Input::Control(control), op: Op::Control(label, id) }
    }

    fn outcome(&mut self) -> Option<Both> {
        let rows: Vec<_> =
            self.system.outbox().into_iter().filter(|(_, item, _)| item.work.tag().is_some()).collect();
        if rows.is_empty() {
            return None;
        }
        let (outbox, item, (_, tag, nth)) = rows[self.rng.usize(..rows.len())].clone();
        let is_effect = item.work.kind() == orlog_model::WorkKind::Effect;
        let failure = Failure { code: "no".to_owned(), message: "no".to_owned() };
        let (verdict, result) = match self.rng.u8(..10) {
            0 => (Verdict::TimedOut { failure }, Result::TimedOut),
            1 | 2 => (Verdict::Failed { event: None, failure, payload: Value::Null }, Result::Failed),
            _ if is_effect => (Verdict::Succeeded { event: None, payload: Value::Null }, Result::Succeeded),
            _ => (Verdict::Accepted, Result::Accepted),
        };
        let at = self.system.now;
        let outcome =
            Outcome { work_id: item.id, outbox, verdict, attempts: 1, at, facts: Vec::new(), trace: None };
        Some(Both { key: item.instance, input: Input::Outcome(outcome), op: Op::Outcome(tag, nth, result) })
    }

    /// An earlier operation again; where it was an outcome, sometimes with the contrary verdict.
    fn repetition(&mut self) -> Option<Both> {
        let recent = self.past.len().saturating_sub(60);
        let mut both = self.past.get(recent + self.rng.usize(..60)).cloned()?;
        if let (Input::Outcome(outcome), Op::Outcome(_, _, result)) = (&mut both.input, &mut both.op)
            && outcome.outbox.lane.kind == orlog_model::WorkKind::Effect
        {
            outcome.verdict = Verdict::Succeeded { event: None, payload: Value::Null };
            *result = Result::Succeeded;
        }
        Some(both)
    }

    fn timers(&self) -> Vec<Both> {
        let due =
            self.system.reader().timers_due(self.system.now, usize::MAX).expect("the store can be read");
        due.into_iter()
            .map(|(key, row)| {
                let fired = TimerFired { name: row.name, token: row.token, due: row.due };
                Both { key, input: Input::Timer(fired), op: Op::Timer(row.token) }
            })
            .collect()
    }

    /// Facts are published, and commands accepted that are answered by an event.
    fn settle_one(&mut self) {
        let silent = |item: &WorkItem| item.work.tag().is_none_or(|tag| tag.as_str().ends_with("reserve"));
        let rows: Vec<_> = self.system.outbox().into_iter().filter(|(_, item, _)| silent(item)).collect();
        if rows.is_empty() {
            return;
        }
        let (key, _, row) = rows[self.rng.usize(..rows.len())].clone();
        self.system.commit(Change::Settle(key));
        self.oracle.settle(&row);
        self.seen.insert("fact settled".to_owned());
    }

    fn give(&mut self, both: Both) {
        let of = both.key.correlation.to_string();
        let late = matches!(&both.op, Op::Outcome(tag, _, Result::Succeeded) if !tag.starts_with("undo"))
            && self.oracle.sagas.get(&of).is_some_and(|saga| saga.status != "running");
        let early = self.oracle.early.get(&of).map_or(0, Vec::len);
        self.oracle.now = self.system.now.millis();
        let told = self.system.take(&both.key, &both.input);
        let foretold = self.oracle.take(&of, &both.op);
        assert_eq!(told, foretold, "operation {}: {:?} for {of}", self.number, both.op);
        let label = match &both.op {
            Op::Event(kind, _) if told == Answer::Applied => (*kind).to_owned(),
            Op::Control(kind, _) if matches!(told, Answer::Applied | Answer::Refused) => (*kind).to_owned(),
            Op::Outcome(_, _, result) if told == Answer::Applied => format!("{result:?}"),
            Op::Event(..) => "event".to_owned(),
            Op::Control(..) => "control".to_owned(),
            Op::Outcome(..) => "outcome".to_owned(),
            Op::Timer(_) => "timer".to_owned(),
        };
        self.seen.insert(format!("{label} {}", format!("{told:?}").to_lowercase()));
        if late && told == Answer::Applied {
            self.seen.insert("late success".to_owned());
        }
        if early > 0 && told == Answer::Applied {
            let what = if self.oracle.sagas.contains_key(&of) { "applied" } else { "dropped" };
            self.seen.insert(format!("early event {what}"));
        }
        self.past.push(both);
    }

    fn step(&mut self) {
        match self.rng.u8(..20) {
            0..=4 => {
                let event = self.event();
                self.give(event);
            }
            5..=9 => {
                if let Some(outcome) = self.outcome() {
                    self.give(outcome);
                }
            }
            10..=14 => {
                let control = self.control();
                self.give(control);
            }
            15 | 16 => {
                if let Some(repetition) = self.repetition() {
                    self.give(repetition);
                }
            }
            17 => {
                let minutes = self.rng.u64(..25);
                self.pass(Duration::from_mins(minutes));
            }
            18 if self.rng.u8(..4) == 0 => {
                // Ids are made of times: an instance begins anew in another moment than the one before it.
                self.pass(Duration::from_hours(1));
                self.forget();
            }
            _ => self.settle_one(),
        }
        self.number += 1;
    }

    fn pass(&mut self, time: Duration) {
        self.system.now = self.system.now.after(time);
        self.timers().into_iter().for_each(|timer| self.give(timer));
    }

    /// Retention asks for all of them; only what is over goes.
    fn forget(&mut self) {
        let first = self.number / 20;
        for key in (first..first + INSTANCES).map(|number| order_key(&tenant(), number)) {
            let reader = self.system.reader();
            let stored = reader.instance(&key).expect("the store can be read");
            let Some(version) = stored.map(|instance| instance.version) else { continue };
            self.system.commit(Change::PurgeInstance { key: key.clone(), version });
            if self.oracle.purge(key.correlation.as_str()) {
                assert_eq!(self.system.reader().history(&key, 0, 9).expect("the store can be read"), []);
                self.seen.insert("forgotten".to_owned());
                // Nothing is forgotten while its inputs could come again.
                self.past.retain(|both| both.key != key);
                self.forgotten.insert(key);
            }
        }
    }

    #[track_caller]
    fn compare(&mut self) {
        let outbox: BTreeSet<Row> = self.system.outbox().into_iter().map(|(_, _, row)| row).collect();
        assert_eq!(outbox, self.oracle.outbox, "the outbox after operation {}", self.number);
        let rows =
            self.system.reader().timers_due(Timestamp::MAX, usize::MAX).expect("the store can be read").len();
        let armed =
            self.oracle.sagas.values().filter(|saga| saga.timer_row).count() + self.oracle.early.len();
        assert_eq!(rows, armed, "timers after operation {}", self.number);
        // Only of these can anything have changed but by a repetition, and that is rare.
        let first = (self.number / 20).saturating_sub(INSTANCES);
        for number in first..first + 3 * INSTANCES {
            let key = order_key(&tenant(), number);
            let of = key.correlation.as_str();
            let reader = self.system.reader();
            let Some(saga) = self.oracle.sagas.get(of) else {
                assert_eq!(
                    reader.instance(&key).expect("the store can be read"),
                    None,
                    "{of} is not forgotten"
                );
                continue;
            };
            if self.forgotten.contains(&key) {
                self.seen.insert("begun anew".to_owned());
            }
            let instance = reader
                .instance(&key)
                .expect("the store can be read")
                .unwrap_or_else(|| panic!("{of} was lost"));
            let told = (instance.status.as_str(), instance.paused, instance.version, instance.timers.len());
            let foretold = (saga.status, saga.paused, saga.version, usize::from(saga.timer.is_some()));
            assert_eq!(told, foretold, "{of} after operation {}", self.number);
            let held = reader.held(&key, usize::MAX).expect("the store can be read").len();
            assert_eq!(held, saga.held.len(), "kept for {of} after operation {}", self.number);
            if saga.status == "stuck" {
                self.seen.insert("stuck".to_owned());
            }
        }
    }

    /// Every version of every instance has its line, or it was only a flag.
    fn compare_histories(&self) {
        for (of, saga) in &self.oracle.sagas {
            let key =
                InstanceKey { correlation: of.parse().expect("a short word"), ..order_key(&tenant(), 0) };
            let history = self.system.reader().history(&key, 0, usize::MAX).expect("the store can be read");
            let versions = history.iter().map(|record| record.version);
            assert!(versions.eq(1..=saga.version), "the history of {of} has gaps");
        }
    }
}

fn run(seed: u64, operations: usize) {
    println!("seed {seed}");
    let home = tempfile::tempdir().expect("a folder can be made");
    let mut run = Run {
        rng: Rng::with_seed(seed),
        system: System::open(home.path(), Timestamp::from_millis(1_700_000_000_000)),
        oracle: Oracle::default(),
        number: 0,
        past: Vec::new(),
        seen: BTreeSet::new(),
        forgotten: BTreeSet::new(),
    };
    let missing = |run: &Run| MUST.into_iter().filter(|must| !run.seen.contains(*must)).collect::<Vec<_>>();
    while run.number < operations || !missing(&run).is_empty() {
        run.step();
        run.compare();
        if run.rng.u16(..200) == 0 {
            run.system.reopen(home.path());
            run.compare();
        }
        assert!(run.number < operations * 20, "never came about: {:?}; seen {:?}", missing(&run), run.seen);
    }
    run.compare_histories();
    println!("{} operations, {} instances, seen {:?}", run.number, run.oracle.sagas.len(), run.seen);
}

#[test]
fn engine_and_store_answer_as_the_oracle_does() {
    run(seed(1), 1500);
}

#[test]
#[ignore = "long; make torture"]
fn engine_and_store_answer_as_the_oracle_does_long() {
    let first = seed(1000);
    (first..first + 100).for_each(|seed| run(seed, 5000));
}
