//! Token of the monitoring: it grants the right to read the metrics, in every mode of
//! authentication.

use anyhow::Context as _;
use orlog_effect::secret::SecretRef;

use super::caller::{Caller, RequestCredentials, TenantScope};
use super::rights::{Role, Roles};
use super::shared_secret::{self, FailureLog};

/// User of all requests with the token.
const USER: &str = "monitoring";

pub(super) struct MetricsToken {
    secret: SecretRef,
    reads: FailureLog,
}

impl MetricsToken {
    /// Reads the token once, so that an invalid one prevents the start.
    ///
    /// # Errors
    /// If the secret cannot be read, or if it contains no token.
    pub(super) fn open(secret: &SecretRef) -> anyhow::Result<Self> {
        let read = || shared_secret::check_token(secret.resolve()?.expose().trim());
        read().with_context(|| format!("auth.metrics_token: {secret}"))?;
        Ok(Self {
            secret: secret.clone(),
            reads: FailureLog::default(),
        })
    }

    /// Returns the caller if the request has the token. If the token cannot be read, other
    /// credentials still apply.
    pub(super) fn caller(&self, credentials: &RequestCredentials<'_>) -> Option<Caller> {
        let provided = shared_secret::bearer(credentials).ok()??;
        let known = self.reads.check(self.secret.resolve()).ok()?;
        let known = known.expose().trim();

        // The secret may have changed since the start: a short text would be easy to guess.
        (shared_secret::check_token(known).is_ok() && shared_secret::is_same(provided, known)).then(
            || Caller {
                name: Some(USER.to_owned()),
                roles: Roles::from_iter([Role::Monitor]),
                tenants: TenantScope::All,
                ..Caller::unauthenticated()
            },
        )
    }
}
