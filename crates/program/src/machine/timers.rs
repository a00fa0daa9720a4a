//! Timers: deadlines, pauses between attempts, escalations, and the time of the whole saga.

use std::time::Duration;

use orlog_model::{Name, TaskChange, TimerChange, Work};

use super::compiled::{Call, ESCALATE, RETRY, SAGA_TIMER};
use super::execution::{Run, Unchanged, saga_timer};
use super::outcome_table::Answer;
use super::state::{At, Flags, Slot};
use super::step_input::{NOTHING, Reading, timed_out};
use super::step_state::{Mark, Phase};
use crate::contract::Cause;

/// The longest pause between two attempts.
const LONGEST_PAUSE: Duration = Duration::from_hours(1);
/// The pause before the second attempt, where the definition says nothing.
const FIRST_PAUSE: Duration = Duration::from_secs(1);

impl Run<'_> {
    /// A timer fell due.
    pub(super) fn due(&mut self, name: &str) -> Result<(), Unchanged> {
        if name == SAGA_TIMER {
            return self.out_of_time();
        }
        if let Some(tag) = name.strip_prefix(RETRY) {
            return self.try_again(tag);
        }
        if let Some(tag) = name.strip_prefix(ESCALATE) {
            return self.escalate(tag);
        }
        let (at, undo) = self.place(name).ok_or(Unchanged::Ignored("no step has this timer"))?;
        let awaited = if undo { Mark::Undoing } else { Mark::Open };
        if self.state.slot(at).mark != awaited {
            return Err(Unchanged::Ignored("the timer is stale"));
        }
        let task = self.task(at, undo);
        let (answer, failure) = match (undo, &task.call) {
            (false, Call::Wait(_)) => (Answer::Ok, None),
            (false, _) => (Answer::TimedOut, Some(timed_out(name, task.timeout))),
            (true, _) => (Answer::NotUndone, Some(timed_out(name, task.timeout))),
        };
        self.settle(&Reading { at, answer, data: &NOTHING, named: None, failure })
    }

    fn out_of_time(&mut self) -> Result<(), Unchanged> {
        if self.state.phase != Phase::Running || self.state.flags.has(Flags::PIVOTED) {
            return Err(Unchanged::Ignored("the saga no longer has a time to keep"));
        }
        let message = timed_out(SAGA_TIMER, self.saga.timeout).message;
        self.say("saga timeout");
        self.turn_back(Cause { code: "saga_timeout".to_owned(), message, step: String::new() });
        Ok(())
    }

    /// Pauses before the next attempt, each pause twice as long as the one before.
    pub(super) fn pause(&mut self, at: At, code: &str, mark: Mark) {
        let task = self.task(at, mark == Mark::UndoPausing);
        let again = self.state.slot(at).again;
        let first = task.retry.and_then(|retry| retry.backoff).unwrap_or(FIRST_PAUSE);
        let pause = first.saturating_mul(1_u32.checked_shl(again).unwrap_or(u32::MAX)).min(LONGEST_PAUSE);
        self.close(at, mark);
        let until = self.context.now.after(pause);
        *self.state.slot_mut(at) = Slot { mark, until: Some(until), again };
        let name = self.timer(at, mark);
        self.timers.push(TimerChange::Arm { name, due: until });
        self.note(at, &format!("{code}, again in {pause:?}"));
    }

    fn try_again(&mut self, tag: &str) -> Result<(), Unchanged> {
        let (at, undo) = self.place(tag).ok_or(Unchanged::Ignored("no step has this timer"))?;
        let awaited = if undo { Mark::UndoPausing } else { Mark::Pausing };
        if self.state.slot(at).mark != awaited {
            return Err(Unchanged::Ignored("the timer is stale"));
        }
        let slot = self.state.slot_mut(at);
        slot.again = slot.again.saturating_add(1);
        self.note(at, "again");
        if undo {
            self.ask_undo(at);
        } else if let Err(error) = self.ask(at, false) {
            self.not_begun(at, error.into());
        }
        Ok(())
    }

    /// The name of the timer of something that stands there with that mark.
    pub(super) fn timer(&self, at: At, mark: Mark) -> Name {
        let tag = self.tag(at, mark.is_undo());
        if matches!(mark, Mark::Pausing | Mark::UndoPausing) { prefixed(RETRY, &tag) } else { tag }
    }

    /// The wait for a step or for its undo is over, with that mark.
    pub(super) fn close(&mut self, at: At, mark: Mark) {
        let old = self.state.slot(at);
        if old.until.is_some() {
            let name = self.timer(at, old.mark);
            self.disarm(name);
        }
        if self.state.extra.is_some() {
            self.forget(&self.tag(at, old.mark.is_undo()));
        }
        *self.state.slot_mut(at) = Slot { mark, until: None, again: old.again };
    }

    /// Nothing is under way under that tag any more.
    fn forget(&mut self, tag: &Name) {
        let extra = self.state.extra_mut();
        extra.children.retain(|(of, _)| of != tag);
        let escalations = extra.escalations.len();
        extra.escalations.retain(|(of, _)| of != tag);
        if extra.escalations.len() < escalations {
            self.disarm(prefixed(ESCALATE, tag));
        }
    }

    /// Lets go of what is under way there: a child is cancelled, a task closed.
    pub(super) fn release(&mut self, at: At) {
        let undo = self.state.slot(at).mark.is_undo();
        let tag = self.tag(at, undo);
        match &self.task(at, undo).call {
            Call::Human(_) => self.tasks.push(TaskChange::Close { tag }),
            Call::Saga { saga, .. } => {
                let children = self.state.extra.as_ref().map_or(&[][..], |extra| &extra.children);
                let child = children.iter().find(|(of, _)| *of == tag).map(|(_, child)| child.clone());
                self.work.extend(child.map(|correlation| {
                    let reason = format!("{} of {} is given up", self.step(at).id, self.context.key.saga);
                    Work::Stop(orlog_model::Stop { saga: saga.clone(), correlation, reason })
                }));
            }
            Call::Command { .. }
            | Call::Effect { .. }
            | Call::Wait(_)
            | Call::Event
            | Call::Job(_)
            | Call::Switch(_) => {}
        }
    }

    pub(super) fn cancel_saga_timer(&mut self) {
        if self.state.until.take().is_some() {
            self.disarm(saga_timer());
        }
    }

    pub(super) fn disarm(&mut self, name: Name) {
        if self.fired.as_deref() != Some(name.as_str()) {
            self.timers.push(TimerChange::Cancel { name });
        }
    }

    /// The runner drops all timers of an instance that is stuck; now that it goes on, those of what is under way are armed
    /// again for the same time.
    pub(super) fn arm_again(&mut self) {
        let mut timers = Vec::new();
        for at in (0..self.saga.steps.len()).flat_map(|step| self.places(step)) {
            let slot = self.state.slot(at);
            if let (Some(due), true) = (slot.until, slot.mark.is_under_way() || slot.mark.is_undo()) {
                timers.push(TimerChange::Arm { name: self.timer(at, slot.mark), due });
            }
        }
        for (tag, due) in self.state.extra.iter().flat_map(|extra| &extra.escalations) {
            timers.push(TimerChange::Arm { name: prefixed(ESCALATE, tag), due: *due });
        }
        timers.extend(self.state.until.map(|due| TimerChange::Arm { name: saga_timer(), due }));
        self.timers.extend(timers);
    }
}

pub(super) fn prefixed(prefix: &str, tag: &Name) -> Name {
    Name::new(format!("{prefix}{tag}")).expect("step ids leave room for prefixes")
}
