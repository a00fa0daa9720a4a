//! Types of the signals and facts of built-in sagas.

use orlog_model::EventType;

/// Returns the type of a signal or fact.
pub(crate) fn event_type(name: &str) -> EventType {
    EventType::new(name).expect("the names of built-in sagas are short")
}
