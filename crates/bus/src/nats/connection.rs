//! The connection to the servers, and the check that they can do what is asked of them.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use async_nats::jetstream;
use async_nats::jetstream::context::{AccountError, AccountErrorKind};
use tokio::sync::Semaphore;

/// The oldest server that works: it takes time-outs of single messages, consumers with many filters, and counts of its own.
pub const MINIMUM_SERVER: (u64, u64) = (2, 12);

/// Messages that wait for their acknowledgement, of all who publish together.
const UNACKNOWLEDGED: usize = 4096;
/// Commands that wait for the socket.
const CAPACITY: usize = 8192;

/// How to reach the servers.
#[derive(Clone, Debug)]
pub struct Options {
    /// `nats://host:port`, any of a cluster.
    pub servers: Vec<String>,
    /// What the servers call this client.
    pub name: String,
    /// Who it is.
    pub credentials: Credentials,
    /// How the connection is protected.
    pub tls: Tls,
    /// How long a request to JetStream may take; 1 s where nothing is said. Short: what became of a publish that timed out is
    /// looked up.
    pub request_timeout: Duration,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            servers: Vec::new(),
            name: String::new(),
            credentials: Credentials::default(),
            tls: Tls::default(),
            request_timeout: Duration::from_secs(1),
        }
    }
}

/// Who a client is.
#[derive(Clone, Default)]
pub enum Credentials {
    /// Nobody in particular.
    #[default]
    None,
    /// A user and a password.
    User(String, String),
    /// A token.
    Token(String),
    /// The seed of an nkey.
    Nkey(String),
    /// The contents of a `.creds` file: a JWT and the seed that signs.
    Creds(String),
}

impl std::fmt::Debug for Credentials {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Credentials::None => "none",
            Credentials::User(..) => "user and password",
            Credentials::Token(_) => "token",
            Credentials::Nkey(_) => "nkey",
            Credentials::Creds(_) => "creds",
        })
    }
}

/// How a connection is protected.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tls {
    /// Refuse to speak in the clear.
    pub required: bool,
    /// Whom to trust, beside those the system trusts; PEM.
    pub ca: Option<PathBuf>,
    /// What to show: a certificate and its key; PEM.
    pub identity: Option<(PathBuf, PathBuf)>,
}

/// There is no connection.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    /// The credentials cannot be read; the text says why, and never what they are.
    #[error("the NATS credentials cannot be used: {0}")]
    Credentials(String),
    /// Nobody answers, or lets this client in.
    #[error("no connection to NATS at {servers}: {reason}")]
    Refused {
        /// Whom it was tried with.
        servers: String,
        /// What the client says.
        reason: String,
    },
    /// The server is too old.
    #[error(
        "the NATS server {server} is version {found}; {}.{} or newer is needed: upgrade it",
        MINIMUM_SERVER.0,
        MINIMUM_SERVER.1
    )]
    TooOld {
        /// Its name.
        server: String,
        /// Its version.
        found: String,
    },
    /// JetStream does not answer, for example because the servers have only just started: try again.
    #[error("JetStream does not answer yet: {0}")]
    NotYet(String),
    /// The server runs without JetStream.
    #[error(
        "the NATS server has no JetStream for this account: {0}; enable it with `jetstream {{}}` in its configuration"
    )]
    NoJetStream(String),
}

/// A connection that stays: the client reconnects by itself.
#[derive(Clone, Debug)]
pub struct Connection {
    pub(super) client: async_nats::Client,
    pub(super) jetstream: jetstream::Context,
    /// Room for messages that wait for their acknowledgement.
    pub(super) window: Arc<Semaphore>,
}

impl Connection {
    /// Connects and checks the server.
    ///
    /// # Errors
    /// See [`ConnectError`].
    pub async fn open(options: &Options) -> Result<Self, ConnectError> {
        let refused = |reason: String| ConnectError::Refused { servers: options.servers.join(", "), reason };
        let client = configured(options)?.connect(options.servers.clone()).await;
        let client = client.map_err(|error| refused(chain(&error)))?;
        let info = client.server_info();
        if version(&info.version).is_none_or(|found| found < MINIMUM_SERVER) {
            return Err(ConnectError::TooOld { server: info.server_name, found: info.version });
        }
        let mut jetstream = jetstream::new(client.clone());
        jetstream.set_timeout(options.request_timeout);
        jetstream.query_account().await.map_err(|error| without_jetstream(&error))?;
        Ok(Self { client, jetstream, window: Arc::new(Semaphore::new(UNACKNOWLEDGED)) })
    }

    /// The version of the server that this is connected to now.
    #[must_use]
    pub fn server_version(&self) -> String {
        self.client.server_info().version
    }

    /// Whether the server that this is connected to now is of this version or a newer one.
    #[must_use]
    pub fn is_at_least(&self, wanted: (u64, u64)) -> bool {
        version(&self.server_version()).is_some_and(|found| found >= wanted)
    }

    /// Whether it is connected at this moment.
    #[must_use]
    pub fn is_up(&self) -> bool {
        self.client.connection_state() == async_nats::connection::State::Connected
    }

    /// The largest message that the server takes, in bytes.
    #[must_use]
    pub fn max_payload(&self) -> usize {
        self.client.server_info().max_payload
    }
}

/// Servers that are choosing a leader answer late, or with a word of theirs for "not now".
fn without_jetstream(error: &AccountError) -> ConnectError {
    match error.kind() {
        AccountErrorKind::TimedOut => ConnectError::NotYet(chain(error)),
        AccountErrorKind::JetStream(inner) if inner.code() == 503 => ConnectError::NotYet(chain(error)),
        _ => ConnectError::NoJetStream(chain(error)),
    }
}

fn configured(options: &Options) -> Result<async_nats::ConnectOptions, ConnectError> {
    let mut connect = async_nats::ConnectOptions::new()
        .name(&options.name)
        .client_capacity(CAPACITY)
        .subscription_capacity(CAPACITY)
        .require_tls(options.tls.required);
    connect = match options.credentials.clone() {
        Credentials::None => connect,
        Credentials::User(user, password) => connect.user_and_password(user, password),
        Credentials::Token(token) => connect.token(token),
        Credentials::Nkey(seed) => connect.nkey(seed),
        Credentials::Creds(text) => {
            connect.credentials(&text).map_err(|error| ConnectError::Credentials(error.to_string()))?
        }
    };
    if let Some(ca) = &options.tls.ca {
        connect = connect.add_root_certificates(ca.clone());
    }
    if let Some((certificate, key)) = &options.tls.identity {
        connect = connect.add_client_certificate(certificate.clone(), key.clone());
    }
    Ok(connect)
}

fn version(text: &str) -> Option<(u64, u64)> {
    let mut parts = text.split('.');
    Some((parts.next()?.parse().ok()?, parts.next()?.parse().ok()?))
}

/// An error with its causes: the client's own text names only the kind.
pub(super) fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(inner) = cause {
        let inner_text = inner.to_string();
        if !text.contains(&inner_text) {
            text = format!("{text}: {inner_text}");
        }
        cause = inner.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_compared_as_numbers() {
        assert!(version("2.9.10").is_some_and(|found| found < MINIMUM_SERVER));
        assert!(version("2.12.0").is_some_and(|found| found >= MINIMUM_SERVER));
        assert!(version("2.15.1-beta.2").is_some_and(|found| found >= MINIMUM_SERVER));
        assert_eq!(version("dev"), None);
    }

    #[test]
    fn credentials_are_never_shown() {
        let credentials = Credentials::User("me".to_owned(), "canary".to_owned());
        assert_eq!(format!("{credentials:?}"), "user and password");
    }
}
