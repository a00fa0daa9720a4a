//! Probes over HTTP: a request that asks whether an earlier attempt was executed.

use std::collections::BTreeMap;

use orlog_model::WorkItem;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::request::{RequestConfig, RequestLimits, RequestTemplate};
use super::rules::{self, HttpProbeRule};
use crate::http::HttpClient;
use crate::http::response::RequestSummary;
use crate::provider::{Probe, ProbeResult};
use crate::response_rules::check_probe_rules;
use crate::secret::SecretScrubber;

/// Rules of a typical probe, for messages.
const EXAMPLE: &str =
    r#"{ status = 200, result = "executed" }, { status = 404, result = "not_executed" }"#;

/// Request that asks the upstream whether it executed an attempt.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HttpProbeConfig {
    /// HTTP method. Default: GET.
    #[serde(default = "method")]
    pub method: String,
    /// Path after the base URL; `{@id}` is the idempotency key, `{a.b}` a field of the arguments.
    pub path: Option<String>,
    /// Complete URL, instead of the path.
    pub url: Option<String>,
    /// Additional headers besides those of every request.
    #[serde(default)]
    pub headers: BTreeMap<String, String>,
    /// Body, as of an effect.
    pub body: Option<Value>,
    /// Rules for the response; the first match decides. At least one.
    #[serde(default)]
    pub responses: Vec<HttpProbeRule>,
}

/// Compiled probe.
#[derive(Clone, Debug)]
pub(crate) struct HttpProbe {
    request: RequestTemplate,
    responses: Vec<HttpProbeRule>,
}

impl HttpProbeConfig {
    pub(crate) fn compile(&self, limits: RequestLimits) -> Result<HttpProbe, String> {
        let request = RequestConfig {
            method: &self.method,
            path: self.path.as_deref(),
            url: self.url.as_deref(),
            headers: &self.headers,
            body: self.body.as_ref(),
        };

        RequestTemplate::compile(&request, limits)
            .and_then(|request| {
                check_probe_rules(&self.responses, EXAMPLE)?;
                Ok(HttpProbe {
                    request,
                    responses: self.responses.clone(),
                })
            })
            .map_err(|reason: String| format!("probe: {reason}"))
    }
}

impl HttpProbe {
    /// Sends the request, without the idempotency key: an upstream that replays responses by key
    /// would replay the response of the attempt, or reject the request.
    pub(crate) async fn send(
        &self,
        client: &HttpClient,
        upstream: &str,
        item: &WorkItem,
        probe: Probe,
    ) -> ProbeResult {
        let mut scrub = SecretScrubber::default();
        let exchange = match self.request.fill(item, probe.at, &mut scrub) {
            Ok(mut request) => {
                request.is_probe = true;
                client.send(item, request, scrub).await
            }
            Err(error) => Err(error),
        };

        match exchange {
            Ok(exchange) => {
                let method = self.request.method.as_str();
                let summary = RequestSummary {
                    upstream,
                    method,
                    path: &exchange.path,
                };
                rules::classify_probe(&self.responses, summary, &exchange.response)
            }
            Err(error) => {
                tracing::warn!(upstream, item = %item.id, error = %error.failure(), "probe failed");
                ProbeResult::from_error(error)
            }
        }
    }
}

fn method() -> String {
    "GET".to_owned()
}
