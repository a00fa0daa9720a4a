//! Status of a message, and the report that carries it from the receiver to the sender.

use orlog_model::{Failure, Status, Timestamp};
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// Maximum number of lines of a message; older ones are dropped.
pub const MAX_LINES: usize = 100;
/// Maximum length of a line, in bytes.
pub const MAX_LINE_BYTES: usize = 1024;

/// Status of a message. It only increases.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MessageStatus {
    /// Sent; the receiver may have it.
    Dispatched,
    /// The receiver has begun to process it.
    Acknowledged,
    /// The receiver has processed it; it may have a result.
    Processed,
    /// It was not delivered, rejected, cancelled, timed out, or its flow failed.
    Error,
}

impl MessageStatus {
    /// Returns whether the message has ended.
    #[must_use]
    pub fn is_final(self) -> bool {
        matches!(self, Self::Processed | Self::Error)
    }

    /// Returns the name.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Dispatched => "dispatched",
            Self::Acknowledged => "acknowledged",
            Self::Processed => "processed",
            Self::Error => "error",
        }
    }

    /// Returns the status of the instance of the message.
    pub(super) fn of_instance(self, is_cancelled: bool) -> Status {
        match self {
            Self::Dispatched | Self::Acknowledged => Status::Running,
            Self::Processed => Status::Completed,
            Self::Error if is_cancelled => Status::Cancelled,
            Self::Error => Status::Failed,
        }
    }
}

/// Line of the log of a message.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MessageLine {
    /// Time at the node of the receiver.
    pub at: Timestamp,
    /// Text.
    pub text: String,
}

impl MessageLine {
    /// Creates a line; a long text is truncated.
    #[must_use]
    pub fn new(at: Timestamp, mut text: String) -> Self {
        text.truncate(text.floor_char_boundary(MAX_LINE_BYTES));
        Self { at, text }
    }
}

/// Report of the receiver: the status of a message with all that belongs to it. A later report
/// replaces an earlier one.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// Status at the receiver.
    pub status: MessageStatus,
    /// Result of a processed message.
    #[serde(default)]
    pub result: Value,
    /// Failure of a message with the status `error`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure: Option<Failure>,
    /// Last lines.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub lines: Vec<MessageLine>,
    /// Total number of lines so far.
    #[serde(default)]
    pub total_lines: u64,
}
