//! `POST /v1/peer/messages`: receives messages, and reports about messages, from the nodes of other
//! contexts.
//!
//! The signature of the request proves which node sends it. A message is accepted only from the
//! node of its sender, a report only from the node of the receiver of its message. A context that
//! does not exist and one that does not accept the message give the same response.

use axum::Extension;
use axum::Json;
use axum::http::{HeaderMap, Uri};
use axum::response::{IntoResponse, Response};
use orlog_model::{ControlRequest, EventId, InstanceKey, NodeName};
use orlog_program::{ProgramError, SagaState as _};
use orlog_sagas::message::{
    self, Delivery, MAX_LINES, MAX_MESSAGE_BYTES, MailTarget, Message, MessageType, ReceiveMessage,
    ReceivedMessage, Report, SentMessage,
};
use serde::Serialize;
use serde_json::{Value, json};
use uuid::Uuid;

use super::node::own_node;
use super::parts::MessageParts;
use super::send::{check_fields, check_flow};
use crate::resources::events::takes_work;
use crate::resources::sagas::built_in::signal;
use crate::server::body::{self, CheckedBody};
use crate::server::context::RequestContext;
use crate::server::forward;
use crate::server::parts::instances::Instances;
use crate::server::parts::peer_network::PeerNetwork;
use crate::server::problem::{Code, Problem};
use orlog_node::auth::Caller;
use orlog_node::messages::peer_message::{PeerMessage, StatusReport};
use orlog_node::messages::{received_key, sent_key};

/// Maximum size of a report in JSON, in bytes: a result, and lines that JSON escapes.
pub(super) const MAX_REPORT_BYTES: usize = 2 * MAX_MESSAGE_BYTES;

/// Receive a message or a report of another node
///
/// A peer signs the request. The response follows when its effect is durable; a repetition has no
/// further effect.
#[utoipa::path(
    post,
    path = "/v1/peer/messages",
    tag = "messages",
    request_body(content = Value, description = "A delivery, a withdrawal or a report"),
    responses((
        status = 200,
        description = "Durable; the response to a delivery is the status of the message",
        body = Value
    ))
)]
pub(crate) async fn receive(
    parts: MessageParts,
    Extension(caller): Extension<Caller>,
    uri: Uri,
    headers: HeaderMap,
    CheckedBody(bytes): CheckedBody,
) -> Result<Response, Problem> {
    let peer = caller.peer.ok_or_else(Problem::not_a_peer)?;
    let bodies = parts.instances.request.bodies();
    let request: PeerMessage = bodies.parse(&bytes, body::parse).await?;
    let key = subject(&parts.peers, &peer, &request)?;
    if let Some(response) =
        forward::to_owner(&parts.instances.cluster, &key, &uri, None, &headers, &bytes).await?
    {
        return Ok(response);
    }
    Ok(Json(apply(&parts, &peer, key, request).await?).into_response())
}

/// Returns the instance that a request concerns.
///
/// # Errors
/// If the request does not belong to the node that sends it, or to this node.
pub(super) fn subject(
    peers: &PeerNetwork,
    sender: &NodeName,
    request: &PeerMessage,
) -> Result<InstanceKey, Problem> {
    let own = own_node(peers)?;
    let (from, to, what) = match request {
        PeerMessage::Deliver {
            delivery: Delivery { message, .. },
            ..
        } => (&message.from, &message.to, "message"),
        PeerMessage::Report(report) => (&report.to, &report.from, "report"),
    };
    // The key of a peer proves its node only; it must not speak for the contexts of others.
    if from.node != *sender {
        let detail = format!(
            "a {what} of {from} cannot come from the node {sender}, which signed the request"
        );
        return Err(Problem::new(Code::MessageMisaddressed, detail));
    }
    if to.node != own {
        let detail = format!(
            "the {what} is for {to}, and this is the node {own}; check the address of the peer"
        );
        return Err(Problem::new(Code::MessageMisaddressed, detail));
    }

    match request {
        PeerMessage::Deliver { delivery, .. } => {
            let id = message::check_id(delivery.message.id.as_str());
            id.map_err(|error| Problem::new(Code::InvalidMessage, error))?;
            Ok(received_key(&delivery.message))
        }
        PeerMessage::Report(report) => {
            let key = sent_key(report.from.context.clone(), report.id.as_str());
            key.map_err(|error| Problem::new(Code::InvalidMessage, error))
        }
    }
}

/// Executes a request of `sender` whose instance is in this process. The response follows its
/// commit.
pub(super) async fn apply(
    parts: &MessageParts,
    sender: &NodeName,
    key: InstanceKey,
    request: PeerMessage,
) -> Result<Value, Problem> {
    match request {
        PeerMessage::Deliver {
            delivery,
            acts_for_receiver,
        } => {
            // Another node cannot know what its users may do here.
            let acts_for_receiver = acts_for_receiver && *sender == own_node(&parts.peers)?;
            deliver(parts, key, delivery, acts_for_receiver)
                .await
                .map(|report| json!(report))
        }
        PeerMessage::Report(report) => accept(parts, key, report).await.map(|()| Value::Null),
    }
}

/// Delivers or withdraws a message.
async fn deliver(
    parts: &MessageParts,
    key: InstanceKey,
    delivery: Delivery,
    acts_for_receiver: bool,
) -> Result<Report, Problem> {
    let Delivery { message, withdrawn } = &delivery;
    let stored = stored(&parts.instances.request, &key, ReceivedMessage::decode).await?;
    match &stored {
        // The sender repeats a delivery whose answer it did not receive. The lists may have changed
        // since.
        Some(stored) if withdrawn.is_none() => {
            return if stored.is_withdrawn() || stored.message == *message {
                Ok(stored.report())
            } else {
                Err(exists(message))
            };
        }
        Some(_) => {}
        None => {
            permit(parts, message, acts_for_receiver).await?;
            check_fields(message)?;
            if withdrawn.is_none() {
                check_flow(message).await?;
            }
            takes_work(&parts.instances.request)?;
        }
    }

    if withdrawn
        .as_ref()
        .is_some_and(|reason| reason.len() > MAX_REPORT_BYTES)
    {
        return Err(Problem::new(
            Code::InvalidMessage,
            "the reason of the withdrawal is too long",
        ));
    }

    let from = message.from.to_string();
    let received = ReceiveMessage {
        mail: mail_target(parts, message),
        delivery: delivery.clone(),
    };
    let sent = control(
        &parts.instances,
        &key,
        from,
        message::DELIVER,
        json!(received),
    )
    .await;
    sent.map_err(|problem| {
        if problem.code() == Code::InvalidStatus.as_str() {
            exists(message)
        } else {
            problem
        }
    })?;

    let stored = self::stored(&parts.instances.request, &key, ReceivedMessage::decode).await?;
    let stored = stored.ok_or_else(|| {
        let detail = "the shard of the receiver is moving; try again";
        Problem::new(Code::Unavailable, detail)
    })?;
    Ok(stored.report())
}

/// Returns the target of a message that this node also sends by SMTP: the actors of the context of
/// the receiver, never a choice of the sender.
fn mail_target(parts: &MessageParts, message: &Message) -> Option<MailTarget> {
    let effect = parts.peers.mail_effect()?;
    (message.kind == MessageType::Mail).then(|| MailTarget {
        effect,
        to: parts.access.registry().mail_addresses(&message.to.context),
    })
}

fn exists(message: &Message) -> Problem {
    let detail = format!(
        "{} has a message \"{}\" of {} with another content",
        message.to, message.id, message.from
    );
    Problem::new(Code::MessageExists, detail)
}

/// Rejects a message that its receiver does not accept, in the same way as one for a context that
/// does not exist.
async fn permit(
    parts: &MessageParts,
    message: &Message,
    acts_for_receiver: bool,
) -> Result<(), Problem> {
    let Message { from, to, kind, .. } = message;
    let is_job = *kind == MessageType::Job;
    let is_accepted = parts
        .access
        .registry()
        .accepts_messages(&to.context, from, is_job, acts_for_receiver)
        .await?;
    if is_accepted && parts.access.tenants().admits(&to.context) {
        return Ok(());
    }

    let lists = if is_job {
        "its executors do not contain"
    } else {
        "none of its lists contains"
    };
    let detail = format!("{to} does not exist, or {lists} context:{from}");
    Err(Problem::new(Code::MessageDenied, detail))
}

/// Applies a report to the message that it concerns.
async fn accept(
    parts: &MessageParts,
    key: InstanceKey,
    status: StatusReport,
) -> Result<(), Problem> {
    let size = json_size(&status.report);
    if size > MAX_REPORT_BYTES {
        return Err(body::too_large(
            &format!("the report has {size} bytes"),
            MAX_REPORT_BYTES as u64,
        ));
    }
    if status.report.lines.len() > MAX_LINES {
        let detail = format!(
            "the report has {} lines, the limit is {MAX_LINES}",
            status.report.lines.len()
        );
        return Err(Problem::new(Code::InvalidMessage, detail));
    }

    let sent = stored(&parts.instances.request, &key, SentMessage::decode).await?;
    let Some(sent) = sent.filter(|sent| sent.message.to == status.to) else {
        let detail = format!(
            "{} sent no message \"{}\" to {}",
            status.from, status.id, status.to
        );
        return Err(Problem::new(Code::MessageNotFound, detail));
    };
    if sent.status.is_final() {
        return Ok(());
    }

    control(
        &parts.instances,
        &key,
        status.to.to_string(),
        message::REPORT,
        json!(status.report),
    )
    .await
}

/// Returns the size of a value in JSON, in bytes.
pub(super) fn json_size(value: &impl Serialize) -> usize {
    serde_json::to_vec(value).map_or(usize::MAX, |text| text.len())
}

/// Returns the state of a message; `None` if there is none.
pub(super) async fn stored<S: Send + 'static>(
    api: &RequestContext,
    key: &InstanceKey,
    decode: fn(&[u8]) -> Result<S, ProgramError>,
) -> Result<Option<S>, Problem> {
    let key = key.clone();
    api.read(move |scope| {
        let instance = scope
            .reader(&key)
            .ok_or_else(Problem::moving)?
            .instance(&key)?;
        let state = instance.map(|instance| decode(&instance.state)).transpose();
        state.map_err(|error| {
            Problem::new(Code::StoreError, format!("{}: {error}", key.correlation))
        })
    })
    .await
}

/// Sends a signal to a message; returns after its commit is durable.
async fn control(
    instances: &Instances,
    key: &InstanceKey,
    from: String,
    kind: &str,
    data: Value,
) -> Result<(), Problem> {
    let control = ControlRequest {
        // The programs ignore repetitions.
        id: EventId::new(format!("control:{}", Uuid::now_v7()))
            .expect("an id in this format is short ASCII"),
        action: signal(kind, data),
        expected_version: None,
        at: instances.request.now(),
        user: Some(from),
        reason: None,
        trace: instances.request.scope.trace.clone(),
        wait_token: None,
    };
    instances.control(key, control).await?;

    Ok(())
}
