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
//! A change by a user, a line, or the end of the flow requests a report. The answer to a delivery or
//! a withdrawal is the report of that change. Reports carry the state at the time of the attempt,
//! so that they may overtake each other.

use std::time::Duration;

use orlog_model::{
    CancelChild, Event, Failure, ParentEndPolicy, SagaName, StartChild, Timestamp, WaitKind, Work,
    WorkOutcome,
};
use orlog_program::{
    Context, Manifest, NativeProgram, NativeResult, NativeSaga, NativeWorkResult, SagaDecision,
    SagaState, TransitionBuilder, event_data,
};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::content::{Delivery, Message, MessageType, ProcessMessage};
use super::mail::{self, MAIL_TAG, MailTarget, ReceiveMessage};
use super::sent::{CANCELLED, ENDED, thread_part};
use super::status::{MAX_LINES, MessageLine, MessageStatus, Report};
use super::transition::{PeerTask, name, set_status, thread_reference};
use super::{ACKNOWLEDGE, DELIVER, INBOX_SAGA, LINE, PROCESS, REJECT};
use crate::event_types::event_type;
use crate::flow::{self, SubmitFlow};

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

/// Saga of received messages. [`super::inbox_id`] is the correlation id of an instance.
#[derive(Debug)]
pub struct ReceivedMessages;

/// Returns the program of received messages.
#[must_use]
pub fn inbox_program() -> NativeProgram<ReceivedMessages> {
    NativeProgram::new(INBOX_SAGA, 1, ReceivedMessages).expect("the name is valid")
}

impl SagaState for ReceivedMessage {
    const FORMAT: u16 = FORMAT;

    fn format(&self) -> u16 {
        self.format
    }
}

impl NativeSaga for ReceivedMessages {
    type State = ReceivedMessage;
    const NOUN: &'static str = "message";

    fn manifest(&self) -> Manifest {
        Manifest {
            started_by_signal: Some(event_type(DELIVER)),
            history_limit: Some(HISTORY_LIMIT),
            indexed: vec![thread_part()],
            ..Manifest::default()
        }
    }

    fn on_event(
        &self,
        state: Option<ReceivedMessage>,
        event: &Event,
        transition: &mut TransitionBuilder<'_>,
    ) -> NativeResult<ReceivedMessage> {
        let Some(state) = state else {
            return deliver(None, event, transition);
        };

        match event.kind.as_str() {
            DELIVER => deliver(Some(state), event, transition),
            ACKNOWLEDGE | PROCESS | REJECT | LINE => change(state, event, transition),
            _ => SagaDecision::ignore("a message does not handle this event"),
        }
    }

    fn on_work_result(
        &self,
        state: ReceivedMessage,
        result: NativeWorkResult<'_>,
        transition: &mut TransitionBuilder<'_>,
    ) -> NativeResult<ReceivedMessage> {
        match result.tag {
            FLOW_TAG if !state.status.is_final() => flow_ended(state, result.outcome, transition),
            MAIL_TAG => mail_ended(state, result.outcome, transition),
            _ => SagaDecision::ignore("it changes nothing of the message"),
        }
    }

    fn on_cancel(
        &self,
        mut state: ReceivedMessage,
        reason: &str,
        transition: &mut TransitionBuilder<'_>,
    ) -> NativeResult<ReceivedMessage> {
        if state.status.is_final() {
            return SagaDecision::reject(ENDED);
        }

        cancel_flow(&state, reason, transition);
        let message = format!("an operator of the receiver cancelled it: {reason}");
        state.fail(CANCELLED, message, transition.now());

        // The sender has not ended the message, so it must receive the end.
        transition.work(state.request_report());
        Ok(store(state, CANCELLED.to_owned(), transition))
    }
}

fn deliver(
    state: Option<ReceivedMessage>,
    event: &Event,
    transition: &mut TransitionBuilder<'_>,
) -> NativeResult<ReceivedMessage> {
    let ReceiveMessage {
        delivery: Delivery { message, withdrawn },
        mail,
    } = event_data(event)?;

    match (state, withdrawn) {
        (None, None) => Ok(receive(message, mail, transition)),
        // The withdrawal overtook its delivery, which then changes nothing (ADR 0081).
        (None, Some(reason)) => {
            let mut state = ReceivedMessage::new(message, transition.now());
            state.fail(WITHDRAWN, reason, transition.now());
            Ok(store(state, WITHDRAWN.to_owned(), transition))
        }
        (Some(state), Some(_)) if state.status.is_final() => SagaDecision::ignore(ENDED),
        // The sender gave the same id to another message.
        (Some(state), Some(_)) if state.message.without_body() != message.without_body() => {
            SagaDecision::reject("it is not the message that is withdrawn")
        }
        (Some(mut state), Some(reason)) => {
            cancel_flow(&state, &reason, transition);
            state.fail(WITHDRAWN, reason, transition.now());
            Ok(store(state, WITHDRAWN.to_owned(), transition))
        }
        // A message that was withdrawn before its delivery has no body to compare.
        (Some(state), None) if state.is_withdrawn() || state.message == message => {
            SagaDecision::ignore("the message exists")
        }
        (Some(_), None) => {
            SagaDecision::reject("a message with this id and another content exists")
        }
    }
}

/// Stores a message.
fn receive(
    message: Message,
    mail: Option<MailTarget>,
    transition: &mut TransitionBuilder<'_>,
) -> SagaDecision<ReceivedMessage> {
    let mut state = ReceivedMessage::new(message, transition.now());
    let note = format!("from {}", state.message.from);
    if state.message.kind == MessageType::Job {
        // An accepted job needs no report: the answer to the delivery has its status.
        state.acknowledge(transition.now());
        transition.work(start_flow(&state, transition.context()));
        return store(state, note, transition);
    }

    // Without a recipient, the message is stored all the same; a line reports the reason.
    match mail.map(|target| target.work(&state.message)).transpose() {
        Ok(Some(work)) => transition.work(work),
        Ok(None) => {}
        Err(line) => state.add_line(line, transition.now()),
    }

    // The answer to the delivery is the first report, so none is requested.
    store(state, note, transition)
}

/// Returns the start of the flow of a job.
fn start_flow(state: &ReceivedMessage, context: &Context<'_>) -> Work {
    let submitted = SubmitFlow {
        source: state.message.body.clone(),
        user: Some(state.message.from.to_string()),
        returns_results: true,
    };

    Work::StartChild(StartChild {
        tag: name(FLOW_TAG),
        round: 0,
        saga: SagaName::new(flow::SAGA).expect("the name is short"),
        correlation: context.key.correlation.clone(),
        event: None,
        data: json!(submitted),
        on_parent_end: ParentEndPolicy::Stop,
    })
}

/// Applies the signal of a member.
fn change(
    mut state: ReceivedMessage,
    event: &Event,
    transition: &mut TransitionBuilder<'_>,
) -> NativeResult<ReceivedMessage> {
    let kind = event.kind.as_str();
    if state.status.is_final() {
        return SagaDecision::reject(format!("{ENDED}: {}", state.status.as_str()));
    }

    if kind == ACKNOWLEDGE && state.status == MessageStatus::Acknowledged {
        return SagaDecision::ignore("it is already acknowledged");
    }

    if state.message.kind == MessageType::Job && matches!(kind, PROCESS | REJECT) {
        return SagaDecision::reject(
            "the flow of a job ends it; cancel the flow to end it earlier",
        );
    }

    let now = transition.now();
    match kind {
        ACKNOWLEDGE => state.acknowledge(now),
        PROCESS => state.process(event_data::<ProcessMessage>(event)?.result, now),
        REJECT => {
            let reason = event.data["reason"].as_str().unwrap_or_default().to_owned();
            state.fail("rejected", reason, now);
        }
        _ => state.add_line(event.data["text"].as_str().unwrap_or_default(), now),
    }

    if kind != LINE {
        state.by.clone_from(&event.user);
    }

    transition.work(state.request_report());
    let note = if kind == LINE {
        "line"
    } else {
        state.status.as_str()
    };
    Ok(store(state, note.to_owned(), transition))
}

fn flow_ended(
    mut state: ReceivedMessage,
    outcome: &WorkOutcome,
    transition: &mut TransitionBuilder<'_>,
) -> NativeResult<ReceivedMessage> {
    match outcome {
        WorkOutcome::Succeeded { payload, .. } => state.process(payload.clone(), transition.now()),
        WorkOutcome::Accepted => return SagaDecision::ignore("a flow has a result"),
        WorkOutcome::Failed { failure, .. } | WorkOutcome::TimedOut { failure } => {
            state.fail(&failure.code, failure.message.clone(), transition.now());
        }
    }

    transition.work(state.request_report());
    let note = format!("flow: {}", state.status.as_str());
    Ok(store(state, note, transition))
}

/// Adds the outcome of the mail to the lines.
fn mail_ended(
    mut state: ReceivedMessage,
    outcome: &WorkOutcome,
    transition: &mut TransitionBuilder<'_>,
) -> NativeResult<ReceivedMessage> {
    let Some((line, note)) = mail::line_and_note(outcome) else {
        return SagaDecision::ignore("a mail has a result");
    };
    state.add_line(&line, transition.now());

    // A sender whose message has ended ignores reports.
    if !state.status.is_final() {
        transition.work(state.request_report());
    }
    Ok(store(state, note, transition))
}

/// Cancels the flow of a job.
fn cancel_flow(state: &ReceivedMessage, reason: &str, transition: &mut TransitionBuilder<'_>) {
    if state.message.kind != MessageType::Job {
        return;
    }
    transition.work(Work::CancelChild(CancelChild {
        saga: SagaName::new(flow::SAGA).expect("the name is short"),
        correlation: transition.context().key.correlation.clone(),
        reason: reason.to_owned(),
    }));
}

/// Stores the state, with what it waits for.
fn store(
    state: ReceivedMessage,
    note: String,
    transition: &mut TransitionBuilder<'_>,
) -> SagaDecision<ReceivedMessage> {
    match state.message.kind {
        MessageType::Job => transition.wait_for(WaitKind::Saga, FLOW_TAG, None),
        MessageType::Chat | MessageType::Mail => {
            transition.wait_for(WaitKind::Operator, "process", None);
        }
    }

    let status = state.status.of_instance(state.is_cancelled());
    set_status(status, state.failure.as_ref(), transition);
    transition.reference(thread_reference(state.message.thread.clone()));
    transition.note(note);
    SagaDecision::Transition(state)
}
