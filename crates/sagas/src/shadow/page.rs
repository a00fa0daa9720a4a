//! Page: the instances of one shard that a shadow compares with one effect.

use std::collections::BTreeMap;

use orlog_model::{CorrelationId, Timestamp};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::spec::ShadowSpec;

/// Request of one page. It concerns the instances in the shard of the requesting instance.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PageRequest {
    /// Specification, for a page in another shard than that of the shadow.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub spec: Option<ShadowSpec>,
    /// What to do.
    pub task: PageTask,
}

/// Task of a page.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum PageTask {
    /// Record new instances, and compare those that ended after a position.
    Ended {
        /// Position after the previous page.
        after: Option<Position>,
        /// Instances that ended later were compared before their end.
        until: Option<Timestamp>,
    },
    /// Compare the instances that have not ended.
    Unfinished,
    /// End the recording.
    End,
}

/// Position in the instances of a shard, in the order of their last changes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Position {
    /// Time of the last change.
    pub at: Timestamp,
    /// Correlation id.
    pub correlation: CorrelationId,
    /// Time at which the page was read.
    pub read_at: Timestamp,
}

/// Outcome of one page.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct PageOutcome {
    /// Position after the page; `None`: the page is empty.
    pub position: Option<Position>,
    /// Whether other instances follow.
    pub has_more: bool,
    /// Time at which the page was read.
    pub read_at: Timestamp,
    /// Hash of the definition that new instances have.
    pub active: Option<[u8; 16]>,
    /// Time that the page took, in milliseconds.
    pub elapsed_ms: u64,
    /// Number of equal instances.
    pub equal: u64,
    /// Number of different instances.
    pub different: u64,
    /// Number of compared instances that had not ended.
    pub unfinished: u64,
    /// Number of instances that were not compared, by reason.
    pub skipped: BTreeMap<String, u64>,
    /// Differences.
    pub kinds: Vec<KindOutcome>,
}

/// Instances of a page with the same difference.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct KindOutcome {
    /// Kind of the difference.
    pub kind: String,
    /// Number of instances.
    pub count: u64,
    /// First instances.
    pub instances: Vec<CorrelationId>,
    /// Value of the first instance, as it may be displayed.
    pub live: Option<Value>,
    /// Value of the candidate, as it may be displayed.
    pub candidate: Option<Value>,
}
