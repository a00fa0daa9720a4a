//! Job logs: lines that jobs write while they run.

use serde::{Deserialize, Serialize};

use crate::{InstanceKey, Name, Timestamp};

/// Line of a job log.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LogLine {
    /// Time of receipt.
    pub at: Timestamp,
    /// Text of the line.
    pub text: String,
}

/// Lines of one job, as the store contains them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobLogChunk {
    /// Tag of the job.
    pub job: Name,
    /// Lines, oldest first; at most [`JobLogChunk::MAX_LINES`].
    pub lines: Vec<LogLine>,
}

impl JobLogChunk {
    /// Maximum number of lines of a chunk.
    pub const MAX_LINES: usize = 1000;
}

/// Lines to append to the job log of an instance.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JobLogAppend {
    /// Key of the instance.
    pub instance: InstanceKey,
    /// Lines.
    pub chunk: JobLogChunk,
    /// Number of lines that the instance keeps; older ones are deleted.
    pub max_lines: u64,
}
