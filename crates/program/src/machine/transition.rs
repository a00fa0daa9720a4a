//! Execution of one transition: the state and its outputs.

use compact_str::CompactString;
use orlog_model::{Failure, Name, TaskChange, TimerChange, Transition, Work};
use serde_json::Value;

use super::compiled::{CompiledAction, CompiledFact, CompiledSaga, CompiledStep, SAGA_TIMER};
use super::state::{Flags, State, StepIndex};
use super::step_state::{Phase, StepState};
use crate::contract::FailureCause;
use crate::contract::{Context, ProgramError, ProgramInput, ProgramOutput};
use crate::expression::Bindings;
use crate::limits::check_payload;
use crate::template::Template;

/// Transition in progress.
pub(super) struct Execution<'a> {
    pub(super) saga: &'a CompiledSaga,
    pub(super) context: &'a Context<'a>,
    pub(super) state: State,
    pub(super) work: Vec<Work>,
    pub(super) timers: Vec<TimerChange>,
    pub(super) tasks: Vec<TaskChange>,
    pub(super) failure: Option<Failure>,
    note: String,
    /// Timer that caused the transition and needs no cancellation.
    pub(super) fired: Option<String>,
}

/// Result of a program input without a transition.
#[derive(Debug)]
pub(super) enum NoTransition {
    /// Ignored: the input has no effect.
    Ignored(&'static str),
    /// Rejected: the status does not permit it.
    Rejected(&'static str),
    /// The input cannot be applied.
    Error(ProgramError),
}

impl From<ProgramError> for NoTransition {
    fn from(error: ProgramError) -> Self {
        NoTransition::Error(error)
    }
}

impl<'a> Execution<'a> {
    pub(super) fn new(saga: &'a CompiledSaga, context: &'a Context<'a>, state: State) -> Self {
        Self {
            saga,
            context,
            state,
            work: Vec::new(),
            timers: Vec::new(),
            tasks: Vec::new(),
            failure: None,
            note: String::new(),
            fired: None,
        }
    }

    /// Executes the first transition; `vars` are set.
    pub(super) fn start(mut self) -> Result<ProgramOutput, ProgramError> {
        self.add_note("started");
        self.state.until = self.saga.timeout.map(|timeout| self.context.now.saturating_add(timeout));
        if let Some(due) = self.state.until {
            self.timers.push(TimerChange::Arm { name: saga_timer(), due });
        }
        self.advance_to_rest()?;
        self.finish()
    }

    /// Executes a later transition.
    pub(super) fn apply(mut self, input: &ProgramInput<'_>) -> Result<ProgramOutput, ProgramError> {
        match self.change(input) {
            Ok(()) => {
                self.advance_to_rest()?;
                self.finish()
            }
            Err(NoTransition::Ignored(reason)) => Ok(ProgramOutput::Ignored(reason.into())),
            Err(NoTransition::Rejected(reason)) => Ok(ProgramOutput::Rejected(reason.into())),
            Err(NoTransition::Error(error)) => Err(error),
        }
    }

    /// Starts compensation because of an unsupported input.
    pub(super) fn compensate_for(mut self, failure: Failure) -> Result<ProgramOutput, ProgramError> {
        if self.state.phase != Phase::Running {
            return Ok(ProgramOutput::Ignored("the saga no longer runs forward".into()));
        }
        if self.state.flags.has(Flags::PIVOTED) {
            return Err(ProgramError::SchemaMismatch(failure.message));
        }
        self.add_note(&failure.code);
        let Failure { code, message } = failure;
        self.start_compensation(FailureCause { code, message, step: String::new() });
        self.advance_to_rest()?;
        self.finish()
    }

    fn change(&mut self, input: &ProgramInput<'_>) -> Result<(), NoTransition> {
        if self.state.flags.has(Flags::FORCED) {
            return Err(NoTransition::Ignored("the instance was force-completed"));
        }
        match input {
            ProgramInput::Event(event) => {
                let handled = self.run_handlers(event)?;
                match self.match_event(&event.kind, &event.data) {
                    Ok(step_input) => {
                        self.apply_step_input(&step_input).or_else(|reason| reject_unless(handled, reason))
                    }
                    Err(_) if self.keep_early(event)? => Ok(()),
                    Err(reason) => reject_unless(handled, NoTransition::Ignored(reason)),
                }
            }
            ProgramInput::WorkResult { tag, outcome } => {
                let step_input = self.parse_outcome(tag, outcome)?;
                self.apply_step_input(&step_input)
            }
            ProgramInput::Timer { name } => {
                self.fired = Some((*name).to_owned());
                self.on_timer(name)
            }
            ProgramInput::Cancel { reason } => self.cancel(reason),
            ProgramInput::Retry => self.retry(),
            ProgramInput::Skip => self.skip(),
            ProgramInput::ForceComplete => self.force_complete(),
        }
    }

    /// Executes all possible actions, and applies the early events of the steps that they start.
    fn advance_to_rest(&mut self) -> Result<(), ProgramError> {
        self.advance_once()?;
        while self.apply_early() {
            self.advance_once()?;
        }
        self.drop_stale_early();
        Ok(())
    }

    /// Executes all possible actions, forward or backward, and determines the resulting phase.
    ///
    /// While the instance is stuck, no step starts.
    fn advance_once(&mut self) -> Result<(), ProgramError> {
        if self.state.flags.has(Flags::FORCED) || self.enter_stuck_if_blocked() {
            return Ok(());
        }
        if self.state.phase == Phase::Stuck {
            self.rearm_timers();
        }
        let compensation_started = self.state.flags.has(Flags::COMPENSATION_STARTED);
        if !compensation_started && !self.state.flags.has(Flags::COMPLETED) {
            self.advance();
        }
        if self.enter_stuck_if_blocked() {
            return Ok(());
        }
        self.compensate_next();
        if self.enter_stuck_if_blocked() {
            return Ok(());
        }
        self.find_phase()
    }

    /// Returns true if an operator decision is required; then sets the phase to stuck.
    fn enter_stuck_if_blocked(&mut self) -> bool {
        let is_compensation = self
            .state
            .compensating_step
            .is_some_and(|at| self.state.entry(at).state == StepState::CompensationFailed);
        let stuck = is_compensation || (self.state.flags.has(Flags::PIVOTED) && self.blocked().is_some());
        if stuck {
            self.state.phase = Phase::Stuck;
        }
        stuck
    }

    /// Returns the first step or element that failed after the pivot.
    pub(super) fn blocked(&self) -> Option<StepIndex> {
        let mut all = (0..self.saga.steps.len()).flat_map(|step| self.step_and_elements(step));
        all.find(|at| self.state.entry(*at).state == StepState::Blocked)
    }

    fn find_phase(&mut self) -> Result<(), ProgramError> {
        let flags = self.state.flags;
        let compensating = self.state.compensating_step.is_some() || self.has_late_in_doubt();
        if flags.has(Flags::COMPENSATION_STARTED) {
            if compensating {
                self.state.phase = Phase::Compensating;
                return Ok(());
            }
            return self.finish_compensated();
        }
        if compensating {
            let ended = flags.has(Flags::COMPLETED);
            self.state.phase = if ended { Phase::Compensating } else { Phase::Running };
            return Ok(());
        }
        if self.state.steps.iter().all(|entry| entry.state.is_finished()) {
            return self.complete_saga();
        }
        self.state.phase = Phase::Running;
        Ok(())
    }

    /// Returns a step, and its elements if it has some.
    pub(super) fn step_and_elements(&self, step: usize) -> impl Iterator<Item = StepIndex> + use<> {
        let elements = match &self.saga.steps[step].foreach {
            None => 0,
            Some(_) => self.state.elements(step).map_or(0, |elements| elements.entries.len()),
        };
        std::iter::once(StepIndex::step(step))
            .chain((0..elements).map(move |element| StepIndex::element(step, element)))
    }

    /// Returns the units of a step: the step, or each of its elements.
    pub(super) fn units_of(&self, step: usize) -> impl Iterator<Item = StepIndex> + use<> {
        let each = self.saga.steps[step].foreach.is_some();
        self.step_and_elements(step).skip(usize::from(each))
    }

    pub(super) fn step(&self, at: StepIndex) -> &'a CompiledStep {
        &self.saga.steps[at.step]
    }

    /// Returns the action of a step or of its compensation.
    pub(super) fn action_of(&self, at: StepIndex, is_compensation: bool) -> &'a CompiledAction {
        let step = self.step(at);
        match (is_compensation, &step.compensation) {
            (true, Some(action)) => action,
            (true, None) | (false, _) => &step.action,
        }
    }

    /// Returns the tag of the action or of its compensation.
    pub(super) fn tag_of(&self, at: StepIndex, is_compensation: bool) -> Name {
        let tag = &self.action_of(at, is_compensation).tag;
        match at.element {
            None => tag.clone(),
            Some(element) => {
                Name::new(format!("{tag}[{element}]")).expect("step ids reserve space for a number")
            }
        }
    }

    /// Returns the expression variables of a step, without the event.
    pub(super) fn bindings(&self, at: StepIndex) -> Bindings<'_> {
        let bindings = self.saga_bindings();
        match (at.element, &self.saga.steps[at.step].foreach, self.state.elements(at.step)) {
            (Some(element), Some(foreach), Some(elements)) => {
                bindings.element(&foreach.name, &elements.list[element], element)
            }
            (_, _, _) => bindings,
        }
    }

    /// Returns the expression variables of the whole saga.
    pub(super) fn saga_bindings(&self) -> Bindings<'_> {
        let bindings =
            Bindings::new(self.context.key).vars(&self.state.vars).cause(self.state.cause.as_ref());
        bindings.results(self.state.results())
    }

    /// Sets variables from templates over an input.
    pub(super) fn save_vars(
        &mut self,
        templates: &[(String, Template)],
        data: &Value,
    ) -> Result<(), ProgramError> {
        for (name, template) in templates {
            let value = template.evaluate(&self.saga_bindings().event(data));
            let value = value
                .map_err(|error| ProgramError::SchemaMismatch(format!("cannot set vars.{name}: {error}")))?;
            self.state.vars.insert(name.clone(), value);
        }
        Ok(())
    }

    /// Emits a fact about the whole saga.
    pub(super) fn emit_fact(&mut self, fact: Option<&CompiledFact>) -> Result<(), ProgramError> {
        self.state.flags.set(Flags::FACT_EMITTED);
        let Some(fact) = fact else { return Ok(()) };
        let evaluation_error =
            |reason: String| ProgramError::Evaluation(format!("the fact {}: {reason}", fact.kind));
        let data =
            fact.data.evaluate(&self.saga_bindings()).map_err(|error| evaluation_error(error.to_string()))?;
        check_payload(&data).map_err(|large| evaluation_error(large.to_string()))?;
        let key = Some(CompactString::const_new("end"));
        self.work.push(Work::Fact(orlog_model::Fact { kind: fact.kind.clone(), data, key }));
        Ok(())
    }

    pub(super) fn add_step_note(&mut self, at: StepIndex, note: &str) {
        let id = self.step(at).id.as_str();
        match at.element {
            None => self.add_note(&[id, ": ", note].concat()),
            Some(element) => self.add_note(&format!("{id}[{element}]: {note}")),
        }
    }

    pub(super) fn add_note(&mut self, note: &str) {
        if !self.note.is_empty() {
            self.note.push_str(", ");
        }
        self.note.push_str(note);
    }

    pub(super) fn finish(self) -> Result<ProgramOutput, ProgramError> {
        Ok(ProgramOutput::Applied(Box::new(self.into_transition()?)))
    }

    pub(super) fn into_transition(self) -> Result<Transition, ProgramError> {
        Ok(Transition {
            state: self.state.encode()?,
            status: self.state.phase.status(),
            waits: self.waits(),
            reference: self.reference(),
            work: self.work,
            timers: self.timers,
            tasks: self.tasks,
            failure: self.failure,
            note: self.note,
        })
    }

    /// Returns the business reference of the instance; `None` while the expression has no value.
    fn reference(&self) -> Option<String> {
        match self.saga.reference.as_ref()?.evaluate(&self.saga_bindings()).ok()? {
            Value::String(text) => Some(text),
            Value::Number(number) => Some(number.to_string()),
            Value::Null | Value::Bool(_) | Value::Array(_) | Value::Object(_) => None,
        }
    }
}

/// Returns `Ok` if a handler consumed the event, because then there is a transition even if no step
/// awaits the event.
fn reject_unless(handled: bool, reason: NoTransition) -> Result<(), NoTransition> {
    match reason {
        NoTransition::Ignored(_) | NoTransition::Rejected(_) if handled => Ok(()),
        NoTransition::Ignored(_) | NoTransition::Rejected(_) | NoTransition::Error(_) => Err(reason),
    }
}

pub(super) fn saga_timer() -> Name {
    Name::new(SAGA_TIMER).expect("the constant is a valid name")
}
