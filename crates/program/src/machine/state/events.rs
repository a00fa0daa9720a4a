//! State of the events of a run: its start, events that steps collect, and child sagas that event
//! handlers started.

use orlog_model::{CorrelationId, Name, ParentEndPolicy, SagaName};
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// Start, collected events, and open child sagas of event handlers.
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

    /// Replaces the keys of events by a constant.
    pub(super) fn clear_keys(&mut self) {
        self.started_by = self.started_by.min(1);
        self.collected
            .iter_mut()
            .flat_map(|collected| &mut collected.keys)
            .for_each(|key| *key = 1);
    }

    /// Removes the child saga of a tag. Returns whether it was open.
    pub(in crate::machine) fn remove_child(&mut self, tag: &str) -> bool {
        let open = self.children.len();
        self.children.retain(|child| child.tag.as_str() != tag);
        self.children.len() < open
    }
}
