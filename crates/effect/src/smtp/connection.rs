//! The connections to one mail server, and how a mail is handed over.

use std::error::Error as StdError;
use std::fmt;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use lettre::transport::smtp::Error as SmtpError;
use lettre::transport::smtp::authentication::{Credentials, Mechanism};
use lettre::transport::smtp::client::{
    AsyncSmtpConnection, Certificate, CertificateStore, Identity, TlsParameters,
};
use lettre::transport::smtp::commands::{Data, Mail as MailFrom, Rcpt, Rset};
use lettre::transport::smtp::extension::{ClientId, Extension, MailBodyParameter, MailParameter};
use lettre::transport::smtp::response::Response;
use serde::{Deserialize, Serialize};

use super::message::Mail;
use crate::http::{Certificates, Tls};
use crate::secret::{Scrub, Secret, SecretRef};

const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// An idle connection older than this is not used again: most servers have closed it by then.
const IDLE: Duration = Duration::from_mins(1);

/// Whether the connection is encrypted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum TlsMode {
    /// By STARTTLS, or not at all.
    #[default]
    Required,
    /// By STARTTLS where the server offers it.
    Opportunistic,
    /// From the first byte.
    Wrapper,
    /// Never.
    None,
}

/// A mail server and how it is spoken to.
pub(crate) struct Place {
    pub(crate) host: String,
    pub(crate) port: u16,
    pub(crate) mode: TlsMode,
    pub(crate) tls: Tls,
    pub(crate) user: Option<(SecretRef, SecretRef)>,
    /// How we call ourselves.
    pub(crate) hello: String,
    /// Idle connections that are kept.
    pub(crate) kept: usize,
}

/// The connections to one mail server.
pub(crate) struct Post {
    place: Place,
    idle: Mutex<Vec<(Instant, AsyncSmtpConnection)>>,
    parameters: Mutex<Option<(Certificates, TlsParameters)>>,
}

/// A server's reply.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Said {
    pub(crate) code: u16,
    pub(crate) text: String,
}

/// A mail that was not accepted.
#[derive(Debug)]
pub(crate) enum Fault {
    /// No connection, or a server that takes no mails now.
    Unreachable(String),
    /// No encryption.
    Tls(String),
    /// A secret is not there.
    Secret(String),
    /// The server does not know us.
    Credentials(String),
    /// The connection broke before the mail was there.
    Broken(String),
    /// The mail was sent and nobody knows what became of it.
    Lost(String),
    /// The server cannot take such a mail.
    Unfit(String),
    /// The server said no, to a recipient where there is one.
    Refused { said: Said, to: Option<String> },
}

impl Post {
    pub(crate) fn new(place: Place) -> Self {
        Self { place, idle: Mutex::default(), parameters: Mutex::default() }
    }

    /// Hands a mail over: to all recipients or to none.
    pub(crate) async fn send(&self, mail: &Mail, scrub: &mut Scrub) -> Result<Said, Fault> {
        // A connection that lay idle may be dead without our knowing.
        while let Some(connection) = self.idle() {
            match self.hand_over(connection, mail).await {
                Err(Fault::Broken(_)) => {}
                told => return told,
            }
        }
        self.hand_over(self.connect(scrub).await?, mail).await
    }

    fn idle(&self) -> Option<AsyncSmtpConnection> {
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        idle.retain(|(since, _)| since.elapsed() < IDLE);
        idle.pop().map(|(_, connection)| connection)
    }

    fn keep(&self, connection: AsyncSmtpConnection) {
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        if idle.len() < self.place.kept {
            idle.push((Instant::now(), connection));
        }
    }

    async fn hand_over(&self, mut connection: AsyncSmtpConnection, mail: &Mail) -> Result<Said, Fault> {
        let told = transact(&mut connection, mail).await;
        match &told {
            Ok(_) => self.keep(connection),
            // 421 is a server that closes.
            Err(Fault::Refused { said, .. }) if said.code != 421 => {
                if connection.command(Rset).await.is_ok() {
                    self.keep(connection);
                }
            }
            Err(_) => {}
        }
        told
    }

    async fn connect(&self, scrub: &mut Scrub) -> Result<AsyncSmtpConnection, Fault> {
        let Place { host, port, mode, .. } = &self.place;
        let hello = ClientId::Domain(self.place.hello.clone());
        let tls = if *mode == TlsMode::None { None } else { Some(self.parameters()?) };
        let wrapped = tls.clone().filter(|_| *mode == TlsMode::Wrapper);
        let connecting = AsyncSmtpConnection::connect_tokio1(
            (host.as_str(), *port),
            Some(CONNECT_TIMEOUT),
            &hello,
            wrapped,
            None,
        );
        let mut connection = connecting.await.map_err(|error| {
            if is_tls(&error) { Fault::Tls(chain(&error)) } else { Fault::Unreachable(chain(&error)) }
        })?;
        let upgrade = match mode {
            TlsMode::Required => true,
            TlsMode::Opportunistic => connection.can_starttls(),
            TlsMode::Wrapper | TlsMode::None => false,
        };
        if let Some(tls) = tls.filter(|_| upgrade) {
            if !connection.can_starttls() {
                return Err(Fault::Tls(
                    "it offers no STARTTLS, which tls = \"required\" asks for".to_owned(),
                ));
            }
            connection.starttls(tls, &hello).await.map_err(|error| Fault::Tls(chain(&error)))?;
        }
        self.authenticate(&mut connection, scrub).await?;
        Ok(connection)
    }

    async fn authenticate(
        &self,
        connection: &mut AsyncSmtpConnection,
        scrub: &mut Scrub,
    ) -> Result<(), Fault> {
        let Some((user, password)) = &self.place.user else { return Ok(()) };
        let read =
            |reference: &SecretRef| reference.resolve().map_err(|error| Fault::Secret(error.to_string()));
        let (user, password) = (read(user)?, read(password)?);
        scrub.add(&password);
        let together = format!("\0{}\0{}", user.expose(), password.expose());
        for encoded in [STANDARD.encode(password.expose()), STANDARD.encode(together)] {
            scrub.add(&Secret::new(encoded));
        }
        let credentials = Credentials::new(user.expose().to_owned(), password.expose().to_owned());
        let taken = connection.auth(&[Mechanism::Plain, Mechanism::Login], &credentials).await;
        taken.map(drop).map_err(|error| match said(&error) {
            // Too much to do, or going down.
            Some(said) if said.code == 421 => Fault::Unreachable(said.to_string()),
            Some(said) => Fault::Credentials(said.to_string()),
            None if error.is_client() => Fault::Credentials(chain(&error)),
            None => Fault::Broken(chain(&error)),
        })
    }

    /// What TLS goes by, with the certificates as they are now.
    fn parameters(&self) -> Result<TlsParameters, Fault> {
        let read = self.place.tls.read().map_err(|refusal| Fault::Tls(text_of(&refusal)))?;
        let mut made = self.parameters.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, parameters)) = made.as_ref().filter(|(known, _)| *known == read) {
            return Ok(parameters.clone());
        }
        let parameters = self.make(&read).map_err(|error| Fault::Tls(chain(&error)))?;
        *made = Some((read, parameters.clone()));
        Ok(parameters)
    }

    fn make(&self, [ca, cert, key]: &Certificates) -> Result<TlsParameters, SmtpError> {
        let mut builder = TlsParameters::builder(self.place.host.clone());
        if let Some(ca) = ca {
            builder = builder.certificate_store(CertificateStore::None);
            builder = builder.add_root_certificate(Certificate::from_pem(ca.expose().as_bytes())?);
        }
        if let (Some(cert), Some(key)) = (cert, key) {
            builder =
                builder.identify_with(Identity::from_pem(cert.expose().as_bytes(), key.expose().as_bytes())?);
        }
        builder.build_rustls()
    }
}

async fn transact(connection: &mut AsyncSmtpConnection, mail: &Mail) -> Result<Said, Fault> {
    let mut parameters = Vec::new();
    let mut addresses = mail.envelope.to().iter().chain(mail.envelope.from());
    if !addresses.all(|address| address.to_string().is_ascii()) {
        if !connection.server_info().supports_feature(Extension::SmtpUtfEight) {
            return Err(Fault::Unfit("it takes no addresses beyond ASCII".to_owned()));
        }
        parameters.push(MailParameter::SmtpUtfEight);
    }
    if !mail.bytes.is_ascii() {
        parameters.push(MailParameter::Body(MailBodyParameter::EightBitMime));
    }
    let from = MailFrom::new(mail.envelope.from().cloned(), parameters);
    connection.command(from).await.map_err(|error| before(&error, None))?;
    for to in mail.envelope.to() {
        let taken = connection.command(Rcpt::new(to.clone(), Vec::new())).await;
        taken.map_err(|error| before(&error, Some(to.to_string())))?;
    }
    connection.command(Data).await.map_err(|error| before(&error, None))?;
    let response = connection.message(&mail.bytes).await.map_err(|error| match said(&error) {
        Some(said) => Fault::Refused { said, to: None },
        None => Fault::Lost(chain(&error)),
    })?;
    Ok(Said::of(&response))
}

/// A fault before the mail was sent.
fn before(error: &SmtpError, to: Option<String>) -> Fault {
    match said(error) {
        Some(said) => Fault::Refused { said, to },
        None => Fault::Broken(chain(error)),
    }
}

impl Said {
    fn of(response: &Response) -> Self {
        Self { code: response.code().into(), text: response.message().collect::<Vec<_>>().join(" ") }
    }
}

impl fmt::Display for Said {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.code, self.text)
    }
}

fn said(error: &SmtpError) -> Option<Said> {
    let text = error.source().map_or_else(String::new, ToString::to_string);
    Some(Said { code: error.status()?.into(), text })
}

/// Whether encryption is what failed, however deep it says so.
fn is_tls(error: &SmtpError) -> bool {
    let mut next: Option<&(dyn StdError + 'static)> = Some(error);
    while let Some(error) = next {
        let inner = error.downcast_ref::<std::io::Error>().and_then(std::io::Error::get_ref);
        if error.is::<rustls::Error>() || inner.is_some_and(<dyn StdError + Send + Sync>::is::<rustls::Error>)
        {
            return true;
        }
        next = error.source();
    }
    error.is_tls()
}

fn chain(error: &SmtpError) -> String {
    error.to_string()
}

fn text_of(refusal: &crate::Refusal) -> String {
    match refusal {
        crate::Refusal::Final { failure, .. }
        | crate::Refusal::GaveUp { failure }
        | crate::Refusal::Transient { failure, .. } => failure.message.clone(),
    }
}
