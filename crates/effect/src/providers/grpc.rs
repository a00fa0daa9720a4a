//! Effects that are unary gRPC calls: one message, one response.
//!
//! The arguments of an effect are JSON. Descriptors from a file or from reflection define the
//! conversion to protobuf, by the JSON rules of proto3. The rules of the effect classify a status;
//! otherwise the table in `status` applies. `response` decides whether the upstream sent a status,
//! and `error` whether a call without a response was executed.

mod channel;
mod config;
mod error;
mod reflection;
mod response;
mod schema;
mod status;

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use orlog_model::{Effect, EffectName, Failure, Timestamp, WorkItem};
use prost_reflect::MethodDescriptor;
use reqwest::header::{AUTHORIZATION, HeaderMap, HeaderName};
use serde_json::json;
use tonic::Code;
use tonic::transport::Channel;

pub use config::{GrpcConfig, GrpcEffectConfig, GrpcProbeConfig};
pub use status::{Codes, GrpcProbeRule, GrpcResponseRule};

use crate::config::Error;
use crate::http::{self, Clients, HttpAuth, HttpAuthConfig, IDEMPOTENCY_KEY};
use crate::operations::Operations;
use crate::provider::{Attempt, Probe, ProbeResult, Provider, ProviderError, Reply, effect_of};
use crate::response_rules::ResponseContext;
use crate::secret::SecretScrubber;
use crate::template::{JsonTemplate, PlaceholderScope, TextTemplate};
use channel::{GrpcCall, GrpcChannel, GrpcEndpoint};
use error::GrpcError;
use reflection::{Reflection, ReflectionCall, ReflectionError};
use schema::{MethodName, Schema};
use status::GrpcStatus;

/// Minimum age of descriptors before they are fetched again because a payload does not match them.
const FRESH: Duration = Duration::from_secs(10);

#[derive(Clone, Debug)]
pub(crate) struct GrpcOperation {
    pub(crate) message: MessageTemplate,
    pub(crate) responses: Vec<GrpcResponseRule>,
    pub(crate) probe: Option<Box<GrpcProbe>>,
}

/// Call that asks whether an earlier attempt was executed.
#[derive(Clone, Debug)]
pub(crate) struct GrpcProbe {
    pub(crate) message: MessageTemplate,
    pub(crate) responses: Vec<GrpcProbeRule>,
}

/// Method and message of a call.
#[derive(Clone, Debug)]
pub(crate) struct MessageTemplate {
    pub(crate) method: MethodName,
    /// Additional metadata besides the metadata of every call.
    pub(crate) metadata: Vec<(HeaderName, TextTemplate)>,
    pub(crate) body: Option<JsonTemplate>,
    /// Field for the idempotency key.
    pub(crate) key_field: Option<String>,
}

/// Source of descriptors: a file that is read with the configuration, or the upstream.
pub(crate) enum DescriptorSource {
    File(Arc<Schema>),
    Reflection(Reflection),
}

/// Provider of the effects of one gRPC upstream.
///
/// Every call has the metadata `idempotency-key` (the id of the work item), `x-tenant-id` (not for
/// the default tenant), `x-correlation-id` and, if known, `traceparent`, encoded as over HTTP, and
/// `grpc-timeout`.
pub struct Grpc {
    line: GrpcChannel,
    source: DescriptorSource,
    auth: Option<HttpAuth>,
    clients: Clients,
    operations: Operations<GrpcOperation>,
}

struct CallContext<'a> {
    item: &'a WorkItem,
    effect: &'a Effect,
    template: &'a MessageTemplate,
    timeout: Duration,
    at: Timestamp,
    channel: Channel,
    headers: HeaderMap,
}

/// Response with the descriptors of its method.
struct GrpcExchange {
    method: CachedMethod,
    result: Result<bytes::Bytes, GrpcError>,
}

impl Grpc {
    pub(crate) fn new(
        endpoint: GrpcEndpoint,
        source: DescriptorSource,
        auth: Option<HttpAuthConfig>,
        operations: Operations<GrpcOperation>,
    ) -> Result<Self, Error> {
        // HTTP is used only for the token issuer.
        let roots = matches!(auth, Some(HttpAuthConfig::OAuth2(_)));
        let clients = Clients::of_upstream(&operations.upstream, &endpoint.tls, roots)?;

        Ok(Self {
            line: GrpcChannel::new(endpoint),
            source,
            auth: auth.map(HttpAuth::new),
            clients,
            operations,
        })
    }

    /// Fills the metadata of a call.
    fn context<'a>(
        &self,
        item: &'a WorkItem,
        template: &'a MessageTemplate,
        timing: Probe,
        scrub: &mut SecretScrubber,
    ) -> Result<CallContext<'a>, ProviderError> {
        let effect = effect_of(item)?;
        let scope = PlaceholderScope {
            item,
            payload: &effect.payload,
        };

        let metadata = http::fill_headers(&template.metadata, scope, scrub);
        let metadata =
            metadata.map_err(|reason| reason.into_provider_error("the metadata", &effect.name))?;

        let mut headers = http::context_headers(item, IDEMPOTENCY_KEY);
        headers.extend(metadata);

        let Probe { timeout, at } = timing;
        Ok(CallContext {
            item,
            effect,
            template,
            timeout,
            at,
            channel: self.line.channel()?,
            headers,
        })
    }

    /// Sends a call with authorization. A rejected token is fetched again, once.
    async fn authorized(
        &self,
        context: &mut CallContext<'_>,
        scrub: &mut SecretScrubber,
    ) -> Result<GrpcExchange, ProviderError> {
        let Some(auth) = &self.auth else {
            return self.send_message(context).await;
        };

        let mut is_retry = false;
        loop {
            let pair = self.clients.pair()?;
            let value = auth.header_value(&pair.open, context.at, scrub).await?;

            context
                .headers
                .insert(AUTHORIZATION, http::sensitive_header(&value)?);

            let exchange = self.send_message(context).await?;
            let is_rejected = matches!(
                &exchange.result,
                Err(GrpcError::Status(status) | GrpcError::Proxy(status))
                    if status.code() == Code::Unauthenticated
            );

            // A second rejection does not concern the token.
            if !is_rejected || is_retry || !auth.invalidate(&value).await {
                return Ok(exchange);
            }
            is_retry = true;
        }
    }

    /// Resolves the method descriptor and sends the message.
    async fn send_message(&self, context: &CallContext<'_>) -> Result<GrpcExchange, ProviderError> {
        let scope = PlaceholderScope {
            item: context.item,
            payload: &context.effect.payload,
        };

        let template = context.template;
        let filled = template
            .body
            .as_ref()
            .map(|body| body.fill(scope))
            .transpose();
        let filled = filled
            .map_err(|reason| reason.into_provider_error("the body", &context.effect.name))?;
        let mut json = filled.unwrap_or_else(|| context.effect.payload.clone());

        let unfit = |reason: String| {
            ProviderError::permanent(
                "invalid_payload",
                format!("invalid message of {}: {reason}", context.effect.name),
            )
        };

        if let Some(path) = &template.key_field {
            schema::put(&mut json, path, context.item.id.to_string()).map_err(unfit)?;
        }

        // The upstream may have been deployed with another schema since its descriptors were read.
        let mut described = self.describe(context).await?;
        let mut message = schema::encode(&described.method.input(), &json);
        if message.is_err() && described.is_old(context.at) {
            self.refresh();
            described = self.describe(context).await?;
            message = schema::encode(&described.method.input(), &json);
        }

        let message = message.map_err(unfit)?;
        let call = GrpcCall {
            path: format!("/{}", template.method),
            headers: context.headers.clone(),
            message,
            timeout: context.timeout,
        };

        let result = self.line.call(context.channel.clone(), call).await;
        Ok(GrpcExchange {
            method: described,
            result,
        })
    }

    async fn describe(&self, context: &CallContext<'_>) -> Result<CachedMethod, ProviderError> {
        let name = &context.template.method;
        let (schema, at) = match &self.source {
            DescriptorSource::File(schema) => (Arc::clone(schema), None),
            DescriptorSource::Reflection(reflection) => {
                let reflection_call = ReflectionCall {
                    line: &self.line,
                    channel: context.channel.clone(),
                    headers: context.headers.clone(),
                    timeout: context.timeout,
                    at: context.at,
                };
                let (schema, at) = reflection
                    .schema(&name.service, &reflection_call)
                    .await
                    .map_err(|reason| self.unknown(name, reason))?;
                (schema, Some(at))
            }
        };

        match schema.method(name) {
            Ok(method) => Ok(CachedMethod { schema, method, at }),
            Err(reason) => {
                self.refresh();
                Err(ProviderError::permanent(
                    "grpc_unimplemented",
                    format!("{}: {reason}", self.operations.upstream),
                ))
            }
        }
    }

    /// Maps a reflection error. Nothing was executed yet; effects wait until the operator corrects
    /// the upstream.
    fn unknown(&self, name: &MethodName, reason: ReflectionError) -> ProviderError {
        let upstream = &self.operations.upstream;
        let useless = |reason: String| {
            ProviderError::unavailable("reflection", format!("{upstream}: {reason}"))
        };

        match reason {
            ReflectionError::NoService => {
                let message = format!("{upstream}: reflection has no service {}", name.service);
                ProviderError::permanent("grpc_unimplemented", message)
            }
            ReflectionError::Useless(reason) => useless(reason),
            ReflectionError::Fault(fault) => match fault {
                GrpcError::Forbidden(_) | GrpcError::Unreachable(_) => {
                    fault.into_provider_error(upstream)
                }
                GrpcError::ConnectionLost(reason)
                | GrpcError::RefusedStream(reason)
                | GrpcError::Oversized(reason) => useless(reason),
                GrpcError::ResponseTooLarge => {
                    useless("reflection response exceeds the size limit".to_owned())
                }
                GrpcError::Status(status) | GrpcError::Proxy(status) => {
                    let code = status::name(status.code());
                    let message = status.message();
                    useless(format!("reflection returned {code}: {message}"))
                }
            },
        }
    }

    fn call_label(&self, template: &MessageTemplate) -> String {
        format!("{}: {}", self.operations.upstream, template.method)
    }

    fn classify_result(
        &self,
        operation: &GrpcOperation,
        exchange: GrpcExchange,
        scrub: &SecretScrubber,
    ) -> Result<Reply, ProviderError> {
        let call_label = self.call_label(&operation.message);
        let rules = &operation.responses;

        let bytes = match exchange.result {
            Ok(bytes) => bytes,
            Err(GrpcError::Status(status)) => {
                if status.code() == Code::Unimplemented {
                    self.refresh();
                }
                return GrpcStatus::new(&call_label, &status, &exchange.method.schema, scrub)
                    .classify(rules);
            }
            // By the table only: a rule can state that a status proves that nothing was executed,
            // which a proxy cannot.
            Err(GrpcError::Proxy(status)) => {
                return GrpcStatus::new(&call_label, &status, &exchange.method.schema, scrub)
                    .classify(&[]);
            }
            // The call succeeded, but its response is not stored.
            Err(GrpcError::ResponseTooLarge) => {
                return Ok(Reply::from(json!({ "truncated": true })));
            }
            Err(fault) => return Err(fault.into_provider_error(&call_label).of_attempt()),
        };

        let body = match schema::decode(&exchange.method.method.output(), &bytes) {
            Ok(body) => scrub.scrub_json(body),
            // The call succeeded too, but its response does not match the descriptors.
            Err(reason) => {
                self.refresh();
                return Ok(Reply::from(json!({ "unreadable": reason })));
            }
        };

        match rules
            .iter()
            .find(|rule| rule.matches(|codes| codes.cover(Code::Ok), &body))
        {
            Some(rule) => rule.classify(ResponseContext {
                body: &body,
                usual: rule_failure(&call_label),
                retry_after: None,
            }),
            None => Ok(Reply::from(body)),
        }
    }

    fn classify_probe(
        &self,
        probe: &GrpcProbe,
        exchange: GrpcExchange,
        scrub: &SecretScrubber,
    ) -> ProbeResult {
        let call_label = self.call_label(&probe.message);
        let bytes = match exchange.result {
            Ok(bytes) => bytes,
            Err(GrpcError::Status(status)) => {
                let status = GrpcStatus::new(&call_label, &status, &exchange.method.schema, scrub);
                return status.classify_probe(&probe.responses);
            }
            Err(GrpcError::Proxy(status)) => {
                let status = GrpcStatus::new(&call_label, &status, &exchange.method.schema, scrub);
                return status.classify_probe(&[]);
            }
            Err(fault) => return ProbeResult::from_error(fault.into_provider_error(&call_label)),
        };

        let body = schema::decode(&exchange.method.method.output(), &bytes)
            .map(|body| scrub.scrub_json(body));
        let rule = body.as_ref().ok().and_then(|body| {
            probe
                .responses
                .iter()
                .find(|rule| rule.matches(|codes| codes.cover(Code::Ok), body))
        });

        match (rule, &body) {
            (Some(rule), Ok(body)) => rule.probe_result(ResponseContext {
                body,
                usual: rule_failure(&call_label),
                retry_after: None,
            }),
            (_, unmatched) => {
                tracing::warn!(
                    call = call_label,
                    ?unmatched,
                    "response to a probe matches no rule"
                );
                ProbeResult::Unknown
            }
        }
    }
}

/// Method descriptor and its fetch time; `None`: from a file.
struct CachedMethod {
    schema: Arc<Schema>,
    method: MethodDescriptor,
    at: Option<Timestamp>,
}

impl CachedMethod {
    fn is_old(&self, now: Timestamp) -> bool {
        self.at.is_some_and(|at| now.duration_since(at) >= FRESH)
    }
}

fn rule_failure(call_label: &str) -> Failure {
    Failure {
        code: "grpc_ok".to_owned(),
        message: format!("{call_label} returned OK, which a rule classifies as a failure"),
    }
}

#[async_trait]
impl Provider for Grpc {
    async fn execute(&self, item: &WorkItem, attempt: Attempt) -> Result<Reply, ProviderError> {
        let (_, operation) = self.operations.find(item)?;
        let mut scrub = SecretScrubber::default();
        let timing = Probe {
            timeout: attempt.timeout,
            at: attempt.at,
        };

        // A call that cannot be sent says nothing about an earlier attempt.
        let mut context = self
            .context(item, &operation.message, timing, &mut scrub)
            .map_err(ProviderError::of_attempt)?;
        let exchange = self.authorized(&mut context, &mut scrub).await;
        let exchange = exchange.map_err(ProviderError::of_attempt);
        let result =
            exchange.and_then(|exchange| self.classify_result(operation, exchange, &scrub));
        result.map_err(|error| http::scrub_error(error, &scrub))
    }

    fn can_probe(&self, effect: &EffectName) -> bool {
        self.operations
            .get(effect)
            .is_some_and(|operation| operation.probe.is_some())
    }

    async fn probe(&self, item: &WorkItem, timing: Probe) -> ProbeResult {
        let probe = self
            .operations
            .find(item)
            .ok()
            .and_then(|(_, operation)| operation.probe.as_ref());
        let Some(probe) = probe else {
            return ProbeResult::Unknown;
        };

        let mut scrub = SecretScrubber::default();
        let exchange = match self.context(item, &probe.message, timing, &mut scrub) {
            Ok(mut context) => {
                // An upstream that replays responses by key would replay the response of the
                // attempt.
                context.headers.remove(IDEMPOTENCY_KEY);
                self.authorized(&mut context, &mut scrub).await
            }
            Err(error) => Err(error),
        };

        match exchange {
            Ok(exchange) => self.classify_probe(probe, exchange, &scrub),
            Err(error) => {
                let error = http::scrub_error(error, &scrub);
                tracing::warn!(item = %item.id, error = %error.failure(), "probe failed");
                ProbeResult::from_error(error)
            }
        }
    }

    fn refresh(&self) {
        match &self.source {
            DescriptorSource::File(_) => {}
            DescriptorSource::Reflection(reflection) => reflection.invalidate(),
        }
    }
}
