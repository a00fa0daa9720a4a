//! Names of the built-in sagas, which every node has beside its definitions.

/// Returns whether a saga name belongs to the built-in sagas.
#[must_use]
pub fn is_built_in(saga: &str) -> bool {
    saga.starts_with("orlog.")
}
