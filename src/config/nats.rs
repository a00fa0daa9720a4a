//! `[nats]`: the servers, who this is there, and what the streams keep. What a key means stands in `config/default.toml`.

use std::path::PathBuf;
use std::time::Duration;

use orlog_effect::secret::SecretRef;
use serde::{Deserialize, Serialize};

use super::units;

/// `[nats]`: JetStream under one pod or many.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Nats {
    /// Where the servers are; any of a cluster.
    pub servers: Vec<String>,
    /// A user, with `password`.
    pub user: String,
    /// The user's password.
    #[serde(with = "units::secret")]
    pub password: Option<SecretRef>,
    /// A token.
    #[serde(with = "units::secret")]
    pub token: Option<SecretRef>,
    /// The seed of an nkey.
    #[serde(with = "units::secret")]
    pub nkey: Option<SecretRef>,
    /// The contents of a `.creds` file.
    #[serde(with = "units::secret")]
    pub creds: Option<SecretRef>,
    /// Whether streams that are missing are made at the start.
    pub provision: bool,
    /// Whether `AGGREGATE_EVENTS` is made here too, since nobody else does.
    pub own_aggregate_stream: bool,
    /// Copies of each message.
    pub replicas: usize,
    /// For how long the id of a message is remembered.
    #[serde(with = "units::duration")]
    pub duplicate_window: Duration,
    /// How the connection is protected.
    pub tls: NatsTls,
    /// What `AGGREGATE_EVENTS` keeps, where it is made here.
    pub aggregates: StreamLimits,
    /// What `WORKFLOW_COMMANDS` keeps.
    pub commands: StreamLimits,
    /// What `WORKFLOW_EVENTS` keeps.
    pub events: StreamLimits,
    /// What `WORKFLOW_DEADLETTERS` keeps.
    pub dead_letters: StreamLimits,
}

/// `[nats.tls]`: how the connection is protected.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct NatsTls {
    /// Whether a server that speaks in the clear is refused.
    pub required: bool,
    /// Whom to trust, beside those the system trusts; PEM.
    #[serde(with = "units::optional")]
    pub ca: Option<PathBuf>,
    /// What to show; PEM.
    #[serde(with = "units::optional")]
    pub certificate: Option<PathBuf>,
    /// Its key; PEM.
    #[serde(with = "units::optional")]
    pub key: Option<PathBuf>,
}

/// What a stream keeps. What is older or more is dropped, read or not.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct StreamLimits {
    /// For how long; for ever where it is empty.
    #[serde(with = "units::optional_duration")]
    pub max_age: Option<Duration>,
    /// How much, in bytes; as much as the servers take where it is empty.
    #[serde(with = "units::optional_size")]
    pub max_size: Option<u64>,
}

impl Default for StreamLimits {
    fn default() -> Self {
        Self { max_age: Some(Duration::from_hours(7 * 24)), max_size: None }
    }
}

impl Default for Nats {
    fn default() -> Self {
        let month = || StreamLimits { max_age: Some(Duration::from_hours(30 * 24)), max_size: None };
        Self {
            servers: vec!["nats://127.0.0.1:4222".to_owned()],
            user: String::new(),
            password: None,
            token: None,
            nkey: None,
            creds: None,
            provision: true,
            own_aggregate_stream: false,
            replicas: 1,
            duplicate_window: Duration::from_mins(2),
            tls: NatsTls::default(),
            aggregates: month(),
            commands: StreamLimits::default(),
            events: StreamLimits::default(),
            dead_letters: month(),
        }
    }
}

impl Nats {
    /// What does not go together: the key, and why.
    pub(super) fn mistake(&self) -> Option<(&'static str, String)> {
        let given = [
            ("nats.user", !self.user.is_empty()),
            ("nats.token", self.token.is_some()),
            ("nats.nkey", self.nkey.is_some()),
            ("nats.creds", self.creds.is_some()),
        ];
        let given: Vec<_> = given.iter().filter(|(_, given)| *given).map(|(key, _)| *key).collect();
        if let [first, second, ..] = given[..] {
            return Some((first, format!("only one of it and {second} can say who this is")));
        }
        if self.user.is_empty() != self.password.is_none() {
            return Some(("nats.user", "a user and a password belong together".to_owned()));
        }
        if self.tls.certificate.is_some() != self.tls.key.is_some() {
            return Some(("nats.tls.certificate", "a certificate and its key belong together".to_owned()));
        }
        if !(1..=5).contains(&self.replicas) {
            return Some(("nats.replicas", format!("{} is not between 1 and 5", self.replicas)));
        }
        self.servers.is_empty().then(|| ("nats.servers", "name at least one server".to_owned()))
    }
}
