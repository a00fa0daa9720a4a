//! Invariant of idempotency keys: an effect that may have been executed is requested again only
//! under its key.

use std::collections::BTreeMap;

use orlog_model::{ControlAction, ControlRequest, Input, Work, WorkItem, WorkOutcome};
use uuid::Uuid;

use super::invariant::{Invariant, Violation};
use crate::responses::is_reminder;
use crate::simulator::ObservedDecision;

/// Keys of the effects without a known outcome, by tag.
#[derive(Clone, Debug, Default)]
pub(super) struct IdempotencyKeys(BTreeMap<String, Uuid>);

impl IdempotencyKeys {
    /// Returns the tags of the effects without a known outcome.
    pub(super) fn tags(&self) -> impl Iterator<Item = &String> {
        self.0.keys()
    }

    /// Records an input and the work that it requested.
    pub(super) fn check(
        &mut self,
        seen: &ObservedDecision<'_>,
        work: &[WorkItem],
        violations: &mut Vec<Violation>,
    ) {
        self.remove_known(seen);
        for item in work {
            let (Work::Effect(_), Some(tag)) = (&item.work, item.work.tag()) else {
                continue;
            };

            // Each event of a handler requests its own work, and an operator can start the
            // reminders of a step again.
            if tag.as_str().starts_with("on:") || is_reminder(tag.as_str()) {
                continue;
            }

            let earlier = self.0.insert(tag.to_string(), item.id);
            if earlier.is_some_and(|earlier| earlier != item.id) {
                let message = format!(
                    "{tag} may have been executed and was requested again under another \
                    idempotency key"
                );
                violations.push(Violation {
                    rule: Invariant::IdempotencyKeyKept,
                    message,
                });
            }
        }
    }

    /// Removes the effect whose outcome the input reports.
    fn remove_known(&mut self, seen: &ObservedDecision<'_>) {
        match seen.input {
            // After a timeout, the effect may have been executed, so its key still counts.
            Input::WorkResult(result)
                if !matches!(result.outcome, WorkOutcome::TimedOut { .. }) =>
            {
                self.0.retain(|_, id| *id != result.work_id);
            }
            // An operator reports whether an effect in doubt was executed.
            Input::Control(ControlRequest {
                action: ControlAction::Task { id, .. },
                ..
            }) => {
                let tasks = seen
                    .context
                    .instance
                    .map_or(&[][..], |instance| &instance.tasks);
                if let Some(task) = tasks.iter().find(|task| task.id == *id) {
                    self.0.remove(task.spec.tag.as_str());
                }
            }
            Input::WorkResult(_)
            | Input::Event(_)
            | Input::Timer(_)
            | Input::Control(_)
            | Input::Workflow(_)
            | Input::Early(_) => {}
        }
    }
}
