//! A runner in memory: instances, their timers and their open work, moved by `orlog_engine::decide`.
//!
//! It promises what a runner promises, but for durability: an input is applied once, inputs of an instance in order, timers in
//! the order of their due times, inputs of a paused instance kept. Facts reach the other sagas that take them; a saga that is
//! begun runs here when its definition is here, otherwise somebody must answer for it. Time stands still until it is moved.

mod consequences;
mod instance;
mod programs;
mod timers;

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use orlog_engine::{Decision, Refusal, Subject, decide};
use orlog_model::{
    Commit, DeadLetterReason, Event, Input, Instance, InstanceKey, SagaName, TenantId, TimerFired, Timestamp,
};

pub use instance::{Asked, Did, Entry};
pub use programs::Programs;
use timers::Timers;

/// The node that decides, in histories.
const NODE: &str = "lab";
/// Inputs that one input may lead to, those of other sagas included; sagas that begin one another for ever stop here.
const MAX_CONSEQUENCES: usize = 10_000;

/// Why a second delivery is ignored.
pub(crate) const DUPLICATE: &str = "it was applied before";

/// Sees every decision, before it is applied.
pub trait Observer {
    /// An input was decided.
    fn decided(&mut self, seen: &Seen<'_>);
}

/// Nobody looks.
impl Observer for () {
    fn decided(&mut self, _: &Seen<'_>) {}
}

/// A decision and what it was made of.
pub struct Seen<'a> {
    /// Whom the input is about.
    pub subject: Subject<'a>,
    /// The input.
    pub input: &'a Input,
    /// What is to be done about it.
    pub decision: &'a Decision,
}

/// What became of an input.
#[derive(Clone, Debug, PartialEq)]
pub enum Taken {
    /// The instance changed; the note of its history.
    Applied(String),
    /// It is kept until the instance is resumed, or until it begins.
    Kept,
    /// Nothing changed, and why.
    Ignored(String),
    /// An instruction that the status forbids.
    Refused(Refusal),
    /// It was set aside as a dead letter.
    SetAside(DeadLetterReason, String),
}

/// The runner in memory.
#[derive(Clone)]
pub struct Lab {
    programs: Arc<Programs>,
    tenant: TenantId,
    now: Timestamp,
    entries: BTreeMap<InstanceKey, Entry>,
    timers: Timers,
    /// Positions in the outbox.
    sequence: u64,
    /// What inputs led to and is not taken yet.
    queue: VecDeque<Consequence>,
    keeps_history: bool,
}

#[derive(Clone)]
struct Consequence {
    key: InstanceKey,
    input: Input,
    /// It was kept, so its marker is there already.
    again: bool,
}

impl Lab {
    /// An empty one, at that time.
    #[must_use]
    pub fn new(programs: Arc<Programs>, now: Timestamp) -> Self {
        Self {
            programs,
            tenant: TenantId::default_tenant(),
            now,
            entries: BTreeMap::new(),
            timers: Timers::default(),
            sequence: 0,
            queue: VecDeque::new(),
            keeps_history: true,
        }
    }

    /// Keeps neither histories nor what was asked in the past, so that memory does not grow with the number of inputs.
    #[must_use]
    pub fn forgetful(self) -> Self {
        Self { keeps_history: false, ..self }
    }

    /// The present.
    #[must_use]
    pub fn now(&self) -> Timestamp {
        self.now
    }

    /// Whose instances these are.
    #[must_use]
    pub fn tenant(&self) -> &TenantId {
        &self.tenant
    }

    /// The definitions.
    #[must_use]
    pub fn programs(&self) -> &Programs {
        &self.programs
    }

    /// An instance, with everything about it.
    #[must_use]
    pub fn entry(&self, key: &InstanceKey) -> Option<&Entry> {
        self.entries.get(key)
    }

    /// All instances, in the order of saga and correlation.
    pub fn entries(&self) -> impl Iterator<Item = (&InstanceKey, &Entry)> {
        self.entries.iter()
    }

    /// The snapshot of an instance that has begun.
    #[must_use]
    pub fn instance(&self, key: &InstanceKey) -> Option<&Instance> {
        self.entries.get(key)?.instance.as_ref()
    }

    /// The key of an instance here.
    #[must_use]
    pub fn key(&self, saga: &SagaName, correlation: orlog_model::CorrelationId) -> InstanceKey {
        InstanceKey { tenant: self.tenant.clone(), saga: saga.clone(), correlation }
    }

    /// Brings an event to the instances it is for.
    ///
    /// The first result is that of the first saga by name; none means that no saga takes such an event.
    pub fn publish(
        &mut self,
        event: &Event,
        observer: &mut dyn Observer,
    ) -> Vec<Result<(InstanceKey, Taken), (SagaName, String)>> {
        let routes = self.programs.route(event);
        let input = Input::Event(event.clone());
        let take = |route: Result<InstanceKey, (SagaName, String)>| {
            route.map(|key| {
                let taken = self.take(&key, &input, observer);
                (key, taken)
            })
        };
        routes.into_iter().map(take).collect()
    }

    /// Shows an instance an input, and then whatever follows from it at once.
    pub fn take(&mut self, key: &InstanceKey, input: &Input, observer: &mut dyn Observer) -> Taken {
        let taken = self.decide(key, input, false, observer);
        self.follow(observer);
        taken
    }

    fn follow(&mut self, observer: &mut dyn Observer) {
        let mut left = MAX_CONSEQUENCES;
        while let Some(Consequence { key, input, again }) = self.queue.pop_front() {
            if left == 0 {
                self.queue.clear();
                return;
            }
            left -= 1;
            self.decide(&key, &input, again, observer);
        }
    }

    /// When the next timer falls due.
    #[must_use]
    pub fn next_due(&self) -> Option<Timestamp> {
        self.timers.first().map(|timer| timer.due)
    }

    /// Moves the time; timers that fall due on the way fire in order, each at its own time. How many fired.
    pub fn advance_to(&mut self, time: Timestamp, observer: &mut dyn Observer) -> usize {
        let mut fired = 0;
        while let Some(timer) = self.timers.take_due(time) {
            self.now = self.now.max(timer.due);
            let input = Input::Timer(TimerFired { name: timer.name, token: timer.token, due: timer.due });
            self.take(&timer.key, &input, observer);
            fired += 1;
        }
        self.now = self.now.max(time);
        fired
    }

    fn decide(
        &mut self,
        key: &InstanceKey,
        input: &Input,
        again: bool,
        observer: &mut dyn Observer,
    ) -> Taken {
        let Some(program) = self.programs.of(&key.saga) else {
            return Taken::Ignored(format!("there is no definition {}", key.saga));
        };
        if !again && self.entries.get(key).is_some_and(|entry| entry.has_applied(input)) {
            return Taken::Ignored(DUPLICATE.to_owned());
        }
        let entry = self.entries.get_mut(key);
        let (before, early) =
            entry.map_or_else(Default::default, |entry| (entry.instance.take(), entry.early()));
        let subject = Subject {
            key,
            instance: before.as_ref(),
            program: program.as_ref(),
            now: self.now,
            node: NODE,
            early: &early,
        };
        let decision = decide(&subject, input);
        observer.decided(&Seen { subject, input, decision: &decision });
        self.carry_out(key, before, input, decision)
    }

    fn carry_out(
        &mut self,
        key: &InstanceKey,
        before: Option<Instance>,
        input: &Input,
        decision: Decision,
    ) -> Taken {
        let (commit, taken) = match decision {
            Decision::Commit(commit) => {
                let taken = meaning(&commit);
                (Some(commit), taken)
            }
            Decision::Ignore { why, clear } => (clear, Taken::Ignored(why.into_owned())),
            Decision::Refuse(refusal) => (None, Taken::Refused(refusal)),
        };
        match commit {
            Some(commit) => self.apply(key, before, input, *commit),
            None => {
                if let Some(entry) = self.entries.get_mut(key) {
                    entry.instance = before;
                }
            }
        }
        taken
    }

    /// Puts a commit into the tables and notes what follows from it.
    fn apply(&mut self, key: &InstanceKey, before: Option<Instance>, input: &Input, mut commit: Commit) {
        for timer in commit.disarm.drain(..) {
            self.timers.disarm(key, timer);
        }
        for timer in commit.arm.drain(..) {
            self.timers.arm(key, timer);
        }
        let entry = self.entries.entry(key.clone()).or_default();
        let was = Was::of(before.as_ref());
        entry.instance = before;
        let work = std::mem::take(&mut commit.work);
        entry.take(input, commit, self.keeps_history);
        for item in work {
            self.sequence += 1;
            self.ask(key, item);
        }
        self.consequences_of(key, input, &was);
    }
}

/// How an instance stood before a commit, as far as something follows from the difference.
struct Was {
    existed: bool,
    paused: bool,
    ended: bool,
}

impl Was {
    fn of(before: Option<&Instance>) -> Self {
        Self {
            existed: before.is_some(),
            paused: before.is_some_and(|instance| instance.paused),
            ended: before.is_some_and(|instance| instance.status.is_final()),
        }
    }
}

fn meaning(commit: &Commit) -> Taken {
    match (&commit.dead_letter, &commit.history) {
        (Some(letter), _) => Taken::SetAside(letter.reason, letter.message.clone()),
        (None, Some(record)) => Taken::Applied(record.note.clone()),
        (None, None) => Taken::Kept,
    }
}
