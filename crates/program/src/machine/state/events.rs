//! State of the events of a run: its start, events that steps collect, child sagas that event
//! handlers started, and reminders of steps that wait.

use orlog_model::{CorrelationId, Name, ParentEndPolicy, SagaName, Timestamp};
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// Start, collected events, open child sagas of event handlers, and reminders.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(in crate::machine) struct EventState {
    /// Key of the event that started the instance, if later events of its type have a meaning;
    /// otherwise 0.
    pub(in crate::machine) started_by: u64,
    /// Events of steps that wait for several, by tag.
    pub(in crate::machine) collected: Vec<CollectedEvents>,
    /// Child sagas whose end is awaited, in the order of their start.
    pub(in crate::machine) children: Vec<HandlerChild>,
    /// Version with which a start request began the first of these runs in an ended instance; 0 if
    /// the instance began with it.
    pub(in crate::machine) start_version: u64,
    /// Reminders of steps that wait. It is the last field, because states are read by position.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(in crate::machine) reminders: Vec<Reminders>,
}

/// Events that a step has collected.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(in crate::machine) struct CollectedEvents {
    pub(in crate::machine) tag: Name,
    /// Keys of the events, so that a duplicate counts once.
    pub(in crate::machine) keys: Vec<u64>,
    /// List of their payloads; empty if no expression reads them.
    pub(in crate::machine) data: Value,
}

/// Reminders of a step that waits.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(in crate::machine) struct Reminders {
    /// Tag of the step.
    pub(in crate::machine) tag: Name,
    /// Number of reminders that were sent.
    pub(in crate::machine) sent: u32,
    /// Time of the next one. None follows the last one, but its number stays: a migration can
    /// permit more.
    pub(in crate::machine) due: Option<Timestamp>,
}

/// Child saga that an event handler started.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(in crate::machine) struct HandlerChild {
    /// Tag of its start request.
    pub(in crate::machine) tag: Name,
    pub(in crate::machine) saga: SagaName,
    pub(in crate::machine) correlation: CorrelationId,
    pub(in crate::machine) on_parent_end: ParentEndPolicy,
}

impl EventState {
    pub(super) fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    pub(in crate::machine) fn collected(&self, tag: &Name) -> Option<&CollectedEvents> {
        self.collected
            .iter()
            .find(|collected| collected.tag == *tag)
    }

    /// Returns the events of a tag, to add one.
    pub(in crate::machine) fn collected_mut(&mut self, tag: Name) -> &mut CollectedEvents {
        let found = self
            .collected
            .iter()
            .position(|collected| collected.tag == tag);

        let at = found.unwrap_or_else(|| {
            self.collected.push(CollectedEvents {
                tag,
                keys: Vec::new(),
                data: Value::Array(Vec::new()),
            });
            self.collected.len() - 1
        });
        &mut self.collected[at]
    }

    /// Returns the reminders of a step that waits.
    pub(in crate::machine) fn reminders_of(&self, tag: &Name) -> Option<&Reminders> {
        self.reminders
            .iter()
            .find(|reminders| reminders.tag == *tag)
    }

    /// Returns the reminders of a step that waits.
    pub(in crate::machine) fn reminders_of_mut(&mut self, tag: &Name) -> Option<&mut Reminders> {
        let mut all = self.reminders.iter_mut();
        all.find(|reminders| reminders.tag == *tag)
    }

    /// Removes and returns the reminders of a step.
    pub(in crate::machine) fn remove_reminders(&mut self, tag: &Name) -> Option<Reminders> {
        let mut all = self.reminders.iter();
        let at = all.position(|reminders| reminders.tag == *tag)?;
        Some(self.reminders.remove(at))
    }

    /// Replaces the keys of events, and the numbers and times of reminders, by constants.
    pub(super) fn clear_keys(&mut self) {
        self.started_by = self.started_by.min(1);
        self.collected
            .iter_mut()
            .flat_map(|collected| &mut collected.keys)
            .for_each(|key| *key = 1);

        // A reminder changes nothing but its number, so one that follows is like the one before.
        for reminders in &mut self.reminders {
            reminders.sent = 0;
            reminders.due = reminders.due.map(|_| Timestamp::default());
        }
    }

    /// Removes the child saga of a tag. Returns whether it was open.
    pub(in crate::machine) fn remove_child(&mut self, tag: &str) -> bool {
        let open = self.children.len();
        self.children.retain(|child| child.tag.as_str() != tag);
        self.children.len() < open
    }
}
