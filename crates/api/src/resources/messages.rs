//! `/v1/messages`: sends, lists, shows and changes messages. The response to a change arrives after
//! its commit is durable.

pub(crate) mod list;
pub(crate) mod peer;
pub(crate) mod send;
mod view;

use orlog_model::{Instance, InstanceKey, TenantId, json_length};
use orlog_sagas::message::{self, ProcessMessage};
use serde::Deserialize;
use serde_json::{Value, json};
use utoipa::ToSchema;

use crate::resources::sagas::control::ControlBody;
use crate::resources::sagas::resource::{
    self, Changed, Changes, NamedInPath as _, Resource, Verb, resource,
};
use crate::server::body::{self, CheckedBody};
use crate::server::errors::invalid_parameter;
use crate::server::extract::{PathParams, Tenant};
use crate::server::problem::{Code, Problem};
use crate::server::read_scope::ReadScope;
use orlog_node::messages;
use view::MessageView;

/// Maximum size of a result in JSON, in bytes, as of the results of a flow.
const MAX_RESULT_BYTES: usize = 192 * 1024;

/// Messages as a resource.
pub(crate) struct MessageResource;

impl Resource for MessageResource {
    const NOT_FOUND: Code = Code::MessageNotFound;
    type View = MessageView;

    fn key(tenant: TenantId, id: &str) -> Result<InstanceKey, String> {
        messages::key(tenant, id)
    }

    fn missing(key: &InstanceKey) -> String {
        format!("no message \"{}\"", key.correlation)
    }

    fn view(
        scope: &ReadScope,
        key: &InstanceKey,
        instance: &Instance,
    ) -> Result<Option<MessageView>, Problem> {
        MessageView::read(scope, key, instance)
    }

    /// A sent message and a received one have changes of their own.
    async fn permit(_: &Changes, key: &InstanceKey, verb: Verb) -> Result<(), Problem> {
        let (saga, reason) = match verb {
            Verb::Cancel => (
                message::SAGA,
                "only its sender cancels a message; reject it instead",
            ),
            Verb::Signal(_) => (
                message::INBOX_SAGA,
                "only its receiver changes a message; its id starts with \"in-\"",
            ),
        };
        if key.saga.as_str() == saga {
            Ok(())
        } else {
            Err(invalid_parameter(Self::PARAMETER, reason))
        }
    }
}

resource! {
    MessageResource, "messages", MessagePath { id: "Id of the message, percent-encoded" }

    show "/v1/messages/{id}" -> MessageView, "The message" {
        /// Show a message
        ///
        /// Its status, content, lines and result. The id of a received message starts with `in-`.
    }

    change cancel "/v1/messages/{id}/cancel" -> MessageView
        = Verb::Cancel, {
        /// Cancel a sent message
        ///
        /// Its status is `error`. The receiver withdraws it, and stops the flow of a job.
    }

    change acknowledge "/v1/messages/{id}/acknowledge" -> MessageView
        = Verb::Signal(message::ACKNOWLEDGE), {
        /// Acknowledge a received message
    }
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

/// End a received message with a result for its sender
///
/// The flow of a job does this.
#[utoipa::path(
    post,
    path = "/v1/messages/{id}/process",
    tag = "messages",
    params(MessagePath),
    request_body(content = Option<ProcessBody>),
    responses(
        (status = 200, description = "Durable", body = MessageView),
        (
            status = 202,
            description = "Durable; applied when the paused instance is resumed",
            body = Changed<MessageView>
        )
    )
)]
pub(crate) async fn process(
    changes: Changes,
    Tenant(tenant): Tenant,
    PathParams(path): PathParams<MessagePath>,
    body: CheckedBody,
) -> Result<Changed<MessageView>, Problem> {
    let key = resource::key::<MessageResource>(tenant, &path.id)?;
    let verb = Verb::Signal(message::PROCESS);
    let change = changes.permit::<MessageResource>(key, verb).await?;
    let ProcessBody { result, user } = body.optional()?;
    let size = json_length(&result);
    if size > MAX_RESULT_BYTES {
        return Err(body::too_large(
            &format!("the result has {size} bytes"),
            MAX_RESULT_BYTES as u64,
        ));
    }

    let data = json!(ProcessMessage { result });
    change.show(by(user), data).await
}

/// End a received message with an error for its sender
#[utoipa::path(
    post,
    path = "/v1/messages/{id}/reject",
    tag = "messages",
    params(MessagePath),
    request_body = RejectBody,
    responses(
        (status = 200, description = "Durable", body = MessageView),
        (
            status = 202,
            description = "Durable; applied when the paused instance is resumed",
            body = Changed<MessageView>
        )
    )
)]
pub(crate) async fn reject(
    changes: Changes,
    Tenant(tenant): Tenant,
    PathParams(path): PathParams<MessagePath>,
    CheckedBody(bytes): CheckedBody,
) -> Result<Changed<MessageView>, Problem> {
    let key = resource::key::<MessageResource>(tenant, &path.id)?;
    let verb = Verb::Signal(message::REJECT);
    let change = changes.permit::<MessageResource>(key, verb).await?;
    let RejectBody { reason, user } = changes
        .instances
        .request
        .bodies()
        .parse(&bytes, body::parse)
        .await?;
    check_text("reason", &reason)?;
    change.show(by(user), json!({ "reason": reason })).await
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
    responses(
        (status = 200, description = "Durable", body = MessageView),
        (
            status = 202,
            description = "Durable; applied when the paused instance is resumed",
            body = Changed<MessageView>
        )
    )
)]
pub(crate) async fn add_line(
    changes: Changes,
    Tenant(tenant): Tenant,
    PathParams(path): PathParams<MessagePath>,
    CheckedBody(bytes): CheckedBody,
) -> Result<Changed<MessageView>, Problem> {
    let key = resource::key::<MessageResource>(tenant, &path.id)?;
    let verb = Verb::Signal(message::LINE);
    let change = changes.permit::<MessageResource>(key, verb).await?;
    let LineBody { text, user } = changes
        .instances
        .request
        .bodies()
        .parse(&bytes, body::parse)
        .await?;
    check_text("text", &text)?;
    change.show(by(user), json!({ "text": text })).await
}

/// Returns the options of a change by a user.
fn by(user: Option<String>) -> ControlBody {
    ControlBody {
        user,
        ..ControlBody::default()
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
