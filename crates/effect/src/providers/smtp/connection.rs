//! Connections to one SMTP server, and transfer of emails.

use std::error::Error as StdError;
use std::fmt;
use std::time::{Duration, Instant};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use lettre::transport::smtp::Error as SmtpError;
use lettre::transport::smtp::authentication::{Credentials, Mechanism};
use lettre::transport::smtp::client::{
    AsyncSmtpConnection, Certificate, CertificateStore, Identity, TlsParameters,
};
use lettre::transport::smtp::commands::{Data, Ehlo, Mail as MailFrom, Rcpt, Rset};
use lettre::transport::smtp::extension::{ClientId, Extension, MailBodyParameter, MailParameter};
use lettre::transport::smtp::response::Response;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::helo::HeloStream;
use super::message::EmailMessage;
use crate::egress::causes;
use crate::http::{CertificateCache, Certificates, TlsConfig};
use crate::secret::{Secret, SecretRef, SecretScrubber};

const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// An older idle connection is not reused: most servers have closed it by then.
const IDLE_TIMEOUT: Duration = Duration::from_mins(1);

/// TLS mode of the connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum TlsMode {
    /// STARTTLS is required.
    #[default]
    Required,
    /// STARTTLS if the server supports it.
    Opportunistic,
    /// TLS from the first byte.
    Wrapper,
    /// No TLS.
    None,
}

pub(crate) struct Login {
    pub(crate) user: SecretRef,
    pub(crate) password: SecretRef,
}

pub(crate) struct SmtpEndpoint {
    pub(crate) host: String,
    pub(crate) port: u16,
    pub(crate) mode: TlsMode,
    pub(crate) tls: TlsConfig,
    pub(crate) user: Option<Login>,
    /// Client name of the `EHLO` command.
    pub(crate) hello: String,
    /// Maximum number of idle connections.
    pub(crate) kept: usize,
}

pub(crate) struct SmtpConnectionPool {
    endpoint: SmtpEndpoint,
    idle: Mutex<Vec<(Instant, AsyncSmtpConnection)>>,
    parameters: CertificateCache<TlsParameters>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SmtpReply {
    pub(crate) code: u16,
    pub(crate) text: String,
}

/// Error of an email that was not accepted.
#[derive(Debug)]
pub(crate) enum SendError {
    /// Not sent, for this reason, which has a failure code.
    Unavailable(&'static str, String),
    Credentials(String),
    /// The connection was lost before the email was sent.
    Broken(String),
    /// The email was sent and the response was lost: the outcome is unknown.
    Lost(String),
    /// The server does not support such an email.
    Unfit(String),
    /// The server rejected the email, or a recipient if one is given.
    Rejected {
        reply: SmtpReply,
        to: Option<String>,
        /// Whether the server had the whole email.
        after_message: bool,
    },
}

impl SmtpConnectionPool {
    pub(crate) fn new(endpoint: SmtpEndpoint) -> Self {
        let parameters = CertificateCache::new(endpoint.tls.clone());
        Self {
            endpoint,
            idle: Mutex::default(),
            parameters,
        }
    }

    /// Sends an email: to all recipients or to none.
    pub(crate) async fn send(
        &self,
        mail: &EmailMessage,
        scrub: &mut SecretScrubber,
    ) -> Result<SmtpReply, SendError> {
        // An idle connection may be dead without notice. If it breaks, the email goes over the next
        // one, and over a new one at last.
        while let Some(connection) = self.idle() {
            match self.hand_over(connection, mail).await {
                Err(SendError::Broken(_)) => {}
                result => return result,
            }
        }

        self.hand_over(self.connect(scrub).await?, mail).await
    }

    fn idle(&self) -> Option<AsyncSmtpConnection> {
        let mut idle = self.idle.lock();
        idle.retain(|(since, _)| since.elapsed() < IDLE_TIMEOUT);
        // The most recent one first, so that unneeded connections reach their timeout.
        idle.pop().map(|(_, connection)| connection)
    }

    fn release(&self, connection: AsyncSmtpConnection) {
        let mut idle = self.idle.lock();
        if idle.len() < self.endpoint.kept {
            idle.push((Instant::now(), connection));
        }
    }

    async fn hand_over(
        &self,
        mut connection: AsyncSmtpConnection,
        mail: &EmailMessage,
    ) -> Result<SmtpReply, SendError> {
        let result = transact(&mut connection, mail).await;

        match &result {
            Ok(_) => self.release(connection),
            // With 421 the server closes the connection.
            Err(SendError::Rejected { reply, .. }) if reply.code != 421 => {
                // After RSET, the connection is usable for the next email.
                if connection.command(Rset).await.is_ok() {
                    self.release(connection);
                }
            }
            Err(_) => {}
        }

        result
    }

    async fn connect(&self, scrub: &mut SecretScrubber) -> Result<AsyncSmtpConnection, SendError> {
        let SmtpEndpoint {
            host, port, mode, ..
        } = &self.endpoint;

        let hello = ClientId::Domain(self.endpoint.hello.clone());
        let tls = if *mode == TlsMode::None {
            None
        } else {
            Some(self.parameters()?)
        };

        let wrapped = tls.clone().filter(|_| *mode == TlsMode::Wrapper);
        let connecting = AsyncSmtpConnection::connect_tokio1(
            (host.as_str(), *port),
            Some(CONNECT_TIMEOUT),
            &hello,
            wrapped,
            None,
        );

        let mut knows_ehlo = true;
        let mut connection = match connecting.await {
            Ok(connection) => connection,
            // Servers of the time before ESMTP reject `EHLO`. One with TLS from the first byte is
            // younger: what it rejects is the client.
            Err(error) if is_unknown_command(&error) && *mode != TlsMode::Wrapper => {
                knows_ehlo = false;
                self.connect_with_helo(&hello).await?
            }
            Err(error) if is_tls(&error) => {
                return Err(SendError::Unavailable("tls", error.to_string()));
            }
            Err(error) => return Err(unreachable(&error)),
        };

        let is_offered = match mode {
            TlsMode::Required | TlsMode::Opportunistic => {
                connection.can_starttls()
                    || knows_ehlo && offers_starttls(&mut connection, &hello).await?
            }
            TlsMode::Wrapper | TlsMode::None => false,
        };
        let upgrade = is_offered || *mode == TlsMode::Required;

        if let Some(tls) = tls.filter(|_| upgrade) {
            // A server, or an attacker on the path, that removes the offer must not receive the
            // email in plain text.
            if !connection.can_starttls() {
                let reason = if is_offered {
                    "the server offers STARTTLS, but not in upper case, which is not supported; \
                     use tls = \"wrapper\", or tls = \"none\" to send without TLS"
                } else {
                    "the server does not support STARTTLS, which tls = \"required\" requires"
                };
                return Err(SendError::Unavailable("tls", reason.to_owned()));
            }
            connection
                .starttls(tls, &hello)
                .await
                .map_err(|error| SendError::Unavailable("tls", error.to_string()))?;
        }

        self.authenticate(&mut connection, scrub).await?;
        Ok(connection)
    }

    /// Connects to a server that has rejected `EHLO`. It can have closed that connection.
    async fn connect_with_helo(&self, hello: &ClientId) -> Result<AsyncSmtpConnection, SendError> {
        let SmtpEndpoint { host, port, .. } = &self.endpoint;
        let stream = timeout(CONNECT_TIMEOUT, TcpStream::connect((host.as_str(), *port))).await;
        let stream = stream
            .map_err(|_| unreachable(&format!("no connection within {CONNECT_TIMEOUT:?}")))?
            .map_err(|error| unreachable(&error))?;

        let stream = Box::new(HeloStream::new(stream));
        AsyncSmtpConnection::connect_with_transport(stream, hello)
            .await
            .map_err(|error| unreachable(&error))
    }

    async fn authenticate(
        &self,
        connection: &mut AsyncSmtpConnection,
        scrub: &mut SecretScrubber,
    ) -> Result<(), SendError> {
        let Some(Login { user, password }) = &self.endpoint.user else {
            return Ok(());
        };

        let read = |reference: &SecretRef| {
            reference
                .resolve()
                .map_err(|error| SendError::Unavailable("secret", error.log().to_owned()))
        };
        let user = read(user)?;
        let password = read(password)?;

        // A server can repeat the credentials in its reply, in the form in which they were sent.
        scrub.add(&password);
        let together = format!("\0{}\0{}", user.expose(), password.expose());
        for encoded in [
            STANDARD.encode(password.expose()),
            STANDARD.encode(together),
        ] {
            scrub.add(&Secret::new(encoded));
        }

        let credentials = Credentials::new(user.expose().to_owned(), password.expose().to_owned());
        let response = connection
            .auth(&[Mechanism::Plain, Mechanism::Login], &credentials)
            .await;

        response.map(drop).map_err(|error| match reply(&error) {
            // Overloaded or shutting down.
            Some(reply) if reply.code == 421 => {
                SendError::Unavailable("unreachable", reply.to_string())
            }
            Some(reply) => SendError::Credentials(reply.to_string()),
            None if error.is_client() => SendError::Credentials(error.to_string()),
            None => SendError::Broken(error.to_string()),
        })
    }

    fn parameters(&self) -> Result<TlsParameters, SendError> {
        let made = self
            .parameters
            .get(|read| self.make(read).map_err(|error| error.to_string()));
        made.map_err(|error| SendError::Unavailable("tls", error.failure().message.clone()))
    }

    fn make(&self, [ca, cert, key]: &Certificates) -> Result<TlsParameters, SmtpError> {
        let mut builder = TlsParameters::builder(self.endpoint.host.clone());
        if let Some(ca) = ca {
            builder = builder.certificate_store(CertificateStore::None);
            builder = builder.add_root_certificate(Certificate::from_pem(ca.expose().as_bytes())?);
        }

        if let (Some(cert), Some(key)) = (cert, key) {
            builder = builder.identify_with(Identity::from_pem(
                cert.expose().as_bytes(),
                key.expose().as_bytes(),
            )?);
        }

        builder.build_rustls()
    }
}

/// Returns whether a server offers STARTTLS in any case of letters. The library reads the keywords
/// of the response in upper case only (lettre 0.11.23; RFC 5321, 4.1.1.1), and would send the email
/// in plain text to a server that supports TLS.
async fn offers_starttls(
    connection: &mut AsyncSmtpConnection,
    hello: &ClientId,
) -> Result<bool, SendError> {
    let response = match connection.command(Ehlo::new(hello.clone())).await {
        Ok(response) => response,
        // It has answered the first one, and offered nothing that the library knows. Emails to it
        // must not wait for ever.
        Err(error) if error.is_permanent() => return Ok(false),
        Err(error) => return Err(unreachable(&error)),
    };

    let offers = response
        .message()
        .any(|line| line.trim().eq_ignore_ascii_case("STARTTLS"));
    Ok(offers)
}

async fn transact(
    connection: &mut AsyncSmtpConnection,
    mail: &EmailMessage,
) -> Result<SmtpReply, SendError> {
    let mut parameters = Vec::new();
    let mut addresses = mail.envelope.to().iter().chain(mail.envelope.from());
    let international = addresses.find(|address| !address.to_string().is_ascii());

    if let Some(address) = international {
        if !connection
            .server_info()
            .supports_feature(Extension::SmtpUtfEight)
        {
            return Err(SendError::Unfit(format!(
                "the address {address} has characters before the @ that are not ASCII, and the \
                 server does not support them (SMTPUTF8); use another address or server"
            )));
        }
        parameters.push(MailParameter::SmtpUtfEight);
    }

    if !mail.bytes.is_ascii() {
        parameters.push(MailParameter::Body(MailBodyParameter::EightBitMime));
    }

    let from = MailFrom::new(mail.envelope.from().cloned(), parameters);
    connection
        .command(from)
        .await
        .map_err(|error| before(&error, None))?;

    for to in mail.envelope.to() {
        let response = connection.command(Rcpt::new(to.clone(), Vec::new())).await;
        response.map_err(|error| before(&error, Some(to.to_string())))?;
    }

    connection
        .command(Data)
        .await
        .map_err(|error| before(&error, None))?;

    // From here on, a lost connection leaves the outcome unknown.
    let response = connection
        .message(&mail.bytes)
        .await
        .map_err(|error| match reply(&error) {
            Some(reply) => SendError::Rejected {
                reply,
                to: None,
                after_message: true,
            },
            None => SendError::Lost(error.to_string()),
        })?;

    Ok(SmtpReply::of(&response))
}

fn unreachable(error: &dyn fmt::Display) -> SendError {
    SendError::Unavailable("unreachable", error.to_string())
}

/// Returns whether the server does not know the command (RFC 5321, 4.2.4). Other permanent replies
/// reject the client, also in the greeting of the server.
fn is_unknown_command(error: &SmtpError) -> bool {
    reply(error).is_some_and(|reply| matches!(reply.code, 500 | 502 | 504))
}

/// Maps an error before the email was sent.
fn before(error: &SmtpError, to: Option<String>) -> SendError {
    match reply(error) {
        Some(reply) => SendError::Rejected {
            reply,
            to,
            after_message: false,
        },
        None => SendError::Broken(error.to_string()),
    }
}

impl SmtpReply {
    fn of(response: &Response) -> Self {
        Self {
            code: response.code().into(),
            text: response.message().collect::<Vec<_>>().join(" "),
        }
    }
}

impl fmt::Display for SmtpReply {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.code, self.text)
    }
}

fn reply(error: &SmtpError) -> Option<SmtpReply> {
    let text = error.source().map_or_else(String::new, ToString::to_string);
    Some(SmtpReply {
        code: error.status()?.into(),
        text,
    })
}

/// Returns whether TLS is the cause of an error, at any depth.
fn is_tls(error: &SmtpError) -> bool {
    let is_rustls = |error: &(dyn StdError + 'static)| {
        let inner = error
            .downcast_ref::<std::io::Error>()
            .and_then(std::io::Error::get_ref);
        error.is::<rustls::Error>()
            || inner.is_some_and(<dyn StdError + Send + Sync>::is::<rustls::Error>)
    };
    error.is_tls() || causes(error).any(is_rustls)
}
