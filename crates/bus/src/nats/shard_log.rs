//! Log of a shard: one subject of a stream that all shards share. An append requires an expected
//! last entry.
//!
//! Every response except an acknowledgement is ambiguous. An append that timed out may be stored. A
//! cluster without a leader responds as if the stream did not exist. A leader with another message
//! of the same subject in flight rejects the next one with a separate error (10164), which the
//! client does not report as a conflict. The caller of an append verifies the result with
//! [`ShardLog::last`].

use std::fmt;
use std::ops::ControlFlow;
use std::time::Duration;

use async_nats::jetstream::context::PublishErrorKind;
use async_nats::jetstream::message::PublishMessage;
use async_nats::jetstream::stream::{
    Config, DiscardPolicy, RawMessageErrorKind, RetentionPolicy, Stream,
};
use bytes::Bytes;
use futures::StreamExt;

use super::connection::{Connection, chain};
use super::stream_config::StreamSpec;
use super::temporary_consumer::{self, next_info, temporary};

/// Stream with the logs of all shards.
pub const LOG_STREAM: &str = "ORLOG_LOG";

/// Maximum size of an entry, regardless of the server limit: a large message delays the small ones
/// after it.
const MAX_ENTRY_BYTES: usize = 1 << 20;
/// Space reserved for headers, which count towards the size.
const HEADERS: usize = 1024;
/// Deduplication window. Log entries have no id; this is the default of the server.
pub(super) const DUPLICATES: Duration = Duration::from_mins(2);
/// Maximum number of messages that are fetched one by one before a consumer is created.
const SINGLE_READ_LIMIT: u32 = 16;
/// Number of messages per fetch while a log is read.
const BATCH: usize = 500;
/// Heartbeat interval of the server.
const HEARTBEAT: Duration = Duration::from_millis(500);
/// Expiry of one fetch request.
const EXPIRES: Duration = Duration::from_secs(5);
/// Time without a message after which the consumer is recreated.
const READ_TIMEOUT: Duration = Duration::from_secs(1);
/// Number of attempts without any message before the reader receives an error.
const ATTEMPTS: u32 = 3;
/// The server deletes a consumer that is inactive for this duration.
const INACTIVE: Duration = Duration::from_secs(10);

/// Error of a shard log operation.
#[derive(Clone, Debug, thiserror::Error)]
pub enum ShardLogError {
    /// The last entry is not the expected one. As ambiguous as [`Self::Unavailable`].
    #[error("{0}")]
    Conflict(String),
    /// No response, or an ambiguous one.
    #[error("stream {LOG_STREAM} or snapshot bucket: {0}")]
    Unavailable(String),
    /// A snapshot is missing, or differs from the saved one.
    #[error("{0}")]
    Damaged(String),
}

pub(super) fn unavailable(error: impl std::error::Error) -> ShardLogError {
    ShardLogError::Unavailable(chain(&error))
}

/// Log of one shard. Each request can fail with [`ShardLogError::Unavailable`].
#[derive(Clone)]
pub struct ShardLog {
    connection: Connection,
    stream: Stream<()>,
    subject: String,
    shard: u16,
}

impl fmt::Debug for ShardLog {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ShardLog")
            .field("subject", &self.subject)
            .finish_non_exhaustive()
    }
}

#[expect(
    clippy::missing_errors_doc,
    reason = "the documentation of the type has the common error"
)]
impl ShardLog {
    /// Returns the specification of the stream.
    ///
    /// Its messages are read from its leader only: a lagging replica would report a stored entry as
    /// missing.
    #[must_use]
    pub fn stream_spec(replicas: usize) -> StreamSpec {
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
        StreamSpec {
            config,
            is_external: false,
        }
    }

    /// Returns the log of a shard. Sends no request to the servers.
    pub async fn open(connection: &Connection, shard: u16) -> Result<Self, ShardLogError> {
        let stream = connection
            .jetstream
            .get_stream_no_info(LOG_STREAM)
            .await
            .map_err(unavailable)?;
        Ok(Self {
            connection: connection.clone(),
            stream,
            subject: format!("orlog.log.{shard}"),
            shard,
        })
    }

    /// Returns an identity that distinguishes this log from a recreated one and from those of other
    /// shards.
    pub async fn identity(&self) -> Result<[u8; 16], ShardLogError> {
        let info = self.stream.get_info().await.map_err(unavailable)?;
        let mut identity = info.created.unix_timestamp_nanos().to_be_bytes();
        // The upper bytes are zero for the next three hundred years.
        identity[..2].copy_from_slice(&self.shard.to_be_bytes());
        Ok(identity)
    }

    /// Returns the leader of the stream; `None` during an election or without a cluster.
    pub async fn leader(&self) -> Result<Option<String>, ShardLogError> {
        let info = self.stream.get_info().await.map_err(unavailable)?;
        Ok(info.cluster.and_then(|cluster| cluster.leader))
    }

    /// Returns the maximum size of an entry.
    #[must_use]
    pub fn max_entry_bytes(&self) -> usize {
        self.connection
            .max_payload()
            .min(MAX_ENTRY_BYTES)
            .saturating_sub(HEADERS)
    }

    /// Appends an entry and returns its number. `after` is the expected last entry (0: the log is
    /// empty).
    ///
    /// # Errors
    /// [`ShardLogError::Conflict`], [`ShardLogError::Unavailable`]; the entry may be stored
    /// nevertheless.
    pub async fn append(&self, after: Option<u64>, entry: Bytes) -> Result<u64, ShardLogError> {
        let mut message = PublishMessage::build().payload(entry);
        if let Some(after) = after {
            message = message.expected_last_subject_sequence(after);
        }

        let sent = async {
            self.connection
                .jetstream
                .send_publish(self.subject.clone(), message)
                .await?
                .await
        };
        match sent.await {
            Ok(ack) => Ok(ack.sequence),
            Err(error) if error.kind() == PublishErrorKind::WrongLastSequence => {
                Err(ShardLogError::Conflict(chain(&error)))
            }
            Err(error) => Err(unavailable(error)),
        }
    }

    /// Returns the last entry, as the leader of the stream has it.
    pub async fn last(&self) -> Result<Option<(u64, Bytes)>, ShardLogError> {
        match self
            .stream
            .get_last_raw_message_by_subject(&self.subject)
            .await
        {
            Ok(message) => Ok(Some((message.sequence, message.payload))),
            Err(error) if error.kind() == RawMessageErrorKind::NoMessageFound => Ok(None),
            Err(error) => Err(unavailable(error)),
        }
    }

    /// Calls `visit` with the entries after `after`, in order, until it breaks. Reads at least up
    /// to the current last entry.
    ///
    /// # Errors
    /// [`ShardLogError::Unavailable`], possibly after some entries were visited.
    pub async fn read(
        &self,
        after: u64,
        visit: &mut dyn FnMut(u64, Bytes) -> ControlFlow<()>,
    ) -> Result<(), ShardLogError> {
        // The end is fixed here: an owner that still appends does not prolong the read.
        let Some((end, _)) = self.last().await? else {
            return Ok(());
        };

        let mut read = after;
        let mut attempts = 0;
        if self.read_singly(&mut read, end, visit).await?.is_break() {
            return Ok(());
        }

        while read < end {
            let before = read;
            match self.read_some(&mut read, end, visit).await {
                Ok(ControlFlow::Break(())) => return Ok(()),
                Ok(ControlFlow::Continue(())) => {}
                Err(error) if attempts >= ATTEMPTS => return Err(error),
                Err(error) => {
                    tracing::debug!(%error, subject = self.subject, "restarting the log reader");
                }
            }
            // A long log is read by many consumers; only attempts without progress count.
            attempts = if read > before { 0 } else { attempts + 1 };
        }
        Ok(())
    }

    /// Reads the first few entries one by one from the leader. After a short downtime no consumer
    /// is needed, which may start on a lagging server.
    async fn read_singly(
        &self,
        read: &mut u64,
        end: u64,
        visit: &mut dyn FnMut(u64, Bytes) -> ControlFlow<()>,
    ) -> Result<ControlFlow<()>, ShardLogError> {
        for _ in 0..SINGLE_READ_LIMIT {
            if *read >= end {
                break;
            }

            let next = self
                .stream
                .raw_message_builder()
                .sequence(*read + 1)
                .next_by_subject(&self.subject);
            let message = match next.send().await {
                Ok(message) => message,
                // Purged meanwhile, up to its end or beyond.
                Err(error) if error.kind() == RawMessageErrorKind::NoMessageFound => break,
                Err(error) => return Err(unavailable(error)),
            };

            *read = message.sequence;
            if visit(*read, message.payload).is_break() {
                return Ok(ControlFlow::Break(()));
            }
        }
        Ok(ControlFlow::Continue(()))
    }

    /// Reads with one consumer until the end, a break or a failure. Keeps the reached position.
    async fn read_some(
        &self,
        read: &mut u64,
        end: u64,
        visit: &mut dyn FnMut(u64, Bytes) -> ControlFlow<()>,
    ) -> Result<ControlFlow<()>, ShardLogError> {
        let filter = vec![self.subject.clone()];
        let reader = temporary(filter, temporary_consumer::after(*read), INACTIVE);
        let consumer = self
            .stream
            .create_consumer(reader)
            .await
            .map_err(unavailable)?;

        let batches = consumer
            .stream()
            .max_messages_per_batch(BATCH)
            .heartbeat(HEARTBEAT)
            .expires(EXPIRES);
        let mut messages = batches.messages().await.map_err(unavailable)?;

        let mut delivered = 0;
        while *read < end {
            let next = tokio::time::timeout(READ_TIMEOUT, messages.next()).await;
            let message = next.map_err(unavailable)?;
            let message = message
                .ok_or_else(|| ShardLogError::Unavailable("the consumer ended".to_owned()))?
                .map_err(unavailable)?;
            let info = next_info(&message, &mut delivered).ok_or_else(|| {
                ShardLogError::Unavailable("a message was not delivered".to_owned())
            })?;

            // A consumer on a lagging server starts at the end of that server.
            if info.stream_sequence <= *read {
                continue;
            }

            *read = info.stream_sequence;
            if visit(*read, message.payload.clone()).is_break() {
                return Ok(ControlFlow::Break(()));
            }
        }
        Ok(ControlFlow::Continue(()))
    }

    /// Drops the entries before this number.
    pub async fn purge_before(&self, number: u64) -> Result<(), ShardLogError> {
        let purged = self
            .stream
            .purge()
            .filter(&self.subject)
            .sequence(number)
            .await;
        purged.map(drop).map_err(unavailable)
    }
}
