//! Connection to the NATS servers, and the check of the server version.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use async_nats::client::{Request, RequestErrorKind};
use async_nats::jetstream;
use async_nats::jetstream::context::{AccountError, AccountErrorKind};
use async_trait::async_trait;
use tokio::sync::Semaphore;

use super::message::{header_map, header_pairs};
use super::read_failures::ReadFailures;
use crate::Message;
use crate::requests::{RequestClient, RequestError, Response};
use crate::signature::Signer;

/// Minimum server version. It supports message TTLs, consumers with several filters, and counters.
pub const MINIMUM_SERVER: (u64, u64) = (2, 12);

/// Maximum number of unacknowledged messages of all publishers together.
const MAX_PENDING_ACKS: usize = 4096;
/// Maximum number of commands that wait for the socket.
const CAPACITY: usize = 8192;

/// Connection options.
#[derive(Clone, Debug)]
pub struct Options {
    /// Server URLs of the form `nats://host:port`; any servers of a cluster.
    pub servers: Vec<String>,
    /// Client name that the servers display.
    pub name: String,
    /// Client credentials.
    pub credentials: Credentials,
    /// TLS options of the connection.
    pub tls: TlsOptions,
    /// Connects to no servers that the listed ones announce. Those may have other addresses, which
    /// require TLS.
    pub only_listed_servers: bool,
    /// Keys of signed messages.
    pub signer: Arc<Signer>,
    /// Timeout of a JetStream request. Default: 1s. It is short because a publish that timed out is
    /// verified by a read.
    pub request_timeout: Duration,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            servers: Vec::new(),
            name: String::new(),
            credentials: Credentials::default(),
            tls: TlsOptions::default(),
            only_listed_servers: false,
            signer: Arc::default(),
            request_timeout: Duration::from_secs(1),
        }
    }
}

/// Credentials of a client.
#[derive(Clone, Default)]
pub enum Credentials {
    /// No credentials.
    #[default]
    None,
    /// User name and password.
    User(String, String),
    /// Authentication token.
    Token(String),
    /// Seed of an nkey.
    Nkey(String),
    /// Content of a `.creds` file: a JWT and the signing seed.
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

/// TLS options of a connection.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TlsOptions {
    /// Whether to reject unencrypted connections.
    pub required: bool,
    /// Additional trusted CA certificates besides those of the system; PEM.
    pub ca: Option<PathBuf>,
    /// Client certificate and its key; PEM.
    pub identity: Option<(PathBuf, PathBuf)>,
}

/// Error of a connection attempt.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    /// The credentials cannot be read. The text gives the reason and never contains the
    /// credentials.
    #[error("invalid NATS credentials: {0}")]
    Credentials(String),
    /// No server responds or accepts this client.
    #[error("cannot connect to NATS at {servers}: {reason}")]
    Rejected {
        /// Servers of the attempt.
        servers: String,
        /// Error of the client.
        reason: String,
    },
    /// A server offers no TLS.
    #[error(
        "NATS at {servers} does not offer TLS; enable it on the servers, or set \
         nats.tls.allow_plaintext = true inside a trusted network (and nats.tls.required = false)"
    )]
    Plaintext {
        /// Servers of the attempt.
        servers: String,
    },
    /// The server is too old.
    #[error(
        "NATS server {server} has version {found}, but {}.{} or newer is required; upgrade the \
         server",
        MINIMUM_SERVER.0,
        MINIMUM_SERVER.1
    )]
    UnsupportedServer {
        /// Name of the server.
        server: String,
        /// Version of the server.
        found: String,
    },
    /// JetStream does not respond, for example because the servers have just started. Retry later.
    #[error("JetStream is not available yet: {0}")]
    Unavailable(String),
    /// JetStream is not enabled on the server or for the account.
    #[error(
        "JetStream is not enabled for this account: {0}; enable it with `jetstream {{}}` in the \
         NATS server configuration"
    )]
    NoJetStream(String),
}

/// Persistent connection: the client reconnects automatically.
#[derive(Clone, Debug)]
pub struct Connection {
    pub(super) client: async_nats::Client,
    pub(super) jetstream: jetstream::Context,
    /// Permits for unacknowledged messages.
    pub(super) window: Arc<Semaphore>,
    pub(super) signer: Arc<Signer>,
    pub(super) read_failures: Arc<ReadFailures>,
}

impl Connection {
    /// Connects and checks the server.
    ///
    /// # Errors
    /// See [`ConnectError`].
    pub async fn open(options: &Options) -> Result<Self, ConnectError> {
        let servers = || options.servers.join(", ");
        let client = configured(options)?.connect(options.servers.clone()).await;
        let client = client.map_err(|error| {
            if options.tls.required && is_plaintext(&error) {
                return ConnectError::Plaintext { servers: servers() };
            }
            ConnectError::Rejected {
                servers: servers(),
                reason: chain(&error),
            }
        })?;

        let info = client.server_info();
        if version(&info.version).is_none_or(|found| found < MINIMUM_SERVER) {
            return Err(ConnectError::UnsupportedServer {
                server: info.server_name,
                found: info.version,
            });
        }

        // An account without JetStream fails the start, not the first publish.
        let mut jetstream = jetstream::new(client.clone());
        jetstream.set_timeout(options.request_timeout);
        jetstream
            .query_account()
            .await
            .map_err(|error| without_jetstream(&error))?;

        let window = Arc::new(Semaphore::new(MAX_PENDING_ACKS));
        Ok(Self {
            client,
            jetstream,
            window,
            signer: Arc::clone(&options.signer),
            read_failures: Arc::default(),
        })
    }

    /// Returns why a reader of this connection does not advance; `None` if all advance.
    #[must_use]
    pub fn read_failure(&self) -> Option<String> {
        self.read_failures.first()
    }

    /// Returns the signer of messages.
    #[must_use]
    pub fn signer(&self) -> &Arc<Signer> {
        &self.signer
    }

    /// Returns the version of the currently connected server.
    #[must_use]
    pub fn server_version(&self) -> String {
        self.client.server_info().version
    }

    /// Returns whether the currently connected server has this version or a newer one.
    #[must_use]
    pub fn is_at_least(&self, minimum: (u64, u64)) -> bool {
        version(&self.server_version()).is_some_and(|found| found >= minimum)
    }

    /// Returns whether the client is connected now.
    #[must_use]
    pub fn is_up(&self) -> bool {
        self.client.connection_state() == async_nats::connection::State::Connected
    }

    /// Returns the maximum message size of the server, in bytes.
    #[must_use]
    pub fn max_payload(&self) -> usize {
        self.client.server_info().max_payload
    }
}

#[async_trait]
impl RequestClient for Connection {
    async fn request(&self, message: Message, within: Duration) -> Result<Response, RequestError> {
        let request = Request::new().payload(message.payload.clone());
        let request = request
            .headers(header_map(&message.headers))
            .timeout(Some(within));
        let subject = message.subject;
        match self.client.send_request(subject.clone(), request).await {
            Ok(response) => Ok(Response {
                headers: response
                    .headers
                    .as_ref()
                    .map(header_pairs)
                    .unwrap_or_default(),
                payload: response.payload,
            }),
            Err(error) => Err(match error.kind() {
                RequestErrorKind::NoResponders => RequestError::NoResponders(subject),
                RequestErrorKind::TimedOut => RequestError::TimedOut(subject),
                RequestErrorKind::MaxPayloadExceeded => RequestError::TooLarge(subject),
                RequestErrorKind::InvalidSubject | RequestErrorKind::Other => {
                    RequestError::Unavailable(chain(&error))
                }
            }),
        }
    }
}

/// Maps an account error. During a leader election, servers respond late or with a temporary error.
fn without_jetstream(error: &AccountError) -> ConnectError {
    match error.kind() {
        AccountErrorKind::TimedOut => ConnectError::Unavailable(chain(error)),
        AccountErrorKind::JetStream(inner) if inner.code() == 503 => {
            ConnectError::Unavailable(chain(error))
        }
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
        Credentials::Creds(text) => connect
            .credentials(&text)
            .map_err(|error| ConnectError::Credentials(error.to_string()))?,
    };

    if options.only_listed_servers {
        connect = connect.ignore_discovered_servers();
    }
    if let Some(ca) = &options.tls.ca {
        connect = connect.add_root_certificates(ca.clone());
    }
    if let Some((certificate, key)) = &options.tls.identity {
        connect = connect.add_client_certificate(certificate.clone(), key.clone());
    }
    Ok(connect)
}

/// Returns whether a server did not respond to a TLS handshake with TLS.
fn is_plaintext(error: &(dyn std::error::Error + 'static)) -> bool {
    let mut causes = std::iter::successors(Some(error), |error| error.source());

    causes.any(|cause| {
        let inner = cause
            .downcast_ref::<std::io::Error>()
            .and_then(std::io::Error::get_ref);
        let inner = inner.and_then(|inner| inner.downcast_ref::<async_nats::rustls::Error>());
        matches!(inner, Some(async_nats::rustls::Error::InvalidMessage(_)))
    })
}

fn version(text: &str) -> Option<(u64, u64)> {
    let mut parts = text.split('.');
    Some((parts.next()?.parse().ok()?, parts.next()?.parse().ok()?))
}

/// Returns the error of a request that the servers did not answer or rejected.
pub(super) fn unavailable(error: impl std::error::Error) -> crate::Error {
    crate::Error::Unavailable(chain(&error))
}

/// Returns an error with its causes; the text of the client contains only the kind.
pub(super) fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(inner) = cause {
        let inner_text = inner.to_string();
        // Some errors repeat their cause in their own text.
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
    fn credentials_are_never_printed() {
        let credentials = Credentials::User("me".to_owned(), "canary".to_owned());
        assert_eq!(format!("{credentials:?}"), "user and password");
    }
}
