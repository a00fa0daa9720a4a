//! A step or an element of one, and where it stands, in as few bytes as can be.

use std::fmt;

use orlog_model::Timestamp;
use serde::de::{self, SeqAccess, Visitor};
use serde::ser::SerializeTuple as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::machine::step_state::Mark;

/// A step, or an element of a step that is done for each.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(in crate::machine) struct At {
    pub(in crate::machine) step: usize,
    pub(in crate::machine) element: Option<usize>,
}

impl At {
    pub(in crate::machine) fn step(step: usize) -> Self {
        Self { step, element: None }
    }

    pub(in crate::machine) fn element(step: usize, element: usize) -> Self {
        Self { step, element: Some(element) }
    }
}

/// Where it stands. Stored as the mark alone where there is no more to say.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(in crate::machine) struct Slot {
    pub(in crate::machine) mark: Mark,
    /// When its answer, or that of its undo, or the next attempt is due.
    pub(in crate::machine) until: Option<Timestamp>,
    /// Attempts after the first; of a switch, the case that was taken.
    pub(in crate::machine) again: u32,
}

impl Default for Slot {
    fn default() -> Self {
        Self::of(Mark::Waiting)
    }
}

impl Slot {
    pub(in crate::machine) fn of(mark: Mark) -> Self {
        Self { mark, until: None, again: 0 }
    }
}

/// A place among the steps or elements, as it is stored.
pub(super) fn index(place: usize) -> u16 {
    u16::try_from(place).expect("a saga has at most 1000 steps, and a step at most 1000 elements")
}

impl Serialize for At {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.element {
            None => serializer.serialize_u16(index(self.step)),
            Some(element) => (index(self.step), index(element)).serialize(serializer),
        }
    }
}

impl<'de> Deserialize<'de> for At {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(AtVisitor)
    }
}

struct AtVisitor;

impl<'de> Visitor<'de> for AtVisitor {
    type Value = At;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a step, or a step and an element")
    }

    fn visit_u64<E: de::Error>(self, step: u64) -> Result<At, E> {
        usize::try_from(step).map(At::step).map_err(E::custom)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<At, A::Error> {
        let (step, element) = (seq.next_element::<u16>()?, seq.next_element::<u16>()?);
        match (step, element) {
            (Some(step), Some(element)) => Ok(At::element(step.into(), element.into())),
            (_, _) => Err(de::Error::invalid_length(1, &self)),
        }
    }
}

impl Serialize for Slot {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        if self.until.is_none() && self.again == 0 {
            return self.mark.serialize(serializer);
        }
        let mut tuple = serializer.serialize_tuple(if self.again == 0 { 2 } else { 3 })?;
        tuple.serialize_element(&self.mark)?;
        tuple.serialize_element(&self.until)?;
        if self.again > 0 {
            tuple.serialize_element(&self.again)?;
        }
        tuple.end()
    }
}

impl<'de> Deserialize<'de> for Slot {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(SlotVisitor)
    }
}

struct SlotVisitor;

impl<'de> Visitor<'de> for SlotVisitor {
    type Value = Slot;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a mark, or a mark, a time and a count")
    }

    fn visit_u64<E: de::Error>(self, code: u64) -> Result<Slot, E> {
        let code = u8::try_from(code).map_err(E::custom)?;
        Mark::try_from(code).map(Slot::of).map_err(E::custom)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Slot, A::Error> {
        let mark = seq.next_element()?.ok_or_else(|| de::Error::invalid_length(0, &self))?;
        let until = seq.next_element()?.unwrap_or_default();
        let again = seq.next_element()?.unwrap_or_default();
        Ok(Slot { mark, until, again })
    }
}
