//! Access of callers: the registry, authentication, and the audit trail.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::FromRef;
use orlog_model::{TenantId, Timestamp};
use orlog_signature::KeyId;

use crate::server::context::ApiState;
use orlog_node::access::AccessRegistry;
use orlog_node::admitted_tenants::AdmittedTenants;
use orlog_node::app::App;
use orlog_node::audit::AuditTrail;
use orlog_node::auth::Authenticator;
use orlog_node::config::BusKind;

/// Contexts, actors and peers with their keys, and what the node requires of callers.
#[derive(Clone)]
pub(crate) struct Access {
    app: Arc<App>,
}

impl FromRef<ApiState> for Access {
    fn from_ref(api: &ApiState) -> Self {
        Self {
            app: Arc::clone(&api.shared.app),
        }
    }
}

impl Access {
    /// Returns the contexts, actors and peers.
    pub(crate) fn registry(&self) -> &AccessRegistry {
        &self.app.access
    }

    /// Returns the authentication of callers.
    pub(crate) fn authenticator(&self) -> &Authenticator {
        &self.app.authenticator
    }

    /// Returns whether a context requires signed events now.
    pub(crate) fn requires_signed_events(&self, tenant: &TenantId) -> bool {
        self.app.signed_events.is_required(tenant, self.now())
    }

    /// Returns whether a key is one of this node.
    pub(crate) fn is_own_key(&self, key: KeyId) -> bool {
        let identity = self.app.peers.identity();
        identity.is_ok_and(|own| own.owns(key))
    }

    /// Returns the wall-clock time.
    pub(crate) fn now(&self) -> Timestamp {
        self.app.clock.now()
    }

    /// Returns the tenants that the node accepts.
    pub(crate) fn tenants(&self) -> &AdmittedTenants {
        &self.app.tenants
    }

    /// Returns the age at which a session of the web UI ends.
    pub(crate) fn session_max_age(&self) -> Duration {
        self.app.config.auth.oidc.session_max_age
    }

    /// Returns the audit trail.
    pub(crate) fn audit(&self) -> &AuditTrail {
        &self.app.audit
    }

    /// Returns whether the nodes sign their own messages. Without that, facts and child sagas could
    /// not be distinguished from forged ones in a context that requires signed events.
    pub(crate) fn can_require_signed_events(&self) -> bool {
        let config = &self.app.config;
        let signing = &config.nats.signing;
        config.bus.kind == BusKind::Embedded || signing.required && !signing.keys.is_empty()
    }

    /// Returns the difference of clocks that a signature may have.
    pub(crate) fn signature_leeway(&self) -> Duration {
        self.app.config.auth.signatures.time_window().leeway
    }
}
