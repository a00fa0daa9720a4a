//! Keys of actors: the sources that authentication reads, and the actors of the configuration.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{PoisonError, RwLock};

use anyhow::ensure;
use orlog_model::{ActorId, Timestamp};
use orlog_signature::KeyId;

use super::caller::{Caller, TenantScope};
use super::rights::{Role, Roles};
use crate::config::Config;

/// Source of the keys of actors.
pub(crate) trait ActorKeys: Send + Sync {
    /// Returns the key with this id, also if it is revoked. Called for each signed request; must not block.
    fn find(&self, key_id: &str) -> Option<ActorKey>;
}

/// Key of an actor, with the rights of the actor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ActorKey {
    /// Actor that owns the key.
    pub actor: ActorId,
    /// Ed25519 public key.
    pub public_key: [u8; 32],
    /// Start of the validity; `None`: no limit.
    pub not_before: Option<Timestamp>,
    /// End of the validity; `None`: no limit.
    pub not_after: Option<Timestamp>,
    /// Whether the key is revoked.
    pub revoked: bool,
    /// Rights of the actor.
    pub rights: ActorRights,
}

/// Rights of an actor, as those of every other caller.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ActorRights {
    /// Roles.
    pub roles: Roles,
    /// Tenants for which the actor may act.
    pub tenants: TenantScope,
    /// Roles for human tasks.
    pub task_roles: BTreeSet<String>,
}

impl ActorRights {
    /// Creates the rights from names; `*` means all tenants. Unknown roles and invalid tenants grant nothing.
    pub(crate) fn new<'a>(
        roles: impl IntoIterator<Item = &'a str>,
        tenants: impl IntoIterator<Item = &'a str>,
        task_roles: impl IntoIterator<Item = &'a str>,
    ) -> Self {
        Self {
            roles: Roles::of(roles),
            tenants: TenantScope::of(tenants),
            task_roles: task_roles.into_iter().map(str::to_owned).collect(),
        }
    }
}

impl ActorKey {
    /// Returns why the key is not valid at a time; `None` if it is.
    pub(super) fn invalidity(&self, now: Timestamp) -> Option<String> {
        if self.revoked {
            return Some("it is revoked".to_owned());
        }
        let early = self.not_before.filter(|from| now < *from).map(|from| format!("it is valid from {from}"));
        early.or_else(|| self.not_after.filter(|to| now >= *to).map(|to| format!("it was valid until {to}")))
    }

    pub(super) fn into_caller(self, key: KeyId) -> Caller {
        let ActorRights { roles, tenants, task_roles } = self.rights;
        let name = Some(self.actor.as_str().to_owned());
        Caller { name, roles, tenants, task_roles, actor: Some(self.actor), named_user: None, key: Some(key) }
    }
}

/// Keys of the actors of the configuration.
pub(crate) struct ConfiguredKeys(RwLock<BTreeMap<String, ActorKey>>);

impl ConfiguredKeys {
    /// Reads the actors of a configuration.
    ///
    /// # Errors
    /// If an actor has an unknown role.
    pub(crate) fn new(config: &Config) -> anyhow::Result<Self> {
        let mut keys = BTreeMap::new();
        for (id, actor) in &config.auth.actors {
            if let Some(role) =
                actor.roles.iter().find(|role| Role::all().all(|known| known.as_str() != *role))
            {
                let known: Vec<_> = Role::all().map(Role::as_str).collect();
                ensure!(false, "auth.actors.{id}.roles: unknown role {role:?}; roles: {}", known.join(", "));
            }
            let [roles, tenants, groups] =
                [&actor.roles, &actor.tenants, &actor.groups].map(|names| names.iter().map(String::as_str));
            let rights = ActorRights::new(roles, tenants, groups);
            for key in &actor.keys {
                let found = ActorKey {
                    actor: id.clone(),
                    public_key: *key.public.as_bytes(),
                    not_before: key.not_before,
                    not_after: key.not_after,
                    revoked: key.revoked,
                    rights: rights.clone(),
                };
                keys.insert(key.public.key_id().to_string(), found);
            }
        }
        Ok(Self(RwLock::new(keys)))
    }

    /// Replaces all keys.
    pub(crate) fn replace(&self, next: Self) {
        let next = next.0.into_inner().unwrap_or_else(PoisonError::into_inner);
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = next;
    }
}

impl ActorKeys for ConfiguredKeys {
    fn find(&self, key_id: &str) -> Option<ActorKey> {
        self.0.read().unwrap_or_else(PoisonError::into_inner).get(key_id).cloned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{ActorConfig, ActorKeyConfig};

    const KEY: &str = "ed25519:11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo";
    const ID: &str = "kPrK_qmxVWaYVA9wwBF6Iuo3vVzz7TxHCTwXBygrS4k";

    fn config(role: &str) -> Config {
        let key = ActorKeyConfig {
            public: KEY.parse().unwrap(),
            not_before: Some(Timestamp::from_millis(1000)),
            not_after: Some(Timestamp::from_millis(2000)),
            revoked: false,
        };
        let actor = ActorConfig { keys: vec![key], roles: vec![role.to_owned()], ..ActorConfig::default() };
        let mut config = Config::default();
        config.auth.actors.insert(ActorId::new("ada").unwrap(), actor);
        config
    }

    #[test]
    fn configured_key_is_found_by_its_id_until_it_is_replaced() {
        let keys = ConfiguredKeys::new(&config("viewer")).unwrap();
        let found = keys.find(ID).unwrap();
        assert_eq!((found.actor.as_str(), found.rights.tenants.clone()), ("ada", TenantScope::of([])));
        assert!(keys.find("other").is_none());
        for (now, expected) in [(999, Some("from")), (1000, None), (1999, None), (2000, Some("until"))] {
            let reason = found.invalidity(Timestamp::from_millis(now));
            assert_eq!(reason.is_some(), expected.is_some(), "{now}: {reason:?}");
            assert!(reason.unwrap_or_default().contains(expected.unwrap_or_default()));
        }
        let revoked = ActorKey { revoked: true, ..found };
        assert!(revoked.invalidity(Timestamp::from_millis(1000)).unwrap().contains("revoked"));
        keys.replace(ConfiguredKeys::new(&Config::default()).unwrap());
        assert!(keys.find(ID).is_none());
    }

    #[test]
    fn unknown_role_is_rejected_with_its_place() {
        let error = ConfiguredKeys::new(&config("root")).err().unwrap().to_string();
        assert!(error.starts_with("auth.actors.ada.roles: unknown role \"root\"; roles: viewer,"), "{error}");
    }
}
