//! Real SMTP server: supports EHLO, HELO, STARTTLS, AUTH PLAIN, MAIL, RCPT, DATA, RSET, NOOP and QUIT; the
//! test defines its responses.

use std::future::Future;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use parking_lot::Mutex;
use tokio::io::{AsyncBufReadExt as _, AsyncRead, AsyncWrite, AsyncWriteExt as _, BufReader};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::PemObject as _;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};

/// Received command that requires a response.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SmtpCommand {
    /// Connection.
    Connection,
    /// Credentials.
    Auth {
        /// User name.
        user: String,
        /// Password.
        password: String,
    },
    /// Sender.
    From(String),
    /// Recipient.
    To(String),
    /// Start of the message data.
    Data,
    /// Complete message.
    Mail(ReceivedMail),
}

/// Received email message.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReceivedMail {
    /// Sender.
    pub from: String,
    /// Recipients.
    pub to: Vec<String>,
    /// Bytes of the message, without dot stuffing.
    pub bytes: Vec<u8>,
    /// Authenticated user.
    pub user: Option<String>,
    /// Whether the connection was encrypted.
    pub encrypted: bool,
}

impl ReceivedMail {
    /// Returns the part of the `Message-ID` between `<` and `@`.
    ///
    /// # Panics
    /// If there is no `Message-ID`.
    #[must_use]
    pub fn key(&self) -> String {
        let text = String::from_utf8_lossy(&self.bytes);
        let line = text
            .lines()
            .find_map(|line| line.strip_prefix("Message-ID: <"))
            .expect("the message has an id");
        line.split('@').next().unwrap_or_default().to_owned()
    }
}

/// Response of the server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SmtpResponse {
    /// Default response.
    Default,
    /// This line.
    Line(String),
    /// No response: the server closes the connection.
    Hang,
}

/// Future of a handler.
pub type ReplyFuture = Pin<Box<dyn Future<Output = SmtpResponse> + Send>>;

/// Handler that returns the response to a command.
pub type Handler = Arc<dyn Fn(SmtpCommand) -> ReplyFuture + Send + Sync>;

/// Options of a server.
#[derive(Clone, Default)]
pub struct SmtpServerOptions {
    /// Certificate and key in PEM; without them the server offers no encryption.
    pub certificate: Option<(Vec<u8>, Vec<u8>)>,
    /// Whether the connection is encrypted from the first byte.
    pub wrapped: bool,
    /// Whether the server requires authentication.
    pub auth: bool,
    /// Whether the server lacks the extension SMTPUTF8.
    pub ascii_addresses: bool,
    /// How the server greets.
    pub greeting: SmtpGreeting,
}

/// Response of a server to the greeting of its client.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SmtpGreeting {
    /// The extensions, in upper case.
    #[default]
    Extensions,
    /// The extensions, in lower case.
    LowerCase,
    /// `EHLO` is rejected, as by servers of the time before ESMTP.
    HeloOnly,
}

/// Server; it serves until its runtime ends.
pub struct SmtpServer {
    /// Listen address.
    pub address: SocketAddr,
    mails: Arc<Mutex<Vec<ReceivedMail>>>,
    connections: Arc<Mutex<usize>>,
}

trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Stream for T {}

type Line = BufReader<Box<dyn Stream>>;

impl SmtpServer {
    /// Starts the server.
    ///
    /// # Panics
    /// If the certificate is invalid.
    pub async fn open(options: SmtpServerOptions, handler: Handler) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let address = listener.local_addr().expect("bound");
        let tls = options
            .certificate
            .as_ref()
            .map(|(cert, key)| acceptor(cert, key));
        let (mails, connections) = (Arc::new(Mutex::default()), Arc::new(Mutex::new(0)));
        let (stored, counted) = (Arc::clone(&mails), Arc::clone(&connections));
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                *counted.lock() += 1;
                let session = Session {
                    options: options.clone(),
                    tls: tls.clone(),
                    handler: Arc::clone(&handler),
                    mails: Arc::clone(&stored),
                    mail: ReceivedMail::default(),
                };
                // The client handles a broken connection.
                tokio::spawn(async move { drop(session.serve(Box::new(stream)).await) });
            }
        });
        Self {
            address,
            mails,
            connections,
        }
    }

    /// Returns the accepted messages.
    #[must_use]
    pub fn mails(&self) -> Vec<ReceivedMail> {
        self.mails.lock().clone()
    }

    /// Returns the number of connections so far.
    #[must_use]
    pub fn connections(&self) -> usize {
        *self.connections.lock()
    }
}

fn acceptor(cert: &[u8], key: &[u8]) -> TlsAcceptor {
    let certs = CertificateDer::pem_slice_iter(cert)
        .collect::<Result<Vec<_>, _>>()
        .expect("certificates");
    let key = PrivateKeyDer::from_pem_slice(key).expect("a key");
    let config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .expect("supported protocol versions")
        .with_no_client_auth()
        .with_single_cert(certs, key);
    TlsAcceptor::from(Arc::new(config.expect("the key matches the certificate")))
}

struct Session {
    options: SmtpServerOptions,
    tls: Option<TlsAcceptor>,
    handler: Handler,
    mails: Arc<Mutex<Vec<ReceivedMail>>>,
    mail: ReceivedMail,
}

impl Session {
    async fn serve(mut self, stream: Box<dyn Stream>) -> std::io::Result<()> {
        let mut line = BufReader::new(stream);
        if let Some(tls) = self.tls.clone().filter(|_| self.options.wrapped) {
            line = self.encrypt(&tls, line).await?;
        }
        if !self
            .respond(&mut line, SmtpCommand::Connection, "220 test ESMTP")
            .await?
        {
            return Ok(());
        }
        loop {
            let mut text = String::new();
            if line.read_line(&mut text).await? == 0 {
                return Ok(());
            }
            let text = text.trim_end();
            let verb = text
                .split([' ', ':'])
                .next()
                .unwrap_or_default()
                .to_ascii_uppercase();
            let continues = match verb.as_str() {
                "HELO" => write(&mut line, "250 test\r\n").await?,
                "EHLO" if self.options.greeting != SmtpGreeting::HeloOnly => {
                    let extensions = self.extensions();
                    write(&mut line, &extensions).await?
                }
                "STARTTLS" => {
                    let tls = self.tls.clone().filter(|_| !self.mail.encrypted);
                    let Some(tls) = tls else {
                        write(&mut line, "454 4.7.0 no TLS\r\n").await?;
                        continue;
                    };
                    write(&mut line, "220 go ahead\r\n").await?;
                    line = self.encrypt(&tls, line).await?;
                    true
                }
                "AUTH" => self.auth(&mut line, text).await?,
                "MAIL" => {
                    self.mail.from = address(text);
                    let command = SmtpCommand::From(self.mail.from.clone());
                    self.respond(&mut line, command, "250 2.1.0 ok").await?
                }
                "RCPT" => {
                    let to = address(text);
                    self.mail.to.push(to.clone());
                    self.respond(&mut line, SmtpCommand::To(to), "250 2.1.5 ok")
                        .await?
                }
                "DATA" => self.data(&mut line).await?,
                "RSET" => {
                    self.reset();
                    write(&mut line, "250 2.0.0 ok\r\n").await?
                }
                "NOOP" => write(&mut line, "250 2.0.0 ok\r\n").await?,
                "QUIT" => {
                    write(&mut line, "221 2.0.0 closing connection\r\n").await?;
                    false
                }
                _ => write(&mut line, "502 5.5.1 unknown command\r\n").await?,
            };
            if !continues {
                return Ok(());
            }
        }
    }

    async fn encrypt(&mut self, tls: &TlsAcceptor, line: Line) -> std::io::Result<Line> {
        let stream = tls.accept(line.into_inner()).await?;
        self.mail.encrypted = true;
        Ok(BufReader::new(Box::new(stream)))
    }

    fn extensions(&self) -> String {
        let mut extensions = vec!["test", "8BITMIME"];
        if !self.options.ascii_addresses {
            extensions.push("SMTPUTF8");
        }
        if self.tls.is_some() && !self.mail.encrypted {
            extensions.push("STARTTLS");
        }
        if self.options.auth {
            extensions.push("AUTH PLAIN");
        }
        let last = extensions.len() - 1;
        let mut response = String::new();
        for (index, extension) in extensions.into_iter().enumerate() {
            let separator = if index == last { ' ' } else { '-' };
            let line = format!("250{separator}{extension}\r\n");
            match self.options.greeting {
                SmtpGreeting::LowerCase => response.push_str(&line.to_ascii_lowercase()),
                SmtpGreeting::Extensions | SmtpGreeting::HeloOnly => response.push_str(&line),
            }
        }
        response
    }

    async fn auth(&mut self, line: &mut Line, text: &str) -> std::io::Result<bool> {
        let credentials = text
            .split(' ')
            .nth(2)
            .and_then(|text| STANDARD.decode(text).ok())
            .unwrap_or_default();
        let credentials = String::from_utf8(credentials).unwrap_or_default();
        let mut parts = credentials.split('\0').skip(1).map(str::to_owned);
        let (user, password) = (
            parts.next().unwrap_or_default(),
            parts.next().unwrap_or_default(),
        );
        self.mail.user = Some(user.clone());
        self.respond(
            line,
            SmtpCommand::Auth { user, password },
            "235 2.7.0 welcome",
        )
        .await
    }

    async fn data(&mut self, line: &mut Line) -> std::io::Result<bool> {
        if !self
            .respond(line, SmtpCommand::Data, "354 go ahead")
            .await?
        {
            return Ok(false);
        }
        let mut bytes = Vec::new();
        loop {
            let mut one = Vec::new();
            if line.read_until(b'\n', &mut one).await? == 0 {
                return Ok(false);
            }
            match one.as_slice() {
                b".\r\n" => break,
                [b'.', rest @ ..] => bytes.extend_from_slice(rest),
                whole => bytes.extend_from_slice(whole),
            }
        }
        self.mail.bytes = bytes;
        let mail = self.mail.clone();
        self.reset();
        let response = self
            .call_handler(line, SmtpCommand::Mail(mail.clone()))
            .await?;
        if response == SmtpResponse::Default {
            self.mails.lock().push(mail);
        }
        send_response(line, response, "250 2.0.0 queued as 7F3A").await
    }

    fn reset(&mut self) {
        let ReceivedMail {
            user, encrypted, ..
        } = std::mem::take(&mut self.mail);
        self.mail = ReceivedMail {
            user,
            encrypted,
            ..ReceivedMail::default()
        };
    }

    /// Calls the handler; stops waiting if the client disconnects.
    async fn call_handler(
        &self,
        line: &mut Line,
        command: SmtpCommand,
    ) -> std::io::Result<SmtpResponse> {
        let mut pending_response = (self.handler)(command);
        tokio::select! {
            biased;
            response = &mut pending_response => Ok(response),
            waiting = line.fill_buf() => match waiting? {
                [] => Ok(SmtpResponse::Hang),
                _ => Ok(pending_response.await),
            }
        }
    }

    /// Sends the response of the handler. Returns whether the connection continues.
    async fn respond(
        &self,
        line: &mut Line,
        command: SmtpCommand,
        usual: &str,
    ) -> std::io::Result<bool> {
        let response = self.call_handler(line, command).await?;
        send_response(line, response, usual).await
    }
}

async fn send_response(
    line: &mut Line,
    response: SmtpResponse,
    usual: &str,
) -> std::io::Result<bool> {
    match response {
        SmtpResponse::Default => write(line, &format!("{usual}\r\n")).await,
        SmtpResponse::Line(text) => write(line, &format!("{text}\r\n")).await,
        SmtpResponse::Hang => Ok(false),
    }
}

async fn write(line: &mut Line, text: &str) -> std::io::Result<bool> {
    line.write_all(text.as_bytes()).await?;
    line.flush().await?;
    Ok(true)
}

/// Returns the text between `<` and `>`.
fn address(text: &str) -> String {
    let inner = text
        .split_once('<')
        .and_then(|(_, rest)| rest.split_once('>'));
    inner.map_or_else(String::new, |(address, _)| address.to_owned())
}
