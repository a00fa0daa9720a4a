//! Execution of one transition: the state and its outputs.

use compact_str::CompactString;
use orlog_model::{Fact, Name, TaskChange, TimerChange, VariableChange, Work};
use serde_json::Value;

use super::compiled::{
    COMPENSATE, CompiledAction, CompiledFact, CompiledSaga, CompiledStep, EventBinding, RETRY,
    SAGA_TIMER, prefixed_name,
};
use super::state::{Flags, State, StepIndex};
use super::step_state::StepState;
use crate::contract::{Context, FailureCause, ProgramError};
use crate::expression::{Bindings, EvalError, EventData, Expression};
use crate::limits::check_payload;
use crate::steps::element_tag;
use crate::template::Template;

/// Events of a step that has collected none.
static NO_EVENTS: Value = Value::Array(Vec::new());

/// Transition in progress.
pub(super) struct Execution<'a> {
    pub(super) saga: &'a CompiledSaga,
    pub(super) context: &'a Context<'a>,
    pub(super) state: State,
    pub(super) work: Vec<Work>,
    pub(super) timers: Vec<TimerChange>,
    pub(super) tasks: Vec<TaskChange>,
    pub(super) failure: Option<FailureCause>,
    pub(super) variables: Vec<VariableChange>,
    pub(super) note: String,
    /// Timer that caused the transition and needs no cancellation.
    pub(super) fired: Option<CompactString>,
    /// Tag of the work whose result caused the transition.
    pub(super) settles: Option<CompactString>,
    /// Whether the transition begins a run of the instance, the first or a later one.
    pub(super) begins_run: bool,
    /// Position in the work at which a later run begins.
    pub(super) new_run: Option<usize>,
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
            variables: Vec::new(),
            note: String::new(),
            fired: None,
            settles: None,
            begins_run: false,
            new_run: None,
        }
    }

    /// Returns the first step or element that failed after the pivot.
    pub(super) fn blocked(&self) -> Option<StepIndex> {
        let mut all = (0..self.saga.steps.len()).flat_map(|step| self.step_and_elements(step));
        all.find(|at| self.state.entry(*at).state == StepState::Blocked)
    }

    /// Returns a step, and its elements or past rounds if it has some.
    pub(super) fn step_and_elements(&self, step: usize) -> impl Iterator<Item = StepIndex> + use<> {
        let compiled = &self.saga.steps[step];

        // The iterator borrows nothing, so that a caller can change the state for each unit.
        let elements = match &compiled.foreach {
            None => 0,
            Some(_) => self
                .state
                .elements(step)
                .map_or(0, |elements| elements.entries.len()),
        };

        // A past round is numbered like an element, so that all loops over units include it (ADR
        // 0064).
        let past = compiled
            .in_loop
            .map_or_else(Vec::new, |end| self.state.run.past_rounds_of(end, step));

        std::iter::once(StepIndex::step(step)).chain(
            (0..elements)
                .chain(past)
                .map(move |element| StepIndex::element(step, element)),
        )
    }

    /// Returns the units of a step: the step and its past rounds, or each of its elements.
    pub(super) fn units_of(&self, step: usize) -> impl Iterator<Item = StepIndex> + use<> {
        // The entry of a `foreach` step has no request of its own: only its elements are units.
        let each = self.saga.steps[step].foreach.is_some();
        self.step_and_elements(step).skip(usize::from(each))
    }

    /// Returns the steps that a loop repeats.
    pub(super) fn steps_of_loop(&self, end: usize) -> impl Iterator<Item = usize> + use<'a> {
        let steps = self.saga.steps.iter().enumerate();
        steps
            .filter(move |(_, step)| step.in_loop == Some(end))
            .map(|(index, _)| index)
    }

    /// Returns the number of the element or of the round.
    fn number(&self, at: StepIndex) -> Option<usize> {
        // An index without an element is the current round if the step belongs to a loop.
        at.element
            .or_else(|| Some(self.state.run.loop_round(self.saga.steps[at.step].in_loop?)))
    }

    pub(super) fn step(&self, at: StepIndex) -> &'a CompiledStep {
        &self.saga.steps[at.step]
    }

    /// Returns the action of a step or of its compensation.
    pub(super) fn action_of(&self, at: StepIndex, is_compensation: bool) -> &'a CompiledAction {
        let step = self.step(at);
        // Only a step with a compensation is ever compensating, so the fallback is not reached.
        match (is_compensation, &step.compensation) {
            (true, Some(action)) => action,
            (true, None) | (false, _) => &step.action,
        }
    }

    /// Returns the tag of the action or of its compensation.
    pub(super) fn tag_of(&self, at: StepIndex, is_compensation: bool) -> Name {
        let tag = &self.action_of(at, is_compensation).tag;
        match self.number(at) {
            None => tag.clone(),
            Some(number) => element_tag(tag, number),
        }
    }

    /// Returns whether the result of the action is a dead letter, so that no other result follows.
    pub(super) fn has_unapplied_result(&self, at: StepIndex) -> bool {
        self.context
            .pending_work
            .iter()
            .any(|work| work.dead_letter.is_some() && work.tag == self.tag_of(at, false))
    }

    /// Returns the expression variables of a step, without the event.
    pub(super) fn bindings(&self, at: StepIndex) -> Bindings<'_> {
        let step = &self.saga.steps[at.step];
        let mut bindings = self.saga_bindings().step(step.id.as_str());

        // The list is empty, not missing, before the first event, so that a condition has a value.
        if step.action.kind.collection().is_some() {
            let collected = self.state.run.events.collected(&self.tag_of(at, false));
            bindings = bindings.events(collected.map_or(&NO_EVENTS, |collected| &collected.data));
        }

        // After a handled failure, only the compensation of the step evaluates them.
        let own_vars = self.state.failure(at.step).map(|failure| &failure.own_vars);
        if let Some(round) = self.number(at).filter(|_| step.in_loop.is_some()) {
            // The compensation of a past round reads the values that this round had (ADR 0064).
            let past = at
                .element
                .and_then(|round| self.state.run.past_round(at.step, round));
            let bindings = bindings.round(round);
            return match past {
                Some(past) => bindings
                    .replaced_vars(Some(&past.vars))
                    .replaced_vars(past.own_vars(at.step))
                    .replaced_results(&past.results),
                None => bindings.replaced_vars(own_vars),
            };
        }

        bindings = bindings.replaced_vars(own_vars);
        match (at.element, &step.foreach, self.state.elements(at.step)) {
            (Some(element), Some(foreach), Some(elements)) => {
                bindings.element(&foreach.name, &elements.list[element], element)
            }
            // The step that ends a loop is no part of its body; its condition reads the round that
            // ends.
            (_, _, _) if step.action.kind.repeat().is_some() => {
                bindings.round(self.state.run.loop_round(at.step))
            }
            (_, _, _) => bindings,
        }
    }

    /// Returns the expression variables of the whole saga.
    pub(super) fn saga_bindings(&self) -> Bindings<'_> {
        let bindings = Bindings::new(self.context.key)
            .vars(&self.state.vars)
            .cause(self.state.cause.as_ref());
        bindings.results(self.state.results())
    }

    /// Sets variables from templates over an input.
    pub(super) fn save_vars(
        &mut self,
        templates: &[(String, Template)],
        event: EventData<'_>,
    ) -> Result<(), ProgramError> {
        for (name, template) in templates {
            // The bindings are created for each template: it can read the variables that were set
            // before it.
            let value = template.evaluate(&self.saga_bindings().event(event));
            let value = value.map_err(|error| {
                ProgramError::SchemaMismatch(format!("cannot set vars.{name}: {error}"))
            })?;

            let before = self
                .state
                .vars
                .insert(name.clone(), value.clone())
                .unwrap_or_default();
            self.variables.push(VariableChange {
                name: name.into(),
                before,
                after: value,
            });
        }
        Ok(())
    }

    /// Emits a fact about the whole saga.
    pub(super) fn emit_fact(&mut self, fact: Option<&CompiledFact>) -> Result<(), ProgramError> {
        // Set also without a declared fact: a later end, after a late success, must not count as
        // the first.
        self.state.flags.set(Flags::FACT_EMITTED);
        let Some(fact) = fact else { return Ok(()) };

        let evaluation_error =
            |reason: String| ProgramError::Evaluation(format!("the fact {}: {reason}", fact.kind));
        let data = fact
            .data
            .evaluate(&self.saga_bindings())
            .map_err(|error| evaluation_error(error.to_string()))?;
        // Each variable is within the limit, but a fact can contain several of them.
        check_payload(&data).map_err(|large| evaluation_error(large.to_string()))?;

        // The final fact has one id for each run, whatever input ends it (ADR 0015).
        let key = Some(CompactString::const_new("end"));
        self.work.push(Work::Fact(Fact {
            key,
            ..Fact::new(fact.kind.clone(), data)
        }));
        Ok(())
    }

    pub(super) fn add_step_note(&mut self, at: StepIndex, note: &str) {
        let id = self.step(at).id.as_str();
        match self.number(at) {
            None => self.add_note(&[id, ": ", note].concat()),
            Some(number) => self.add_note(&format!("{id}[{number}]: {note}")),
        }
    }

    pub(super) fn add_note(&mut self, note: &str) {
        if !self.note.is_empty() {
            self.note.push_str(", ");
        }
        self.note.push_str(note);
    }

    /// Returns true if the condition of a binding holds at a step.
    pub(super) fn satisfies(
        &self,
        at: StepIndex,
        entry: EventBinding,
        event: EventData<'_>,
    ) -> Result<bool, EvalError> {
        let action = self.action_of(at, entry.is_compensation);
        let matchers = if entry.is_success {
            &action.options.ok
        } else {
            &action.options.fail
        };
        let holds = self.holds(at, matchers[entry.index].when.as_ref(), event)?;

        // An event from which `until` has no value must not count: it would have none with each
        // later event, too.
        if holds
            && entry.is_success
            && !entry.is_compensation
            && let Some(until) = action.kind.collection().and_then(|of| of.until.as_ref())
        {
            let events = self.events_with(at, event);
            until.holds(&self.bindings(at).events(&events).event(event))?;
        }
        Ok(holds)
    }

    /// Returns the payloads that a step has collected, with a further one.
    fn events_with(&self, at: StepIndex, event: EventData<'_>) -> Value {
        let collected = self.state.run.events.collected(&self.tag_of(at, false));
        let mut events = match collected.map(|collected| &collected.data) {
            Some(Value::Array(events)) => events.clone(),
            Some(_) | None => Vec::new(),
        };
        events.push(event.data.clone());
        Value::Array(events)
    }

    /// Returns true if a condition over a result holds at a step; no condition always holds.
    pub(super) fn holds(
        &self,
        at: StepIndex,
        when: Option<&Expression>,
        event: EventData<'_>,
    ) -> Result<bool, EvalError> {
        when.map_or(Ok(true), |when| when.holds(&self.bindings(at).event(event)))
    }

    /// Returns the step or element of a tag, and whether the tag is that of its compensation.
    pub(super) fn step_of_tag(&self, tag: &str) -> Option<(StepIndex, bool)> {
        // The tags of the compensations of rounds and elements have the number at the end, too.
        let (is_compensation, rest) = tag
            .strip_prefix(COMPENSATE)
            .map_or((false, tag), |rest| (true, rest));
        let (id, element) = match rest.strip_suffix(']').and_then(|rest| rest.split_once('[')) {
            Some((id, number)) => (id, Some(number.parse::<usize>().ok()?)),
            None => (rest, None),
        };

        let step = self.saga.find(id)?;
        let element = match self.saga.steps[step].in_loop {
            // The entry of the current round is that of the step.
            Some(end) => Some(element?).filter(|round| *round != self.state.run.loop_round(end)),
            None => element,
        };

        // A late result can name an element or a round that the state does not have any more.
        let at = StepIndex { step, element };
        let there = self.units_of(at.step).any(|unit| unit == at);
        (there && (!is_compensation || self.step(at).compensation.is_some()))
            .then_some((at, is_compensation))
    }

    /// Returns the timer name of a step or element in this state.
    pub(super) fn timer_name(&self, at: StepIndex, step_state: StepState) -> Name {
        let tag = self.tag_of(at, step_state.is_compensation());
        if matches!(
            step_state,
            StepState::Retrying | StepState::CompensationRetrying
        ) {
            prefixed_name(RETRY, &tag)
        } else {
            tag
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
}

pub(super) fn saga_timer() -> Name {
    Name::new(SAGA_TIMER).expect("the constant is a valid name")
}
