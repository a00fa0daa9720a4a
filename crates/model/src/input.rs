//! Inputs: everything that can move an instance, in the one shape its mailbox takes.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use uuid::Uuid;

use crate::{
    Event, EventId, EventType, Name, Outcome, TaskOrder, Timestamp, TraceParent, WorkflowCommand,
    WorkflowOrder,
};

/// What an instance is told.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Input {
    /// A fact from outside.
    Event(Event),
    /// What became of work it asked for.
    Outcome(Outcome),
    /// A timer it armed fell due.
    Timer(TimerFired),
    /// A person or a program addresses this very instance.
    Control(Control),
    /// Another saga addresses this very instance.
    Workflow(WorkflowCommand),
    /// An input that came before its instance and is kept for it.
    Early(Early),
}

/// An input that came before its instance and is kept for it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Early {
    /// What came.
    pub input: Box<Input>,
    /// It is dropped when the instance has not begun by then.
    pub until: Timestamp,
}

/// A timer that fell due.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TimerFired {
    /// The name it was armed under.
    pub name: Name,
    /// The state version that armed it; a timer armed anew has another, which makes the old one stale.
    pub token: u64,
    /// When it was to fire.
    pub due: Timestamp,
}

/// An instruction to one instance.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Control {
    /// Deduplicates repeated instructions.
    pub id: EventId,
    /// What to do.
    pub action: Action,
    /// Refused unless the instance stands at this state version.
    pub expected_version: Option<u64>,
    /// When it was given.
    pub at: Timestamp,
    /// Who gave it, as far as the gateway in front says.
    #[serde(default)]
    pub by: Option<String>,
    /// Why, for the record.
    #[serde(default)]
    pub reason: Option<String>,
    /// W3C trace context.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trace: Option<TraceParent>,
}

/// What an operator can tell an instance.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Action {
    /// Stop going forward and undo what was done.
    Cancel {
        /// For the record.
        reason: String,
    },
    /// Keep inputs, apply none.
    Pause,
    /// Apply what was kept, then go on.
    Resume,
    /// Try again what made it `stuck`.
    Retry,
    /// Hand it an event that is addressed to it alone.
    Signal {
        /// The event's type.
        kind: EventType,
        /// The event's payload.
        data: Value,
    },
    /// Leave undone what made it `stuck`: a person has seen to it.
    Skip,
    /// End what is `stuck` as it is: nothing more is done or undone.
    ForceComplete,
    /// Do something about one of its tasks.
    Task {
        /// Which task.
        id: Uuid,
        /// What to do.
        order: TaskOrder,
        /// The roles of the person, as the gateway in front says.
        roles: Vec<String>,
    },
    /// Stand as it would had it taken its inputs anew. What that is comes beside the instruction, not in it.
    Replay,
    /// Go on with another definition of the same saga.
    Migrate {
        /// The content hash of that definition.
        to: [u8; 16],
    },
}

/// The kinds of inputs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum InputKind {
    /// See [`Input::Event`].
    Event,
    /// See [`Input::Outcome`].
    Outcome,
    /// See [`Input::Timer`].
    Timer,
    /// See [`Input::Control`].
    Control,
    /// See [`Input::Workflow`].
    Workflow,
}

impl InputKind {
    /// The word people see.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            InputKind::Event => "event",
            InputKind::Outcome => "outcome",
            InputKind::Timer => "timer",
            InputKind::Control => "control",
            InputKind::Workflow => "workflow",
        }
    }
}

impl Input {
    /// Which kind; of one that was kept for its instance, that of what was kept.
    #[must_use]
    pub fn kind(&self) -> InputKind {
        match self {
            Input::Event(_) => InputKind::Event,
            Input::Outcome(_) => InputKind::Outcome,
            Input::Timer(_) => InputKind::Timer,
            Input::Control(_) => InputKind::Control,
            Input::Workflow(_) => InputKind::Workflow,
            Input::Early(early) => early.input.kind(),
        }
    }

    /// The time at which it happened: that of the ids it leads to.
    #[must_use]
    pub fn at(&self) -> Timestamp {
        match self {
            Input::Event(e) => e.time,
            Input::Outcome(o) => o.at,
            Input::Timer(t) => t.due,
            Input::Control(c) => c.at,
            Input::Workflow(w) => w.at,
            Input::Early(e) => e.input.at(),
        }
    }

    /// Identifies the input among those of its instance.
    ///
    /// Derived ids are ASCII and short, so that they always are valid event ids.
    #[must_use]
    pub fn id(&self) -> EventId {
        let derived = |text: String| EventId::new(text).expect("a derived id is short ASCII");
        match self {
            Input::Event(e) => e.id.clone(),
            Input::Outcome(o) => derived(format!("outcome:{}", o.work_id)),
            Input::Timer(t) => derived(format!("timer:{}:{}", t.token, t.due.millis())),
            Input::Control(c) => c.id.clone(),
            Input::Workflow(w) => w.id.clone(),
            Input::Early(e) => e.input.id(),
        }
    }

    /// The work whose end this is.
    #[must_use]
    pub fn answers(&self) -> Option<Uuid> {
        match self {
            Input::Outcome(outcome) => Some(outcome.work_id),
            Input::Workflow(WorkflowCommand { order: WorkflowOrder::Ended(ended), .. }) => {
                Some(ended.work_id)
            }
            Input::Early(early) => early.input.answers(),
            Input::Event(_) | Input::Timer(_) | Input::Control(_) | Input::Workflow(_) => None,
        }
    }

    /// The span that led to it; a timer knows none, its instance does.
    #[must_use]
    pub fn trace(&self) -> Option<&TraceParent> {
        match self {
            Input::Event(event) => event.trace.as_ref(),
            Input::Outcome(outcome) => outcome.trace.as_ref(),
            Input::Control(control) => control.trace.as_ref(),
            Input::Workflow(command) => command.trace.as_ref(),
            Input::Early(early) => early.input.trace(),
            Input::Timer(_) => None,
        }
    }

    /// The input itself, where it is one that was kept for its instance.
    #[must_use]
    pub fn unkept(self) -> Self {
        match self {
            Input::Early(early) => *early.input,
            other => other,
        }
    }

    /// What people call it: the event's type, the verdict, the timer's name, the action, the order.
    #[must_use]
    pub fn label(&self) -> &str {
        match self {
            Input::Event(e) => e.kind.as_str(),
            Input::Outcome(o) => o.verdict.label(),
            Input::Timer(t) => t.name.as_str(),
            Input::Control(c) => c.action.label(),
            Input::Workflow(w) => w.order.label(),
            Input::Early(e) => e.input.label(),
        }
    }
}

impl Action {
    /// The word people use for it; of a signal the event's type, of a task what is done about it.
    #[must_use]
    pub fn label(&self) -> &str {
        match self {
            Action::Cancel { .. } => "cancel",
            Action::Pause => "pause",
            Action::Resume => "resume",
            Action::Retry => "retry",
            Action::Signal { kind, .. } => kind.as_str(),
            Action::Skip => "skip",
            Action::ForceComplete => "force-complete",
            Action::Task { order, .. } => order.label(),
            Action::Replay => "replay",
            Action::Migrate { .. } => "migrate",
        }
    }
}

impl crate::Verdict {
    /// `accepted`, `succeeded`, `failed` or `timed out`.
    #[must_use]
    pub fn label(&self) -> &'static str {
        match self {
            crate::Verdict::Accepted => "accepted",
            crate::Verdict::Succeeded { .. } => "succeeded",
            crate::Verdict::Failed { .. } => "failed",
            crate::Verdict::TimedOut { .. } => "timed out",
        }
    }
}
