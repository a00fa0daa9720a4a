//! Purge of data after its retention, in small changes and never of a live instance.

use orlog_model::{Change, InstanceKey, TenantId, Timestamp};
use uuid::Uuid;

use crate::runtime::control_result::ControlError;
use crate::runtime::handle::{Runtime, submit_change};

impl Runtime {
    /// Purges an ended instance at this version, or a bounded part of its history; returns when the change
    /// is durable. Returns `false` without a change if the instance is live.
    ///
    /// # Errors
    /// If the shard is unavailable.
    pub async fn purge_instance(&self, key: InstanceKey, version: u64) -> Result<bool, ControlError> {
        self.commit_purge(&key.clone(), Change::PurgeInstance { key, version }).await
    }

    /// Purges tasks of a purged instance; otherwise as [`Runtime::purge_instance`].
    ///
    /// # Errors
    /// If the shard is unavailable.
    pub async fn purge_tasks(&self, instance: InstanceKey, tasks: Vec<Uuid>) -> Result<bool, ControlError> {
        self.commit_purge(&instance.clone(), Change::PurgeTasks { instance, tasks }).await
    }

    /// Purges a dead letter of a shard.
    ///
    /// # Errors
    /// If the shard is unavailable.
    pub async fn purge_dead_letter(
        &self,
        shard: u16,
        tenant: TenantId,
        id: Uuid,
    ) -> Result<(), ControlError> {
        let shard = self.shards.get(shard).ok_or(ControlError::Unavailable)?;
        submit_change(&shard, Change::DropDeadLetter { tenant, id }).await
    }

    /// Removes old commits from the change feed of a shard, as [`Change::TrimFeed`] does.
    ///
    /// # Errors
    /// If the shard is unavailable.
    pub async fn trim_feed(
        &self,
        shard: u16,
        before: Timestamp,
        max_commits: u64,
    ) -> Result<(), ControlError> {
        let shard = self.shards.get(shard).ok_or(ControlError::Unavailable)?;
        submit_change(&shard, Change::TrimFeed { before, retained_commits: max_commits }).await
    }

    async fn commit_purge(&self, key: &InstanceKey, change: Change) -> Result<bool, ControlError> {
        let shard = self.shards.owner_of(key).ok_or(ControlError::Unavailable)?;
        match shard.instances.purge(key, change)? {
            Some(response) => response.await.unwrap_or(Err(ControlError::Unavailable)).map(|_| true),
            None => Ok(false),
        }
    }
}
