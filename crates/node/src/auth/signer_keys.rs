//! Keys of actors and peers: the sources that authentication reads, and those of the configuration.

use std::collections::BTreeMap;
use std::fmt;

use anyhow::ensure;
use orlog_model::{ActorId, NodeName, Timestamp};
use orlog_signature::KeyId;
use parking_lot::RwLock;

use super::caller::{ActorRights, Caller};
use super::rights::Role;
use crate::config::{ActorKeyConfig, Config};

/// Source of the keys of actors and peers.
pub(crate) trait SignerKeys: Send + Sync {
    /// Returns the key with this id, also if it is revoked. Called for each signed request; must
    /// not block.
    fn find(&self, key_id: &str) -> Option<SignerKey>;
}

/// Time of the revocation of a key that was revoked without a time.
pub(crate) const ALWAYS: Timestamp = Timestamp::from_millis(i64::MIN);

/// Owner of a key that signs requests.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Signer {
    /// Actor with its rights.
    Actor(ActorId, ActorRights),
    /// Another node. It has no rights; only the routes for peers accept it.
    Peer(NodeName),
}

/// Key of an actor or a peer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SignerKey {
    /// Owner of the key.
    pub signer: Signer,
    /// Ed25519 public key.
    pub public_key: [u8; 32],
    /// Start of the validity; `None`: no limit.
    pub not_before: Option<Timestamp>,
    /// End of the validity; `None`: no limit.
    pub not_after: Option<Timestamp>,
    /// Time at which the key was revoked; [`ALWAYS`] if it is revoked without a time.
    pub revoked_at: Option<Timestamp>,
}

impl fmt::Display for Signer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Signer::Actor(id, _) => write!(f, "actor {id}"),
            Signer::Peer(name) => write!(f, "peer {name}"),
        }
    }
}

impl SignerKey {
    fn configured(signer: Signer, key: &ActorKeyConfig) -> Self {
        Self {
            signer,
            public_key: *key.public.as_bytes(),
            not_before: key.not_before,
            not_after: key.not_after,
            revoked_at: key.revoked.then_some(ALWAYS),
        }
    }

    /// Returns why the key is not valid now; `None` if it is. A revoked key is not, by whichever
    /// clock it was revoked.
    pub(super) fn invalidity(&self, now: Timestamp) -> Option<String> {
        let is_revoked = self.revoked_at.is_some();
        is_revoked
            .then(|| "it is revoked".to_owned())
            .or_else(|| self.limit(now))
    }

    /// Returns why the key was not valid at an earlier time; `None` if it was.
    pub(crate) fn invalidity_at(&self, time: Timestamp) -> Option<String> {
        let revoked = self.revoked_at.filter(|revoked| *revoked <= time);
        revoked
            .map(|_| "it is revoked".to_owned())
            .or_else(|| self.limit(time))
    }

    fn limit(&self, time: Timestamp) -> Option<String> {
        let early = self
            .not_before
            .filter(|from| time < *from)
            .map(|from| format!("it is valid from {from}"));
        early.or_else(|| {
            self.not_after
                .filter(|to| time >= *to)
                .map(|to| format!("it was valid until {to}"))
        })
    }

    pub(crate) fn into_caller(self, key: KeyId) -> Caller {
        match self.signer {
            Signer::Actor(actor, rights) => Caller::actor(actor, rights, key),
            Signer::Peer(peer) => Caller::peer(peer, key),
        }
    }
}

/// Keys of the actors and peers of the configuration.
pub(crate) struct ConfiguredKeys(RwLock<BTreeMap<String, SignerKey>>);

impl ConfiguredKeys {
    /// Reads the actors and peers of a configuration.
    ///
    /// # Errors
    /// If an actor has an unknown role.
    pub(crate) fn new(config: &Config) -> anyhow::Result<Self> {
        let mut keys = BTreeMap::new();
        let mut add = |signer: &Signer, all: &[ActorKeyConfig]| {
            keys.extend(all.iter().map(|key| {
                (
                    key.public.key_id().to_string(),
                    SignerKey::configured(signer.clone(), key),
                )
            }));
        };
        for (id, actor) in &config.auth.actors {
            // `ActorRights` ignores unknown roles: a misspelled one would silently grant nothing.
            if let Some(role) = actor
                .roles
                .iter()
                .find(|role| Role::all().all(|known| known.as_str() != *role))
            {
                let known: Vec<_> = Role::all().map(Role::as_str).collect();
                ensure!(
                    false,
                    "auth.actors.{id}.roles: unknown role {role:?}; roles: {}",
                    known.join(", ")
                );
            }

            let [roles, tenants, groups] = [&actor.roles, &actor.tenants, &actor.groups]
                .map(|names| names.iter().map(String::as_str));
            add(
                &Signer::Actor(id.clone(), ActorRights::new(roles, tenants, groups)),
                &actor.keys,
            );
        }

        // Peers have no rights: they are accepted on routes for peers only.
        for (name, peer) in &config.peers {
            add(&Signer::Peer(name.clone()), &peer.keys);
        }

        Ok(Self(RwLock::new(keys)))
    }

    /// Replaces all keys.
    pub(crate) fn replace(&self, next: Self) {
        let next = next.0.into_inner();
        *self.0.write() = next;
    }
}

impl SignerKeys for ConfiguredKeys {
    fn find(&self, key_id: &str) -> Option<SignerKey> {
        self.0.read().get(key_id).cloned()
    }
}

#[cfg(test)]
mod tests {
    use super::super::caller::TenantScope;
    use super::super::rights::Roles;
    use super::*;
    use crate::config::{ActorConfig, PeerConfig};

    const KEY: &str = "ed25519:11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo";
    const ID: &str = "kPrK_qmxVWaYVA9wwBF6Iuo3vVzz7TxHCTwXBygrS4k";

    fn config(role: &str) -> Config {
        let key = ActorKeyConfig {
            public: KEY.parse().unwrap(),
            not_before: Some(Timestamp::from_millis(1000)),
            not_after: Some(Timestamp::from_millis(2000)),
            revoked: false,
        };
        let actor = ActorConfig {
            keys: vec![key],
            roles: vec![role.to_owned()],
            ..ActorConfig::default()
        };
        let mut config = Config::default();
        config
            .auth
            .actors
            .insert(ActorId::new("ada").unwrap(), actor);
        config
    }

    #[test]
    fn configured_key_is_found_by_its_id_until_it_is_replaced() {
        let keys = ConfiguredKeys::new(&config("viewer")).unwrap();
        let found = keys.find(ID).unwrap();
        let rights = ActorRights::new(["viewer"], [], []);
        assert_eq!(
            found.signer,
            Signer::Actor(ActorId::new("ada").unwrap(), rights)
        );
        assert!(keys.find("other").is_none());
        for (now, expected) in [
            (999, Some("from")),
            (1000, None),
            (1999, None),
            (2000, Some("until")),
        ] {
            let reason = found.invalidity(Timestamp::from_millis(now));
            assert_eq!(reason.is_some(), expected.is_some(), "{now}: {reason:?}");
            assert!(
                reason
                    .unwrap_or_default()
                    .contains(expected.unwrap_or_default())
            );
        }
        let [now, later] = [1000, 1500].map(Timestamp::from_millis);
        let revoked = SignerKey {
            revoked_at: Some(later),
            ..found.clone()
        };
        assert!(revoked.invalidity(now).unwrap().contains("revoked"));
        assert_eq!(
            (
                revoked.invalidity_at(now),
                revoked.invalidity_at(later).is_some()
            ),
            (None, true)
        );
        let always = SignerKey {
            revoked_at: Some(ALWAYS),
            ..found
        };
        assert!(always.invalidity_at(now).unwrap().contains("revoked"));
        keys.replace(ConfiguredKeys::new(&Config::default()).unwrap());
        assert!(keys.find(ID).is_none());
    }

    #[test]
    fn peer_has_no_rights() {
        let mut config = config("viewer");
        let keys = config.auth.actors.pop_first().unwrap().1.keys;
        let peer = PeerConfig {
            address: "https://b.example".parse().unwrap(),
            keys,
        };
        let name = NodeName::new("b.example").unwrap();
        config.peers.insert(name.clone(), peer);
        let found = ConfiguredKeys::new(&config).unwrap().find(ID).unwrap();
        assert_eq!(found.signer.to_string(), "peer b.example");
        let caller = found.into_caller(ID.parse().unwrap());
        assert_eq!(
            (caller.name.as_deref(), caller.peer.as_ref()),
            (Some("peer:b.example"), Some(&name))
        );
        assert_eq!(
            (caller.roles, caller.tenants),
            (Roles::default(), TenantScope::of([]))
        );
    }

    #[test]
    fn unknown_role_is_rejected_with_its_place() {
        let error = ConfiguredKeys::new(&config("root"))
            .err()
            .unwrap()
            .to_string();
        assert!(
            error.starts_with("auth.actors.ada.roles: unknown role \"root\"; roles: viewer,"),
            "{error}"
        );
    }
}
