//! Stored state of a saga instance: compact MessagePack, one byte for a step that is not in
//! progress.
//!
//! The first field is the format. Format 2 is written; format 1, of sagas without elements,
//! attempts and races, is read.

pub(super) mod canonical;
mod events;
mod format1;
mod run;
mod step_entry;

use orlog_model::count::{Operation, count};
use orlog_model::{CorrelationId, EventType, Name, Timestamp};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::step_state::{Phase, StepState};
use crate::contract::FailureCause;
use crate::contract::ProgramError;
use crate::expression::{Envelope, EventData};
use crate::limits::MAX_PAYLOAD_BYTES;

pub(super) use events::{CollectedEvents, HandlerChild, Reminders};
use format1::Format1;
pub(super) use run::PastRound;
use run::RunState;
pub(super) use step_entry::{StepEntry, StepIndex};

/// Maximum number of characters of the message of a failure after which the saga runs on.
const MAX_FAILURE_MESSAGE: usize = 200;

/// Current format.
const FORMAT: u8 = 2;

/// State of a saga instance between two inputs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct State {
    format: u8,
    pub(super) phase: Phase,
    /// Entries by step, in the order of the definition.
    pub(super) steps: Vec<StepEntry>,
    /// Completed steps that are not compensating, in the order of completion.
    pub(super) done: Vec<StepIndex>,
    pub(super) vars: Map<String, Value>,
    /// Reason why the saga does not run forward.
    pub(super) cause: Option<FailureCause>,
    pub(super) flags: Flags,
    /// Current or failed compensation.
    pub(super) compensating_step: Option<StepIndex>,
    /// Deadline of the whole saga.
    pub(super) until: Option<Timestamp>,
    /// State that most sagas do not need.
    pub(super) extra: Option<Box<OptionalState>>,
    /// State that most runs do not need. It is the last field, because values have no names.
    #[serde(default, skip_serializing_if = "RunState::is_empty")]
    pub(super) run: RunState,
}

/// Returns the values of variables in the stored state of a compiled definition;
/// `None` for each that is missing, and for all if another program wrote the state.
#[must_use]
pub fn stored_variables(state: &[u8], names: &[&str]) -> Vec<Option<Value>> {
    let mut variables = State::variables(state).unwrap_or_default();
    names.iter().map(|name| variables.remove(*name)).collect()
}

/// Flags that are never cleared.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub(super) struct Flags(u8);

impl Flags {
    /// The saga was cancelled: it ends `cancelled` and emits no fact.
    pub(super) const CANCELLED: u8 = 1;
    /// The final fact is emitted.
    pub(super) const FACT_EMITTED: u8 = 2;
    /// Compensation has started.
    pub(super) const COMPENSATION_STARTED: u8 = 4;
    /// The saga is past the pivot.
    pub(super) const PIVOTED: u8 = 8;
    /// All steps are finished.
    pub(super) const COMPLETED: u8 = 16;
    /// An operator force-completed the instance.
    pub(super) const FORCED: u8 = 32;
    /// An event handler completed a saga that stays active, or that waits for child sagas.
    pub(super) const ENDED: u8 = 64;

    pub(super) fn has(self, flag: u8) -> bool {
        self.0 & flag != 0
    }

    pub(super) fn set(&mut self, flag: u8) {
        self.0 |= flag;
    }
}

/// Optional state.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct OptionalState {
    /// Elements by step, for steps that have started.
    pub(super) elements: Vec<(u16, Elements)>,
    /// Results of jobs, by step.
    pub(super) results: Map<String, Value>,
    /// Child sagas in progress, by tag.
    pub(super) children: Vec<(Name, CorrelationId)>,
    /// Escalation times of tasks, by tag.
    pub(super) escalations: Vec<(Name, Timestamp)>,
    /// Rounds by tag, for tags that are not in their first round.
    #[serde(default)]
    pub(super) rounds: Vec<(Name, u64)>,
    /// Events whose steps have not started, in the order of arrival.
    #[serde(default)]
    pub(super) early: Vec<EarlyEvent>,
    /// Failures of steps after which the saga runs on. It is the last field, because states are
    /// read by position.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) failures: Vec<StepFailure>,
}

/// Failure of a step after which the saga runs on.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct StepFailure {
    pub(super) step: u16,
    pub(super) code: String,
    pub(super) message: String,
    pub(super) handled_by: FailureReaction,
    /// Of a step with a handler, and of one with elements, the variables that the step itself
    /// saves: only its `undo` reads them. The steps after it have the variables of the saga.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    pub(super) own_vars: Map<String, Value>,
}

/// Why the saga runs on after a failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum FailureReaction {
    OnTimeout,
    OnFailure,
    /// A join does not need the step.
    Join,
}

/// Event that is kept until its step starts.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct EarlyEvent {
    pub(super) kind: EventType,
    pub(super) data: Value,
    pub(super) expires_at: Timestamp,
    /// Key of the event if its step collects events, otherwise 0.
    #[serde(default)]
    pub(super) key: u64,
    /// Value of `envelope`, if an expression of the definition reads it. It is the last field,
    /// because states are read by position.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) envelope: Option<Value>,
}

impl EarlyEvent {
    pub(super) fn event(&self) -> EventData<'_> {
        EventData {
            data: &self.data,
            envelope: self.envelope.as_ref().map(Envelope::Kept),
        }
    }
}

/// Elements of a step: their values at its start, and their states.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Elements {
    pub(super) list: Vec<Value>,
    pub(super) entries: Vec<StepEntry>,
}

impl State {
    pub(super) fn new(steps: usize) -> Self {
        Self {
            format: FORMAT,
            phase: Phase::Running,
            steps: vec![StepEntry::default(); steps],
            done: Vec::new(),
            vars: Map::new(),
            cause: None,
            flags: Flags::default(),
            compensating_step: None,
            until: None,
            extra: None,
            run: RunState::default(),
        }
    }

    pub(super) fn decode(bytes: &[u8], steps: usize) -> Result<Self, ProgramError> {
        count(Operation::StateDecode);
        let unreadable =
            |error: rmp_serde::decode::Error| ProgramError::InvalidState(error.to_string());

        // The first byte is the header of the array, the second one the format.
        let state: Self = match bytes.get(1) {
            Some(1) => rmp_serde::from_slice::<Format1>(bytes)
                .map_err(unreadable)?
                .into(),
            Some(&FORMAT) => rmp_serde::from_slice(bytes).map_err(unreadable)?,
            Some(other) => {
                return Err(ProgramError::InvalidState(format!(
                    "the state has format {other}; this program reads 1 and {FORMAT}"
                )));
            }
            None => {
                return Err(ProgramError::InvalidState(
                    "the state is too short".to_owned(),
                ));
            }
        };

        if state.steps.len() != steps {
            return Err(ProgramError::InvalidState(format!(
                "the state has {} steps; the definition has {steps}",
                state.steps.len()
            )));
        }

        // `entry` relies on these indices: a damaged state is an error, not a panic.
        match state
            .done
            .iter()
            .chain(&state.compensating_step)
            .find(|at| !state.contains(**at))
        {
            Some(at) => Err(ProgramError::InvalidState(format!(
                "the state refers to {at:?}, which does not exist"
            ))),
            None => Ok(state),
        }
    }

    /// Returns the variables of a stored state of any definition.
    fn variables(bytes: &[u8]) -> Option<Map<String, Value>> {
        Self::read(bytes).map(|state| state.vars)
    }

    /// Returns a stored state of any definition.
    fn read(bytes: &[u8]) -> Option<Self> {
        match bytes.get(1) {
            Some(1) => rmp_serde::from_slice::<Format1>(bytes).ok().map(Into::into),
            Some(&FORMAT) => rmp_serde::from_slice::<Self>(bytes).ok(),
            _ => None,
        }
    }

    fn contains(&self, at: StepIndex) -> bool {
        match at.element {
            None => at.step < self.steps.len(),
            Some(element) => {
                self.elements(at.step)
                    .is_some_and(|e| element < e.entries.len())
                    || self.run.past_entry(at.step, element).is_some()
            }
        }
    }

    pub(super) fn encode(&self) -> Result<Vec<u8>, ProgramError> {
        count(Operation::StateEncode);
        let mut bytes = Vec::with_capacity(256);
        rmp_serde::encode::write(&mut bytes, self)
            .map_err(|error| ProgramError::InvalidState(error.to_string()))?;

        // The input becomes a dead letter: the previous state remains, and smaller inputs still
        // apply.
        if bytes.len() > MAX_PAYLOAD_BYTES {
            let message = format!(
                "the state has {} bytes; the limit is {MAX_PAYLOAD_BYTES}",
                bytes.len()
            );
            return Err(ProgramError::Evaluation(message));
        }
        Ok(bytes)
    }

    /// Returns the elements of a `foreach` step that has started.
    pub(super) fn elements(&self, step: usize) -> Option<&Elements> {
        let elements = &self.extra.as_ref()?.elements;
        elements
            .iter()
            .find(|(of, _)| usize::from(*of) == step)
            .map(|(_, elements)| elements)
    }

    pub(super) fn set_elements(&mut self, step: usize, list: Vec<Value>) {
        let entries = vec![StepEntry::default(); list.len()];
        let all = &mut self.extra_mut().elements;
        all.retain(|(of, _)| usize::from(*of) != step);
        all.push((step_entry::index(step), Elements { list, entries }));
    }

    /// Deletes the elements and the result of a step that is executed again.
    pub(super) fn forget_step(&mut self, step: usize, id: &str) {
        self.done.retain(|at| at.step != step);
        if let Some(extra) = &mut self.extra {
            extra.elements.retain(|(of, _)| usize::from(*of) != step);
            extra.results.remove(id);
        }
    }

    /// Returns the failure of a step after which the saga runs on.
    pub(super) fn failure(&self, step: usize) -> Option<&StepFailure> {
        let failures = &self.extra.as_ref()?.failures;
        failures
            .iter()
            .find(|failure| usize::from(failure.step) == step)
    }

    pub(super) fn add_failure(
        &mut self,
        step: usize,
        cause: &FailureCause,
        handled_by: FailureReaction,
        own_vars: Map<String, Value>,
    ) {
        // The message comes from outside, and an instance can have many of them.
        let message = cause.message.chars().take(MAX_FAILURE_MESSAGE).collect();
        self.extra_mut().failures.push(StepFailure {
            step: step_entry::index(step),
            code: cause.code.clone(),
            message,
            handled_by,
            own_vars,
        });
    }

    /// Returns the variables that a step with a handled failure saves, with its position for
    /// [`PastRound`].
    pub(super) fn own_vars(&self, step: usize) -> Option<(u16, Map<String, Value>)> {
        let failure = self.failure(step)?;
        let has_vars = !failure.own_vars.is_empty();
        has_vars.then(|| (failure.step, failure.own_vars.clone()))
    }

    /// Returns the variables that a step saves for its `undo` only.
    pub(super) fn own_vars_mut(&mut self, step: usize) -> Option<&mut Map<String, Value>> {
        let failures = &mut self.extra.as_mut()?.failures;
        let failure = failures
            .iter_mut()
            .find(|failure| usize::from(failure.step) == step)?;
        // A step with elements has such variables, also if a join tolerates its failure.
        let is_apart = failure.handled_by != FailureReaction::Join || !failure.own_vars.is_empty();
        is_apart.then_some(&mut failure.own_vars)
    }

    /// Deletes the failures of steps that start again.
    pub(super) fn forget_failures(&mut self, steps: &[usize]) {
        if let Some(extra) = &mut self.extra {
            extra
                .failures
                .retain(|failure| !steps.contains(&usize::from(failure.step)));
        }
    }

    pub(super) fn extra_mut(&mut self) -> &mut OptionalState {
        self.extra.get_or_insert_default()
    }

    /// Returns the current round of a tag: 0 is the first.
    pub(super) fn round(&self, tag: &Name) -> u64 {
        let rounds = self.extra.as_ref().map_or(&[][..], |extra| &extra.rounds);
        rounds
            .iter()
            .find(|(of, _)| of == tag)
            .map_or(0, |(_, round)| *round)
    }

    /// Begins the next round of a tag: its next request has another idempotency key.
    pub(super) fn begin_round(&mut self, tag: Name) {
        self.pass_rounds(tag, 1);
    }

    /// Begins a later round of a tag.
    pub(super) fn pass_rounds(&mut self, tag: Name, count: u64) {
        let rounds = &mut self.extra_mut().rounds;
        match rounds.iter_mut().find(|(of, _)| *of == tag) {
            Some((_, round)) => *round += count,
            None => rounds.push((tag, count)),
        }
    }

    pub(super) fn entry(&self, at: StepIndex) -> StepEntry {
        match at.element {
            None => self.steps[at.step],
            Some(element) => match self.run.past_entry(at.step, element) {
                Some(entry) => entry,
                None => {
                    self.elements(at.step)
                        .expect("indices refer to existing elements")
                        .entries[element]
                }
            },
        }
    }

    pub(super) fn entry_mut(&mut self, at: StepIndex) -> &mut StepEntry {
        let Some(element) = at.element else {
            return &mut self.steps[at.step];
        };
        if let Some(past) = self.run.past_entry_mut(at.step, element) {
            return past;
        }

        let elements = &mut self.extra.get_or_insert_default().elements;
        let elements = elements
            .iter_mut()
            .find(|(of, _)| usize::from(*of) == at.step);
        &mut elements
            .expect("indices refer to existing elements")
            .1
            .entries[element]
    }

    /// Returns the past round of a loop to which a unit belongs; `None` for any other unit.
    pub(super) fn past_round_mut(&mut self, at: StepIndex) -> Option<&mut PastRound> {
        self.run.past_round_mut(at.step, at.element?)
    }

    pub(super) fn step_state(&self, step: usize) -> StepState {
        self.steps[step].state
    }

    pub(super) fn results(&self) -> Option<&Map<String, Value>> {
        self.extra.as_ref().map(|extra| &extra.results)
    }
}

impl From<Format1> for State {
    fn from(old: Format1) -> Self {
        let mut flags = Flags::default();
        if old.cancelled {
            flags.set(Flags::CANCELLED);
        }
        if old.announced {
            flags.set(Flags::FACT_EMITTED);
        }

        // Format 1 has no such flags: any other phase implies that compensation has started.
        match old.phase {
            Phase::Running => {}
            Phase::Completed => flags.set(Flags::COMPLETED),
            Phase::Compensating | Phase::Failed | Phase::Cancelled | Phase::Stuck => {
                flags.set(Flags::COMPENSATION_STARTED);
            }
        }
        Self {
            phase: old.phase,
            compensating_step: old
                .steps
                .iter()
                .position(|entry| entry.state.is_compensation())
                .map(StepIndex::step),
            steps: old.steps,
            done: old.done,
            vars: old.vars,
            cause: old.cause,
            flags,
            ..Self::new(0)
        }
    }
}

#[cfg(test)]
mod tests;
