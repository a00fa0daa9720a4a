//! HTTP clients of an upstream: one unrestricted, one with a guarded resolver; with optional own
//! certificates.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use reqwest::redirect::Policy;
use reqwest::{Certificate, Client, ClientBuilder, Identity, retry};
use serde::{Deserialize, Serialize};

use crate::config::Error;
use crate::egress::GuardedResolver;
use crate::provider::ProviderError;
use crate::secret::{Secret, SecretRef};

const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// Returns a client builder with the TLS crypto provider installed. All HTTP clients of the process
/// use it: reqwest panics without a crypto provider.
///
/// Only the configuration decides where requests and their credentials go: proxies of the
/// environment are ignored, and redirects are not followed. The policies of upstreams retry
/// requests, so the client copies none for a retry.
#[expect(clippy::disallowed_methods, reason = "the only builder of clients")]
pub fn client() -> ClientBuilder {
    // An error means that a provider is already installed.
    drop(rustls::crypto::ring::default_provider().install_default());

    let without_retries = retry::never().max_retries_per_request(0);
    Client::builder()
        .no_proxy()
        .redirect(Policy::none())
        .retry(without_retries)
}

/// Certificates in PEM. They are reloaded when they change.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct TlsConfig {
    /// Trusted CA certificates, instead of those of the system.
    pub ca: Option<SecretRef>,
    /// Client certificate, if the upstream requires one.
    pub cert: Option<SecretRef>,
    /// Private key of the client certificate.
    pub key: Option<SecretRef>,
}

impl TlsConfig {
    /// Checks rules across keys.
    pub(crate) fn check(&self) -> Result<(), String> {
        if self.cert.is_some() == self.key.is_some() {
            return Ok(());
        }
        Err("tls.cert and tls.key require each other".to_owned())
    }

    /// Reads the certificates. Effects wait until the operator corrects an unreadable one.
    pub(crate) fn read(&self) -> Result<Certificates, ProviderError> {
        let one = |reference: &Option<SecretRef>| {
            let secret = reference.as_ref().map(SecretRef::resolve).transpose();
            secret.map_err(|error| ProviderError::unavailable("tls", error.log()))
        };
        Ok([one(&self.ca)?, one(&self.cert)?, one(&self.key)?])
    }
}

/// Two clients with the same certificates.
pub(crate) struct ClientPair {
    pub(crate) open: Client,
    pub(crate) guarded: Client,
    /// Clients without the client certificate, if there is one.
    anonymous: Option<Box<ClientPair>>,
}

impl ClientPair {
    /// Returns the clients for hosts that the configuration does not name.
    pub(crate) fn without_identity(&self) -> &Self {
        self.anonymous.as_deref().unwrap_or(self)
    }
}

/// The clients; recreated after a change of certificates.
pub(crate) struct Clients {
    roots: bool,
    cache: CertificateCache<Arc<ClientPair>>,
}

/// Loaded certificates: trusted CA, client certificate, private key.
pub(crate) type Certificates = [Option<Secret>; 3];

/// Value that depends on the current certificates, and is created again after a change.
pub(crate) struct CertificateCache<T> {
    tls: TlsConfig,
    entry: Mutex<Option<(Certificates, T)>>,
}

impl<T: Clone> CertificateCache<T> {
    pub(crate) fn new(tls: TlsConfig) -> Self {
        Self {
            tls,
            entry: Mutex::new(None),
        }
    }

    /// Returns the value; `create` returns the reason if the certificates are invalid.
    pub(crate) fn get(
        &self,
        create: impl FnOnce(&Certificates) -> Result<T, String>,
    ) -> Result<T, ProviderError> {
        // Read at each use: secrets cache their files, so unchanged certificates cost a comparison.
        let read = self.tls.read()?;
        // Locked while the value is created: other callers wait for it instead of creating their
        // own.
        let mut entry = self.entry.lock();
        if let Some((_, value)) = entry.as_ref().filter(|(known, _)| *known == read) {
            return Ok(value.clone());
        }

        let value = create(&read).map_err(|reason| {
            ProviderError::unavailable("tls", format!("invalid certificates: {reason}"))
        })?;
        *entry = Some((read, value.clone()));
        Ok(value)
    }
}

impl Clients {
    pub(crate) fn of_upstream(upstream: &str, tls: &TlsConfig, roots: bool) -> Result<Self, Error> {
        Self::new(tls.clone(), roots).map_err(|error| {
            Error::new(format!(
                "cannot configure TLS for upstream {upstream}: {error}"
            ))
        })
    }

    /// Creates the clients; `roots`: whether the certificates of the system are required.
    pub(crate) fn new(tls: TlsConfig, roots: bool) -> Result<Self, reqwest::Error> {
        let is_default = tls == TlsConfig::default();
        let clients = Self {
            roots,
            cache: CertificateCache::new(tls),
        };

        // Without configured certificates, nothing is read later: an error belongs to the start.
        if is_default {
            let none = Certificates::default();
            let pair = Arc::new(clients.make(&none)?);
            *clients.cache.entry.lock() = Some((none, pair));
        }
        Ok(clients)
    }

    pub(crate) fn pair(&self) -> Result<Arc<ClientPair>, ProviderError> {
        self.cache.get(|read| {
            self.make(read)
                .map(Arc::new)
                .map_err(|error| error.without_url().to_string())
        })
    }

    fn make(&self, read: &Certificates) -> Result<ClientPair, reqwest::Error> {
        let [_, cert, key] = read;
        let (Some(cert), Some(key)) = (cert, key) else {
            return self.clients(read, None);
        };

        let identity =
            Identity::from_pem(format!("{}\n{}", cert.expose(), key.expose()).as_bytes())?;

        // The target of a redirect must not receive the identity.
        let anonymous = Some(Box::new(self.clients(read, None)?));

        Ok(ClientPair {
            anonymous,
            ..self.clients(read, Some(&identity))?
        })
    }

    fn clients(
        &self,
        [ca, ..]: &Certificates,
        identity: Option<&Identity>,
    ) -> Result<ClientPair, reqwest::Error> {
        let builder = || -> Result<ClientBuilder, reqwest::Error> {
            let builder = client().connect_timeout(CONNECT_TIMEOUT);
            let builder = match ca {
                Some(ca) => {
                    builder.tls_certs_only(Certificate::from_pem_bundle(ca.expose().as_bytes())?)
                }
                None if self.roots => builder,
                None => builder.tls_certs_only([]),
            };
            Ok(match identity {
                Some(identity) => builder.identity(identity.clone()),
                None => builder,
            })
        };

        let guarded = builder()?.dns_resolver(Arc::new(GuardedResolver));
        Ok(ClientPair {
            open: builder()?.build()?,
            guarded: guarded.build()?,
            anonymous: None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_certificate_has_clients_without_it_for_other_hosts() {
        let file = |name: &str| {
            let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/certs");
            format!("file:{path}/{name}").parse::<SecretRef>().unwrap()
        };
        let tls = TlsConfig {
            ca: None,
            cert: Some(file("client.pem")),
            key: Some(file("client.key")),
        };
        let pair = Clients::new(tls, false).unwrap().pair().unwrap();
        assert!(!std::ptr::eq(pair.without_identity(), &raw const *pair));
        let pair = Clients::new(TlsConfig::default(), false)
            .unwrap()
            .pair()
            .unwrap();
        assert!(std::ptr::eq(pair.without_identity(), &raw const *pair));
    }
}
