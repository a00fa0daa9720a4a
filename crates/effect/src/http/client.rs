//! The part of an HTTP provider that holds the connections.

use orlog_model::{Failure, Timestamp, WorkItem};
use percent_encoding::{AsciiSet, CONTROLS, utf8_percent_encode};
use reqwest::header::{AUTHORIZATION, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue, LOCATION};
use reqwest::{Method, Response, StatusCode, Url};

use super::auth::{self, Auth, AuthConfig, SignatureConfig};
use super::response::{Answered, Asked, Body, MAX_BODY};
use super::tls::{Clients, Pair, Tls};
use crate::egress::{self, Egress};
use crate::provider::{Refusal, Trouble};
use crate::secret::Scrub;

/// The encoding of CloudEvents for HTTP header values.
const UNFIT_FOR_HEADERS: &AsciiSet = &CONTROLS.add(b' ').add(b'"').add(b'%');

pub(crate) const IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");
const TENANT: HeaderName = HeaderName::from_static("x-tenant-id");
const CORRELATION: HeaderName = HeaderName::from_static("x-correlation-id");
const TRACE: HeaderName = HeaderName::from_static("traceparent");
const BAGGAGE: HeaderName = HeaderName::from_static("baggage");

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

/// How an upstream is spoken to, besides its address.
#[derive(Clone, Debug)]
pub(crate) struct Manner {
    pub(crate) tls: Tls,
    pub(crate) egress: Egress,
    /// How many redirects are followed.
    pub(crate) redirects: u8,
    /// The most that is read of a body, in bytes.
    pub(crate) max_response: usize,
    /// The header with the idempotency key.
    pub(crate) key_header: HeaderName,
    pub(crate) auth: Option<AuthConfig>,
    pub(crate) signature: Option<SignatureConfig>,
}

impl Default for Manner {
    fn default() -> Self {
        Self {
            tls: Tls::default(),
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
pub(crate) struct Speaker {
    upstream: String,
    base: Option<String>,
    clients: Clients,
    manner: Manner,
    auth: Option<Auth>,
}

/// One request.
pub(crate) struct Request<'a> {
    pub(crate) method: &'a Method,
    pub(crate) to: To,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Option<Vec<u8>>,
    pub(crate) content_type: &'static str,
    /// When the attempt began.
    pub(crate) at: Timestamp,
}

/// Where a request goes.
pub(crate) enum To {
    /// A path below the base URL.
    Path(String),
    /// Anywhere; `dynamic` when a payload names the host.
    Url { url: Url, dynamic: bool },
}

/// A response, and to what.
pub(crate) struct Heard {
    pub(crate) answered: Answered,
    pub(crate) path: String,
}

impl Speaker {
    /// Without a base URL requests go where their own URLs say.
    pub(crate) fn new(upstream: &str, base_url: Option<&str>, manner: Manner) -> Result<Self, Error> {
        let url = base_url.map(|text| {
            base(text).map_err(|reason| Error::BaseUrl {
                upstream: upstream.to_owned(),
                url: text.chars().take(128).collect(),
                reason,
            })
        });
        let url = url.transpose()?;
        // A plain upstream must not need the system's root certificates.
        let plain = url.as_ref().is_some_and(|url| url.scheme() == "http")
            && manner.redirects == 0
            && !matches!(manner.auth, Some(AuthConfig::OAuth2(_)));
        let tls = |source| Error::Tls { upstream: upstream.to_owned(), source };
        let clients = Clients::new(manner.tls.clone(), !plain).map_err(tls)?;
        let auth = manner.auth.clone().map(Auth::new);
        let base = url.map(|url| url.as_str().trim_end_matches('/').to_owned());
        Ok(Self { upstream: upstream.to_owned(), base, clients, manner, auth })
    }

    pub(crate) fn upstream(&self) -> &str {
        &self.upstream
    }

    /// Sends a request and hears the answer, cleared of the secrets that were sent.
    pub(crate) async fn send(
        &self,
        item: &WorkItem,
        request: Request<'_>,
        mut scrub: Scrub,
    ) -> Result<Heard, Refusal> {
        let (url, dynamic) = self.target(&request)?;
        let path = match request.to {
            To::Path(ref path) => path.clone(),
            To::Url { .. } => format!("{}{}", url.host_str().unwrap_or_default(), url.path()),
        };
        let asked = Asked { upstream: &self.upstream, method: request.method.as_str(), path: &path };
        let answered = self.authorized(item, &request, (url, dynamic), &mut scrub, asked).await;
        match answered {
            Ok(mut answered) => {
                answered.body.bytes = scrub.bytes(answered.body.bytes);
                for value in answered.headers.values_mut() {
                    if let Some(clean) = value.to_str().ok().map(|text| scrub.text(text.to_owned())) {
                        *value = HeaderValue::try_from(clean).expect("what it was, without secrets");
                    }
                }
                Ok(Heard { answered, path })
            }
            Err(refusal) => Err(scrubbed(refusal, &scrub)),
        }
    }

    fn target(&self, request: &Request<'_>) -> Result<(Url, bool), Refusal> {
        match &request.to {
            To::Url { url, dynamic } => Ok((url.clone(), *dynamic)),
            To::Path(path) => {
                let base = self.base.as_deref().unwrap_or_default();
                let url = Url::parse(&format!("{base}{path}"));
                let wrong = |error| Refusal::failed("bad_request", format!("{}: {error}", self.upstream));
                url.map(|url| (url, false)).map_err(wrong)
            }
        }
    }

    /// A token that is refused is fetched anew, once.
    async fn authorized(
        &self,
        item: &WorkItem,
        request: &Request<'_>,
        to: (Url, bool),
        scrub: &mut Scrub,
        asked: Asked<'_>,
    ) -> Result<Answered, Refusal> {
        let pair = self.clients.pair()?;
        let mut headers = identity(item, self.manner.key_header.clone());
        headers.extend(request.headers.clone());
        if let Some(config) = &self.manner.signature {
            let body = request.body.as_deref().unwrap_or_default();
            headers.extend(auth::signature(config, &item.id.to_string(), request.at, body, scrub)?);
        }
        let Some(auth) = &self.auth else {
            return self.follow(item, request, to, headers, asked, &pair).await;
        };
        let mut value = auth.value(&pair.open, request.at, scrub).await?;
        headers.insert(AUTHORIZATION, auth::sensitive(&value)?);
        let answered = self.follow(item, request, to.clone(), headers.clone(), asked, &pair).await?;
        if answered.status != StatusCode::UNAUTHORIZED || !auth.refused(&value).await {
            return Ok(answered);
        }
        value = auth.value(&pair.open, request.at, scrub).await?;
        headers.insert(AUTHORIZATION, auth::sensitive(&value)?);
        self.follow(item, request, to, headers, asked, &pair).await
    }

    /// Sends it, and again where a redirect leads, as often as is allowed. What the configuration adds (credentials,
    /// headers, signature) stays with the origin it was meant for.
    async fn follow(
        &self,
        item: &WorkItem,
        request: &Request<'_>,
        (mut url, mut guarded): (Url, bool),
        headers: HeaderMap,
        asked: Asked<'_>,
        pair: &Pair,
    ) -> Result<Answered, Refusal> {
        let (origin, mut method) = (url.origin(), request.method.clone());
        let mut body = request.body.clone();
        let mut left = self.manner.redirects;
        loop {
            if guarded {
                self.manner.egress.check(&item.instance.tenant, &url).map_err(|e| forbidden(asked, &e))?;
            }
            let client = if guarded && !self.manner.egress.private { &pair.guarded } else { &pair.open };
            let mut call = client.request(method.clone(), url.clone());
            if url.origin() == origin {
                call = call.headers(headers.clone());
            }
            if let Some(body) = &body {
                let typed = headers.get(CONTENT_TYPE).cloned();
                let typed = typed.unwrap_or(HeaderValue::from_static(request.content_type));
                call = call.header(CONTENT_TYPE, typed).body(body.clone());
            }
            let response = call.send().await.map_err(|error| match transport(asked, error) {
                // What led here may have done it.
                Refusal::Transient { failure, retry_after, .. } if left < self.manner.redirects => {
                    Refusal::Transient { failure, trouble: Trouble::Lost, retry_after }
                }
                refusal => refusal,
            })?;
            let next = redirect(&response, &method, &url).filter(|_| left > 0);
            let Some((to, with)) = next else { return self.heard(response, asked).await };
            left -= 1;
            guarded |= to.origin() != origin;
            if with != method {
                body = None;
            }
            (url, method) = (to, with);
        }
    }

    async fn heard(&self, response: Response, asked: Asked<'_>) -> Result<Answered, Refusal> {
        let (status, headers) = (response.status(), response.headers().clone());
        let body =
            Body::read(response, self.manner.max_response).await.map_err(|error| transport(asked, error))?;
        Ok(Answered { status, headers, body })
    }
}

/// The headers that say on whose behalf a request is made.
pub(crate) fn identity(item: &WorkItem, key_header: HeaderName) -> HeaderMap {
    let mut headers = HeaderMap::with_capacity(5);
    headers.insert(key_header, header(&item.id.to_string()));
    if !item.instance.tenant.as_str().is_empty() {
        headers.insert(TENANT, header(item.instance.tenant.as_str()));
    }
    headers.insert(CORRELATION, header(item.instance.correlation.as_str()));
    if let Some(trace) = &item.trace {
        headers.insert(TRACE, header(trace.as_str()));
    }
    // Escaped by rules of its own, which leave nothing that a header cannot hold.
    let baggage = orlog_model::trace::baggage(&item.instance);
    if let Some(value) = baggage.and_then(|text| HeaderValue::try_from(text).ok()) {
        headers.insert(BAGGAGE, value);
    }
    headers
}

/// Where a redirect leads and with which method; `None` where it is none, or none that may be followed: a request with a
/// body is not sent again unless the status says so, and never over plain HTTP where it went over TLS.
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

fn forbidden(asked: Asked<'_>, refused: &egress::Refused) -> Refusal {
    Refusal::failed("egress_refused", format!("{asked}: {refused}"))
}

pub(crate) fn scrubbed(refusal: Refusal, scrub: &Scrub) -> Refusal {
    let clean = |failure: Failure| Failure { message: scrub.text(failure.message), ..failure };
    match refusal {
        Refusal::Final { failure, event, payload, facts } => {
            Refusal::Final { failure: clean(failure), event, payload, facts }
        }
        Refusal::GaveUp { failure } => Refusal::GaveUp { failure: clean(failure) },
        Refusal::Transient { failure, trouble, retry_after } => {
            Refusal::Transient { failure: clean(failure), trouble, retry_after }
        }
    }
}

/// Whether a header is one that every request has, or one that belongs to the protocol.
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

/// A fault on the way. Where no connection came about nothing was done; otherwise nobody knows.
fn transport(asked: Asked<'_>, error: reqwest::Error) -> Refusal {
    if let Some(refused) = egress::refusal(&error) {
        return forbidden(asked, refused);
    }
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
            let error = Speaker::new("payments", Some(bad), Manner::default()).err().unwrap().to_string();
            assert!(error.contains(reason) && error.contains("payments"), "{error}");
        }
    }

    #[test]
    fn ids_travel_percent_encoded() {
        assert_eq!(header("o 1 ü%").to_str().unwrap(), "o%201%20%C3%BC%25");
    }
}
