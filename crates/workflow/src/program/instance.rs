//! Program of a workflow: maps the inputs of an instance to transitions.

use std::sync::Arc;

use orlog_model::{
    CorrelationId, DefinitionRef, Event, EventType, Fact, Failure, Name, RunChange, TimerChange,
    Transition, TransitionFailure, Wait, WaitKind, Work,
};
use orlog_program::{
    Context, Definition, Manifest, Program, ProgramError, ProgramInput, ProgramOutput,
    correlation_by_field,
};
use serde_json::{Value as Json, json};

use super::compiled::{WorkflowProgram, difference};
use super::decide::{Decision, WorkEnd};
use super::effects::{COMPENSATE, millis, timestamp};
use super::state::{Cause, NodeState, name_of, status};
use crate::error::TaskError;
use crate::machine::Machine;
use crate::progress::Progress;
use crate::state::{Phase, State, Work as BranchWork};
use crate::value::Value;

impl Program for WorkflowProgram {
    fn definition_ref(&self) -> &DefinitionRef {
        &self.reference
    }

    fn manifest(&self) -> &Manifest {
        &self.manifest
    }

    fn correlate(&self, event: &Event) -> Result<CorrelationId, ProgramError> {
        let id = correlation_by_field(event, self.correlate.as_deref())?;
        (self.check_identifier)(id.as_str()).map_err(|error| {
            ProgramError::SchemaMismatch(format!(
                "the identifier \"{id}\" of {} is invalid: {error}",
                event.kind
            ))
        })?;
        Ok(id)
    }

    fn correlates_by_envelope(&self, _: &EventType) -> bool {
        self.correlate.is_none()
    }

    fn apply(
        &self,
        state: Option<&[u8]>,
        input: &ProgramInput<'_>,
        context: &Context<'_>,
    ) -> Result<ProgramOutput, ProgramError> {
        let Some(state) = state else {
            return self.start(input, context);
        };
        let mut state = NodeState::decode(state)?;

        // Before the input is applied: the transition contains the difference.
        let timers = state.due_times(&self.definition);
        let mut progress = Vec::new();

        // A clock that was set back can be behind the timer.
        let due = timers.iter().filter(
            |(name, _)| matches!(input, ProgramInput::Timer { name: fired } if name == fired),
        );
        let now_ms = due.map(|(_, due)| *due).fold(millis(context.now), u64::max);

        let machine = Machine::new(
            &self.definition,
            &mut state.workflow,
            now_ms,
            Some(&mut progress),
        );

        let WorkEnd { failure, event } = match self.decide(machine, input) {
            Decision::Applied(end) => end,
            Decision::Unchanged(output) => return Ok(output),
        };
        if let ProgramInput::Cancel { reason } = input {
            state.cause = Some(Cause {
                code: "cancelled".to_owned(),
                message: (*reason).to_owned(),
                step: None,
            });
        }

        let applied = AppliedInput {
            failure: reported_failure(&mut state, failure, input),
            event,
            input,
        };
        self.transition(state, progress, &timers, applied, context)
    }

    fn view_state(&self, state: &[u8]) -> Option<Json> {
        Some(super::view::view(self, &NodeState::decode(state).ok()?))
    }

    fn drawing(&self) -> Option<&Definition> {
        Some(&self.drawing)
    }

    fn record(&self) -> Option<Vec<u8>> {
        Some(self.stored_graph.clone())
    }

    fn difference(&self, record: &[u8]) -> Option<String> {
        difference(record, &self.definition)
    }
}

/// Input that was applied, and what the transition reports about it.
struct AppliedInput<'a> {
    failure: Option<Box<TransitionFailure>>,
    event: Option<Fact>,
    input: &'a ProgramInput<'a>,
}

impl WorkflowProgram {
    fn start(
        &self,
        input: &ProgramInput<'_>,
        context: &Context<'_>,
    ) -> Result<ProgramOutput, ProgramError> {
        let event = match input {
            ProgramInput::Event(event) if event.kind == self.start_event => event,
            _ => return Ok(ProgramOutput::Ignored("the instance does not exist".into())),
        };

        let mut data = Value::Json(event.data.clone());
        let mut checked = (self.check_input)(&mut data);
        if checked.is_err() && event.data == json!({}) {
            // A request without a body has no data, which is the input of a workflow without one.
            data = Value::Json(Json::Null);
            checked = (self.check_input)(&mut data).or(checked);
        }
        checked.map_err(|error: TaskError| {
            let name = &self.definition.name;
            ProgramError::SchemaMismatch(format!(
                "invalid input of workflow \"{name}\": {}",
                error.message()
            ))
        })?;

        let mut state = NodeState::new(State::empty());
        let mut progress = Vec::new();
        Machine::new(
            &self.definition,
            &mut state.workflow,
            millis(context.now),
            Some(&mut progress),
        )
        .begin(data);

        let applied = AppliedInput {
            failure: reported_failure(&mut state, None, input),
            event: None,
            input,
        };
        self.transition(state, progress, &[], applied, context)
    }

    /// Returns the transition after an input: requests the attempts that are ready.
    fn transition(
        &self,
        mut state: NodeState,
        mut progress: Vec<Progress>,
        timers: &[(String, u64)],
        applied: AppliedInput<'_>,
        context: &Context<'_>,
    ) -> Result<ProgramOutput, ProgramError> {
        let id: Arc<str> = context.key.correlation.as_str().into();
        let mut machine = Machine::new(
            &self.definition,
            &mut state.workflow,
            millis(context.now),
            Some(&mut progress),
        );
        let attempts = machine.start_ready(&id);

        let mut work = Vec::with_capacity(attempts.len());
        for attempt in attempts {
            work.push(self.request(attempt, &mut state.workflow, context.now)?);
        }

        state.record(&progress);
        let facts = applied
            .event
            .into_iter()
            .chain(self.end(&state, &progress)?);
        work.extend(facts.map(Work::Fact));

        Ok(ProgramOutput::Applied(Box::new(Transition {
            status: status(state.workflow.phase),
            timers: timer_changes(timers, &state.due_times(&self.definition))?,
            waits: self.waits(&state.workflow)?,
            note: note(&progress).unwrap_or_else(|| label(applied.input)),
            state: state.encode()?,
            work,
            failure: applied.failure,
            tasks: Vec::new(),
            reference: None,
            variables: Vec::new(),
            run: RunChange::default(),
        })))
    }

    /// Returns the fact of the end of the instance, if it ends.
    fn end(&self, state: &NodeState, progress: &[Progress]) -> Result<Option<Fact>, ProgramError> {
        // The end is the last event of a transition.
        match progress.last() {
            Some(Progress::Completed) => {
                let output = state
                    .workflow
                    .output
                    .as_ref()
                    .map_or(Ok(Json::Null), Value::json);
                let output = output.map_err(ProgramError::Evaluation)?;
                Ok(Some(Fact::new(self.completed_event.clone(), output)))
            }
            Some(Progress::Failed(_)) => Ok(Some(Fact::new(
                self.failed_event.clone(),
                json!(state.cause),
            ))),
            _ => Ok(None),
        }
    }

    /// Returns what the instance waits for.
    fn waits(&self, state: &State) -> Result<Vec<Wait>, ProgramError> {
        let name = |text: &str| {
            Name::new(text).map_err(|error| ProgramError::Evaluation(error.to_string()))
        };

        let mut waits = Vec::new();
        for branch in &state.branches {
            let path = self.definition.path(branch);
            let (kind, wait, until) = match branch.work {
                BranchWork::Task { deadline_ms, .. } => (WaitKind::WorkResult, &*path, deadline_ms),
                BranchWork::Delay { until_ms } => (WaitKind::Timer, &*path, Some(until_ms)),
                // A signal is sent to the step by its name, whatever the round or element.
                BranchWork::Signal { until_ms } => (WaitKind::Event, name_of(&path), until_ms),
                BranchWork::Children { .. } => continue,
            };
            waits.push(Wait::new(kind, name(wait)?, until.map(timestamp)));
        }

        let kind = match state.phase {
            Phase::Compensating => WaitKind::WorkResult,
            Phase::Stuck => WaitKind::Operator,
            _ => return Ok(waits),
        };
        if let Some(last) = state.compensations.last() {
            let path = self.definition.path_at(last.step, &last.indexes);
            waits.push(Wait::new(kind, name(&format!("{COMPENSATE}{path}"))?, None));
        }
        Ok(waits)
    }
}

/// Returns the failure that a transition reports, and records the first one as the cause.
fn reported_failure(
    state: &mut NodeState,
    result: Option<Failure>,
    input: &ProgramInput<'_>,
) -> Option<Box<TransitionFailure>> {
    let reported = |failure: Failure, step: Option<&str>| {
        Box::new(TransitionFailure {
            failure,
            step: step.and_then(|step| Name::new(step).ok()),
        })
    };

    // The first failure is the cause, whatever the compensations report later.
    if state.cause.is_none()
        && let Some(failure) = &state.workflow.failure
    {
        let cause = Cause::of(failure, result.as_ref());
        state.cause = Some(cause.clone());
        let failure = Failure {
            code: cause.code,
            message: cause.message,
        };
        return Some(reported(failure, cause.step.as_deref()));
    }

    match input {
        ProgramInput::WorkResult { tag, .. } => result
            .map(|failure| reported(failure, Some(tag.strip_prefix(COMPENSATE).unwrap_or(tag)))),
        ProgramInput::Cancel { .. } => state.cause.clone().map(|cause| {
            reported(
                Failure {
                    code: cause.code,
                    message: cause.message,
                },
                cause.step.as_deref(),
            )
        }),
        _ => None,
    }
}

/// Returns the changes from one set of timers to another.
fn timer_changes(
    before: &[(String, u64)],
    after: &[(String, u64)],
) -> Result<Vec<TimerChange>, ProgramError> {
    let name =
        |text: &str| Name::new(text).map_err(|error| ProgramError::Evaluation(error.to_string()));

    let mut changes = Vec::new();
    for (path, _) in before {
        let is_ended = after.iter().all(|(other, _)| other != path);
        if is_ended {
            changes.push(TimerChange::Cancel { name: name(path)? });
        }
    }
    for timer in after {
        let (path, due) = timer;
        // A timer with another due time is armed again, which replaces the earlier one.
        if !before.contains(timer) {
            changes.push(TimerChange::Arm {
                name: name(path)?,
                due: timestamp(*due),
            });
        }
    }
    Ok(changes)
}

/// Returns the note of the history entry; `None` if nothing has ended.
fn note(progress: &[Progress]) -> Option<String> {
    let mut notes = Vec::new();
    for event in progress {
        match event {
            Progress::TaskCompleted { step } | Progress::StepCompleted { step } => {
                notes.push(format!("{step}: completed"));
            }
            Progress::TaskFailed { step, .. } => notes.push(format!("{step}: failed")),
            Progress::Compensated { step } => notes.push(format!("{step}: compensated")),
            Progress::CompensationFailed { step, .. } => {
                notes.push(format!("{step}: compensation failed"));
            }
            Progress::Completed => notes.push("completed".to_owned()),
            Progress::Failed(_) => notes.push("failed".to_owned()),
            Progress::Cancelled => notes.push("cancelled".to_owned()),
            Progress::Stuck(_) => notes.push("stuck".to_owned()),
            Progress::TaskStarted { .. }
            | Progress::Waiting { .. }
            | Progress::Compensating { .. } => {}
        }
    }
    (!notes.is_empty()).then(|| notes.join(", "))
}

/// Returns the note of an input after which nothing has ended.
fn label(input: &ProgramInput<'_>) -> String {
    match input {
        ProgramInput::Event(event) => event.kind.to_string(),
        ProgramInput::WorkResult { tag, outcome } => format!("{tag}: {}", outcome.label()),
        ProgramInput::Timer { name } => format!("{name}: due"),
        ProgramInput::Cancel { .. } => "cancelled by request".to_owned(),
        ProgramInput::Retry => "retry".to_owned(),
        ProgramInput::Skip => "compensation skipped".to_owned(),
        ProgramInput::ForceComplete => "force-completed".to_owned(),
    }
}
