//! Effects of messages: delivers them, withdraws them and reports their status, on this node or on
//! another one.
//!
//! An attempt carries the current state of the instance that requests it. It succeeds with the
//! durable answer of the other side. A rejection of the message itself ends it; every other answer,
//! and none, is followed by another attempt.

use std::sync::Arc;

use orlog_effect::{FunctionCall, ProviderError};
use orlog_model::{InstanceKey, NodeName, SagaName};
use orlog_program::SagaState as _;
use orlog_sagas::flow;
use orlog_sagas::message::{
    self, MAX_LINES, MessageLine, MessageStatus, MessageType, PeerTask, ReceivedMessage, Report,
    SentMessage,
};
use serde_json::{Value, json};

use super::node::{Unreachable, is_final, own_node, post_to_pod};
use super::parts::MessageParts;
use super::peer::{self, MAX_REPORT_BYTES, json_size, stored};
use crate::server::context::ApiState;
use crate::server::problem::{Code, Problem};
use orlog_node::app::App;
use orlog_node::app::SlotOwner;
use orlog_node::messages::peer_message::{PeerMessage, StatusReport};

/// Connects the effects of this node to its API, without keeping the node.
pub(crate) fn connect(app: &App, api: &ApiState) {
    let api_of_node = api.downgrade();
    let nodes = Arc::<Unreachable>::default();
    app.messages.connect(move |call| {
        let api = api_of_node.upgrade();
        let nodes = Arc::clone(&nodes);
        Box::pin(async move {
            let parts = MessageParts::detached(&api?);
            execute(&parts, &nodes, call).await
        })
    });
}

async fn execute(
    parts: &MessageParts,
    nodes: &Unreachable,
    call: FunctionCall,
) -> Result<Value, ProviderError> {
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

    match task {
        PeerTask::Deliver => deliver(parts, nodes, &own).await,
        PeerTask::Withdraw => {
            let sent = read(parts, &own, SentMessage::decode).await?;
            let withdrawal = PeerMessage::Deliver {
                delivery: sent.withdrawal(),
                acts_for_receiver: sent.acts_for_receiver,
            };
            send(parts, nodes, &sent.message.to.node, withdrawal).await
        }
        PeerTask::Report { number } => report(parts, nodes, &own, number).await,
    }
}

async fn deliver(
    parts: &MessageParts,
    nodes: &Unreachable,
    own: &InstanceKey,
) -> Result<Value, ProviderError> {
    // The work item does not contain the message: a later attempt sends the current state.
    let sent = read(parts, own, SentMessage::decode).await?;
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
    let answer = send(parts, nodes, &sent.message.to.node, delivery).await?;

    match serde_json::from_value::<Report>(answer.clone()) {
        Ok(_) => Ok(answer),
        // Repeated until the timer of the message ends it: a proxy or a misconfigured pod may have
        // answered instead of the node.
        Err(error) => {
            let reason = format!("{} answered with no report: {error}", sent.message.to.node);
            Err(ProviderError::unavailable("invalid_answer", reason))
        }
    }
}

async fn report(
    parts: &MessageParts,
    nodes: &Unreachable,
    own: &InstanceKey,
    number: u64,
) -> Result<Value, ProviderError> {
    let received = read(parts, own, ReceivedMessage::decode).await?;
    if received.reports > number {
        // A later report contains everything.
        return Ok(Value::Null);
    }

    let mut report = received.report();
    if received.message.kind == MessageType::Job {
        add_lines_of_jobs(parts, own, &mut report).await?;
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

    match send(parts, nodes, &node, PeerMessage::Report(status)).await {
        // The sender has deleted the message after its retention.
        Err(error) if error.failure().code == Code::MessageNotFound.as_str() => Ok(Value::Null),
        other => other,
    }
}

/// Adds the last lines of the jobs of the flow, if it is in this process.
async fn add_lines_of_jobs(
    parts: &MessageParts,
    own: &InstanceKey,
    report: &mut Report,
) -> Result<(), ProviderError> {
    let saga = SagaName::new(flow::SAGA).expect("the name is short");
    let flow = InstanceKey {
        saga,
        ..own.clone()
    };
    let lines = parts.instances.request.read(move |scope| {
        let Some(reader) = scope.reader(&flow) else {
            return Ok((Vec::new(), 0));
        };

        let (_, last) = reader.job_log_range(&flow)?;
        let lines = reader.job_log(&flow, last.saturating_sub(MAX_LINES as u64), MAX_LINES)?;
        let line = |line: &orlog_store::NumberedLine| {
            MessageLine::new(line.line.at, format!("{}: {}", line.job, line.line.text))
        };
        Ok((lines.iter().map(line).collect::<Vec<_>>(), last))
    });

    let (lines, last) = lines.await.map_err(|problem| failed(&problem))?;
    let own_lines = std::mem::replace(&mut report.lines, lines);
    report.lines.extend(own_lines);
    let excess = report.lines.len().saturating_sub(MAX_LINES);
    report.lines.drain(..excess);
    report.total_lines += last;
    Ok(())
}

/// Drops the oldest lines of a report that is too large for its receiver: JSON escapes of control
/// characters multiply their size.
fn limit_size(report: &mut Report) {
    let mut excess = json_size(report).saturating_sub(MAX_REPORT_BYTES);
    let mut dropped = 0;
    while let Some(line) = report.lines.get(dropped).filter(|_| excess > 0) {
        excess = excess.saturating_sub(json_size(line) + ",".len());
        dropped += 1;
    }
    report.lines.drain(..dropped);
}

/// Sends a request to a node, and returns its durable answer.
async fn send(
    parts: &MessageParts,
    nodes: &Unreachable,
    node: &NodeName,
    request: PeerMessage,
) -> Result<Value, ProviderError> {
    // Without an identity, the node gets one with the next start.
    let own = own_node(&parts.peers)
        .map_err(|problem| ProviderError::unavailable(problem.code(), problem.detail()))?;
    if *node != own {
        return nodes.post(parts, node, &request).await;
    }

    let key = peer::subject(&parts.peers, &own, &request).map_err(|problem| failed(&problem))?;
    match parts.instances.cluster.owner_of(&key) {
        SlotOwner::Local => peer::apply(parts, &own, key, request)
            .await
            .map_err(|problem| failed(&problem)),
        SlotOwner::Pod(pod) => post_to_pod(parts, &pod, &request).await,
        SlotOwner::None => Err(ProviderError::unavailable(
            "moving",
            "the shard is moving between pods",
        )),
    }
}

/// Reads the message that requests an effect.
async fn read<S: Send + 'static>(
    parts: &MessageParts,
    own: &InstanceKey,
    decode: fn(&[u8]) -> Result<S, orlog_program::ProgramError>,
) -> Result<S, ProviderError> {
    let stored = stored(&parts.instances.request, own, decode)
        .await
        .map_err(|problem| failed(&problem))?;
    stored.ok_or_else(|| ProviderError::permanent("message_missing", "the message does not exist"))
}

fn failed(problem: &Problem) -> ProviderError {
    if is_final(problem.code()) {
        ProviderError::permanent(problem.code(), problem.detail())
    } else {
        ProviderError::unavailable(problem.code(), problem.detail())
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
        assert!(json_size(&whole) > MAX_REPORT_BYTES);
        let mut limited = whole.clone();
        limit_size(&mut limited);
        let size = json_size(&limited);
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
            full.lines.is_empty() && json_size(&full) <= MAX_REPORT_BYTES,
            "{}",
            json_size(&full)
        );
    }
}
