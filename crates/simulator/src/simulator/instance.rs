//! What the lab knows of one instance.

use std::collections::{BTreeMap, BTreeSet};

use orlog_engine::Kept;
use orlog_model::{
    Commit, DeadLetter, EventId, Input, Instance, Name, OutboxKey, Record, Status, Task, TaskForm, TaskStep,
    Timestamp, WorkItem,
};
use uuid::Uuid;

/// One instance: its snapshot and everything around it.
#[derive(Clone, Debug, Default)]
pub struct Entry {
    /// `None` until it begins, while inputs are kept for it.
    pub(super) instance: Option<Instance>,
    /// The last work asked for under each tag.
    pub(super) asked: BTreeMap<Name, Asked>,
    /// Inputs kept while it is paused, or until it begins, by number.
    pub(super) kept: BTreeMap<u64, Input>,
    numbers: u64,
    applied: BTreeSet<EventId>,
    history: Vec<Record>,
    did: Vec<Did>,
    dead_letters: Vec<DeadLetter>,
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
#[expect(clippy::large_enum_variant, reason = "nearly all of them are work")]
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
    pub fn tasks(&self) -> impl Iterator<Item = &Task> {
        self.instance.iter().flat_map(|instance| &instance.tasks)
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
            Input::Workflow(command) => self.applied.contains(&command.id),
            Input::Outcome(_) | Input::Timer(_) | Input::Early(_) => false,
        }
    }

    /// What is kept for an instance that has not begun.
    pub(super) fn early(&self) -> Vec<Kept> {
        let early = self.kept.iter().filter_map(|(number, input)| match input {
            Input::Early(early) => Some(Kept { number: *number, id: early.input.id(), until: early.until }),
            Input::Event(_)
            | Input::Outcome(_)
            | Input::Timer(_)
            | Input::Control(_)
            | Input::Workflow(_) => None,
        });
        early.collect()
    }

    /// The outcome of this work is known.
    pub(super) fn settle(&mut self, work_id: Uuid) {
        self.asked
            .values_mut()
            .filter(|asked| asked.item.id == work_id)
            .for_each(|asked| asked.settled = true);
    }

    /// Takes what a commit says about the instance itself; its work and its timers are taken elsewhere.
    pub(super) fn take(&mut self, input: &Input, commit: Commit, keeps_history: bool) {
        if let Some(settled) = &commit.settles {
            self.asked.values_mut().filter(|asked| asked.outbox == *settled).for_each(|a| a.settled = true);
        }
        self.kept.retain(|number, _| !commit.release.contains(number));
        if let Some(input) = commit.hold {
            self.numbers += 1;
            self.kept.insert(self.numbers, input);
        }
        self.applied.extend(commit.applied);
        if let (Input::Timer(fired), Some(_), true) = (input, &commit.history, keeps_history) {
            self.did.push(Did::Fired(fired.name.clone(), fired.due));
        }
        if keeps_history {
            let opened = commit.tasks.into_iter().filter(|task| task.event.step == TaskStep::Opened);
            self.did.extend(opened.map(|task| Did::Task(task.row.task.form)));
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
    }
}
