//! Effects that are HTTP requests.
//!
//! One provider speaks to one upstream. Each effect is a method and a path with placeholders; the arguments are the body.
//! 2xx is done; 408, 425, 429, 5xx and transport faults may be tried again; everything else is final, redirects too:
//! they are not followed, because where a request with money in it goes is the configuration's decision.

mod answer;
mod client;
mod template;

use std::collections::BTreeMap;

use async_trait::async_trait;
use orlog_model::{EffectName, Work, WorkItem};
use reqwest::header::HeaderMap;

pub use client::{Error, client};
pub(crate) use client::{Request, Speaker, is_reserved};
pub use reqwest::Method;
pub use template::{Template, TemplateError};

use crate::provider::{Attempt, Provider, Refusal, Reply};

/// What one effect asks of the upstream.
#[derive(Clone, Debug)]
pub struct Operation {
    /// The method.
    pub method: Method,
    /// The path after the base URL, for example `/orders/{order.id}/charges`.
    pub path: Template,
    /// Headers besides those that every request has.
    pub headers: HeaderMap,
    /// Whether the arguments are sent as the body; `None`: with POST, PUT and PATCH.
    pub body: Option<bool>,
}

impl Operation {
    /// A request without headers of its own, its body as the method suggests.
    #[must_use]
    pub fn new(method: Method, path: Template) -> Self {
        Self { method, path, headers: HeaderMap::new(), body: None }
    }

    fn sends_body(&self) -> bool {
        self.body.unwrap_or_else(|| [Method::POST, Method::PUT, Method::PATCH].contains(&self.method))
    }
}

/// The effects of one HTTP upstream.
///
/// Every request carries `idempotency-key` (the work item's id), `x-tenant-id` (not for the default tenant),
/// `x-correlation-id` and, where known, `traceparent`. Ids are percent-encoded as CloudEvents does in HTTP headers:
/// whatever is no printable ASCII, spaces, `"` and `%`.
pub struct Http {
    speaker: Speaker,
    operations: BTreeMap<EffectName, Operation>,
}

impl Http {
    /// `upstream` is its name in messages; `base_url` begins every request's URL.
    ///
    /// # Errors
    /// When the URL cannot be a base, or TLS cannot be set up.
    pub fn new(
        upstream: &str,
        base_url: &str,
        operations: BTreeMap<EffectName, Operation>,
    ) -> Result<Self, Error> {
        Ok(Self { speaker: Speaker::new(upstream, base_url)?, operations })
    }

    /// The effects it performs, in the order of their names.
    #[must_use]
    pub fn effects(&self) -> Vec<EffectName> {
        self.operations.keys().cloned().collect()
    }
}

#[async_trait]
impl Provider for Http {
    async fn perform(&self, item: &WorkItem, _attempt: Attempt) -> Result<Reply, Refusal> {
        let Work::Effect(effect) = &item.work else {
            return Err(Refusal::failed("not_an_effect", format!("{} is no effect", item.work.label())));
        };
        let Some(operation) = self.operations.get(&effect.name) else {
            let message = format!("{} has no operation for {}", self.speaker.upstream(), effect.name);
            return Err(Refusal::failed("effect_unknown", message));
        };
        let path = operation.path.render(&effect.payload).map_err(|error| {
            Refusal::failed("bad_payload", format!("the path of {}: {error}", effect.name))
        })?;
        let body = operation.sends_body().then_some(&effect.payload);
        self.speaker
            .send(item, Request { method: &operation.method, path, headers: &operation.headers, body })
            .await
    }
}
