//! One transition in the making: the state, and what must happen because of it.

use orlog_model::{Failure, Name, TaskChange, TimerChange, Transition, Work};
use serde_json::Value;

use super::compiled::{Fact, SAGA_TIMER, Saga, Step, Task};
use super::state::{At, Flags, State};
use super::step_state::{Mark, Phase};
use crate::contract::Cause;
use crate::contract::{Context, Fault, Reaction, Stimulus};
use crate::expression::Bindings;
use crate::limits::check_payload;
use crate::template::Template;

/// A transition in the making.
pub(super) struct Run<'a> {
    pub(super) saga: &'a Saga,
    pub(super) context: &'a Context<'a>,
    pub(super) state: State,
    pub(super) work: Vec<Work>,
    pub(super) timers: Vec<TimerChange>,
    pub(super) tasks: Vec<TaskChange>,
    pub(super) failure: Option<Failure>,
    note: String,
    /// The timer that led here, which needs no cancelling.
    pub(super) fired: Option<String>,
}

/// A stimulus that leads to no transition.
#[derive(Debug)]
pub(super) enum Unchanged {
    /// That is right.
    Ignored(&'static str),
    /// The status forbids it.
    Refused(&'static str),
    /// It cannot be applied.
    Fault(Fault),
}

impl From<Fault> for Unchanged {
    fn from(fault: Fault) -> Self {
        Unchanged::Fault(fault)
    }
}

impl<'a> Run<'a> {
    pub(super) fn new(saga: &'a Saga, context: &'a Context<'a>, state: State) -> Self {
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

    /// The first transition; `vars` are set.
    pub(super) fn begin(mut self) -> Result<Reaction, Fault> {
        self.say("begun");
        self.state.until = self.saga.timeout.map(|timeout| self.context.now.after(timeout));
        if let Some(due) = self.state.until {
            self.timers.push(TimerChange::Arm { name: saga_timer(), due });
        }
        self.go_on()?;
        self.finish()
    }

    /// Any later one.
    pub(super) fn take(mut self, stimulus: &Stimulus<'_>) -> Result<Reaction, Fault> {
        match self.change(stimulus) {
            Ok(()) => {
                self.go_on()?;
                self.finish()
            }
            Err(Unchanged::Ignored(why)) => Ok(Reaction::Ignored(why.into())),
            Err(Unchanged::Refused(why)) => Ok(Reaction::Refused(why.into())),
            Err(Unchanged::Fault(fault)) => Err(fault),
        }
    }

    /// Turns back because of an input that cannot be taken.
    pub(super) fn turn(mut self, refused: Failure) -> Result<Reaction, Fault> {
        if self.state.phase != Phase::Running {
            return Ok(Reaction::Ignored("the saga no longer goes forward".into()));
        }
        if self.state.flags.has(Flags::PIVOTED) {
            return Err(Fault::Schema(refused.message));
        }
        self.say(&refused.code);
        let Failure { code, message } = refused;
        self.turn_back(Cause { code, message, step: String::new() });
        self.go_on()?;
        self.finish()
    }

    fn change(&mut self, stimulus: &Stimulus<'_>) -> Result<(), Unchanged> {
        if self.state.flags.has(Flags::FORCED) {
            return Err(Unchanged::Ignored("a person ended it as it was"));
        }
        match stimulus {
            Stimulus::Event(event) => {
                let handled = self.handle(event)?;
                match self.wanted(event) {
                    Ok(reading) => self.settle(&reading).or_else(|why| unless(handled, why)),
                    Err(why) => unless(handled, Unchanged::Ignored(why)),
                }
            }
            Stimulus::Outcome { tag, verdict } => {
                let reading = self.outcome(tag, verdict)?;
                self.settle(&reading)
            }
            Stimulus::Timer { name } => {
                self.fired = Some((*name).to_owned());
                self.due(name)
            }
            Stimulus::Cancel { reason } => self.cancel(reason),
            Stimulus::Retry => self.retry(),
            Stimulus::Skip => self.skip(),
            Stimulus::ForceComplete => self.force_complete(),
        }
    }

    /// Does what is to be done now, forward or backward, and finds out where that leaves it.
    ///
    /// While a person must decide, nothing begins.
    pub(super) fn go_on(&mut self) -> Result<(), Fault> {
        if self.state.flags.has(Flags::FORCED) || self.sticks() {
            return Ok(());
        }
        if self.state.phase == Phase::Stuck {
            self.arm_again();
        }
        let turned = self.state.flags.has(Flags::TURNED);
        if !turned && !self.state.flags.has(Flags::COMPLETED) {
            self.advance();
        }
        if self.sticks() {
            return Ok(());
        }
        self.undo_next();
        if self.sticks() {
            return Ok(());
        }
        self.find_phase()
    }

    /// Whether a person must decide; then that is the phase.
    fn sticks(&mut self) -> bool {
        let undo = self.state.undo.is_some_and(|at| self.state.slot(at).mark == Mark::UndoFailed);
        let stuck = undo || (self.state.flags.has(Flags::PIVOTED) && self.blocked().is_some());
        if stuck {
            self.state.phase = Phase::Stuck;
        }
        stuck
    }

    /// The first step or element that failed after the point of no return.
    pub(super) fn blocked(&self) -> Option<At> {
        let mut all = (0..self.saga.steps.len()).flat_map(|step| self.places(step));
        all.find(|at| self.state.slot(*at).mark == Mark::Blocked)
    }

    fn find_phase(&mut self) -> Result<(), Fault> {
        let flags = self.state.flags;
        let undoing = self.state.undo.is_some() || self.asks_late();
        if flags.has(Flags::TURNED) {
            if undoing {
                self.state.phase = Phase::Compensating;
                return Ok(());
            }
            return self.end_compensated();
        }
        if undoing {
            let ended = flags.has(Flags::COMPLETED);
            self.state.phase = if ended { Phase::Compensating } else { Phase::Running };
            return Ok(());
        }
        if self.state.steps.iter().all(|slot| slot.mark.is_over()) {
            return self.complete_saga();
        }
        self.state.phase = Phase::Running;
        Ok(())
    }

    /// A step, and its elements where it has some.
    pub(super) fn places(&self, step: usize) -> impl Iterator<Item = At> + use<> {
        let elements = match &self.saga.steps[step].foreach {
            None => 0,
            Some(_) => self.state.elements(step).map_or(0, |elements| elements.slots.len()),
        };
        std::iter::once(At::step(step)).chain((0..elements).map(move |element| At::element(step, element)))
    }

    /// What stands for itself: the step, or each of its elements.
    pub(super) fn units(&self, step: usize) -> impl Iterator<Item = At> + use<> {
        let each = self.saga.steps[step].foreach.is_some();
        self.places(step).skip(usize::from(each))
    }

    pub(super) fn step(&self, at: At) -> &'a Step {
        &self.saga.steps[at.step]
    }

    /// What is asked for there, or to undo it.
    pub(super) fn task(&self, at: At, undo: bool) -> &'a Task {
        let step = self.step(at);
        match (undo, &step.undo) {
            (true, Some(task)) => task,
            (true, None) | (false, _) => &step.task,
        }
    }

    /// The tag of what is asked for there, or to undo it.
    pub(super) fn tag(&self, at: At, undo: bool) -> Name {
        let tag = &self.task(at, undo).tag;
        match at.element {
            None => tag.clone(),
            Some(element) => {
                Name::new(format!("{tag}[{element}]")).expect("step ids leave room for a number")
            }
        }
    }

    /// What expressions there can speak of, the event aside.
    pub(super) fn bindings(&self, at: At) -> Bindings<'_> {
        let bindings = self.bindings_of_all();
        match (at.element, &self.saga.steps[at.step].foreach, self.state.elements(at.step)) {
            (Some(element), Some(foreach), Some(elements)) => {
                bindings.element(&foreach.name, &elements.list[element], element)
            }
            (_, _, _) => bindings,
        }
    }

    /// What expressions about the whole saga can speak of.
    pub(super) fn bindings_of_all(&self) -> Bindings<'_> {
        let bindings =
            Bindings::new(self.context.key).vars(&self.state.vars).cause(self.state.cause.as_ref());
        bindings.results(self.state.results())
    }

    /// Sets variables from templates over an input.
    pub(super) fn remember(&mut self, templates: &[(String, Template)], data: &Value) -> Result<(), Fault> {
        for (name, template) in templates {
            let value = template.evaluate(&self.bindings_of_all().event(data));
            let value = value.map_err(|error| Fault::Schema(format!("cannot set vars.{name}: {error}")))?;
            self.state.vars.insert(name.clone(), value);
        }
        Ok(())
    }

    /// Emits a fact about the whole saga.
    pub(super) fn tell(&mut self, fact: Option<&Fact>) -> Result<(), Fault> {
        self.state.flags.set(Flags::TOLD);
        let Some(fact) = fact else { return Ok(()) };
        let wrong = |why: String| Fault::Program(format!("the fact {}: {why}", fact.kind));
        let data = fact.data.evaluate(&self.bindings_of_all()).map_err(|error| wrong(error.to_string()))?;
        check_payload(&data).map_err(|large| wrong(large.to_string()))?;
        self.work.push(Work::Fact(orlog_model::Fact { kind: fact.kind.clone(), data }));
        Ok(())
    }

    pub(super) fn note(&mut self, at: At, what: &str) {
        let id = self.step(at).id.as_str();
        match at.element {
            None => self.say(&[id, ": ", what].concat()),
            Some(element) => self.say(&format!("{id}[{element}]: {what}")),
        }
    }

    pub(super) fn say(&mut self, what: &str) {
        if !self.note.is_empty() {
            self.note.push_str(", ");
        }
        self.note.push_str(what);
    }

    pub(super) fn finish(self) -> Result<Reaction, Fault> {
        Ok(Reaction::Applied(Box::new(self.into_transition()?)))
    }

    pub(super) fn into_transition(self) -> Result<Transition, Fault> {
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

    /// What the business calls the instance; nothing while the expression has no value.
    fn reference(&self) -> Option<String> {
        match self.saga.reference.as_ref()?.evaluate(&self.bindings_of_all()).ok()? {
            Value::String(text) => Some(text),
            Value::Number(number) => Some(number.to_string()),
            Value::Null | Value::Bool(_) | Value::Array(_) | Value::Object(_) => None,
        }
    }
}

/// An event that a handler took has changed something, whether or not a step wants it.
fn unless(handled: bool, why: Unchanged) -> Result<(), Unchanged> {
    match why {
        Unchanged::Ignored(_) | Unchanged::Refused(_) if handled => Ok(()),
        Unchanged::Ignored(_) | Unchanged::Refused(_) | Unchanged::Fault(_) => Err(why),
    }
}

pub(super) fn saga_timer() -> Name {
    Name::new(SAGA_TIMER).expect("a short word is a name")
}
