//! Requests to other nodes over HTTP: with TLS except on this machine, limits of time, and reused
//! connections.

use std::path::Path;
use std::time::Duration;

use anyhow::Context as _;
use orlog_signature::NODE_HEADER;
use reqwest::header::{CONTENT_TYPE, HeaderValue};
use reqwest::{Certificate, Client, Request, Url};

use super::request::{NodeRequest, NodeResponse, SendError};
use crate::config::{Config, NodeAddress};
use crate::http_client::{bounded_body, sign};

/// Time in which a connection must be established.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// Time in which a peer must respond.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(30);

/// HTTP clients for other nodes.
pub(super) struct HttpTransport {
    /// Without TLS, for addresses of this machine: it requires no certificates of the system.
    plaintext: Client,
    /// The reason if there are no certificates.
    tls: Result<Client, String>,
}

impl HttpTransport {
    /// Creates the clients. With `identity.ca_file`, they trust only these certificates.
    ///
    /// # Errors
    /// If the file cannot be read, or contains no certificate.
    pub(super) fn new(config: &Config) -> anyhow::Result<Self> {
        let builder = || {
            orlog_effect::http::client()
                .connect_timeout(CONNECT_TIMEOUT)
                .timeout(REQUEST_TIMEOUT)
        };
        let tls = match &config.identity.ca_file {
            Some(file) => builder().tls_certs_only(certificates(file)?),
            None => builder(),
        };
        let tls = tls
            .build()
            .map_err(|error| format!("no TLS client: {error}"));

        Ok(Self {
            plaintext: builder().tls_certs_only([]).build()?,
            tls,
        })
    }

    /// Sends a request to the API at an address. The response has at most `limit` bytes.
    ///
    /// # Errors
    /// [`SendError`].
    pub(super) async fn send(
        &self,
        address: &NodeAddress,
        request: NodeRequest<'_>,
        limit: usize,
    ) -> Result<NodeResponse, SendError> {
        let not_sent = |reason: &dyn ToString| SendError::NotSent(reason.to_string());
        let url = Url::parse(&address.url(request.path)).map_err(|error| not_sent(&error))?;
        let mut sent = Request::new(request.method, url);
        if !request.body.is_empty() {
            sent.headers_mut()
                .insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
            *sent.body_mut() = Some(request.body.into());
        }

        // After the body, whose digest the signature covers.
        if let Some(signature) = request.signature {
            // The address can be that of a proxy, or an IP address that leads to several nodes.
            let receiver = HeaderValue::from_str(signature.receiver.as_str())
                .map_err(|error| not_sent(&error))?;
            sent.headers_mut().insert(NODE_HEADER, receiver);
            sign(signature.key, &mut sent, signature.now).map_err(|error| not_sent(&error))?;
        }

        let client = if address.is_https() {
            self.tls.as_ref().map_err(|reason| not_sent(reason))?
        } else {
            &self.plaintext
        };
        let response = client.execute(sent).await.map_err(|error| {
            let is_connect = error.is_connect();
            let reason = causes(&error.without_url().into());
            // Without a connection the peer has received nothing; after any other error it may have
            // executed the request.
            if is_connect {
                SendError::NotSent(reason)
            } else {
                SendError::NoResponse(reason)
            }
        })?;

        let status = response.status().as_u16();
        let body = bounded_body(response, limit).await;
        let body = body.map_err(|error| SendError::NoResponse(causes(&error)))?;

        Ok(NodeResponse {
            status,
            body: body.into(),
        })
    }
}

fn certificates(file: &Path) -> anyhow::Result<Vec<Certificate>> {
    let place = || format!("identity.ca_file {}", file.display());
    let pem = std::fs::read(file).with_context(place)?;
    let found = Certificate::from_pem_bundle(&pem)
        .ok()
        .filter(|found| !found.is_empty());
    found
        .context("it contains no certificate in PEM")
        .with_context(place)
}

/// Returns an error with its causes.
fn causes(error: &anyhow::Error) -> String {
    error
        .chain()
        .map(ToString::to_string)
        .collect::<Vec<_>>()
        .join(": ")
}
