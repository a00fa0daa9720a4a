//! In-doubt decisions: it is unknown whether an effect was executed, and the definition requires an
//! operator decision.
//!
//! The decision is a human task under the tag of the step, with two outcomes. [`EXECUTED`], with the
//! result data of the effect, is a success of the effect. [`NOT_EXECUTED`] requests the effect again
//! under a new key, because an effect that was not executed cannot be executed twice; if the step is no
//! longer needed, it is discarded. The saga does not end before the decision, because an executed
//! effect must be compensated.

use orlog_model::{EventType, Failure, TaskChange, TaskSpec};
use serde_json::{Value, json};

use super::compiled::{CompiledAction, CompiledActionKind};
use super::state::StepIndex;
use super::step_state::{Phase, StepState};
use super::transition::Execution;
use super::values::checked;

/// Outcome: the effect was executed.
pub const EXECUTED: &str = "Executed";
/// Outcome: the effect was not executed.
pub const NOT_EXECUTED: &str = "NotExecuted";

impl Execution<'_> {
    /// Opens the in-doubt task for an operator; no other result is awaited.
    pub(super) fn open_in_doubt_task(
        &mut self,
        at: StepIndex,
        step_state: StepState,
        failure: Option<&Failure>,
    ) {
        self.finish_wait(at, step_state);
        self.add_step_note(at, "in doubt");
        let action = self.action_of(at, false);
        let tag = self.tag_of(at, false);
        let spec = TaskSpec {
            title: format!("Was {} done? (step {tag})", effect_name(action)),
            round: self.state.round(&tag),
            tag,
            roles: Vec::new(),
            assignee: None,
            due: None,
            outcomes: [EXECUTED, NOT_EXECUTED]
                .map(|outcome| EventType::new(outcome).expect("the constants are valid event types"))
                .into(),
            data: self.question(at, action, failure),
            not_by: Vec::new(),
            is_in_doubt: true,
        };
        self.tasks.push(TaskChange::Open(spec));
    }

    /// Returns the data of the task: the effect, its arguments as far as they can be evaluated, and the
    /// last failure.
    fn question(&self, at: StepIndex, action: &CompiledAction, failure: Option<&Failure>) -> Value {
        let template = match &action.kind {
            CompiledActionKind::Effect { data, .. } => Some(data),
            CompiledActionKind::Job(job) => Some(&job.args),
            CompiledActionKind::Command { .. }
            | CompiledActionKind::Wait(_)
            | CompiledActionKind::Event
            | CompiledActionKind::Human(_)
            | CompiledActionKind::Saga { .. }
            | CompiledActionKind::Switch(_) => None,
        };
        let mut data = json!({ "effect": effect_name(action) });
        if let Some(Failure { code, message }) = failure {
            data["failure"] = json!({ "code": code, "message": message });
        }
        let payload = template.and_then(|template| template.evaluate(&self.bindings(at)).ok());
        let Some(payload) = payload.filter(|payload| !payload.is_null()) else { return data };
        let mut with_payload = data.clone();
        with_payload["payload"] = payload;
        checked(with_payload, &action.tag).unwrap_or(data)
    }

    /// Requests an effect that was not executed again. While the saga is stuck no step starts, so the step
    /// is pending.
    pub(super) fn request_again(&mut self, at: StepIndex) {
        self.add_step_note(at, "not executed, requested again");
        self.state.begin_round(self.tag_of(at, false));
        let entry = self.state.entry_mut(at);
        entry.retries = entry.retries.saturating_add(1);
        if self.state.phase == Phase::Stuck {
            self.state.entry_mut(at).state = StepState::Pending;
        } else if let Err(error) = self.request_action(at, false) {
            self.fail_to_start(at, error.into());
        }
    }

    /// Closes the in-doubt task of a step or element, if there is one.
    pub(super) fn close_in_doubt_task(&mut self, at: StepIndex) {
        if self.state.entry(at).state.is_in_doubt() {
            self.tasks.push(TaskChange::Close { tag: self.tag_of(at, false) });
        }
    }

    /// Closes all in-doubt tasks.
    pub(super) fn close_in_doubt_tasks(&mut self) {
        for step in 0..self.saga.steps.len() {
            for at in self
                .step_and_elements(step)
                .filter(|at| self.state.entry(*at).state.is_in_doubt())
                .collect::<Vec<_>>()
            {
                self.close_in_doubt_task(at);
                self.finish_wait(at, StepState::Abandoned);
            }
        }
    }

    /// Returns true if the execution of an abandoned effect is still in doubt.
    pub(super) fn has_late_in_doubt(&self) -> bool {
        let mut all = (0..self.saga.steps.len()).flat_map(|step| self.step_and_elements(step));
        all.any(|at| self.state.entry(at).state == StepState::InDoubtAbandoned)
    }
}

/// Returns the name of the effect.
fn effect_name(action: &CompiledAction) -> &str {
    match &action.kind {
        CompiledActionKind::Effect { name, .. } => name.as_str(),
        CompiledActionKind::Job(job) => job.effect.as_str(),
        CompiledActionKind::Command { .. }
        | CompiledActionKind::Wait(_)
        | CompiledActionKind::Event
        | CompiledActionKind::Human(_)
        | CompiledActionKind::Saga { .. }
        | CompiledActionKind::Switch(_) => action.tag.as_str(),
    }
}
