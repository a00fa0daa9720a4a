//! Tenants that the node admits. A reload replaces them.

use orlog_actors::TenantAdmission;
use orlog_model::TenantId;
use parking_lot::RwLock;

use crate::config::TenantsConfig;

/// Mode and list of the tenants that the node admits.
pub struct AdmittedTenants(RwLock<TenantsConfig>);

impl AdmittedTenants {
    pub(crate) fn new(config: TenantsConfig) -> Self {
        Self(RwLock::new(config))
    }

    /// Returns whether a tenant is admitted.
    pub fn admits(&self, tenant: &TenantId) -> bool {
        let config = self.0.read();
        config.admits(tenant)
    }

    /// Applies the list of a reload. Returns whether it differs from the previous one.
    pub(crate) fn replace(&self, config: TenantsConfig) -> bool {
        let mut active = self.0.write();
        let previous = std::mem::replace(&mut *active, config);
        previous != *active
    }
}

impl TenantAdmission for AdmittedTenants {
    fn admits(&self, tenant: &TenantId) -> bool {
        AdmittedTenants::admits(self, tenant)
    }
}
