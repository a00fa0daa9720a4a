//! Builder of awaited events: a step that waits for one event, or for several.

use super::action::StepAction;
use super::names::events;
use crate::steps::{Action, EventAction};

impl StepAction {
    /// Creates a wait for an unsolicited event or a signal.
    #[must_use]
    pub fn event(event: &str) -> Self {
        Self::any_event(&[event])
    }

    /// Creates a wait for any of these events.
    #[must_use]
    pub fn any_event(names: &[&str]) -> Self {
        let mut findings = Vec::new();
        let events = events(names, "event", &mut findings);
        Self {
            findings,
            ..Self::new(Ok(Action::Event(EventAction {
                events,
                when: None,
                count: None,
                until: None,
            })))
        }
    }

    /// Waits for this number of events.
    #[must_use]
    pub fn count(self, count: u32) -> Self {
        self.set_event("count", |event| event.count = Some(count))
    }

    /// Waits for events until a condition over `events`, the payloads so far, holds.
    #[must_use]
    pub fn until_events(self, condition: &str) -> Self {
        self.set_event("until", |event| event.until = Some(condition.to_owned()))
    }

    fn set_event(self, field: &'static str, change: impl FnOnce(&mut EventAction)) -> Self {
        self.set(field, |action, _| {
            let Action::Event(event) = action else {
                return false;
            };
            change(event);
            true
        })
    }
}
