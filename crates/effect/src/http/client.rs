//! The part of an HTTP provider that holds the connections.

use std::time::Duration;

use orlog_model::WorkItem;
use percent_encoding::{AsciiSet, CONTROLS, utf8_percent_encode};
use reqwest::header::{CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};
use reqwest::{Client, ClientBuilder, Method, Response, Url};
use serde_json::Value;

use super::answer::{self, Asked, Body, MAX_BODY};
use crate::provider::{Refusal, Reply};

/// The encoding of CloudEvents for HTTP header values.
const UNFIT_FOR_HEADERS: &AsciiSet = &CONTROLS.add(b' ').add(b'"').add(b'%');

const IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");
const TENANT: HeaderName = HeaderName::from_static("x-tenant-id");
const CORRELATION: HeaderName = HeaderName::from_static("x-correlation-id");
const TRACE: HeaderName = HeaderName::from_static("traceparent");

const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// An upstream that cannot be spoken to as configured.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The base URL is none.
    #[error("the base URL {url:?} of {upstream}: {reason}; write for example http://127.0.0.1:8081")]
    BaseUrl {
        /// Whose.
        upstream: String,
        /// What was given.
        url: String,
        /// What is wrong with it.
        reason: String,
    },
    /// The TLS library could not be set up, for example because the system has no root certificates.
    #[error("HTTPS to {upstream} cannot be set up: {source}")]
    Tls {
        /// Whose.
        upstream: String,
        /// Why.
        source: reqwest::Error,
    },
}

/// A client builder whose TLS has its cryptography installed. Every HTTP client of the process begins here: without it
/// reqwest panics when it is built.
pub fn client() -> ClientBuilder {
    // An error says that somebody else has installed one already, which does as well.
    drop(rustls::crypto::ring::default_provider().install_default());
    Client::builder()
}

/// Sends requests to one upstream.
pub(crate) struct Speaker {
    upstream: String,
    base: String,
    client: Client,
}

/// One request.
pub(crate) struct Request<'a> {
    pub(crate) method: &'a Method,
    pub(crate) path: String,
    pub(crate) headers: &'a HeaderMap,
    pub(crate) body: Option<&'a Value>,
}

impl Speaker {
    pub(crate) fn new(upstream: &str, base_url: &str) -> Result<Self, Error> {
        let url = base(base_url).map_err(|reason| Error::BaseUrl {
            upstream: upstream.to_owned(),
            url: base_url.chars().take(128).collect(),
            reason,
        })?;
        // Proxies of the environment are not used: the configuration alone says where requests go.
        let builder =
            client().redirect(reqwest::redirect::Policy::none()).no_proxy().connect_timeout(CONNECT_TIMEOUT);
        // A plain upstream must not need the system's root certificates.
        let builder = if url.scheme() == "http" { builder.tls_certs_only([]) } else { builder };
        let client =
            builder.build().map_err(|source| Error::Tls { upstream: upstream.to_owned(), source })?;
        let base = url.as_str().trim_end_matches('/').to_owned();
        Ok(Self { upstream: upstream.to_owned(), base, client })
    }

    pub(crate) fn upstream(&self) -> &str {
        &self.upstream
    }

    pub(crate) async fn send(&self, item: &WorkItem, request: Request<'_>) -> Result<Reply, Refusal> {
        let asked = Asked { upstream: &self.upstream, method: request.method.as_str(), path: &request.path };
        let mut call = self
            .client
            .request(request.method.clone(), format!("{}{}", self.base, request.path))
            .headers(request.headers.clone())
            .headers(identity(item));
        if let Some(body) = request.body {
            call = call.header(CONTENT_TYPE, "application/json").body(body.to_string());
        }
        let response = call.send().await.map_err(|error| transport(asked, error))?;
        let (status, headers) = (response.status(), response.headers().clone());
        let body = read(response).await.map_err(|error| transport(asked, error))?;
        answer::judge(asked, status, &headers, &body)
    }
}

/// The headers that say on whose behalf a request is made.
fn identity(item: &WorkItem) -> HeaderMap {
    let mut headers = HeaderMap::with_capacity(4);
    headers.insert(IDEMPOTENCY_KEY, header(&item.id.to_string()));
    if !item.instance.tenant.as_str().is_empty() {
        headers.insert(TENANT, header(item.instance.tenant.as_str()));
    }
    headers.insert(CORRELATION, header(item.instance.correlation.as_str()));
    if let Some(trace) = &item.trace {
        headers.insert(TRACE, header(trace.as_str()));
    }
    headers
}

/// Whether a header is one that every request has, or one that belongs to the protocol.
pub(crate) fn is_reserved(name: &HeaderName) -> bool {
    [IDEMPOTENCY_KEY, TENANT, CORRELATION, TRACE].contains(name)
        || matches!(name.as_str(), "host" | "content-length" | "transfer-encoding" | "connection")
}

fn header(text: &str) -> HeaderValue {
    let encoded = utf8_percent_encode(text, UNFIT_FOR_HEADERS).to_string();
    HeaderValue::try_from(encoded).expect("percent-encoded text is printable ASCII")
}

fn base(text: &str) -> Result<Url, String> {
    let url = Url::parse(text).map_err(|error| error.to_string())?;
    match url.scheme() {
        "http" | "https" => {}
        other => return Err(format!("the scheme {other:?} is neither http nor https")),
    }
    if !url.username().is_empty() || url.password().is_some() {
        return Err("it holds a user name or a password".to_owned());
    }
    if url.query().is_some() || url.fragment().is_some() {
        return Err("it holds a query or a fragment".to_owned());
    }
    Ok(url)
}

/// Reads the body up to the limit; the connection of a longer one is given up.
async fn read(mut response: Response) -> Result<Body, reqwest::Error> {
    let mut bytes = Vec::new();
    while let Some(chunk) = response.chunk().await? {
        let room = MAX_BODY - bytes.len();
        bytes.extend_from_slice(&chunk[..chunk.len().min(room)]);
        if chunk.len() > room {
            return Ok(Body { bytes, cut: true });
        }
    }
    Ok(Body { bytes, cut: false })
}

/// A fault on the way. Where no connection came about nothing was done; otherwise nobody knows.
fn transport(asked: Asked<'_>, error: reqwest::Error) -> Refusal {
    let connecting = error.is_connect();
    let ours = error.is_builder();
    let text = chain(&error.without_url());
    if ours {
        Refusal::failed("bad_request", format!("{asked}: {text}"))
    } else if connecting {
        Refusal::retry("unreachable", format!("{asked}: {text}"))
    } else {
        Refusal::lost("transport", format!("{asked}: {text}"))
    }
}

fn chain(error: &dyn std::error::Error) -> String {
    let causes = std::iter::successors(Some(error), |error| error.source());
    causes.map(ToString::to_string).collect::<Vec<_>>().join(": ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refuses_what_is_no_base_url_and_says_why() {
        for (bad, reason) in [
            ("payments", "relative URL without a base"),
            ("ftp://host", "neither http nor https"),
            ("http://user:secret@host", "user name"),
            ("http://host/?a=b", "query"),
        ] {
            let error = Speaker::new("payments", bad).err().unwrap().to_string();
            assert!(error.contains(reason) && error.contains("payments"), "{error}");
        }
    }

    #[test]
    fn ids_travel_percent_encoded() {
        assert_eq!(header("o 1 ü%").to_str().unwrap(), "o%201%20%C3%BC%25");
    }
}
