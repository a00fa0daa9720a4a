//! `POST /v1/messages`: sends a message, and waits for its end if requested.

use std::sync::Arc;
use std::time::Duration;

use axum::Extension;
use axum::extract::State;
use axum::http::{HeaderMap, HeaderValue, StatusCode, Uri, header};
use axum::response::{IntoResponse, Response};
use orlog_model::{ContextAddress, InstanceKey, TenantId, Timestamp, parse_duration};
use orlog_sagas::message::{self, Message, MessageFormat, MessageType, SendMessage, Timeouts};
use serde::Deserialize;
use serde_json::{Value, json};
use utoipa::{IntoParams, ToSchema};

use super::MessageResource;
use super::view::MessageView;
use crate::resources::events::takes_work;
use crate::resources::sagas::built_in;
use crate::resources::sagas::control::{ControlBody, send_control};
use crate::resources::sagas::resource;
use crate::resources::sagas::result::{await_end, wait};
use crate::server::admission::Admission;
use crate::server::body::{self, CheckedBody};
use crate::server::extract::{QueryParams, Tenant};
use crate::server::forward;
use crate::server::parts::access::Access;
use crate::server::parts::instances::Instances;
use crate::server::problem::{Code, Problem};
use orlog_node::auth::{Caller, Right};
use orlog_node::messages::check::{check_fields, check_flow, invalid};
use orlog_node::messages::exchange::MessageExchange;
use orlog_node::messages::sent_key;

/// Maximum timeout.
const MAX_TIMEOUT: Duration = Duration::from_hours(366 * 24);

/// Options of a submission.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct SendQuery {
    /// Maximum wait for the end of the message, for example `30s`; at most `60s`. Default: the
    /// response follows as soon as the message is durable.
    #[param(format = "duration")]
    wait: Option<String>,
}

/// Message to send.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct SendBody {
    /// Receiver: `context@node`, or `context` on this node.
    #[schema(example = "accounting@b.example.com")]
    to: String,
    /// `job` executes a flow there; `chat` and `mail` are for members of the context.
    #[serde(rename = "type")]
    #[schema(value_type = String, example = "chat")]
    kind: MessageType,
    /// Format of the body: `html`, `text` or `md`. Default: `text`.
    #[serde(default)]
    #[schema(value_type = String)]
    format: MessageFormat,
    /// Subject.
    subject: Option<String>,
    /// Body of a chat or mail.
    body: Option<String>,
    /// Flow of a job: an object as for `POST /v1/flows`, or its text.
    flow: Option<Value>,
    /// Id of the conversation. Default: the id of the message.
    thread: Option<String>,
    /// Timeouts.
    #[serde(default)]
    timeouts: TimeoutsBody,
    /// Id of the message and idempotency key of the request. Default: the header `Idempotency-Key`.
    id: Option<String>,
    /// User name recorded in the message and in the history.
    user: Option<String>,
}

/// Timeouts of a message. Each one begins when the one before ends.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct TimeoutsBody {
    /// Maximum time until the delivery. Default: `7d`.
    #[schema(format = "duration", example = "7d")]
    delivery: Option<String>,
    /// Maximum time from the delivery to the acknowledgement. Default: `1d`.
    #[schema(format = "duration", example = "1d")]
    acknowledgement: Option<String>,
    /// Maximum time from the acknowledgement to the result. Default: `7d` for a job, otherwise
    /// unlimited.
    #[schema(format = "duration", example = "7d")]
    result: Option<String>,
}

/// Send a message
///
/// Sends a message to a context of this node or of another node. The response follows when the
/// message is durable in the context of the sender, or with `wait` when it has ended. The header
/// `Idempotency-Key` is the id of the message: a repetition has no effect.
#[utoipa::path(
    post,
    path = "/v1/messages",
    tag = "messages",
    params(
        SendQuery,
        ("idempotency-key" = Option<String>, Header, description = "Id of the message. Default: a \
                                                                    new id")
    ),
    request_body = SendBody,
    responses(
        (status = 200, description = "The message has ended within `wait`", body = MessageView),
        (
            status = 202,
            description = "The message is durable; `Location` is its path",
            body = MessageView
        )
    )
)]
#[expect(clippy::too_many_arguments, reason = "each one is an extractor")]
pub(crate) async fn send(
    instances: Instances,
    State(messages): State<Arc<MessageExchange>>,
    State(access): State<Access>,
    Extension(caller): Extension<Caller>,
    admission: Option<Extension<Admission>>,
    Tenant(tenant): Tenant,
    QueryParams(query): QueryParams<SendQuery>,
    uri: Uri,
    mut headers: HeaderMap,
    CheckedBody(bytes): CheckedBody,
) -> Result<Response, Problem> {
    let api = &instances.request;
    takes_work(api)?;
    let wait = wait(query.wait.as_deref())?;
    let body: SendBody = api.bodies().parse(&bytes, body::parse).await?;
    let user = caller.check_user(body.user.clone())?;
    let key = built_in::identified(body.id.clone(), &mut headers, |id| {
        sent_key(tenant.clone(), id)
    })?;
    if let Some(response) =
        forward::to_owner(&instances.cluster, &key, &uri, None, &headers, &bytes).await?
    {
        return Ok(response);
    }

    let timeouts = timeouts(&body.timeouts, body.kind)?;
    let message = message(&messages, &key, body, user.clone()).await?;
    let authenticated = admission
        .as_ref()
        .map_or(&caller, |Extension(admission)| admission.authenticated());
    let acts_for_receiver = message.to.node == message.from.node
        && acts_for(&access, authenticated, &message.to.context, message.kind)?;
    let sent = SendMessage {
        message,
        timeouts,
        acts_for_receiver,
    };

    let provided = ControlBody {
        user,
        ..ControlBody::default()
    };
    let submitted = send_control(
        &instances,
        &caller,
        &key,
        provided,
        built_in::signal(message::SEND, json!(sent)),
    )
    .await;

    drop(submitted.map_err(|problem| {
        // The saga rejects only another content: an equal one under the same id has no effect.
        if problem.code() == Code::InvalidStatus {
            exists(&key)
        } else {
            problem
        }
    })?);

    let has_ended = match wait {
        // An interrupted wait is no failure of the submission: the caller asks for the message
        // elsewhere.
        Some(wait) => await_end(&instances, &key, wait)
            .await
            .is_ok_and(|(has_ended, _)| has_ended),
        None => false,
    };
    let location = orlog_node::url_path::path(&["v1", "messages", key.correlation.as_str()]);
    let location = HeaderValue::from_str(&location).expect("an escaped path is a valid header");
    let status = if has_ended {
        StatusCode::OK
    } else {
        StatusCode::ACCEPTED
    };

    Ok((
        status,
        [(header::LOCATION, location)],
        resource::show::<MessageResource>(api, key).await?,
    )
        .into_response())
}

fn exists(key: &InstanceKey) -> Problem {
    let detail = format!(
        "a message \"{}\" with another content exists; use another Idempotency-Key",
        key.correlation
    );
    Problem::new(Code::MessageExists, detail)
}

/// Returns the message of a request.
///
/// # Errors
/// If a field is invalid; the problem names it.
async fn message(
    messages: &MessageExchange,
    key: &InstanceKey,
    body: SendBody,
    user: Option<String>,
) -> Result<Message, Problem> {
    let node = messages.own_node()?.clone();
    let SendBody {
        to,
        kind,
        format,
        subject,
        body,
        flow,
        thread,
        ..
    } = body;

    let to = if to.contains('@') {
        to
    } else {
        format!("{to}@{node}")
    };
    let to: ContextAddress = to
        .parse()
        .map_err(|error: orlog_model::AddressError| invalid("to", error.to_string()))?;
    messages.check_node(&to.node)?;

    let thread = thread.unwrap_or_else(|| key.correlation.to_string());
    let body = match (kind, body, flow) {
        (MessageType::Job, None, Some(Value::String(text))) => text,
        (MessageType::Job, None, Some(flow)) => flow.to_string(),
        (MessageType::Job, _, _) => {
            return Err(invalid("flow", "a job has a flow and no body").into());
        }
        (MessageType::Chat | MessageType::Mail, Some(body), None) => body,
        (MessageType::Chat | MessageType::Mail, _, _) => {
            return Err(invalid("body", "a chat or mail has a body and no flow").into());
        }
    };

    let from = ContextAddress {
        context: key.tenant.clone(),
        node,
    };
    let id = key.correlation.clone();
    // The saga sets the time at which it stores the message.
    let sent_at = Timestamp::from_millis(0);
    let message = Message {
        id,
        from,
        to,
        kind,
        format,
        thread,
        subject,
        body,
        user,
        sent_at,
    };
    check_fields(&message)?;
    check_flow(&message).await?;

    Ok(message)
}

fn timeouts(body: &TimeoutsBody, kind: MessageType) -> Result<Timeouts, Problem> {
    let parsed = |name: &str, text: &Option<String>| -> Result<Option<Duration>, Problem> {
        let Some(text) = text else { return Ok(None) };
        let field = format!("timeouts.{name}");
        let duration = parse_duration(text)
            .map_err(|error| invalid(&field, format!("invalid duration {text:?}: {error}")))?;
        if duration.is_zero() || duration > MAX_TIMEOUT {
            return Err(invalid(&field, format!("{text:?} is not between 1ms and 366d")).into());
        }

        Ok(Some(duration))
    };

    let default = Timeouts::of(kind);
    Ok(Timeouts {
        delivery: parsed("delivery", &body.delivery)?.unwrap_or(default.delivery),
        acknowledgement: parsed("acknowledgement", &body.acknowledgement)?
            .or(default.acknowledgement),
        result: parsed("result", &body.result)?.or(default.result),
    })
}

/// Returns whether a caller may also do in another tenant what a message causes there.
fn acts_for(
    access: &Access,
    authenticated: &Caller,
    tenant: &TenantId,
    kind: MessageType,
) -> Result<bool, Problem> {
    let mut caller = authenticated.clone();
    access.registry().enter(&mut caller, tenant)?;
    let right = if kind == MessageType::Job {
        Right::Control
    } else {
        Right::Work
    };
    Ok(caller.tenants.contains(tenant) && caller.roles.allow(right))
}
