//! HTTP client of a provider; holds the connections.

use orlog_model::{Failure, Timestamp, WorkItem};
use percent_encoding::{AsciiSet, CONTROLS, utf8_percent_encode};
use reqwest::header::{AUTHORIZATION, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue, LOCATION};
use reqwest::{Method, Response, StatusCode, Url};

use super::auth::{self, HttpAuth, HttpAuthConfig, SignatureConfig};
use super::response::{HttpResponse, MAX_BODY, RequestSummary, ResponseBody};
use super::tls::{ClientPair, Clients, TlsConfig};
use crate::egress::{self, Egress};
use crate::provider::{ProviderError, TransientCause};
use crate::secret::SecretScrubber;

/// Encoding of CloudEvents for HTTP header values.
const UNFIT_FOR_HEADERS: &AsciiSet = &CONTROLS.add(b' ').add(b'"').add(b'%');

pub(crate) const IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");
const TENANT: HeaderName = HeaderName::from_static("x-tenant-id");
const CORRELATION: HeaderName = HeaderName::from_static("x-correlation-id");
const TRACE: HeaderName = HeaderName::from_static("traceparent");
const BAGGAGE: HeaderName = HeaderName::from_static("baggage");

/// Error for an upstream with an invalid client configuration.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The base URL is invalid.
    #[error("invalid base URL {url:?} of upstream {upstream}: {reason}; example: http://127.0.0.1:8081")]
    BaseUrl {
        /// Name of the upstream.
        upstream: String,
        /// Configured URL.
        url: String,
        /// Reason.
        reason: String,
    },
    /// The TLS library cannot be configured, for example because the system has no root certificates.
    #[error("cannot configure TLS for upstream {upstream}: {source}")]
    Tls {
        /// Name of the upstream.
        upstream: String,
        /// Cause.
        source: reqwest::Error,
    },
}

/// Options of the HTTP client besides the address.
#[derive(Clone, Debug)]
pub(crate) struct HttpClientOptions {
    pub(crate) tls: TlsConfig,
    pub(crate) egress: Egress,
    /// Maximum number of redirects.
    pub(crate) redirects: u8,
    /// Maximum number of body bytes that are read.
    pub(crate) max_response: usize,
    /// Header of the idempotency key.
    pub(crate) key_header: HeaderName,
    pub(crate) auth: Option<HttpAuthConfig>,
    pub(crate) signature: Option<SignatureConfig>,
}

impl Default for HttpClientOptions {
    fn default() -> Self {
        Self {
            tls: TlsConfig::default(),
            egress: Egress::default(),
            redirects: 0,
            max_response: MAX_BODY,
            key_header: IDEMPOTENCY_KEY,
            auth: None,
            signature: None,
        }
    }
}

/// Sends requests to one upstream.
pub(crate) struct HttpClient {
    upstream: String,
    base: Option<String>,
    clients: Clients,
    options: HttpClientOptions,
    auth: Option<HttpAuth>,
}

/// One HTTP request.
pub(crate) struct Request<'a> {
    pub(crate) method: &'a Method,
    pub(crate) to: RequestTarget,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Option<Vec<u8>>,
    pub(crate) content_type: &'static str,
    /// Start time of the attempt.
    pub(crate) at: Timestamp,
}

/// Target of a request.
pub(crate) enum RequestTarget {
    /// Path below the base URL.
    Path(String),
    /// Complete URL; `dynamic` if a payload specifies the host.
    Url { url: Url, dynamic: bool },
}

/// Response with the summary of its request.
pub(crate) struct HttpExchange {
    pub(crate) response: HttpResponse,
    pub(crate) path: String,
}

impl HttpClient {
    /// Creates a client. Without a base URL, effects specify complete URLs.
    pub(crate) fn new(
        upstream: &str,
        base_url: Option<&str>,
        options: HttpClientOptions,
    ) -> Result<Self, Error> {
        let url = base_url.map(|text| {
            base(text).map_err(|reason| Error::BaseUrl {
                upstream: upstream.to_owned(),
                url: text.chars().take(128).collect(),
                reason,
            })
        });
        let url = url.transpose()?;
        // An upstream without TLS must not require the root certificates of the system.
        let is_plaintext = url.as_ref().is_some_and(|url| url.scheme() == "http")
            && options.redirects == 0
            && !matches!(options.auth, Some(HttpAuthConfig::OAuth2(_)));
        let tls = |source| Error::Tls { upstream: upstream.to_owned(), source };
        let clients = Clients::new(options.tls.clone(), !is_plaintext).map_err(tls)?;
        let auth = options.auth.clone().map(HttpAuth::new);
        let base = url.map(|url| url.as_str().trim_end_matches('/').to_owned());
        Ok(Self { upstream: upstream.to_owned(), base, clients, options, auth })
    }

    pub(crate) fn upstream(&self) -> &str {
        &self.upstream
    }

    /// Sends a request and returns the response, without the secrets that were sent.
    pub(crate) async fn send(
        &self,
        item: &WorkItem,
        request: Request<'_>,
        mut scrub: SecretScrubber,
    ) -> Result<HttpExchange, ProviderError> {
        let (url, dynamic) = self.target(&request)?;
        let path = match request.to {
            RequestTarget::Path(ref path) => path.clone(),
            RequestTarget::Url { .. } => format!("{}{}", url.host_str().unwrap_or_default(), url.path()),
        };
        let summary =
            RequestSummary { upstream: &self.upstream, method: request.method.as_str(), path: &path };
        let response = self.authorized(item, &request, (url, dynamic), &mut scrub, summary).await;
        match response {
            Ok(mut response) => {
                response.body.bytes = scrub.scrub_bytes(response.body.bytes);
                for value in response.headers.values_mut() {
                    if let Some(clean) = value.to_str().ok().map(|text| scrub.scrub_text(text.to_owned())) {
                        *value = HeaderValue::try_from(clean)
                            .expect("a valid value without secrets is still valid");
                    }
                }
                Ok(HttpExchange { response, path })
            }
            Err(error) => Err(scrub_error(error, &scrub)),
        }
    }

    fn target(&self, request: &Request<'_>) -> Result<(Url, bool), ProviderError> {
        match &request.to {
            RequestTarget::Url { url, dynamic } => Ok((url.clone(), *dynamic)),
            RequestTarget::Path(path) => {
                let base = self.base.as_deref().unwrap_or_default();
                let url = Url::parse(&format!("{base}{path}"));
                let invalid =
                    |error| ProviderError::permanent("bad_request", format!("{}: {error}", self.upstream));
                url.map(|url| (url, false)).map_err(invalid)
            }
        }
    }

    /// Sends a request with authorization. A rejected token is fetched again, once.
    async fn authorized(
        &self,
        item: &WorkItem,
        request: &Request<'_>,
        to: (Url, bool),
        scrub: &mut SecretScrubber,
        summary: RequestSummary<'_>,
    ) -> Result<HttpResponse, ProviderError> {
        let pair = self.clients.pair()?;
        let mut headers = context_headers(item, self.options.key_header.clone());
        headers.extend(request.headers.clone());
        if let Some(config) = &self.options.signature {
            let body = request.body.as_deref().unwrap_or_default();
            headers.extend(auth::webhook_signature(config, &item.id.to_string(), request.at, body, scrub)?);
        }
        let Some(auth) = &self.auth else {
            return self.follow(item, request, to, headers, summary, &pair).await;
        };
        let mut value = auth.header_value(&pair.open, request.at, scrub).await?;
        headers.insert(AUTHORIZATION, auth::sensitive_header(&value)?);
        let response = self.follow(item, request, to.clone(), headers.clone(), summary, &pair).await?;
        if response.status != StatusCode::UNAUTHORIZED || !auth.invalidate(&value).await {
            return Ok(response);
        }
        value = auth.header_value(&pair.open, request.at, scrub).await?;
        headers.insert(AUTHORIZATION, auth::sensitive_header(&value)?);
        self.follow(item, request, to, headers, summary, &pair).await
    }

    /// Sends the request and follows redirects up to the limit. Configured credentials, headers and
    /// signatures are sent only to the original origin. If a payload determines it and the request has
    /// credentials, the configuration lists its host (`HttpConfig`), which the egress rules check.
    async fn follow(
        &self,
        item: &WorkItem,
        request: &Request<'_>,
        (mut url, mut guarded): (Url, bool),
        headers: HeaderMap,
        summary: RequestSummary<'_>,
        pair: &ClientPair,
    ) -> Result<HttpResponse, ProviderError> {
        let (origin, mut method) = (url.origin(), request.method.clone());
        let mut body = request.body.clone();
        let mut remaining = self.options.redirects;
        loop {
            if guarded {
                self.options.egress.check(&item.instance.tenant, &url).map_err(|e| forbidden(summary, &e))?;
            }
            let pair = if url.origin() == origin { pair } else { pair.without_identity() };
            let client = if guarded && !self.options.egress.private { &pair.guarded } else { &pair.open };
            let mut call = client.request(method.clone(), url.clone());
            if url.origin() == origin {
                call = call.headers(headers.clone());
            }
            if let Some(body) = &body {
                let typed = headers.get(CONTENT_TYPE).cloned();
                let typed = typed.unwrap_or(HeaderValue::from_static(request.content_type));
                call = call.header(CONTENT_TYPE, typed).body(body.clone());
            }
            let response = call.send().await.map_err(|error| match transport(summary, error) {
                // The request before the redirect may have been executed.
                ProviderError::Transient { failure, retry_after, .. }
                    if remaining < self.options.redirects =>
                {
                    ProviderError::Transient { failure, trouble: TransientCause::ResponseLost, retry_after }
                }
                error => error,
            })?;
            let next = redirect(&response, &method, &url).filter(|_| remaining > 0);
            let Some((to, with)) = next else { return self.read_response(response, summary).await };
            remaining -= 1;
            guarded |= to.origin() != origin;
            if with != method {
                body = None;
            }
            (url, method) = (to, with);
        }
    }

    async fn read_response(
        &self,
        response: Response,
        summary: RequestSummary<'_>,
    ) -> Result<HttpResponse, ProviderError> {
        let (status, headers) = (response.status(), response.headers().clone());
        let body = ResponseBody::read(response, self.options.max_response)
            .await
            .map_err(|error| transport(summary, error))?;
        Ok(HttpResponse { status, headers, body })
    }
}

/// Returns the headers that identify the tenant, instance and work item of a request.
pub(crate) fn context_headers(item: &WorkItem, key_header: HeaderName) -> HeaderMap {
    let mut headers = HeaderMap::with_capacity(5);
    headers.insert(key_header, header(&item.id.to_string()));
    if !item.instance.tenant.as_str().is_empty() {
        headers.insert(TENANT, header(item.instance.tenant.as_str()));
    }
    headers.insert(CORRELATION, header(item.instance.correlation.as_str()));
    if let Some(trace) = &item.trace {
        headers.insert(TRACE, header(trace.as_str()));
    }
    // Already escaped by its own rules; valid in a header.
    let baggage = orlog_model::trace::tenant_baggage(&item.instance);
    if let Some(value) = baggage.and_then(|text| HeaderValue::try_from(text).ok()) {
        headers.insert(BAGGAGE, value);
    }
    headers
}

/// Returns the target and method of a redirect; `None` if there is none or if it may not be followed. A
/// request with a body is repeated only if the status permits it, and never over plain HTTP after TLS.
fn redirect(response: &Response, method: &Method, from: &Url) -> Option<(Url, Method)> {
    let is_read = [Method::GET, Method::HEAD].contains(method);
    let method = match response.status().as_u16() {
        307 | 308 => method.clone(),
        301 | 302 if is_read => method.clone(),
        303 if *method == Method::HEAD => Method::HEAD,
        303 => Method::GET,
        _ => return None,
    };
    let to = from.join(response.headers().get(LOCATION)?.to_str().ok()?).ok()?;
    let fits = match (from.scheme(), to.scheme()) {
        ("https", "https") | ("http", "http" | "https") => {
            to.username().is_empty() && to.password().is_none()
        }
        _ => false,
    };
    fits.then_some((to, method))
}

fn forbidden(summary: RequestSummary<'_>, denied: &egress::EgressDenied) -> ProviderError {
    ProviderError::permanent("egress_denied", format!("{summary}: {denied}"))
}

pub(crate) fn scrub_error(error: ProviderError, scrub: &SecretScrubber) -> ProviderError {
    let clean = |failure: Failure| Failure { message: scrub.scrub_text(failure.message), ..failure };
    match error {
        ProviderError::Permanent { failure, event, payload, facts } => {
            ProviderError::Permanent { failure: clean(failure), event, payload, facts }
        }
        ProviderError::Abandoned { failure } => ProviderError::Abandoned { failure: clean(failure) },
        ProviderError::Transient { failure, trouble, retry_after } => {
            ProviderError::Transient { failure: clean(failure), trouble, retry_after }
        }
    }
}

/// Returns whether a header is set on every request or belongs to the protocol.
pub(crate) fn is_reserved(name: &HeaderName) -> bool {
    [TENANT, CORRELATION, TRACE].contains(name)
        || matches!(
            name.as_str(),
            "idempotency-key" | "host" | "content-length" | "transfer-encoding" | "connection"
        )
}

fn header(text: &str) -> HeaderValue {
    let encoded = utf8_percent_encode(text, UNFIT_FOR_HEADERS).to_string();
    HeaderValue::try_from(encoded).expect("percent-encoded text is printable ASCII")
}

fn base(text: &str) -> Result<Url, String> {
    let url = Url::parse(text).map_err(|error| error.to_string())?;
    match url.scheme() {
        "http" | "https" => {}
        other => return Err(format!("the scheme {other:?} is not http or https")),
    }
    if !url.username().is_empty() || url.password().is_some() {
        return Err("it contains a user name or a password".to_owned());
    }
    if url.query().is_some() || url.fragment().is_some() {
        return Err("it contains a query or a fragment".to_owned());
    }
    Ok(url)
}

/// Maps a transport error. If no connection was established, nothing was executed; otherwise the
/// outcome is unknown.
fn transport(summary: RequestSummary<'_>, error: reqwest::Error) -> ProviderError {
    if let Some(denied) = egress::egress_error(&error) {
        return forbidden(summary, denied);
    }
    let connecting = error.is_connect();
    let ours = error.is_builder();
    let text = chain(&error.without_url());
    if ours {
        ProviderError::permanent("bad_request", format!("{summary}: {text}"))
    } else if connecting {
        ProviderError::unavailable("unreachable", format!("{summary}: {text}"))
    } else {
        ProviderError::response_lost("transport", format!("{summary}: {text}"))
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
    fn rejects_invalid_base_url_with_a_reason() {
        for (invalid, reason) in [
            ("payments", "relative URL without a base"),
            ("ftp://host", "is not http or https"),
            ("http://user:secret@host", "user name"),
            ("http://host/?a=b", "query"),
        ] {
            let error = HttpClient::new("payments", Some(invalid), HttpClientOptions::default())
                .err()
                .unwrap()
                .to_string();
            assert!(error.contains(reason) && error.contains("payments"), "{error}");
        }
    }

    #[test]
    fn ids_are_percent_encoded() {
        assert_eq!(header("o 1 ü%").to_str().unwrap(), "o%201%20%C3%BC%25");
    }
}
