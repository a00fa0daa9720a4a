//! Creation of stored instances, with the graph of their workflow.

use std::collections::HashSet;
use std::sync::{Arc, Mutex, PoisonError};

use crate::backend::{Backend, NewInstance, StoredInstance};
use crate::definition::Definition;
use crate::outcome::RunError;
use crate::state::State;
use crate::value::encode;

/// Stores new instances. The graph of a workflow is stored once per process, before its first instance.
#[derive(Clone)]
pub(crate) struct Submitter {
    backend: Arc<dyn Backend>,
    /// Hashes of the stored graphs.
    graphs: Arc<Mutex<HashSet<Arc<str>>>>,
}

impl Submitter {
    pub(crate) fn new(backend: Arc<dyn Backend>) -> Self {
        Self { backend, graphs: Arc::default() }
    }

    pub(crate) fn backend(&self) -> &Arc<dyn Backend> {
        &self.backend
    }

    /// Stores an instance; with a holder, it is claimed.
    pub(crate) async fn submit(
        &self,
        definition: &Definition,
        id: &str,
        state: &State,
        holder: Option<Arc<str>>,
    ) -> Result<StoredInstance, RunError> {
        self.store_graph(definition).await?;
        let encoded = state.encode().map_err(|reason| RunError::Value { reason })?;
        let instance = NewInstance {
            id: id.into(),
            workflow: Arc::clone(&definition.name),
            hash: Arc::clone(&definition.hash),
            state: encoded,
            wake_ms: state.next_due_ms().unwrap_or(0),
            holder,
        };
        let stored = StoredInstance {
            id: Arc::clone(&instance.id),
            workflow: Arc::clone(&instance.workflow),
            hash: Arc::clone(&instance.hash),
            epoch: u64::from(instance.holder.is_some()),
            state: instance.state.clone(),
            last_signal: 0,
        };
        if !self.backend.create(instance).await? {
            return Err(RunError::Exists { id: id.to_owned() });
        }
        Ok(stored)
    }

    async fn store_graph(&self, definition: &Definition) -> Result<(), RunError> {
        let graphs = || self.graphs.lock().unwrap_or_else(PoisonError::into_inner);
        if graphs().contains(&definition.hash) {
            return Ok(());
        }
        let graph = encode(&definition.graph).map_err(|reason| RunError::Value { reason })?;
        self.backend.put_graph(&definition.hash, graph).await?;
        graphs().insert(Arc::clone(&definition.hash));
        Ok(())
    }
}
