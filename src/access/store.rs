//! Access to the registry: what this node knows of contexts and actors, and their changes.

use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use orlog_bus::embedded::JournalRegistry;
use orlog_bus::registry::{Registry, RegistryView};
use orlog_model::{ActorId, TenantId};
use orlog_store::DurablePosition;
use serde::Serialize;
use tokio::sync::watch;

use super::actor::Actor;
use super::context::Context;
use super::directory::{Directory, Stored};
use crate::auth::{self, ActorKeys, ActorRights, Caller, Right, Roles, TenantScope};

/// Time for which a node that cannot follow the registry decides by its last state.
const MAX_OUTDATED: Duration = Duration::from_secs(10);

/// Contexts and actors of a node.
pub struct AccessRegistry {
    registry: Arc<dyn Registry>,
    /// The registry of this node alone; `None` on NATS.
    local: Option<Arc<JournalRegistry>>,
    view: watch::Receiver<Arc<RegistryView>>,
    /// The last parsed view.
    parsed: RwLock<(Arc<RegistryView>, Arc<Directory>)>,
}

/// Error: this node could not follow the registry for too long, so that it does not know the members of a context.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("this node cannot reach the registry of contexts and actors; try again, or use another node")]
pub struct Outdated;

/// Error of a change.
#[derive(Debug, thiserror::Error)]
pub enum WriteError {
    /// The record has another revision.
    #[error("the record has another revision")]
    Conflict,
    /// The registry is not available.
    #[error(transparent)]
    Registry(#[from] orlog_bus::Error),
}

/// Keys of the actors of the registry, which have no rights but those that the contexts grant.
impl ActorKeys for AccessRegistry {
    fn find(&self, key_id: &str) -> Option<auth::ActorKey> {
        let directory = self.directory();
        let (actor, key) = directory.find_key(key_id)?;
        Some(auth::ActorKey {
            actor: actor.clone(),
            public_key: *key.public_key.as_bytes(),
            not_before: Some(key.valid_from),
            not_after: key.valid_until,
            revoked: key.revoked_at.is_some(),
            rights: ActorRights::new([], [], []),
        })
    }
}

impl AccessRegistry {
    /// Creates the access to a registry; `local` is the same one if it belongs to this node alone.
    pub(crate) fn new(registry: Arc<dyn Registry>, local: Option<Arc<JournalRegistry>>) -> Self {
        let view = registry.view();
        let current = Arc::clone(&view.borrow());
        let directory = Arc::new(Directory::of(&current, &Directory::default()));
        Self { registry, local, view, parsed: RwLock::new((current, directory)) }
    }

    /// Returns all contexts and actors, as this node knows them.
    #[must_use]
    pub fn directory(&self) -> Arc<Directory> {
        let view = Arc::clone(&self.view.borrow());
        {
            let parsed = self.parsed.read().unwrap_or_else(PoisonError::into_inner);
            if Arc::ptr_eq(&parsed.0, &view) {
                return Arc::clone(&parsed.1);
            }
        }
        let mut parsed = self.parsed.write().unwrap_or_else(PoisonError::into_inner);
        if !Arc::ptr_eq(&parsed.0, &view) {
            let directory = Arc::new(Directory::of(&view, &parsed.1));
            *parsed = (view, directory);
        }
        Arc::clone(&parsed.1)
    }

    /// Returns a receiver that changes with every change of a context or an actor.
    pub(crate) fn changes(&self) -> watch::Receiver<Arc<RegistryView>> {
        self.view.clone()
    }

    /// Returns the durable position of the registry; `None` if nothing was written.
    pub(crate) fn durable_position(&self) -> Option<DurablePosition> {
        self.registry.durable_position()
    }

    /// Returns the registry in the data directory; `None` on NATS.
    pub(crate) fn local(&self) -> Option<&JournalRegistry> {
        self.local.as_deref()
    }

    /// Gives a caller its roles in the context of a tenant. Without a record, nothing changes. A caller who is in no list
    /// loses its access to the tenant, except an administrator of the node.
    ///
    /// # Errors
    /// If the caller is a member, but the lists are outdated.
    pub fn enter(&self, caller: &mut Caller, tenant: &TenantId) -> Result<(), Outdated> {
        if caller.tenants == TenantScope::All && caller.roles.allow(Right::Admin) {
            return Ok(());
        }
        let directory = self.directory();
        let Some(stored) = directory.contexts.get(tenant) else { return Ok(()) };
        let granted = stored.value.as_ref().map(|context| context.roles_of(caller)).unwrap_or_default();
        // The response to other callers must not depend on the existence of the context.
        let outdated_since = self.view.borrow().outdated_since;
        if granted != Roles::default() && outdated_since.is_some_and(|since| since.elapsed() > MAX_OUTDATED) {
            return Err(Outdated);
        }
        caller.enter(tenant, granted);
        Ok(())
    }

    /// Writes the record of a context, or removes it, if it has the revision `seen` (0: there is no record).
    ///
    /// # Errors
    /// See [`WriteError`].
    pub async fn put_context(
        &self,
        tenant: &TenantId,
        context: Option<Context>,
        seen: u64,
    ) -> Result<Stored<Context>, WriteError> {
        let revision = self.put(Directory::context_key(tenant), context.as_ref(), seen).await?;
        Ok(Stored { revision, value: context })
    }

    /// Writes the record of an actor, if it has the revision `seen` (0: there is no record).
    ///
    /// # Errors
    /// See [`WriteError`].
    pub async fn put_actor(
        &self,
        id: &ActorId,
        actor: Actor,
        seen: u64,
    ) -> Result<Stored<Actor>, WriteError> {
        let revision = self.put(Directory::actor_key(id), Some(&actor), seen).await?;
        Ok(Stored { revision, value: Some(actor) })
    }

    async fn put(&self, key: String, record: Option<&impl Serialize>, seen: u64) -> Result<u64, WriteError> {
        let text = record.map(|record| serde_json::to_string(record).expect("a record is plain data"));
        let written = self.registry.put(&key, text, seen).await?;
        written.ok_or(WriteError::Conflict)
    }
}
