//! Configuration of `[auth.signatures]` and `[auth.actors.<id>]`: signed requests and the keys that
//! sign them.

use std::collections::BTreeSet;
use std::fmt;
use std::time::Duration;

use orlog_model::{ActorId, TenantId, Timestamp};
use orlog_signature::{KeyId, PublicKey, TimeWindow};
use serde::de::value::MapAccessDeserializer;
use serde::de::{Error, MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::units;
use super::violations::Violations;

/// Minimum of the maximum age: the time for which clients sign.
const MIN_WINDOW: Duration = Duration::from_mins(1);
/// Maximum age of a signature: nonces are stored for this time.
const MAX_WINDOW: Duration = Duration::from_hours(1);

/// Configuration of `[auth.signatures]`: time of signed requests.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SignaturesConfig {
    /// Maximum age of a signature.
    #[serde(with = "units::text")]
    pub window: Duration,
    /// Maximum time by which the clock of a client may be ahead.
    #[serde(with = "units::text")]
    pub leeway: Duration,
}

/// Configuration of one actor: its keys and its rights.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ActorConfig {
    /// Public keys. A request by any of them is a request of the actor.
    pub keys: Vec<ActorKeyConfig>,
    /// Roles.
    pub roles: Vec<String>,
    /// Tenants; `*` for all tenants and the node.
    pub tenants: Vec<String>,
    /// Roles for human tasks.
    pub groups: Vec<String>,
}

/// Public key of an actor or a peer, with its validity.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ActorKeyConfig {
    /// Public key.
    pub public: PublicKey,
    /// Start of the validity; `None`: no limit.
    pub not_before: Option<Timestamp>,
    /// End of the validity; `None`: no limit.
    pub not_after: Option<Timestamp>,
    /// Whether the key is revoked.
    pub revoked: bool,
}

impl ActorKeyConfig {
    /// Returns whether signatures of the key are accepted at a time.
    #[must_use]
    pub fn is_valid(&self, at: Timestamp) -> bool {
        !self.revoked
            && self.not_before.is_none_or(|from| from <= at)
            && self.not_after.is_none_or(|to| to > at)
    }
}

/// Key with its validity, as a table.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct KeyTable {
    public: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    not_before: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    not_after: Option<String>,
    #[serde(default)]
    revoked: bool,
}

impl KeyTable {
    fn key<E: Error>(&self) -> Result<ActorKeyConfig, E> {
        let time = |name: &str, text: &Option<String>| {
            let parsed = text.as_deref().map(Timestamp::parse).transpose();
            parsed.map_err(|error| E::custom(format!("{name}: {error}")))
        };
        Ok(ActorKeyConfig {
            public: self.public.parse().map_err(E::custom)?,
            not_before: time("not_before", &self.not_before)?,
            not_after: time("not_after", &self.not_after)?,
            revoked: self.revoked,
        })
    }
}

impl Serialize for ActorKeyConfig {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let text = |time: &Option<Timestamp>| time.as_ref().map(ToString::to_string);
        let not_before = text(&self.not_before);
        let not_after = text(&self.not_after);

        KeyTable {
            public: self.public.to_string(),
            not_before,
            not_after,
            revoked: self.revoked,
        }
        .serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for ActorKeyConfig {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(KeyVisitor)
    }
}

/// Reads a key as a text, or as a table with its validity.
struct KeyVisitor;

impl<'de> Visitor<'de> for KeyVisitor {
    type Value = ActorKeyConfig;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a public key such as \"ed25519:…\", or a table with the key `public`")
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<ActorKeyConfig, E> {
        KeyTable {
            public: text.to_owned(),
            not_before: None,
            not_after: None,
            revoked: false,
        }
        .key()
    }

    fn visit_map<M: MapAccess<'de>>(self, map: M) -> Result<ActorKeyConfig, M::Error> {
        KeyTable::deserialize(MapAccessDeserializer::new(map))?.key()
    }
}

impl SignaturesConfig {
    /// Returns the window in which a signature is accepted.
    #[must_use]
    pub fn time_window(&self) -> TimeWindow {
        TimeWindow {
            max_age: self.window,
            leeway: self.leeway,
        }
    }

    pub(super) fn validate(&self, found: &mut Violations) {
        found.require(
            (MIN_WINDOW..=MAX_WINDOW).contains(&self.window),
            "auth.signatures.window",
            "must be between 1m and 1h; clients sign for 1m, and nonces are stored for this time",
        );

        found.require(
            self.leeway <= self.window,
            "auth.signatures.leeway",
            "must not be longer than the window; synchronize the clocks of the clients",
        );
    }
}

impl ActorKeyConfig {
    /// Validates a key at a place of the configuration. `known` contains the keys of the actors and
    /// peers before it.
    pub(super) fn validate(
        &self,
        place: &str,
        known: &mut BTreeSet<KeyId>,
        found: &mut Violations,
    ) {
        let public = self.public;
        let message =
            format_args!("the key {public} occurs twice; a key belongs to one actor or peer");
        found.require(known.insert(public.key_id()), place, message);

        let is_ordered = match (self.not_before, self.not_after) {
            (Some(from), Some(to)) => from < to,
            _ => true,
        };
        let message = format_args!("the validity of {public} ends before it starts");
        found.require(is_ordered, place, message);
    }
}

impl ActorConfig {
    /// Validates an actor. `known` contains the keys of the actors before it.
    pub(super) fn validate(
        &self,
        id: &ActorId,
        known: &mut BTreeSet<KeyId>,
        found: &mut Violations,
    ) {
        let key = |name: &str| format!("auth.actors.{id}.{name}");
        found.require(
            !self.keys.is_empty(),
            key("keys"),
            "no key; add one that `orlog key show` prints",
        );

        for actor_key in &self.keys {
            actor_key.validate(&key("keys"), known, found);
        }

        for tenant in self.tenants.iter().filter(|tenant| *tenant != "*") {
            if let Err(error) = TenantId::new(tenant.as_str()) {
                found.report(key("tenants"), error);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: &str = "ed25519:11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo";

    fn read(text: &str) -> Result<ActorConfig, String> {
        toml::from_str(text).map_err(|error| error.message().to_owned())
    }

    #[test]
    fn key_is_a_text_or_a_table_and_survives_a_round_trip() {
        let text = format!(
            "keys = [\"{KEY}\", {{ public = \
             \"{KEY}\", not_before = \"2026-01-01T00:00:00Z\", revoked = true }}]\n\
             roles = [\"operator\"]\ntenants = [\"acme\"]\n"
        );
        let actor = read(&text).unwrap();
        let [plain, table] = &actor.keys[..] else {
            panic!("{actor:?}")
        };
        assert!(
            !plain.revoked
                && plain.not_before.is_none()
                && table.revoked
                && table.not_before.is_some()
        );
        assert_eq!(plain.public.to_string(), KEY);
        assert_eq!(read(&toml::to_string(&actor).unwrap()).unwrap(), actor);
    }

    #[test]
    fn invalid_actors_name_the_place() {
        for (text, expected) in [
            (
                "keys = [\"ssh-ed25519 AAAA\"]".to_owned(),
                "is not a public key",
            ),
            ("keys = [1]".to_owned(), "expected a public key"),
            (
                format!("keys = [{{ public = \"{KEY}\", not_after = \"soon\" }}]"),
                "not_after",
            ),
            (
                format!("keys = [{{ public = \"{KEY}\", until = \"soon\" }}]"),
                "unknown field `until`",
            ),
            ("role = \"admin\"".to_owned(), "unknown field `role`"),
        ] {
            let error = read(&text).unwrap_err();
            assert!(error.contains(expected), "{text}: {error}");
        }
        let check = |text: &str| {
            let (actor, id) = (read(text).unwrap(), ActorId::new("ada").unwrap());
            Violations::keys(|found| actor.validate(&id, &mut BTreeSet::new(), found))
        };
        assert_eq!(
            check(&format!("keys = [\"{KEY}\"]\ntenants = [\"*\", \"\"]")),
            [""; 0]
        );
        assert_eq!(check(""), ["auth.actors.ada.keys"]);
        assert_eq!(
            check(&format!("keys = [\"{KEY}\", \"{KEY}\"]")),
            ["auth.actors.ada.keys"]
        );
        let reversed =
            "not_before = \"2026-01-02T00:00:00Z\", not_after = \"2026-01-01T00:00:00Z\"";
        assert_eq!(
            check(&format!(
                "keys = [{{ public = \"{KEY}\", {reversed} }}]\ntenants = [\"a\\u0000\"]"
            )),
            ["auth.actors.ada.keys", "auth.actors.ada.tenants"]
        );
    }

    #[test]
    fn window_is_at_most_an_hour_and_the_leeway_within_it() {
        let check = |window, leeway| {
            let config = SignaturesConfig {
                window: Duration::from_secs(window),
                leeway: Duration::from_secs(leeway),
            };
            Violations::keys(|found| config.validate(found))
        };
        assert_eq!(check(300, 30), [""; 0]);
        assert_eq!(check(3601, 30), ["auth.signatures.window"]);
        assert_eq!(check(59, 30), ["auth.signatures.window"]);
        assert_eq!(check(60, 61), ["auth.signatures.leeway"]);
    }
}
