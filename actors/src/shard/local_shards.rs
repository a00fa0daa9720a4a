//! Handle of the shards of this process, for parts that are built before the runtime.

use std::sync::{Arc, Weak};

use orlog_model::{ControlRequest, Input, InstanceKey};
use orlog_store::Reader;

use crate::instance::completion::{ControlError, ControlResult};
use crate::shard::running::{RunningShards, WorkObstacle};

/// Reads the stores of the running shards, and sends control requests to their instances.
///
/// A provider of effects can own the handle: it does not keep the shards, which own the providers.
/// Without a runtime, before its start and after its end, no shard runs.
#[derive(Clone)]
pub struct LocalShards(Weak<RunningShards>);

impl LocalShards {
    /// Returns a handle of these shards.
    #[must_use]
    pub fn of(shards: &Arc<RunningShards>) -> Self {
        Self(Arc::downgrade(shards))
    }

    /// Sends a control request to one instance; returns when the consequences are durable.
    ///
    /// # Errors
    /// If the instance does not exist, its status does not permit the request, or its shard is
    /// unavailable.
    pub async fn control(
        &self,
        key: &InstanceKey,
        control: ControlRequest,
    ) -> Result<ControlResult, ControlError> {
        let shards = self.0.upgrade().ok_or(ControlError::Unavailable)?;
        shards.deliver(key, Input::Control(control), None).await
    }

    /// Checks that this process takes new work.
    ///
    /// # Errors
    /// The reason why it takes none.
    pub fn check_takes_work(&self) -> Result<(), WorkObstacle> {
        let shards = self.0.upgrade().ok_or(WorkObstacle::Draining)?;
        shards.check_takes_work()
    }

    /// Returns whether a shard runs in this process.
    #[must_use]
    pub fn runs(&self, shard: u16) -> bool {
        self.0
            .upgrade()
            .is_some_and(|shards| shards.get(shard).is_some())
    }

    /// Returns the store reader of the shard of an instance; `None` if another process owns it.
    #[must_use]
    pub fn reader(&self, key: &InstanceKey) -> Option<Reader> {
        let shard = self.0.upgrade()?.owner_of(key)?;
        Some(shard.reader.clone())
    }

    /// Returns the store readers of all shards of this process with their numbers, ordered by
    /// number.
    pub fn numbered_readers(&self) -> impl Iterator<Item = (u16, Reader)> {
        let shards = self.0.upgrade().map(|shards| shards.all());
        let shards = shards.unwrap_or_default().into_iter();
        shards.map(|shard| (shard.index, shard.reader.clone()))
    }
}
