//! Sent message: an instance in the context of the sender.
//!
//! | input | dispatched | delivered | acknowledged | ended |
//! |---|---|---|---|---|
//! | send | ignore; another content: reject | the same | the same | the same |
//! | delivery succeeded | delivered, and its report | ignore | ignore | ignore |
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

use orlog_model::{
    CorrelationId, DefinitionRef, Event, Failure, Name, Timestamp, WaitKind, Work, WorkOutcome,
    format_duration,
};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::content::{Delivery, Message, MessageType, SendMessage, Timeouts, check_id};
use super::status::{MessageLine, MessageStatus, Report};
use super::transition::{Change, PeerTask, TimerState, name};
use super::{REPORT, SAGA, SEND, THREAD};
use crate::built_in::{decode, encode, event_type, reference};
use crate::contract::{Context, Manifest, ProgramError, ProgramInput, ProgramOutput};
use crate::program::Program;

/// Version of the state.
const FORMAT: u16 = 1;
/// Number of history entries of a message: reports with lines can be frequent.
const HISTORY_LIMIT: u64 = 1_000;
/// Time for which a withdrawal is attempted.
const WITHDRAWAL_TIMEOUT: Duration = Duration::from_hours(7 * 24);
/// Code of the failure of a cancelled message.
pub(super) const CANCELLED: &str = "cancelled";

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

    /// Decodes a stored state.
    ///
    /// # Errors
    /// If it is damaged, or of a newer release.
    pub fn decode(state: &[u8]) -> Result<Self, ProgramError> {
        decode(state, FORMAT, |state: &Self| state.format)
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

/// Program of sent messages. The correlation id of an instance is the id of the message.
#[derive(Debug)]
pub struct MessageProgram {
    reference: DefinitionRef,
    manifest: Manifest,
}

impl Default for MessageProgram {
    fn default() -> Self {
        let manifest = Manifest {
            started_by_signal: Some(event_type(SEND)),
            history_limit: Some(HISTORY_LIMIT),
            indexed: vec![thread_part()],
            ..Manifest::default()
        };
        Self {
            reference: reference(SAGA),
            manifest,
        }
    }
}

/// Returns the indexed part of the business reference.
pub(super) fn thread_part() -> Name {
    name(&format!("reference.{THREAD}"))
}

impl Program for MessageProgram {
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
        let state = state.map(SentMessage::decode).transpose()?;
        match (state, input) {
            (state, ProgramInput::Event(event)) if event.kind.as_str() == SEND => {
                send(state, event, context)
            }
            (None, _) => Ok(ProgramOutput::Rejected("the message does not exist".into())),
            (Some(_), ProgramInput::Retry | ProgramInput::Skip | ProgramInput::ForceComplete) => {
                Ok(ProgramOutput::Rejected("a message is never stuck".into()))
            }
            (Some(state), ProgramInput::Cancel { .. }) if state.status.is_final() => {
                Ok(ProgramOutput::Rejected("the message has ended".into()))
            }
            (Some(state), _) if state.status.is_final() => {
                Ok(ProgramOutput::Ignored("the message has ended".into()))
            }
            (Some(state), ProgramInput::Event(event)) if event.kind.as_str() == REPORT => {
                let report = serde_json::from_value(event.data.clone())
                    .map_err(|error| ProgramError::SchemaMismatch(format!("{REPORT}: {error}")))?;
                apply_report(state, report, context)
            }
            (Some(_), ProgramInput::Event(_)) => Ok(ProgramOutput::Ignored(
                "a message does not handle this event".into(),
            )),
            (Some(state), ProgramInput::WorkResult { outcome, .. }) => {
                delivery_ended(state, outcome, context)
            }
            (Some(state), ProgramInput::Timer { name }) => timer_fired(state, name, context),
            (Some(state), ProgramInput::Cancel { reason }) => cancel(state, reason, context),
        }
    }

    fn view_state(&self, state: &[u8]) -> Option<Value> {
        serde_json::to_value(SentMessage::decode(state).ok()?).ok()
    }
}

fn send(
    state: Option<SentMessage>,
    event: &Event,
    context: &Context<'_>,
) -> Result<ProgramOutput, ProgramError> {
    let invalid = |error: String| ProgramError::SchemaMismatch(format!("{SEND}: {error}"));
    let sent: SendMessage =
        serde_json::from_value(event.data.clone()).map_err(|error| invalid(error.to_string()))?;
    check_id(context.key.correlation.as_str()).map_err(invalid)?;

    match state {
        None => {
            let state = SentMessage::new(sent, context.now);
            let note = format!("to {}", state.message.to);
            output(
                &state,
                None,
                vec![PeerTask::Deliver.work(&state.message, None)],
                note,
            )
        }
        Some(state) if state.message.is_same(&sent.message) && state.timeouts == sent.timeouts => {
            Ok(ProgramOutput::Ignored("the message exists".into()))
        }
        Some(_) => Ok(ProgramOutput::Rejected(
            "a message with this id and another content exists".into(),
        )),
    }
}

fn apply_report(
    mut state: SentMessage,
    report: Report,
    context: &Context<'_>,
) -> Result<ProgramOutput, ProgramError> {
    let before = state.timer();
    if !state.report(report, context.now) {
        return Ok(ProgramOutput::Ignored("the report is not new".into()));
    }
    let note = state.status.as_str().to_owned();
    output(&state, before, Vec::new(), note)
}

fn delivery_ended(
    mut state: SentMessage,
    outcome: &WorkOutcome,
    context: &Context<'_>,
) -> Result<ProgramOutput, ProgramError> {
    let before = state.timer();
    match outcome {
        WorkOutcome::Succeeded { payload, .. } => {
            let report = serde_json::from_value(payload.clone()).map_err(|error| {
                ProgramError::SchemaMismatch(format!("result of the delivery: {error}"))
            })?;
            apply_report(state, report, context)
        }
        WorkOutcome::Accepted => Ok(ProgramOutput::Ignored("a delivery has a result".into())),
        // An earlier attempt delivered it, and its response was lost.
        WorkOutcome::Failed { .. } | WorkOutcome::TimedOut { .. }
            if state.delivered_at.is_some() =>
        {
            Ok(ProgramOutput::Ignored("the message is delivered".into()))
        }
        WorkOutcome::Failed { failure, .. } | WorkOutcome::TimedOut { failure } => {
            state.fail(failure.clone(), context.now);
            let work = withdrawal_of_job(&state);
            output(&state, before, work, format!("not delivered: {failure}"))
        }
    }
}

fn timer_fired(
    mut state: SentMessage,
    timer: &str,
    context: &Context<'_>,
) -> Result<ProgramOutput, ProgramError> {
    let before = state.timer();
    let Some(failure) = state
        .timeout(timer)
        .filter(|_| before.is_some_and(|(armed, _)| armed == timer))
    else {
        return Ok(ProgramOutput::Ignored("the timer is not armed".into()));
    };

    let note = failure.to_string();
    state.fail(failure, context.now);
    let work = withdrawal_of_job(&state);
    output(&state, before, work, note)
}

fn cancel(
    mut state: SentMessage,
    reason: &str,
    context: &Context<'_>,
) -> Result<ProgramOutput, ProgramError> {
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

    state.fail(failure, context.now);
    output(
        &state,
        before,
        vec![withdrawal(&state)],
        CANCELLED.to_owned(),
    )
}

/// Returns the withdrawal of a job; other messages stay at the receiver.
fn withdrawal_of_job(state: &SentMessage) -> Vec<Work> {
    if state.message.kind == MessageType::Job {
        vec![withdrawal(state)]
    } else {
        Vec::new()
    }
}

fn withdrawal(state: &SentMessage) -> Work {
    PeerTask::Withdraw.work(&state.message, Some(WITHDRAWAL_TIMEOUT))
}

fn output(
    state: &SentMessage,
    before: TimerState,
    work: Vec<Work>,
    note: String,
) -> Result<ProgramOutput, ProgramError> {
    let (wait_kind, wait_name) = match state.delivered_at {
        None => (WaitKind::WorkResult, PeerTask::Deliver.tag()),
        Some(_) => (WaitKind::Event, REPORT),
    };
    let change = Change {
        status: state.status.of_instance(state.is_cancelled()),
        work,
        timer_before: before,
        timer_after: state.timer(),
        wait_kind,
        wait_name,
        thread: state.message.thread.clone(),
        failure: state.failure.clone(),
        note,
    };
    Ok(change.into_output(encode(state)?))
}
