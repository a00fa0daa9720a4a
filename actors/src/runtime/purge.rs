//! Forgetting what was kept long enough: small changes among all others, and never one of an instance that is live.

use orlog_model::{Change, InstanceKey, TenantId, Timestamp};
use uuid::Uuid;

use crate::runtime::control::ControlError;
use crate::runtime::handle::{Runtime, submit};

impl Runtime {
    /// Forgets an instance that is over and stands at this version, or a bounded part of its history; returns when that is
    /// durable. `false`: it is live, and left alone.
    ///
    /// # Errors
    /// When the shard is not available.
    pub async fn purge_instance(&self, key: InstanceKey, version: u64) -> Result<bool, ControlError> {
        self.forget(&key.clone(), Change::PurgeInstance { key, version }).await
    }

    /// Forgets tasks of an instance that was forgotten; otherwise as [`Runtime::purge_instance`].
    ///
    /// # Errors
    /// When the shard is not available.
    pub async fn purge_tasks(&self, instance: InstanceKey, tasks: Vec<Uuid>) -> Result<bool, ControlError> {
        self.forget(&instance.clone(), Change::PurgeTasks { instance, tasks }).await
    }

    /// Forgets a dead letter of a shard.
    ///
    /// # Errors
    /// When the shard is not available.
    pub async fn purge_dead_letter(
        &self,
        shard: u16,
        tenant: TenantId,
        id: Uuid,
    ) -> Result<(), ControlError> {
        let shard = self.shards.get(shard).ok_or(ControlError::Unavailable)?;
        submit(&shard, Change::DropDeadLetter { tenant, id }).await
    }

    /// Forgets what the feed of a shard says of commits that are too old, as [`Change::TrimFeed`] does.
    ///
    /// # Errors
    /// When the shard is not available.
    pub async fn trim_feed(&self, shard: u16, before: Timestamp, keep: u64) -> Result<(), ControlError> {
        let shard = self.shards.get(shard).ok_or(ControlError::Unavailable)?;
        submit(&shard, Change::TrimFeed { before, keep }).await
    }

    async fn forget(&self, key: &InstanceKey, change: Change) -> Result<bool, ControlError> {
        let shard = self.shards.of(key).ok_or(ControlError::Unavailable)?;
        match shard.directory.forget(key, change)? {
            Some(answer) => answer.await.unwrap_or(Err(ControlError::Unavailable)).map(|_| true),
            None => Ok(false),
        }
    }
}
