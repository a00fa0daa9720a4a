//! Replicated log of a shard: commits, snapshots and takeover.

pub(crate) mod commit_log;
pub(crate) mod delta;
pub(crate) mod follower;
pub(crate) mod frame;
pub(crate) mod log_writer;
pub(crate) mod metrics;
pub(crate) mod open;
pub(crate) mod snapshot;
