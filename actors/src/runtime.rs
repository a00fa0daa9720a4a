//! API of the running system for the composition root.

pub(crate) mod control_result;
pub(crate) mod gauges;
pub(crate) mod handle;
pub(crate) mod limits;
pub(crate) mod migration;
pub(crate) mod ownership;
pub(crate) mod purge;
pub(crate) mod redrive;
pub(crate) mod replay;
