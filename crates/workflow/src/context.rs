//! Context of one attempt of a task.

use std::fmt::Write as _;
use std::sync::Arc;

use parking_lot::Mutex;
use uuid::Uuid;

use crate::error::TaskError;
use crate::event::{Event, Identifier};

/// Context of one attempt: the instance, the step and the attempt.
#[derive(Debug, Clone)]
pub struct Context {
    pub(crate) instance: Arc<str>,
    pub(crate) workflow: Arc<str>,
    pub(crate) path: StepPath,
    pub(crate) attempt: u32,
    pub(crate) deadline_ms: Option<u64>,
    /// Idempotency key that a node assigned.
    pub(crate) key: Option<Uuid>,
    /// Types and data of emitted facts, if a node publishes them.
    pub(crate) facts: Option<Facts>,
}

/// Types and data of the facts of an attempt.
pub(crate) type Facts = Arc<Mutex<Vec<(&'static str, serde_json::Value)>>>;

/// Step, and the branches, elements and rounds that contain it.
#[derive(Debug, Clone)]
pub(crate) struct StepPath {
    pub(crate) step: Arc<str>,
    /// Index of each list element and loop round, outermost first.
    pub(crate) indexes: Vec<u32>,
}

impl StepPath {
    /// Returns the name of the step with the indexes of elements and rounds: `weigh[2]`.
    pub(crate) fn display(&self) -> String {
        let mut text = self.step.to_string();
        for index in &self.indexes {
            write!(text, "[{index}]").expect("writing to a String never fails");
        }
        text
    }

    /// Returns the indexes of the path of a step with this name.
    #[cfg(feature = "program")]
    pub(crate) fn indexes(path: &str, step: &str) -> Vec<u32> {
        let indexes = path.strip_prefix(step).unwrap_or_default();
        indexes
            .split(['[', ']'])
            .filter_map(|index| index.parse().ok())
            .collect()
    }
}

impl Context {
    /// Returns the id of the instance.
    #[must_use]
    pub fn instance(&self) -> &str {
        &self.instance
    }

    /// Returns the name of the workflow.
    #[must_use]
    pub fn workflow(&self) -> &str {
        &self.workflow
    }

    /// Returns the name of the step.
    #[must_use]
    pub fn step(&self) -> &str {
        &self.path.step
    }

    /// Returns the number of the attempt, counted from 1. An attempt that a crash interrupted has
    /// the same number again.
    #[must_use]
    pub fn attempt(&self) -> u32 {
        self.attempt
    }

    /// Returns the deadline of the attempt, in milliseconds since the Unix epoch.
    #[must_use]
    pub fn deadline_ms(&self) -> Option<u64> {
        self.deadline_ms
    }

    /// Returns the id of the instance as its identifier.
    ///
    /// # Errors
    /// A permanent error if the id is no such identifier.
    pub fn identifier<I: Identifier>(&self) -> Result<I, TaskError> {
        I::from_text(&self.instance).map_err(|error| {
            TaskError::permanent(format!(
                "the id of the instance, \"{}\", is invalid: {error}",
                self.instance
            ))
        })
    }

    /// Emits a fact in addition to the result. A node publishes it once, when the result is stored;
    /// facts of an attempt that is retried are discarded. The other runners discard facts.
    ///
    /// # Errors
    /// A permanent error if the event has no JSON form.
    pub fn emit<E: Event>(&self, event: &E) -> Result<(), TaskError> {
        // Only nodes publish facts. The other runners drop them.
        let Some(facts) = &self.facts else {
            return Ok(());
        };
        let data = serde_json::to_value(event).map_err(|error| {
            TaskError::permanent(format!("{} has no JSON form: {error}", E::TYPE))
        })?;

        facts.lock().push((E::TYPE, data));
        Ok(())
    }

    /// Returns a key that is equal for all attempts of this step of this instance, and for the
    /// compensation of the step. An upstream that stores it executes the task once: a crash between
    /// the effect of a task and its snapshot repeats the task. On a node it is the id of the work
    /// item, so a compensation has a key of its own.
    #[must_use]
    pub fn idempotency_key(&self) -> String {
        // On a node, the id of the work item, which is also the key of its upstreams.
        if let Some(key) = self.key {
            return key.to_string();
        }

        format!(
            "{}/{}/{}",
            self.workflow,
            self.instance,
            self.path.display()
        )
    }
}
