//! Bodies of requests about actors, and views of actors.

use std::collections::BTreeSet;

use orlog_model::{ActorId, Timestamp};
use orlog_signature::PublicKey;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::super::keys::ActorKeyBody;
use super::super::{ChangeView, change_views, invalid_body};
use crate::server::problem::Problem;
use orlog_node::access::key_ring::public_key;
use orlog_node::access::{Actor, Key};

/// Maximum number of addresses of an actor.
const MAX_ADDRESSES: usize = 20;
/// Maximum length of an address, in bytes.
const MAX_TEXT_BYTES: usize = 255;

/// Actor with its keys.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct ActorView {
    pub(super) id: String,
    keys: Vec<KeyView>,
    addresses: BTreeSet<String>,
    /// Time until which the invitation can be used; null if there is none.
    #[schema(format = "date-time")]
    invited_until: Option<String>,
    #[schema(format = "date-time")]
    created_at: String,
    /// The last changes, newest first.
    changes: Vec<ChangeView>,
}

/// Key of an actor.
#[derive(Debug, Serialize, ToSchema)]
struct KeyView {
    id: String,
    /// Ed25519 public key.
    #[serde(serialize_with = "public_key::serialize")]
    #[schema(value_type = String)]
    public_key: PublicKey,
    #[schema(format = "date-time")]
    valid_from: String,
    #[schema(format = "date-time")]
    valid_until: Option<String>,
    #[schema(format = "date-time")]
    revoked_at: Option<String>,
    /// Whether signatures of the key are accepted now.
    valid: bool,
}

/// Page of actors.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct ActorPage {
    pub(super) items: Vec<ActorView>,
    pub(super) next_cursor: Option<String>,
}

/// Actor to create.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ActorBody {
    /// Id, 1 to 64 bytes.
    #[schema(value_type = String)]
    pub(super) id: ActorId,
    /// Keys.
    #[serde(default)]
    pub(super) keys: Vec<ActorKeyBody>,
    /// Addresses at which it receives messages, for example URLs.
    #[serde(default)]
    pub(super) addresses: BTreeSet<String>,
}

/// Addresses of an actor.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct AddressesBody {
    /// Addresses at which it receives messages, for example URLs.
    pub(super) addresses: BTreeSet<String>,
}

/// Validity of an invitation.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct InvitationBody {
    /// Time until which the token is valid. Default: 24h. Maximum: 720h.
    #[serde(default)]
    pub(super) expires_in: Option<String>,
}

/// Invitation with its token, which is not stored and not shown again.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct InvitationView {
    pub(super) actor: String,
    pub(super) token: String,
    #[schema(format = "date-time")]
    pub(super) expires_at: String,
}

/// Token and key of an invited actor.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct EnrollBody {
    /// Token of the invitation.
    pub(super) token: String,
    /// Key to enroll.
    pub(super) key: ActorKeyBody,
}

pub(super) fn check_addresses(addresses: &BTreeSet<String>) -> Result<(), Problem> {
    // Every pod holds all actors in memory, so that the size of a record is limited.
    if addresses.len() > MAX_ADDRESSES {
        return Err(invalid_body(
            "/addresses",
            format!("at most {MAX_ADDRESSES} addresses"),
        ));
    }

    if addresses.iter().all(|address| is_valid_address(address)) {
        Ok(())
    } else {
        Err(invalid_body(
            "/addresses",
            "an address has 1 to 255 bytes without control characters",
        ))
    }
}

fn is_valid_address(address: &str) -> bool {
    !address.is_empty() && address.len() <= MAX_TEXT_BYTES && !address.chars().any(char::is_control)
}

impl ActorView {
    pub(super) fn of(id: &ActorId, actor: &Actor, now: Timestamp) -> Self {
        let key = |key: &Key| KeyView {
            id: key.id.clone(),
            public_key: key.public_key,
            valid_from: key.valid_from.to_string(),
            valid_until: key.valid_until.map(|until| until.to_string()),
            revoked_at: key.revoked_at.map(|at| at.to_string()),
            valid: key.is_valid(now),
        };
        let invitation = actor.invitation.as_ref();

        // A used or expired invitation stays in the record; the view shows only one that still
        // enrolls a key.
        let open = invitation
            .filter(|invitation| invitation.used_by.is_none() && invitation.expires_at > now);
        Self {
            id: id.to_string(),
            keys: actor.keys.iter().map(key).collect(),
            addresses: actor.addresses.clone(),
            invited_until: open.map(|invitation| invitation.expires_at.to_string()),
            created_at: actor.created_at.to_string(),
            changes: change_views(&actor.changes),
        }
    }
}
