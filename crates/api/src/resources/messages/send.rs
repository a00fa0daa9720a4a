//! `POST /v1/messages`: sends a message, and waits for its end if requested.

use std::time::Duration;

use axum::Extension;
use axum::extract::State;
use axum::http::{HeaderMap, HeaderValue, StatusCode, Uri, header};
use axum::response::{IntoResponse, Response};
use orlog_model::{
    ContextAddress, InstanceKey, TenantId, Timestamp, is_direction_control, parse_duration,
};
use orlog_sagas::flow;
use orlog_sagas::message::{
    self, MAX_MESSAGE_BYTES, Message, MessageFormat, MessageType, SendMessage, Timeouts,
};
use serde::Deserialize;
use serde_json::{Value, json};
use utoipa::{IntoParams, ToSchema};

use super::node::{check_node, own_node};
use super::view;
use super::view::MessageView;
use crate::resources::events::takes_work;
use crate::resources::flows::submit::invalid_flow;
use crate::resources::sagas::built_in;
use crate::resources::sagas::control::{ControlCaller, send_control};
use crate::resources::sagas::result::{await_end, wait};
use crate::server::admission::Admission;
use crate::server::blocking::run_blocking;
use crate::server::body::{self, CheckedBody};
use crate::server::extract::{QueryParams, Tenant};
use crate::server::forward;
use crate::server::parts::access::Access;
use crate::server::parts::instances::Instances;
use crate::server::parts::peer_network::PeerNetwork;
use crate::server::problem::{Code, Problem, ProblemDetail};
use orlog_node::auth::{Caller, Right};
use orlog_node::messages;

/// Maximum length of the subject and of the thread, in bytes.
const MAX_TEXT_BYTES: usize = 200;
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
    State(peers): State<PeerNetwork>,
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
        messages::sent_key(tenant.clone(), id)
    })?;
    if let Some(response) =
        forward::to_owner(&instances.cluster, &key, &uri, None, &headers, &bytes).await?
    {
        return Ok(response);
    }

    let timeouts = timeouts(&body.timeouts, body.kind)?;
    let message = message(&peers, &key, body, user.clone()).await?;
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

    let provided = ControlCaller {
        id: None,
        user,
        reason: None,
        expected_version: None,
        wait_token: None,
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
        if problem.code() == Code::InvalidStatus.as_str() {
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
        view(api, key).await?,
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

fn invalid(field: &str, detail: impl Into<String>) -> Problem {
    let detail = detail.into();
    let pointer = ProblemDetail {
        pointer: format!("/{}", field.replace('.', "/")),
        detail: detail.clone(),
    };
    Problem::new(Code::InvalidMessage, format!("{field}: {detail}")).with(vec![pointer])
}

/// Returns the message of a request.
///
/// # Errors
/// If a field is invalid; the problem names it.
async fn message(
    peers: &PeerNetwork,
    key: &InstanceKey,
    body: SendBody,
    user: Option<String>,
) -> Result<Message, Problem> {
    let node = own_node(peers)?;
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
    check_node(peers, &to.node)?;

    let thread = thread.unwrap_or_else(|| key.correlation.to_string());
    let body = match (kind, body, flow) {
        (MessageType::Job, None, Some(Value::String(text))) => text,
        (MessageType::Job, None, Some(flow)) => flow.to_string(),
        (MessageType::Job, _, _) => {
            return Err(invalid("flow", "a job has a flow and no body".to_owned()));
        }
        (MessageType::Chat | MessageType::Mail, Some(body), None) => body,
        (MessageType::Chat | MessageType::Mail, _, _) => {
            return Err(invalid(
                "body",
                "a chat or mail has a body and no flow".to_owned(),
            ));
        }
    };

    let from = ContextAddress {
        context: key.tenant.clone(),
        node,
    };
    let id = key.correlation.clone();
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

/// Checks the texts and the size of a message, at its sender and again at its receiver.
///
/// # Errors
/// If a field is invalid; the problem names it.
pub(super) fn check_fields(message: &Message) -> Result<(), Problem> {
    check_line("thread", &message.thread)?;
    for (field, text) in [
        ("subject", message.subject.as_ref()),
        ("user", message.user.as_ref()),
    ] {
        text.map_or(Ok(()), |text| check_line(field, text))?;
    }

    let size = message.size();
    if size > MAX_MESSAGE_BYTES {
        return Err(body::too_large(
            &format!("the message has {size} bytes"),
            MAX_MESSAGE_BYTES as u64,
        ));
    }
    Ok(())
}

/// Checks whether the flow of a job compiles.
///
/// # Errors
/// All diagnostics.
pub(super) async fn check_flow(message: &Message) -> Result<(), Problem> {
    if message.kind != MessageType::Job {
        return Ok(());
    }

    let text = message.body.clone();
    run_blocking(move || match flow::compile(&text, "flow") {
        Ok(_) => Ok(()),
        Err(diagnostics) => Err(invalid_flow(&diagnostics)),
    })
    .await
}

/// Rejects a text that is no line: mail headers and lists contain it.
fn check_line(field: &str, text: &str) -> Result<(), Problem> {
    let limit = MAX_TEXT_BYTES;
    if text.is_empty() || text.len() > limit {
        return Err(invalid(
            field,
            format!("it has {} bytes; it must have 1 to {limit}", text.len()),
        ));
    }
    if text
        .chars()
        .any(|character| character.is_control() || is_direction_control(character))
    {
        return Err(invalid(
            field,
            "it contains a control character; remove it".to_owned(),
        ));
    }

    Ok(())
}

fn timeouts(body: &TimeoutsBody, kind: MessageType) -> Result<Timeouts, Problem> {
    let parsed = |name: &str, text: &Option<String>| -> Result<Option<Duration>, Problem> {
        let Some(text) = text else { return Ok(None) };
        let field = format!("timeouts.{name}");
        let duration = parse_duration(text)
            .map_err(|error| invalid(&field, format!("invalid duration {text:?}: {error}")))?;
        if duration.is_zero() || duration > MAX_TIMEOUT {
            return Err(invalid(
                &field,
                format!("{text:?} is not between 1ms and 366d"),
            ));
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
