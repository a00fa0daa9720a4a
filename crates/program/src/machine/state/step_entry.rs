//! Compact encoding of step indices and step entries.

use std::fmt;

use orlog_model::Timestamp;
use serde::de::{self, SeqAccess, Visitor};
use serde::ser::SerializeTuple as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::machine::step_state::StepState;

/// Index of a step, or of an element of a `foreach` step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(in crate::machine) struct StepIndex {
    pub(in crate::machine) step: usize,
    pub(in crate::machine) element: Option<usize>,
}

impl StepIndex {
    pub(in crate::machine) fn step(step: usize) -> Self {
        Self {
            step,
            element: None,
        }
    }

    pub(in crate::machine) fn element(step: usize, element: usize) -> Self {
        Self {
            step,
            element: Some(element),
        }
    }
}

/// Stored entry of a step. Encoded as the state alone if the other fields are empty.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(in crate::machine) struct StepEntry {
    pub(in crate::machine) state: StepState,
    /// Deadline of its result or of its compensation, or time of the next attempt.
    pub(in crate::machine) deadline: Option<Timestamp>,
    /// Attempts after the first; for a switch, the selected case.
    pub(in crate::machine) retries: u32,
    /// Its action or its compensation was requested in this transition. Not stored.
    pub(in crate::machine) is_new: bool,
    /// An operator allows its compensation without the values that it was to save.
    pub(in crate::machine) null_allowed: bool,
}

impl Default for StepEntry {
    fn default() -> Self {
        Self::of(StepState::Pending)
    }
}

impl StepEntry {
    pub(in crate::machine) fn of(step_state: StepState) -> Self {
        Self {
            state: step_state,
            deadline: None,
            retries: 0,
            is_new: false,
            null_allowed: false,
        }
    }

    /// Replaces its time by a constant.
    pub(super) fn clear_time(&mut self) {
        self.deadline = self.deadline.map(|_| Timestamp::default());
    }
}

/// Returns the stored index of a step or an element.
pub(super) fn index(position: usize) -> u16 {
    u16::try_from(position)
        .expect("a saga has at most 1000 steps, and a step at most 1000 elements")
}

impl Serialize for StepIndex {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.element {
            None => serializer.serialize_u16(index(self.step)),
            Some(element) => (index(self.step), index(element)).serialize(serializer),
        }
    }
}

impl<'de> Deserialize<'de> for StepIndex {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        // MessagePack distinguishes a number from an array, so both forms can be read.
        deserializer.deserialize_any(StepIndexVisitor)
    }
}

struct StepIndexVisitor;

impl<'de> Visitor<'de> for StepIndexVisitor {
    type Value = StepIndex;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a step, or a step and an element")
    }

    fn visit_u64<E: de::Error>(self, step: u64) -> Result<StepIndex, E> {
        usize::try_from(step)
            .map(StepIndex::step)
            .map_err(E::custom)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<StepIndex, A::Error> {
        let step = seq.next_element::<u16>()?;
        let element = seq.next_element::<u16>()?;
        match (step, element) {
            (Some(step), Some(element)) => Ok(StepIndex::element(step.into(), element.into())),
            (_, _) => Err(de::Error::invalid_length(1, &self)),
        }
    }
}

impl Serialize for StepEntry {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        // One byte for most steps: only those in progress and switches have more than a state.
        let length = if self.null_allowed {
            4
        } else if self.retries > 0 {
            3
        } else if self.deadline.is_some() {
            2
        } else {
            return self.state.serialize(serializer);
        };

        let mut tuple = serializer.serialize_tuple(length)?;
        tuple.serialize_element(&self.state)?;
        tuple.serialize_element(&self.deadline)?;
        if length > 2 {
            tuple.serialize_element(&self.retries)?;
        }
        if length > 3 {
            tuple.serialize_element(&self.null_allowed)?;
        }
        tuple.end()
    }
}

impl<'de> Deserialize<'de> for StepEntry {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(StepEntryVisitor)
    }
}

struct StepEntryVisitor;

impl<'de> Visitor<'de> for StepEntryVisitor {
    type Value = StepEntry;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a step state, or a step state, a time and a count")
    }

    fn visit_u64<E: de::Error>(self, code: u64) -> Result<StepEntry, E> {
        let code = u8::try_from(code).map_err(E::custom)?;
        StepState::try_from(code)
            .map(StepEntry::of)
            .map_err(E::custom)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<StepEntry, A::Error> {
        let step_state = seq
            .next_element()?
            .ok_or_else(|| de::Error::invalid_length(0, &self))?;
        let deadline = seq.next_element()?.unwrap_or_default();
        let retries = seq.next_element()?.unwrap_or_default();
        let null_allowed = seq.next_element()?.unwrap_or_default();
        Ok(StepEntry {
            deadline,
            retries,
            null_allowed,
            ..StepEntry::of(step_state)
        })
    }
}
