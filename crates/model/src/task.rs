//! Tasks for people: what a saga asks a person to decide.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{EventType, Name, Timestamp};

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
