//! Tasks that record their calls. The tests of nodes include this file.

use std::collections::HashMap;

use orlog_workflow::{Context, TaskError};
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};

static CALLS: Mutex<Option<HashMap<String, Vec<String>>>> = Mutex::new(None);

/// Records a call under the key of a test.
pub(crate) fn record(key: &str, call: impl Into<String>) {
    let mut calls = CALLS.lock();
    calls
        .get_or_insert_default()
        .entry(key.to_owned())
        .or_default()
        .push(call.into());
}

/// Returns the calls that were recorded under a key.
pub(crate) fn calls(key: &str) -> Vec<String> {
    let calls = CALLS.lock();
    calls
        .as_ref()
        .and_then(|calls| calls.get(key).cloned())
        .unwrap_or_default()
}

/// Returns a key that no other test uses.
pub(crate) fn new_key() -> String {
    uuid::Uuid::now_v7().to_string()
}

/// Input of the workflows of the tests.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Order {
    pub(crate) key: String,
    pub(crate) express: bool,
    pub(crate) parcels: Vec<u32>,
    /// Step that fails.
    pub(crate) fails: String,
}

impl Order {
    pub(crate) fn new() -> Self {
        Self {
            key: new_key(),
            express: true,
            parcels: vec![1, 2, 3],
            fails: String::new(),
        }
    }

    pub(crate) fn failing(step: &str) -> Self {
        Self {
            fails: step.to_owned(),
            ..Self::new()
        }
    }

    /// Records a call of a step, or its failure.
    pub(crate) fn call(&self, context: &Context) -> Result<(), TaskError> {
        if self.fails == context.step() {
            record(&self.key, format!("{} fails", context.step()));
            return Err(TaskError::permanent("out of stock"));
        }
        record(&self.key, context.step());
        Ok(())
    }
}

/// Task that returns its input.
pub(crate) async fn step(context: &Context, order: Order) -> Result<Order, TaskError> {
    order.call(context)?;
    Ok(order)
}

/// Compensation that records its call.
pub(crate) async fn undo(context: &Context, order: Order, output: Order) -> Result<(), TaskError> {
    assert_eq!(order.key, output.key);
    record(&order.key, format!("undo {}", context.step()));
    Ok(())
}
