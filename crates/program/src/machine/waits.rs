//! Pending waits of an instance, for users and queries.

use orlog_model::{Name, Timestamp, Wait, WaitKind};

use super::compiled::{CompiledAction, CompiledActionKind, RETRY};
use super::step_state::{Phase, StepState};
use super::timers::prefixed_name;
use super::transition::Execution;

impl Execution<'_> {
    /// Returns the waits in the order of the definition.
    pub(super) fn waits(&self) -> Vec<Wait> {
        let mut waits = Vec::new();
        if self.state.phase.status().is_final() {
            return waits;
        }
        for step in 0..self.saga.steps.len() {
            for at in self.units_of(step) {
                let entry = self.state.entry(at);
                let is_compensation = entry.state.is_compensation();
                match entry.state {
                    StepState::Running | StepState::Compensating => {
                        wait_for(
                            self.action_of(at, is_compensation),
                            || self.tag_of(at, is_compensation),
                            entry.deadline,
                            &mut waits,
                        );
                    }
                    StepState::Retrying | StepState::CompensationRetrying => {
                        waits.push(wait(
                            WaitKind::Timer,
                            prefixed_name(RETRY, &self.tag_of(at, is_compensation)),
                            entry.deadline,
                        ));
                    }
                    StepState::InDoubt | StepState::InDoubtAbandoned => {
                        waits.push(wait(WaitKind::Task, self.tag_of(at, false), None));
                    }
                    StepState::Blocked | StepState::CompensationFailed
                        if self.state.phase == Phase::Stuck =>
                    {
                        waits.push(wait(WaitKind::Operator, self.tag_of(at, is_compensation), None));
                    }
                    StepState::Pending
                    | StepState::Skipped
                    | StepState::Completed
                    | StepState::Failed
                    | StepState::Abandoned
                    | StepState::CompensationFailed
                    | StepState::Compensated
                    | StepState::Bypassed
                    | StepState::CompensationPending
                    | StepState::Blocked => {}
                }
            }
        }
        waits
    }
}

fn wait_for(
    action: &CompiledAction,
    tag: impl Fn() -> Name,
    until: Option<Timestamp>,
    waits: &mut Vec<Wait>,
) {
    let kind = match &action.kind {
        CompiledActionKind::Command { .. } | CompiledActionKind::Event if action.awaits_event() => {
            for matcher in action.ok.iter().chain(&action.fail) {
                let name = Name::new(matcher.event.as_str())
                    .expect("the maximum length of a name exceeds that of an event type");
                let one = wait(WaitKind::Event, name, until);
                if !waits.contains(&one) {
                    waits.push(one);
                }
            }
            return;
        }
        CompiledActionKind::Command { .. }
        | CompiledActionKind::Event
        | CompiledActionKind::Effect { .. }
        | CompiledActionKind::Job(_)
        | CompiledActionKind::Switch(_) => WaitKind::WorkResult,
        CompiledActionKind::Wait(_) => WaitKind::Timer,
        CompiledActionKind::Human(_) => WaitKind::Task,
        CompiledActionKind::Saga { .. } => WaitKind::Saga,
    };
    waits.push(wait(kind, tag(), until));
}

fn wait(kind: WaitKind, name: Name, until: Option<Timestamp>) -> Wait {
    Wait { kind, name, until }
}
