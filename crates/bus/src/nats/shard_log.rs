//! The log of a shard: a subject of one stream that all shards share, appended to behind an expected entry.
//!
//! Every answer but an acknowledgement is ambiguous. A time-out may have landed; a cluster without a leader answers as if there
//! were no stream; and a leader with a message of the same subject under way refuses the next one with an error of its own (10164),
//! which the client takes for no conflict. Whoever appended looks, with [`ShardLog::last`].

use std::fmt;
use std::ops::ControlFlow;
use std::time::Duration;

use async_nats::jetstream::consumer::{AckPolicy, DeliverPolicy, pull};
use async_nats::jetstream::context::PublishErrorKind;
use async_nats::jetstream::message::PublishMessage;
use async_nats::jetstream::stream::{Config, DiscardPolicy, RawMessageErrorKind, RetentionPolicy, Stream};
use bytes::Bytes;
use futures::StreamExt;

use super::connection::{Connection, chain};
use super::stream_config::StreamPlan;

/// The stream with the logs of all shards.
pub const LOG_STREAM: &str = "ORLOG_LOG";

/// An entry is not larger than this, whatever the servers take: a large message holds up the small ones behind it.
const LARGEST_ENTRY: usize = 1 << 20;
/// Room for the headers, which count.
const HEADERS: usize = 1024;
/// Nothing here has an id; this is what a server takes when it is told nothing.
pub(super) const DUPLICATES: Duration = Duration::from_mins(2);
/// How many messages are fetched one by one before a consumer is made.
const SINGLY: u32 = 16;
/// How many messages are asked for at once while a log is read.
const BATCH: usize = 500;
/// The server says at least so often that it is there.
const HEARTBEAT: Duration = Duration::from_millis(500);
/// For how long a request for messages stands.
const EXPIRES: Duration = Duration::from_secs(5);
/// Nothing came for so long: the consumer is made anew.
const SILENCE: Duration = Duration::from_secs(1);
/// How often, without a single message in between, before the reader is told.
const ATTEMPTS: u32 = 3;
/// The server forgets a reader that went away after this.
const INACTIVE: Duration = Duration::from_secs(10);

/// A log did not do what was asked.
#[derive(Clone, Debug, thiserror::Error)]
pub enum LogError {
    /// Another entry than the expected one is the last. As ambiguous as the other one.
    #[error("{0}")]
    Conflict(String),
    /// No answer, or none that says anything.
    #[error("the stream {LOG_STREAM} or the snapshots of its shards: {0}")]
    Unavailable(String),
    /// A snapshot is not what was saved, or is gone.
    #[error("{0}")]
    Damaged(String),
}

pub(super) fn unavailable(error: &dyn std::error::Error) -> LogError {
    LogError::Unavailable(chain(error))
}

/// One shard's log.
#[derive(Clone)]
pub struct ShardLog {
    connection: Connection,
    stream: Stream<()>,
    subject: String,
    shard: u16,
}

impl fmt::Debug for ShardLog {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ShardLog").field("subject", &self.subject).finish_non_exhaustive()
    }
}

impl ShardLog {
    /// The stream as it is made.
    ///
    /// Its messages are read from its leader only: a copy that lags would tell a writer that its entry is not there.
    #[must_use]
    pub fn plan(replicas: usize) -> StreamPlan {
        let config = Config {
            name: LOG_STREAM.to_owned(),
            description: Some("Commits of shards, one subject each".to_owned()),
            subjects: vec!["orlog.log.*".to_owned()],
            retention: RetentionPolicy::Limits,
            discard: DiscardPolicy::New,
            max_bytes: -1,
            duplicate_window: DUPLICATES,
            num_replicas: replicas,
            allow_direct: false,
            ..Config::default()
        };
        StreamPlan { config, foreign: false }
    }

    /// The log of a shard. Nothing is asked of the servers.
    ///
    /// # Errors
    /// [`LogError::Unavailable`].
    pub async fn open(connection: &Connection, shard: u16) -> Result<Self, LogError> {
        let stream = connection.jetstream.get_stream_no_info(LOG_STREAM).await;
        let stream = stream.map_err(|error| unavailable(&error))?;
        Ok(Self { connection: connection.clone(), stream, subject: format!("orlog.log.{shard}"), shard })
    }

    /// What tells this log from one that was made anew, and from those of other shards.
    ///
    /// # Errors
    /// [`LogError::Unavailable`].
    pub async fn identity(&self) -> Result<[u8; 16], LogError> {
        let info = self.stream.get_info().await.map_err(|error| unavailable(&error))?;
        let mut identity = info.created.unix_timestamp_nanos().to_be_bytes();
        // The upper bytes are zero for the next three hundred years.
        identity[..2].copy_from_slice(&self.shard.to_be_bytes());
        Ok(identity)
    }

    /// The server that leads the stream; nobody while one is chosen, or without a cluster.
    ///
    /// # Errors
    /// [`LogError::Unavailable`].
    pub async fn leader(&self) -> Result<Option<String>, LogError> {
        let info = self.stream.get_info().await.map_err(|error| unavailable(&error))?;
        Ok(info.cluster.and_then(|cluster| cluster.leader))
    }

    /// The largest entry.
    #[must_use]
    pub fn max_entry_bytes(&self) -> usize {
        self.connection.max_payload().min(LARGEST_ENTRY).saturating_sub(HEADERS)
    }

    /// Appends an entry; its number is the answer. With `after` only behind that one (0: as the first).
    ///
    /// # Errors
    /// [`LogError::Conflict`], [`LogError::Unavailable`]; it may be there all the same.
    pub async fn append(&self, after: Option<u64>, entry: Bytes) -> Result<u64, LogError> {
        let mut message = PublishMessage::build().payload(entry);
        if let Some(after) = after {
            message = message.expected_last_subject_sequence(after);
        }
        let sent =
            async { self.connection.jetstream.send_publish(self.subject.clone(), message).await?.await };
        match sent.await {
            Ok(ack) => Ok(ack.sequence),
            Err(error) if error.kind() == PublishErrorKind::WrongLastSequence => {
                Err(LogError::Conflict(chain(&error)))
            }
            Err(error) => Err(unavailable(&error)),
        }
    }

    /// The last entry, as the leader of the stream knows it.
    ///
    /// # Errors
    /// [`LogError::Unavailable`].
    pub async fn last(&self) -> Result<Option<(u64, Bytes)>, LogError> {
        match self.stream.get_last_raw_message_by_subject(&self.subject).await {
            Ok(message) => Ok(Some((message.sequence, message.payload))),
            Err(error) if error.kind() == RawMessageErrorKind::NoMessageFound => Ok(None),
            Err(error) => Err(unavailable(&error)),
        }
    }

    /// Shows `visit` the entries behind `after`, in order, until it breaks; at least up to what is the last one now.
    ///
    /// # Errors
    /// [`LogError::Unavailable`], also after some were shown.
    pub async fn read(
        &self,
        after: u64,
        visit: &mut dyn FnMut(u64, Bytes) -> ControlFlow<()>,
    ) -> Result<(), LogError> {
        let Some((end, _)) = self.last().await? else { return Ok(()) };
        let (mut read, mut attempts) = (after, 0);
        if self.read_singly(&mut read, end, visit).await?.is_break() {
            return Ok(());
        }
        while read < end {
            let before = read;
            match self.read_some(&mut read, end, visit).await {
                Ok(ControlFlow::Break(())) => return Ok(()),
                Ok(ControlFlow::Continue(())) => {}
                Err(error) if attempts >= ATTEMPTS => return Err(error),
                Err(error) => tracing::debug!(%error, subject = self.subject, "reading the log begins anew"),
            }
            attempts = if read > before { 0 } else { attempts + 1 };
        }
        Ok(())
    }

    /// Asks the leader for the first few one by one: a short rest needs no consumer, which may begin its life on a server that lags.
    async fn read_singly(
        &self,
        read: &mut u64,
        end: u64,
        visit: &mut dyn FnMut(u64, Bytes) -> ControlFlow<()>,
    ) -> Result<ControlFlow<()>, LogError> {
        for _ in 0..SINGLY {
            if *read >= end {
                break;
            }
            let next = self.stream.raw_message_builder().sequence(*read + 1).next_by_subject(&self.subject);
            let message = match next.send().await {
                Ok(message) => message,
                // Purged meanwhile, to its end and further.
                Err(error) if error.kind() == RawMessageErrorKind::NoMessageFound => break,
                Err(error) => return Err(unavailable(&error)),
            };
            *read = message.sequence;
            if visit(*read, message.payload).is_break() {
                return Ok(ControlFlow::Break(()));
            }
        }
        Ok(ControlFlow::Continue(()))
    }

    /// Reads with one consumer, until the end, a break, or a failure. The position that was reached stays.
    async fn read_some(
        &self,
        read: &mut u64,
        end: u64,
        visit: &mut dyn FnMut(u64, Bytes) -> ControlFlow<()>,
    ) -> Result<ControlFlow<()>, LogError> {
        let consumer = self.stream.create_consumer(self.reader(*read)).await.map_err(|e| unavailable(&e))?;
        let batches = consumer.stream().max_messages_per_batch(BATCH).heartbeat(HEARTBEAT).expires(EXPIRES);
        let mut messages = batches.messages().await.map_err(|error| unavailable(&error))?;
        let mut delivered = 0;
        while *read < end {
            let next = tokio::time::timeout(SILENCE, messages.next()).await;
            let message = next.map_err(|error| unavailable(&error))?;
            let ended = || LogError::Unavailable("the consumer ended".to_owned());
            let message = message.ok_or_else(ended)?.map_err(|error| unavailable(&error))?;
            let info = message.info().map_err(|error| LogError::Unavailable(error.to_string()))?;
            delivered += 1;
            if info.consumer_sequence != delivered {
                return Err(LogError::Unavailable("a message was not delivered".to_owned()));
            }
            *read = info.stream_sequence;
            if visit(*read, message.payload.clone()).is_break() {
                return Ok(ControlFlow::Break(()));
            }
        }
        Ok(ControlFlow::Continue(()))
    }

    fn reader(&self, after: u64) -> pull::Config {
        pull::Config {
            filter_subject: self.subject.clone(),
            ack_policy: AckPolicy::None,
            memory_storage: true,
            num_replicas: 1,
            inactive_threshold: INACTIVE,
            deliver_policy: DeliverPolicy::ByStartSequence { start_sequence: after + 1 },
            ..pull::Config::default()
        }
    }

    /// Drops the entries before this number.
    ///
    /// # Errors
    /// [`LogError::Unavailable`].
    pub async fn purge_before(&self, number: u64) -> Result<(), LogError> {
        let purged = self.stream.purge().filter(&self.subject).sequence(number).await;
        purged.map(drop).map_err(|error| unavailable(&error))
    }
}
