//! Human tasks: specification, state and events.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use uuid::Uuid;

use crate::{EventType, InstanceKey, Name, Timestamp};

/// Change to the tasks of an instance. Reopening a tag replaces the task with that tag.
#[derive(Clone, Debug, PartialEq)]
pub enum TaskChange {
    /// Opens a task.
    Open(TaskSpec),
    /// Reassigns an open task; a no-op if no task has this tag.
    Assign {
        /// Tag of the task.
        tag: Name,
        /// New roles whose users may claim the task; empty: all users.
        roles: Vec<String>,
        /// New assignee.
        assignee: Option<String>,
    },
    /// Closes a task that is no longer required; a no-op if no task has this tag.
    Close {
        /// Tag of the task.
        tag: Name,
    },
}

/// Specification of a human task.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TaskSpec {
    /// Tag that the program assigned; the result has the same tag.
    pub tag: Name,
    /// Round of the tag. The id of the task derives from the run, the tag and the round.
    #[serde(skip)]
    pub round: u64,
    /// Title of the task.
    pub title: String,
    /// Roles whose users may claim the task; empty: all users.
    pub roles: Vec<String>,
    /// User responsible for the task.
    pub assignee: Option<String>,
    /// Due time.
    pub due: Option<Timestamp>,
    /// Outcomes to choose from; empty: completion only.
    pub outcomes: Vec<EventType>,
    /// Data displayed to the user.
    pub data: Value,
    /// Users who can neither claim, be assigned, nor complete the task.
    #[serde(default)]
    pub not_by: Vec<ExcludedUser>,
    /// Whether the task decides an effect in doubt. Such a task is no previous task of another one.
    #[serde(default)]
    pub is_in_doubt: bool,
}

/// Users whom a task of the instance can exclude.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct InstanceUsers {
    /// User whose event started the instance; `None`: unknown.
    pub started_by: Option<String>,
    /// User who completed the last task; `None`: no task was completed.
    pub last_task_user: Option<String>,
}

/// User that a task excludes, for four-eyes rules.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ExcludedUser {
    /// User whose event started the instance.
    Starter,
    /// User who completed the previous task of the instance.
    Previous,
}

impl ExcludedUser {
    /// All excluded users.
    pub const ALL: [Self; 2] = [Self::Starter, Self::Previous];

    /// Returns the name in definitions.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            ExcludedUser::Starter => "starter",
            ExcludedUser::Previous => "previous",
        }
    }

    /// Returns the users whom the rule excludes from the tasks of an instance with these users;
    /// `None`: no user.
    #[must_use]
    pub fn resolve(self, users: Option<&InstanceUsers>) -> Option<Exclusion<'_>> {
        let user = match self {
            Self::Starter => users.and_then(|users| users.started_by.as_deref()),
            Self::Previous => match users {
                // No task was completed yet, so there is no user to exclude.
                Some(users) if users.last_task_user.is_none() => return None,
                users => users.and_then(|users| users.last_task_user.as_deref()),
            },
        };

        // An unknown user could be any user. The rule of four eyes must not become void.
        Some(user.map_or(Exclusion::AllUsers, Exclusion::User))
    }
}

/// Users whom a rule of a task excludes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exclusion<'a> {
    /// This user.
    User(&'a str),
    /// All users, because the instance does not record the user of the rule.
    AllUsers,
}

/// Open task, as stored in its instance.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Task {
    /// Id, derived from the run, the tag and the round.
    pub id: Uuid,
    /// Specification of the task.
    pub spec: TaskSpec,
    /// User who claimed the task.
    pub claimed_by: Option<String>,
    /// Time at which the task was opened.
    pub opened_at: Timestamp,
}

/// Action of a user on a task.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, strum::IntoStaticStr)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum TaskAction {
    /// Claim the task exclusively.
    Claim,
    /// Release the claim.
    Release,
    /// Assign the task to another user. An existing claim ends.
    Assign {
        /// New assignee; `None`: unassigned.
        assignee: Option<String>,
        /// New roles whose users may claim the task; `None`: unchanged.
        roles: Option<Vec<String>>,
    },
    /// Complete the task. The saga continues.
    Complete {
        /// Chosen outcome; `None` if the task defines no outcomes.
        outcome: Option<EventType>,
        /// Data that the user entered.
        data: Value,
    },
}

impl TaskAction {
    /// Returns `claim`, `release`, `assign` or `complete`.
    #[must_use]
    pub fn label(&self) -> &'static str {
        self.into()
    }
}

/// Task in the task list, also after it was closed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TaskRow {
    /// Instance of the task.
    pub instance: InstanceKey,
    /// Last state of the task.
    pub task: Task,
    /// Status of the task.
    pub status: TaskStatus,
    /// Time of the last update.
    pub updated_at: Timestamp,
    /// Chosen outcome, if any.
    pub outcome: Option<EventType>,
}

/// Status of a task.
#[derive(
    Clone,
    Copy,
    Debug,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Hash,
    Serialize,
    Deserialize,
    strum::IntoStaticStr,
)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum TaskStatus {
    /// The task is not claimed.
    Open,
    /// A user has claimed the task.
    Claimed,
    /// The task is completed.
    Completed,
    /// The task is no longer required.
    Closed,
}

impl TaskStatus {
    /// All statuses, in display order.
    pub const ALL: [Self; 4] = [Self::Open, Self::Claimed, Self::Completed, Self::Closed];

    /// Returns the displayed name.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        self.into()
    }
}

/// Event of a task. Task events are append-only.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TaskEvent {
    /// Kind of the event.
    pub kind: TaskEventKind,
    /// User who caused the event; `None`: the saga.
    pub user: Option<String>,
    /// Reason, if provided.
    pub reason: Option<String>,
    /// Time of the event.
    pub at: Timestamp,
}

/// Kind of a task event.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, strum::IntoStaticStr)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum TaskEventKind {
    /// The saga opened the task.
    Opened,
    /// A user claimed the task.
    Claimed,
    /// A user released the claim.
    Released,
    /// A user reassigned the task.
    Reassigned {
        /// New roles whose users may claim the task.
        roles: Vec<String>,
        /// New assignee.
        assignee: Option<String>,
    },
    /// The saga reassigned the task.
    Escalated {
        /// New roles whose users may claim the task.
        roles: Vec<String>,
        /// New assignee.
        assignee: Option<String>,
    },
    /// A user completed the task.
    Completed {
        /// Chosen outcome, if any.
        outcome: Option<EventType>,
    },
    /// The saga closed the task.
    Closed,
}

impl TaskEventKind {
    /// Returns the displayed name.
    #[must_use]
    pub fn as_str(&self) -> &'static str {
        self.into()
    }
}

/// Update of a task in a commit: its new state and the event.
#[derive(Clone, Debug, PartialEq)]
pub struct TaskUpdate {
    /// New state of the task.
    pub row: TaskRow,
    /// Task event.
    pub event: TaskEvent,
}
