//! TLS of the HTTP API: the certificates of the node, read from files and replaced while the node
//! runs.
//!
//! Certificates that cannot be used never replace usable ones. A connection keeps the certificates
//! of its handshake.

pub mod pods;

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::Mutex;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig};

use crate::config::{ClusterTlsConfig, Config, HttpTlsConfig};
use pods::{PodTrust, provider};

/// Protocols that the API offers (ALPN).
const PROTOCOLS: [&[u8]; 1] = [b"http/1.1"];

/// Error of certificates that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A file cannot be read.
    #[error("{key}: cannot read {}: {source}", path.display())]
    Read {
        /// Key of the configuration.
        key: &'static str,
        /// File that the key names.
        path: PathBuf,
        /// Error of the file system.
        source: io::Error,
    },
    /// A file does not contain what the key requires.
    #[error("{key}: {} contains no {expected} in PEM", path.display())]
    Content {
        /// Key of the configuration.
        key: &'static str,
        /// File that the key names.
        path: PathBuf,
        /// What the file must contain.
        expected: &'static str,
    },
    /// The certificates contradict each other or are not supported.
    #[error("{key}: {reason}")]
    Rejected {
        /// Key of the configuration.
        key: &'static str,
        /// Reason of the TLS library.
        reason: String,
    },
    /// Pods cannot verify each other.
    #[error(transparent)]
    Pods(#[from] pods::Error),
}

/// Certificates of a node.
pub struct NodeTls {
    source: Source,
    state: Mutex<State>,
}

/// Configuration of the certificates.
struct Source {
    http: HttpTlsConfig,
    cluster: ClusterTlsConfig,
    node: String,
}

struct State {
    files: Files,
    certificates: Arc<Certificates>,
    /// Error of the last attempt to replace the certificates; reported once.
    failure: String,
}

/// Loaded certificates.
pub struct Certificates {
    /// Configuration of the listener.
    pub server: Arc<ServerConfig>,
    /// Trust in other pods, if `cluster.tls.ca` is set.
    pub pods: Option<Arc<PodTrust>>,
}

/// Result of a reload.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Reload {
    /// The files have not changed, or have the same error as before.
    Unchanged,
    /// New connections use the new certificates.
    Replaced,
    /// The previous certificates stay in use.
    Rejected(String),
}

/// Contents of the configured files.
#[derive(PartialEq, Eq)]
struct Files {
    certificate: Vec<u8>,
    key: Vec<u8>,
    client_ca: Option<Vec<u8>>,
    cluster_ca: Option<Vec<u8>>,
}

impl NodeTls {
    /// Reads the certificates; `None` if the node serves HTTP.
    ///
    /// # Errors
    /// If a file cannot be read or used.
    pub fn load(config: &Config) -> Result<Option<Arc<Self>>, Error> {
        if !config.http.tls.is_enabled() {
            return Ok(None);
        }

        let http = config.http.tls.clone();
        let cluster = config.cluster.tls.clone();
        let source = Source {
            http,
            cluster,
            node: config.node_name(),
        };
        let files = source.read()?;
        let certificates = Arc::new(source.certificates(&files)?);
        let state = Mutex::new(State {
            files,
            certificates,
            failure: String::new(),
        });

        Ok(Some(Arc::new(Self { source, state })))
    }

    /// Replaces the certificates if the files have changed.
    pub(crate) fn reload(&self) -> Reload {
        let read = self.source.read();
        let mut state = self.state.lock();
        let replaced = read.and_then(|files| {
            if files == state.files {
                return Ok(None);
            }
            Ok(Some((Arc::new(self.source.certificates(&files)?), files)))
        });

        let failure = replaced
            .as_ref()
            .err()
            .map(ToString::to_string)
            .unwrap_or_default();

        // The files are read periodically; an error is reported once.
        let is_new = std::mem::replace(&mut state.failure, failure.clone()) != failure;

        match replaced {
            Ok(Some((certificates, files))) => {
                // Only together with the files: after an error, the next read tries again.
                state.certificates = certificates;
                state.files = files;
                Reload::Replaced
            }
            Err(_) if is_new => Reload::Rejected(failure),
            Ok(None) | Err(_) => Reload::Unchanged,
        }
    }

    /// Returns the current certificates.
    pub fn certificates(&self) -> Arc<Certificates> {
        Arc::clone(&self.state.lock().certificates)
    }

    /// Returns the trust in other pods, if it is configured.
    pub fn pods(&self) -> Option<Arc<PodTrust>> {
        self.certificates().pods.clone()
    }
}

impl Source {
    fn read(&self) -> Result<Files, Error> {
        let Self { http, cluster, .. } = self;
        let required =
            |key, path: &Option<PathBuf>| read(key, path.as_deref().unwrap_or(Path::new("")));
        let optional =
            |key, path: &Option<PathBuf>| path.as_deref().map(|path| read(key, path)).transpose();

        Ok(Files {
            certificate: required("http.tls.certificate", &http.certificate)?,
            key: required("http.tls.key", &http.key)?,
            client_ca: optional("http.tls.client_ca", &http.client_ca)?,
            cluster_ca: optional("cluster.tls.ca", &cluster.ca)?,
        })
    }

    fn certificates(&self, files: &Files) -> Result<Certificates, Error> {
        let Self {
            http,
            cluster,
            node,
        } = self;
        let chain = certificates(
            "http.tls.certificate",
            http.certificate.as_ref(),
            &files.certificate,
        )?;

        let key = PrivateKeyDer::from_pem_slice(&files.key).map_err(|_| Error::Content {
            key: "http.tls.key",
            path: http.key.clone().unwrap_or_default(),
            expected: "private key",
        })?;
        let mut clients = Vec::new();
        let mut pods = Vec::new();

        if let Some(ca) = &files.client_ca {
            clients = certificates("http.tls.client_ca", http.client_ca.as_ref(), ca)?;
        }

        if let Some(ca) = &files.cluster_ca {
            pods = certificates("cluster.tls.ca", cluster.ca.as_ref(), ca)?;
        }

        // Pods present their certificates on the same port as other clients.
        let clients = roots("http.tls.client_ca", clients.iter().chain(&pods))?;
        let server = server_config(
            clients,
            http.require_client_certificate,
            chain.clone(),
            key.clone_key(),
        )?;
        let pods = if pods.is_empty() {
            None
        } else {
            let roots = roots("cluster.tls.ca", pods.iter())?;
            Some(Arc::new(PodTrust::new(
                roots,
                chain.clone(),
                key.clone_key(),
                &cluster.peer_name,
                node,
            )?))
        };

        Ok(Certificates {
            server: Arc::new(server),
            pods,
        })
    }
}

fn read(key: &'static str, path: &Path) -> Result<Vec<u8>, Error> {
    std::fs::read(path).map_err(|source| Error::Read {
        key,
        path: path.to_owned(),
        source,
    })
}

fn server_config(
    clients: RootCertStore,
    require_client_certificate: bool,
    chain: Vec<CertificateDer<'static>>,
    key: PrivateKeyDer<'static>,
) -> Result<ServerConfig, Error> {
    let rejected = |key, error: &dyn std::error::Error| Error::Rejected {
        key,
        reason: error.to_string(),
    };
    let builder =
        ServerConfig::builder_with_provider(provider()).with_safe_default_protocol_versions();
    let builder = builder.map_err(|error| rejected("http.tls", &error))?;
    // The verifier of the library requires at least one root certificate.
    let builder = if clients.is_empty() {
        builder.with_no_client_auth()
    } else {
        let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(clients), provider());
        let verifier = if require_client_certificate {
            verifier
        } else {
            verifier.allow_unauthenticated()
        };
        let verifier = verifier
            .build()
            .map_err(|error| rejected("http.tls.client_ca", &error))?;

        builder.with_client_cert_verifier(verifier)
    };

    let server = builder.with_single_cert(chain, key);
    let mut server = server.map_err(|error| rejected("http.tls.certificate", &error))?;
    server.alpn_protocols = PROTOCOLS.map(<[u8]>::to_vec).into();
    Ok(server)
}

fn certificates(
    key: &'static str,
    path: Option<&PathBuf>,
    pem: &[u8],
) -> Result<Vec<CertificateDer<'static>>, Error> {
    let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem).collect();
    found.ok().filter(|found| !found.is_empty()).ok_or_else(|| {
        let path = path.cloned().unwrap_or_default();
        Error::Content {
            key,
            path,
            expected: "certificate",
        }
    })
}

fn roots<'a>(
    key: &'static str,
    certificates: impl Iterator<Item = &'a CertificateDer<'static>>,
) -> Result<RootCertStore, Error> {
    let mut roots = RootCertStore::empty();
    for certificate in certificates {
        let added = roots.add(certificate.clone());
        added.map_err(|error| Error::Rejected {
            key,
            reason: error.to_string(),
        })?;
    }

    Ok(roots)
}
