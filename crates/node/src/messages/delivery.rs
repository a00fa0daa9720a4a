//! Effects of messages: delivers them, withdraws them and reports their status, on this node or on
//! another one.
//!
//! An attempt carries the current state of the instance that requests it. It succeeds with the
//! durable answer of the other side. A rejection of the message itself ends it; every other answer,
//! and none, is followed by another attempt.

use std::sync::Arc;

use orlog_effect::{FunctionCall, ProviderError};
use orlog_model::{InstanceKey, NodeName, SagaName, json_length};
use orlog_program::SagaState as _;
use orlog_sagas::flow;
use orlog_sagas::message::{
    self, MAX_LINES, MessageLine, MessageStatus, MessageType, PeerTask, ReceivedMessage, Report,
    SentMessage,
};
use serde_json::{Value, json};

use super::exchange::{MAX_REPORT_BYTES, MessageExchange, Origin};
use super::outbound::{PeerMessageSender, is_final};
use super::peer_message::{PeerMessage, StatusReport};
use crate::cluster::{Routing, SlotOwner};
use crate::coded_error::CodedError;
use crate::error_code::Code;

/// Executes the deliveries and reports of the messages of this process.
pub(crate) struct MessageDelivery {
    pub(crate) exchange: Arc<MessageExchange>,
    pub(crate) routing: Arc<Routing>,
    pub(crate) sender: PeerMessageSender,
}

impl MessageDelivery {
    /// Executes the effect that a message requests.
    ///
    /// # Errors
    /// A permanent one ends the message; every other one is followed by another attempt.
    pub(crate) async fn execute(&self, call: FunctionCall) -> Result<Value, ProviderError> {
        let own = call.instance;
        let task: PeerTask = serde_json::from_value(call.payload)
            .map_err(|error| ProviderError::permanent("invalid_payload", error.to_string()))?;

        // A definition can name any effect.
        let saga = if let PeerTask::Report { .. } = task {
            message::INBOX_SAGA
        } else {
            message::SAGA
        };
        if own.saga.as_str() != saga {
            return Err(ProviderError::permanent(
                "not_permitted",
                "only a message can request this effect",
            ));
        }

        let origin = Origin {
            reads: None,
            trace: call.trace.as_ref(),
        };
        match task {
            PeerTask::Deliver => self.deliver(&own, origin).await,
            PeerTask::Withdraw => self.withdraw(&own, origin).await,
            PeerTask::Report { number } => self.report(&own, number, origin).await,
        }
    }

    async fn deliver(&self, own: &InstanceKey, origin: Origin<'_>) -> Result<Value, ProviderError> {
        // The work item does not contain the message: a later attempt sends the current state.
        let sent = self.read(own, SentMessage::decode, origin).await?;
        if sent.status.is_final() {
            return Err(ProviderError::permanent(
                "ended",
                "the message has ended before its delivery",
            ));
        }
        if sent.delivered_at.is_some() {
            // A report has proved the delivery.
            let known = Report {
                status: MessageStatus::Dispatched,
                result: Value::Null,
                failure: None,
                lines: Vec::new(),
                total_lines: 0,
            };
            return Ok(json!(known));
        }

        let delivery = PeerMessage::Deliver {
            delivery: sent.delivery(),
            acts_for_receiver: sent.acts_for_receiver,
        };
        let answer = self.send(&sent.message.to.node, delivery, origin).await?;

        match serde_json::from_value::<Report>(answer.clone()) {
            Ok(_) => Ok(answer),
            // Repeated until the timer of the message ends it: a proxy or a misconfigured pod may
            // have answered instead of the node.
            Err(error) => {
                let reason = format!("{} answered with no report: {error}", sent.message.to.node);
                Err(ProviderError::unavailable("invalid_answer", reason))
            }
        }
    }

    async fn withdraw(
        &self,
        own: &InstanceKey,
        origin: Origin<'_>,
    ) -> Result<Value, ProviderError> {
        let sent = self.read(own, SentMessage::decode, origin).await?;
        let withdrawal = PeerMessage::Deliver {
            delivery: sent.withdrawal(),
            acts_for_receiver: sent.acts_for_receiver,
        };
        self.send(&sent.message.to.node, withdrawal, origin).await
    }

    async fn report(
        &self,
        own: &InstanceKey,
        number: u64,
        origin: Origin<'_>,
    ) -> Result<Value, ProviderError> {
        let received = self.read(own, ReceivedMessage::decode, origin).await?;
        if received.reports > number {
            // A later report contains everything.
            return Ok(Value::Null);
        }

        let mut report = received.report();
        if received.message.kind == MessageType::Job {
            self.add_lines_of_jobs(own, &mut report).await?;
        }
        limit_size(&mut report);

        let message = received.message;
        let node = message.from.node.clone();
        let status = StatusReport {
            id: message.id,
            from: message.from,
            to: message.to,
            report,
        };

        match self.send(&node, PeerMessage::Report(status), origin).await {
            // The sender has deleted the message after its retention.
            Err(error) if error.failure().code == Code::MessageNotFound.as_str() => Ok(Value::Null),
            other => other,
        }
    }

    /// Adds the last lines of the jobs of the flow, if it is in this process.
    async fn add_lines_of_jobs(
        &self,
        own: &InstanceKey,
        report: &mut Report,
    ) -> Result<(), ProviderError> {
        let saga = SagaName::new(flow::SAGA).expect("the name is short");
        let flow = InstanceKey {
            saga,
            ..own.clone()
        };
        let read = self
            .exchange
            .reads
            .run(None, move |scope| -> Result<_, CodedError> {
                let Some(reader) = scope.reader(&flow) else {
                    return Ok((Vec::new(), 0));
                };

                let (_, last) = reader.job_log_range(&flow)?;
                let after = last.saturating_sub(MAX_LINES as u64);
                let mut lines = Vec::new();
                for found in reader.job_log(&flow, after, MAX_LINES)? {
                    let text = format!("{}: {}", found.job, found.line.text);
                    lines.push(MessageLine::new(found.line.at, text));
                }
                Ok((lines, last))
            });

        let (lines, last) = read.await.map_err(failed)?;
        let own_lines = std::mem::replace(&mut report.lines, lines);
        report.lines.extend(own_lines);
        let excess = report.lines.len().saturating_sub(MAX_LINES);
        report.lines.drain(..excess);
        report.total_lines += last;
        Ok(())
    }

    /// Sends a request to a node, and returns its durable answer.
    async fn send(
        &self,
        node: &NodeName,
        request: PeerMessage,
        origin: Origin<'_>,
    ) -> Result<Value, ProviderError> {
        // Without an identity, the node gets one with the next start.
        let own = self.exchange.own_node().map_err(|error| {
            let CodedError { code, detail, .. } = error.into();
            ProviderError::unavailable(code.as_str(), detail)
        })?;
        if node != own {
            return self.sender.post_to_node(node, &request).await;
        }

        let key = self.exchange.subject(own, &request).map_err(failed)?;
        match self.routing.owner_of(&key) {
            SlotOwner::Local => self
                .exchange
                .apply(own, key, request, origin)
                .await
                .map_err(failed),
            SlotOwner::Pod(pod) => self.sender.post_to_pod(&pod, &request).await,
            SlotOwner::None => Err(failed(CodedError::moving())),
        }
    }

    /// Reads the message that requests an effect.
    async fn read<S: Send + 'static>(
        &self,
        own: &InstanceKey,
        decode: fn(&[u8]) -> Result<S, orlog_program::ProgramError>,
        origin: Origin<'_>,
    ) -> Result<S, ProviderError> {
        let stored = self
            .exchange
            .stored(own, decode, origin)
            .await
            .map_err(failed)?;
        stored.ok_or_else(|| {
            ProviderError::permanent("message_missing", "the message does not exist")
        })
    }
}

/// Drops the oldest lines of a report that is too large for its receiver: JSON escapes of control
/// characters multiply their size.
fn limit_size(report: &mut Report) {
    let mut excess = json_length(report).saturating_sub(MAX_REPORT_BYTES);
    let mut dropped = 0;
    while let Some(line) = report.lines.get(dropped).filter(|_| excess > 0) {
        excess = excess.saturating_sub(json_length(line) + ",".len());
        dropped += 1;
    }
    report.lines.drain(..dropped);
}

/// Returns the error of an attempt: only a rejection of the message itself ends it.
fn failed(error: CodedError) -> ProviderError {
    let code = error.code.as_str();
    if is_final(code) {
        ProviderError::permanent(code, error.detail)
    } else {
        ProviderError::unavailable(code, error.detail)
    }
}

#[cfg(test)]
mod tests {
    use orlog_model::Timestamp;
    use orlog_sagas::message::MAX_LINE_BYTES;

    use super::*;

    fn report(text: &str) -> Report {
        let line = |at| MessageLine::new(Timestamp::from_millis(at), text.to_owned());
        let (lines, result) = (
            (0..).take(MAX_LINES).map(line).collect(),
            json!("x".repeat(190 * 1024)),
        );
        let total_lines = MAX_LINES as u64;
        Report {
            status: MessageStatus::Processed,
            result,
            failure: None,
            lines,
            total_lines,
        }
    }

    #[test]
    fn report_whose_escaped_lines_are_too_large_keeps_the_result_and_the_last_lines() {
        let whole = report(&"\0".repeat(MAX_LINE_BYTES));
        assert!(json_length(&whole) > MAX_REPORT_BYTES);
        let mut limited = whole.clone();
        limit_size(&mut limited);
        let size = json_length(&limited);
        assert!(
            size <= MAX_REPORT_BYTES && size > MAX_REPORT_BYTES - 7 * MAX_LINE_BYTES,
            "{size}"
        );
        assert_eq!(
            (&limited.result, limited.total_lines),
            (&whole.result, whole.total_lines)
        );
        assert!(
            whole.lines.ends_with(&limited.lines),
            "the oldest lines are dropped"
        );
        let small = report("x");
        let mut same = small.clone();
        limit_size(&mut same);
        assert_eq!(same, small);
    }

    #[test]
    fn report_without_space_for_lines_has_none() {
        let result = json!("x".repeat(MAX_REPORT_BYTES - 100));
        let mut full = Report {
            result,
            ..report(&"\0".repeat(MAX_LINE_BYTES))
        };
        limit_size(&mut full);
        assert!(
            full.lines.is_empty() && json_length(&full) <= MAX_REPORT_BYTES,
            "{}",
            json_length(&full)
        );
    }
}
