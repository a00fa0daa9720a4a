//! HTTP client of a provider; holds the connections.

use orlog_model::{Timestamp, WorkItem};
use reqwest::header::{AUTHORIZATION, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue, LOCATION};
use reqwest::{Method, Response, StatusCode, Url};

use super::auth::{self, HttpAuth, HttpAuthConfig};
use super::headers::{IDEMPOTENCY_KEY, context_headers};
use super::response::{HttpResponse, MAX_BODY, RequestSummary, ResponseBody};
use super::tls::{ClientPair, Clients, TlsConfig};
use crate::config::Error;
use crate::egress::{self, Egress};
use crate::provider::{ProviderError, TransientCause};
use crate::secret::{SecretRef, SecretScrubber};

#[derive(Clone, Debug)]
pub(crate) struct HttpClientOptions {
    pub(crate) tls: TlsConfig,
    pub(crate) egress: Egress,
    pub(crate) redirects: u8,
    pub(crate) max_response: usize,
    pub(crate) key_header: HeaderName,
    pub(crate) auth: Option<HttpAuthConfig>,
    /// Keys of the signatures; none without signatures.
    pub(crate) signing_keys: Vec<SecretRef>,
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
            signing_keys: Vec::new(),
        }
    }
}

pub(crate) struct HttpClient {
    upstream: String,
    base: Option<String>,
    clients: Clients,
    options: HttpClientOptions,
    auth: Option<HttpAuth>,
}

pub(crate) struct Request<'a> {
    pub(crate) method: &'a Method,
    pub(crate) to: RequestTarget,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Option<Vec<u8>>,
    pub(crate) content_type: &'static str,
    pub(crate) at: Timestamp,
}

pub(crate) enum RequestTarget {
    /// Path below the base URL.
    Path(String),
    /// Complete URL; `dynamic` if a payload specifies the host.
    Url { url: Url, dynamic: bool },
}

/// Address of a request, and whether the egress rules apply to it.
#[derive(Clone)]
struct Destination {
    url: Url,
    is_guarded: bool,
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
            base(text).map_err(|reason| {
                let url: String = text.chars().take(128).collect();
                Error::new(format!(
                    "invalid base URL {url:?} of upstream {upstream}: {reason}; example: http://127.0.0.1:8081"
                ))
            })
        });
        let url = url.transpose()?;
        // An upstream without TLS must not require the root certificates of the system.
        let is_plaintext = url.as_ref().is_some_and(|url| url.scheme() == "http")
            && options.redirects == 0
            && !matches!(options.auth, Some(HttpAuthConfig::OAuth2(_)));
        let clients = Clients::of_upstream(upstream, &options.tls, !is_plaintext)?;
        let auth = options.auth.clone().map(HttpAuth::new);
        let base = url.map(|url| url.as_str().trim_end_matches('/').to_owned());
        Ok(Self { upstream: upstream.to_owned(), base, clients, options, auth })
    }

    /// Sends a request and returns the response, without the secrets that were sent.
    pub(crate) async fn send(
        &self,
        item: &WorkItem,
        request: Request<'_>,
        mut scrub: SecretScrubber,
    ) -> Result<HttpExchange, ProviderError> {
        let to = self.destination(&request)?;
        let path = match request.to {
            RequestTarget::Path(ref path) => path.clone(),
            RequestTarget::Url { .. } => {
                format!("{}{}", to.url.host_str().unwrap_or_default(), to.url.path())
            }
        };
        let summary =
            RequestSummary { upstream: &self.upstream, method: request.method.as_str(), path: &path };
        match self.authorized(item, &request, to, &mut scrub, summary).await {
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

    fn destination(&self, request: &Request<'_>) -> Result<Destination, ProviderError> {
        match &request.to {
            RequestTarget::Url { url, dynamic } => Ok(Destination { url: url.clone(), is_guarded: *dynamic }),
            RequestTarget::Path(path) => {
                let base = self.base.as_deref().unwrap_or_default();
                let url = Url::parse(&format!("{base}{path}"));
                let invalid =
                    |error| ProviderError::permanent("bad_request", format!("{}: {error}", self.upstream));
                url.map(|url| Destination { url, is_guarded: false }).map_err(invalid)
            }
        }
    }

    /// Sends a request with authorization. A rejected token is fetched again, once.
    async fn authorized(
        &self,
        item: &WorkItem,
        request: &Request<'_>,
        to: Destination,
        scrub: &mut SecretScrubber,
        summary: RequestSummary<'_>,
    ) -> Result<HttpResponse, ProviderError> {
        let pair = self.clients.pair()?;
        let mut headers = context_headers(item, self.options.key_header.clone());
        headers.extend(request.headers.clone());
        let keys = self.options.signing_keys.as_slice();
        if !keys.is_empty() {
            let body = request.body.as_deref().unwrap_or_default();
            headers.extend(auth::webhook_signature(keys, &item.id.to_string(), request.at, body, scrub)?);
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
        to: Destination,
        headers: HeaderMap,
        summary: RequestSummary<'_>,
        pair: &ClientPair,
    ) -> Result<HttpResponse, ProviderError> {
        let Destination { mut url, is_guarded: mut guarded } = to;
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

/// Removes secrets from the message of an error.
pub(crate) fn scrub_error(mut error: ProviderError, scrub: &SecretScrubber) -> ProviderError {
    let message = &mut error.failure_mut().message;
    *message = scrub.scrub_text(std::mem::take(message));
    error
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
    let error = error.without_url();
    let text = egress::causes(&error).map(ToString::to_string).collect::<Vec<_>>().join(": ");
    if ours {
        ProviderError::permanent("bad_request", format!("{summary}: {text}"))
    } else if connecting {
        ProviderError::unavailable("unreachable", format!("{summary}: {text}"))
    } else {
        ProviderError::response_lost("transport", format!("{summary}: {text}"))
    }
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
}
