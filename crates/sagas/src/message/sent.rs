//! Sent message: an instance in the context of the sender.
//!
//! | input | dispatched | delivered | acknowledged | ended |
//! |---|---|---|---|---|
//! | send | ignore; another content: reject | the same | the same | the same |
//! | delivery or withdrawal succeeded | delivered, and its report | its report, unless it is older | the same | ignore |
//! | delivery failed | `error`; a job: withdraw | ignore | ignore | ignore |
//! | report | delivered, and its status | its status | its status, unless it is lower | ignore |
//! | timer `delivery` | `error`; a job: withdraw | not armed | not armed | not armed |
//! | timer `acknowledgement` | not armed | `error`; a job: withdraw | not armed | not armed |
//! | timer `result` | not armed | not armed | `error`; a job: withdraw | not armed |
//! | cancel | `error`, withdraw | the same | the same | reject |
//!
//! A message that ends at the sender first is withdrawn at the receiver if it was cancelled or is a
//! job: also after a failed delivery, because an earlier attempt may have stored it. The end of a
//! withdrawal changes nothing.

use std::time::Duration;

use orlog_model::{Event, Failure, Name, Timestamp, WaitKind, Work, WorkOutcome, format_duration};
use orlog_program::{
    Manifest, NativeProgram, NativeResult, NativeSaga, NativeWorkResult, ProgramError,
    SagaDecision, SagaState, TransitionBuilder, event_data,
};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::content::{Delivery, Message, MessageType, SendMessage, Timeouts, check_id};
use super::status::{MessageLine, MessageStatus, Report};
use super::transition::{PeerTask, TimerState, change_timer, name, set_status, thread_reference};
use super::{REPORT, SAGA, SEND, THREAD};
use crate::event_types::event_type;

/// Version of the state.
const FORMAT: u16 = 1;
/// Number of history entries of a message: reports with lines can be frequent.
const HISTORY_LIMIT: u64 = 1_000;
/// Time for which a withdrawal is attempted.
const WITHDRAWAL_TIMEOUT: Duration = Duration::from_hours(7 * 24);
/// Code of the failure of a cancelled message.
pub(super) const CANCELLED: &str = "cancelled";
/// Reason why an input of an ended message has no effect.
pub(super) const ENDED: &str = "the message has ended";

/// State of a sent message.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SentMessage {
    format: u16,
    /// Message.
    pub message: Message,
    /// Timeouts.
    pub timeouts: Timeouts,
    /// Whether the user who sent it may also act in the context of the receiver.
    pub acts_for_receiver: bool,
    /// Status.
    pub status: MessageStatus,
    /// Time at which the receiver had it.
    pub delivered_at: Option<Timestamp>,
    /// Time of the acknowledgement.
    pub acknowledged_at: Option<Timestamp>,
    /// Time of the end.
    pub ended_at: Option<Timestamp>,
    /// Result of a processed message.
    pub result: Value,
    /// Failure of a message with the status `error`.
    pub failure: Option<Failure>,
    /// Last lines of the receiver.
    pub lines: Vec<MessageLine>,
    /// Total number of lines of the receiver.
    pub total_lines: u64,
}

impl SentMessage {
    fn new(sent: SendMessage, now: Timestamp) -> Self {
        let SendMessage {
            message,
            timeouts,
            acts_for_receiver,
        } = sent;
        Self {
            format: FORMAT,
            message: Message {
                sent_at: now,
                ..message
            },
            timeouts,
            acts_for_receiver,
            status: MessageStatus::Dispatched,
            delivered_at: None,
            acknowledged_at: None,
            ended_at: None,
            result: Value::Null,
            failure: None,
            lines: Vec::new(),
            total_lines: 0,
        }
    }

    /// Returns whether a user cancelled it.
    #[must_use]
    pub fn is_cancelled(&self) -> bool {
        self.failure
            .as_ref()
            .is_some_and(|failure| failure.code == CANCELLED)
    }

    /// Returns the data of its delivery.
    #[must_use]
    pub fn delivery(&self) -> Delivery {
        Delivery {
            message: self.message.clone(),
            withdrawn: None,
        }
    }

    /// Returns the data of its withdrawal.
    #[must_use]
    pub fn withdrawal(&self) -> Delivery {
        let reason = self.failure.as_ref().map(|failure| failure.message.clone());
        Delivery {
            message: self.message.without_body(),
            withdrawn: Some(reason.unwrap_or_default()),
        }
    }

    /// Returns the timer of the current phase, which depends on nothing else.
    fn timer(&self) -> TimerState {
        let Timeouts {
            delivery,
            acknowledgement,
            result,
        } = self.timeouts;

        // Each timeout begins when the one before ends, so that one timer is armed at a time.
        match (self.status, self.delivered_at, self.acknowledged_at) {
            (MessageStatus::Dispatched, None, _) => {
                Some(("delivery", self.message.sent_at.saturating_add(delivery)))
            }
            (MessageStatus::Dispatched, Some(delivered), _) => Some((
                "acknowledgement",
                delivered.saturating_add(acknowledgement?),
            )),
            (MessageStatus::Acknowledged, _, Some(acknowledged)) => {
                Some(("result", acknowledged.saturating_add(result?)))
            }
            (MessageStatus::Acknowledged | MessageStatus::Processed | MessageStatus::Error, ..) => {
                None
            }
        }
    }

    /// Applies a report. Returns whether anything changes.
    fn report(&mut self, report: Report, now: Timestamp) -> bool {
        let is_first = self.delivered_at.is_none();

        // A report proves the delivery, whose own response can be lost.
        self.delivered_at.get_or_insert(now);

        // Reports can overtake each other; a status only increases.
        let has_lines = report.total_lines > self.total_lines;
        if report.status < self.status || report.status == self.status && !has_lines {
            return is_first;
        }

        if report.status >= MessageStatus::Acknowledged {
            self.acknowledged_at.get_or_insert(now);
        }
        if report.status.is_final() {
            self.ended_at = Some(now);
        }
        if has_lines {
            self.lines = report.lines;
            self.total_lines = report.total_lines;
        }

        self.status = report.status;
        self.result = report.result;
        self.failure = report.failure;
        true
    }

    /// Ends the message at the sender.
    fn fail(&mut self, failure: Failure, now: Timestamp) {
        self.status = MessageStatus::Error;
        self.failure = Some(failure);
        self.ended_at = Some(now);
    }

    /// Returns the failure of a timeout.
    fn timeout(&self, timer: &str) -> Option<Failure> {
        let to = &self.message.to;
        let Timeouts {
            delivery,
            acknowledgement,
            result,
        } = self.timeouts;

        let message = match timer {
            "delivery" => format!(
                "{to} did not confirm the delivery within {}; the attempts of the instance have \
                 the reason",
                format_duration(delivery)
            ),
            "acknowledgement" => format!(
                "{to} did not acknowledge it within {}",
                format_duration(acknowledgement?)
            ),
            "result" => format!(
                "{to} did not process it within {}",
                format_duration(result?)
            ),
            _ => return None,
        };

        Some(Failure {
            code: format!("{timer}_timeout"),
            message,
        })
    }
}

/// Saga of sent messages. The correlation id of an instance is the id of the message.
#[derive(Debug)]
pub struct SentMessages;

/// Returns the program of sent messages.
#[must_use]
pub fn program() -> NativeProgram<SentMessages> {
    NativeProgram::new(SAGA, 1, SentMessages).expect("the name is valid")
}

/// Returns the indexed part of the business reference.
pub(super) fn thread_part() -> Name {
    name(&format!("reference.{THREAD}"))
}

impl SagaState for SentMessage {
    const FORMAT: u16 = FORMAT;

    fn format(&self) -> u16 {
        self.format
    }
}

impl NativeSaga for SentMessages {
    type State = SentMessage;
    const NOUN: &'static str = "message";

    fn manifest(&self) -> Manifest {
        Manifest {
            started_by_signal: Some(event_type(SEND)),
            history_limit: Some(HISTORY_LIMIT),
            indexed: vec![thread_part()],
            ..Manifest::default()
        }
    }

    fn on_event(
        &self,
        state: Option<SentMessage>,
        event: &Event,
        transition: &mut TransitionBuilder<'_>,
    ) -> NativeResult<SentMessage> {
        let Some(state) = state else {
            return send(None, event, transition);
        };

        match event.kind.as_str() {
            SEND => send(Some(state), event, transition),
            _ if state.status.is_final() => SagaDecision::ignore(ENDED),
            REPORT => apply_report(state, event_data(event)?, transition),
            _ => SagaDecision::ignore("a message does not handle this event"),
        }
    }

    fn on_work_result(
        &self,
        state: SentMessage,
        result: NativeWorkResult<'_>,
        transition: &mut TransitionBuilder<'_>,
    ) -> NativeResult<SentMessage> {
        if state.status.is_final() {
            return SagaDecision::ignore(ENDED);
        }
        delivery_ended(state, result.outcome, transition)
    }

    fn on_timer(
        &self,
        mut state: SentMessage,
        timer: &str,
        transition: &mut TransitionBuilder<'_>,
    ) -> NativeResult<SentMessage> {
        let before = state.timer();
        let is_armed = before.is_some_and(|(armed, _)| armed == timer);
        let Some(failure) = state.timeout(timer).filter(|_| is_armed) else {
            return SagaDecision::ignore("the timer is not armed");
        };

        let note = failure.to_string();
        state.fail(failure, transition.now());
        withdraw_job(&state, transition);
        Ok(store(state, before, note, transition))
    }

    fn on_cancel(
        &self,
        mut state: SentMessage,
        reason: &str,
        transition: &mut TransitionBuilder<'_>,
    ) -> NativeResult<SentMessage> {
        if state.status.is_final() {
            return SagaDecision::reject(ENDED);
        }

        let before = state.timer();
        let reason = if reason.is_empty() {
            String::new()
        } else {
            format!(": {reason}")
        };
        let failure = Failure {
            code: CANCELLED.to_owned(),
            message: format!("the sender cancelled it{reason}"),
        };

        state.fail(failure, transition.now());
        transition.work(withdrawal(&state));
        Ok(store(state, before, CANCELLED.to_owned(), transition))
    }
}

fn send(
    state: Option<SentMessage>,
    event: &Event,
    transition: &mut TransitionBuilder<'_>,
) -> NativeResult<SentMessage> {
    let sent: SendMessage = event_data(event)?;
    check_id(transition.context().key.correlation.as_str())
        .map_err(|error| ProgramError::SchemaMismatch(format!("{SEND}: {error}")))?;

    match state {
        None => {
            let state = SentMessage::new(sent, transition.now());
            transition.work(PeerTask::Deliver.work(&state.message, None));
            let note = format!("to {}", state.message.to);
            Ok(store(state, None, note, transition))
        }
        Some(state) if state.message.is_same(&sent.message) && state.timeouts == sent.timeouts => {
            SagaDecision::ignore("the message exists")
        }
        Some(_) => SagaDecision::reject("a message with this id and another content exists"),
    }
}

fn apply_report(
    mut state: SentMessage,
    report: Report,
    transition: &mut TransitionBuilder<'_>,
) -> NativeResult<SentMessage> {
    let before = state.timer();
    if !state.report(report, transition.now()) {
        return SagaDecision::ignore("the report is not new");
    }
    let note = state.status.as_str().to_owned();
    Ok(store(state, before, note, transition))
}

fn delivery_ended(
    mut state: SentMessage,
    outcome: &WorkOutcome,
    transition: &mut TransitionBuilder<'_>,
) -> NativeResult<SentMessage> {
    let before = state.timer();
    match outcome {
        WorkOutcome::Succeeded { payload, .. } => {
            let report = Report::deserialize(payload).map_err(|error| {
                ProgramError::SchemaMismatch(format!("result of the delivery: {error}"))
            })?;
            apply_report(state, report, transition)
        }
        WorkOutcome::Accepted => SagaDecision::ignore("a delivery has a result"),
        // An earlier attempt delivered it, and its response was lost.
        WorkOutcome::Failed { .. } | WorkOutcome::TimedOut { .. }
            if state.delivered_at.is_some() =>
        {
            SagaDecision::ignore("the message is delivered")
        }
        WorkOutcome::Failed { failure, .. } | WorkOutcome::TimedOut { failure } => {
            state.fail(failure.clone(), transition.now());
            withdraw_job(&state, transition);
            Ok(store(
                state,
                before,
                format!("not delivered: {failure}"),
                transition,
            ))
        }
    }
}

/// Withdraws a job at the receiver; other messages stay there.
fn withdraw_job(state: &SentMessage, transition: &mut TransitionBuilder<'_>) {
    if state.message.kind == MessageType::Job {
        transition.work(withdrawal(state));
    }
}

fn withdrawal(state: &SentMessage) -> Work {
    PeerTask::Withdraw.work(&state.message, Some(WITHDRAWAL_TIMEOUT))
}

/// Stores the state, with its timer and what it waits for.
fn store(
    state: SentMessage,
    timer_before: TimerState,
    note: String,
    transition: &mut TransitionBuilder<'_>,
) -> SagaDecision<SentMessage> {
    let timer = state.timer();
    change_timer(timer_before, timer, transition);

    let due = timer.map(|(_, due)| due);
    match state.delivered_at {
        None => transition.wait_for(WaitKind::WorkResult, PeerTask::Deliver.tag(), due),
        Some(_) => transition.wait_for(WaitKind::Event, REPORT, due),
    }

    let status = state.status.of_instance(state.is_cancelled());
    set_status(status, state.failure.as_ref(), transition);
    transition.reference(thread_reference(state.message.thread.clone()));
    transition.note(note);
    SagaDecision::Transition(state)
}
