//! Page: what a batch requests as an effect in the shard of the instances.

use orlog_model::CorrelationId;
use serde::{Deserialize, Serialize};

use super::spec::{BatchAction, Selection};

/// Request of one page. It concerns the instances in the shard of the requesting instance.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PageRequest {
    /// Instances.
    pub selection: Selection,
    /// What to do.
    pub task: PageTask,
}

/// Task of a page.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum PageTask {
    /// Count the instances after a cursor.
    Count {
        /// The cursor of the previous page.
        cursor: Option<String>,
    },
    /// Return the first instances after a cursor.
    Select {
        /// The cursor of the previous page.
        cursor: Option<String>,
        /// Maximum number of instances.
        limit: u32,
    },
    /// Send the instruction to these instances. A repetition has no second effect.
    Apply {
        /// Instruction.
        action: BatchAction,
        /// User, for the history of the instances.
        user: Option<String>,
        /// Reason, for the history of the instances.
        reason: Option<String>,
        /// Correlation ids.
        instances: Vec<CorrelationId>,
    },
}

/// Outcome of one page.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct PageOutcome {
    /// Cursor of the next page; `None` after the last one.
    pub cursor: Option<String>,
    /// Number of counted instances.
    pub matched: u64,
    /// Number of instances for which the filter failed.
    pub filter_errors: u64,
    /// Reason of the first filter error.
    pub first_filter_error: Option<String>,
    /// Selected instances.
    pub instances: Vec<CorrelationId>,
    /// Number of instances that applied the instruction.
    pub done: u64,
    /// Number of instances to which the instruction does not apply.
    pub skipped: u64,
    /// Number of instances that failed.
    pub failed: u64,
    /// First instances to which the instruction does not apply.
    pub skips: Vec<InstanceReason>,
    /// First instances that failed.
    pub failures: Vec<InstanceReason>,
}

/// Instance that did not apply the instruction.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct InstanceReason {
    /// Correlation id.
    pub correlation: CorrelationId,
    /// Reason.
    pub reason: String,
}
