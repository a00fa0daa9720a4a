//! Active definitions by their owner: the shared ones, and those of each context.

use std::collections::BTreeMap;
use std::sync::Arc;

use orlog_model::{Deployment, TenantId};
use orlog_program::Program;

use super::files::LoadedDefinition;

/// Active definitions of one owner, and their deployment.
#[derive(Clone, Default)]
pub struct OwnedDefinitions {
    /// Definitions, sorted by name.
    pub definitions: Arc<[LoadedDefinition]>,
    /// Deployment; `None` if nothing was deployed yet.
    pub deployment: Option<Arc<Deployment>>,
}

/// Active definitions of all owners.
#[derive(Clone, Default)]
pub(super) struct ActiveDefinitions {
    shared: OwnedDefinitions,
    contexts: BTreeMap<TenantId, OwnedDefinitions>,
}

impl ActiveDefinitions {
    /// Returns the definitions of an owner; `None`: the shared ones.
    pub(super) fn of(&self, context: Option<&TenantId>) -> OwnedDefinitions {
        match context {
            None => self.shared.clone(),
            Some(context) => self.contexts.get(context).cloned().unwrap_or_default(),
        }
    }

    /// Returns the definitions of each owner, the shared ones first.
    pub(super) fn owners(&self) -> impl Iterator<Item = (Option<&TenantId>, &OwnedDefinitions)> {
        let contexts = self
            .contexts
            .iter()
            .map(|(context, owned)| (Some(context), owned));
        std::iter::once((None, &self.shared)).chain(contexts)
    }

    /// Replaces the definitions of an owner.
    pub(super) fn replace(&mut self, context: Option<&TenantId>, owned: OwnedDefinitions) {
        match context {
            None => self.shared = owned,
            Some(context) => drop(self.contexts.insert(context.clone(), owned)),
        }
    }

    /// Returns the definitions that new instances of a tenant use if `own` are those of its
    /// context, sorted by name.
    pub(super) fn usable_with(&self, own: &[LoadedDefinition]) -> Vec<LoadedDefinition> {
        let is_replaced =
            |shared: &LoadedDefinition| own.iter().any(|own| own.saga() == shared.saga());
        let shared = self
            .shared
            .definitions
            .iter()
            .filter(|shared| !is_replaced(shared));
        let mut usable: Vec<_> = shared.chain(own).cloned().collect();

        usable.sort_by(|a, b| a.saga().cmp(b.saga()));
        usable
    }

    /// Returns whether a definition is active for an owner.
    fn is_active(owned: &OwnedDefinitions, hash: &[u8; 16]) -> bool {
        owned
            .definitions
            .iter()
            .any(|active| active.program.definition_ref().hash == *hash)
    }

    /// Returns the owners that have retired a stored definition. Without a record of any owner, it
    /// is shared: earlier releases had no contexts.
    pub(super) fn retired_by(&self, hash: &[u8; 16]) -> Vec<Option<TenantId>> {
        let has = |owned: &OwnedDefinitions| {
            owned
                .deployment
                .iter()
                .any(|deployment| deployment.find(hash).is_some())
        };
        let mut owners: Vec<_> = self.owners().filter(|(_, owned)| has(owned)).collect();
        if owners.is_empty() {
            owners.push((None, &self.shared));
        }

        // One owner may have retired what is still active for another one.
        owners.retain(|(_, owned)| !Self::is_active(owned, hash));
        owners
            .into_iter()
            .map(|(context, _)| context.cloned())
            .collect()
    }
}

impl LoadedDefinition {
    /// Returns the name of the saga.
    #[must_use]
    pub fn saga(&self) -> &orlog_model::SagaName {
        &self.program.definition_ref().saga
    }

    /// Returns the program.
    pub(super) fn as_program(&self) -> &dyn Program {
        self.program.as_ref()
    }
}
