//! Events that an instance ignored.

use orlog_actors::IgnoredEvent;
use serde::Serialize;
use utoipa::ToSchema;

use orlog_node::redact::HiddenValues;

/// Event that the instance ignored.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct IgnoredEventView {
    #[serde(rename = "type")]
    kind: String,
    id: String,
    #[schema(format = "date-time")]
    at: String,
    /// Why the event has no effect.
    reason: String,
}

impl IgnoredEventView {
    /// Creates the view. `hidden` are the values that a reason must not quote.
    pub(crate) fn of(event: &IgnoredEvent, hidden: &HiddenValues) -> Self {
        Self {
            kind: event.kind.to_string(),
            id: event.id.to_string(),
            at: event.at.to_string(),
            reason: hidden.remove_from(&event.reason),
        }
    }
}
