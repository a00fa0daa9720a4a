//! Places in a stream: where a subscription begins, and what was found wrong at its checkpoint.

use std::fmt;

use orlog_model::{StreamPosition, Timestamp};
use uuid::Uuid;

/// A place in a stream: everything up to here is done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Mark {
    /// The message that lies there.
    pub sequence: u64,
    /// When it was published, where that is known.
    pub at: Option<Timestamp>,
}

/// Where a subscription began.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Start {
    /// The stream it reads.
    pub stream_id: Uuid,
    /// The first message is one behind this.
    pub after: u64,
    /// What was wrong at the checkpoint; nothing is skipped because of it.
    pub found: Option<Finding>,
}

impl Start {
    /// A beginning where all is as it should be.
    #[must_use]
    pub const fn after(stream_id: Uuid, after: u64) -> Self {
        Self { stream_id, after, found: None }
    }
}

/// What is wrong with a stream at a checkpoint. Shown, it says what happened, what is done about it, and what to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Finding {
    /// The checkpoint is one of another stream.
    OtherStream {
        /// Of the checkpoint.
        expected: Uuid,
        /// What is there.
        found: Uuid,
    },
    /// Messages behind the checkpoint are gone.
    Purged {
        /// Where the checkpoint lies.
        checkpoint: u64,
        /// The first message that is left.
        first: u64,
    },
    /// The stream ends before the checkpoint.
    LostTail {
        /// Where the checkpoint lies.
        checkpoint: u64,
        /// The last message.
        last: u64,
    },
    /// Another message lies at the checkpoint.
    Replaced {
        /// Where the checkpoint lies.
        checkpoint: u64,
        /// When the message there was published.
        expected: Timestamp,
        /// When the one that lies there now was.
        found: Timestamp,
    },
}

impl Finding {
    /// One word for it, for metrics.
    #[must_use]
    pub fn as_str(&self) -> &'static str {
        match self {
            Finding::OtherStream { .. } => "other_stream",
            Finding::Purged { .. } => "purged",
            Finding::LostTail { .. } => "lost_tail",
            Finding::Replaced { .. } => "replaced",
        }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Finding::OtherStream { expected, found } => write!(
                f,
                "the stream was made anew: the checkpoint is one of {expected}, this is {found}; it is read from its first \
                 message. Events that only the old stream had are lost unless they are published again"
            ),
            Finding::Purged { checkpoint, first } => write!(
                f,
                "messages behind the checkpoint were dropped before they were read: the checkpoint is {checkpoint}, the first \
                 message left is {first}; it is read from there. Publish the missing events again, and raise the stream's \
                 limits or look why this shard lagged"
            ),
            Finding::LostTail { checkpoint, last } => write!(
                f,
                "the stream ends at {last}, before the checkpoint {checkpoint}: it lost its end, or was restored from a backup; \
                 what comes is read by its time. Check the servers' disks and `sync_interval`; what was lost has been applied \
                 here already"
            ),
            Finding::Replaced { checkpoint, expected, found } => write!(
                f,
                "another message lies at the checkpoint {checkpoint}: one of {expected} was read, one of {found} is there; the \
                 stream lost its end or was restored, and went on. It is read again from the time of the checkpoint; what was \
                 applied already changes nothing"
            ),
        }
    }
}

/// What a stream says about itself at a position.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sight {
    pub(crate) stream_id: Uuid,
    pub(crate) first: u64,
    pub(crate) last: u64,
    /// When the message at the position was published, where there is one.
    pub(crate) at: Option<Timestamp>,
}

/// Where to begin.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Begin {
    After(u64),
    /// With what was published then or later; with everything where the time is not known.
    Since(Option<Timestamp>),
}

/// Compares a checkpoint with the stream.
pub(crate) fn judge(position: &StreamPosition, sight: Sight) -> (Begin, Option<Finding>) {
    let checkpoint = position.sequence;
    if position.stream_id != sight.stream_id {
        let found = Finding::OtherStream { expected: position.stream_id, found: sight.stream_id };
        return (Begin::After(0), Some(found));
    }
    if sight.last < checkpoint {
        return (Begin::Since(position.at), Some(Finding::LostTail { checkpoint, last: sight.last }));
    }
    match (position.at, sight.at) {
        (Some(expected), Some(found)) if expected != found => {
            (Begin::Since(position.at), Some(Finding::Replaced { checkpoint, expected, found }))
        }
        _ if sight.first > checkpoint + 1 => {
            (Begin::After(checkpoint), Some(Finding::Purged { checkpoint, first: sight.first }))
        }
        _ => (Begin::After(checkpoint), None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HERE: Uuid = Uuid::from_u128(1);

    #[track_caller]
    fn check(position: StreamPosition, (first, last, at): (u64, u64, Option<i64>), expected: &(Begin, &str)) {
        let sight = Sight { stream_id: HERE, first, last, at: at.map(Timestamp::from_millis) };
        let (begin, found) = judge(&position, sight);
        assert_eq!(&(begin, found.as_ref().map_or("", Finding::as_str)), expected, "{position:?} {sight:?}");
    }

    #[test]
    fn a_checkpoint_is_compared_with_the_stream() {
        let at = StreamPosition { at: Some(Timestamp::from_millis(5)), ..StreamPosition::behind(HERE, 40) };
        let since = || Begin::Since(at.at);
        check(at, (1, 50, Some(5)), &(Begin::After(40), ""));
        check(at, (1, 40, Some(5)), &(Begin::After(40), ""));
        check(at, (1, 50, Some(6)), &(since(), "replaced"));
        check(at, (41, 50, None), &(Begin::After(40), ""));
        check(at, (42, 50, None), &(Begin::After(40), "purged"));
        check(at, (1, 39, None), &(since(), "lost_tail"));
        check(at, (1, 0, None), &(since(), "lost_tail"));
        check(StreamPosition::behind(HERE, 40), (1, 39, None), &(Begin::Since(None), "lost_tail"));
        check(StreamPosition::behind(HERE, 40), (1, 50, Some(6)), &(Begin::After(40), ""));
        check(StreamPosition::behind(HERE, 0), (1, 50, None), &(Begin::After(0), ""));
        check(
            StreamPosition::behind(Uuid::from_u128(2), 40),
            (1, 50, None),
            &(Begin::After(0), "other_stream"),
        );
    }
}
