//! Creation of stored instances, with the graph of their workflow.

use std::sync::Arc;

use foldhash::HashSet;
use parking_lot::Mutex;

use crate::backend::{Backend, InstanceId, NewInstance, StoredInstance};
use crate::definition::Definition;
use crate::outcome::RunError;
use crate::state::State;
use crate::value::encode;

/// Maximum length of the id of an instance, in bytes: notifications and subjects of the backends
/// contain it.
const MAX_ID_BYTES: usize = 512;

/// Stores new instances. The graph of a workflow is stored once per process, before its first
/// instance.
#[derive(Clone)]
pub(crate) struct Submitter {
    backend: Arc<dyn Backend>,
    /// Hashes of the stored graphs.
    graphs: Arc<Mutex<HashSet<Arc<str>>>>,
}

impl Submitter {
    pub(crate) fn new(backend: Arc<dyn Backend>) -> Self {
        Self {
            backend,
            graphs: Arc::default(),
        }
    }

    pub(crate) fn backend(&self) -> &Arc<dyn Backend> {
        &self.backend
    }

    /// Stores an instance; with a holder, it is claimed.
    pub(crate) async fn submit(
        &self,
        definition: &Definition,
        id: &InstanceId,
        state: &State,
        holder: Option<Arc<str>>,
    ) -> Result<StoredInstance, RunError> {
        check_id(id)?;
        self.store_graph(definition).await?;

        // The graph is stored before the first instance that refers to it.
        let encoded = state
            .encode()
            .map_err(|reason| RunError::Value { reason })?;
        let instance = NewInstance {
            id: Arc::clone(id),
            workflow: Arc::clone(&definition.name),
            hash: Arc::clone(&definition.hash),
            state: encoded,
            // Without a due time, a worker still has to look once: the instance may have ended.
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
            return Err(RunError::Exists { id: id.to_string() });
        }
        Ok(stored)
    }

    async fn store_graph(&self, definition: &Definition) -> Result<(), RunError> {
        // Locked for a moment each time: the lock must not be held during the request.
        let graphs = || self.graphs.lock();

        // Once for each process: the backend keeps graphs.
        if graphs().contains(&definition.hash) {
            return Ok(());
        }

        let graph = encode(&definition.graph).map_err(|reason| RunError::Value { reason })?;
        self.backend.put_graph(&definition.hash, graph).await?;

        // Only after the backend has it: a failed request is repeated with the next instance.
        graphs().insert(Arc::clone(&definition.hash));
        Ok(())
    }
}

/// Checks the id of a new instance. A backend stores many instances in one statement, so that one
/// with an id that the backend does not accept would fail the others.
fn check_id(id: &str) -> Result<(), RunError> {
    if id.is_empty() || id.len() > MAX_ID_BYTES || id.chars().any(char::is_control) {
        let shown: String = id.chars().take(40).collect();
        let reason = format!(
            "the id {shown:?} must have 1 to {MAX_ID_BYTES} bytes and no control characters; use \
            another one"
        );
        return Err(RunError::Value { reason });
    }
    Ok(())
}
