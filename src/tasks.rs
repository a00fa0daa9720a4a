//! Human tasks: list, claim, assign and complete.

pub(crate) mod api;
pub(crate) mod cli;
