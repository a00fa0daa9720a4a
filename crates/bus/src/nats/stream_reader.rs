//! Reader of a stream with its own consumer on the servers. The consumer is recreated whenever its
//! state is uncertain.
//!
//! The consumer is ephemeral, acknowledges nothing and exists in the memory of one server. The
//! reader makes it safe: the consumer starts after the last message that was read, and the reader
//! detects gaps in its numbers. The reader checks the stream and its last message before each
//! start, so that it detects a recreated or truncated stream. It ends if it cannot read the stream
//! for `max_outage`. Only a consumer on the leader of the stream shows that the reader has caught
//! up.
//!
//! The client closes its connection at a message whose headers it cannot parse. After repeated ends
//! at one position, the reader requests the next message alone and emits it with a defect
//! (`raw_message.rs`), so that it passes the message.

use std::sync::Arc;
use std::time::{Duration, Instant};

use async_nats::jetstream::consumer::{Consumer, pull};
use async_nats::jetstream::stream::{Info, Stream};
use futures::StreamExt as _;
use tokio::sync::mpsc;
use uuid::Uuid;

use super::connection::unavailable;
use super::identity;
use super::message::{from_nats, timestamp};
use super::raw_message::RawMessages;
use super::read_failures::{ReadFailure, ReadFailures, RepeatedEnds};
use super::temporary_consumer::{
    UnacknowledgedMessages, after, create_on_leader, is_on_leader, next_info, temporary,
};
use crate::Error;
use crate::checkpoint::AckPosition;
use crate::consumer::StoredMessage;
use crate::retry_log::RetryLog;

/// Number of messages per fetch.
const PULL: usize = 2000;
/// Number of bytes per fetch; larger than any message.
const PULL_BYTES: usize = 16 << 20;
/// Number of messages per chunk.
const CHUNK: usize = 256;
/// Maximum number of queued chunks.
const WAITING: usize = 4;
/// Heartbeat interval of the server. After two missed heartbeats the consumer is recreated.
const HEARTBEAT: Duration = Duration::from_millis(500);
/// Expiry of one fetch request.
const EXPIRES: Duration = Duration::from_secs(5);
/// The servers delete a consumer that is inactive for this duration.
const INACTIVE: Duration = Duration::from_secs(30);
/// Delay between two attempts.
const PAUSE: Duration = Duration::from_millis(100);
/// Time of failures after which a reader ends whose subscriber can start again at its position: it
/// must not wait without a report for a stream that may be deleted.
pub(super) const MAX_OUTAGE: Duration = Duration::from_secs(30);
/// Time without a message after which the reader checks whether the consumer has pending messages.
const IDLE: Duration = Duration::from_secs(10);

/// Number of pending messages that is not known.
const UNKNOWN: u64 = u64::MAX;

/// Event of a reader.
#[derive(Debug)]
pub(super) enum ReaderEvent {
    /// The next messages, and the number of messages after the last one; [`UNKNOWN`] if it is not
    /// known.
    Messages {
        messages: Vec<StoredMessage>,
        pending: u64,
    },
    /// There are no more messages up to this position.
    CaughtUp(AckPosition),
    /// The stream was recreated or truncated, or is not readable; no further events follow.
    Broken(String),
}

/// Running reader. Dropping it stops the reader.
#[derive(Debug)]
pub(super) struct StreamReader {
    news: mpsc::Receiver<ReaderEvent>,
}

/// Configuration of a reader.
#[derive(Clone, Debug)]
pub(super) struct ReaderConfig {
    pub(super) stream: Stream<()>,
    pub(super) stream_name: String,
    pub(super) stream_id: Uuid,
    pub(super) raw: RawMessages,
    pub(super) failures: Arc<ReadFailures>,
    /// Base name of the consumers on the servers.
    pub(super) name: String,
    /// Filters that do not overlap; empty: everything.
    pub(super) filters: Vec<String>,
    /// Position before the first message.
    pub(super) after: AckPosition,
    /// Time of failures after which the reader ends; `None`: it waits, because its receiver could
    /// only start again at the end of the stream.
    pub(super) max_outage: Option<Duration>,
}

impl StreamReader {
    /// Starts the reader.
    pub(super) fn start(reader_config: ReaderConfig) -> Self {
        let (sender, news) = mpsc::channel(WAITING);
        tokio::spawn(
            ReaderTask {
                last: reader_config.after,
                failure: ReadFailure::new(&reader_config.failures, &reader_config.name),
                ends: RepeatedEnds::default(),
                reader_config,
                sender,
                rounds: 0,
                retries: RetryLog::default(),
                failing_since: None,
                singles: RetryLog::default(),
            }
            .run(),
        );
        Self { news }
    }

    /// Waits for an event. Cancel safe: dropping the future loses no event.
    pub(super) async fn next(&mut self) -> ReaderEvent {
        self.news
            .recv()
            .await
            .unwrap_or_else(|| ReaderEvent::Broken("the reader has stopped".to_owned()))
    }
}

struct ReaderTask {
    reader_config: ReaderConfig,
    /// Everything up to here was emitted.
    last: AckPosition,
    sender: mpsc::Sender<ReaderEvent>,
    rounds: u64,
    retries: RetryLog,
    ends: RepeatedEnds,
    failure: ReadFailure,
    /// First of the failures since the last success.
    failing_since: Option<Instant>,
    /// Messages without a defect that were requested alone since the last batch.
    singles: RetryLog,
}

/// Reason for the end of a round.
enum RoundEnd {
    /// The state of the consumer is uncertain; create another one.
    Uncertain,
    /// A request before the first message failed.
    Failed,
    /// The receiver was dropped.
    Dropped,
    Broken(String),
}

impl ReaderTask {
    async fn run(mut self) {
        loop {
            let end = match self.round().await {
                // Only a round that has received from its consumer can end because of a message.
                RoundEnd::Uncertain => self.pass_suspect().await,
                end => end,
            };

            match end {
                RoundEnd::Dropped => return,
                RoundEnd::Uncertain | RoundEnd::Failed => tokio::time::sleep(PAUSE).await,
                RoundEnd::Broken(reason) => {
                    // An error means that the receiver was dropped.
                    drop(self.sender.send(ReaderEvent::Broken(reason)).await);
                    return;
                }
            }

            // A round that fails before it reads does not detect that its subscription was dropped.
            if self.sender.is_closed() {
                return;
            }
        }
    }

    /// Reads until the current consumer ends.
    async fn round(&mut self) -> RoundEnd {
        self.rounds += 1;
        let created =
            create_on_leader(&self.reader_config.stream, |attempt| self.config(attempt)).await;
        let (info, consumer) = match created {
            Ok(created) => created,
            Err(error) => return self.failed(&error),
        };

        let end = self.read_checked(&consumer, &info).await;
        // If this fails, the servers delete it after the inactivity limit.
        drop(
            self.reader_config
                .stream
                .delete_consumer(&consumer.cached_info().name)
                .await,
        );

        end
    }

    async fn read_checked(&mut self, consumer: &Consumer<pull::Config>, info: &Info) -> RoundEnd {
        if self.rounds == 1 {
            // Missing messages were reported when the subscription was compared with its
            // checkpoint.
            let before_first = info.state.first_sequence.saturating_sub(1);
            if before_first > self.last.sequence {
                self.last = AckPosition {
                    sequence: before_first,
                    at: None,
                };
            }
        }

        if let Some(reason) = self.broken(info) {
            return RoundEnd::Broken(reason);
        }

        // After the consumer was created: it continues the stream that is checked here.
        match self.replaced().await {
            Ok(None) => {}
            Ok(Some(reason)) => return RoundEnd::Broken(reason),
            Err(error) => return self.failed(&error),
        }
        self.read(consumer, info).await
    }

    /// Ends a series of failures: the reader has advanced, or nothing is left to read.
    fn works(&mut self) {
        self.failure.clear();
        self.failing_since = None;
        self.retries.succeeded(|failures| {
            let stream = &self.reader_config.stream_name;
            tracing::info!(stream, failures, "stream reader works again");
        });
    }

    fn failed(&mut self, error: &Error) -> RoundEnd {
        self.retries.failed(|count| {
            let stream = &self.reader_config.stream_name;
            tracing::warn!(stream, %error, failures = count, "stream reader failed; retrying");
        });

        let outage = self
            .failing_since
            .get_or_insert_with(Instant::now)
            .elapsed();
        if self.reader_config.max_outage.is_none_or(|max| outage < max) {
            return RoundEnd::Failed;
        }
        let stream = &self.reader_config.stream_name;
        RoundEnd::Broken(format!("stream {stream} is not readable: {error}"))
    }

    /// Returns the anomaly if the stream has another message at the last position: it lost its end,
    /// and then grew. Between two rounds, neither its end nor its identity shows that.
    async fn replaced(&self) -> Result<Option<String>, Error> {
        let Some(expected) = self.last.at else {
            return Ok(None);
        };
        let sequence = self.last.sequence;
        let found = self.reader_config.raw.time_of(sequence).await?;
        let found = found.filter(|found| *found != expected);
        Ok(found.map(|found| {
            let name = &self.reader_config.stream_name;
            format!(
                "stream {name} has another message at {sequence}: published at {found}, not at \
                 {expected}"
            )
        }))
    }

    /// Passes the message at which the connection ends repeatedly, if there is one.
    async fn pass_suspect(&mut self) -> RoundEnd {
        // One end is a usual disconnect.
        if !self.ends.record(self.last.sequence) {
            return RoundEnd::Uncertain;
        }

        // What made one message unreadable usually makes the next one unreadable too. Each end of
        // the connection concerns all readers of this process.
        loop {
            let stored = match self.next_alone().await {
                Ok(Some(stored)) => stored,
                Ok(None) => {
                    self.failure.clear();
                    return RoundEnd::Uncertain;
                }
                Err(error) => {
                    self.cannot_pass(&error);
                    return RoundEnd::Uncertain;
                }
            };

            let has_defect = stored.defect.is_some();
            self.report_single(&stored);
            if let Some(end) = self.emit(vec![stored], UNKNOWN).await {
                return end;
            }
            if !has_defect {
                return RoundEnd::Uncertain;
            }
        }
    }

    fn report_single(&mut self, stored: &StoredMessage) {
        let stream = &self.reader_config.stream_name;
        let sequence = stored.sequence;
        if let Some(defect) = &stored.defect {
            tracing::error!(
                stream, sequence, %defect,
                "message cannot be read completely and is not applied"
            );
            return;
        }

        self.singles.failed(|messages| {
            tracing::warn!(
                stream,
                sequence,
                messages,
                "connection ends before a message is read; requesting messages one by one"
            );
        });
    }

    fn cannot_pass(&mut self, error: &Error) {
        let after = self.last.sequence;
        let stream = &self.reader_config.stream_name;
        let reason = format!(
            "stream {stream} is not read after sequence {after}: the connection ends repeatedly, \
             and the next message cannot be requested alone: {error}"
        );
        if self.failure.set(reason) {
            tracing::warn!(stream, after, %error, "stream reader does not advance; retrying");
        }
    }

    /// Requests the next message alone, if the stream is still the one that is read.
    async fn next_alone(&self) -> Result<Option<StoredMessage>, Error> {
        let config = &self.reader_config;
        let info = config.stream.get_info().await.map_err(unavailable)?;
        // The next round detects the anomaly and ends.
        if self.broken(&info).or(self.replaced().await?).is_some() {
            return Ok(None);
        }
        let from = self.last.sequence + 1;
        let end = info.state.last_sequence;
        config.raw.first_from(from, end, &config.filters).await
    }

    async fn read(&mut self, consumer: &Consumer<pull::Config>, info: &Info) -> RoundEnd {
        // Otherwise, a subscription without new messages would count as caught up only after the
        // idle time.
        if consumer.cached_info().num_pending == 0 && !self.level(info).await {
            return RoundEnd::Dropped;
        }

        let pull = consumer
            .stream()
            .max_messages_per_batch(PULL)
            .max_bytes_per_batch(PULL_BYTES)
            .heartbeat(HEARTBEAT)
            .expires(EXPIRES);
        let client = self.reader_config.raw.client();
        let messages = match UnacknowledgedMessages::receive(&client, pull).await {
            Ok(messages) => messages,
            Err(error) => return self.failed(&error),
        };

        let mut chunks = std::pin::pin!(messages.ready_chunks(CHUNK));

        let mut numbers = 0;
        loop {
            let chunk = tokio::select! {
                chunk = tokio::time::timeout(IDLE, chunks.next()) => chunk,
                () = self.sender.closed() => return RoundEnd::Dropped,
            };
            let end = match chunk {
                Ok(Some(chunk)) => self.forward(chunk, &mut numbers).await,
                Ok(None) => Some(RoundEnd::Uncertain),
                Err(_) => self.idle(&consumer.cached_info().name, numbers).await,
            };

            if let Some(end) = end {
                return end;
            }
        }
    }

    /// Emits the messages that follow without a gap; `numbers` is the sequence of the consumer.
    async fn forward(
        &mut self,
        chunk: Vec<Result<async_nats::jetstream::Message, pull::MessagesError>>,
        numbers: &mut u64,
    ) -> Option<RoundEnd> {
        let mut stored = Vec::with_capacity(chunk.len());
        let mut uncertain = None;
        let mut pending = 0;
        for message in chunk {
            let Some((message, after)) = follows(message, numbers) else {
                uncertain = Some(RoundEnd::Uncertain);
                break;
            };
            pending = after;

            // Messages that were already read are redelivered after a restart.
            if message.sequence > self.last.sequence {
                stored.push(message);
            }
        }
        if !stored.is_empty() {
            self.singles.succeeded(|messages| {
                let stream = &self.reader_config.stream_name;
                tracing::info!(stream, messages, "messages are read in batches again");
            });
        }
        self.emit(stored, pending).await.or(uncertain)
    }

    /// Emits the next messages, if there are any.
    async fn emit(&mut self, messages: Vec<StoredMessage>, pending: u64) -> Option<RoundEnd> {
        let last = messages.last()?;
        self.last = AckPosition {
            sequence: last.sequence,
            at: Some(last.published_at),
        };
        self.works();

        let event = ReaderEvent::Messages { messages, pending };
        let sent = self.sender.send(event).await;
        sent.is_err().then_some(RoundEnd::Dropped)
    }

    /// Returns the anomaly if the stream is not the one that was read.
    fn broken(&self, info: &Info) -> Option<String> {
        let name = &self.reader_config.stream_name;
        let last = self.last.sequence;
        let state = &info.state;

        if identity(info) != self.reader_config.stream_id {
            return Some(format!("stream {name} was recreated"));
        }
        if state.last_sequence < last {
            return Some(format!(
                "stream {name} ends at {}, but {last} was already read",
                state.last_sequence
            ));
        }

        (state.first_sequence > last + 1).then(|| {
            let first = state.first_sequence;
            format!(
                "stream {name} starts at {first}: messages after {last} were dropped before they \
                 were read"
            )
        })
    }

    /// Handles a period without messages. If the consumer has no pending messages, everything up to
    /// the end of the stream is read.
    async fn idle(&mut self, consumer: &str, numbers: u64) -> Option<RoundEnd> {
        let Ok(info) = self.reader_config.stream.get_info().await else {
            return Some(RoundEnd::Uncertain);
        };
        if let Some(reason) = self.broken(&info) {
            return Some(RoundEnd::Broken(reason));
        }

        let Ok(consumer) = self.reader_config.stream.consumer_info(consumer).await else {
            return Some(RoundEnd::Uncertain);
        };
        // Only the leader knows the end of the stream.
        if !is_on_leader(&info, &consumer) {
            return Some(RoundEnd::Uncertain);
        }
        // The servers count a message as delivered when they send it: it was lost on its way.
        if consumer.delivered.consumer_sequence != numbers {
            return Some(RoundEnd::Uncertain);
        }

        let level = consumer.num_pending == 0;
        (level && !self.level(&info).await).then_some(RoundEnd::Dropped)
    }

    /// Reports that the reader has caught up; returns `false` if the receiver was dropped.
    async fn level(&mut self, info: &Info) -> bool {
        let sequence = info.state.last_sequence;
        let at = timestamp(info.state.last_timestamp);
        // No filter matches the messages up to the end, so they count as read.
        if sequence > self.last.sequence {
            self.last = AckPosition {
                sequence,
                at: Some(at),
            };
        }

        self.works();
        self.sender
            .send(ReaderEvent::CaughtUp(self.last))
            .await
            .is_ok()
    }

    fn config(&self, attempt: usize) -> pull::Config {
        pull::Config {
            name: Some(format!(
                "{}-{}-{attempt}",
                self.reader_config.name, self.rounds
            )),
            ..temporary(
                self.reader_config.filters.clone(),
                after(self.last.sequence),
                INACTIVE,
            )
        }
    }
}

/// Returns the message and the number of messages after it; `None` if a message before it is
/// missing.
fn follows(
    message: Result<async_nats::jetstream::Message, pull::MessagesError>,
    numbers: &mut u64,
) -> Option<(StoredMessage, u64)> {
    let message = message.ok()?;
    let info = next_info(&message, numbers)?;

    let pending = info.pending;
    let stored = StoredMessage::new(
        info.stream_sequence,
        timestamp(info.published),
        from_nats(message.message),
    );
    Some((stored, pending))
}
