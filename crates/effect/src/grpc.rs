//! Effects that are gRPC calls: one message, one answer.
//!
//! The arguments of an effect are JSON; descriptors (from a file, or asked of the upstream by reflection) say how that becomes
//! protobuf, by the JSON rules of proto3. What a status means is said by the effect's rules, else by the table in
//! `status`.

mod channel;
mod reflection;
mod schema;
mod status;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use orlog_model::{Effect, EffectName, Failure, Timestamp, Work, WorkItem};
use prost_reflect::MethodDescriptor;
use reqwest::header::{AUTHORIZATION, HeaderMap, HeaderName};
use serde_json::json;
use tonic::Code;
use tonic::transport::Channel;

pub(crate) use channel::Place;
pub(crate) use schema::{MethodName, Schema, check_path};
pub use status::{AnswerConfig, Codes};

use crate::http::{self, Auth, AuthConfig, Clients, IDEMPOTENCY_KEY};
use crate::placeholders::{Json, Scope, Text};
use crate::provider::{Attempt, Provider, Refusal, Reply};
use crate::response_rules::Judged;
use crate::secret::Scrub;
use channel::{Call, Fault, Line};
use reflection::{Asking, Reflection, Unknown};
use status::Told;

/// Descriptors younger than this are not asked for again because a payload does not fit them.
const FRESH: Duration = Duration::from_secs(10);

/// What one effect asks of the upstream.
#[derive(Clone, Debug)]
pub(crate) struct Operation {
    pub(crate) method: MethodName,
    /// Metadata besides that of every call.
    pub(crate) metadata: Vec<(HeaderName, Text)>,
    /// The message; the arguments where absent.
    pub(crate) body: Option<Json>,
    /// The field that takes the idempotency key.
    pub(crate) key_field: Option<String>,
    pub(crate) responses: Vec<AnswerConfig>,
}

/// Where descriptors come from.
pub(crate) enum Source {
    /// A file, read with the configuration.
    File(Schema),
    /// The upstream.
    Reflection,
}

/// The effects of one gRPC upstream.
///
/// Every call carries the metadata `idempotency-key` (the work item's id), `x-tenant-id` (not for the default tenant),
/// `x-correlation-id` and, where known, `traceparent`, encoded as over HTTP, and `grpc-timeout`.
pub struct Grpc {
    upstream: String,
    line: Line,
    schemas: Schemas,
    auth: Option<Auth>,
    clients: Clients,
    operations: BTreeMap<EffectName, Operation>,
}

enum Schemas {
    File(Arc<Schema>),
    Reflection(Reflection),
}

/// What one attempt goes by.
struct Course<'a> {
    item: &'a WorkItem,
    effect: &'a Effect,
    operation: &'a Operation,
    attempt: Attempt,
    channel: Channel,
    headers: HeaderMap,
}

impl Grpc {
    pub(crate) fn new(
        upstream: &str,
        place: Place,
        source: Source,
        auth: Option<AuthConfig>,
        operations: BTreeMap<EffectName, Operation>,
    ) -> Result<Self, http::Error> {
        let schemas = match source {
            Source::File(schema) => Schemas::File(Arc::new(schema)),
            Source::Reflection => Schemas::Reflection(Reflection::default()),
        };
        // Only who issues tokens is spoken to over HTTP.
        let roots = matches!(auth, Some(AuthConfig::OAuth2(_)));
        let tls = |source| http::Error::Tls { upstream: upstream.to_owned(), source };
        let clients = Clients::new(place.tls.clone(), roots).map_err(tls)?;
        let (line, auth) = (Line::new(place), auth.map(Auth::new));
        Ok(Self { upstream: upstream.to_owned(), line, schemas, auth, clients, operations })
    }

    /// The effects it performs, in the order of their names.
    #[must_use]
    pub fn effects(&self) -> Vec<EffectName> {
        self.operations.keys().cloned().collect()
    }

    /// A token that is refused is fetched anew, once.
    async fn authorized(&self, mut course: Course<'_>, scrub: &mut Scrub) -> Result<Reply, Refusal> {
        let Some(auth) = &self.auth else {
            let (method, answer) = self.ask(&course).await?;
            return self.judge(&course, &method, answer, scrub);
        };
        let mut tried = false;
        loop {
            let pair = self.clients.pair()?;
            let value = auth.value(&pair.open, course.attempt.at, scrub).await?;
            course.headers.insert(AUTHORIZATION, http::sensitive(&value)?);
            let (method, answer) = self.ask(&course).await?;
            let refused =
                matches!(&answer, Err(Fault::Told(status)) if status.code() == Code::Unauthenticated);
            if !refused || tried || !auth.refused(&value).await {
                return self.judge(&course, &method, answer, scrub);
            }
            tried = true;
        }
    }

    /// Finds out how the message looks, and sends it.
    async fn ask(&self, course: &Course<'_>) -> Result<(Described, Result<bytes::Bytes, Fault>), Refusal> {
        let scope = Scope { item: course.item, payload: &course.effect.payload };
        let operation = course.operation;
        let filled = operation.body.as_ref().map(|body| body.fill(scope)).transpose();
        let filled = filled.map_err(|why| why.refusal("the body", &course.effect.name))?;
        let mut json = filled.unwrap_or_else(|| course.effect.payload.clone());
        let unfit = |why: String| {
            Refusal::failed("bad_payload", format!("the message of {}: {why}", course.effect.name))
        };
        if let Some(path) = &operation.key_field {
            schema::put(&mut json, path, course.item.id.to_string()).map_err(unfit)?;
        }
        let mut described = self.describe(course).await?;
        let mut message = schema::encode(&described.method.input(), &json);
        if message.is_err() && described.is_old(course.attempt.at) {
            self.refresh();
            described = self.describe(course).await?;
            message = schema::encode(&described.method.input(), &json);
        }
        let message = message.map_err(unfit)?;
        let path = format!("/{}", operation.method);
        let (headers, timeout) = (course.headers.clone(), course.attempt.timeout);
        let call = Call { path, headers, message, timeout };
        Ok((described, self.line.call(course.channel.clone(), call).await))
    }

    async fn describe(&self, course: &Course<'_>) -> Result<Described, Refusal> {
        let name = &course.operation.method;
        let (schema, at) = match &self.schemas {
            Schemas::File(schema) => (Arc::clone(schema), None),
            Schemas::Reflection(reflection) => {
                let asking = Asking {
                    line: &self.line,
                    channel: course.channel.clone(),
                    headers: course.headers.clone(),
                    timeout: course.attempt.timeout,
                    at: course.attempt.at,
                };
                let (schema, at) =
                    reflection.schema(&name.service, &asking).await.map_err(|why| self.unknown(name, why))?;
                (schema, Some(at))
            }
        };
        match schema.method(name) {
            Ok(method) => Ok(Described { schema, method, at }),
            Err(why) => {
                self.refresh();
                Err(Refusal::failed("grpc_unimplemented", format!("{}: {why}", self.upstream)))
            }
        }
    }

    /// Nothing was done yet, and the operator mends what is wrong with the reflection; effects wait for it.
    fn unknown(&self, name: &MethodName, why: Unknown) -> Refusal {
        let upstream = &self.upstream;
        match why {
            Unknown::NoService => {
                let message = format!("{upstream}: its reflection knows no service {}", name.service);
                Refusal::failed("grpc_unimplemented", message)
            }
            Unknown::Fault(Fault::Forbidden(refused)) => {
                Refusal::failed("egress_refused", format!("{upstream}: {refused}"))
            }
            Unknown::Fault(Fault::Unreachable(why)) => {
                Refusal::retry("unreachable", format!("{upstream}: {why}"))
            }
            Unknown::Fault(Fault::Lost(why) | Fault::Oversized(why)) => {
                Refusal::retry("reflection", format!("{upstream}: {why}"))
            }
            Unknown::Fault(Fault::TooLong) => {
                Refusal::retry("reflection", format!("{upstream}: its reflection is longer than may be read"))
            }
            Unknown::Fault(Fault::Told(status)) => {
                let message = format!(
                    "{upstream}: its reflection answered {}: {}",
                    status::name(status.code()),
                    status.message()
                );
                Refusal::retry("reflection", message)
            }
            Unknown::Useless(why) => Refusal::retry("reflection", format!("{upstream}: {why}")),
        }
    }

    fn judge(
        &self,
        course: &Course<'_>,
        described: &Described,
        answer: Result<bytes::Bytes, Fault>,
        scrub: &Scrub,
    ) -> Result<Reply, Refusal> {
        let asked = format!("{}: {}", self.upstream, course.operation.method);
        let rules = &course.operation.responses;
        let bytes = match answer {
            Ok(bytes) => bytes,
            Err(Fault::Told(status)) => {
                if status.code() == Code::Unimplemented {
                    self.refresh();
                }
                return Told::new(&asked, &status, &described.schema, scrub).judge(rules);
            }
            Err(Fault::Unreachable(why)) => {
                return Err(Refusal::retry("unreachable", format!("{asked}: {why}")));
            }
            Err(Fault::Forbidden(why)) => {
                return Err(Refusal::failed("egress_refused", format!("{asked}: {why}")));
            }
            Err(Fault::Oversized(why)) => {
                return Err(Refusal::failed("bad_payload", format!("{asked}: {why}")));
            }
            Err(Fault::Lost(why)) => return Err(Refusal::lost("transport", format!("{asked}: {why}"))),
            // It is done, only its answer is not kept.
            Err(Fault::TooLong) => return Ok(Reply::from(json!({ "truncated": true }))),
        };
        let body = match schema::decode(&described.method.output(), &bytes) {
            Ok(body) => scrub.value(body),
            // It is done too; what it said does not fit what is known of its messages.
            Err(why) => {
                self.refresh();
                return Ok(Reply::from(json!({ "unreadable": why })));
            }
        };
        match rules.iter().find(|rule| rule.fits(|codes| codes.cover(Code::Ok), &body)) {
            Some(rule) => rule.judge(Judged { body: &body, usual: declined(&asked), retry_after: None }),
            None => Ok(Reply::from(body)),
        }
    }
}

/// A method, and since when it is known; `None`: from a file.
struct Described {
    schema: Arc<Schema>,
    method: MethodDescriptor,
    at: Option<Timestamp>,
}

impl Described {
    fn is_old(&self, now: Timestamp) -> bool {
        self.at.is_some_and(|at| now.since(at) >= FRESH)
    }
}

fn declined(asked: &str) -> Failure {
    Failure {
        code: "grpc_ok".to_owned(),
        message: format!("{asked} answered OK, which a rule takes for a failure"),
    }
}

#[async_trait]
impl Provider for Grpc {
    async fn perform(&self, item: &WorkItem, attempt: Attempt) -> Result<Reply, Refusal> {
        let Work::Effect(effect) = &item.work else {
            return Err(Refusal::failed("not_an_effect", format!("{} is no effect", item.work.label())));
        };
        let Some(operation) = self.operations.get(&effect.name) else {
            let message = format!("{} has no method for {}", self.upstream, effect.name);
            return Err(Refusal::failed("effect_unknown", message));
        };
        let (scope, mut scrub) = (Scope { item, payload: &effect.payload }, Scrub::default());
        let metadata = http::fill_headers(&operation.metadata, scope, &mut scrub);
        let metadata = metadata.map_err(|why| why.refusal("the metadata", &effect.name))?;
        let mut headers = http::identity(item, IDEMPOTENCY_KEY);
        headers.extend(metadata);
        let channel = self.line.channel()?;
        let course = Course { item, effect, operation, attempt, channel, headers };
        self.authorized(course, &mut scrub).await.map_err(|refusal| http::scrubbed(refusal, &scrub))
    }

    fn refresh(&self) {
        match &self.schemas {
            Schemas::File(_) => {}
            Schemas::Reflection(reflection) => reflection.forget(),
        }
    }
}
