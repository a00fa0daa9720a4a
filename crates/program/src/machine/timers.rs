//! Timers: deadlines, retry delays, escalations, and the timeout of the whole saga.

use std::time::Duration;

use orlog_model::{Name, TaskChange, TimerChange, Work};

use super::compiled::{CompiledAction, CompiledActionKind, ESCALATE, RETRY, SAGA_TIMER};
use super::outcome_table::StepOutcome;
use super::state::{Flags, StepEntry, StepIndex};
use super::step_input::{Certainty, NOTHING, StepInput, timed_out};
use super::step_state::{Phase, StepState};
use super::transition::{Execution, NoTransition, saga_timer};
use crate::contract::FailureCause;

/// Maximum delay between two attempts.
const MAX_RETRY_DELAY: Duration = Duration::from_hours(1);
/// Default delay before the second attempt.
const INITIAL_RETRY_DELAY: Duration = Duration::from_secs(1);

impl Execution<'_> {
    /// Handles a due timer.
    pub(super) fn on_timer(&mut self, name: &str) -> Result<(), NoTransition> {
        if name == SAGA_TIMER {
            return self.on_saga_timeout();
        }
        if let Some(tag) = name.strip_prefix(RETRY) {
            return self.retry_step(tag);
        }
        if let Some(tag) = name.strip_prefix(ESCALATE) {
            return self.escalate(tag);
        }
        let (at, is_compensation) =
            self.step_of_tag(name).ok_or(NoTransition::Ignored("no step has this timer"))?;
        let awaited = if is_compensation { StepState::Compensating } else { StepState::Running };
        if self.state.entry(at).state != awaited {
            return Err(NoTransition::Ignored("the timer is stale"));
        }
        let action = self.action_of(at, is_compensation);
        let (result, failure) = match (is_compensation, &action.kind) {
            (false, CompiledActionKind::Wait(_)) => (StepOutcome::Ok, None),
            (false, _) => (StepOutcome::TimedOut, Some(timed_out(name, action.timeout))),
            (true, _) => (StepOutcome::NotCompensated, Some(timed_out(name, action.timeout))),
        };
        self.apply_step_input(&StepInput {
            at,
            result,
            data: &NOTHING,
            named: None,
            failure,
            certainty: certainty_after_timeout(action),
        })
    }

    fn on_saga_timeout(&mut self) -> Result<(), NoTransition> {
        if self.state.phase != Phase::Running || self.state.flags.has(Flags::PIVOTED) {
            return Err(NoTransition::Ignored("the saga timeout no longer applies"));
        }
        let message = timed_out(SAGA_TIMER, self.saga.timeout).message;
        self.add_note("saga timeout");
        self.start_compensation(FailureCause {
            code: "saga_timeout".to_owned(),
            message,
            step: String::new(),
        });
        Ok(())
    }

    /// Schedules the next attempt; each delay is twice the previous one.
    pub(super) fn schedule_retry(&mut self, at: StepIndex, code: &str, step_state: StepState) {
        let action = self.action_of(at, step_state == StepState::CompensationRetrying);
        let retry_count = self.state.entry(at).retries;
        let first = action.retry.and_then(|retry| retry.initial_backoff).unwrap_or(INITIAL_RETRY_DELAY);
        let delay =
            first.saturating_mul(1_u32.checked_shl(retry_count).unwrap_or(u32::MAX)).min(MAX_RETRY_DELAY);
        self.finish_wait(at, step_state);
        let until = self.context.now.saturating_add(delay);
        *self.state.entry_mut(at) =
            StepEntry { state: step_state, deadline: Some(until), retries: retry_count };
        let name = self.timer_name(at, step_state);
        self.timers.push(TimerChange::Arm { name, due: until });
        self.add_step_note(at, &format!("{code}, retry in {delay:?}"));
    }

    fn retry_step(&mut self, tag: &str) -> Result<(), NoTransition> {
        let (at, is_compensation) =
            self.step_of_tag(tag).ok_or(NoTransition::Ignored("no step has this timer"))?;
        let awaited = if is_compensation { StepState::CompensationRetrying } else { StepState::Retrying };
        if self.state.entry(at).state != awaited {
            return Err(NoTransition::Ignored("the timer is stale"));
        }
        let entry = self.state.entry_mut(at);
        entry.retries = entry.retries.saturating_add(1);
        self.add_step_note(at, "again");
        if is_compensation {
            self.request_compensation(at);
        } else if let Err(error) = self.request_action(at, false) {
            self.fail_to_start(at, error.into());
        }
        Ok(())
    }

    /// Returns the timer name of a step or element in this state.
    pub(super) fn timer_name(&self, at: StepIndex, step_state: StepState) -> Name {
        let tag = self.tag_of(at, step_state.is_compensation());
        if matches!(step_state, StepState::Retrying | StepState::CompensationRetrying) {
            prefixed_name(RETRY, &tag)
        } else {
            tag
        }
    }

    /// Ends the wait for a step or for its compensation and sets this state.
    pub(super) fn finish_wait(&mut self, at: StepIndex, step_state: StepState) {
        let old = self.state.entry(at);
        if old.deadline.is_some() {
            let name = self.timer_name(at, old.state);
            self.cancel_timer(name);
        }
        if self.state.extra.is_some() {
            self.remove_child_and_escalation(&self.tag_of(at, old.state.is_compensation()));
        }
        *self.state.entry_mut(at) = StepEntry { state: step_state, deadline: None, retries: old.retries };
    }

    /// Removes the child saga and the escalation of this tag.
    fn remove_child_and_escalation(&mut self, tag: &Name) {
        let extra = self.state.extra_mut();
        extra.children.retain(|(of, _)| of != tag);
        let escalations = extra.escalations.len();
        extra.escalations.retain(|(of, _)| of != tag);
        if extra.escalations.len() < escalations {
            self.cancel_timer(prefixed_name(ESCALATE, tag));
        }
    }

    /// Cancels the outstanding work of a step: cancels a child saga, closes a task.
    pub(super) fn cancel_outstanding(&mut self, at: StepIndex) {
        let is_compensation = self.state.entry(at).state.is_compensation();
        let tag = self.tag_of(at, is_compensation);
        match &self.action_of(at, is_compensation).kind {
            CompiledActionKind::Human(_) => self.tasks.push(TaskChange::Close { tag }),
            CompiledActionKind::Saga { saga, .. } => {
                let children = self.state.extra.as_ref().map_or(&[][..], |extra| &extra.children);
                let child = children.iter().find(|(of, _)| *of == tag).map(|(_, child)| child.clone());
                self.work.extend(child.map(|correlation| {
                    let reason = format!("{} of {} is abandoned", self.step(at).id, self.context.key.saga);
                    Work::CancelChild(orlog_model::CancelChild { saga: saga.clone(), correlation, reason })
                }));
            }
            CompiledActionKind::Command { .. }
            | CompiledActionKind::Effect { .. }
            | CompiledActionKind::Wait(_)
            | CompiledActionKind::Event
            | CompiledActionKind::Job(_)
            | CompiledActionKind::Switch(_) => {}
        }
    }

    pub(super) fn cancel_saga_timer(&mut self) {
        if self.state.until.take().is_some() {
            self.cancel_timer(saga_timer());
        }
    }

    pub(super) fn cancel_timer(&mut self, name: Name) {
        if self.fired.as_deref() != Some(name.as_str()) {
            self.timers.push(TimerChange::Cancel { name });
        }
    }

    /// Rearms the timers of steps in progress at their previous times. The runner deletes all timers of a
    /// stuck instance; this restores them when the instance continues.
    pub(super) fn rearm_timers(&mut self) {
        let mut timers = Vec::new();
        for at in (0..self.saga.steps.len()).flat_map(|step| self.step_and_elements(step)) {
            let entry = self.state.entry(at);
            if let (Some(due), true) =
                (entry.deadline, entry.state.is_in_progress() || entry.state.is_compensation())
            {
                timers.push(TimerChange::Arm { name: self.timer_name(at, entry.state), due });
            }
        }
        for (tag, due) in self.state.extra.iter().flat_map(|extra| &extra.escalations) {
            timers.push(TimerChange::Arm { name: prefixed_name(ESCALATE, tag), due: *due });
        }
        timers.extend(self.state.until.map(|due| TimerChange::Arm { name: saga_timer(), due }));
        self.timers.extend(timers);
    }
}

/// Returns what is known about an action whose timer fired. The result of an effect or a job follows; it is
/// final at the same deadline. For a command that an event confirms, none follows. A task is closed, and a
/// child saga is cancelled and reports its end.
fn certainty_after_timeout(action: &CompiledAction) -> Certainty {
    match &action.kind {
        CompiledActionKind::Command { .. } if action.awaits_event() => Certainty::Unknown,
        CompiledActionKind::Command { .. }
        | CompiledActionKind::Effect { .. }
        | CompiledActionKind::Job(_) => Certainty::Pending,
        CompiledActionKind::Wait(_)
        | CompiledActionKind::Event
        | CompiledActionKind::Human(_)
        | CompiledActionKind::Saga { .. }
        | CompiledActionKind::Switch(_) => Certainty::Known,
    }
}

pub(super) fn prefixed_name(prefix: &str, tag: &Name) -> Name {
    Name::new(format!("{prefix}{tag}")).expect("step ids reserve space for prefixes")
}
