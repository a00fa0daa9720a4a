//! Saga instances: list, state and history, control requests, overview.

pub mod attempts;
pub(crate) mod pages;
