//! Content of a message, and the data of the signals that send, deliver and end it.

use std::time::Duration;

use orlog_model::{
    ContextAddress, CorrelationId, Timestamp, derive_child_id, derive_id, json_length,
};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use uuid::Uuid;

/// Maximum length of the id of a message, in bytes.
pub const MAX_ID_BYTES: usize = 100;
/// Prefix of the ids of received messages, which the ids of sent messages do not have.
pub const INBOX_PREFIX: &str = "in-";
/// Maximum size of a message in JSON, in bytes. It is a part of the states of two instances.
pub const MAX_MESSAGE_BYTES: usize = 256 * 1024;

/// Type of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MessageType {
    /// Executes a flow in the context of the receiver.
    Job,
    /// Part of a conversation.
    Chat,
    /// Letter, which the node of the receiver may also send by SMTP.
    Mail,
}

impl MessageType {
    /// All types.
    pub const ALL: [Self; 3] = [Self::Job, Self::Chat, Self::Mail];

    /// Returns the name.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Job => "job",
            Self::Chat => "chat",
            Self::Mail => "mail",
        }
    }
}

/// Format of the body of a message.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MessageFormat {
    /// HTML.
    Html,
    /// Plain text.
    #[default]
    Text,
    /// Markdown.
    Md,
}

/// Message, as it is sent to the node of the receiver.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Message {
    /// Id that the sender chose, unique in its context.
    pub id: CorrelationId,
    /// Context of the sender.
    pub from: ContextAddress,
    /// Context of the receiver.
    pub to: ContextAddress,
    /// Type.
    #[serde(rename = "type")]
    pub kind: MessageType,
    /// Format of the body.
    pub format: MessageFormat,
    /// Id of the conversation.
    pub thread: String,
    /// Subject.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub subject: Option<String>,
    /// Body; for a job, the text of its flow.
    pub body: String,
    /// User who sent it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
    /// Time of the submission at the node of the sender.
    pub sent_at: Timestamp,
}

impl Message {
    /// Returns the size in JSON, in bytes.
    #[must_use]
    pub fn size(&self) -> usize {
        json_length(self)
    }

    /// Returns the message without what only a receiver that executes it needs.
    #[must_use]
    pub fn without_body(&self) -> Self {
        Self {
            body: String::new(),
            ..self.clone()
        }
    }

    /// Returns whether both are the same message; a repetition of its submission has another time.
    pub(super) fn is_same(&self, other: &Self) -> bool {
        Self {
            sent_at: other.sent_at,
            ..self.clone()
        } == *other
    }
}

/// Timeouts of a message. Each one begins when the one before ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Timeouts {
    /// From the submission to the durable answer of the receiver.
    pub delivery: Duration,
    /// From the delivery to the acknowledgement; `None`: unlimited.
    pub acknowledgement: Option<Duration>,
    /// From the acknowledgement to the result; `None`: unlimited.
    pub result: Option<Duration>,
}

impl Timeouts {
    /// Returns the default timeouts of a type.
    #[must_use]
    pub fn of(kind: MessageType) -> Self {
        const DAY: Duration = Duration::from_hours(24);
        Self {
            delivery: 7 * DAY,
            acknowledgement: Some(DAY),
            result: (kind == MessageType::Job).then_some(7 * DAY),
        }
    }
}

/// Data of the signal [`super::SEND`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SendMessage {
    /// Message.
    pub message: Message,
    /// Timeouts.
    pub timeouts: Timeouts,
    /// Whether the user who sends it may also act in the context of the receiver, on the same node.
    pub acts_for_receiver: bool,
}

/// Delivery or withdrawal, as the node of the sender sends it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Delivery {
    /// Message; without a body if it is withdrawn.
    pub message: Message,
    /// Reason, if the sender withdraws the message.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub withdrawn: Option<String>,
}

/// Data of the signal [`super::PROCESS`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ProcessMessage {
    /// Result for the sender.
    #[serde(default)]
    pub result: Value,
}

/// Checks the id of a message.
///
/// # Errors
/// If it cannot be a correlation id, is too long, or has the form of the id of a received message.
pub fn check_id(id: &str) -> Result<CorrelationId, String> {
    let checked = CorrelationId::for_path(id)
        .map_err(|error| error.to_string().replace("correlation id", "message id"))?;

    if id.len() > MAX_ID_BYTES {
        return Err(format!(
            "message id has {} bytes, the limit is {MAX_ID_BYTES}",
            id.len()
        ));
    }
    if id.starts_with(INBOX_PREFIX) {
        return Err(format!(
            "message id {id:?} starts with {INBOX_PREFIX:?}, as the ids of received messages"
        ));
    }

    Ok(checked)
}

/// Returns the id of a message at its receiver: equal for all deliveries, and different for each
/// sender, also if two senders chose the same id. If the id of the sender is a UUID v7, both have
/// its time.
#[must_use]
pub fn inbox_id(from: &ContextAddress, id: &CorrelationId) -> CorrelationId {
    let parts = [from.node.as_str(), from.context.as_str(), id.as_str()].map(str::as_bytes);
    let timed = id
        .as_str()
        .parse::<Uuid>()
        .ok()
        // A time-ordered id keeps its time, so that lists of both sides have the same order.
        .filter(|id| id.get_version_num() == 7);

    let id = timed.map_or_else(
        || derive_id(Timestamp::from_millis(0), &parts),
        |timed| derive_child_id(timed, &parts),
    );
    CorrelationId::new(format!("{INBOX_PREFIX}{id}")).expect("a UUID is short")
}
