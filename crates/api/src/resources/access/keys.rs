//! Keys in bodies of requests, and the rules that an actor holds the private key of its keys, and
//! that a key has one owner.

use std::time::Duration;

use orlog_model::{ActorId, Timestamp};
use orlog_signature::{PossessionProof, PublicKey};
use serde::{Deserialize, Deserializer};
use utoipa::ToSchema;

use super::invalid_body;
use crate::server::parts::access::Access;
use crate::server::problem::{Code, Problem, ProblemDetail};
use orlog_node::access::Key;
use orlog_node::access::key_ring::public_key;

/// Time for which a proof of possession is accepted, as long as an invitation.
const MAX_PROOF_AGE: Duration = Duration::from_hours(24);

/// Public key of a peer to add.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct KeyBody {
    /// Ed25519 public key: `ed25519:` and 32 bytes in base64url.
    #[serde(deserialize_with = "public_key::deserialize")]
    #[schema(value_type = String)]
    public_key: PublicKey,
    /// Start of its validity, RFC 3339. Default: now.
    #[serde(default, deserialize_with = "time")]
    #[schema(value_type = Option<String>)]
    valid_from: Option<Timestamp>,
    /// End of its validity, RFC 3339. Default: none.
    #[serde(default, deserialize_with = "time")]
    #[schema(value_type = Option<String>)]
    valid_until: Option<Timestamp>,
}

/// Public key of an actor to add, with the proof that the actor holds its private key.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ActorKeyBody {
    /// Ed25519 public key: `ed25519:` and 32 bytes in base64url.
    #[serde(deserialize_with = "public_key::deserialize")]
    #[schema(value_type = String)]
    public_key: PublicKey,
    /// Proof of possession, not older than 24h, as `orlog key prove` prints it. Required.
    #[serde(default)]
    proof: Option<String>,
    /// Start of its validity, RFC 3339. Default: now.
    #[serde(default, deserialize_with = "time")]
    #[schema(value_type = Option<String>)]
    valid_from: Option<Timestamp>,
    /// End of its validity, RFC 3339. Default: none.
    #[serde(default, deserialize_with = "time")]
    #[schema(value_type = Option<String>)]
    valid_until: Option<Timestamp>,
}

/// Key of an actor to add, which can replace another one.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct AddActorKeyBody {
    /// The key.
    pub(crate) key: ActorKeyBody,
    /// Rotation: id of the key that this one replaces. Its validity ends after `overlap`.
    #[serde(default)]
    pub(crate) replaces: Option<String>,
    /// Time for which the replaced key stays valid. Default: 1h.
    #[serde(default)]
    pub(crate) overlap: Option<String>,
}

/// Key of a peer to add, which can replace another one.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct AddKeyBody {
    /// The key.
    pub(crate) key: KeyBody,
    /// Rotation: id of the key that this one replaces. Its validity ends after `overlap`.
    #[serde(default)]
    pub(crate) replaces: Option<String>,
    /// Time for which the replaced key stays valid. Default: 1h.
    #[serde(default)]
    pub(crate) overlap: Option<String>,
}

impl KeyBody {
    /// Returns the key. `path` is the location of the body in errors.
    pub(crate) fn into_key(self, now: Timestamp, path: &str) -> Result<Key, Problem> {
        let Self {
            public_key,
            valid_from,
            valid_until,
        } = self;
        let valid_from = valid_from.unwrap_or(now);
        // Such a key would never be valid, which its owner would notice only at the first request.
        if valid_until.is_some_and(|until| until <= valid_from) {
            return Err(invalid_body(
                &format!("{path}/valid_until"),
                "it is not after valid_from",
            ));
        }

        let mut key = Key::new(public_key, valid_from);
        key.valid_until = valid_until;
        Ok(key)
    }
}

impl ActorKeyBody {
    /// Returns the key of an actor. `path` is the location of the body in errors.
    pub(crate) fn into_key(
        self,
        access: &Access,
        actor: &ActorId,
        path: &str,
    ) -> Result<Key, Problem> {
        let Self {
            public_key,
            proof,
            valid_from,
            valid_until,
        } = self;
        let now = access.now();
        let leeway = access.signature_leeway();
        // Without a proof, a caller could add the key of another actor, and the node would then
        // accept it for none.
        check_proof(proof.as_deref(), actor, &public_key, now, leeway).map_err(|reason| {
            let pointer = format!("{path}/proof");
            let id = public_key.key_id();
            let detail = format!(
                "nothing proves that the actor {actor} holds the private key of {id}: {reason}; \
                 its holder creates a proof with `orlog key prove NAME --actor {actor}`"
            );
            let text = format!("{pointer}: {detail}");

            Problem::new(Code::KeyNotProven, text).with(vec![ProblemDetail { pointer, detail }])
        })?;

        KeyBody {
            public_key,
            valid_from,
            valid_until,
        }
        .into_key(now, path)
    }
}

/// Checks the proof that an actor holds the private key of a public key.
fn check_proof(
    proof: Option<&str>,
    actor: &ActorId,
    key: &PublicKey,
    now: Timestamp,
    leeway: Duration,
) -> Result<(), String> {
    let proof = proof.ok_or("the proof is missing")?;
    let proof: PossessionProof = proof.parse().map_err(|error| format!("{error}"))?;
    // The proof names the actor, so that a proof for one actor does not add the key to another one.
    if !proof.proves(actor.as_str(), key) {
        return Err("the proof is not by this key, or for another actor".to_owned());
    }

    let created = Timestamp::from_millis(proof.created().saturating_mul(1000));
    // The clocks of the node and of the holder can differ by as much as for signed requests.
    if created > now.saturating_add(leeway) {
        return Err(format!(
            "the proof was created at {created}, but it is {now}; correct the clock"
        ));
    }
    if now > created.saturating_add(MAX_PROOF_AGE) {
        return Err(format!(
            "the proof was created at {created}, more than 24h ago"
        ));
    }

    Ok(())
}

/// Rejects a key of this node, or of another actor or peer than `owner`, for example `actor robo`.
pub(crate) fn check_is_free(
    access: &Access,
    owner: &str,
    key: &Key,
    code: Code,
) -> Result<(), Problem> {
    let is_own = access.is_own_key(key.public_key.key_id());
    // This look-up includes the keys of the configuration, which precede those of the registry.
    let found = access
        .authenticator()
        .signed()
        .owner(&key.id)
        .map(|signer| signer.to_string());

    // A key of the same owner passes: the key ring rejects a duplicate with an error of its own.
    let is_taken = found.as_ref().is_some_and(|found| found != owner);
    if is_own {
        Err(taken(&[&key.id], code, "this node"))
    } else if is_taken || access.registry().directory().is_contested(&key.id) {
        Err(taken(&[&key.id], code, "another actor or peer"))
    } else {
        Ok(())
    }
}

/// Checks, after keys were added, that no other request has given one of them to another owner at
/// the same time; otherwise `remove` removes all such keys again. The later one of these requests
/// always sees both owners.
pub(crate) async fn confirm_owner(
    access: &Access,
    keys: &[Key],
    code: Code,
    remove: impl AsyncFnOnce(&[&str]) -> Result<(), Problem>,
) -> Result<(), Problem> {
    // This node may not have read the write of the other request yet.
    access.registry().refresh().await?;
    let directory = access.registry().directory();
    let ids = keys.iter().map(|key| key.id.as_str());
    let contested: Vec<_> = ids.filter(|id| directory.is_contested(id)).collect();
    if contested.is_empty() {
        return Ok(());
    }

    // If both requests find the conflict, both remove the keys, and one of them can add them again.
    // All at once: a key that stays with two owners is valid for none.
    remove(&contested).await?;
    Err(taken(
        &contested,
        code,
        "another actor or peer, added at the same time",
    ))
}

/// Creates the problem of keys that have another owner.
fn taken(ids: &[&str], code: Code, owner: &str) -> Problem {
    let keys = ids.join(", ");
    let detail = match ids {
        [_] => format!("the key {keys} belongs to {owner}; create a new key pair"),
        _ => format!("the keys {keys} belong to {owner}; create new key pairs"),
    };
    Problem::new(code, detail)
}

fn time<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Timestamp>, D::Error> {
    let text = Option::<String>::deserialize(deserializer)?;
    text.map(|text| Timestamp::parse(&text))
        .transpose()
        .map_err(serde::de::Error::custom)
}
