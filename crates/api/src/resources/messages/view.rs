//! Messages in responses.

use orlog_model::{Instance, InstanceKey, format_duration};
use orlog_program::SagaState as _;
use orlog_sagas::message::{
    self, Message, MessageFormat, MessageLine, MessageStatus, MessageType, ReceivedMessage,
    SentMessage, THREAD, Timeouts,
};
use serde::Serialize;
use serde_json::Value;
use utoipa::ToSchema;

use crate::resources::sagas::built_in::{ListedView, UNREADABLE};
use crate::server::page::BuiltPage;
use crate::server::problem::{Code, Problem};
use crate::server::read_scope::ReadScope;
use orlog_node::url_path::path;

/// Page of messages.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct MessagePage {
    /// Messages.
    items: Vec<MessageSummary>,
    /// Cursor of the next page; `null` at the end.
    next_cursor: Option<String>,
}

impl MessagePage {
    /// Creates the response of a list.
    pub(super) fn of(page: BuiltPage<MessageSummary>) -> Self {
        Self {
            items: page.entries,
            next_cursor: page.next,
        }
    }
}

/// Message without its lines and its result.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct MessageSummary {
    /// Id in this context; that of a received message starts with `in-`.
    id: String,
    /// `out`: this context sent it; `in`: this context received it.
    #[serde(rename = "box")]
    mailbox: &'static str,
    /// Id that the sender chose.
    message_id: String,
    /// `job`, `chat` or `mail`; `null` if the message is `unreadable`.
    #[serde(rename = "type")]
    #[schema(value_type = Option<String>)]
    kind: Option<MessageType>,
    /// `html`, `text` or `md`; `null` if the message is `unreadable`.
    #[schema(value_type = Option<String>)]
    format: Option<MessageFormat>,
    /// Context of the sender: `context@node`.
    from: String,
    /// Context of the receiver: `context@node`.
    to: String,
    /// Id of the conversation.
    thread: String,
    /// Subject.
    subject: Option<String>,
    /// `dispatched`, `acknowledged`, `processed`, `error` or `unreadable`.
    status: &'static str,
    /// Whether the sender cancelled it; its status is `error`.
    cancelled: bool,
    /// Whether inputs are buffered, not applied.
    paused: bool,
    /// User who sent it.
    user: Option<String>,
    /// User of the receiver who changed its status last.
    by: Option<String>,
    /// Failure of a message with the status `error`.
    failure: Option<MessageFailureView>,
    /// Time of the submission, at the node of the sender.
    #[schema(format = "date-time")]
    sent_at: String,
    /// Time of the delivery, at this node.
    #[schema(format = "date-time")]
    delivered_at: Option<String>,
    /// Time of the acknowledgement, at this node.
    #[schema(format = "date-time")]
    acknowledged_at: Option<String>,
    /// Time of the end, at this node.
    #[schema(format = "date-time")]
    ended_at: Option<String>,
    /// Tenant of the request.
    tenant: String,
    /// Path of the instance of the message, with its history.
    instance: String,
    /// Body; absent in lists that select no thread.
    #[serde(skip_serializing_if = "Option::is_none")]
    body: Option<String>,
    /// Reason of the status `unreadable`: only id, box, thread, tenant, path, and in `sent_at` the
    /// start of the instance are known.
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
}

/// Message.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct MessageView {
    #[serde(flatten)]
    summary: MessageSummary,
    /// Result of a processed message.
    result: Value,
    /// Last lines of the receiver, at most 100.
    lines: Vec<MessageLineView>,
    /// Number of all lines of the receiver.
    total_lines: u64,
    /// Timeouts of a sent message.
    timeouts: Option<TimeoutsView>,
    /// Path of the flow of a received job.
    flow: Option<String>,
}

/// Timeouts of a sent message. Each one begins when the one before ends.
#[derive(Debug, Serialize, ToSchema)]
struct TimeoutsView {
    /// Maximum time until the delivery.
    delivery: String,
    /// Maximum time from the delivery to the acknowledgement; `null`: unlimited.
    acknowledgement: Option<String>,
    /// Maximum time from the acknowledgement to the result; `null`: unlimited.
    result: Option<String>,
}

/// Failure of a message.
#[derive(Debug, Serialize, ToSchema)]
struct MessageFailureView {
    /// Code.
    code: String,
    /// Message.
    message: String,
}

/// Line of the log of a message.
#[derive(Debug, Serialize, ToSchema)]
struct MessageLineView {
    /// Time at the node of the receiver.
    #[schema(format = "date-time")]
    at: String,
    /// Text.
    text: String,
}

/// State of a message at the sender or at the receiver.
enum State {
    Sent(SentMessage),
    Received(ReceivedMessage),
}

impl State {
    fn read(key: &InstanceKey, instance: &Instance) -> Result<Self, Problem> {
        let state = if key.saga.as_str() == message::SAGA {
            SentMessage::decode(&instance.state).map(Self::Sent)
        } else {
            ReceivedMessage::decode(&instance.state).map(Self::Received)
        };
        state.map_err(|error| {
            let detail = format!(
                "the message \"{}\" cannot be read by this release: {error}",
                key.correlation
            );
            Problem::new(Code::StoreError, detail)
        })
    }

    fn message(&self) -> &Message {
        match self {
            Self::Sent(sent) => &sent.message,
            Self::Received(received) => &received.message,
        }
    }
}

impl MessageSummary {
    /// Returns the entry of a message without its body. One that cannot be read has an entry with
    /// the error, so that it does not hide the others.
    pub(super) fn listed(key: &InstanceKey, instance: &Instance) -> Self {
        match State::read(key, instance) {
            Ok(state) => Self::of(key, instance, &state),
            Err(problem) => Self::unreadable(key, instance, problem.detail().to_owned()),
        }
    }

    /// Returns the entry of a message with its body.
    pub(super) fn listed_with_body(key: &InstanceKey, instance: &Instance) -> Self {
        match State::read(key, instance) {
            Ok(state) => Self {
                body: Some(state.message().body.clone()),
                ..Self::of(key, instance, &state)
            },
            Err(problem) => Self::unreadable(key, instance, problem.detail().to_owned()),
        }
    }

    /// Returns whether the message has this status. One that cannot be read has any.
    pub(super) fn may_have_status(&self, status: MessageStatus) -> bool {
        self.error.is_some() || self.status == status.as_str()
    }

    /// Returns whether the message has this type. One that cannot be read has any.
    pub(super) fn may_have_kind(&self, kind: MessageType) -> bool {
        self.kind.is_none_or(|own| own == kind)
    }

    fn of(key: &InstanceKey, instance: &Instance, state: &State) -> Self {
        let message = state.message();
        let (mailbox, status, cancelled, by, failure, times) = match state {
            State::Sent(sent) => {
                let times = [sent.delivered_at, sent.acknowledged_at, sent.ended_at];
                (
                    "out",
                    sent.status,
                    sent.is_cancelled(),
                    None,
                    &sent.failure,
                    times,
                )
            }
            State::Received(received) => {
                let times = [
                    Some(received.received_at),
                    received.acknowledged_at,
                    received.ended_at,
                ];
                let by = received.by.clone();

                (
                    "in",
                    received.status,
                    received.is_cancelled(),
                    by,
                    &received.failure,
                    times,
                )
            }
        };

        let [delivered_at, acknowledged_at, ended_at] = times.map(|at| at.map(|at| at.to_string()));
        let failure = failure.as_ref().map(|failure| MessageFailureView {
            code: failure.code.clone(),
            message: failure.message.clone(),
        });
        Self {
            id: key.correlation.to_string(),
            mailbox,
            message_id: message.id.to_string(),
            kind: Some(message.kind),
            format: Some(message.format),
            from: message.from.to_string(),
            to: message.to.to_string(),
            thread: message.thread.clone(),
            subject: message.subject.clone(),
            status: status.as_str(),
            cancelled,
            paused: instance.paused,
            user: message.user.clone(),
            by,
            failure,
            sent_at: message.sent_at.to_string(),
            delivered_at,
            acknowledged_at,
            ended_at,
            tenant: key.tenant.to_string(),
            instance: path(&["v1", "sagas", key.saga.as_str(), key.correlation.as_str()]),
            body: None,
            error: None,
        }
    }
}

impl ListedView for MessageSummary {
    fn unreadable(key: &InstanceKey, instance: &Instance, error: String) -> Self {
        let is_sent = key.saga.as_str() == message::SAGA;
        let thread = instance
            .reference
            .as_ref()
            .and_then(|reference| reference.part(THREAD));

        Self {
            id: key.correlation.to_string(),
            mailbox: if is_sent { "out" } else { "in" },
            message_id: String::new(),
            kind: None,
            format: None,
            from: String::new(),
            to: String::new(),
            thread: thread.unwrap_or_default().to_owned(),
            subject: None,
            status: UNREADABLE,
            cancelled: false,
            paused: instance.paused,
            user: None,
            by: None,
            failure: None,
            // The other times are part of the state.
            sent_at: instance.created_at.to_string(),
            delivered_at: None,
            acknowledged_at: None,
            ended_at: None,
            tenant: key.tenant.to_string(),
            instance: path(&["v1", "sagas", key.saga.as_str(), key.correlation.as_str()]),
            body: None,
            error: Some(error),
        }
    }
}

impl MessageView {
    /// Returns the view of a message.
    pub(super) fn read(
        scope: &ReadScope,
        key: &InstanceKey,
        instance: &Instance,
    ) -> Result<Option<Self>, Problem> {
        let state = State::read(key, instance)?;
        let mut summary = MessageSummary::of(key, instance, &state);
        summary.body = Some(state.message().body.clone());
        let flow = matches!(
            (&state, summary.kind),
            (State::Received(_), Some(MessageType::Job))
        );
        let flow = flow.then(|| path(&["v1", "flows", key.correlation.as_str()]));
        let (result, lines, total_lines, timeouts) = match state {
            State::Sent(sent) => (
                sent.result,
                sent.lines,
                sent.total_lines,
                Some(sent.timeouts.into()),
            ),
            State::Received(received) => {
                (received.result, received.lines, received.total_lines, None)
            }
        };

        let lines = lines.into_iter().map(MessageLineView::from).collect();
        let result = scope.redact().redact(result);
        Ok(Some(Self {
            summary,
            result,
            lines,
            total_lines,
            timeouts,
            flow,
        }))
    }
}

impl From<MessageLine> for MessageLineView {
    fn from(line: MessageLine) -> Self {
        Self {
            at: line.at.to_string(),
            text: line.text,
        }
    }
}

impl From<Timeouts> for TimeoutsView {
    fn from(timeouts: Timeouts) -> Self {
        let Timeouts {
            delivery,
            acknowledgement,
            result,
        } = timeouts;
        Self {
            delivery: format_duration(delivery),
            acknowledgement: acknowledgement.map(format_duration),
            result: result.map(format_duration),
        }
    }
}

#[cfg(test)]
mod tests {
    use orlog_model::{CorrelationId, SagaName, TenantId};

    use super::*;
    use crate::resources::sagas::built_in::tests::instance;

    #[test]
    fn unreadable_message_has_an_entry_with_its_error_and_matches_every_filter() {
        let key = InstanceKey {
            tenant: TenantId::default(),
            saga: SagaName::new(message::INBOX_SAGA).unwrap(),
            correlation: CorrelationId::new("in-1").unwrap(),
        };
        let mut stored = instance(&key.saga);
        stored.state = b"state of a later release".to_vec();

        for entry in [
            MessageSummary::listed(&key, &stored),
            MessageSummary::listed_with_body(&key, &stored),
        ] {
            assert!(entry.may_have_status(MessageStatus::Processed));
            assert!(entry.may_have_kind(MessageType::Job));

            let entry = serde_json::to_value(&entry).unwrap();
            assert_eq!(entry["id"], "in-1");
            assert_eq!(entry["box"], "in");
            assert_eq!(entry["status"], "unreadable");
            let error = entry["error"].as_str().unwrap();
            assert!(error.contains("cannot be read by this release"), "{error}");
        }
    }
}
