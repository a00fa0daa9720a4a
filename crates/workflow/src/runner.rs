//! Runners: three ways to execute the same workflow.

mod checkpointing;
mod claims;
mod in_process;
mod pooled;

pub use self::checkpointing::{CheckpointingRunner, Resumed};
pub use self::in_process::InProcessRunner;
pub use self::pooled::{PooledWorker, WorkerHandle};
