//! Events that an instance ignored.

use orlog_actors::IgnoredEvent;
use serde::Serialize;
use utoipa::ToSchema;

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
    pub(crate) fn of(event: &IgnoredEvent) -> Self {
        Self {
            kind: event.kind.to_string(),
            id: event.id.to_string(),
            at: event.at.to_string(),
            reason: event.reason.clone(),
        }
    }
}
