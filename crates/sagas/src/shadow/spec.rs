//! Specification of a shadow: the two definitions, the sample and the limits.

use std::ops::Range;
use std::time::Duration;

use orlog_model::{SagaName, SampleRate, Timestamp};
use serde::{Deserialize, Serialize};

/// Default duration of a shadow.
pub const DEFAULT_DURATION: Duration = Duration::from_hours(1);
/// Maximum duration of a shadow.
pub const MAX_DURATION: Duration = Duration::from_hours(30 * 24);
/// Maximum number of compared instances.
pub const MAX_INSTANCES: u64 = 100_000;
/// Maximum size of the source of a candidate, in bytes: the state of the shadow contains it.
pub const MAX_SOURCE_BYTES: usize = 256 << 10;

/// Specification of a shadow.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ShadowSpec {
    /// Saga.
    pub saga: SagaName,
    /// Active definition of the saga.
    pub live: DefinitionId,
    /// Definition that is compared with it.
    pub candidate: DefinitionId,
    /// Source of the candidate.
    pub source: CandidateSource,
    /// Sample of the new instances.
    pub sample: SampleRate,
    /// Start: earlier instances are not compared.
    pub from: Timestamp,
    /// End, if no limit is reached before.
    pub until: Timestamp,
    /// Number of compared instances after which the shadow ends.
    pub max_instances: u64,
    /// User who started it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
    /// Reason.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Slots of each shard, if the instances of the tenant are in several shards; otherwise empty.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub shards: Vec<Range<u16>>,
}

/// Version and hash of a definition.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DefinitionId {
    /// Version, assigned by the author.
    pub version: u32,
    /// Content hash.
    pub hash: [u8; 16],
}

/// Source file of a candidate, with `text` or `base64`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CandidateSource {
    /// File name.
    pub name: String,
    /// Content, if it is text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub text: Option<String>,
    /// Content in base64, if it is binary.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub base64: Option<String>,
}
