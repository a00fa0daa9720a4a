//! Messages, and reports about messages, between contexts: what this node does with a request of
//! another node, of another pod, or of its own effects.
//!
//! A message is accepted only from the node of its sender, a report only from the node of the
//! receiver of its message. A context that does not exist and one that does not accept the message
//! give the same error.

use std::sync::Arc;

use orlog_actors::{ControlError, LocalShards};
use orlog_engine::Rejection;
use orlog_model::{
    Clock, ControlAction, ControlRequest, EventId, EventType, InstanceKey, NodeName, TraceParent,
    json_length,
};
use orlog_program::{ProgramError, SagaState as _};
use orlog_sagas::message::{
    self, Delivery, MAX_LINES, MAX_MESSAGE_BYTES, MailTarget, Message, MessageType, ReceiveMessage,
    ReceivedMessage, Report, SentMessage,
};
use serde_json::{Value, json};
use tokio::sync::Semaphore;
use uuid::Uuid;

use super::check::{check_fields, check_flow};
use super::peer_message::{PeerMessage, StatusReport};
use super::{received_key, sent_key};
use crate::access::AccessRegistry;
use crate::admitted_tenants::AdmittedTenants;
use crate::coded_error::CodedError;
use crate::config::Config;
use crate::error_code::Code;
use crate::peers::{NoIdentity, PeerError, Peers};
use crate::reads::Reads;

/// Maximum size of a report in JSON, in bytes: a result, and lines that JSON escapes.
pub(super) const MAX_REPORT_BYTES: usize = 2 * MAX_MESSAGE_BYTES;

/// Messages of this node, as the other nodes exchange them with it.
pub struct MessageExchange {
    pub(crate) config: Arc<Config>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) shards: LocalShards,
    pub(crate) reads: Arc<Reads>,
    /// Contexts, whose lists decide which messages they accept.
    pub(crate) access: Arc<AccessRegistry>,
    pub(crate) tenants: Arc<AdmittedTenants>,
    pub(crate) peers: Arc<Peers>,
}

/// What an exchange uses of the request or effect that causes it.
#[derive(Clone, Copy, Default)]
pub struct Origin<'a> {
    /// Share of the caller in the reads of the stores; `None`: no quotas apply.
    pub reads: Option<&'a Arc<Semaphore>>,
    /// Trace that the work continues.
    pub trace: Option<&'a TraceParent>,
}

impl MessageExchange {
    /// Returns the name of this node.
    ///
    /// # Errors
    /// If it has no identity.
    pub fn own_node(&self) -> Result<&NodeName, NoIdentity> {
        Ok(&self.peers.identity()?.name)
    }

    /// Checks that a node is this one or a peer.
    ///
    /// # Errors
    /// If this node does not know it, or has no identity.
    pub fn check_node(&self, node: &NodeName) -> Result<(), CodedError> {
        if node == self.own_node()? || self.peers.address(node).is_some() {
            return Ok(());
        }
        Err(CodedError::new(
            Code::UnknownNode,
            PeerError::Unknown(node.clone()).to_string(),
        ))
    }

    /// Returns the instance that a request concerns.
    ///
    /// # Errors
    /// If the request does not belong to the node that sends it, or to this node.
    pub fn subject(
        &self,
        sender: &NodeName,
        request: &PeerMessage,
    ) -> Result<InstanceKey, CodedError> {
        let own = self.own_node()?;
        let (from, to, what) = match request {
            PeerMessage::Deliver { delivery, .. } => {
                (&delivery.message.from, &delivery.message.to, "message")
            }
            PeerMessage::Report(report) => (&report.to, &report.from, "report"),
        };

        // The key of a peer proves its node only; it must not speak for the contexts of others.
        if from.node != *sender {
            let detail = format!(
                "a {what} of {from} cannot come from the node {sender}, which signed the request"
            );
            return Err(CodedError::new(Code::MessageMisaddressed, detail));
        }
        if to.node != *own {
            let detail = format!(
                "the {what} is for {to}, and this is the node {own}; check the address of the peer"
            );
            return Err(CodedError::new(Code::MessageMisaddressed, detail));
        }

        match request {
            PeerMessage::Deliver { delivery, .. } => {
                let id = message::check_id(delivery.message.id.as_str());
                id.map_err(|error| CodedError::new(Code::InvalidMessage, error))?;
                Ok(received_key(&delivery.message))
            }
            PeerMessage::Report(report) => {
                let key = sent_key(report.from.context.clone(), report.id.as_str());
                key.map_err(|error| CodedError::new(Code::InvalidMessage, error))
            }
        }
    }

    /// Executes a request of `sender` whose instance is in this process. The response follows its
    /// commit.
    ///
    /// # Errors
    /// If the message or the report is invalid or not accepted, or its shard is unavailable.
    pub async fn apply(
        &self,
        sender: &NodeName,
        key: InstanceKey,
        request: PeerMessage,
        origin: Origin<'_>,
    ) -> Result<Value, CodedError> {
        match request {
            PeerMessage::Deliver {
                delivery,
                acts_for_receiver,
            } => {
                // Another node cannot know what its users may do here.
                let acts_for_receiver = acts_for_receiver && sender == self.own_node()?;
                let report = self
                    .deliver(key, delivery, acts_for_receiver, origin)
                    .await?;
                Ok(json!(report))
            }
            PeerMessage::Report(report) => {
                self.accept(key, report, origin).await?;
                Ok(Value::Null)
            }
        }
    }

    /// Delivers or withdraws a message.
    async fn deliver(
        &self,
        key: InstanceKey,
        delivery: Delivery,
        acts_for_receiver: bool,
        origin: Origin<'_>,
    ) -> Result<Report, CodedError> {
        let Delivery { message, withdrawn } = &delivery;
        let stored = self.stored(&key, ReceivedMessage::decode, origin).await?;

        match &stored {
            // The sender repeats a delivery whose answer it did not receive. The lists may have
            // changed since.
            Some(stored) if withdrawn.is_none() => {
                return if stored.is_withdrawn() || stored.message == *message {
                    Ok(stored.report())
                } else {
                    Err(exists(message))
                };
            }
            Some(_) => {}
            None => {
                self.permit(message, acts_for_receiver).await?;
                check_fields(message)?;
                if withdrawn.is_none() {
                    check_flow(message).await?;
                }
                self.shards.check_takes_work()?;
            }
        }

        if let Some(reason) = withdrawn
            && reason.len() > MAX_REPORT_BYTES
        {
            return Err(CodedError::new(
                Code::InvalidMessage,
                "the reason of the withdrawal is too long",
            ));
        }

        let from = message.from.to_string();
        let received = ReceiveMessage {
            mail: self.mail_target(message),
            delivery: delivery.clone(),
        };
        let sent = self
            .signal(&key, from, message::DELIVER, json!(received), origin)
            .await;
        sent.map_err(|error| match error {
            // The saga rejects only another content.
            ControlError::Rejected(Rejection::InvalidStatus { .. }) => exists(message),
            error => error.into(),
        })?;

        let stored = self.stored(&key, ReceivedMessage::decode, origin).await?;
        let stored = stored.ok_or_else(|| {
            let detail = "the shard of the receiver is moving; try again";
            CodedError::new(Code::Unavailable, detail)
        })?;
        Ok(stored.report())
    }

    /// Returns the target of a message that this node also sends by SMTP: the actors of the context
    /// of the receiver, never a choice of the sender.
    fn mail_target(&self, message: &Message) -> Option<MailTarget> {
        let effect = self.config.messages.mail_effect.clone()?;
        (message.kind == MessageType::Mail).then(|| MailTarget {
            effect,
            to: self.access.mail_addresses(&message.to.context),
        })
    }

    /// Rejects a message that its receiver does not accept, in the same way as one for a context
    /// that does not exist.
    async fn permit(&self, message: &Message, acts_for_receiver: bool) -> Result<(), CodedError> {
        let Message { from, to, kind, .. } = message;
        let is_job = *kind == MessageType::Job;
        let is_accepted = self
            .access
            .accepts_messages(&to.context, from, is_job, acts_for_receiver)
            .await?;
        if is_accepted && self.tenants.admits(&to.context) {
            return Ok(());
        }

        let lists = if is_job {
            "its executors do not contain"
        } else {
            "none of its lists contains"
        };
        let detail = format!("{to} does not exist, or {lists} context:{from}");
        Err(CodedError::new(Code::MessageDenied, detail))
    }

    /// Applies a report to the message that it concerns.
    async fn accept(
        &self,
        key: InstanceKey,
        status: StatusReport,
        origin: Origin<'_>,
    ) -> Result<(), CodedError> {
        let size = json_length(&status.report);
        if size > MAX_REPORT_BYTES {
            return Err(CodedError::too_large(
                &format!("the report has {size} bytes"),
                MAX_REPORT_BYTES as u64,
            ));
        }
        if status.report.lines.len() > MAX_LINES {
            let detail = format!(
                "the report has {} lines, the limit is {MAX_LINES}",
                status.report.lines.len()
            );
            return Err(CodedError::new(Code::InvalidMessage, detail));
        }

        let sent = self.stored(&key, SentMessage::decode, origin).await?;
        let Some(sent) = sent.filter(|sent| sent.message.to == status.to) else {
            let detail = format!(
                "{} sent no message \"{}\" to {}",
                status.from, status.id, status.to
            );
            return Err(CodedError::new(Code::MessageNotFound, detail));
        };
        if sent.status.is_final() {
            return Ok(());
        }

        let from = status.to.to_string();
        self.signal(&key, from, message::REPORT, json!(status.report), origin)
            .await?;
        Ok(())
    }

    /// Returns the state of a message; `None` if there is none.
    pub(super) async fn stored<S: Send + 'static>(
        &self,
        key: &InstanceKey,
        decode: fn(&[u8]) -> Result<S, ProgramError>,
        origin: Origin<'_>,
    ) -> Result<Option<S>, CodedError> {
        let key = key.clone();
        let read = self.reads.run(origin.reads, move |scope| {
            let instance = scope
                .reader(&key)
                .ok_or_else(CodedError::moving)?
                .instance(&key)?;
            let state = instance.map(|instance| decode(&instance.state)).transpose();
            state.map_err(|error| {
                CodedError::new(Code::StoreError, format!("{}: {error}", key.correlation))
            })
        });
        read.await
    }

    /// Sends a signal to a message; returns after its commit is durable.
    async fn signal(
        &self,
        key: &InstanceKey,
        from: String,
        kind: &str,
        data: Value,
        origin: Origin<'_>,
    ) -> Result<(), ControlError> {
        let control = ControlRequest {
            // The programs ignore repetitions.
            id: EventId::new(format!("control:{}", Uuid::now_v7()))
                .expect("an id in this format is short ASCII"),
            action: ControlAction::Signal {
                kind: EventType::new(kind).expect("the name is short"),
                data,
                due_at: None,
            },
            expected_version: None,
            at: self.clock.now(),
            user: Some(from),
            reason: None,
            trace: origin.trace.cloned(),
            wait_token: None,
        };
        self.shards.control(key, control).await?;

        Ok(())
    }
}

fn exists(message: &Message) -> CodedError {
    let detail = format!(
        "{} has a message \"{}\" of {} with another content",
        message.to, message.id, message.from
    );
    CodedError::new(Code::MessageExists, detail)
}
