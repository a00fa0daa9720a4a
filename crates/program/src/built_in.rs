//! Built-in sagas: programs that every node has, beside its definitions. Their names start with
//! `orlog.`.

pub(crate) mod page;

use orlog_model::EventType;

/// Returns whether a saga name belongs to the built-in sagas.
#[must_use]
pub fn is_built_in(saga: &str) -> bool {
    saga.starts_with("orlog.")
}

/// Returns the type of a signal or fact of a built-in saga.
pub(crate) fn event_type(name: &str) -> EventType {
    EventType::new(name).expect("the name is short")
}
