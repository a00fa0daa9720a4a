//! TLS between pods: clients that verify the pod that receives a request, and the check of the pod
//! that sent one.
//!
//! A pod proves its identity with a certificate of the cluster CA that contains an expected name.
//! Requests contain the credentials of their callers; they are sent only after the verification.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::verify_server_name;
use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::server::danger::ClientCertVerifier;
use rustls::server::{ParsedCertificate, WebPkiClientVerifier};
use rustls::{ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme};

/// Placeholder of the name of a pod in `cluster.tls.peer_name`.
const POD: &str = "{pod}";
/// Maximum time until a connection to another pod is open. A pod whose host is gone sends no
/// rejection.
pub const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// Maximum number of clients that are kept; names of former pods are among them.
const MAX_CLIENTS: usize = 64;

/// Trust between the pods of a cluster.
pub struct PodTrust {
    servers: Arc<WebPkiServerVerifier>,
    senders: Arc<dyn ClientCertVerifier>,
    chain: Vec<CertificateDer<'static>>,
    key: PrivateKeyDer<'static>,
    peer_name: String,
    /// Clients by the name that they expect.
    clients: Mutex<BTreeMap<String, reqwest::Client>>,
}

/// Client certificate that the cluster CA has issued.
#[derive(Clone, Debug)]
pub struct PodCertificate(CertificateDer<'static>);

/// Error of a pod that cannot be reached with a verified identity.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The expected name is no DNS name and no address.
    #[error("{0:?} is not a valid name in a certificate; set cluster.tls.peer_name")]
    Name(String),
    /// The verifier rejects the CA.
    #[error("cluster.tls.ca: {0}")]
    Ca(rustls::server::VerifierBuilderError),
    /// The certificate of this node does not identify a pod.
    #[error(
        "http.tls.certificate: other pods would reject it ({reason}); it needs an issuer in \
         cluster.tls.ca, the name {name:?} (cluster.tls.peer_name), and the usages server and \
         client authentication"
    )]
    OwnCertificate {
        /// Name that the certificates of all pods must have.
        name: String,
        /// Reason of the TLS library.
        reason: rustls::Error,
    },
    /// The TLS library rejects the configuration.
    #[error("no TLS client: {0}")]
    Tls(#[from] rustls::Error),
    /// The HTTP client cannot be built.
    #[error("no HTTP client: {0}")]
    Client(#[from] reqwest::Error),
}

impl PodTrust {
    /// Creates the trust of a pod, and verifies its certificate as other pods do.
    pub(super) fn new(
        roots: RootCertStore,
        chain: Vec<CertificateDer<'static>>,
        key: PrivateKeyDer<'static>,
        peer_name: &str,
        pod: &str,
    ) -> Result<Self, Error> {
        let roots = Arc::new(roots);
        let servers = WebPkiServerVerifier::builder_with_provider(Arc::clone(&roots), provider());
        let senders = WebPkiClientVerifier::builder_with_provider(roots, provider());
        let trust = Self {
            servers: servers.build().map_err(Error::Ca)?,
            senders: senders.build().map_err(Error::Ca)?,
            chain,
            key,
            peer_name: peer_name.to_owned(),
            clients: Mutex::default(),
        };

        // At the start: with a certificate for another name, all other pods would reject this one.
        trust.check_own(pod)?;
        Ok(trust)
    }

    fn check_own(&self, pod: &str) -> Result<(), Error> {
        let name = self.name_of(pod);
        let now = UnixTime::now();
        let server = server_name(&name)?;
        let (leaf, intermediates) = self
            .chain
            .split_first()
            .expect("a certificate file has a certificate");
        let verified = self
            .servers
            .verify_server_cert(leaf, intermediates, &server, &[], now);
        // A pod is server and client for the others, so its certificate needs both usages.
        let verified = verified.and_then(|_| {
            self.senders
                .verify_client_cert(leaf, intermediates, now)
                .map(|_| ())
        });

        verified.map_err(|reason| Error::OwnCertificate { name, reason })
    }

    /// Returns a client that sends requests to this pod only.
    ///
    /// # Errors
    /// If the name of the pod is no DNS name, or the TLS library rejects the configuration.
    pub fn client(&self, pod: &str) -> Result<reqwest::Client, Error> {
        let name = self.name_of(pod);
        let mut clients = self.clients.lock();
        if let Some(client) = clients.get(&name) {
            return Ok(client.clone());
        }

        // A client for one pod: its address may belong to another pod later, which must not receive
        // the request.
        let verifier = PeerVerifier {
            servers: Arc::clone(&self.servers),
            name: server_name(&name)?,
        };
        let config = ClientConfig::builder_with_provider(provider())
            .with_safe_default_protocol_versions()?;
        let config = config
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(verifier));
        let config = config.with_client_auth_cert(self.chain.clone(), self.key.clone_key())?;
        let client = orlog_effect::http::client()
            .https_only(true)
            .connect_timeout(CONNECT_TIMEOUT)
            .tls_backend_preconfigured(config)
            .build()?;

        // Names come from the records of the cluster and change rarely; the connections of live
        // pods are opened again.
        if clients.len() >= MAX_CLIENTS {
            clients.clear();
        }

        clients.insert(name, client.clone());
        Ok(client)
    }

    /// Returns the certificate of a client if the cluster CA has issued it.
    pub fn verify(&self, chain: Option<&[CertificateDer<'static>]>) -> Option<PodCertificate> {
        let (leaf, intermediates) = chain?.split_first()?;
        self.senders
            .verify_client_cert(leaf, intermediates, UnixTime::now())
            .ok()?;
        Some(PodCertificate(leaf.clone()))
    }

    /// Returns whether a verified certificate identifies this pod.
    pub fn is_pod(&self, certificate: &PodCertificate, pod: &str) -> bool {
        let Ok(certificate) = ParsedCertificate::try_from(&certificate.0) else {
            return false;
        };
        let Ok(name) = server_name(&self.name_of(pod)) else {
            return false;
        };
        verify_server_name(&certificate, &name).is_ok()
    }

    fn name_of(&self, pod: &str) -> String {
        self.peer_name.replace(POD, pod)
    }
}

/// Returns the cryptography of all TLS connections of the API.
pub(super) fn provider() -> Arc<CryptoProvider> {
    Arc::new(ring::default_provider())
}

fn server_name(name: &str) -> Result<ServerName<'static>, Error> {
    ServerName::try_from(name.to_owned()).map_err(|_| Error::Name(name.to_owned()))
}

/// Verifies that a server is the expected pod, at whatever address.
#[derive(Debug)]
struct PeerVerifier {
    servers: Arc<WebPkiServerVerifier>,
    name: ServerName<'static>,
}

impl ServerCertVerifier for PeerVerifier {
    fn verify_server_cert(
        &self,
        leaf: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        _address: &ServerName<'_>,
        ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        self.servers
            // The expected name, not that of the address: any writer of the lease bucket can
            // publish an address.
            .verify_server_cert(leaf, intermediates, &self.name, ocsp, now)
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.servers
            .verify_tls12_signature(message, certificate, signature)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.servers
            .verify_tls13_signature(message, certificate, signature)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.servers.supported_verify_schemes()
    }
}
