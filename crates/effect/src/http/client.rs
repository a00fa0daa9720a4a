//! HTTP client of a provider; holds the connections.

use bytes::Bytes;
use orlog_model::{Timestamp, WorkItem};
use reqwest::header::{AUTHORIZATION, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue, LOCATION};
use reqwest::{Client, Method, Response, StatusCode, Url};

use super::auth::{self, HttpAuth, HttpAuthConfig};
use super::headers::{IDEMPOTENCY_KEY, context_headers};
use super::response::{self, HttpResponse, MAX_BODY, RequestSummary, ResponseBody};
use super::tls::{ClientPair, Clients, TlsConfig};
use crate::config::Error;
use crate::decisions::{Connection, decide_connection};
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
    /// Whether it asks about an earlier attempt, so that it has no idempotency key.
    pub(crate) is_probe: bool,
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

/// Request with all its headers.
#[derive(Clone)]
struct Call {
    method: Method,
    to: Destination,
    headers: HeaderMap,
    body: Option<Bytes>,
    /// Type of the body, unless a header specifies it.
    content_type: &'static str,
    is_probe: bool,
}

impl Call {
    /// Returns the request without its headers, except for the type of its body.
    fn without_headers(&self) -> Self {
        let content_type = self
            .headers
            .get(CONTENT_TYPE)
            .filter(|_| self.body.is_some());
        let headers = content_type.map(|value| (CONTENT_TYPE, value.clone()));
        Self {
            headers: headers.into_iter().collect(),
            ..self.clone()
        }
    }

    fn into_request(self) -> reqwest::Request {
        let mut request = reqwest::Request::new(self.method, self.to.url);
        *request.headers_mut() = self.headers;
        if let Some(body) = self.body {
            let content_type = HeaderValue::from_static(self.content_type);
            request
                .headers_mut()
                .entry(CONTENT_TYPE)
                .or_insert(content_type);
            *request.body_mut() = Some(body.into());
        }
        request
    }
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
                    "invalid base URL {url:?} of upstream {upstream}: {reason}; example: \
                    http://127.0.0.1:8081"
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

        Ok(Self {
            upstream: upstream.to_owned(),
            base,
            clients,
            options,
            auth,
        })
    }

    /// Sends a request and returns the response, without the secrets that were sent.
    pub(crate) async fn send(
        &self,
        item: &WorkItem,
        request: Request<'_>,
        mut scrub: SecretScrubber,
    ) -> Result<HttpExchange, ProviderError> {
        let Request {
            method,
            to,
            headers,
            body,
            content_type,
            at,
            is_probe,
        } = request;
        let (to, path) = self.destination(to)?;

        let summary = RequestSummary {
            upstream: &self.upstream,
            method: method.as_str(),
            path: &path,
        };

        let method = method.clone();
        let body = body.map(Bytes::from);
        let call = Call {
            method,
            to,
            headers,
            body,
            content_type,
            is_probe,
        };

        // A response can repeat what was sent, for example on an error page.
        match self.authorized(item, call, at, &mut scrub, summary).await {
            Ok(response) if scrub.is_empty() => Ok(HttpExchange { response, path }),
            Ok(mut response) => {
                response.body.bytes = scrub.scrub_bytes(response.body.bytes);
                for value in response.headers.values_mut() {
                    if let Some(clean) = value
                        .to_str()
                        .ok()
                        .map(|text| scrub.scrub_text(text.to_owned()))
                    {
                        *value = HeaderValue::try_from(clean)
                            .expect("a valid value without secrets is still valid");
                    }
                }
                Ok(HttpExchange { response, path })
            }
            Err(error) => Err(scrub_error(error, &scrub)),
        }
    }

    /// Returns the address of a request, and its path for messages.
    fn destination(&self, to: RequestTarget) -> Result<(Destination, String), ProviderError> {
        match to {
            RequestTarget::Url { url, dynamic } => {
                let path = format!("{}{}", url.host_str().unwrap_or_default(), url.path());
                Ok((
                    Destination {
                        url,
                        is_guarded: dynamic,
                    },
                    path,
                ))
            }
            RequestTarget::Path(path) => {
                let base = self.base.as_deref().unwrap_or_default();
                let url = Url::parse(&format!("{base}{path}"));
                Ok((
                    Destination {
                        url: url.map_err(|error| {
                            ProviderError::permanent(
                                "bad_request",
                                format!("{}: {error}", self.upstream),
                            )
                        })?,
                        is_guarded: false,
                    },
                    path,
                ))
            }
        }
    }

    /// Sends a request with authorization. A rejected token is fetched again, once.
    async fn authorized(
        &self,
        item: &WorkItem,
        mut call: Call,
        at: Timestamp,
        scrub: &mut SecretScrubber,
        summary: RequestSummary<'_>,
    ) -> Result<HttpResponse, ProviderError> {
        let pair = self.clients.pair()?;
        let mut headers = context_headers(item, self.options.key_header.clone());
        // A probe is a read. An upstream that stores responses by key would repeat the response of
        // the attempt.
        if call.is_probe {
            headers.remove(&self.options.key_header);
        }

        headers.extend(call.headers);

        // The signature covers the body and the id, so each attempt has its own: receivers
        // reject an old time.
        let keys = self.options.signing_keys.as_slice();
        if !keys.is_empty() {
            let body = call.body.as_deref().unwrap_or_default();
            headers.extend(auth::webhook_signature(
                keys,
                &item.id.to_string(),
                at,
                body,
                scrub,
            )?);
        }
        call.headers = headers;

        let Some(auth) = &self.auth else {
            return self.follow(item, call, summary, &pair).await;
        };

        let mut value = auth.header_value(&pair.open, at, scrub).await?;
        call.headers
            .insert(AUTHORIZATION, auth::sensitive_header(&value)?);

        let response = self.follow(item, call.clone(), summary, &pair).await?;

        // A token can be revoked before it expires.
        if response.status != StatusCode::UNAUTHORIZED || !auth.invalidate(&value).await {
            return Ok(response);
        }

        value = auth.header_value(&pair.open, at, scrub).await?;
        call.headers
            .insert(AUTHORIZATION, auth::sensitive_header(&value)?);
        self.follow(item, call, summary, &pair).await
    }

    /// Sends the request and follows redirects up to the limit. A request that writes was executed
    /// if its answer is 303: it is in doubt if its result cannot be read then.
    async fn follow(
        &self,
        item: &WorkItem,
        call: Call,
        summary: RequestSummary<'_>,
        pair: &ClientPair,
    ) -> Result<HttpResponse, ProviderError> {
        let mut was_executed = false;
        match self
            .send_and_follow(item, call, summary, pair, &mut was_executed)
            .await
        {
            Ok(response) if was_executed && !response.status.is_success() => {
                let code = format!("http_{}", response.status.as_u16());
                Err(ProviderError::response_lost(
                    code,
                    response::message(summary, &response),
                ))
            }
            Err(error) if was_executed => {
                let failure = error.failure().clone();
                Err(ProviderError::response_lost(failure.code, failure.message))
            }
            result => result,
        }
    }

    /// Configured credentials, headers and signatures are sent only to the original origin. If a
    /// payload determines it and the request has credentials, the configuration lists its host
    /// (`HttpConfig`), which the egress rules check.
    async fn send_and_follow(
        &self,
        item: &WorkItem,
        mut call: Call,
        summary: RequestSummary<'_>,
        pair: &ClientPair,
        was_executed: &mut bool,
    ) -> Result<HttpResponse, ProviderError> {
        let mut remaining = self.options.redirects;

        // Without redirects, the request is sent once and need not be copied.
        if remaining == 0 {
            let client = self.client(item, &call.to, pair, summary)?;
            let sent = client.execute(call.into_request()).await;
            return self
                .read_response(sent.map_err(|error| transport(summary, error))?, summary)
                .await;
        }
        let origin = call.to.url.origin();

        loop {
            // The certificate of the client is a credential too.
            let is_original = call.to.url.origin() == origin;
            let pair = if is_original {
                pair
            } else {
                pair.without_identity()
            };
            let client = self.client(item, &call.to, pair, summary)?;

            let request = if is_original {
                call.clone()
            } else {
                call.without_headers()
            };

            let sent = client.execute(request.into_request()).await;
            let response = sent.map_err(|error| match transport(summary, error) {
                // The request before the redirect may have been executed.
                ProviderError::Transient {
                    failure,
                    retry_after,
                    payload,
                    ..
                } if remaining < self.options.redirects => {
                    let trouble = TransientCause::ResponseLost;
                    ProviderError::Transient {
                        failure,
                        trouble,
                        retry_after,
                        payload,
                    }
                }
                error => error,
            })?;

            let next = redirect(&response, &call.method, &call.to.url).filter(|_| remaining > 0);
            let Some((url, method)) = next else {
                return self.read_response(response, summary).await;
            };
            remaining -= 1;

            let is_guarded = call.to.is_guarded || url.origin() != origin;
            if method != call.method {
                // The other method only reads the result of the one that was executed.
                *was_executed = true;
                call.body = None;
            }
            call.to = Destination { url, is_guarded };
            call.method = method;
        }
    }

    /// Returns the client for an address that the egress rules allow.
    fn client<'a>(
        &self,
        item: &WorkItem,
        to: &Destination,
        pair: &'a ClientPair,
        summary: RequestSummary<'_>,
    ) -> Result<&'a Client, ProviderError> {
        // A configured address is trusted.
        if !to.is_guarded {
            return Ok(&pair.open);
        }

        let egress = &self.options.egress;
        egress
            .check(&item.instance.tenant, &to.url)
            .map_err(|denied| forbidden(summary, &denied))?;
        Ok(if egress.private {
            &pair.open
        } else {
            &pair.guarded
        })
    }

    async fn read_response(
        &self,
        mut response: Response,
        summary: RequestSummary<'_>,
    ) -> Result<HttpResponse, ProviderError> {
        let status = response.status();
        let headers = std::mem::take(response.headers_mut());
        let body = ResponseBody::read(response, self.options.max_response)
            .await
            .map_err(|error| transport(summary, error))?;
        Ok(HttpResponse {
            status,
            headers,
            body,
        })
    }
}

/// Returns the target and method of a redirect; `None` if there is none or if it may not be
/// followed. A request with a body is repeated only if the status permits it, and never over plain
/// HTTP after TLS.
fn redirect(response: &Response, method: &Method, from: &Url) -> Option<(Url, Method)> {
    let is_read = [Method::GET, Method::HEAD].contains(method);
    let method = match response.status().as_u16() {
        307 | 308 => method.clone(),
        301 | 302 if is_read => method.clone(),
        303 if *method == Method::HEAD => Method::HEAD,
        303 => Method::GET,
        _ => return None,
    };

    let to = from
        .join(response.headers().get(LOCATION)?.to_str().ok()?)
        .ok()?;

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

    // The summary names the address already.
    let connecting = error.is_connect();
    let ours = error.is_builder();
    let error = error.without_url();
    let text = egress::causes(&error)
        .map(ToString::to_string)
        .collect::<Vec<_>>()
        .join(": ");

    if ours {
        // The client itself rejected the request: a retry has the same result.
        return ProviderError::permanent("bad_request", format!("{summary}: {text}"));
    }

    let message = format!("{summary}: {text}");
    if connecting {
        let decision = decide_connection(Connection::NotEstablished);
        ProviderError::decided(decision, "unreachable", message)
    } else {
        ProviderError::decided(decide_connection(Connection::Lost), "transport", message)
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
            assert!(
                error.contains(reason) && error.contains("payments"),
                "{error}"
            );
        }
    }
}
