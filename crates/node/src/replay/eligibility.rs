//! Eligibility of an instance for replacement by its rebuilt state.

use std::collections::BTreeSet;

use orlog_model::{HistoryEntry, Instance, Task, Work, WorkKind};
use orlog_simulator::rebuild::{RebuildInput, RebuiltInstance};
use uuid::Uuid;

use super::request::{ReplayRequest, ReplayResult, ReplayWorkMode};

/// Instance with all data for the eligibility check.
pub(crate) struct ReplayCandidate<'a> {
    pub(crate) order: &'a ReplayRequest,
    pub(crate) work: ReplayWorkMode,
    pub(crate) old: Option<&'a Instance>,
    /// The instance exists, but its snapshot cannot be read.
    pub(crate) is_unreadable: bool,
    pub(crate) history: &'a [HistoryEntry],
    pub(crate) rebuild_input: &'a RebuildInput<'a>,
}

impl ReplayCandidate<'_> {
    pub(crate) fn evaluate(&self, rebuilt: &RebuiltInstance) -> ReplayResult {
        if let Some(dead_letter) = rebuilt.dead_letters.first() {
            return ReplayResult::Skipped(format!(
                "an input cannot be applied: {}",
                dead_letter.message
            ));
        }

        let Some(new) = &rebuilt.instance else {
            return ReplayResult::Skipped("no start event since then".to_owned());
        };
        // Of an instance whose snapshot cannot be read, the history decides about the replacement.
        let Some(old) = self.old else {
            return match self.unrecorded(rebuilt) {
                Some(reason) if self.is_unreadable => ReplayResult::Skipped(reason),
                _ if self.is_unreadable => ReplayResult::Replaced,
                _ => ReplayResult::Created,
            };
        };

        if is_same(old, new) {
            return ReplayResult::Unchanged;
        }

        match self.obstacle(old, new, rebuilt) {
            Some(reason) => ReplayResult::Skipped(reason),
            None => ReplayResult::Replaced,
        }
    }

    fn obstacle(
        &self,
        old: &Instance,
        new: &Instance,
        rebuilt: &RebuiltInstance,
    ) -> Option<String> {
        // Its first inputs are before the range, so that a rebuild would start in the middle.
        if old.created_at < self.order.from {
            return Some(format!("it started earlier, at {}", old.created_at));
        }
        if old.paused {
            return Some("it is paused; resume it first".to_owned());
        }

        if let Some(reason) = self.unrecorded(rebuilt) {
            return Some(reason);
        }
        if self.work == ReplayWorkMode::Emit
            && let Some(HistoryEntry {
                input_label: label,
                at,
                ..
            }) = self.history.iter().find(|record| is_timer(record))
        {
            return Some(format!(
                "the timer {label} fired at {at}; it would not fire in an immediate replay"
            ));
        }

        if tasks(old) != tasks(new) {
            return Some("the replay would wait for another human task".to_owned());
        }

        self.missing_executor(old, new)
    }

    /// Finds an applied input that the bus does not store, or may not store, or that the replay
    /// would not apply.
    fn unrecorded(&self, rebuilt: &RebuiltInstance) -> Option<String> {
        let [first, ..] = self.history else {
            return Some("it has no history".to_owned());
        };

        // A replay can raise the version of the only entry.
        let starts_with_same_input = rebuilt
            .history
            .first()
            .is_some_and(|new| new.input_id == first.input_id);
        if first.version > 1 && !starts_with_same_input {
            let version = first.version;
            return Some(format!(
                "its history begins at version {version}; a replay would begin with a run before it"
            ));
        }

        if let Some(HistoryEntry {
            input_label: label,
            at,
            ..
        }) = self
            .history
            .iter()
            .find(|record| !self.is_on_the_bus(record))
        {
            return Some(format!(
                "{label} at {at} was not on the bus; a replay would revert it"
            ));
        }

        // The conditions of a signal concern the versions and the waits of the instance before an
        // earlier replay.
        self.history.iter().find_map(
            |HistoryEntry {
                 input_id,
                 input_label: label,
                 at,
                 ..
             }| {
                let (_, reason) = rebuilt.rejected.iter().find(|(id, _)| id == input_id)?;
                Some(format!("the replay would reject {label} of {at}: {reason}"))
            },
        )
    }

    /// Finds work without a result that has no outbox item and is not dispatched.
    fn missing_executor(&self, old: &Instance, new: &Instance) -> Option<String> {
        if self.work == ReplayWorkMode::Emit {
            return None;
        }

        let known: BTreeSet<Uuid> = old.pending_work.iter().map(|open| open.id).collect();
        // Only work of these kinds has a result. Known work is in the outbox or at its provider, so
        // its result arrives.
        let waits = new.pending_work.iter().find(|open| {
            matches!(open.kind, WorkKind::Effect | WorkKind::Saga) && !known.contains(&open.id)
        });

        waits.map(|open| {
            format!(
                "it would wait for {}, which is not executed while work is suppressed",
                open.tag
            )
        })
    }

    /// Returns whether the replay reads or creates the input of this transition.
    fn is_on_the_bus(&self, record: &HistoryEntry) -> bool {
        if let Some(work) = result_of(record) {
            return self.rebuild_input.results.contains_key(&work);
        }

        // The rebuild fires timers itself.
        is_timer(record)
            || self
                .rebuild_input
                .inputs
                .iter()
                .any(|(_, input)| input.id() == record.input_id)
    }
}

/// Returns whether both states are equal except for times and versions.
fn is_same(old: &Instance, new: &Instance) -> bool {
    let open = |instance: &Instance| -> BTreeSet<Uuid> {
        instance.pending_work.iter().map(|open| open.id).collect()
    };
    old.definition.hash == new.definition.hash
        && (old.status, &old.state) == (new.status, &new.state)
        && open(old) == open(new)
}

/// Returns the work whose result the transition applied.
pub(crate) fn result_of(record: &HistoryEntry) -> Option<Uuid> {
    record
        .input_id
        .as_str()
        .strip_prefix("outcome:")?
        .parse()
        .ok()
}

fn is_timer(record: &HistoryEntry) -> bool {
    record.input_id.as_str().starts_with("timer:")
}

fn tasks(instance: &Instance) -> BTreeSet<Uuid> {
    instance.tasks.iter().map(|Task { id, .. }| *id).collect()
}

/// Returns whether the work produces a result.
pub(crate) fn has_outcome(work: &Work) -> bool {
    match work {
        Work::Effect(_) | Work::StartChild(_) => true,
        Work::Command(_)
        | Work::Fact(_)
        | Work::CancelChild(_)
        | Work::NotifyParent(_)
        | Work::PublishResult(_) => false,
    }
}
