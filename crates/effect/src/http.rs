//! Effects that are HTTP requests.
//!
//! One provider speaks to one upstream. Each effect is a method and an address with placeholders; the arguments are the body
//! unless the effect says otherwise. What a response means is said by the effect's rules, else by its status: 2xx is done;
//! 408, 425, 429, 5xx and transport faults may be tried again; everything else is final, redirects too: unless the
//! configuration allows it they are not followed, because where a request with money in it goes is its decision.

mod auth;
mod client;
pub(crate) mod response;
mod rules;
mod template;
mod tls;

use std::collections::BTreeMap;

use async_trait::async_trait;
use orlog_model::{Effect, EffectName, Work, WorkItem};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use reqwest::Url;
use reqwest::header::{HeaderMap, HeaderName, HeaderValue};
use serde_json::Value;

pub(crate) use auth::{Auth, sensitive};
pub use auth::{AuthConfig, BasicConfig, OAuth2Config, SignatureConfig};
pub use client::Error;
pub(crate) use client::{IDEMPOTENCY_KEY, identity, scrubbed};
pub(crate) use client::{Manner, Request, Speaker, To, is_reserved};
pub use reqwest::Method;
pub use rules::{ResponseConfig, Statuses};
pub use template::{Template, TemplateError};
pub(crate) use tls::{Certificates, Clients};
pub use tls::{Tls, client};

use crate::placeholders::{Json, Scope, Text, Unfilled};
use crate::provider::{Attempt, Provider, Refusal, Reply};
use crate::secret::Scrub;
use response::Asked;
pub(crate) use response::Body as ReadBody;

/// What one effect asks of the upstream.
#[derive(Clone, Debug)]
pub(crate) struct Operation {
    pub(crate) method: Method,
    pub(crate) address: Address,
    /// Headers besides those that every request has.
    pub(crate) headers: Vec<(HeaderName, Text)>,
    pub(crate) body: Body,
    pub(crate) responses: Vec<ResponseConfig>,
}

/// Where an effect's request goes.
#[derive(Clone, Debug)]
pub(crate) enum Address {
    /// Below the base URL, for example `/orders/{order.id}/charges`.
    Path(Template),
    /// Anywhere; `dynamic` when a placeholder stands in the host.
    Url { text: Text, dynamic: bool },
}

/// What an effect's request carries.
#[derive(Clone, Debug)]
pub(crate) enum Body {
    Nothing,
    Arguments,
    Json(Json),
    Text(Text),
}

/// The effects of one HTTP upstream.
///
/// Every request carries `idempotency-key` (the work item's id; the header's name can be configured), `x-tenant-id` (not
/// for the default tenant), `x-correlation-id` and, where known, `traceparent`. Ids are percent-encoded as CloudEvents
/// does in HTTP headers: whatever is no printable ASCII, spaces, `"` and `%`.
pub struct Http {
    speaker: Speaker,
    operations: BTreeMap<EffectName, Operation>,
}

impl Http {
    pub(crate) fn new(speaker: Speaker, operations: BTreeMap<EffectName, Operation>) -> Self {
        Self { speaker, operations }
    }

    /// The effects it performs, in the order of their names.
    #[must_use]
    pub fn effects(&self) -> Vec<EffectName> {
        self.operations.keys().cloned().collect()
    }
}

#[async_trait]
impl Provider for Http {
    async fn perform(&self, item: &WorkItem, attempt: Attempt) -> Result<Reply, Refusal> {
        let Work::Effect(effect) = &item.work else {
            return Err(Refusal::failed("not_an_effect", format!("{} is no effect", item.work.label())));
        };
        let Some(operation) = self.operations.get(&effect.name) else {
            let message = format!("{} has no operation for {}", self.speaker.upstream(), effect.name);
            return Err(Refusal::failed("effect_unknown", message));
        };
        let mut scrub = Scrub::default();
        let request = operation.request(item, effect, attempt, &mut scrub)?;
        let heard = self.speaker.send(item, request, scrub).await?;
        let asked =
            Asked { upstream: self.speaker.upstream(), method: operation.method.as_str(), path: &heard.path };
        rules::judge(&operation.responses, asked, &heard.answered)
    }
}

impl Operation {
    fn request(
        &self,
        item: &WorkItem,
        effect: &Effect,
        attempt: Attempt,
        scrub: &mut Scrub,
    ) -> Result<Request<'_>, Refusal> {
        let scope = Scope { item, payload: &effect.payload };
        let unfilled = |what: &str, why: Unfilled| why.refusal(what, &effect.name);
        let to = self.address.fill(scope).map_err(|why| unfilled("the address", why))?;
        let headers = fill_headers(&self.headers, scope, scrub).map_err(|why| unfilled("a header", why))?;
        let (body, content_type) = self.body.fill(scope).map_err(|why| unfilled("the body", why))?;
        Ok(Request { method: &self.method, to, headers, body, content_type, at: attempt.at })
    }
}

/// The headers that a configuration adds.
pub(crate) fn fill_headers(
    texts: &[(HeaderName, Text)],
    scope: Scope<'_>,
    scrub: &mut Scrub,
) -> Result<HeaderMap, Unfilled> {
    let mut headers = HeaderMap::with_capacity(texts.len());
    for (name, text) in texts {
        let value = text.fill(scope, scrub, |_, text| text)?;
        let mut value = HeaderValue::try_from(value)
            .map_err(|_| Unfilled::Payload(format!("the value of {name} holds a line break")))?;
        value.set_sensitive(text.has_secrets());
        headers.insert(name.clone(), value);
    }
    Ok(headers)
}

impl Address {
    fn fill(&self, scope: Scope<'_>) -> Result<To, Unfilled> {
        match self {
            Self::Path(path) => {
                let filled = path.fill(|name| scope.find(name));
                filled.map(To::Path).map_err(|error| Unfilled::Payload(error.to_string()))
            }
            Self::Url { text, dynamic } => {
                // A placeholder that begins the URL is taken as it is: it brings scheme and host.
                let encode = |index: usize, value: String| match index {
                    0 => value,
                    _ => utf8_percent_encode(&value, NON_ALPHANUMERIC).to_string().replace("%2E", "."),
                };
                let filled = text.fill(scope, &mut Scrub::default(), encode)?;
                let url = Url::parse(&filled).map_err(|error| Unfilled::Payload(error.to_string()))?;
                let wrong = |why: &str| Err(Unfilled::Payload(why.to_owned()));
                if !matches!(url.scheme(), "http" | "https") {
                    return wrong("the scheme is neither http nor https");
                }
                if !url.username().is_empty() || url.password().is_some() {
                    return wrong("the URL holds a user name or a password");
                }
                Ok(To::Url { url, dynamic: *dynamic })
            }
        }
    }
}

impl Body {
    fn fill(&self, scope: Scope<'_>) -> Result<(Option<Vec<u8>>, &'static str), Unfilled> {
        let json = |value: &Value| (Some(value.to_string().into_bytes()), "application/json");
        Ok(match self {
            Self::Nothing => (None, ""),
            Self::Arguments => json(scope.payload),
            Self::Json(template) => json(&template.fill(scope)?),
            Self::Text(text) => {
                let filled = text.fill(scope, &mut Scrub::default(), |_, text| text)?;
                (Some(filled.into_bytes()), "text/plain; charset=utf-8")
            }
        })
    }
}

/// Whether a text is a secret's reference written where a placeholder should stand.
pub(crate) fn is_bare_reference(text: &str) -> bool {
    text.parse::<crate::secret::SecretRef>().is_ok()
}
