//! Commands that inspect and control one node.

pub(crate) mod drain;
pub(crate) mod inspect;
pub(crate) mod log_level;
