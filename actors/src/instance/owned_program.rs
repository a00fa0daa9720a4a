//! Programs by their owner: shared by all tenants, or owned by one context.

use std::collections::BTreeMap;
use std::sync::Arc;

use orlog_model::TenantId;
use orlog_program::Program;

/// Program with its owner.
#[derive(Clone)]
pub struct OwnedProgram {
    /// Context that owns it: the only tenant that uses it. `None`: all tenants share it.
    pub context: Option<TenantId>,
    /// Program.
    pub program: Arc<dyn Program>,
}

impl OwnedProgram {
    /// Returns whether the instances of a tenant can use it.
    #[must_use]
    pub fn is_usable_by(&self, tenant: &TenantId) -> bool {
        self.context
            .as_ref()
            .is_none_or(|context| context == tenant)
    }

    /// Returns whether both have the same owner and the same content.
    pub(super) fn is_same(&self, other: &Self) -> bool {
        self.context == other.context
            && self.program.definition_ref().hash == other.program.definition_ref().hash
    }
}

/// The program is shared.
impl From<Arc<dyn Program>> for OwnedProgram {
    fn from(program: Arc<dyn Program>) -> Self {
        Self {
            context: None,
            program,
        }
    }
}

/// A value for all tenants, and the values of the contexts that have their own. Without these, a
/// lookup compares no tenant.
#[derive(Default)]
pub(super) struct Scoped<T> {
    pub(super) shared: T,
    pub(super) contexts: BTreeMap<TenantId, T>,
}

impl<T> Scoped<T> {
    /// Returns the shared value, or that of a context if it has its own.
    pub(super) fn of_mut(&mut self, context: Option<&TenantId>) -> Option<&mut T> {
        match context {
            None => Some(&mut self.shared),
            Some(context) => self.contexts.get_mut(context),
        }
    }

    /// Returns the value for a tenant.
    pub(super) fn of(&self, tenant: &TenantId) -> &T {
        self.contexts.get(tenant).unwrap_or(&self.shared)
    }
}
