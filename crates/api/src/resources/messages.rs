//! `/v1/messages`: sends, lists, shows and changes messages. The response to a change arrives after
//! its commit is durable.

pub(crate) mod list;
pub(crate) mod peer;
pub(crate) mod send;
mod view;

use axum::extract::Path;
use axum::{Extension, Json};
use orlog_model::{ControlAction, InstanceKey, TenantId};
use orlog_sagas::message::{self, ProcessMessage};
use serde::Deserialize;
use serde_json::{Value, json};
use utoipa::{IntoParams, ToSchema};

use crate::resources::sagas::built_in::{self, signal};
use crate::resources::sagas::control::{ControlBody, ControlCaller, instruct, send_control};
use crate::server::body::{self, CheckedBody};
use crate::server::context::RequestContext;
use crate::server::errors::invalid_parameter;
use crate::server::extract::Tenant;
use crate::server::parts::instances::Instances;
use crate::server::problem::{Code, Problem};
use orlog_node::auth::Caller;
use orlog_node::messages;
use view::MessageView;

/// Maximum size of a result in JSON, in bytes, as of the results of a flow.
const MAX_RESULT_BYTES: usize = 192 * 1024;

/// Path of a message.
#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Path)]
pub(crate) struct MessagePath {
    /// Id of the message, percent-encoded
    id: String,
}

/// Result of a message.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ProcessBody {
    /// Result for the sender. Default: `null`.
    #[serde(default)]
    result: Value,
    /// User name recorded in the history.
    user: Option<String>,
}

/// Reason of a rejection.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct RejectBody {
    /// Reason for the sender.
    reason: String,
    /// User name recorded in the history.
    user: Option<String>,
}

/// Line of the log of a message.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct LineBody {
    /// Text for the sender; at most 1 KiB.
    text: String,
    /// User name recorded in the history.
    user: Option<String>,
}

/// Show a message
///
/// Its status, content, lines and result. The id of a received message starts with `in-`.
#[utoipa::path(
    get,
    path = "/v1/messages/{id}",
    tag = "messages",
    params(MessagePath),
    responses((status = 200, description = "The message", body = MessageView))
)]
pub(crate) async fn show(
    api: RequestContext,
    Tenant(tenant): Tenant,
    Path(path): Path<MessagePath>,
) -> Result<Json<MessageView>, Problem> {
    view(&api, key(tenant, &path)?).await
}

/// Cancel a sent message
///
/// Its status is `error`. The receiver withdraws it, and stops the flow of a job.
#[utoipa::path(
    post,
    path = "/v1/messages/{id}/cancel",
    tag = "messages",
    params(MessagePath),
    request_body(content = Option<ControlBody>),
    responses((status = 200, description = "Durable", body = MessageView))
)]
pub(crate) async fn cancel(
    instances: Instances,
    Extension(caller): Extension<Caller>,
    Tenant(tenant): Tenant,
    Path(path): Path<MessagePath>,
    body: CheckedBody,
) -> Result<Json<MessageView>, Problem> {
    let key = key(tenant, &path)?;
    require(
        &key,
        message::SAGA,
        "only its sender cancels a message; reject it instead",
    )?;

    let sent = instruct(&instances, &caller, &key, &body, |reason| {
        ControlAction::Cancel { reason }
    })
    .await;
    drop(sent.map_err(|problem| named(problem, &key))?);
    view(&instances.request, key).await
}

/// Acknowledge a received message
#[utoipa::path(
    post,
    path = "/v1/messages/{id}/acknowledge",
    tag = "messages",
    params(MessagePath),
    request_body(content = Option<ControlBody>),
    responses((status = 200, description = "Durable", body = MessageView))
)]
pub(crate) async fn acknowledge(
    instances: Instances,
    Extension(caller): Extension<Caller>,
    Tenant(tenant): Tenant,
    Path(path): Path<MessagePath>,
    body: CheckedBody,
) -> Result<Json<MessageView>, Problem> {
    let key = received(tenant, &path)?;
    let sent = instruct(&instances, &caller, &key, &body, |_| {
        signal(message::ACKNOWLEDGE, Value::Null)
    })
    .await;
    drop(sent.map_err(|problem| named(problem, &key))?);
    view(&instances.request, key).await
}

/// End a received message with a result for its sender
///
/// The flow of a job does this.
#[utoipa::path(
    post,
    path = "/v1/messages/{id}/process",
    tag = "messages",
    params(MessagePath),
    request_body(content = Option<ProcessBody>),
    responses((status = 200, description = "Durable", body = MessageView))
)]
pub(crate) async fn process(
    instances: Instances,
    Extension(caller): Extension<Caller>,
    Tenant(tenant): Tenant,
    Path(path): Path<MessagePath>,
    body: CheckedBody,
) -> Result<Json<MessageView>, Problem> {
    let ProcessBody { result, user } = body.optional()?;
    let size = serde_json::to_vec(&result).map_or(usize::MAX, |text| text.len());
    if size > MAX_RESULT_BYTES {
        return Err(body::too_large(
            &format!("the result has {size} bytes"),
            MAX_RESULT_BYTES as u64,
        ));
    }

    let action = signal(message::PROCESS, json!(ProcessMessage { result }));
    change(&instances, &caller, received(tenant, &path)?, user, action).await
}

/// End a received message with an error for its sender
#[utoipa::path(
    post,
    path = "/v1/messages/{id}/reject",
    tag = "messages",
    params(MessagePath),
    request_body = RejectBody,
    responses((status = 200, description = "Durable", body = MessageView))
)]
pub(crate) async fn reject(
    instances: Instances,
    Extension(caller): Extension<Caller>,
    Tenant(tenant): Tenant,
    Path(path): Path<MessagePath>,
    CheckedBody(bytes): CheckedBody,
) -> Result<Json<MessageView>, Problem> {
    let RejectBody { reason, user } = instances
        .request
        .bodies()
        .parse(&bytes, body::parse)
        .await?;
    check_text("reason", &reason)?;
    let action = signal(message::REJECT, json!({ "reason": reason }));
    change(&instances, &caller, received(tenant, &path)?, user, action).await
}

/// Add a line to the log of a received message
///
/// The sender sees the last 100 lines.
#[utoipa::path(
    post,
    path = "/v1/messages/{id}/lines",
    tag = "messages",
    params(MessagePath),
    request_body = LineBody,
    responses((status = 200, description = "Durable", body = MessageView))
)]
pub(crate) async fn add_line(
    instances: Instances,
    Extension(caller): Extension<Caller>,
    Tenant(tenant): Tenant,
    Path(path): Path<MessagePath>,
    CheckedBody(bytes): CheckedBody,
) -> Result<Json<MessageView>, Problem> {
    let LineBody { text, user } = instances
        .request
        .bodies()
        .parse(&bytes, body::parse)
        .await?;
    check_text("text", &text)?;
    let action = signal(message::LINE, json!({ "text": text }));
    change(&instances, &caller, received(tenant, &path)?, user, action).await
}

/// Sends a control request to a message, and returns the message.
async fn change(
    instances: &Instances,
    caller: &Caller,
    key: InstanceKey,
    user: Option<String>,
    action: ControlAction,
) -> Result<Json<MessageView>, Problem> {
    let provided = ControlCaller {
        id: None,
        user,
        reason: None,
        expected_version: None,
        wait_token: None,
    };
    let sent = send_control(instances, caller, &key, provided, action).await;
    drop(sent.map_err(|problem| named(problem, &key))?);

    view(&instances.request, key).await
}

fn key(tenant: TenantId, path: &MessagePath) -> Result<InstanceKey, Problem> {
    messages::key(tenant, &path.id).map_err(|error| invalid_parameter("id", error))
}

/// Returns the key of a received message.
fn received(tenant: TenantId, path: &MessagePath) -> Result<InstanceKey, Problem> {
    let key = key(tenant, path)?;
    require(
        &key,
        message::INBOX_SAGA,
        "only its receiver changes a message; its id starts with \"in-\"",
    )?;
    Ok(key)
}

fn require(key: &InstanceKey, saga: &str, reason: &str) -> Result<(), Problem> {
    if key.saga.as_str() == saga {
        Ok(())
    } else {
        Err(invalid_parameter("id", reason.to_owned()))
    }
}

/// Rejects a text for the sender that is too long for a line.
fn check_text(field: &str, text: &str) -> Result<(), Problem> {
    if text.len() > message::MAX_LINE_BYTES {
        let detail = format!(
            "{field} has {} bytes, the limit is {}",
            text.len(),
            message::MAX_LINE_BYTES
        );
        return Err(Problem::new(Code::InvalidMessage, detail));
    }
    Ok(())
}

/// Names the message in the problem of an instance that does not exist.
fn named(problem: Problem, key: &InstanceKey) -> Problem {
    if problem.code() == Code::InstanceNotFound.as_str() {
        missing(key)
    } else {
        problem
    }
}

fn missing(key: &InstanceKey) -> Problem {
    Problem::new(
        Code::MessageNotFound,
        format!("no message \"{}\"", key.correlation),
    )
}

async fn view(api: &RequestContext, key: InstanceKey) -> Result<Json<MessageView>, Problem> {
    built_in::show(api, key, missing, MessageView::read)
        .await
        .map(Json)
}
