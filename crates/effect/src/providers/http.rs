//! Effects that are HTTP requests.
//!
//! One provider calls one upstream. Each effect is a method and an address with placeholders. The
//! arguments are the body unless the effect specifies another one. The rules of the effect classify a
//! response, otherwise its status does: 2xx is success; 408, 425, 429, 5xx and transport errors may be
//! retried; everything else is permanent, including redirects. Redirects are not followed by default,
//! because only the configuration decides where a request may go.

mod config;
mod rules;

use std::sync::Arc;

use async_trait::async_trait;
use orlog_model::{Effect, WorkItem};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use reqwest::header::HeaderName;
use reqwest::{Method, Url};
use serde_json::Value;

pub use config::{HttpConfig, HttpEffectConfig, SignatureConfig};
pub(crate) use config::{RequestLimits, lists_hosts};
pub use rules::{HttpResponseRule, StatusRange};

use crate::http::response::RequestSummary;
use crate::http::{HttpClient, Request, RequestTarget, fill_headers};
use crate::operations::Operations;
use crate::policy::Policy;
use crate::provider::{Attempt, Provider, ProviderError, Reply};
use crate::secret::SecretScrubber;
use crate::template::{FillError, JsonTemplate, PathTemplate, PlaceholderScope, TextTemplate};
use crate::upstream::Upstream;

#[derive(Clone, Debug)]
pub(crate) struct HttpOperation {
    pub(crate) method: Method,
    pub(crate) address: UrlTemplate,
    /// Additional headers besides those of every request.
    pub(crate) headers: Vec<(HeaderName, TextTemplate)>,
    pub(crate) body: BodyTemplate,
    pub(crate) responses: Vec<HttpResponseRule>,
}

#[derive(Clone, Debug)]
pub(crate) enum UrlTemplate {
    /// Path below the base URL, for example `/orders/{order.id}/charges`.
    Path(PathTemplate),
    /// Complete URL: scheme and host, then path and query.
    Url {
        /// `https://api.example.com`, with placeholders in the host, or a placeholder of a whole URL.
        origin: TextTemplate,
        /// Path and query; may be empty.
        suffix: PathTemplate,
        /// Whether the payload determines the host.
        dynamic: bool,
    },
}

#[derive(Clone, Debug)]
pub(crate) enum BodyTemplate {
    Nothing,
    Arguments,
    Json(JsonTemplate),
    Text(TextTemplate),
}

/// Provider of the effects of one HTTP upstream.
///
/// Every request has `idempotency-key` (the id of the work item; the header name is configurable),
/// `x-tenant-id` (not for the default tenant), `x-correlation-id` and, if known, `traceparent`. Ids are
/// percent-encoded as CloudEvents requires for HTTP headers: everything except printable ASCII, and
/// spaces, `"` and `%`.
pub struct Http {
    client: HttpClient,
    operations: Operations<HttpOperation>,
}

impl Http {
    /// Creates the upstream of these operations.
    pub(crate) fn upstream(
        client: HttpClient,
        operations: Operations<HttpOperation>,
        policy: Policy,
    ) -> Upstream {
        let (name, effects) = (operations.upstream.clone(), operations.effects());
        Upstream::effects(name, effects, Arc::new(Self { client, operations }), policy)
    }
}

#[async_trait]
impl Provider for Http {
    async fn execute(&self, item: &WorkItem, attempt: Attempt) -> Result<Reply, ProviderError> {
        let (effect, operation) = self.operations.find(item)?;
        let mut scrub = SecretScrubber::default();
        let request = operation.request(item, effect, attempt, &mut scrub)?;
        let exchange = self.client.send(item, request, scrub).await?;
        let summary = RequestSummary {
            upstream: &self.operations.upstream,
            method: operation.method.as_str(),
            path: &exchange.path,
        };
        rules::classify(&operation.responses, summary, &exchange.response)
    }
}

impl HttpOperation {
    fn request(
        &self,
        item: &WorkItem,
        effect: &Effect,
        attempt: Attempt,
        scrub: &mut SecretScrubber,
    ) -> Result<Request<'_>, ProviderError> {
        let scope = PlaceholderScope { item, payload: &effect.payload };
        let unfilled = |label: &str, reason: FillError| reason.into_provider_error(label, &effect.name);
        let to = self.address.fill(scope).map_err(|reason| unfilled("the address", reason))?;
        let headers =
            fill_headers(&self.headers, scope, scrub).map_err(|reason| unfilled("a header", reason))?;
        let (body, content_type) = self.body.fill(scope).map_err(|reason| unfilled("the body", reason))?;
        Ok(Request { method: &self.method, to, headers, body, content_type, at: attempt.at })
    }
}

impl UrlTemplate {
    /// Returns whether a payload determines the host.
    pub(crate) fn is_dynamic(&self) -> bool {
        matches!(self, Self::Url { dynamic: true, .. })
    }

    /// Parses a complete URL. The host is static if the first `/` or `?` after it precedes the first placeholder.
    pub(crate) fn parse_url(text: &str) -> Result<Self, String> {
        let invalid = |reason: String| format!("invalid url: {reason}");
        let template = TextTemplate::parse(text).map_err(invalid)?;
        if template.has_secrets() {
            return Err("a secret is not allowed in a url; send it in a header".to_owned());
        }
        let scheme = ["http://", "https://"].into_iter().find(|scheme| text.starts_with(scheme));
        if scheme.is_none() && !text.starts_with('{') {
            return Err(format!("the url {text:?} must start with http://, https:// or a placeholder"));
        }
        let host = scheme.map_or(0, str::len);
        let mut depth = 0_usize;
        let end = text[host..].find(|c| {
            match c {
                '{' => depth += 1,
                '}' => depth = depth.saturating_sub(1),
                _ => {}
            }
            depth == 0 && matches!(c, '/' | '?' | '\\' | '#')
        });
        let (origin, suffix) = text.split_at(end.map_or(text.len(), |end| host + end));
        let origin = TextTemplate::parse(origin).map_err(invalid)?;
        let suffix = PathTemplate::suffix(suffix).map_err(invalid)?;
        Ok(Self::Url { dynamic: !origin.is_plain(), origin, suffix })
    }

    fn fill(&self, scope: PlaceholderScope<'_>) -> Result<RequestTarget, FillError> {
        match self {
            Self::Path(path) => path.fill(scope).map(RequestTarget::Path),
            Self::Url { origin, suffix, dynamic } => {
                // A placeholder at the start of the URL is not encoded: it contains scheme and host.
                let encode = |index: usize, value: String| match index {
                    0 => value,
                    _ => utf8_percent_encode(&value, NON_ALPHANUMERIC).to_string().replace("%2E", "."),
                };
                let origin = origin.fill(scope, &mut SecretScrubber::default(), encode)?;
                let suffix = suffix.fill(scope)?;
                let url = Url::parse(&format!("{origin}{suffix}"));
                let url = url.map_err(|error| FillError::Payload(error.to_string()))?;
                let invalid = |reason: &str| Err(FillError::Payload(reason.to_owned()));
                if !matches!(url.scheme(), "http" | "https") {
                    return invalid("the scheme is not http or https");
                }
                if !url.username().is_empty() || url.password().is_some() {
                    return invalid("the URL contains a user name or a password");
                }
                Ok(RequestTarget::Url { url, dynamic: *dynamic })
            }
        }
    }
}

impl BodyTemplate {
    fn fill(&self, scope: PlaceholderScope<'_>) -> Result<(Option<Vec<u8>>, &'static str), FillError> {
        let json = |value: &Value| (Some(value.to_string().into_bytes()), "application/json");
        Ok(match self {
            Self::Nothing => (None, ""),
            Self::Arguments => json(scope.payload),
            Self::Json(template) => json(&template.fill(scope)?),
            Self::Text(text) => {
                let filled = text.fill(scope, &mut SecretScrubber::default(), |_, text| text)?;
                (Some(filled.into_bytes()), "text/plain; charset=utf-8")
            }
        })
    }
}
