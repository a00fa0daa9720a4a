//! Events and identifiers as Rust types.

use serde::{Deserialize, Serialize};

use crate::error::TaskError;
use crate::value::Data;

/// Event as a Rust type.
pub trait Event: Data {
    /// Type of the event, for example `OrderPlaced`.
    const TYPE: &'static str;
}

/// Identifier that all events of one instance share: its correlation id on a node.
pub trait Identifier: Sized {
    /// Field of the identifier in the start event, a path with dots.
    const FIELD: &'static str;

    /// Returns the identifier as text, at most 256 bytes.
    fn text(&self) -> String;

    /// Returns the identifier of a text of [`Identifier::text`].
    ///
    /// # Errors
    /// If the text is no identifier.
    fn from_text(text: &str) -> Result<Self, String>;
}

/// Start event: the input of a workflow.
pub trait Trigger: Event {
    /// Type of the identifier.
    type Id: Identifier;

    /// Returns the identifier of the instance.
    fn id(&self) -> Self::Id;
}

/// Failure event of a step that cannot fail by decision.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum NoFailure {}

impl Event for NoFailure {
    const TYPE: &'static str = "";
}

impl TaskError {
    /// Returns a permanent error that is an event. Its `message` or `reason` is the message of the
    /// error.
    pub fn event<E: Event>(event: &E) -> Self {
        let data = match serde_json::to_value(event) {
            Ok(data) => data,
            Err(error) => return Self::permanent(format!("{} has no JSON form: {error}", E::TYPE)),
        };

        // Failure events mostly have their text in one of these fields.
        let reason = ["message", "reason"]
            .iter()
            .find_map(|field| data.get(field)?.as_str());

        let message = reason.unwrap_or(E::TYPE).to_owned();
        Self::with_event(message, E::TYPE, data)
    }
}
