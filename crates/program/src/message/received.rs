//! Received message: an instance in the context of the receiver.
//!
//! | input | no instance | dispatched | acknowledged | ended |
//! |---|---|---|---|---|
//! | delivery | dispatched; job: acknowledged | ignore; unequal: reject | the same | the same |
//! | withdrawal | `error` | `error`; another message: reject | the same, cancel the flow | ignore |
//! | acknowledge | reject | acknowledged | ignore | reject |
//! | process, reject | reject | `processed`, `error`; a job: reject | the same | reject |
//! | line | reject | add | add | reject |
//! | end of the flow | – | – | `processed` with its results, or `error` | ignore |
//! | end of the mail | – | add a line | add a line | add a line without a report |
//! | end of a report | – | ignore | ignore | ignore |
//!
//! The delivery of a job starts its flow. A delivery after its withdrawal changes nothing.
//!
//! Each change of the status requests a report. Reports carry the state at the time of the attempt,
//! so that they may overtake each other.

use std::time::Duration;

use orlog_model::{
    CancelChild, CorrelationId, DefinitionRef, Event, Failure, ParentEndPolicy, SagaName,
    StartChild, Timestamp, WaitKind, Work, WorkOutcome,
};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::content::{Delivery, Message, MessageType, ProcessMessage};
use super::mail::{self, MAIL_TAG, MailTarget, ReceiveMessage};
use super::sent::{CANCELLED, thread_part};
use super::status::{MAX_LINES, MessageLine, MessageStatus, Report};
use super::transition::{Change, PeerTask, name};
use super::{ACKNOWLEDGE, DELIVER, INBOX_SAGA, LINE, PROCESS, REJECT};
use crate::built_in::{decode, encode, event_type, reference};
use crate::contract::{Context, Manifest, ProgramError, ProgramInput, ProgramOutput};
use crate::flow::{self, SubmitFlow};
use crate::program::Program;

/// Version of the state.
const FORMAT: u16 = 1;
/// Number of history entries of a message.
const HISTORY_LIMIT: u64 = 1_000;
/// Time for which a report is attempted: longer than the default timeouts of the sender together.
const REPORT_TIMEOUT: Duration = Duration::from_hours(30 * 24);
/// Tag of the flow of a job.
const FLOW_TAG: &str = "flow";
/// Code of the failure of a withdrawn message.
const WITHDRAWN: &str = "withdrawn";

/// State of a received message.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ReceivedMessage {
    format: u16,
    /// Message; without a body if it was withdrawn before its delivery.
    pub message: Message,
    /// Status.
    pub status: MessageStatus,
    /// Time of the delivery.
    pub received_at: Timestamp,
    /// Time of the acknowledgement.
    pub acknowledged_at: Option<Timestamp>,
    /// Time of the end.
    pub ended_at: Option<Timestamp>,
    /// User who changed the status last.
    pub by: Option<String>,
    /// Result for the sender.
    pub result: Value,
    /// Failure of a message with the status `error`.
    pub failure: Option<Failure>,
    /// Last lines.
    pub lines: Vec<MessageLine>,
    /// Total number of lines.
    pub total_lines: u64,
    /// Number of requested reports.
    pub reports: u64,
}

impl ReceivedMessage {
    fn new(message: Message, now: Timestamp) -> Self {
        Self {
            format: FORMAT,
            message,
            status: MessageStatus::Dispatched,
            received_at: now,
            acknowledged_at: None,
            ended_at: None,
            by: None,
            result: Value::Null,
            failure: None,
            lines: Vec::new(),
            total_lines: 0,
            reports: 0,
        }
    }

    /// Decodes a stored state.
    ///
    /// # Errors
    /// If it is damaged, or of a newer release.
    pub fn decode(state: &[u8]) -> Result<Self, ProgramError> {
        decode(state, FORMAT, |state: &Self| state.format)
    }

    /// Returns whether the sender withdrew it.
    #[must_use]
    pub fn is_withdrawn(&self) -> bool {
        self.failure
            .as_ref()
            .is_some_and(|failure| failure.code == WITHDRAWN)
    }

    /// Returns whether the sender withdrew it, or an operator cancelled it.
    #[must_use]
    pub fn is_cancelled(&self) -> bool {
        self.is_withdrawn()
            || self
                .failure
                .as_ref()
                .is_some_and(|failure| failure.code == CANCELLED)
    }

    /// Returns the report of its state.
    #[must_use]
    pub fn report(&self) -> Report {
        Report {
            status: self.status,
            result: self.result.clone(),
            failure: self.failure.clone(),
            lines: self.lines.clone(),
            total_lines: self.total_lines,
        }
    }

    /// Requests a report.
    fn request_report(&mut self) -> Work {
        self.reports += 1;
        PeerTask::Report {
            number: self.reports,
        }
        .work(&self.message, Some(REPORT_TIMEOUT))
    }

    fn acknowledge(&mut self, now: Timestamp) {
        self.status = MessageStatus::Acknowledged;
        self.acknowledged_at = Some(now);
    }

    fn process(&mut self, result: Value, now: Timestamp) {
        self.status = MessageStatus::Processed;
        self.result = result;
        self.ended_at = Some(now);
    }

    fn fail(&mut self, code: &str, message: String, now: Timestamp) {
        self.status = MessageStatus::Error;
        self.failure = Some(Failure {
            code: code.to_owned(),
            message,
        });
        self.ended_at = Some(now);
    }

    fn add_line(&mut self, text: &str, now: Timestamp) {
        self.lines.push(MessageLine::new(now, text.to_owned()));
        let excess = self.lines.len().saturating_sub(MAX_LINES);
        self.lines.drain(..excess);
        self.total_lines += 1;
    }
}

/// Program of received messages. [`super::inbox_id`] is the correlation id of an instance.
#[derive(Debug)]
pub struct InboxProgram {
    reference: DefinitionRef,
    manifest: Manifest,
}

impl Default for InboxProgram {
    fn default() -> Self {
        let manifest = Manifest {
            started_by_signal: Some(event_type(DELIVER)),
            history_limit: Some(HISTORY_LIMIT),
            indexed: vec![thread_part()],
            ..Manifest::default()
        };
        Self {
            reference: reference(INBOX_SAGA),
            manifest,
        }
    }
}

impl Program for InboxProgram {
    fn definition_ref(&self) -> &DefinitionRef {
        &self.reference
    }

    fn manifest(&self) -> &Manifest {
        &self.manifest
    }

    fn correlate(&self, event: &Event) -> Result<CorrelationId, ProgramError> {
        Err(ProgramError::SchemaMismatch(format!(
            "{} is a signal, not an event",
            event.kind
        )))
    }

    fn apply(
        &self,
        state: Option<&[u8]>,
        input: &ProgramInput<'_>,
        context: &Context<'_>,
    ) -> Result<ProgramOutput, ProgramError> {
        let state = state.map(ReceivedMessage::decode).transpose()?;
        match (state, input) {
            (state, ProgramInput::Event(event)) if event.kind.as_str() == DELIVER => {
                deliver(state, event, context)
            }
            (None, _) => Ok(ProgramOutput::Rejected("the message does not exist".into())),
            (Some(state), ProgramInput::Event(event)) => change(state, event, context),
            (
                Some(state),
                ProgramInput::WorkResult {
                    tag: FLOW_TAG,
                    outcome,
                },
            ) if !state.status.is_final() => flow_ended(state, outcome, context),
            (
                Some(state),
                ProgramInput::WorkResult {
                    tag: MAIL_TAG,
                    outcome,
                },
            ) => mail_ended(state, outcome, context),
            (Some(_), ProgramInput::WorkResult { .. } | ProgramInput::Timer { .. }) => Ok(
                ProgramOutput::Ignored("it changes nothing of the message".into()),
            ),
            (Some(state), ProgramInput::Cancel { .. }) if state.status.is_final() => {
                Ok(ProgramOutput::Rejected("the message has ended".into()))
            }
            (Some(mut state), ProgramInput::Cancel { reason }) => {
                let cancel = cancel_flow(&state, reason, context);
                state.fail(
                    CANCELLED,
                    format!("an operator of the receiver cancelled it: {reason}"),
                    context.now,
                );

                // The sender has not ended the message, so it must receive the end.
                let report = state.request_report();
                output(
                    &state,
                    cancel.into_iter().chain([report]).collect(),
                    CANCELLED.to_owned(),
                )
            }
            (Some(_), ProgramInput::Retry | ProgramInput::Skip | ProgramInput::ForceComplete) => {
                Ok(ProgramOutput::Rejected("a message is never stuck".into()))
            }
        }
    }

    fn view_state(&self, state: &[u8]) -> Option<Value> {
        serde_json::to_value(ReceivedMessage::decode(state).ok()?).ok()
    }
}

fn deliver(
    state: Option<ReceivedMessage>,
    event: &Event,
    context: &Context<'_>,
) -> Result<ProgramOutput, ProgramError> {
    let ReceiveMessage {
        delivery: Delivery { message, withdrawn },
        mail,
    } = data(event)?;

    match (state, withdrawn) {
        (None, None) => receive(message, mail, context),
        // The withdrawal overtook its delivery, which then changes nothing (ADR 0081).
        (None, Some(reason)) => {
            let mut state = ReceivedMessage::new(message, context.now);
            state.fail(WITHDRAWN, reason, context.now);
            output(&state, Vec::new(), WITHDRAWN.to_owned())
        }
        (Some(state), Some(_)) if state.status.is_final() => {
            Ok(ProgramOutput::Ignored("the message has ended".into()))
        }
        // The sender gave the same id to another message.
        (Some(state), Some(_)) if state.message.without_body() != message.without_body() => Ok(
            ProgramOutput::Rejected("it is not the message that is withdrawn".into()),
        ),
        (Some(mut state), Some(reason)) => {
            let cancel = cancel_flow(&state, &reason, context);
            state.fail(WITHDRAWN, reason, context.now);
            output(&state, cancel.into_iter().collect(), WITHDRAWN.to_owned())
        }
        // A message that was withdrawn before its delivery has no body to compare.
        (Some(state), None) if state.is_withdrawn() || state.message == message => {
            Ok(ProgramOutput::Ignored("the message exists".into()))
        }
        (Some(_), None) => Ok(ProgramOutput::Rejected(
            "a message with this id and another content exists".into(),
        )),
    }
}

/// Stores a message.
fn receive(
    message: Message,
    mail: Option<MailTarget>,
    context: &Context<'_>,
) -> Result<ProgramOutput, ProgramError> {
    let mut state = ReceivedMessage::new(message, context.now);
    let note = format!("from {}", state.message.from);
    if state.message.kind != MessageType::Job {
        // Without a recipient, the message is stored all the same; a line reports the reason.
        let work = mail.map(|target| target.work(&state.message)).transpose();
        let work = work.unwrap_or_else(|line| {
            state.add_line(line, context.now);
            None
        });

        // The answer to the delivery is the first report, so none is requested.
        return output(&state, work.into_iter().collect(), note);
    }

    // An accepted job needs no report either: the answer has its status.
    state.acknowledge(context.now);
    let submitted = SubmitFlow {
        source: state.message.body.clone(),
        user: Some(state.message.from.to_string()),
        returns_results: true,
    };
    let start = Work::StartChild(StartChild {
        tag: name(FLOW_TAG),
        round: 0,
        saga: SagaName::new(flow::SAGA).expect("the name is short"),
        correlation: context.key.correlation.clone(),
        event: None,
        data: json!(submitted),
        on_parent_end: ParentEndPolicy::Stop,
    });

    output(&state, vec![start], note)
}

/// Applies the signal of a member.
fn change(
    mut state: ReceivedMessage,
    event: &Event,
    context: &Context<'_>,
) -> Result<ProgramOutput, ProgramError> {
    let kind = event.kind.as_str();
    if !matches!(kind, ACKNOWLEDGE | PROCESS | REJECT | LINE) {
        return Ok(ProgramOutput::Ignored(
            "a message does not handle this event".into(),
        ));
    }

    if state.status.is_final() {
        let reason = format!("the message has ended: {}", state.status.as_str());
        return Ok(ProgramOutput::Rejected(reason.into()));
    }

    if kind == ACKNOWLEDGE && state.status == MessageStatus::Acknowledged {
        return Ok(ProgramOutput::Ignored("it is already acknowledged".into()));
    }

    if state.message.kind == MessageType::Job && matches!(kind, PROCESS | REJECT) {
        let reason = "the flow of a job ends it; cancel the flow to end it earlier";
        return Ok(ProgramOutput::Rejected(reason.into()));
    }

    match kind {
        ACKNOWLEDGE => state.acknowledge(context.now),
        PROCESS => state.process(data::<ProcessMessage>(event)?.result, context.now),
        REJECT => {
            let reason = event.data["reason"].as_str().unwrap_or_default().to_owned();
            state.fail("rejected", reason, context.now);
        }
        _ => state.add_line(event.data["text"].as_str().unwrap_or_default(), context.now),
    }

    if kind != LINE {
        state.by.clone_from(&event.user);
    }

    let report = state.request_report();
    let note = if kind == LINE {
        "line"
    } else {
        state.status.as_str()
    };
    output(&state, vec![report], note.to_owned())
}

fn flow_ended(
    mut state: ReceivedMessage,
    outcome: &WorkOutcome,
    context: &Context<'_>,
) -> Result<ProgramOutput, ProgramError> {
    match outcome {
        WorkOutcome::Succeeded { payload, .. } => state.process(payload.clone(), context.now),
        WorkOutcome::Accepted => return Ok(ProgramOutput::Ignored("a flow has a result".into())),
        WorkOutcome::Failed { failure, .. } | WorkOutcome::TimedOut { failure } => {
            state.fail(&failure.code, failure.message.clone(), context.now);
        }
    }

    let report = state.request_report();
    let note = format!("flow: {}", state.status.as_str());
    output(&state, vec![report], note)
}

/// Adds the outcome of the mail to the lines.
fn mail_ended(
    mut state: ReceivedMessage,
    outcome: &WorkOutcome,
    context: &Context<'_>,
) -> Result<ProgramOutput, ProgramError> {
    let Some((line, note)) = mail::line_and_note(outcome) else {
        return Ok(ProgramOutput::Ignored("a mail has a result".into()));
    };
    state.add_line(&line, context.now);
    // A sender whose message has ended ignores reports.
    let report = (!state.status.is_final()).then(|| state.request_report());
    output(&state, report.into_iter().collect(), note)
}

/// Returns the cancellation of the flow of a job.
fn cancel_flow(state: &ReceivedMessage, reason: &str, context: &Context<'_>) -> Option<Work> {
    if state.message.kind != MessageType::Job {
        return None;
    }
    Some(Work::CancelChild(CancelChild {
        saga: SagaName::new(flow::SAGA).expect("the name is short"),
        correlation: context.key.correlation.clone(),
        reason: reason.to_owned(),
    }))
}

fn data<T: serde::de::DeserializeOwned>(event: &Event) -> Result<T, ProgramError> {
    serde_json::from_value(event.data.clone())
        .map_err(|error| ProgramError::SchemaMismatch(format!("{}: {error}", event.kind)))
}

fn output(
    state: &ReceivedMessage,
    work: Vec<Work>,
    note: String,
) -> Result<ProgramOutput, ProgramError> {
    let (wait_kind, wait_name) = match state.message.kind {
        MessageType::Job => (WaitKind::Saga, FLOW_TAG),
        MessageType::Chat | MessageType::Mail => (WaitKind::Operator, "process"),
    };
    let change = Change {
        status: state.status.of_instance(state.is_cancelled()),
        work,
        timer_before: None,
        timer_after: None,
        wait_kind,
        wait_name,
        thread: state.message.thread.clone(),
        failure: state.failure.clone(),
        note,
    };
    Ok(change.into_output(encode(state)?))
}
