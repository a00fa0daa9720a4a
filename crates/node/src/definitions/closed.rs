//! Definitions that a caller with access to the node must not know: those of contexts that are
//! closed to it.

use std::collections::{BTreeMap, BTreeSet};

use orlog_actors::{OwnedProgram, ProgramRegistry};
use orlog_model::{SagaName, TenantId};

use crate::access::AccessRegistry;
use crate::auth::{Caller, Right};

/// Name that stands for all sagas of closed contexts.
pub const OTHER: &str = "other";

/// Names of the loaded definitions, as a caller may know them.
pub struct VisibleDefinitions {
    closed: BTreeSet<TenantId>,
    /// Whether the caller may know a version: one of its owners is not closed.
    versions: BTreeMap<(SagaName, u32), bool>,
    /// Whether the caller may know a saga: one of its versions.
    sagas: BTreeMap<SagaName, bool>,
}

impl VisibleDefinitions {
    /// Returns the definitions that a caller with a right for the node may know.
    pub fn to(
        caller: &Caller,
        needed: Right,
        access: &AccessRegistry,
        programs: &ProgramRegistry,
    ) -> Self {
        Self::new(access.closed_to(caller, needed), &programs.all())
    }

    /// Returns all loaded definitions.
    pub(crate) fn all(programs: &ProgramRegistry) -> Self {
        Self::new(BTreeSet::new(), &programs.all())
    }

    fn new(closed: BTreeSet<TenantId>, programs: &[OwnedProgram]) -> Self {
        let mut versions = BTreeMap::new();
        let mut sagas = BTreeMap::new();
        for OwnedProgram { context, program } in programs {
            let is_visible = context
                .as_ref()
                .is_none_or(|context| !closed.contains(context));
            let reference = program.definition_ref();

            let version = (reference.saga.clone(), reference.version);
            *versions.entry(version).or_default() |= is_visible;
            *sagas.entry(reference.saga.clone()).or_default() |= is_visible;
        }

        Self {
            closed,
            versions,
            sagas,
        }
    }

    /// Returns the name of a version of a saga; `None` if the version is not loaded.
    #[must_use]
    pub fn version<'a>(&self, saga: &'a SagaName, version: u32) -> Option<&'a str> {
        let is_visible = *self.versions.get(&(saga.clone(), version))?;
        Some(if is_visible { saga.as_str() } else { OTHER })
    }

    /// Returns the name of a saga; `None` if no version is loaded.
    #[must_use]
    pub fn saga<'a>(&self, saga: &'a SagaName) -> Option<&'a str> {
        let is_visible = *self.sagas.get(saga)?;
        Some(if is_visible { saga.as_str() } else { OTHER })
    }

    /// Returns a version as a text names it.
    pub(crate) fn describe_version(&self, saga: &SagaName, version: u32) -> String {
        if self.may_name(self.version(saga, version)) {
            format!("{saga} version {version}")
        } else {
            "a definition of a context".to_owned()
        }
    }

    /// Returns a saga as a text names it.
    pub(crate) fn describe_saga(&self, saga: &SagaName) -> String {
        if self.may_name(self.saga(saga)) {
            saga.to_string()
        } else {
            "a saga of a context".to_owned()
        }
    }

    /// Returns whether a text may contain a name. The owner of a definition that is not loaded any
    /// more is unknown.
    fn may_name(&self, name: Option<&str>) -> bool {
        name.map_or(self.closed.is_empty(), |name| name != OTHER)
    }

    /// Returns the name of the saga of an instance, whose definition can be missing.
    #[must_use]
    pub fn of_instance<'a>(&self, tenant: &TenantId, saga: &'a SagaName) -> &'a str {
        let is_closed = self.closed.contains(tenant);
        self.saga(saga)
            .unwrap_or(if is_closed { OTHER } else { saga.as_str() })
    }
}
