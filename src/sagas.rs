//! Saga instances: list, state and history, control requests, overview.

pub(crate) mod api;
pub(crate) mod attempts;
pub(crate) mod cli;
pub(crate) mod pages;
