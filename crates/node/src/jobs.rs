//! Jobs: effects that external workers poll and complete.

pub(crate) mod claims;
pub(crate) mod lines;
pub mod runners;
