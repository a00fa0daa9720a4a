//! Jobs: effects that external workers poll and complete.

pub(crate) mod api;
pub(crate) mod lines;
