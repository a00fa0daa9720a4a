//! Directory: all contexts, actors and peers, parsed from the records of the registry.

use std::collections::BTreeMap;
use std::collections::hash_map::{Entry, HashMap};
use std::sync::Arc;

use orlog_bus::registry::{Record, RegistryView};
use orlog_model::{ActorId, NodeName, TenantId};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::actor::Actor;
use super::context::Context;
use super::key_ring::Key;
use super::peer::Peer;

/// Prefix of the key of a context, before its tenant.
const CONTEXT: &str = "context.";
/// Prefix of the key of an actor, before its id.
const ACTOR: &str = "actor.";
/// Prefix of the key of a peer, before its name.
const PEER: &str = "peer.";

/// Record with its revision.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stored<T> {
    /// Revision of the record.
    pub revision: u64,
    /// Content; `None` if it cannot be read, for example because a later release wrote it.
    pub value: Option<T>,
}

/// Owner of a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KeyOwner {
    /// Actor.
    Actor(ActorId),
    /// Peer.
    Peer(NodeName),
}

/// All contexts, actors and peers.
#[derive(Clone, Debug, Default)]
pub struct Directory {
    /// Contexts by tenant.
    pub contexts: BTreeMap<TenantId, Arc<Stored<Context>>>,
    /// Actors by id.
    pub actors: BTreeMap<ActorId, Arc<Stored<Actor>>>,
    /// Peers by name.
    pub peers: BTreeMap<NodeName, Arc<Stored<Peer>>>,
    /// Owners by the id of each key.
    keys: HashMap<String, KeyClaim>,
}

/// Claim of a key by the records that contain it.
#[derive(Clone, Debug)]
struct KeyClaim {
    /// Owner; `None`: several records contain the key, and it is not revoked there.
    owner: Option<KeyOwner>,
    is_revoked: bool,
}

/// Kind of the records of the registry.
pub trait RecordKind: Clone + Serialize {
    /// Identifier of a record among those of its kind.
    type Id: Sync;

    /// Returns the key of a record in the registry.
    fn key(id: &Self::Id) -> String;

    /// Returns a known record.
    fn find<'a>(directory: &'a Directory, id: &Self::Id) -> Option<&'a Arc<Stored<Self>>>;
}

impl RecordKind for Context {
    type Id = TenantId;

    fn key(tenant: &TenantId) -> String {
        format!("{CONTEXT}{tenant}")
    }

    fn find<'a>(directory: &'a Directory, tenant: &TenantId) -> Option<&'a Arc<Stored<Self>>> {
        directory.contexts.get(tenant)
    }
}

impl RecordKind for Actor {
    type Id = ActorId;

    fn key(actor: &ActorId) -> String {
        format!("{ACTOR}{actor}")
    }

    fn find<'a>(directory: &'a Directory, actor: &ActorId) -> Option<&'a Arc<Stored<Self>>> {
        directory.actors.get(actor)
    }
}

impl RecordKind for Peer {
    type Id = NodeName;

    fn key(peer: &NodeName) -> String {
        format!("{PEER}{peer}")
    }

    fn find<'a>(directory: &'a Directory, peer: &NodeName) -> Option<&'a Arc<Stored<Self>>> {
        directory.peers.get(peer)
    }
}

impl Directory {
    /// Parses the records that differ from those of `last`.
    #[must_use]
    pub fn of(view: &RegistryView, last: &Self) -> Self {
        let mut directory = Self::default();
        for (key, record) in &view.records {
            if let Some(tenant) = key
                .strip_prefix(CONTEXT)
                .and_then(|tenant| TenantId::new(tenant).ok())
            {
                let stored = parsed(key, record, last.contexts.get(&tenant));
                // Also without a value: a context that cannot be read is closed to its members, not
                // missing.
                directory.contexts.insert(tenant, stored);
            } else if let Some(actor) = key
                .strip_prefix(ACTOR)
                .and_then(|actor| ActorId::new(actor).ok())
            {
                let stored = parsed(key, record, last.actors.get(&actor));
                let keys = stored
                    .value
                    .as_ref()
                    .map_or(&[][..], |actor: &Actor| &*actor.keys);
                directory.claim_keys(keys, &KeyOwner::Actor(actor.clone()));
                directory.actors.insert(actor, stored);
            } else if let Some(peer) = key
                .strip_prefix(PEER)
                .and_then(|peer| NodeName::new(peer).ok())
            {
                let stored = parsed(key, record, last.peers.get(&peer));
                let keys = stored
                    .value
                    .as_ref()
                    .map_or(&[][..], |peer: &Peer| &*peer.keys);
                directory.claim_keys(keys, &KeyOwner::Peer(peer.clone()));
                directory.peers.insert(peer, stored);
            }
        }

        directory
    }

    /// Adds the keys of an owner. Two requests at the same time can add a key to two owners: then
    /// it has none, whichever record is read first, until it is revoked in all records but one.
    fn claim_keys(&mut self, keys: &[Key], owner: &KeyOwner) {
        for key in keys {
            let is_revoked = key.revoked_at.is_some();
            let claim = KeyClaim {
                owner: Some(owner.clone()),
                is_revoked,
            };
            let known = match self.keys.entry(key.id.clone()) {
                Entry::Vacant(entry) => {
                    entry.insert(claim);
                    continue;
                }
                Entry::Occupied(entry) => entry.into_mut(),
            };

            match (known.is_revoked, is_revoked) {
                // A revoked copy does not take the key from another owner, also if that one is
                // revoked.
                (_, true) => {}
                (true, false) => *known = claim,
                (false, false) => {
                    tracing::error!(key = key.id, ?owner, other = ?known.owner, "a key belongs to \
                        several actors or peers; it is not accepted until it is revoked at all \
                        but one of them");
                    known.owner = None;
                }
            }
        }
    }

    /// Returns whether several owners have a key, so that it is accepted for none.
    #[must_use]
    pub fn is_contested(&self, key_id: &str) -> bool {
        self.keys
            .get(key_id)
            .is_some_and(|claim| claim.owner.is_none())
    }

    /// Returns the owner of a key, and the key, which may have ended.
    #[must_use]
    pub fn find_key(&self, key_id: &str) -> Option<(&KeyOwner, &Key)> {
        // The keys stay in their records only; a change of a record cannot leave a copy here.
        let owner = self.keys.get(key_id)?.owner.as_ref()?;
        let keys = match owner {
            KeyOwner::Actor(id) => &self.actors.get(id)?.value.as_ref()?.keys,
            KeyOwner::Peer(name) => &self.peers.get(name)?.value.as_ref()?.keys,
        };
        Some((owner, keys.iter().find(|key| key.id == key_id)?))
    }
}

fn parsed<T: DeserializeOwned>(
    key: &str,
    record: &Record,
    last: Option<&Arc<Stored<T>>>,
) -> Arc<Stored<T>> {
    // A change of one record must not parse all of them.
    if let Some(last) = last.filter(|last| last.revision == record.revision) {
        return Arc::clone(last);
    }

    let value = serde_json::from_str(&record.value)
        .inspect_err(|error| {
            tracing::error!(key, %error, "a record of the registry cannot be \
            read; it has no members");
        })
        .ok();
    Arc::new(Stored {
        revision: record.revision,
        value,
    })
}

#[cfg(test)]
mod tests {
    use orlog_model::Timestamp;
    use orlog_signature::PublicKey;

    use super::super::Keyed as _;
    use super::*;

    fn at(millis: i64) -> Timestamp {
        Timestamp::from_millis(millis)
    }

    fn record(value: &impl serde::Serialize) -> Record {
        Record {
            revision: 1,
            value: serde_json::to_string(value).unwrap().into(),
        }
    }

    /// Requirements: F1, F2.
    #[test]
    fn key_of_several_records_has_no_owner_until_it_is_revoked_in_all_but_one() {
        let key = Key::new(PublicKey::from([1; 32]), at(1));
        let mut actor = Actor::new(at(1));
        actor.add_key(key.clone(), at(1), None).unwrap();
        let mut peer = Peer::new("https://b.example".parse().unwrap(), at(1));
        peer.add_key(key.clone(), at(1), None).unwrap();
        let [first, second] = ["a", "b"].map(|id| ActorId::new(id).unwrap());
        let name = NodeName::new("b.example").unwrap();
        let owner_of = |records: &[(String, Record)]| {
            let view = RegistryView {
                records: records.iter().cloned().collect(),
                ..RegistryView::default()
            };
            let directory = Directory::of(&view, &Directory::default());
            let owner = directory.find_key(&key.id).map(|(owner, _)| owner.clone());
            assert_eq!(directory.is_contested(&key.id), owner.is_none());
            owner
        };
        let held = |id: &ActorId, actor: &Actor| (Actor::key(id), record(actor));
        let of_peer = (Peer::key(&name), record(&peer));
        assert_eq!(
            owner_of(&[held(&first, &actor)]),
            Some(KeyOwner::Actor(first.clone()))
        );
        assert_eq!(
            owner_of(&[held(&first, &actor), held(&second, &actor)]),
            None
        );
        assert_eq!(owner_of(&[held(&first, &actor), of_peer.clone()]), None);
        let mut revoked = actor.clone();
        revoked.revoke_key(&first, &key.id, at(2), None).unwrap();
        let both = [held(&first, &revoked), held(&second, &actor)];
        assert_eq!(owner_of(&both), Some(KeyOwner::Actor(second.clone())));
        let both = [held(&first, &actor), held(&second, &revoked)];
        assert_eq!(owner_of(&both), Some(KeyOwner::Actor(first.clone())));
        assert_eq!(
            owner_of(&[held(&first, &revoked), of_peer]),
            Some(KeyOwner::Peer(name))
        );
    }
}
