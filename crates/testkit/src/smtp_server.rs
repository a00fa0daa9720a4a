//! A real SMTP server: it speaks EHLO, STARTTLS, AUTH PLAIN, MAIL, RCPT, DATA, RSET, NOOP and QUIT, and what it says is the
//! test's business.

use std::future::Future;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use tokio::io::{AsyncBufReadExt as _, AsyncRead, AsyncWrite, AsyncWriteExt as _, BufReader};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::PemObject as _;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};

/// What was heard, and wants a reply.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Heard {
    /// A connection.
    Connection,
    /// Credentials.
    Auth {
        /// The name.
        user: String,
        /// The password.
        password: String,
    },
    /// A sender.
    From(String),
    /// A receiver.
    To(String),
    /// The mail is announced.
    Data,
    /// The mail was sent.
    Mail(Mail),
}

/// A mail that came.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Mail {
    /// Who sends it.
    pub from: String,
    /// To whom.
    pub to: Vec<String>,
    /// Its bytes, without the dots that were stuffed.
    pub bytes: Vec<u8>,
    /// Who logged in.
    pub user: Option<String>,
    /// Whether it came encrypted.
    pub encrypted: bool,
}

impl Mail {
    /// What stands between `<` and `@` of its `Message-ID`.
    ///
    /// # Panics
    /// When there is none.
    #[must_use]
    pub fn key(&self) -> String {
        let text = String::from_utf8_lossy(&self.bytes);
        let line = text.lines().find_map(|line| line.strip_prefix("Message-ID: <")).expect("it has an id");
        line.split('@').next().unwrap_or_default().to_owned()
    }
}

/// What to say.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Saying {
    /// What a server usually says.
    Usual,
    /// This.
    Line(String),
    /// Nothing: the connection is closed.
    Hang,
}

/// What a handler gives.
pub type Answering = Pin<Box<dyn Future<Output = Saying> + Send>>;

/// Says what to say.
pub type Handler = Arc<dyn Fn(Heard) -> Answering + Send + Sync>;

/// How a server is reached.
#[derive(Clone, Default)]
pub struct Manner {
    /// Its certificate and key in PEM; without them it offers no encryption.
    pub certificate: Option<(Vec<u8>, Vec<u8>)>,
    /// Whether encryption begins with the first byte.
    pub wrapped: bool,
    /// Whether it wants to know who sends.
    pub auth: bool,
}

/// The server; it serves until its runtime ends.
pub struct SmtpServer {
    /// Where it is.
    pub address: SocketAddr,
    mails: Arc<Mutex<Vec<Mail>>>,
    connections: Arc<Mutex<usize>>,
}

trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Stream for T {}

type Line = BufReader<Box<dyn Stream>>;

impl SmtpServer {
    /// Starts it.
    ///
    /// # Panics
    /// When the certificate is none.
    pub async fn open(manner: Manner, handler: Handler) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let address = listener.local_addr().expect("bound");
        let tls = manner.certificate.as_ref().map(|(cert, key)| acceptor(cert, key));
        let (mails, connections) = (Arc::new(Mutex::default()), Arc::new(Mutex::new(0)));
        let (kept, counted) = (Arc::clone(&mails), Arc::clone(&connections));
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                *counted.lock().unwrap_or_else(PoisonError::into_inner) += 1;
                let session = Session {
                    manner: manner.clone(),
                    tls: tls.clone(),
                    handler: Arc::clone(&handler),
                    mails: Arc::clone(&kept),
                    mail: Mail::default(),
                };
                // A connection that breaks is the client's affair.
                tokio::spawn(async move { drop(session.serve(Box::new(stream)).await) });
            }
        });
        Self { address, mails, connections }
    }

    /// The mails that it accepted.
    #[must_use]
    pub fn mails(&self) -> Vec<Mail> {
        self.mails.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// How many connections there were.
    #[must_use]
    pub fn connections(&self) -> usize {
        *self.connections.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn acceptor(cert: &[u8], key: &[u8]) -> TlsAcceptor {
    let certs = CertificateDer::pem_slice_iter(cert).collect::<Result<Vec<_>, _>>().expect("certificates");
    let key = PrivateKeyDer::from_pem_slice(key).expect("a key");
    let config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .expect("the provider knows them")
        .with_no_client_auth()
        .with_single_cert(certs, key);
    TlsAcceptor::from(Arc::new(config.expect("key and certificate go together")))
}

struct Session {
    manner: Manner,
    tls: Option<TlsAcceptor>,
    handler: Handler,
    mails: Arc<Mutex<Vec<Mail>>>,
    mail: Mail,
}

impl Session {
    async fn serve(mut self, stream: Box<dyn Stream>) -> std::io::Result<()> {
        let mut line = BufReader::new(stream);
        if let Some(tls) = self.tls.clone().filter(|_| self.manner.wrapped) {
            line = self.encrypt(&tls, line).await?;
        }
        if !self.say(&mut line, Heard::Connection, "220 test ESMTP").await? {
            return Ok(());
        }
        loop {
            let mut text = String::new();
            if line.read_line(&mut text).await? == 0 {
                return Ok(());
            }
            let text = text.trim_end();
            let verb = text.split([' ', ':']).next().unwrap_or_default().to_ascii_uppercase();
            let goes_on = match verb.as_str() {
                "EHLO" => {
                    let offers = self.offers();
                    write(&mut line, &offers).await?
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
                    let heard = Heard::From(self.mail.from.clone());
                    self.say(&mut line, heard, "250 2.1.0 ok").await?
                }
                "RCPT" => {
                    let to = address(text);
                    self.mail.to.push(to.clone());
                    self.say(&mut line, Heard::To(to), "250 2.1.5 ok").await?
                }
                "DATA" => self.data(&mut line).await?,
                "RSET" => {
                    self.forget();
                    write(&mut line, "250 2.0.0 ok\r\n").await?
                }
                "NOOP" => write(&mut line, "250 2.0.0 ok\r\n").await?,
                "QUIT" => {
                    write(&mut line, "221 2.0.0 bye\r\n").await?;
                    false
                }
                _ => write(&mut line, "502 5.5.1 what?\r\n").await?,
            };
            if !goes_on {
                return Ok(());
            }
        }
    }

    async fn encrypt(&mut self, tls: &TlsAcceptor, line: Line) -> std::io::Result<Line> {
        let stream = tls.accept(line.into_inner()).await?;
        self.mail.encrypted = true;
        Ok(BufReader::new(Box::new(stream)))
    }

    fn offers(&self) -> String {
        let mut offers = vec!["test", "8BITMIME", "SMTPUTF8"];
        if self.tls.is_some() && !self.mail.encrypted {
            offers.push("STARTTLS");
        }
        if self.manner.auth {
            offers.push("AUTH PLAIN");
        }
        let last = offers.len() - 1;
        let line = |(index, offer)| format!("250{}{offer}\r\n", if index == last { ' ' } else { '-' });
        offers.into_iter().enumerate().map(line).collect()
    }

    async fn auth(&mut self, line: &mut Line, text: &str) -> std::io::Result<bool> {
        let given = text.split(' ').nth(2).and_then(|text| STANDARD.decode(text).ok()).unwrap_or_default();
        let given = String::from_utf8(given).unwrap_or_default();
        let mut parts = given.split('\0').skip(1).map(str::to_owned);
        let (user, password) = (parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
        self.mail.user = Some(user.clone());
        self.say(line, Heard::Auth { user, password }, "235 2.7.0 welcome").await
    }

    async fn data(&mut self, line: &mut Line) -> std::io::Result<bool> {
        if !self.say(line, Heard::Data, "354 go ahead").await? {
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
        self.forget();
        let said = self.ask(line, Heard::Mail(mail.clone())).await?;
        if said == Saying::Usual {
            self.mails.lock().unwrap_or_else(PoisonError::into_inner).push(mail);
        }
        tell(line, said, "250 2.0.0 queued as 7F3A").await
    }

    fn forget(&mut self) {
        let Mail { user, encrypted, .. } = std::mem::take(&mut self.mail);
        self.mail = Mail { user, encrypted, ..Mail::default() };
    }

    /// Asks the handler; a client that goes away meanwhile ends it.
    async fn ask(&self, line: &mut Line, heard: Heard) -> std::io::Result<Saying> {
        let mut asking = (self.handler)(heard);
        tokio::select! {
            biased;
            said = &mut asking => Ok(said),
            waiting = line.fill_buf() => match waiting? {
                [] => Ok(Saying::Hang),
                _ => Ok(asking.await),
            }
        }
    }

    /// Whether the connection goes on.
    async fn say(&self, line: &mut Line, heard: Heard, usual: &str) -> std::io::Result<bool> {
        let said = self.ask(line, heard).await?;
        tell(line, said, usual).await
    }
}

async fn tell(line: &mut Line, said: Saying, usual: &str) -> std::io::Result<bool> {
    match said {
        Saying::Usual => write(line, &format!("{usual}\r\n")).await,
        Saying::Line(text) => write(line, &format!("{text}\r\n")).await,
        Saying::Hang => Ok(false),
    }
}

async fn write(line: &mut Line, text: &str) -> std::io::Result<bool> {
    line.write_all(text.as_bytes()).await?;
    line.flush().await?;
    Ok(true)
}

/// What stands between `<` and `>`.
fn address(text: &str) -> String {
    let inner = text.split_once('<').and_then(|(_, rest)| rest.split_once('>'));
    inner.map_or_else(String::new, |(address, _)| address.to_owned())
}
