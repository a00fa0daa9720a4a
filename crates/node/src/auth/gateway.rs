//! Authentication by the headers of a trusted gateway. The headers are accepted with a valid
//! secret, from a listed address, or with both if both are configured.

use ipnet::IpNet;
use orlog_effect::secret::SecretRef;

use super::caller::{AuthError, Caller, RequestCredentials, TenantScope, is_user_name};
use super::rights::Roles;
use super::shared_secret::{self, FailureLog};
use crate::config::TrustedGatewayConfig;

pub(super) struct TrustedGatewayAuth {
    networks: Vec<IpNet>,
    secret: Option<SecretRef>,
    reads: FailureLog,
    config: TrustedGatewayConfig,
}

impl TrustedGatewayAuth {
    pub(super) fn new(config: &TrustedGatewayConfig) -> anyhow::Result<Self> {
        let networks = config.networks().map_err(anyhow::Error::msg)?;

        // An unreadable secret is an error of the start: every request would be rejected.
        if let Some(secret) = &config.secret {
            secret.resolve()?;
        }

        Ok(Self {
            networks,
            secret: config.secret.clone(),
            reads: FailureLog::default(),
            config: config.clone(),
        })
    }

    pub(super) fn caller(&self, credentials: &RequestCredentials<'_>) -> Result<Caller, AuthError> {
        self.check_gateway(credentials)?;
        let TrustedGatewayConfig {
            user_header,
            role_header,
            tenants_header,
            groups_header,
            ..
        } = &self.config;

        let user = credentials
            .header(user_header)?
            .map(str::trim)
            .filter(|user| !user.is_empty());
        let user = user.ok_or_else(|| {
            AuthError::Missing(format!(
                "the header {user_header} of the gateway is missing"
            ))
        })?;
        if !is_user_name(user) {
            return Err(AuthError::Invalid(format!(
                "invalid user name in the header {user_header}"
            )));
        }

        let roles = credentials
            .header(role_header)?
            .unwrap_or_default()
            .split(',')
            .map(str::trim);

        // The caller sets the tenant of a request, so it never determines the tenants of the
        // caller.
        let tenants = credentials.header(tenants_header)?.ok_or_else(|| {
            AuthError::Missing(format!(
                "the header {tenants_header} of the gateway is missing; it must name the tenants \
                 of the caller"
            ))
        })?;
        let tenant_scope = TenantScope::of(tenants.split(',').map(str::trim));
        let groups = credentials
            .header(groups_header)?
            .unwrap_or_default()
            .split(',')
            .map(str::trim);

        let groups = groups
            .filter(|group| !group.is_empty())
            .map(str::to_owned)
            .collect();
        Ok(Caller {
            name: Some(user.to_owned()),
            roles: Roles::of(roles),
            tenants: tenant_scope,
            task_roles: groups,
            actor: None,
            peer: None,
            key: None,
            named_user: None,
        })
    }

    fn check_gateway(&self, credentials: &RequestCredentials<'_>) -> Result<(), AuthError> {
        if let Some(secret) = &self.secret {
            let provided = credentials
                .header(&self.config.secret_header)?
                .ok_or_else(|| {
                    AuthError::Missing(
                        "the request did not pass the gateway: the secret is missing".to_owned(),
                    )
                })?;

            let known = self.reads.check(secret.resolve())?;
            if !shared_secret::is_same(provided, known.expose()) {
                let reason = "the request did not pass the gateway: the secret is wrong";
                return Err(AuthError::Invalid(reason.to_owned()));
            }
        }

        // A socket for IPv4 and IPv6 reports IPv4 clients as mapped addresses, which no IPv4
        // network contains.
        let from = credentials.source.map(|address| address.to_canonical());
        let is_listed =
            from.is_some_and(|from| self.networks.iter().any(|network| network.contains(&from)));
        // Without networks the secret has authenticated the gateway: the configuration requires one
        // of both.
        if is_listed || self.networks.is_empty() {
            return Ok(());
        }

        let from = from.map_or_else(|| "an unknown address".to_owned(), |from| from.to_string());
        Err(AuthError::Invalid(format!(
            "the request did not pass the gateway: it comes from {from}"
        )))
    }
}
