//! Applies a result to its step: completed, failed, retried or compensated.

use compact_str::format_compact;
use orlog_model::{Fact, Failure, Work};
use serde_json::Value;

use super::compiled::CompiledActionKind;
use super::join;
use super::outcome_table::{self, StepOutcome, StepUpdate};
use super::state::{Flags, StepEntry, StepIndex};
use super::step_input::{Certainty, EXPRESSION_ERROR, StepInput};
use super::step_state::StepState;
use super::transition::{Execution, NoTransition};
use crate::contract::FailureCause;
use crate::contract::ProgramError;

impl Execution<'_> {
    pub(super) fn apply_step_input(&mut self, step_input: &StepInput<'_>) -> Result<(), NoTransition> {
        let at = step_input.at;
        let update = outcome_table::update_for(self.state.entry(at).state, step_input.result);
        if let StepUpdate::Ignore(reason) = update {
            return Err(NoTransition::Ignored(reason));
        }
        self.emit_result(step_input);
        self.close_in_doubt_task(at);
        match update {
            StepUpdate::Complete => self.complete(at, step_input.data)?,
            StepUpdate::Fail(step_state) => self.failed(at, step_state, step_input),
            StepUpdate::CompleteLate => self.complete_late(at, step_input.data)?,
            StepUpdate::ConfirmCompensation => {
                self.finish_wait(at, StepState::Compensated);
                self.state.compensating_step = None;
                self.add_step_note(at, "compensated");
            }
            StepUpdate::MarkStuck => {
                self.end_round(at, true, step_input.certainty);
                self.fail_compensation(at, step_input.cause(self.step(at)));
            }
            StepUpdate::OpenInDoubtTask(step_state) => {
                self.open_in_doubt_task(at, step_state, step_input.failure.as_ref());
            }
            StepUpdate::CompensateUnknown => {
                if !self.compensate_unknown(at) {
                    return Err(NoTransition::Ignored("the step was abandoned"));
                }
            }
            StepUpdate::RequestAgain => self.request_again(at),
            StepUpdate::Discard => {
                self.finish_wait(at, StepState::Abandoned);
                self.add_step_note(at, "not executed");
            }
            StepUpdate::Ignore(_) => {}
        }
        Ok(())
    }

    /// Emits a named result as a fact if no other component publishes it.
    fn emit_result(&mut self, step_input: &StepInput<'_>) {
        let own = matches!(step_input.result, StepOutcome::Ok | StepOutcome::Failed);
        if let Some(kind) = step_input
            .named
            .clone()
            .filter(|_| own && self.action_of(step_input.at, false).reports_named_result())
        {
            let tag = self.tag_of(step_input.at, false);
            let key = Some(format_compact!("{tag}#{}", self.state.round(&tag)));
            self.work.push(Work::Fact(Fact { kind, data: step_input.data.clone(), key }));
        }
    }

    fn complete(&mut self, at: StepIndex, data: &Value) -> Result<(), ProgramError> {
        self.save_result(at, data)?;
        self.finish_wait(at, StepState::Completed);
        self.state.done.push(at);
        self.add_step_note(at, "ok");
        if at.element.is_none() {
            self.complete_step(at.step);
        }
        Ok(())
    }

    fn complete_late(&mut self, at: StepIndex, data: &Value) -> Result<(), ProgramError> {
        self.save_result(at, data)?;
        *self.state.entry_mut(at) = StepEntry::of(StepState::CompensationPending);
        self.state.done.push(at);
        self.add_step_note(at, "ok, late");
        Ok(())
    }

    /// Stores the variables that the step saves from its result.
    fn save_result(&mut self, at: StepIndex, data: &Value) -> Result<(), ProgramError> {
        let step = self.step(at);
        for (name, template) in &step.save {
            let value = template.evaluate(&self.bindings(at).event(data));
            let value = value
                .map_err(|error| ProgramError::SchemaMismatch(format!("cannot set vars.{name}: {error}")))?;
            let stored = self.state.vars.entry(name.as_str()).or_insert(Value::Null);
            put(stored, at.element, value);
        }
        if matches!(step.action.kind, CompiledActionKind::Job(_)) {
            let results = &mut self.state.extra_mut().results;
            put(results.entry(step.id.as_str()).or_insert(Value::Null), at.element, data.clone());
        }
        Ok(())
    }

    /// Completes the step when all its parts are completed.
    pub(super) fn complete_step(&mut self, step: usize) {
        if !self.saga.steps[step].pivot {
            return;
        }
        self.state.flags.set(Flags::PIVOTED);
        let done = std::mem::take(&mut self.state.done);
        self.state.done = done
            .into_iter()
            .filter(|at| self.state.entry(*at).state == StepState::CompensationPending)
            .collect();
        self.cancel_saga_timer();
        self.add_note("past the pivot");
    }

    /// Handles a failure: retries while attempts are left, otherwise fails permanently.
    fn failed(&mut self, at: StepIndex, step_state: StepState, step_input: &StepInput<'_>) {
        let action = self.action_of(at, false);
        let cause = step_input.cause(self.step(at));
        let attempts = self.state.entry(at).retries.saturating_add(1);
        let retries = attempts < action.max_attempts() && cause.code != EXPRESSION_ERROR;
        if retries || self.state.flags.has(Flags::PIVOTED) {
            self.end_round(at, false, step_input.certainty);
        }
        if retries {
            return self.schedule_retry(at, &cause.code, StepState::Retrying);
        }
        self.add_step_note(at, &cause.code);
        self.fail_step(at, step_state, cause);
        if step_input.certainty == Certainty::Unknown {
            self.compensate_unknown(at);
        }
    }

    /// Schedules the compensation of an abandoned step that may have been executed. Returns false if the step
    /// has none or is not abandoned.
    fn compensate_unknown(&mut self, at: StepIndex) -> bool {
        let applies =
            self.step(at).compensation.is_some() && self.state.entry(at).state == StepState::Abandoned;
        if applies {
            *self.state.entry_mut(at) = StepEntry::of(StepState::CompensationPending);
            self.state.done.push(at);
            self.add_step_note(at, "may have been executed");
        }
        applies
    }

    /// Begins the next round of an action that can be requested again, unless it may have been executed: then
    /// the next request repeats the idempotency key, so that the action is executed once.
    fn end_round(&mut self, at: StepIndex, is_compensation: bool, certainty: Certainty) {
        if certainty == Certainty::Known {
            self.state.begin_round(self.tag_of(at, is_compensation));
        }
    }

    /// Fails a step permanently. A join that tolerates it continues; past the pivot the instance is stuck;
    /// otherwise compensation starts.
    pub(super) fn fail_step(&mut self, at: StepIndex, step_state: StepState, cause: FailureCause) {
        let losing = join::tolerated_failures(self.saga, &self.state, at.step);
        let blocked = losing.is_none() && self.state.flags.has(Flags::PIVOTED);
        if step_state == StepState::Abandoned {
            self.cancel_outstanding(at);
        }
        self.finish_wait(at, if blocked { StepState::Blocked } else { step_state });
        if !blocked && at.element.is_some() {
            self.abandon_elements(at.step, step_state);
        }
        match losing {
            Some(losing) => self.discard_branches(&losing),
            None if blocked => self.failure = Some(Failure { code: cause.code, message: cause.message }),
            None => self.start_compensation(cause),
        }
    }

    /// Handles a failed compensation: retries while attempts are left, otherwise the instance is stuck.
    pub(super) fn fail_compensation(&mut self, at: StepIndex, cause: FailureCause) {
        let action = self.action_of(at, true);
        let attempts = self.state.entry(at).retries.saturating_add(1);
        if attempts < action.max_attempts() && cause.code != EXPRESSION_ERROR {
            return self.schedule_retry(at, &cause.code, StepState::CompensationRetrying);
        }
        self.finish_wait(at, StepState::CompensationFailed);
        self.add_step_note(at, "compensation failed");
        self.failure = Some(Failure { code: cause.code, message: cause.message });
    }
}

/// Sets a value, or the value of an element in a list.
fn put(stored: &mut Value, element: Option<usize>, value: Value) {
    let Some(element) = element else {
        *stored = value;
        return;
    };
    if !stored.is_array() {
        *stored = Value::Array(Vec::new());
    }
    if let Value::Array(values) = stored {
        if values.len() <= element {
            values.resize(element + 1, Value::Null);
        }
        values[element] = value;
    }
}
