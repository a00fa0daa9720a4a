//! Jobs: effects that external workers poll and complete.

pub(crate) mod api;
pub(crate) mod claims;
pub(crate) mod cli;
pub(crate) mod lines;
pub(crate) mod runners;
