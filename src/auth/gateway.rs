//! Callers as a gateway in front names them. Its headers are believed where it shows a secret, calls from a listed address, or
//! both where both are configured.

use ipnet::IpNet;
use orlog_effect::secret::SecretRef;
use sha2::{Digest as _, Sha256};
use subtle::ConstantTimeEq as _;

use super::caller::{Caller, Denied, Reach, Role, Shown};
use crate::config::TrustedGateway;

/// Whose requests they are, where the gateway lists no tenants.
const TENANT: &str = "x-tenant-id";
/// The longest name of a caller, in bytes.
const MAX_NAME_BYTES: usize = 255;

pub(super) struct Gateway {
    networks: Vec<IpNet>,
    secret: Option<SecretRef>,
    config: TrustedGateway,
}

impl Gateway {
    pub(super) fn new(config: &TrustedGateway) -> anyhow::Result<Self> {
        let networks = config.networks().map_err(anyhow::Error::msg)?;
        if let Some(secret) = &config.secret {
            secret.resolve()?;
        }
        Ok(Self { networks, secret: config.secret.clone(), config: config.clone() })
    }

    pub(super) fn caller(&self, shown: &Shown<'_>) -> Result<Caller, Denied> {
        self.believe(shown)?;
        let TrustedGateway { user_header, role_header, tenants_header, groups_header, .. } = &self.config;
        let user = shown.header(user_header)?.map(str::trim).filter(|user| !user.is_empty());
        let user =
            user.ok_or_else(|| Denied::Nobody(format!("the gateway names nobody in {user_header}")))?;
        if user.len() > MAX_NAME_BYTES || user.chars().any(char::is_control) {
            return Err(Denied::Disbelieved(format!("{user_header} holds no name")));
        }
        let roles = shown.header(role_header)?.unwrap_or_default().split(',').map(str::trim);
        let reach = match shown.header(tenants_header)? {
            Some(tenants) => Reach::of(tenants.split(',').map(str::trim)),
            None => {
                Reach::of([shown.header(TENANT)?.unwrap_or_default()].into_iter().filter(|name| *name != "*"))
            }
        };
        let groups = shown.header(groups_header)?.unwrap_or_default().split(',').map(str::trim);
        let groups = groups.filter(|group| !group.is_empty()).map(str::to_owned).collect();
        Ok(Caller { name: Some(user.to_owned()), role: roles.filter_map(Role::of).max(), reach, groups })
    }

    fn believe(&self, shown: &Shown<'_>) -> Result<(), Denied> {
        if let Some(secret) = &self.secret {
            let known = secret.resolve().map_err(|error| Denied::Unknowable(error.to_string()))?;
            let given = shown.header(&self.config.secret_header)?.ok_or_else(|| {
                Denied::Nobody("the request does not come through the gateway: it shows no secret".to_owned())
            })?;
            if !same(given.as_bytes(), known.expose().as_bytes()) {
                let why = "the request does not come through the gateway: its secret is another one";
                return Err(Denied::Disbelieved(why.to_owned()));
            }
        }
        let from = shown.source.map(|address| address.to_canonical());
        let is_listed = from.is_some_and(|from| self.networks.iter().any(|network| network.contains(&from)));
        if is_listed || self.networks.is_empty() {
            return Ok(());
        }
        let from = from.map_or_else(|| "an unknown address".to_owned(), |from| from.to_string());
        Err(Denied::Disbelieved(format!("the request does not come through the gateway but from {from}")))
    }
}

/// Takes the same time whatever the texts have in common.
fn same(one: &[u8], other: &[u8]) -> bool {
    Sha256::digest(one).ct_eq(&Sha256::digest(other)).into()
}
