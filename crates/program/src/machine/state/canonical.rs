//! Canonical form of stored states, for comparisons.

use orlog_model::Timestamp;
use serde_json::Value;

use super::{Flags, State, StepEntry};
use crate::contract::FailureCause;
use crate::machine::step_state::StepState;

/// Returns the canonical form of a stored state; `None` if another program wrote it. Two states
/// with the same form decide every later input alike, except for the values of the fields that it
/// omits:
///
/// - times, versions, the keys and the ids of events, the numbers in idempotency keys, the numbers
///   of reminders and the texts of the failure;
/// - attempts of steps that are not requested again, and the difference between a failed and an
///   abandoned step if the saga does not run forward: only a timeout of pending work distinguishes
///   them;
/// - variables that are not live. `is_live` receives the name of a variable, and whether the saga
///   runs forward.
#[must_use]
pub fn canonical_state(state: &[u8], is_live: impl Fn(&str, bool) -> bool) -> Option<Vec<u8>> {
    let mut state: State = State::read(state)?;
    let forward =
        !state.flags.has(Flags::COMPENSATION_STARTED) && !state.flags.has(Flags::COMPLETED);
    state.vars.retain(|name, _| is_live(name, forward));

    let compensates = state.flags.has(Flags::COMPENSATION_STARTED);
    let clear_entry = |entry: &mut StepEntry| {
        entry.clear_time();
        match entry.state {
            StepState::Failed if compensates => *entry = StepEntry::of(StepState::Abandoned),
            StepState::Failed
            | StepState::Abandoned
            | StepState::CompensationPending
            | StepState::Compensated => entry.retries = 0,
            _ => {}
        }
    };

    state.until = state.until.map(|_| Timestamp::default());
    state.steps.iter_mut().for_each(clear_entry);
    state.run.clear_times();

    if let Some(cause) = &mut state.cause {
        *cause = FailureCause::default();
    }

    if let Some(extra) = &mut state.extra {
        extra
            .elements
            .iter_mut()
            .flat_map(|(_, elements)| &mut elements.entries)
            .for_each(clear_entry);
        extra
            .escalations
            .iter_mut()
            .for_each(|(_, at)| *at = Timestamp::default());

        for event in &mut extra.early {
            event.expires_at = Timestamp::default();
            event.key = event.key.min(1);
            if let Some(envelope) = event.envelope.as_mut().and_then(Value::as_object_mut) {
                envelope.retain(|name, _| !matches!(name.as_str(), "id" | "time"));
            }
        }
        for failure in &mut extra.failures {
            failure.code.clear();
            failure.message.clear();
            // Only compensations read them.
            failure.own_vars.retain(|name, _| is_live(name, false));
        }
        // The rounds only number idempotency keys, which no decision reads.
        extra.rounds.clear();
    }

    state.encode().ok()
}
