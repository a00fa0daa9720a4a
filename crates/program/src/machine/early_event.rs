//! Early events: events that arrive before the step that awaits them, or its compensation, has started.
//!
//! They are kept in the state, in the order of arrival, and applied when the step starts. An event that a
//! step which has started would have consumed is late or a duplicate, and is not kept.

use orlog_model::{Event, EventType, Failure};
use serde_json::Value;

use super::compiled::EventBinding;
use super::outcome_table::StepOutcome;
use super::state::{EarlyEvent, Flags, StepIndex};
use super::step_input::{EXPRESSION_ERROR, StepInput};
use super::step_state::StepState;
use super::transition::{Execution, NoTransition};
use crate::contract::ProgramError;

/// Maximum number of early events of an instance.
const MAX_EARLY_EVENTS: usize = 100;

impl Execution<'_> {
    /// Keeps an event if a step or a compensation that has not started awaits it. Returns whether it is kept.
    pub(super) fn keep_early(&mut self, event: &Event) -> Result<bool, ProgramError> {
        let Event { kind, data, .. } = event;
        let ttl = self.saga.early_event_ttl;
        if ttl.is_zero() || !self.is_early(kind, data) {
            return Ok(false);
        }
        if self.early().len() >= MAX_EARLY_EVENTS {
            let message =
                format!("{kind}: its step has not started, and {MAX_EARLY_EVENTS} events are already kept");
            return Err(ProgramError::Evaluation(message));
        }
        let expires_at = self.context.now.saturating_add(ttl);
        let early = EarlyEvent { kind: kind.clone(), data: data.clone(), expires_at };
        self.state.extra_mut().early.push(early);
        self.add_note(&format!("{kind} kept until its step starts"));
        Ok(true)
    }

    /// Applies the first early event whose step has started. Returns whether there was one.
    pub(super) fn apply_early(&mut self) -> bool {
        if self.state.flags.has(Flags::FORCED) {
            return false;
        }
        let now = self.context.now;
        let awaited =
            |event: &EarlyEvent| event.expires_at > now && self.match_event(&event.kind, &event.data).is_ok();
        let Some(position) = self.early().iter().position(awaited) else { return false };
        let EarlyEvent { kind, data, .. } = self.state.extra_mut().early.remove(position);
        let Ok(step_input) = self.match_event(&kind, &data) else { return false };
        if let Err(NoTransition::Error(error)) = self.apply_step_input(&step_input) {
            // The input of this transition is another one: the step fails, not the input.
            let failure = Failure { code: EXPRESSION_ERROR.to_owned(), message: error.to_string() };
            let failed = StepInput { result: StepOutcome::Failed, failure: Some(failure), ..step_input };
            drop(self.apply_step_input(&failed));
        }
        true
    }

    /// Drops the early events whose steps will not start any more.
    pub(super) fn drop_stale_early(&mut self) {
        if self.early().is_empty() {
            return;
        }
        let early = std::mem::take(&mut self.state.extra_mut().early);
        let now = self.context.now;
        let is_kept = |event: &EarlyEvent| event.expires_at > now && self.is_early(&event.kind, &event.data);
        let kept = early.into_iter().filter(is_kept).collect();
        self.state.extra_mut().early = kept;
    }

    fn early(&self) -> &[EarlyEvent] {
        self.state.extra.as_ref().map_or(&[], |extra| &extra.early)
    }

    /// Returns whether a step or a compensation that may still start awaits the event, and none that has
    /// started does.
    fn is_early(&self, kind: &EventType, data: &Value) -> bool {
        let entries = self.saga.entries.get(kind).map_or(&[][..], Vec::as_slice);
        !self.state.phase.status().is_final()
            && entries.iter().any(|entry| self.may_start(*entry, data))
            && !entries.iter().any(|entry| self.has_started(*entry, data))
    }

    fn may_start(&self, entry: EventBinding, data: &Value) -> bool {
        if entry.is_compensation {
            let is_foreach = self.saga.steps[entry.step].foreach.is_some();
            return is_foreach && self.state.elements(entry.step).is_none()
                || self.units_of(entry.step).any(|at| self.state.entry(at).state.may_be_compensated());
        }
        let is_pending = |at: StepIndex| self.state.entry(at).state == StepState::Pending;
        !self.state.flags.has(Flags::COMPENSATION_STARTED)
            && (is_pending(StepIndex::step(entry.step))
                || self
                    .units_of(entry.step)
                    .any(|at| is_pending(at) && self.satisfies(at, entry, data).unwrap_or(false)))
    }

    fn has_started(&self, entry: EventBinding, data: &Value) -> bool {
        self.units_of(entry.step).any(|at| {
            let state = self.state.entry(at).state;
            let has_started = if entry.is_compensation {
                state.is_compensation() || state == StepState::Compensated
            } else {
                !matches!(state, StepState::Pending | StepState::Skipped | StepState::Bypassed)
            };
            has_started && self.satisfies(at, entry, data).unwrap_or(false)
        })
    }
}
