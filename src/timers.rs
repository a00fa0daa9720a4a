//! Timers of instances by due time.

pub(crate) mod api;
pub(crate) mod cli;
