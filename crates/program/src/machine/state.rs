//! The state of a saga instance as it is stored: compact MessagePack, a byte for a step that is not under way.
//!
//! The first field is the format. Format 2 is written; format 1, of sagas without elements, attempts and races, is read.

mod format1;
mod step_entry;

use orlog_model::{CorrelationId, Name, Timestamp};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::step_state::{Mark, Phase};
use crate::contract::Cause;
use crate::contract::Fault;
use crate::limits::MAX_PAYLOAD_BYTES;

use format1::Format1;
pub(super) use step_entry::{At, Slot};

/// The format that is written.
const FORMAT: u8 = 2;

/// Everything that is remembered between two inputs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct State {
    format: u8,
    pub(super) phase: Phase,
    /// By step, in the order of the definition.
    pub(super) steps: Vec<Slot>,
    /// What is done and not yet being undone, in the order of completion.
    pub(super) done: Vec<At>,
    pub(super) vars: Map<String, Value>,
    /// Why it does not go forward.
    pub(super) cause: Option<Cause>,
    pub(super) flags: Flags,
    /// What is being undone, or could not be.
    pub(super) undo: Option<At>,
    /// When the whole saga must be over.
    pub(super) until: Option<Timestamp>,
    /// What most sagas do not need.
    pub(super) extra: Option<Box<Extra>>,
}

/// Things that stay true once they are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub(super) struct Flags(u8);

impl Flags {
    /// It was cancelled, so it ends in `cancelled` and tells nobody.
    pub(super) const CANCELLED: u8 = 1;
    /// The final fact is out.
    pub(super) const TOLD: u8 = 2;
    /// It has turned back.
    pub(super) const TURNED: u8 = 4;
    /// It is past the point of no return.
    pub(super) const PIVOTED: u8 = 8;
    /// Every step is over.
    pub(super) const COMPLETED: u8 = 16;
    /// A person ended it as it was.
    pub(super) const FORCED: u8 = 32;

    pub(super) fn has(self, flag: u8) -> bool {
        self.0 & flag != 0
    }

    pub(super) fn set(&mut self, flag: u8) {
        self.0 |= flag;
    }
}

/// What only some sagas need to remember.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Extra {
    /// By step, for those that have begun.
    pub(super) elements: Vec<(u16, Elements)>,
    /// What jobs gave, by step.
    pub(super) results: Map<String, Value>,
    /// Children under way, by tag.
    pub(super) children: Vec<(Name, CorrelationId)>,
    /// When tasks go to others, by tag.
    pub(super) escalations: Vec<(Name, Timestamp)>,
}

/// The elements of a step: their values when it began, and where each stands.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Elements {
    pub(super) list: Vec<Value>,
    pub(super) slots: Vec<Slot>,
}

impl State {
    pub(super) fn new(steps: usize) -> Self {
        Self {
            format: FORMAT,
            phase: Phase::Running,
            steps: vec![Slot::default(); steps],
            done: Vec::new(),
            vars: Map::new(),
            cause: None,
            flags: Flags::default(),
            undo: None,
            until: None,
            extra: None,
        }
    }

    pub(super) fn decode(bytes: &[u8], steps: usize) -> Result<Self, Fault> {
        let unreadable = |error: rmp_serde::decode::Error| Fault::State(error.to_string());
        let state: Self = match bytes.get(1) {
            Some(1) => rmp_serde::from_slice::<Format1>(bytes).map_err(unreadable)?.into(),
            Some(&FORMAT) => rmp_serde::from_slice(bytes).map_err(unreadable)?,
            Some(other) => {
                return Err(Fault::State(format!(
                    "its format is {other}, this program reads 1 and {FORMAT}"
                )));
            }
            None => return Err(Fault::State("it is too short".to_owned())),
        };
        if state.steps.len() != steps {
            return Err(Fault::State(format!(
                "it has {} steps, the definition has {steps}",
                state.steps.len()
            )));
        }
        match state.done.iter().chain(&state.undo).find(|at| !state.knows(**at)) {
            Some(at) => Err(Fault::State(format!("it speaks of {at:?}, which is not there"))),
            None => Ok(state),
        }
    }

    fn knows(&self, at: At) -> bool {
        match at.element {
            None => at.step < self.steps.len(),
            Some(element) => self.elements(at.step).is_some_and(|e| element < e.slots.len()),
        }
    }

    pub(super) fn encode(&self) -> Result<Vec<u8>, Fault> {
        let mut bytes = Vec::with_capacity(256);
        rmp_serde::encode::write(&mut bytes, self).map_err(|error| Fault::State(error.to_string()))?;
        if bytes.len() > MAX_PAYLOAD_BYTES {
            let message =
                format!("the state would be {} bytes, the limit is {MAX_PAYLOAD_BYTES}", bytes.len());
            return Err(Fault::Program(message));
        }
        Ok(bytes)
    }

    /// The elements of a step that has begun to go through them.
    pub(super) fn elements(&self, step: usize) -> Option<&Elements> {
        let elements = &self.extra.as_ref()?.elements;
        elements.iter().find(|(of, _)| usize::from(*of) == step).map(|(_, elements)| elements)
    }

    pub(super) fn set_elements(&mut self, step: usize, list: Vec<Value>) {
        let slots = vec![Slot::default(); list.len()];
        let all = &mut self.extra_mut().elements;
        all.retain(|(of, _)| usize::from(*of) != step);
        all.push((step_entry::index(step), Elements { list, slots }));
    }

    pub(super) fn extra_mut(&mut self) -> &mut Extra {
        self.extra.get_or_insert_default()
    }

    pub(super) fn slot(&self, at: At) -> Slot {
        match at.element {
            None => self.steps[at.step],
            Some(element) => {
                self.elements(at.step).expect("only elements that are there are spoken of").slots[element]
            }
        }
    }

    pub(super) fn slot_mut(&mut self, at: At) -> &mut Slot {
        let Some(element) = at.element else { return &mut self.steps[at.step] };
        let elements = self.extra_mut().elements.iter_mut().find(|(of, _)| usize::from(*of) == at.step);
        &mut elements.expect("only elements that are there are spoken of").1.slots[element]
    }

    pub(super) fn mark(&self, step: usize) -> Mark {
        self.steps[step].mark
    }

    pub(super) fn results(&self) -> Option<&Map<String, Value>> {
        self.extra.as_ref().map(|extra| &extra.results)
    }
}

/// What was not running or completed had turned back.
impl From<Format1> for State {
    fn from(old: Format1) -> Self {
        let mut flags = Flags::default();
        if old.cancelled {
            flags.set(Flags::CANCELLED);
        }
        if old.told {
            flags.set(Flags::TOLD);
        }
        match old.phase {
            Phase::Running => {}
            Phase::Completed => flags.set(Flags::COMPLETED),
            Phase::Compensating | Phase::Failed | Phase::Cancelled | Phase::Stuck => flags.set(Flags::TURNED),
        }
        Self {
            phase: old.phase,
            undo: old.steps.iter().position(|slot| slot.mark.is_undo()).map(At::step),
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
