//! The clients of an upstream: one that goes anywhere, one whose names are guarded; with certificates of its own.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use reqwest::{Certificate, Client, ClientBuilder, Identity};
use serde::{Deserialize, Serialize};

use crate::egress::Guard;
use crate::provider::Refusal;
use crate::secret::{Secret, SecretRef};

const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// A client builder whose TLS has its cryptography installed. Every HTTP client of the process begins here: without it
/// reqwest panics when it is built.
pub fn client() -> ClientBuilder {
    // An error says that somebody else has installed one already, which does as well.
    drop(rustls::crypto::ring::default_provider().install_default());
    Client::builder()
}

/// Certificates in PEM. They are read anew when they change.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Tls {
    /// Whom to trust, in place of the system's certificates.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ca: Option<SecretRef>,
    /// Our own certificate, where the upstream wants to see one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cert: Option<SecretRef>,
    /// Its key.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key: Option<SecretRef>,
}

impl Tls {
    /// Checks what no single key shows.
    pub(crate) fn check(&self) -> Result<(), String> {
        if self.cert.is_some() == self.key.is_some() {
            return Ok(());
        }
        Err("tls.cert and tls.key go together".to_owned())
    }

    /// Reads them. The operator mends what cannot be read; effects wait for it.
    pub(crate) fn read(&self) -> Result<Certificates, Refusal> {
        let one = |reference: &Option<SecretRef>| {
            let secret = reference.as_ref().map(SecretRef::resolve).transpose();
            secret.map_err(|error| Refusal::retry("tls", error.to_string()))
        };
        Ok([one(&self.ca)?, one(&self.cert)?, one(&self.key)?])
    }
}

/// Two clients with the same certificates.
pub(crate) struct Pair {
    pub(crate) open: Client,
    pub(crate) guarded: Client,
}

/// The clients, made anew when a certificate has changed.
pub(crate) struct Clients {
    tls: Tls,
    roots: bool,
    made: Mutex<Option<(Certificates, Arc<Pair>)>>,
}

/// Certificates as they were read: whom to trust, our own, its key.
pub(crate) type Certificates = [Option<Secret>; 3];

impl Clients {
    /// `roots`: whether the system's certificates are needed.
    pub(crate) fn new(tls: Tls, roots: bool) -> Result<Self, reqwest::Error> {
        let clients = Self { tls, roots, made: Mutex::new(None) };
        if clients.tls == Tls::default() {
            let read = Certificates::default();
            let pair = Arc::new(clients.make(&read)?);
            *clients.made.lock().unwrap_or_else(PoisonError::into_inner) = Some((read, pair));
        }
        Ok(clients)
    }

    pub(crate) fn pair(&self) -> Result<Arc<Pair>, Refusal> {
        let read = self.tls.read()?;
        let mut made = self.made.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, pair)) = made.as_ref().filter(|(known, _)| *known == read) {
            return Ok(Arc::clone(pair));
        }
        let pair = self.make(&read).map_err(|error| {
            Refusal::retry("tls", format!("the certificates cannot be used: {}", error.without_url()))
        })?;
        let pair = Arc::new(pair);
        *made = Some((read, Arc::clone(&pair)));
        Ok(pair)
    }

    fn make(&self, read: &Certificates) -> Result<Pair, reqwest::Error> {
        // Proxies of the environment are not used, and redirects not followed unasked: the configuration alone says where
        // requests go.
        let builder = || -> Result<ClientBuilder, reqwest::Error> {
            let [ca, cert, key] = read;
            let builder = client()
                .redirect(reqwest::redirect::Policy::none())
                .no_proxy()
                .connect_timeout(CONNECT_TIMEOUT);
            let builder = match ca {
                Some(ca) => builder.tls_certs_only(Certificate::from_pem_bundle(ca.expose().as_bytes())?),
                None if self.roots => builder,
                None => builder.tls_certs_only([]),
            };
            match (cert, key) {
                (Some(cert), Some(key)) => {
                    let pem = format!("{}\n{}", cert.expose(), key.expose());
                    Ok(builder.identity(Identity::from_pem(pem.as_bytes())?))
                }
                (Some(_) | None, _) => Ok(builder),
            }
        };
        let guarded = builder()?.dns_resolver(Arc::new(Guard));
        Ok(Pair { open: builder()?.build()?, guarded: guarded.build()? })
    }
}
