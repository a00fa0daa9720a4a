//! Decisions about inputs: what an input of an instance is to the state machine.

use compact_str::CompactString;
use orlog_model::{Event, EventType, Fact, Failure, WorkOutcome};
use orlog_program::{ProgramInput, ProgramOutput};
use serde_json::Value as Json;

use super::compiled::WorkflowProgram;
use super::effects::COMPENSATE;
use crate::error::TaskError;
use crate::function::Function;
use crate::graph::StepId;
use crate::machine::{Fault, Machine};
use crate::state::{Branch, Phase, Work};
use crate::value::Value;

/// Effect of an input on the state machine.
pub(super) enum Decision {
    /// It is applied.
    Applied(WorkEnd),
    /// It changes nothing.
    Unchanged(ProgramOutput),
}

/// What a result of work states beside its effect on the state machine.
#[derive(Default)]
pub(super) struct WorkEnd {
    pub(super) failure: Option<Failure>,
    /// Event of the step, which is published.
    pub(super) event: Option<Fact>,
}

impl WorkflowProgram {
    /// Applies an input to the state machine.
    pub(super) fn decide(&self, mut machine: Machine<'_>, input: &ProgramInput<'_>) -> Decision {
        let phase = machine.state.phase;
        let rejected =
            |reason: &'static str| Decision::Unchanged(ProgramOutput::Rejected(reason.into()));
        let is_stuck = phase == Phase::Stuck;
        match input {
            ProgramInput::Event(event) => return self.signal(machine, event),
            ProgramInput::WorkResult { tag, outcome } => return self.result(machine, tag, outcome),
            ProgramInput::Timer { .. } if machine.tick() => {}
            ProgramInput::Timer { .. } => return ignored("nothing is due"),
            // Started tasks are not withdrawn: they end before the compensation starts.
            ProgramInput::Cancel { .. } if phase == Phase::Running => {
                machine.cancel_after_started();
            }
            ProgramInput::Cancel { .. } if is_stuck => {
                return rejected("the instance is stuck; retry, skip or force-complete it");
            }
            ProgramInput::Cancel { .. } => return rejected("the instance is already compensating"),
            ProgramInput::Retry | ProgramInput::Skip | ProgramInput::ForceComplete if !is_stuck => {
                return rejected(
                    "only a stuck instance can be retried, skipped or force-completed",
                );
            }
            ProgramInput::Retry => machine.retry_compensation(),
            ProgramInput::Skip => machine.skip_compensation(),
            ProgramInput::ForceComplete => machine.drop_compensations(),
        }
        Decision::Applied(WorkEnd::default())
    }

    /// Applies a signal. A payload of another type is rejected, so that it cannot end the instance.
    fn signal(&self, mut machine: Machine<'_>, event: &Event) -> Decision {
        let name = event.kind.as_str();
        if event.kind == self.start_event {
            return ignored("the instance has started");
        }

        let mut steps = self
            .definition
            .functions()
            .filter(|(step, _)| step.name == name);
        // Names are unique, so there is at most one.
        let Some((_, Function::Signal(functions))) = steps.next() else {
            return ignored("the workflow has no signal of this name");
        };

        if machine.state.phase != Phase::Running {
            return ignored("the workflow does not run forward");
        }

        let mut payload = Value::Json(event.data.clone());
        if let Err(error) = (functions.check)(&mut payload) {
            let reason = format!(
                "the payload of signal \"{name}\" is invalid: {}",
                error.message()
            );
            return Decision::Unchanged(ProgramOutput::Rejected(reason.into()));
        }

        machine.signal(name.to_owned(), payload);
        Decision::Applied(WorkEnd::default())
    }

    /// Applies the result of an effect.
    fn result(&self, mut machine: Machine<'_>, tag: &str, outcome: &WorkOutcome) -> Decision {
        if let Some(path) = tag.strip_prefix(COMPENSATE) {
            let last = machine
                .state
                .compensations
                .last()
                .map(|last| machine.path_of(last).display());
            if machine.state.phase != Phase::Compensating || last.as_deref() != Some(path) {
                return ignored("the compensation is no longer awaited");
            }
            // All attempts are used up.
            let result = match outcome.failure() {
                None => Ok(()),
                Some(failure) => Err(Fault::Error(TaskError::permanent(&failure.message))),
            };
            machine.compensated(result);

            let failure = outcome.failure().cloned();
            return Decision::Applied(WorkEnd {
                failure,
                event: None,
            });
        }

        let is_of = |branch: &&Branch| {
            matches!(
                branch.work,
                Work::Task {
                    is_started: true,
                    ..
                }
            ) && self.definition.path(branch) == tag
        };

        // A result of an earlier round or of another element has another path.
        let Some(branch) = machine.state.branches.iter().find(is_of) else {
            return ignored("the task is no longer awaited");
        };

        let at = branch.at;
        let branch = branch.id;

        let (output, end) = self.answer(at, tag, outcome);
        let result = match (output, outcome) {
            (Some(output), _) => Ok(output),
            (None, WorkOutcome::Failed { failure, .. }) => {
                Err(Fault::Error(TaskError::permanent(&failure.message)))
            }
            // The task may have had its effect, also if it violated its contract: its output is
            // unknown.
            (None, _) => Err(Fault::TimedOut),
        };

        machine.finished(branch, result);
        Decision::Applied(end)
    }

    /// Returns the output of a task; `None` if it has none. A result that contradicts the types or
    /// the events of the step violates its contract.
    fn answer(&self, step: StepId, path: &str, outcome: &WorkOutcome) -> (Option<Value>, WorkEnd) {
        let effects = self.effects(step);
        let failed = |failure: Failure, event| {
            (
                None,
                WorkEnd {
                    failure: Some(failure),
                    event,
                },
            )
        };
        let violated = |message: String| {
            failed(
                Failure {
                    code: "contract_violation".to_owned(),
                    message,
                },
                None,
            )
        };
        let fact = |kind: &EventType, data: &Json| Fact {
            key: Some(CompactString::from(path)),
            ..Fact::new(kind.clone(), data.clone())
        };

        let (expected, found) = match outcome {
            WorkOutcome::Succeeded { event, .. } => (&effects.ok, event),
            WorkOutcome::Failed { event, .. } => (&effects.fail, event),
            WorkOutcome::Accepted | WorkOutcome::TimedOut { .. } => (&None, &None),
        };

        // A result without an event contradicts nothing.
        if let (Some(expected), Some(found)) = (expected, found)
            && expected != found
        {
            return violated(format!(
                "step \"{path}\" was answered with {found}, not {expected}"
            ));
        }

        match outcome {
            WorkOutcome::Accepted => (Some(Value::Json(Json::Null)), WorkEnd::default()),
            WorkOutcome::Succeeded { payload, .. } => {
                let mut output = Value::Json(payload.clone());
                let task = self
                    .definition
                    .task(step)
                    .expect("a definition has a function for each task");
                if let Err(error) = task.task.check(&mut output) {
                    return violated(format!(
                        "the result of step \"{path}\" is {}",
                        error.message()
                    ));
                }
                let event = expected.as_ref().map(|kind| fact(kind, payload));
                (
                    Some(output),
                    WorkEnd {
                        failure: None,
                        event,
                    },
                )
            }
            WorkOutcome::Failed {
                failure, payload, ..
            } => {
                let event = expected
                    .as_ref()
                    // A failure without an event is a fault and not a decision, so nothing is
                    // published.
                    .filter(|_| found.is_some())
                    .map(|kind| fact(kind, payload));
                failed(failure.clone(), event)
            }
            WorkOutcome::TimedOut { failure } => failed(failure.clone(), None),
        }
    }
}

fn ignored(reason: &'static str) -> Decision {
    Decision::Unchanged(ProgramOutput::Ignored(reason.into()))
}
