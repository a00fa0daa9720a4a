//! What a module is not asked about.

use super::manifest::Declared;
use crate::contract::Stimulus;

/// Why a stimulus means nothing to the program, where that is known without running the module.
pub(super) fn of(declared: &Declared, state: Option<&[u8]>, stimulus: &Stimulus<'_>) -> Option<&'static str> {
    let starts = match stimulus {
        Stimulus::Event(event) => match declared.events.get(&event.kind) {
            None => return Some("the saga does not take this event"),
            Some(taken) => taken.starts,
        },
        Stimulus::Outcome { .. }
        | Stimulus::Timer { .. }
        | Stimulus::Cancel { .. }
        | Stimulus::Retry
        | Stimulus::Skip
        | Stimulus::ForceComplete => false,
    };
    (state.is_none() && !starts).then_some("there is no instance, and this does not begin one")
}
