//! Effects that are HTTP requests.
//!
//! One provider calls one upstream. Each effect is a method and an address with placeholders. The
//! arguments are the body unless the effect specifies another one. The rules of the effect classify
//! a response, otherwise its status does, by the table of `crate::decisions`. Redirects are not
//! followed by default, because only the configuration decides where a request may go.

mod config;
mod probe;
mod request;
mod rules;

use std::sync::Arc;

use async_trait::async_trait;
use orlog_model::{EffectName, WorkItem};

pub(crate) use config::lists_hosts;
pub use config::{HttpConfig, HttpEffectConfig, SignatureConfig};
#[cfg(feature = "smtp")]
pub(crate) use probe::HttpProbe;
#[cfg(not(feature = "smtp"))]
use probe::HttpProbe;
pub use probe::HttpProbeConfig;
pub(crate) use request::RequestLimits;
pub use rules::{HttpProbeRule, HttpResponseRule, StatusRange};

use crate::http::HttpClient;
use crate::http::response::RequestSummary;
use crate::operations::Operations;
use crate::policy::Policy;
use crate::provider::{Attempt, Probe, ProbeResult, Provider, ProviderError, Reply};
use crate::secret::SecretScrubber;
use crate::upstream::Upstream;
use request::RequestTemplate;

#[derive(Clone, Debug)]
pub(crate) struct HttpOperation {
    request: RequestTemplate,
    responses: Vec<HttpResponseRule>,
    probe: Option<Box<HttpProbe>>,
}

/// Provider of the effects of one HTTP upstream.
///
/// Every request has `idempotency-key` (the id of the work item; the header name is configurable),
/// `x-tenant-id` (not for the default tenant), `x-correlation-id` and, if known, `traceparent`. Ids
/// are percent-encoded as CloudEvents requires for HTTP headers: everything except printable ASCII,
/// and spaces, `"` and `%`.
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
        let name = operations.upstream.clone();
        let effects = operations.effects();
        Upstream::effects(name, effects, Arc::new(Self { client, operations }), policy)
    }
}

#[async_trait]
impl Provider for Http {
    async fn execute(&self, item: &WorkItem, attempt: Attempt) -> Result<Reply, ProviderError> {
        let (_, operation) = self.operations.find(item)?;
        let mut scrub = SecretScrubber::default();
        // A request that cannot be sent says nothing about an earlier attempt.
        let request = operation
            .request
            .fill(item, attempt.at, &mut scrub)
            .map_err(ProviderError::of_attempt)?;
        let exchange = self.client.send(item, request, scrub).await;
        let exchange = exchange.map_err(ProviderError::of_attempt)?;

        let summary = RequestSummary {
            upstream: &self.operations.upstream,
            method: operation.request.method.as_str(),
            path: &exchange.path,
        };

        rules::classify(&operation.responses, summary, &exchange.response)
    }

    fn can_probe(&self, effect: &EffectName) -> bool {
        self.operations
            .get(effect)
            .is_some_and(|operation| operation.probe.is_some())
    }

    async fn probe(&self, item: &WorkItem, probe: Probe) -> ProbeResult {
        let operation = self
            .operations
            .find(item)
            .ok()
            .and_then(|(_, operation)| operation.probe.as_ref());

        match operation {
            Some(operation) => {
                operation
                    .send(&self.client, &self.operations.upstream, item, probe)
                    .await
            }
            None => ProbeResult::Unknown,
        }
    }
}
