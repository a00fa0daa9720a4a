//! Backend in memory: for tests, and for runners that share one process.

use async_trait::async_trait;
use bytes::Bytes;
use parking_lot::Mutex;

use super::table::Table;
use super::{
    Backend, BackendError, Claim, Fetched, Hub, InstanceId, NewInstance, Save, Signal,
    StoredInstance,
};

/// Backend in memory. Its instances are lost with the process.
#[derive(Debug, Default)]
pub struct MemoryBackend {
    table: Mutex<Table>,
    hub: Hub,
}

impl MemoryBackend {
    /// Returns an empty backend.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }
}

#[async_trait]
impl Backend for MemoryBackend {
    async fn create(&self, instance: NewInstance) -> Result<bool, BackendError> {
        Ok(self.table.lock().create(instance, &self.hub))
    }

    async fn load(&self, id: &str) -> Result<Option<StoredInstance>, BackendError> {
        Ok(self.table.lock().load(id))
    }

    async fn save(&self, save: Save) -> Result<(), BackendError> {
        self.table.lock().save(save, &self.hub)
    }

    async fn fetch(&self, limit: usize, now_ms: u64) -> Result<Fetched, BackendError> {
        Ok(self.table.lock().fetch(limit, now_ms))
    }

    async fn claim(
        &self,
        ids: &[InstanceId],
        claim: &Claim,
    ) -> Result<Vec<StoredInstance>, BackendError> {
        Ok(self.table.lock().claim(ids, claim))
    }

    async fn take_over(
        &self,
        id: &str,
        holder: &str,
    ) -> Result<Option<StoredInstance>, BackendError> {
        Ok(self.table.lock().take_over(id, holder))
    }

    async fn extend(
        &self,
        claims: &[(InstanceId, u64)],
        until_ms: u64,
    ) -> Result<Vec<InstanceId>, BackendError> {
        Ok(self.table.lock().extend(claims, until_ms))
    }

    async fn send_signal(
        &self,
        id: &str,
        name: &str,
        payload: Bytes,
    ) -> Result<bool, BackendError> {
        Ok(self.table.lock().send_signal(id, name, payload, &self.hub))
    }

    async fn signals(&self, id: &str, after: u64) -> Result<Vec<Signal>, BackendError> {
        Ok(self.table.lock().signals(id, after))
    }

    async fn unended(
        &self,
        after: Option<&str>,
        limit: usize,
    ) -> Result<Vec<InstanceId>, BackendError> {
        Ok(self.table.lock().unended(after, limit))
    }

    async fn put_graph(&self, hash: &str, graph: Bytes) -> Result<(), BackendError> {
        self.table.lock().graphs.insert(hash.to_owned(), graph);
        Ok(())
    }

    async fn graph(&self, hash: &str) -> Result<Option<Bytes>, BackendError> {
        Ok(self.table.lock().graphs.get(hash).cloned())
    }

    async fn purge(&self, ended_before_ms: u64) -> Result<u64, BackendError> {
        let mut table = self.table.lock();
        let ended = table.ended_before(ended_before_ms);
        for id in &ended {
            table.remove(id);
        }
        Ok(ended.len() as u64)
    }

    fn hub(&self) -> &Hub {
        &self.hub
    }
}
