//! Configuration of `[nats]`: servers, credentials and stream limits. `config/default.toml`
//! describes the keys.

use std::path::PathBuf;
use std::time::Duration;

use orlog_effect::secret::SecretRef;
use serde::{Deserialize, Serialize};

use super::loopback::is_loopback_url;
use super::units;
use super::violations::Violations;

/// Configuration of `[nats]`: JetStream for one or more pods.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NatsConfig {
    /// Server URLs; any servers of the cluster.
    pub servers: Vec<String>,
    /// User name, used with `password`.
    pub user: String,
    /// Password of the user.
    #[serde(with = "units::optional")]
    pub password: Option<SecretRef>,
    /// Access token.
    #[serde(with = "units::optional")]
    pub token: Option<SecretRef>,
    /// Seed of an nkey.
    #[serde(with = "units::optional")]
    pub nkey: Option<SecretRef>,
    /// Content of a `.creds` file.
    #[serde(with = "units::optional")]
    pub creds: Option<SecretRef>,
    /// Whether missing streams are created at startup.
    pub provision: bool,
    /// Whether Orlog also creates `AGGREGATE_EVENTS`, if no other system does.
    pub manage_aggregate_stream: bool,
    /// Replicas of each stream.
    pub replicas: usize,
    /// Time for which a message id is deduplicated.
    #[serde(with = "units::text")]
    pub duplicate_window: Duration,
    /// TLS of the connection.
    pub tls: NatsTlsConfig,
    /// Signatures of messages.
    pub signing: SigningConfig,
    /// Limits of `AGGREGATE_EVENTS`, if Orlog creates it.
    pub aggregates: StreamLimits,
    /// Limits of `WORKFLOW_COMMANDS`.
    pub commands: StreamLimits,
    /// Limits of `WORKFLOW_EVENTS`.
    pub events: StreamLimits,
    /// Limits of `WORKFLOW_DEADLETTERS`.
    pub dead_letters: StreamLimits,
}

/// Configuration of `[nats.tls]`: TLS of the connection.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct NatsTlsConfig {
    /// Whether a server without TLS is rejected, also on loopback.
    pub required: bool,
    /// Allows connections without TLS to other addresses than loopback.
    pub allow_plaintext: bool,
    /// CA certificates trusted in addition to those of the system; PEM.
    #[serde(with = "units::optional")]
    pub ca: Option<PathBuf>,
    /// Client certificate; PEM.
    #[serde(with = "units::optional")]
    pub certificate: Option<PathBuf>,
    /// Private key of the client certificate; PEM.
    #[serde(with = "units::optional")]
    pub key: Option<PathBuf>,
}

/// Configuration of `[nats.signing]`: signatures of effect commands, effect results and workflow
/// commands.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SigningConfig {
    /// Shared keys: the first one signs, all verify.
    pub keys: Vec<SecretRef>,
    /// Whether messages without a signature are rejected.
    pub required: bool,
    /// Allows scripts whose commands need no signature.
    pub allow_unsigned_scripts: bool,
}

/// Limits of a stream. Messages beyond the limits are dropped, even if they are unread.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StreamLimits {
    /// Maximum age of a message; unlimited if empty.
    #[serde(with = "units::optional")]
    pub max_age: Option<Duration>,
    /// Maximum size in bytes; the limit of the server if empty.
    #[serde(with = "units::optional")]
    pub max_size: Option<u64>,
}

impl NatsConfig {
    /// Returns whether a server without TLS is rejected: without an explicit permission, on each
    /// address that is not loopback.
    #[must_use]
    pub fn requires_tls(&self) -> bool {
        self.tls.required || !self.tls.allow_plaintext && !self.is_local()
    }

    /// Returns whether a node that executes effects of other nodes may execute scripts: if their
    /// commands are signed, if all servers are on loopback, or with an explicit permission.
    #[must_use]
    pub fn permits_scripts(&self) -> bool {
        let SigningConfig {
            keys,
            required,
            allow_unsigned_scripts,
        } = &self.signing;
        (*required && !keys.is_empty()) || *allow_unsigned_scripts || self.is_local()
    }

    /// Returns whether all servers are on loopback. A server without a scheme has the scheme
    /// `nats`.
    #[must_use]
    pub fn is_local(&self) -> bool {
        self.servers.iter().all(|server| {
            // Without a scheme, a URL parser reads `localhost` in `localhost:4222` as the scheme.
            let url = if server.contains("://") {
                server.clone()
            } else {
                format!("nats://{server}")
            };
            is_loopback_url(&url)
        })
    }

    /// Validates rules that involve several keys.
    pub(super) fn validate(&self, found: &mut Violations) {
        let credentials = [
            ("nats.user", !self.user.is_empty()),
            ("nats.token", self.token.is_some()),
            ("nats.nkey", self.nkey.is_some()),
            ("nats.creds", self.creds.is_some()),
        ];

        // The client uses only one kind of credentials.
        let mut provided = credentials
            .iter()
            .filter(|(_, provided)| *provided)
            .map(|(key, _)| key);
        if let (Some(first), Some(second)) = (provided.next(), provided.next()) {
            found.report(
                first,
                format_args!("conflicts with {second}; set only one of them"),
            );
        }

        let is_complete = self.user.is_empty() == self.password.is_none();
        found.require(
            is_complete,
            "nats.user",
            "user and password must be set together",
        );

        let is_complete = self.tls.certificate.is_some() == self.tls.key.is_some();
        found.require(
            is_complete,
            "nats.tls.certificate",
            "certificate and key must be set together",
        );

        found.require(
            !(self.tls.required && self.tls.allow_plaintext),
            "nats.tls.allow_plaintext",
            "contradicts nats.tls.required; set only one of them",
        );

        let replicas = self.replicas;
        let message = format_args!("{replicas} is not between 1 and 5");
        found.require((1..=5).contains(&replicas), "nats.replicas", message);
        found.require(
            !self.servers.is_empty(),
            "nats.servers",
            "set at least one server",
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Requirements: R15.
    #[test]
    fn results_are_kept_as_long_as_the_events_that_a_replay_reads() {
        let config = NatsConfig::default();
        assert!(config.events.max_age >= config.aggregates.max_age);
    }

    #[test]
    fn servers_outside_loopback_require_tls_unless_plaintext_is_allowed() {
        let requires = |servers: &[&str], required: bool, allow_plaintext: bool| {
            let servers = servers.iter().map(|server| (*server).to_owned()).collect();
            let tls = NatsTlsConfig {
                required,
                allow_plaintext,
                ..NatsTlsConfig::default()
            };
            NatsConfig {
                servers,
                tls,
                ..NatsConfig::default()
            }
            .requires_tls()
        };
        let (local, remote) = ("nats://127.0.0.1:4222", "nats://nats.nats:4222");
        assert!(!requires(
            &[local, "localhost:4222", "nats://[::1]:4222"],
            false,
            false
        ));
        assert!(requires(&[local], true, false));
        for remote in [
            remote,
            "10.0.0.7:4222",
            "nats://localhost.example.com",
            "tls://nats:4222",
        ] {
            assert!(requires(&[local, remote], false, false), "{remote}");
            assert!(!requires(&[local, remote], false, true), "{remote}");
        }
    }

    #[test]
    fn scripts_require_signed_commands_outside_loopback() {
        let permits = |server: &str, signing: SigningConfig| {
            NatsConfig {
                servers: vec![server.to_owned()],
                signing,
                ..NatsConfig::default()
            }
            .permits_scripts()
        };
        let (local, remote, none) = (
            "nats://127.0.0.1:4222",
            "tls://nats:4222",
            SigningConfig::default(),
        );
        let keys = SigningConfig {
            keys: vec!["env:KEY".parse().unwrap()],
            ..none.clone()
        };
        assert!(permits(local, none.clone()));
        assert!(!permits(remote, none.clone()));
        assert!(permits(
            remote,
            SigningConfig {
                allow_unsigned_scripts: true,
                ..none
            }
        ));
        assert!(permits(remote, keys.clone()));
        assert!(!permits(
            remote,
            SigningConfig {
                required: false,
                ..keys
            }
        ));
    }

    #[test]
    fn required_and_allowed_plaintext_contradict_each_other() {
        let tls = NatsTlsConfig {
            required: true,
            allow_plaintext: true,
            ..NatsTlsConfig::default()
        };
        let config = NatsConfig {
            tls,
            ..NatsConfig::default()
        };
        assert_eq!(
            Violations::keys(|found| config.validate(found)),
            ["nats.tls.allow_plaintext"]
        );
    }
}
