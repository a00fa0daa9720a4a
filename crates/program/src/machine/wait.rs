//! Begin and end of a wait: its timers, its reminders, its escalation, and the events that it has
//! collected.

use orlog_model::{Name, TimerChange};

use super::compiled::{ESCALATE, prefixed_name, reminder_timer};
use super::execution::Execution;
use super::state::{Reminders, StepEntry, StepIndex};
use super::step_state::StepState;

impl Execution<'_> {
    /// Ends the wait for a step or for its compensation and sets this state.
    pub(super) fn finish_wait(&mut self, at: StepIndex, step_state: StepState) {
        let old = self.state.entry(at);

        // The name depends on the old state: a retry delay has another timer than the request.
        if old.deadline.is_some() {
            let name = self.timer_name(at, old.state);
            self.cancel_timer(name);
        }

        // Most states have no optional part, so that the tag is not computed.
        if self.state.extra.is_some() {
            self.remove_child_and_escalation(&self.tag_of(at, old.state.is_compensation()));
        }

        // While a command is retried, its step still waits for the event.
        if step_state != StepState::Retrying {
            self.end_reminders(at, step_state);
        }

        // A step that is blocked past the pivot still waits for the missing events.
        if !self.state.run.events.collected.is_empty() && step_state != StepState::Blocked {
            let tag = self.tag_of(at, false);
            self.state
                .run
                .events
                .collected
                .retain(|collected| collected.tag != tag);
        }

        // The attempts survive the wait: their limit counts all requests of the action.
        *self.state.entry_mut(at) = StepEntry {
            retries: old.retries,
            null_allowed: old.null_allowed,
            ..StepEntry::of(step_state)
        };
    }

    /// Removes the child saga and the escalation of this tag.
    fn remove_child_and_escalation(&mut self, tag: &Name) {
        let extra = self.state.extra_mut();
        extra.children.retain(|(of, _)| of != tag);
        // A tag without an escalation has no such timer, so the change would only enlarge the
        // transition.
        let escalations = extra.escalations.len();
        extra.escalations.retain(|(of, _)| of != tag);
        if extra.escalations.len() < escalations {
            self.cancel_timer(prefixed_name(ESCALATE, tag));
        }
    }

    /// Begins the reminders of a step that begins to wait.
    pub(super) fn begin_reminders(&mut self, at: StepIndex) {
        let Some(remind) = &self.step(at).remind else {
            return;
        };

        // A command that is retried still waits for the same event, so its reminders continue.
        let tag = self.tag_of(at, false);
        if self.state.run.events.reminders_of(&tag).is_some() {
            return;
        }

        let due = self.context.now.saturating_add(remind.every);
        self.timers.push(TimerChange::Arm {
            name: reminder_timer(&tag),
            due,
        });
        self.state.run.events.reminders.push(Reminders {
            tag,
            sent: 0,
            due: Some(due),
        });
    }

    /// Ends the reminders of a step whose wait ends in this state.
    pub(super) fn end_reminders(&mut self, at: StepIndex, step_state: StepState) {
        // Most states have none, so that the tag is not computed.
        if self.state.run.events.reminders.is_empty() {
            return;
        }

        let tag = self.tag_of(at, false);
        let Some(ended) = self.state.run.events.remove_reminders(&tag) else {
            return;
        };
        let timer = reminder_timer(&tag);

        // An operator can retry the step: its reminders then start again, and their numbers
        // continue.
        if step_state == StepState::Blocked && ended.sent > 0 {
            self.state.pass_rounds(timer.clone(), ended.sent.into());
        }
        if ended.due.is_some() {
            self.cancel_timer(timer);
        }
    }
}
