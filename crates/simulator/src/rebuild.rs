//! One instance, rebuilt from the inputs that a stream still has: what it would stand as had it taken just these.
//!
//! The ids of work depend on the input that led to it, to the millisecond. So that what is under way finds its way back, and what
//! is sent again is sent under its old name, ids are those of the history where the two agree: the same version, after the same
//! input, with the same work in the same place.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use orlog_engine::Decision;
use orlog_model::{
    Commit, DeadLetter, EventId, Input, Instance, InstanceKey, Outcome, Record, TaskEntry, Timestamp,
    Verdict, Work, WorkItem, WorkflowCommand, WorkflowOrder,
};
use orlog_program::Program;
use uuid::Uuid;

use crate::simulator::{Lab, Observer, Programs, Seen};

/// What an instance is rebuilt from.
pub struct Remains<'a> {
    /// The program it is to go by.
    pub program: Arc<dyn Program>,
    /// Which instance.
    pub key: &'a InstanceKey,
    /// Its inputs and when each came, in order.
    pub inputs: &'a [(Timestamp, Input)],
    /// What became of work, by the id that it had.
    pub results: &'a BTreeMap<Uuid, Told>,
    /// The history of the instance that stands there; empty where none does.
    pub history: &'a [Record],
}

/// What became of a piece of work.
#[derive(Clone, Debug, PartialEq)]
pub struct Told {
    /// When that was known.
    pub at: Timestamp,
    /// What.
    pub verdict: Verdict,
    /// After how many attempts.
    pub attempts: u32,
}

/// How time passes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pace {
    /// As it did: each input comes at its time, and timers fire in between, up to the present.
    AsItWas(Timestamp),
    /// Everything comes in this moment, as after an outage: no timer fires.
    AtOnce(Timestamp),
}

/// A rebuilt instance.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Rebuilt {
    /// Its snapshot; `None` where none of the inputs began it.
    pub instance: Option<Instance>,
    /// Its history.
    pub history: Vec<Record>,
    /// Ids of the inputs that it applied.
    pub applied: Vec<EventId>,
    /// What happened to its tasks.
    pub tasks: Vec<TaskEntry>,
    /// What it asked for and has no outcome, in order.
    pub work: Vec<WorkItem>,
    /// Inputs that it could not apply.
    pub letters: Vec<DeadLetter>,
}

/// Rebuilds an instance.
#[must_use]
pub fn rebuild(remains: &Remains<'_>, pace: Pace) -> Rebuilt {
    let (Pace::AsItWas(now) | Pace::AtOnce(now)) = pace;
    let begin = match pace {
        Pace::AsItWas(now) => remains.inputs.first().map_or(now, |(at, _)| *at),
        Pace::AtOnce(now) => now,
    };
    let programs = Programs::new([Arc::clone(&remains.program)]);
    let witness = Witness::of(remains);
    let lab = Lab::new(Arc::new(programs), begin);
    let mut run = Run { remains, lab, witness, told: BTreeSet::new(), pace };
    for (at, input) in remains.inputs {
        run.tell_until(*at);
        run.pass(*at);
        let input = run.witness.renamed(input);
        run.lab.take(remains.key, &input, &mut run.witness);
    }
    run.tell_until(now);
    run.pass(now);
    run.tell_until(now);
    run.end()
}

struct Run<'a> {
    remains: &'a Remains<'a>,
    lab: Lab,
    witness: Witness<'a>,
    /// Work whose outcome was told.
    told: BTreeSet<Uuid>,
    pace: Pace,
}

impl Run<'_> {
    fn pass(&mut self, until: Timestamp) {
        if matches!(self.pace, Pace::AsItWas(_)) {
            self.lab.advance_to(until, &mut self.witness);
        }
    }

    /// Tells the outcomes that were known by then, in the order in which they came to be known.
    fn tell_until(&mut self, until: Timestamp) {
        while let Some(outcome) = self.next_outcome(until) {
            self.pass(outcome.at);
            self.told.insert(outcome.work_id);
            self.lab.take(self.remains.key, &Input::Outcome(outcome), &mut self.witness);
        }
    }

    fn next_outcome(&self, until: Timestamp) -> Option<Outcome> {
        let asked = self.lab.entry(self.remains.key)?.asked().map(|(_, asked)| asked);
        let outcome = |asked: &crate::Asked| {
            let known = self.remains.results.get(&self.witness.old_id(asked.item.id))?;
            Some(Outcome {
                work_id: asked.item.id,
                outbox: asked.outbox.clone(),
                verdict: known.verdict.clone(),
                attempts: known.attempts,
                at: known.at,
                // Told already, when the outcome was taken the first time.
                facts: Vec::new(),
                trace: None,
            })
        };
        let untold = asked.filter(|asked| !asked.settled && !self.told.contains(&asked.item.id));
        let known = untold.filter_map(outcome).filter(|outcome| outcome.at <= until);
        known.min_by_key(|outcome| outcome.at)
    }

    fn end(self) -> Rebuilt {
        let Self { remains, lab, witness, told, .. } = self;
        let instance = lab.instance(remains.key).cloned();
        let open: BTreeSet<Uuid> =
            instance.iter().flat_map(|it| it.open.iter().map(|open| open.id)).collect();
        let is_wanted = |item: &WorkItem| match item.work {
            Work::Effect(_) | Work::Start(_) => open.contains(&item.id) && !told.contains(&item.id),
            Work::Command(_) | Work::Fact(_) | Work::Stop(_) | Work::End(_) => true,
        };
        let Witness { ids, mut seen, .. } = witness;
        seen.work.retain(is_wanted);
        seen.instance = instance;
        Names { ids }.put_back(seen)
    }
}

/// Sees what is decided.
struct Witness<'a> {
    key: &'a InstanceKey,
    old: &'a [Record],
    /// From an id that the rebuilt instance made to the one in the history.
    ids: BTreeMap<Uuid, Uuid>,
    seen: Rebuilt,
}

impl<'a> Witness<'a> {
    fn of(remains: &Remains<'a>) -> Self {
        Self { key: remains.key, old: remains.history, ids: BTreeMap::new(), seen: Rebuilt::default() }
    }

    fn old_id(&self, id: Uuid) -> Uuid {
        self.ids.get(&id).copied().unwrap_or(id)
    }

    /// The end of another saga names the work by its old id.
    fn renamed(&self, input: &Input) -> Input {
        let mut input = input.clone();
        if let Input::Workflow(WorkflowCommand { order: WorkflowOrder::Ended(ended), .. }) = &mut input
            && let Some((new, _)) = self.ids.iter().find(|(_, old)| **old == ended.work_id)
        {
            ended.work_id = *new;
        }
        input
    }

    fn note(&mut self, commit: &Commit) {
        if let Some(record) = &commit.history {
            if let Some(old) = self.old.iter().find(|old| old.version == record.version)
                && self.is_same_cause(record, old)
            {
                let pairs = record.work.iter().zip(&old.work).filter(|((new, _), (old, _))| new == old);
                self.ids.extend(pairs.map(|((_, new), (_, old))| (*new, *old)));
            }
            self.seen.history.push(record.clone());
        }
        self.seen.applied.extend(commit.applied.clone());
        self.seen.tasks.extend(commit.tasks.iter().cloned());
        self.seen.work.extend(commit.work.iter().cloned());
        self.seen.letters.extend(commit.dead_letter.as_deref().cloned());
    }

    /// Outcomes are called by the work they end, timers by when they fired.
    fn is_same_cause(&self, new: &Record, old: &Record) -> bool {
        let names = Names { ids: self.ids.clone() };
        let is_timer = |record: &Record| record.input.as_str().starts_with(TIMER);
        names.input(&new.input) == old.input || is_timer(new) && is_timer(old) && new.label == old.label
    }
}

impl Observer for Witness<'_> {
    fn decided(&mut self, seen: &Seen<'_>) {
        if let (true, Decision::Commit(commit)) = (seen.subject.key == self.key, seen.decision) {
            self.note(commit);
        }
    }
}

const OUTCOME: &str = "outcome:";
const TIMER: &str = "timer:";

/// Puts the old ids in the place of the new ones.
struct Names {
    ids: BTreeMap<Uuid, Uuid>,
}

impl Names {
    fn put_back(&self, mut rebuilt: Rebuilt) -> Rebuilt {
        if let Some(instance) = &mut rebuilt.instance {
            instance.open.iter_mut().for_each(|open| open.id = self.id(open.id));
            instance.last_input = self.input(&instance.last_input);
        }
        for record in &mut rebuilt.history {
            record.input = self.input(&record.input);
            record.work.iter_mut().for_each(|(_, id)| *id = self.id(*id));
        }
        for item in &mut rebuilt.work {
            item.id = self.id(item.id);
            item.causation = self.input(&item.causation);
        }
        rebuilt
    }

    fn id(&self, id: Uuid) -> Uuid {
        self.ids.get(&id).copied().unwrap_or(id)
    }

    fn input(&self, id: &EventId) -> EventId {
        let work = id.as_str().strip_prefix(OUTCOME).and_then(|work| work.parse().ok());
        let renamed = work.map(|work: Uuid| format!("{OUTCOME}{}", self.id(work)));
        renamed.and_then(|text| EventId::new(text).ok()).unwrap_or_else(|| id.clone())
    }
}
