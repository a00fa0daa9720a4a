//! Effects that are unary gRPC calls: one message, one response.
//!
//! The arguments of an effect are JSON. Descriptors from a file or from reflection define the
//! conversion to protobuf, by the JSON rules of proto3. The rules of the effect classify a status;
//! otherwise the table in `status` applies.

mod channel;
mod config;
mod reflection;
mod schema;
mod status;

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use orlog_model::{Effect, Failure, Timestamp, WorkItem};
use prost_reflect::MethodDescriptor;
use reqwest::header::{AUTHORIZATION, HeaderMap, HeaderName};
use serde_json::json;
use tonic::Code;
use tonic::transport::Channel;

pub use config::{GrpcConfig, GrpcEffectConfig};
pub use status::{Codes, GrpcResponseRule};

use crate::config::Error;
use crate::http::{self, Clients, HttpAuth, HttpAuthConfig, IDEMPOTENCY_KEY};
use crate::operations::Operations;
use crate::provider::{Attempt, Provider, ProviderError, Reply};
use crate::response_rules::ResponseContext;
use crate::secret::SecretScrubber;
use crate::template::{JsonTemplate, PlaceholderScope, TextTemplate};
use channel::{GrpcCall, GrpcChannel, GrpcEndpoint, GrpcError};
use reflection::{Reflection, ReflectionCall, ReflectionError};
use schema::{MethodName, Schema};
use status::GrpcStatus;

/// Minimum age of descriptors before they are fetched again because a payload does not match them.
const FRESH: Duration = Duration::from_secs(10);

#[derive(Clone, Debug)]
pub(crate) struct GrpcOperation {
    pub(crate) method: MethodName,
    /// Additional metadata besides the metadata of every call.
    pub(crate) metadata: Vec<(HeaderName, TextTemplate)>,
    pub(crate) body: Option<JsonTemplate>,
    /// Field for the idempotency key.
    pub(crate) key_field: Option<String>,
    pub(crate) responses: Vec<GrpcResponseRule>,
}

/// Source of descriptors: a file that is read with the configuration, or the upstream.
pub(crate) enum DescriptorSource {
    File(Arc<Schema>),
    Reflection(Reflection),
}

/// Provider of the effects of one gRPC upstream.
///
/// Every call has the metadata `idempotency-key` (the id of the work item), `x-tenant-id` (not for the
/// default tenant), `x-correlation-id` and, if known, `traceparent`, encoded as over HTTP, and
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
    operation: &'a GrpcOperation,
    attempt: Attempt,
    channel: Channel,
    headers: HeaderMap,
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
        let (line, auth) = (GrpcChannel::new(endpoint), auth.map(HttpAuth::new));
        Ok(Self { line, source, auth, clients, operations })
    }

    /// Sends a call with authorization. A rejected token is fetched again, once.
    async fn authorized(
        &self,
        mut context: CallContext<'_>,
        scrub: &mut SecretScrubber,
    ) -> Result<Reply, ProviderError> {
        let Some(auth) = &self.auth else {
            let (method, result) = self.send_message(&context).await?;
            return self.classify_result(&context, &method, result, scrub);
        };
        let mut tried = false;
        loop {
            let pair = self.clients.pair()?;
            let value = auth.header_value(&pair.open, context.attempt.at, scrub).await?;
            context.headers.insert(AUTHORIZATION, http::sensitive_header(&value)?);
            let (method, result) = self.send_message(&context).await?;
            let rejected =
                matches!(&result, Err(GrpcError::Status(status)) if status.code() == Code::Unauthenticated);
            if !rejected || tried || !auth.invalidate(&value).await {
                return self.classify_result(&context, &method, result, scrub);
            }
            tried = true;
        }
    }

    /// Resolves the method descriptor and sends the message.
    async fn send_message(
        &self,
        context: &CallContext<'_>,
    ) -> Result<(CachedMethod, Result<bytes::Bytes, GrpcError>), ProviderError> {
        let scope = PlaceholderScope { item: context.item, payload: &context.effect.payload };
        let operation = context.operation;
        let filled = operation.body.as_ref().map(|body| body.fill(scope)).transpose();
        let filled = filled.map_err(|reason| reason.into_provider_error("the body", &context.effect.name))?;
        let mut json = filled.unwrap_or_else(|| context.effect.payload.clone());
        let unfit = |reason: String| {
            ProviderError::permanent(
                "invalid_payload",
                format!("invalid message of {}: {reason}", context.effect.name),
            )
        };
        if let Some(path) = &operation.key_field {
            schema::put(&mut json, path, context.item.id.to_string()).map_err(unfit)?;
        }
        let mut described = self.describe(context).await?;
        let mut message = schema::encode(&described.method.input(), &json);
        if message.is_err() && described.is_old(context.attempt.at) {
            self.refresh();
            described = self.describe(context).await?;
            message = schema::encode(&described.method.input(), &json);
        }
        let message = message.map_err(unfit)?;
        let path = format!("/{}", operation.method);
        let (headers, timeout) = (context.headers.clone(), context.attempt.timeout);
        let call = GrpcCall { path, headers, message, timeout };
        Ok((described, self.line.call(context.channel.clone(), call).await))
    }

    async fn describe(&self, context: &CallContext<'_>) -> Result<CachedMethod, ProviderError> {
        let name = &context.operation.method;
        let (schema, at) = match &self.source {
            DescriptorSource::File(schema) => (Arc::clone(schema), None),
            DescriptorSource::Reflection(reflection) => {
                let reflection_call = ReflectionCall {
                    line: &self.line,
                    channel: context.channel.clone(),
                    headers: context.headers.clone(),
                    timeout: context.attempt.timeout,
                    at: context.attempt.at,
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

    /// Maps a reflection error. Nothing was executed yet; effects wait until the operator corrects the
    /// upstream.
    fn unknown(&self, name: &MethodName, reason: ReflectionError) -> ProviderError {
        let upstream = &self.operations.upstream;
        let useless =
            |reason: String| ProviderError::unavailable("reflection", format!("{upstream}: {reason}"));
        match reason {
            ReflectionError::NoService => {
                let message = format!("{upstream}: reflection has no service {}", name.service);
                ProviderError::permanent("grpc_unimplemented", message)
            }
            ReflectionError::Useless(reason) => useless(reason),
            ReflectionError::Fault(fault) => match fault {
                GrpcError::Forbidden(_) | GrpcError::Unreachable(_) => fault.into_provider_error(upstream),
                GrpcError::ConnectionLost(reason) | GrpcError::Oversized(reason) => useless(reason),
                GrpcError::ResponseTooLarge => {
                    useless("reflection response exceeds the size limit".to_owned())
                }
                GrpcError::Status(status) => {
                    let (code, message) = (status::name(status.code()), status.message());
                    useless(format!("reflection returned {code}: {message}"))
                }
            },
        }
    }

    fn classify_result(
        &self,
        context: &CallContext<'_>,
        described: &CachedMethod,
        result: Result<bytes::Bytes, GrpcError>,
        scrub: &SecretScrubber,
    ) -> Result<Reply, ProviderError> {
        let call_label = format!("{}: {}", self.operations.upstream, context.operation.method);
        let rules = &context.operation.responses;
        let bytes = match result {
            Ok(bytes) => bytes,
            Err(GrpcError::Status(status)) => {
                if status.code() == Code::Unimplemented {
                    self.refresh();
                }
                return GrpcStatus::new(&call_label, &status, &described.schema, scrub).classify(rules);
            }
            // The call succeeded, but its response is not stored.
            Err(GrpcError::ResponseTooLarge) => return Ok(Reply::from(json!({ "truncated": true }))),
            Err(fault) => return Err(fault.into_provider_error(&call_label)),
        };
        let body = match schema::decode(&described.method.output(), &bytes) {
            Ok(body) => scrub.scrub_json(body),
            // The call succeeded too, but its response does not match the descriptors.
            Err(reason) => {
                self.refresh();
                return Ok(Reply::from(json!({ "unreadable": reason })));
            }
        };
        match rules.iter().find(|rule| rule.matches(|codes| codes.cover(Code::Ok), &body)) {
            Some(rule) => rule.classify(ResponseContext {
                body: &body,
                usual: rule_failure(&call_label),
                retry_after: None,
            }),
            None => Ok(Reply::from(body)),
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
        let (effect, operation) = self.operations.find(item)?;
        let (scope, mut scrub) =
            (PlaceholderScope { item, payload: &effect.payload }, SecretScrubber::default());
        let metadata = http::fill_headers(&operation.metadata, scope, &mut scrub);
        let metadata = metadata.map_err(|reason| reason.into_provider_error("the metadata", &effect.name))?;
        let mut headers = http::context_headers(item, IDEMPOTENCY_KEY);
        headers.extend(metadata);
        let channel = self.line.channel()?;
        let context = CallContext { item, effect, operation, attempt, channel, headers };
        self.authorized(context, &mut scrub).await.map_err(|error| http::scrub_error(error, &scrub))
    }

    fn refresh(&self) {
        match &self.source {
            DescriptorSource::File(_) => {}
            DescriptorSource::Reflection(reflection) => reflection.invalidate(),
        }
    }
}
