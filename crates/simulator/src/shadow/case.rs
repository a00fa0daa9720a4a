//! Case and result of a comparison.

use orlog_model::{Event, Input, Instance, InstanceKey, Timestamp};
use orlog_program::Program;
use serde_json::Value;

/// Maximum number of timers that only the candidate has and that fire.
pub(super) const MAX_OWN_TIMERS: usize = 1_000;

/// Recorded instance and the definitions that are compared.
pub struct ShadowCase<'a> {
    /// Key of the instance.
    pub key: &'a InstanceKey,
    /// Instance as it is stored after the last input.
    pub instance: &'a Instance,
    /// All inputs of the instance in the order of its transitions, with their times.
    pub inputs: &'a [(Timestamp, Input)],
    /// Events of the instance that only the candidate consumes, in order.
    pub additional: &'a [(Timestamp, Event)],
    /// Definition of the instance.
    pub live: &'a dyn Program,
    /// Definition to compare with.
    pub candidate: &'a dyn Program,
}

/// Result of a comparison.
#[derive(Clone, Debug, PartialEq)]
pub enum Comparison {
    /// The candidate behaves like the live definition.
    Equal,
    /// The candidate behaves differently.
    Different(Vec<Difference>),
    /// The instance cannot be compared, with the reason.
    Skipped(&'static str),
}

/// Difference between the live instance and the candidate.
#[derive(Clone, Debug, PartialEq)]
pub struct Difference {
    /// Kind, equal for the same difference of other instances: `step charge: payload of
    /// payments.charge differs at .amount`.
    pub kind: String,
    /// Names of the fields that contain the values.
    pub path: Vec<String>,
    /// Value of the live instance, if it has one.
    pub live: Option<Value>,
    /// Value of the candidate, if it has one.
    pub candidate: Option<Value>,
}

impl Difference {
    pub(super) fn new(
        kind: impl Into<String>,
        live: Option<Value>,
        candidate: Option<Value>,
    ) -> Self {
        Self {
            kind: kind.into(),
            path: Vec::new(),
            live,
            candidate,
        }
    }
}
