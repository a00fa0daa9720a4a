//! Directory: all contexts and actors, parsed from the records of the registry.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use orlog_bus::registry::{Record, RegistryView};
use orlog_model::{ActorId, TenantId};
use serde::de::DeserializeOwned;

use super::actor::{Actor, ActorKey};
use super::context::Context;

/// Prefix of the key of a context, before its tenant.
const CONTEXT: &str = "context.";
/// Prefix of the key of an actor, before its id.
const ACTOR: &str = "actor.";

/// Record with its revision.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stored<T> {
    /// Revision of the record.
    pub revision: u64,
    /// Content; `None` if it cannot be read, for example because a later release wrote it.
    pub value: Option<T>,
}

/// All contexts and actors.
#[derive(Clone, Debug, Default)]
pub struct Directory {
    /// Contexts by tenant.
    pub contexts: BTreeMap<TenantId, Arc<Stored<Context>>>,
    /// Actors by id.
    pub actors: BTreeMap<ActorId, Arc<Stored<Actor>>>,
    /// Actors by the id of each key.
    keys: HashMap<String, ActorId>,
}

impl Directory {
    /// Returns the key of a context in the registry.
    pub(super) fn context_key(tenant: &TenantId) -> String {
        format!("{CONTEXT}{tenant}")
    }

    /// Returns the key of an actor in the registry.
    pub(super) fn actor_key(actor: &ActorId) -> String {
        format!("{ACTOR}{actor}")
    }

    /// Parses the records that differ from those of `last`.
    pub(crate) fn of(view: &RegistryView, last: &Self) -> Self {
        let mut directory = Self::default();
        for (key, record) in &view.records {
            if let Some(tenant) = key.strip_prefix(CONTEXT).and_then(|tenant| TenantId::new(tenant).ok()) {
                let stored = parsed(key, record, last.contexts.get(&tenant));
                directory.contexts.insert(tenant, stored);
            } else if let Some(actor) = key.strip_prefix(ACTOR).and_then(|actor| ActorId::new(actor).ok()) {
                let stored = parsed(key, record, last.actors.get(&actor));
                let keys = stored.value.iter().flat_map(|actor: &Actor| &actor.keys);
                directory.keys.extend(keys.map(|key| (key.id.clone(), actor.clone())));
                directory.actors.insert(actor, stored);
            }
        }
        directory
    }

    /// Returns the actor with a key, and the key, which may have ended.
    #[must_use]
    pub fn find_key(&self, key_id: &str) -> Option<(&ActorId, &ActorKey)> {
        let (id, stored) = self.actors.get_key_value(self.keys.get(key_id)?)?;
        let key = stored.value.as_ref()?.keys.iter().find(|key| key.id == key_id)?;
        Some((id, key))
    }
}

fn parsed<T: DeserializeOwned>(key: &str, record: &Record, last: Option<&Arc<Stored<T>>>) -> Arc<Stored<T>> {
    if let Some(last) = last.filter(|last| last.revision == record.revision) {
        return Arc::clone(last);
    }
    let value = serde_json::from_str(&record.value)
        .inspect_err(|error| tracing::error!(key, %error, "a record of the registry cannot be read; it has no members"))
        .ok();
    Arc::new(Stored { revision: record.revision, value })
}
