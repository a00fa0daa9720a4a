//! Canonical form of stored states, for comparisons.

use orlog_model::Timestamp;
use serde_json::Value;

use super::{State, StepEntry};
use crate::contract::FailureCause;

/// Returns a stored state without its times, versions, the numbers in idempotency keys, the ids of early events and the
/// texts of the failure; `None` if another program wrote it. Two states with the same result decide every later input alike, except for the
/// values of these fields.
#[must_use]
pub fn canonical_state(state: &[u8]) -> Option<Vec<u8>> {
    let mut state: State = State::read(state)?;
    state.until = state.until.map(|_| Timestamp::default());
    state.steps.iter_mut().for_each(StepEntry::clear_time);
    state.run.clear_times();
    if let Some(cause) = &mut state.cause {
        *cause = FailureCause::default();
    }
    if let Some(extra) = &mut state.extra {
        extra
            .elements
            .iter_mut()
            .flat_map(|(_, elements)| &mut elements.entries)
            .for_each(StepEntry::clear_time);
        extra.escalations.iter_mut().for_each(|(_, at)| *at = Timestamp::default());
        for event in &mut extra.early {
            event.expires_at = Timestamp::default();
            if let Some(envelope) = event.envelope.as_mut().and_then(Value::as_object_mut) {
                envelope.retain(|name, _| !matches!(name.as_str(), "id" | "time"));
            }
        }
        extra.rounds.clear();
    }
    state.encode().ok()
}
