//! Template of an HTTP request: the method, the address, the headers and the body, with
//! placeholders.

use std::collections::BTreeMap;

use orlog_model::{Timestamp, WorkItem};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use reqwest::header::HeaderName;
use reqwest::{Method, Url};
use serde_json::Value;

use crate::http::{Request, RequestTarget, fill_headers, parse_headers};
use crate::provider::{ProviderError, effect_of};
use crate::secret::SecretScrubber;
use crate::template::{FillError, JsonTemplate, PathTemplate, PlaceholderScope, TextTemplate};

#[derive(Clone, Debug)]
pub(crate) struct RequestTemplate {
    pub(super) method: Method,
    address: UrlTemplate,
    /// Additional headers besides those of every request.
    headers: Vec<(HeaderName, TextTemplate)>,
    body: BodyTemplate,
}

/// Configuration of a request.
pub(super) struct RequestConfig<'a> {
    pub(super) method: &'a str,
    pub(super) path: Option<&'a str>,
    pub(super) url: Option<&'a str>,
    pub(super) headers: &'a BTreeMap<String, String>,
    pub(super) body: Option<&'a Value>,
}

/// Properties of an upstream that decide about the requests of its effects.
#[derive(Clone, Copy)]
pub(crate) struct RequestLimits {
    pub(crate) has_base: bool,
    pub(crate) has_credentials: bool,
    /// Whether the configuration names the hosts that a payload may choose. Hosts of single tenants
    /// do not suffice: without `allow`, other tenants may choose any host.
    pub(crate) lists_hosts: bool,
}

#[derive(Clone, Debug)]
enum UrlTemplate {
    /// Path below the base URL, for example `/orders/{order.id}/charges`.
    Path(PathTemplate),
    /// Complete URL: scheme and host, then path and query.
    Url {
        /// `https://api.example.com`, with placeholders in the host, or a placeholder of a whole
        /// URL.
        origin: TextTemplate,
        /// Path and query; may be empty.
        suffix: PathTemplate,
        /// Whether the payload determines the host.
        dynamic: bool,
    },
}

#[derive(Clone, Debug)]
enum BodyTemplate {
    Nothing,
    Arguments,
    Json(JsonTemplate),
    Text(TextTemplate),
}

impl RequestTemplate {
    /// Compiles the configuration of a request.
    pub(super) fn compile(
        config: &RequestConfig<'_>,
        limits: RequestLimits,
    ) -> Result<Self, String> {
        let method: Method = config
            .method
            .parse()
            .map_err(|_| format!("invalid method {:?}; example: POST", config.method))?;

        let address = match (config.path, config.url) {
            (Some(_), None) if !limits.has_base => {
                return Err("a path requires a base_url of the upstream".to_owned());
            }
            (Some(path), None) => UrlTemplate::Path(PathTemplate::parse(path)?),
            (None, Some(url)) => UrlTemplate::parse_url(url)?,
            (Some(_), Some(_)) => {
                return Err("path and url are mutually exclusive; remove one".to_owned());
            }
            (None, None) => return Err("path or url is required".to_owned()),
        };

        let headers = parse_headers(config.headers)?;
        let has_credentials =
            limits.has_credentials || headers.iter().any(|(_, value)| value.has_secrets());
        // A payload must not be able to send the credentials of the upstream to a host of its
        // choice.
        if address.is_dynamic() && !limits.lists_hosts && has_credentials {
            return Err(
                "the payload determines the host of the url, and the request has credentials \
                (auth, tls.cert or a secret in a header); list the hosts that may receive them in \
                egress.allow"
                    .to_owned(),
            );
        }

        let body = BodyTemplate::parse(config.body, &method)
            .map_err(|reason| format!("invalid body: {reason}"))?;

        Ok(Self {
            method,
            address,
            headers,
            body,
        })
    }

    /// Fills the template for a work item.
    pub(super) fn fill(
        &self,
        item: &WorkItem,
        at: Timestamp,
        scrub: &mut SecretScrubber,
    ) -> Result<Request<'_>, ProviderError> {
        let effect = effect_of(item)?;
        let scope = PlaceholderScope {
            item,
            payload: &effect.payload,
        };

        let unfilled =
            |label: &str, reason: FillError| reason.into_provider_error(label, &effect.name);
        let to = self
            .address
            .fill(scope)
            .map_err(|reason| unfilled("the address", reason))?;

        let headers = fill_headers(&self.headers, scope, scrub)
            .map_err(|reason| unfilled("a header", reason))?;
        let (body, content_type) = self
            .body
            .fill(scope)
            .map_err(|reason| unfilled("the body", reason))?;

        Ok(Request {
            method: &self.method,
            to,
            headers,
            body,
            content_type,
            at,
            is_probe: false,
        })
    }
}

impl UrlTemplate {
    /// Returns whether a payload determines the host.
    fn is_dynamic(&self) -> bool {
        matches!(self, Self::Url { dynamic: true, .. })
    }

    /// Parses a complete URL. The host is static if the first `/` or `?` after it precedes the
    /// first placeholder.
    fn parse_url(text: &str) -> Result<Self, String> {
        let invalid = |reason: String| format!("invalid url: {reason}");
        let template = TextTemplate::parse(text).map_err(invalid)?;
        // Messages about a request contain its address.
        if template.has_secrets() {
            return Err("a secret is not allowed in a url; send it in a header".to_owned());
        }

        let scheme = ["http://", "https://"]
            .into_iter()
            .find(|scheme| text.starts_with(scheme));
        if scheme.is_none() && !text.starts_with('{') {
            return Err(format!(
                "the url {text:?} must start with http://, https:// or a placeholder"
            ));
        }

        // The `?` of an optional placeholder, `{host?}`, does not end the host.
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

        Ok(Self::Url {
            dynamic: !origin.is_plain(),
            origin,
            suffix,
        })
    }

    fn fill(&self, scope: PlaceholderScope<'_>) -> Result<RequestTarget, FillError> {
        match self {
            Self::Path(path) => path.fill(scope).map(RequestTarget::Path),
            Self::Url {
                origin,
                suffix,
                dynamic,
            } => {
                // A placeholder at the start of the URL is not encoded: it contains scheme and
                // host.
                let encode = |index: usize, value: String| match index {
                    0 => value,
                    _ => utf8_percent_encode(&value, NON_ALPHANUMERIC)
                        .to_string()
                        .replace("%2E", "."),
                };

                let origin = origin.fill(scope, &mut SecretScrubber::default(), encode)?;
                let suffix = suffix.fill(scope)?;
                let url = Url::parse(&format!("{origin}{suffix}"));
                let url = url.map_err(|error| FillError::Payload(error.to_string()))?;

                // The values determine the address, so it is checked again when it is complete.
                let invalid = |reason: &str| Err(FillError::Payload(reason.to_owned()));
                if !matches!(url.scheme(), "http" | "https") {
                    return invalid("the scheme is not http or https");
                }
                if !url.username().is_empty() || url.password().is_some() {
                    return invalid("the URL contains a user name or a password");
                }

                Ok(RequestTarget::Url {
                    url,
                    dynamic: *dynamic,
                })
            }
        }
    }
}

impl BodyTemplate {
    fn parse(config: Option<&Value>, method: &Method) -> Result<Self, String> {
        Ok(match config {
            None if [Method::POST, Method::PUT, Method::PATCH].contains(method) => Self::Arguments,
            None | Some(Value::Bool(false)) => Self::Nothing,
            Some(Value::Bool(true)) => Self::Arguments,
            Some(Value::String(text)) => {
                let text = TextTemplate::parse(text)?;
                if text.has_secrets() {
                    return Err("a secret is not allowed in a body; send it in a header".to_owned());
                }
                Self::Text(text)
            }
            Some(json) => Self::Json(JsonTemplate::parse(json)?),
        })
    }

    fn fill(
        &self,
        scope: PlaceholderScope<'_>,
    ) -> Result<(Option<Vec<u8>>, &'static str), FillError> {
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
