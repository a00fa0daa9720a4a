//! State that the simulator holds for one instance.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use orlog_engine::BufferedInputRef;
use orlog_model::{
    Commit, DeadLetter, DedupeKey, HistoryEntry, Input, Instance, Name, OutboxKey, Status, Task,
    TaskEventKind, TaskSpec, Timestamp, WorkItem,
};
use uuid::Uuid;

/// Instance: its snapshot, work, tasks, history and dead letters.
#[derive(Clone, Debug, Default)]
pub struct SimulatedInstance {
    /// `None` until the instance starts, while its early inputs are buffered. Shared, because a
    /// proof copies the instance for each of its moves.
    pub(super) instance: Option<Arc<Instance>>,
    /// Last work requested under each tag.
    pub(super) requested: BTreeMap<Name, Arc<RequestedWork>>,
    /// Inputs buffered while the instance is paused or not started, by number.
    pub(super) buffered: BTreeMap<u64, Input>,
    numbers: u64,
    applied: BTreeSet<DedupeKey>,
    history: Vec<HistoryEntry>,
    actions: Vec<RecordedAction>,
    dead_letters: Vec<DeadLetter>,
}

/// Requested work.
#[derive(Clone, Debug, PartialEq)]
pub struct RequestedWork {
    /// Work item.
    pub item: WorkItem,
    /// Key in the outbox.
    pub outbox: OutboxKey,
    /// Whether the result is known.
    pub completed: bool,
}

/// Recorded action of an instance.
#[derive(Clone, Debug, PartialEq)]
pub enum RecordedAction {
    /// It requested work, emitted a fact, or started or cancelled a child saga.
    Work(WorkItem),
    /// One of its timers fired.
    TimerFired(Name, Timestamp),
    /// It opened a task.
    Task(TaskSpec),
}

impl SimulatedInstance {
    /// Returns the snapshot after the instance has started.
    #[must_use]
    pub fn instance(&self) -> Option<&Instance> {
        self.instance.as_deref()
    }

    /// Returns the status after the instance has started.
    #[must_use]
    pub fn status(&self) -> Option<Status> {
        self.instance.as_ref().map(|instance| instance.status)
    }

    /// Returns the last work requested under each tag, completed or not.
    pub fn requested_work(&self) -> impl Iterator<Item = (&Name, &RequestedWork)> {
        self.requested
            .iter()
            .map(|(tag, requested)| (tag, &**requested))
    }

    /// Returns the last work requested under a tag.
    #[must_use]
    pub fn requested_work_by_tag(&self, tag: &str) -> Option<&RequestedWork> {
        self.requested
            .iter()
            .find(|(name, _)| name.as_str() == tag)
            .map(|(_, requested)| &**requested)
    }

    /// Returns the open tasks.
    pub fn tasks(&self) -> impl Iterator<Item = &Task> {
        self.instance()
            .into_iter()
            .flat_map(|instance| &instance.tasks)
    }

    /// Returns the history.
    #[must_use]
    pub fn history(&self) -> &[HistoryEntry] {
        &self.history
    }

    /// Returns the recorded actions in order.
    #[must_use]
    pub fn actions(&self) -> &[RecordedAction] {
        &self.actions
    }

    /// Returns the dead-lettered inputs.
    #[must_use]
    pub fn dead_letters(&self) -> &[DeadLetter] {
        &self.dead_letters
    }

    /// Returns the buffered inputs in their order.
    pub(crate) fn buffered_inputs(&self) -> impl Iterator<Item = &Input> {
        self.buffered.values()
    }

    /// Returns whether the dedupe key of this input exists.
    pub(super) fn is_duplicate(&self, input: &Input) -> bool {
        input
            .dedupe_key()
            .is_some_and(|key| self.applied.contains(&key))
    }

    /// Returns the inputs buffered for an instance that has not started.
    pub(super) fn buffered(&self) -> Vec<BufferedInputRef> {
        let mut early_inputs = Vec::new();
        for (number, input) in &self.buffered {
            // Inputs of a paused instance are buffered too, but do not expire.
            if let Input::Early(early) = input {
                early_inputs.push(BufferedInputRef {
                    number: *number,
                    key: early.input.identity(),
                    expires_at: early.expires_at,
                });
            }
        }
        early_inputs
    }

    /// Marks the result of this work as known.
    pub(super) fn complete(&mut self, work_id: Uuid) {
        self.requested
            .values_mut()
            .filter(|requested| requested.item.id == work_id)
            .for_each(|requested| Arc::make_mut(requested).completed = true);
    }

    /// Applies the part of a commit that concerns the instance itself; its work and timers are
    /// applied elsewhere.
    pub(super) fn apply(&mut self, input: &Input, commit: Commit, records_history: bool) {
        if let Some(completed) = &commit.settles {
            for requested in self.requested.values_mut() {
                if requested.outbox == *completed {
                    Arc::make_mut(requested).completed = true;
                }
            }
        }

        self.buffered
            .retain(|number, _| !commit.unbuffer.contains(number));

        if let Some(input) = commit.buffer.map(|input| *input) {
            self.numbers += 1;
            self.buffered.insert(self.numbers, input);
        }

        self.applied.extend(commit.dedupe_key);

        // A stale timer causes no transition, and thus no entry in the history.
        if let (Input::Timer(fired), Some(_), true) = (input, &commit.history, records_history) {
            self.actions
                .push(RecordedAction::TimerFired(fired.name.clone(), fired.due));
        }

        if records_history {
            let opened = commit
                .tasks
                .into_iter()
                .filter(|task| task.event.kind == TaskEventKind::Opened);
            self.actions
                .extend(opened.map(|task| RecordedAction::Task(task.row.task.spec)));
            self.history.extend(commit.history);
            self.dead_letters
                .extend(commit.dead_letter.map(|dead_letter| *dead_letter));
        }

        // A commit without a snapshot only buffers, cleans up or dead-letters.
        if commit.instance.is_some() {
            self.instance = commit.instance;
        }
    }

    /// Records work; only the last item of each tag remains available for responses.
    pub(super) fn record_work(&mut self, requested: RequestedWork, records_history: bool) {
        if records_history {
            self.actions
                .push(RecordedAction::Work(requested.item.clone()));
        }
        // A repeated request replaces the earlier one, as in the pending work of the engine.
        if let Some(tag) = requested.item.work.tag().cloned() {
            self.requested.insert(tag, Arc::new(requested));
        }
    }

    /// Deletes all data of an ended instance except the snapshot.
    pub(super) fn clear(&mut self) {
        self.requested = BTreeMap::new();
        self.applied = BTreeSet::new();
    }
}
