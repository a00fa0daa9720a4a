//! Transition builder of a saga: work, timers, tasks and the displayed state of the instance.

use serde::Serialize;
use serde_json::Value;

use crate::input::Failure;

/// Collects the actions of a transition. If a name is invalid or missing from the manifest, the
/// runner dead-letters the input with this reason and pauses the instance.
#[derive(Debug, Default, Serialize)]
pub struct TransitionBuilder {
    status: Status,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    work: Vec<WorkRequest>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    timers: Vec<TimerAction>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    tasks: Vec<TaskAction>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    waits: Vec<Wait>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reference: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    failure: Option<Failure>,
    #[serde(skip_serializing_if = "Option::is_none")]
    note: Option<String>,
}

/// Status of an instance.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Status {
    /// Executing steps.
    #[default]
    Running,
    /// Compensating completed steps.
    Compensating,
    /// Final: all steps completed.
    Completed,
    /// Final: a step failed and all completed steps were compensated.
    Failed,
    /// Final: cancelled, and all completed steps were compensated.
    Cancelled,
    /// A compensation failed; an operator must decide.
    Stuck,
}

/// Command to an aggregate.
#[derive(Clone, Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Command {
    /// Tag of the rejection and, with `confirm`, of the acceptance.
    pub tag: String,
    /// Distinguishes requests of the same tag. The idempotency key derives from tag and round.
    pub round: u64,
    /// Name `aggregate.Command`, as listed in the manifest.
    pub name: String,
    /// Id of the aggregate. Default: the correlation id.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    /// Arguments.
    pub payload: Value,
    /// Whether the acceptance is also returned, as the result.
    pub confirm: bool,
    /// Timeout in milliseconds; the command is not sent after it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timeout_ms: Option<u64>,
}

/// Effect on an external system. Its result has the tag.
#[derive(Clone, Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Effect {
    /// Tag of the result.
    pub tag: String,
    /// Distinguishes requests of the same tag. The idempotency key derives from tag and round.
    pub round: u64,
    /// Name, as listed in the manifest, for example `payments.charge`.
    pub name: String,
    /// Arguments.
    pub payload: Value,
    /// Timeout of all attempts together, in milliseconds. Default: the timeout of the provider.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timeout_ms: Option<u64>,
}

/// User that a task excludes, for four-eyes rules.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ExcludedUser {
    /// User whose event started the instance.
    Starter,
    /// User who completed the previous task of the instance.
    Previous,
}

/// Human task. The chosen outcome is a work result with the tag.
#[derive(Clone, Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct TaskSpec {
    /// Tag of the result.
    pub tag: String,
    /// Distinguishes tasks of the same tag.
    pub round: u64,
    /// Title of the task.
    pub title: String,
    /// Roles whose users may claim the task; empty: all users.
    pub roles: Vec<String>,
    /// User responsible for the task.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub assignee: Option<String>,
    /// Due time, in milliseconds since 1970.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub due: Option<i64>,
    /// Outcomes to choose from; empty: completion only.
    pub outcomes: Vec<String>,
    /// Data displayed to the user.
    pub data: Value,
    /// Users who can neither claim, be assigned, nor complete the task.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub not_by: Vec<ExcludedUser>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
enum WorkRequest {
    Command(Command),
    Effect(Effect),
    Fact {
        #[serde(rename = "type")]
        kind: String,
        data: Value,
    },
    StartChild {
        tag: String,
        saga: String,
        correlation: String,
        data: Value,
    },
    CancelChild {
        saga: String,
        correlation: String,
        reason: String,
    },
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "lowercase")]
enum TimerAction {
    Arm {
        name: String,
        #[serde(rename = "afterMs")]
        after_ms: u64,
    },
    Cancel {
        name: String,
    },
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "lowercase")]
enum TaskAction {
    Open(TaskSpec),
    Close { tag: String },
}

#[derive(Debug, Serialize)]
struct Wait {
    kind: &'static str,
    name: String,
}

impl TransitionBuilder {
    /// Sends a command to the aggregate with the correlation id; its result is an event. `name` is
    /// `aggregate.Command`.
    pub fn command(&mut self, tag: &str, name: &str, payload: &impl Serialize) {
        let payload = value(payload);
        self.command_with(Command {
            tag: tag.to_owned(),
            name: name.to_owned(),
            payload,
            ..Command::default()
        });
    }

    /// Sends a command with all options.
    pub fn command_with(&mut self, command: Command) {
        self.work.push(WorkRequest::Command(command));
    }

    /// Executes an effect; its result has the tag.
    pub fn effect(&mut self, tag: &str, name: &str, payload: &impl Serialize) {
        let payload = value(payload);
        self.effect_with(Effect {
            tag: tag.to_owned(),
            name: name.to_owned(),
            payload,
            ..Effect::default()
        });
    }

    /// Executes an effect with all options.
    pub fn effect_with(&mut self, effect: Effect) {
        self.waits.push(Wait {
            kind: "workResult",
            name: effect.tag.clone(),
        });
        self.work.push(WorkRequest::Effect(effect));
    }

    /// Emits a fact.
    pub fn emit(&mut self, kind: &str, data: &impl Serialize) {
        self.work.push(WorkRequest::Fact {
            kind: kind.to_owned(),
            data: value(data),
        });
    }

    /// Starts a child saga with its first start event; its end is a work result with the tag.
    pub fn start_child(&mut self, tag: &str, saga: &str, correlation: &str, data: &impl Serialize) {
        let [tag, saga, correlation] = [tag, saga, correlation].map(str::to_owned);
        self.work.push(WorkRequest::StartChild {
            tag,
            saga,
            correlation,
            data: value(data),
        });
    }

    /// Cancels a child saga.
    pub fn cancel_child(&mut self, saga: &str, correlation: &str, reason: &str) {
        let [saga, correlation, reason] = [saga, correlation, reason].map(str::to_owned);
        self.work.push(WorkRequest::CancelChild {
            saga,
            correlation,
            reason,
        });
    }

    /// Arms a timer that is due this many milliseconds after the transition. It replaces a timer of
    /// the same name.
    pub fn arm_timer(&mut self, name: &str, after_ms: u64) {
        self.timers.push(TimerAction::Arm {
            name: name.to_owned(),
            after_ms,
        });
    }

    /// Cancels a timer.
    pub fn cancel_timer(&mut self, name: &str) {
        self.timers.push(TimerAction::Cancel {
            name: name.to_owned(),
        });
    }

    /// Opens a human task.
    pub fn open_task(&mut self, task: TaskSpec) {
        self.tasks.push(TaskAction::Open(task));
    }

    /// Closes a task that is no longer required.
    pub fn close_task(&mut self, tag: &str) {
        self.tasks.push(TaskAction::Close {
            tag: tag.to_owned(),
        });
    }

    /// Sets the displayed wait of the instance to an event.
    pub fn wait_for_event(&mut self, kind: &str) {
        self.waits.push(Wait {
            kind: "event",
            name: kind.to_owned(),
        });
    }

    /// Sets the displayed wait of the instance to an operator.
    pub fn wait_for_operator(&mut self, name: &str) {
        self.waits.push(Wait {
            kind: "operator",
            name: name.to_owned(),
        });
    }

    /// Sets the status after the transition. Default: [`Status::Running`].
    pub fn set_status(&mut self, status: Status) {
        self.status = status;
    }

    /// Sets the business reference of the instance.
    pub fn reference(&mut self, reference: impl Into<String>) {
        self.reference = Some(reference.into());
    }

    /// Sets the failure of the instance.
    pub fn failure(&mut self, failure: Failure) {
        self.failure = Some(failure);
    }

    /// Sets the short note of the history entry.
    pub fn note(&mut self, note: impl Into<String>) {
        self.note = Some(note.into());
    }
}

/// Returns a payload as JSON. A value that JSON cannot represent (a map whose keys are not strings)
/// traps, and the runner pauses the instance.
fn value(payload: &impl Serialize) -> Value {
    serde_json::to_value(payload).expect("a payload is plain data with string keys")
}
