//! Tasks for people: what a saga asks a person to decide, and what became of it.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use uuid::Uuid;

use crate::{EventType, InstanceKey, Name, Timestamp};

/// A change to the tasks of an instance. Opening a tag anew replaces the task of that tag.
#[derive(Clone, Debug, PartialEq)]
pub enum TaskChange {
    /// Ask a person.
    Open(TaskForm),
    /// Give an open task to others; nothing happens when there is none of that tag.
    Assign {
        /// The tag it was opened under.
        tag: Name,
        /// The roles of those who may take it from now on; empty: everybody.
        roles: Vec<String>,
        /// Who is to do it from now on.
        assignee: Option<String>,
    },
    /// It is no longer needed; nothing happens when there is none of that tag.
    Close {
        /// The tag it was opened under.
        tag: Name,
    },
}

/// What a person is asked.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TaskForm {
    /// The program's own label; comes back with the outcome.
    pub tag: Name,
    /// What it is called.
    pub title: String,
    /// The roles of those who may take it; empty: everybody.
    pub roles: Vec<String>,
    /// Who is to do it.
    pub assignee: Option<String>,
    /// When it should be done.
    pub due: Option<Timestamp>,
    /// What a person can choose; empty: only that it is done.
    pub outcomes: Vec<EventType>,
    /// What the person sees.
    pub data: Value,
}

/// A task that is open, as its instance knows it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Task {
    /// Derived from the transition that opened it.
    pub id: Uuid,
    /// What the person is asked.
    pub form: TaskForm,
    /// Who has taken it.
    pub claimed_by: Option<String>,
    /// When it was opened.
    pub opened_at: Timestamp,
}

/// What a person does about a task.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TaskOrder {
    /// Take it, so that no other does.
    Claim,
    /// Give it back.
    Release,
    /// Give it to somebody else. Whoever had taken it has it no more.
    Assign {
        /// Who is to do it; `None`: whoever takes it.
        assignee: Option<String>,
        /// The roles of those who may take it; `None`: as before.
        roles: Option<Vec<String>>,
    },
    /// Answer it. The saga goes on.
    Complete {
        /// What was chosen; `None` where there is nothing to choose.
        outcome: Option<EventType>,
        /// What the person entered.
        data: Value,
    },
}

impl TaskOrder {
    /// `claim`, `release`, `assign` or `complete`.
    #[must_use]
    pub fn label(&self) -> &'static str {
        match self {
            TaskOrder::Claim => "claim",
            TaskOrder::Release => "release",
            TaskOrder::Assign { .. } => "assign",
            TaskOrder::Complete { .. } => "complete",
        }
    }
}

/// A task as people find it, also after it was closed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TaskRow {
    /// Whose task.
    pub instance: InstanceKey,
    /// What it is, as it stood last.
    pub task: Task,
    /// Where it stands.
    pub status: TaskStatus,
    /// When that was so.
    pub updated_at: Timestamp,
    /// What was chosen, where something was.
    pub outcome: Option<EventType>,
}

/// Where a task stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TaskStatus {
    /// Nobody has taken it.
    Open,
    /// Somebody has taken it.
    Claimed,
    /// It was answered.
    Completed,
    /// It is no longer needed.
    Closed,
}

impl TaskStatus {
    /// All of them, in the order people expect.
    pub const ALL: [Self; 4] = [Self::Open, Self::Claimed, Self::Completed, Self::Closed];

    /// The word people see.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            TaskStatus::Open => "open",
            TaskStatus::Claimed => "claimed",
            TaskStatus::Completed => "completed",
            TaskStatus::Closed => "closed",
        }
    }
}

/// Something that happened to a task. These are only ever added.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TaskEvent {
    /// What.
    pub step: TaskStep,
    /// Who did it; `None`: the saga.
    pub by: Option<String>,
    /// Why, where somebody said so.
    pub reason: Option<String>,
    /// When.
    pub at: Timestamp,
}

/// What can happen to a task.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TaskStep {
    /// The saga asks.
    Opened,
    /// Somebody took it.
    Claimed,
    /// Somebody gave it back.
    Released,
    /// A person gave it to others.
    Reassigned {
        /// The roles of those who may take it now.
        roles: Vec<String>,
        /// Who is to do it now.
        assignee: Option<String>,
    },
    /// The saga gave it to others.
    Escalated {
        /// The roles of those who may take it now.
        roles: Vec<String>,
        /// Who is to do it now.
        assignee: Option<String>,
    },
    /// It was answered.
    Completed {
        /// What was chosen, where something was.
        outcome: Option<EventType>,
    },
    /// The saga needs it no more.
    Closed,
}

impl TaskStep {
    /// The word people see.
    #[must_use]
    pub fn as_str(&self) -> &'static str {
        match self {
            TaskStep::Opened => "opened",
            TaskStep::Claimed => "claimed",
            TaskStep::Released => "released",
            TaskStep::Reassigned { .. } => "reassigned",
            TaskStep::Escalated { .. } => "escalated",
            TaskStep::Completed { .. } => "completed",
            TaskStep::Closed => "closed",
        }
    }
}

/// What a commit says about a task: how it stands now, and what happened.
#[derive(Clone, Debug, PartialEq)]
pub struct TaskEntry {
    /// How it stands now.
    pub row: TaskRow,
    /// What happened.
    pub event: TaskEvent,
}
