//! Stream positions: the start of a subscription, and anomalies at its checkpoint.

use orlog_model::{StreamPosition, Timestamp};
use uuid::Uuid;

/// Stream position: everything up to here is acknowledged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AckPosition {
    /// Sequence of the message at this position.
    pub sequence: u64,
    /// Publish time of the message, if it is known.
    pub at: Option<Timestamp>,
}

/// Start position of a subscription.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SubscriptionStart {
    /// Stream of the subscription.
    pub stream_id: Uuid,
    /// Sequence before the first message.
    pub after: u64,
    /// Anomaly at the checkpoint; no message is skipped because of it.
    pub anomaly: Option<StreamAnomaly>,
}

impl SubscriptionStart {
    /// Creates a start position without an anomaly.
    #[must_use]
    pub const fn at(stream_id: Uuid, after: u64) -> Self {
        Self {
            stream_id,
            after,
            anomaly: None,
        }
    }
}

/// Anomaly of a stream at a checkpoint. `Display` gives the cause, the reaction of Orlog and a
/// remedy.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StreamAnomaly {
    /// The checkpoint belongs to another stream.
    #[error(
        "the stream was recreated: the checkpoint belongs to stream {expected}, the stream is \
         {found}; unread events of the earlier stream are lost"
    )]
    StreamRecreated {
        /// Stream of the checkpoint.
        expected: Uuid,
        /// Actual stream.
        found: Uuid,
    },
    /// Messages after the checkpoint were dropped.
    #[error(
        "messages after the checkpoint were dropped before they were read: the checkpoint is \
         {checkpoint}, the first remaining message is {first}; reading from there. Publish the \
         missing events again, and raise the stream's limits or find out why this shard lagged"
    )]
    Purged {
        /// Sequence of the checkpoint.
        checkpoint: u64,
        /// First remaining message.
        first: u64,
    },
    /// The stream ends before the checkpoint.
    #[error(
        "the stream ends at {last}, before the checkpoint {checkpoint}: it lost its end, or was \
         restored from a backup"
    )]
    Truncated {
        /// Sequence of the checkpoint.
        checkpoint: u64,
        /// Last message.
        last: u64,
    },
    /// The stream has another message at the checkpoint.
    #[error(
        "another message is at the checkpoint {checkpoint}: expected one published at {expected}, \
         found {found}; the stream lost its end or was restored, and then grew"
    )]
    Replaced {
        /// Sequence of the checkpoint.
        checkpoint: u64,
        /// Publish time of the expected message.
        expected: Timestamp,
        /// Publish time of the actual message.
        found: Timestamp,
    },
}

impl StreamAnomaly {
    /// Returns whether the stream lost messages, or is another stream. Dropped messages
    /// ([`StreamAnomaly::Purged`]) are the effect of the limits of the stream.
    #[must_use]
    pub fn is_loss(&self) -> bool {
        !matches!(self, StreamAnomaly::Purged { .. })
    }

    /// Returns the metrics label of the anomaly.
    #[must_use]
    pub fn as_str(&self) -> &'static str {
        match self {
            StreamAnomaly::StreamRecreated { .. } => "stream_recreated",
            StreamAnomaly::Purged { .. } => "purged",
            StreamAnomaly::Truncated { .. } => "truncated",
            StreamAnomaly::Replaced { .. } => "replaced",
        }
    }
}

/// State of a stream at a position.
#[derive(Clone, Copy, Debug)]
pub(crate) struct StreamInfo {
    pub(crate) stream_id: Uuid,
    pub(crate) first: u64,
    pub(crate) last: u64,
    /// Publish time of the message at the position, if it exists.
    pub(crate) at: Option<Timestamp>,
}

/// Start position of a read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum StartPosition {
    After(u64),
    /// Messages with this publish time or a later one; all messages if the time is unknown.
    Since(Option<Timestamp>),
}

/// Compares a checkpoint with the stream.
pub(crate) fn resolve_start(
    position: &StreamPosition,
    info: StreamInfo,
) -> (StartPosition, Option<StreamAnomaly>) {
    let checkpoint = position.sequence;

    // A restored stream has another creation time, and thus another identity. No other stream has a
    // message with the same sequence and publish time.
    let is_same_message = position.at.is_some() && position.at == info.at;
    if position.stream_id != info.stream_id && !is_same_message {
        let found = StreamAnomaly::StreamRecreated {
            expected: position.stream_id,
            found: info.stream_id,
        };
        return (StartPosition::After(0), Some(found));
    }

    // Without the message of the checkpoint, its time is the only proof of what was read.
    if info.last < checkpoint {
        return (
            StartPosition::Since(position.at),
            Some(StreamAnomaly::Truncated {
                checkpoint,
                last: info.last,
            }),
        );
    }

    match (position.at, info.at) {
        (Some(expected), Some(found)) if expected != found => (
            StartPosition::Since(position.at),
            Some(StreamAnomaly::Replaced {
                checkpoint,
                expected,
                found,
            }),
        ),
        // The message at the checkpoint was read, so only the loss of a later one is an anomaly.
        _ if info.first > checkpoint + 1 => (
            StartPosition::After(checkpoint),
            Some(StreamAnomaly::Purged {
                checkpoint,
                first: info.first,
            }),
        ),
        _ => (StartPosition::After(checkpoint), None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HERE: Uuid = Uuid::from_u128(1);

    #[track_caller]
    fn check(
        position: StreamPosition,
        (first, last, at): (u64, u64, Option<i64>),
        expected: &(StartPosition, &str),
    ) {
        let info = StreamInfo {
            stream_id: HERE,
            first,
            last,
            at: at.map(Timestamp::from_millis),
        };
        let (start, found) = resolve_start(&position, info);
        assert_eq!(
            &(start, found.as_ref().map_or("", StreamAnomaly::as_str)),
            expected,
            "{position:?} {info:?}"
        );
    }

    #[test]
    fn checkpoint_is_checked_against_the_stream() {
        let at = StreamPosition {
            at: Some(Timestamp::from_millis(5)),
            ..StreamPosition::after(HERE, 40)
        };
        let since = || StartPosition::Since(at.at);
        check(at, (1, 50, Some(5)), &(StartPosition::After(40), ""));
        check(at, (1, 40, Some(5)), &(StartPosition::After(40), ""));
        check(at, (1, 50, Some(6)), &(since(), "replaced"));
        check(at, (41, 50, None), &(StartPosition::After(40), ""));
        check(at, (42, 50, None), &(StartPosition::After(40), "purged"));
        check(at, (1, 39, None), &(since(), "truncated"));
        check(at, (1, 0, None), &(since(), "truncated"));
        check(
            StreamPosition::after(HERE, 40),
            (1, 39, None),
            &(StartPosition::Since(None), "truncated"),
        );
        check(
            StreamPosition::after(HERE, 40),
            (1, 50, Some(6)),
            &(StartPosition::After(40), ""),
        );
        check(
            StreamPosition::after(HERE, 0),
            (1, 50, None),
            &(StartPosition::After(0), ""),
        );
        check(
            StreamPosition::after(Uuid::from_u128(2), 40),
            (1, 50, None),
            &(StartPosition::After(0), "stream_recreated"),
        );
    }

    #[test]
    fn restored_stream_continues_at_the_same_message() {
        let earlier = StreamPosition {
            at: Some(Timestamp::from_millis(5)),
            ..StreamPosition::after(Uuid::from_u128(2), 40)
        };
        let recreated = (StartPosition::After(0), "stream_recreated");
        check(earlier, (1, 50, Some(5)), &(StartPosition::After(40), ""));
        check(earlier, (1, 40, Some(5)), &(StartPosition::After(40), ""));
        check(earlier, (1, 50, Some(6)), &recreated);
        check(earlier, (41, 50, None), &recreated);
        check(earlier, (1, 39, None), &recreated);
    }
}
