//! Inputs of a saga instance: events in the form of CloudEvents 1.0, work results, timers, control
//! requests.

use serde::{Deserialize, Serialize};
use serde_json::Value;
use uuid::Uuid;

use crate::{
    CorrelationId, EventAttributes, EventId, EventType, Name, StartRequest, TaskAction, TenantId,
    Timestamp, TraceParent, WaitToken, WorkResult, WorkflowAction, WorkflowCommand,
};

/// Event, as transmitted. Field names follow CloudEvents 1.0 with the extensions `tenantid`,
/// `correlationid`, `causationid`, `orloguser` and `traceparent`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Event {
    /// Id, unique per source. It is used for deduplication.
    pub id: EventId,
    /// Tenant of the event.
    pub tenant: TenantId,
    /// Event type, for example `OrderPlaced`.
    pub kind: EventType,
    /// Source of the event (`source` of CloudEvents), for example `urn:shop`.
    pub source: String,
    /// Subject of the event (`subject` of CloudEvents), for example the aggregate id.
    pub subject: Option<String>,
    /// Time of the event.
    pub time: Timestamp,
    /// Correlation id, if the publisher provides it.
    pub correlation: Option<CorrelationId>,
    /// Id of the command or event that caused this event.
    pub causation: Option<String>,
    /// W3C trace context.
    pub trace: Option<TraceParent>,
    /// Version of the payload schema. Default: 1.
    pub schema_version: u32,
    /// Payload.
    pub data: Value,
    /// Authenticated user who published the event, if known. The API sets it.
    #[serde(default)]
    pub user: Option<String>,
    /// Further attributes, if there are any. It is the last field, because rows are read by
    /// position.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attributes: Option<Box<EventAttributes>>,
}

/// Input of an instance.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Input {
    /// Event.
    Event(Event),
    /// Result of a work item of the instance.
    WorkResult(WorkResult),
    /// Fired timer of the instance.
    Timer(TimerFired),
    /// Control request of a user or a program for this instance.
    Control(ControlRequest),
    /// Workflow command of a parent or child saga for this instance.
    Workflow(WorkflowCommand),
    /// Input that arrived before its instance and is buffered for it.
    Early(EarlyInput),
}

/// Input that arrived before its instance and is buffered for it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct EarlyInput {
    /// Buffered input.
    pub input: Box<Input>,
    /// Expiry time. The input is deleted if the instance has not started by then.
    pub expires_at: Timestamp,
}

/// Fired timer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TimerFired {
    /// Name of the timer.
    pub name: Name,
    /// Hash of the input that armed the timer and of its name. A rearmed timer has another token,
    /// which makes the old one stale.
    pub token: u64,
    /// Due time.
    pub due: Timestamp,
}

/// Control request for one instance.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ControlRequest {
    /// Id, used to deduplicate repeated requests.
    pub id: EventId,
    /// Requested action.
    pub action: ControlAction,
    /// Required state version; the request is rejected for any other version.
    pub expected_version: Option<u64>,
    /// Time of the request.
    pub at: Timestamp,
    /// User, as reported by the gateway.
    #[serde(default)]
    pub user: Option<String>,
    /// Reason, for the record.
    #[serde(default)]
    pub reason: Option<String>,
    /// W3C trace context.
    #[serde(default)]
    pub trace: Option<TraceParent>,
    /// Wait in which the instance must be; the request is rejected if it has ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wait_token: Option<WaitToken>,
}

/// Action of a control request.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ControlAction {
    /// Cancel the instance and compensate its completed steps.
    Cancel {
        /// Reason, for the record.
        reason: String,
    },
    /// Buffer inputs and apply none.
    Pause,
    /// Apply the buffered inputs and continue.
    Resume,
    /// Retry the failed compensation of a stuck instance.
    Retry,
    /// Send a signal, an event that is delivered to this instance only.
    Signal {
        /// Event type.
        kind: EventType,
        /// Payload.
        data: Value,
        /// Time of the delivery; `None`: at once.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        due_at: Option<Timestamp>,
    },
    /// Send a signal that the bus transported, with conditions or for a later time.
    Deliver {
        /// Event of the signal.
        event: Box<Event>,
        /// Time of the delivery; `None`: at once.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        due_at: Option<Timestamp>,
    },
    /// Skip the failed compensation of a stuck instance, because an operator has handled it.
    Skip,
    /// End a stuck instance without further steps or compensations.
    ForceComplete,
    /// Delete a quarantined instance, whose stored data cannot be read.
    Drop,
    /// Change or complete one of its tasks.
    Task {
        /// Id of the task.
        id: Uuid,
        /// Requested task action.
        order: TaskAction,
        /// Roles of the user, as reported by the gateway.
        roles: Vec<String>,
    },
    /// Replace the instance with the state that a replay of its inputs produces. The request does
    /// not contain that state.
    Replay,
    /// Migrate to another definition of the same saga.
    Migrate {
        /// Content hash of that definition.
        to: [u8; 16],
    },
    /// Start the instance if it does not exist.
    Start(Box<StartRequest>),
}

/// Kind of an input.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, strum::IntoStaticStr)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum InputKind {
    /// See [`Input::Event`].
    Event,
    /// See [`Input::WorkResult`].
    WorkResult,
    /// See [`Input::Timer`].
    Timer,
    /// See [`Input::Control`].
    Control,
    /// See [`Input::Workflow`].
    Workflow,
}

impl InputKind {
    /// Returns the displayed name.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        self.into()
    }
}

impl Input {
    /// Returns the kind. For an early input, returns the kind of the buffered input.
    #[must_use]
    pub fn kind(&self) -> InputKind {
        match self {
            Input::Event(_) => InputKind::Event,
            Input::WorkResult(_) => InputKind::WorkResult,
            Input::Timer(_) => InputKind::Timer,
            Input::Control(_) => InputKind::Control,
            Input::Workflow(_) => InputKind::Workflow,
            Input::Early(early) => early.input.kind(),
        }
    }

    /// Returns the time of the input, which is also the time of the ids derived from it.
    #[must_use]
    pub fn at(&self) -> Timestamp {
        match self {
            Input::Event(e) => e.time,
            Input::WorkResult(o) => o.at,
            Input::Timer(t) => t.due,
            Input::Control(c) => c.at,
            Input::Workflow(w) => w.at,
            Input::Early(e) => e.input.at(),
        }
    }

    /// Returns the id of the input, for records. Events of different sources can have the same id;
    /// see [`Input::identity`].
    ///
    /// Derived ids are short ASCII, so they are always valid event ids.
    #[must_use]
    pub fn id(&self) -> EventId {
        let derived = |text: String| EventId::new(text).expect("a derived id is short ASCII");
        match self {
            Input::Event(e) => e.id.clone(),
            Input::WorkResult(o) => derived(format!("outcome:{}", o.work_id)),
            Input::Timer(t) => derived(format!("timer:{:016x}", t.token)),
            Input::Control(c) => c.id.clone(),
            Input::Workflow(w) => w.id.clone(),
            Input::Early(e) => e.input.id(),
        }
    }

    /// Returns the id of the work item that this input completes.
    #[must_use]
    pub fn completed_work_id(&self) -> Option<Uuid> {
        match self {
            Input::WorkResult(outcome) => Some(outcome.work_id),
            Input::Workflow(WorkflowCommand {
                action: WorkflowAction::ChildEnded(ended),
                ..
            }) => Some(ended.work_id),
            Input::Early(early) => early.input.completed_work_id(),
            Input::Event(_) | Input::Timer(_) | Input::Control(_) | Input::Workflow(_) => None,
        }
    }

    /// Returns the span that caused the input. A timer has none; its instance has the trace.
    #[must_use]
    pub fn trace(&self) -> Option<&TraceParent> {
        match self {
            Input::Event(event) => event.trace.as_ref(),
            Input::WorkResult(outcome) => outcome.trace.as_ref(),
            Input::Control(control) => control.trace.as_ref(),
            Input::Workflow(command) => command.trace.as_ref(),
            Input::Early(early) => early.input.trace(),
            Input::Timer(_) => None,
        }
    }

    /// Returns the event, if the input is one, or a signal that the bus transported.
    #[must_use]
    pub fn event(&self) -> Option<&Event> {
        match self {
            Input::Event(event) => Some(event),
            Input::Control(ControlRequest {
                action: ControlAction::Deliver { event, .. },
                ..
            }) => Some(event),
            Input::Early(early) => early.input.event(),
            Input::WorkResult(_) | Input::Timer(_) | Input::Control(_) | Input::Workflow(_) => None,
        }
    }

    /// Returns the buffered input of an early input, otherwise the input itself.
    #[must_use]
    pub fn into_inner(self) -> Self {
        match self {
            Input::Early(early) => *early.input,
            other => other,
        }
    }

    /// Returns the number of attempts of the work item that has this result; 0 for an input that is
    /// no result.
    #[must_use]
    pub fn attempts(&self) -> u32 {
        match self {
            Input::WorkResult(result) => result.attempts,
            Input::Early(early) => early.input.attempts(),
            Input::Event(_) | Input::Timer(_) | Input::Control(_) | Input::Workflow(_) => 0,
        }
    }

    /// Returns the display label: event type, outcome, timer name, control action or workflow
    /// action.
    #[must_use]
    pub fn label(&self) -> &str {
        match self {
            Input::Event(e) => e.kind.as_str(),
            Input::WorkResult(o) => o.outcome.label(),
            Input::Timer(t) => t.name.as_str(),
            Input::Control(c) => c.action.label(),
            Input::Workflow(w) => w.action.label(),
            Input::Early(e) => e.input.label(),
        }
    }
}

impl ControlAction {
    /// Returns the display label; for a signal the event type, for a task the task action.
    #[must_use]
    pub fn label(&self) -> &str {
        match self {
            ControlAction::Cancel { .. } => "cancel",
            ControlAction::Pause => "pause",
            ControlAction::Resume => "resume",
            ControlAction::Retry => "retry",
            ControlAction::Signal { kind, .. } => kind.as_str(),
            ControlAction::Deliver { event, .. } => event.kind.as_str(),
            ControlAction::Skip => "skip",
            ControlAction::ForceComplete => "force-complete",
            ControlAction::Drop => "drop",
            ControlAction::Task { order, .. } => order.label(),
            ControlAction::Replay => "replay",
            ControlAction::Migrate { .. } => "migrate",
            ControlAction::Start(_) => "start",
        }
    }
}
