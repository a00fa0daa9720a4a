//! What the lab knows of one instance.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use orlog_model::{
    Commit, DeadLetter, EventId, Input, Instance, InstanceKey, Name, OutboxKey, Record, Status, TaskForm,
    Timestamp, WorkItem,
};
use serde_json::Value;

/// One instance: its snapshot and everything around it.
#[derive(Clone, Debug, Default)]
pub struct Entry {
    /// `None` until it begins, while inputs are kept for it.
    pub(super) instance: Option<Instance>,
    /// The last work asked for under each tag.
    pub(super) asked: BTreeMap<Name, Asked>,
    pub(super) tasks: BTreeMap<Name, TaskForm>,
    pub(super) kept: VecDeque<Input>,
    applied: BTreeSet<EventId>,
    history: Vec<Record>,
    did: Vec<Did>,
    dead_letters: Vec<DeadLetter>,
    /// Who began it, and the work that its end answers.
    pub(super) parent: Option<(InstanceKey, Asked)>,
    /// The data of its last fact.
    pub(super) last_fact: Option<Value>,
}

/// Work that was asked for.
#[derive(Clone, Debug, PartialEq)]
pub struct Asked {
    /// What.
    pub item: WorkItem,
    /// Its place in the outbox.
    pub outbox: OutboxKey,
    /// Its outcome is known.
    pub settled: bool,
}

/// What an instance did, in order.
#[derive(Clone, Debug, PartialEq)]
pub enum Did {
    /// It asked for work, told a fact, began or stopped another saga.
    Work(WorkItem),
    /// A timer of it fired.
    Fired(Name, Timestamp),
    /// It opened a task.
    Task(TaskForm),
}

impl Entry {
    /// Its snapshot, once it has begun.
    #[must_use]
    pub fn instance(&self) -> Option<&Instance> {
        self.instance.as_ref()
    }

    /// Where it stands, once it has begun.
    #[must_use]
    pub fn status(&self) -> Option<Status> {
        self.instance.as_ref().map(|instance| instance.status)
    }

    /// The last work asked for under each tag, settled or not.
    pub fn asked(&self) -> impl Iterator<Item = (&Name, &Asked)> {
        self.asked.iter()
    }

    /// The last work asked for under a tag.
    #[must_use]
    pub fn asked_as(&self, tag: &str) -> Option<&Asked> {
        self.asked.iter().find(|(name, _)| name.as_str() == tag).map(|(_, asked)| asked)
    }

    /// Tasks that are open.
    pub fn tasks(&self) -> impl Iterator<Item = &TaskForm> {
        self.tasks.values()
    }

    /// Its history.
    #[must_use]
    pub fn history(&self) -> &[Record] {
        &self.history
    }

    /// What it did, in order.
    #[must_use]
    pub fn did(&self) -> &[Did] {
        &self.did
    }

    /// Inputs that were set aside.
    #[must_use]
    pub fn dead_letters(&self) -> &[DeadLetter] {
        &self.dead_letters
    }

    /// Whether the marker of this input is there.
    pub(super) fn has_applied(&self, input: &Input) -> bool {
        match input {
            Input::Event(event) => self.applied.contains(&event.id),
            Input::Control(control) => self.applied.contains(&control.id),
            Input::Outcome(_) | Input::Timer(_) => false,
        }
    }

    /// Takes what a commit says about the instance itself; its work and its timers are taken elsewhere.
    pub(super) fn take(&mut self, input: &Input, commit: Commit, keeps_history: bool) {
        if let Some(settled) = &commit.settles {
            self.asked.values_mut().filter(|asked| asked.outbox == *settled).for_each(|a| a.settled = true);
        }
        self.kept.extend(commit.hold);
        self.applied.extend(commit.applied);
        if let (Input::Timer(fired), Some(_), true) = (input, &commit.history, keeps_history) {
            self.did.push(Did::Fired(fired.name.clone(), fired.due));
        }
        if keeps_history {
            self.history.extend(commit.history);
            self.dead_letters.extend(commit.dead_letter.map(|letter| *letter));
        }
        if commit.instance.is_some() {
            self.instance = commit.instance;
        }
    }

    /// Notes work; only the last of each tag is kept for answers.
    pub(super) fn ask(&mut self, asked: Asked, keeps_history: bool) {
        if keeps_history {
            self.did.push(Did::Work(asked.item.clone()));
        }
        if let Some(tag) = asked.item.work.tag().cloned() {
            self.asked.insert(tag, asked);
        }
    }

    /// Of an instance that has ended only the snapshot is needed.
    pub(super) fn forget(&mut self) {
        self.asked = BTreeMap::new();
        self.applied = BTreeSet::new();
        self.last_fact = None;
    }
}
