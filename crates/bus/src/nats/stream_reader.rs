//! A reader of the stream: its own consumer on the servers, made anew whenever something is in doubt.
//!
//! The consumer is ephemeral, acknowledges nothing and lives in the memory of one server. What makes it safe is here: it
//! begins behind what was read last, a hole in its numbers is noticed, and before each beginning the stream is looked at,
//! so that one that was made anew or lost its end is not read as if nothing had happened.

use std::time::Duration;

use async_nats::jetstream::consumer::{AckPolicy, DeliverPolicy, pull};
use async_nats::jetstream::stream::{Info, Stream};
use futures::StreamExt as _;
use tokio::sync::mpsc;
use uuid::Uuid;

use super::identity;
use super::message::{from_nats, timestamp};
use crate::checkpoint::Mark;
use crate::in_flight::Stored;

/// Messages asked for at once.
const PULL: usize = 2000;
/// Bytes asked for at once; any message fits.
const PULL_BYTES: usize = 16 << 20;
/// Messages handed on at once.
const CHUNK: usize = 256;
/// Chunks that wait to be taken.
const WAITING: usize = 4;
/// Twice as long without a word, and the consumer is made anew.
const HEARTBEAT: Duration = Duration::from_millis(500);
/// How long one request for messages stands.
const EXPIRES: Duration = Duration::from_secs(5);
/// A consumer whose reader is gone without a word is dropped by the servers after this.
const INACTIVE: Duration = Duration::from_secs(30);
/// Between two attempts.
const PAUSE: Duration = Duration::from_millis(100);
/// After this long without a message it is looked whether there is nothing.
const IDLE: Duration = Duration::from_secs(10);

/// What a reader tells.
#[derive(Debug)]
pub(super) enum News {
    /// The next messages.
    Messages(Vec<Stored>),
    /// There is nothing more up to here.
    Level(Mark),
    /// The stream is no longer the one that was read; nothing follows.
    Broken(String),
}

/// A reader at work. Dropping it ends it.
#[derive(Debug)]
pub(super) struct Reading {
    news: mpsc::Receiver<News>,
}

/// What is read.
#[derive(Clone, Debug)]
pub(super) struct Wanted {
    pub(super) stream: Stream<()>,
    pub(super) stream_name: String,
    pub(super) stream_id: Uuid,
    /// Names the consumers on the servers.
    pub(super) name: String,
    /// None of which overlaps another; empty: everything.
    pub(super) filters: Vec<String>,
    pub(super) after: u64,
}

impl Reading {
    /// Begins to read.
    pub(super) fn start(wanted: Wanted) -> Self {
        let (sender, news) = mpsc::channel(WAITING);
        let last = Mark { sequence: wanted.after, at: None };
        tokio::spawn(Reader { wanted, last, sender, rounds: 0 }.run());
        Self { news }
    }

    /// Waits for news. Dropping the future loses nothing.
    pub(super) async fn next(&mut self) -> News {
        self.news.recv().await.unwrap_or_else(|| News::Broken("the reader has ended".to_owned()))
    }
}

struct Reader {
    wanted: Wanted,
    /// Everything up to here was handed on.
    last: Mark,
    sender: mpsc::Sender<News>,
    rounds: u64,
}

/// Why a round ended.
enum End {
    /// The consumer is in doubt; make another.
    Doubt,
    /// Nobody listens any more.
    Unwanted,
    Broken(String),
}

impl Reader {
    async fn run(mut self) {
        loop {
            match self.round().await {
                End::Unwanted => return,
                End::Doubt => tokio::time::sleep(PAUSE).await,
                End::Broken(why) => {
                    // An error means that nobody listens any more.
                    drop(self.sender.send(News::Broken(why)).await);
                    return;
                }
            }
            if self.sender.is_closed() {
                return;
            }
        }
    }

    /// From one consumer on the servers to the next.
    async fn round(&mut self) -> End {
        let Ok(info) = self.wanted.stream.get_info().await else { return End::Doubt };
        if self.rounds == 0 {
            // What is missing there was told when the subscription was compared with its checkpoint.
            self.last.sequence = self.last.sequence.max(info.state.first_sequence.saturating_sub(1));
        }
        if let Some(why) = self.broken(&info) {
            return End::Broken(why);
        }
        self.rounds += 1;
        let consumer = match self.wanted.stream.create_consumer(self.config()).await {
            Ok(consumer) => consumer,
            Err(error) => {
                tracing::debug!(stream = self.wanted.stream_name, %error, "no consumer; it is tried again");
                return End::Doubt;
            }
        };
        let end = self.read(&consumer, &info).await;
        // Where it fails the servers drop it by themselves.
        drop(self.wanted.stream.delete_consumer(&self.consumer_name()).await);
        end
    }

    async fn read(
        &mut self,
        consumer: &async_nats::jetstream::consumer::Consumer<pull::Config>,
        info: &Info,
    ) -> End {
        if consumer.cached_info().num_pending == 0 && !self.level(info).await {
            return End::Unwanted;
        }
        let messages = consumer
            .stream()
            .max_messages_per_batch(PULL)
            .max_bytes_per_batch(PULL_BYTES)
            .heartbeat(HEARTBEAT)
            .expires(EXPIRES)
            .messages()
            .await;
        let Ok(messages) = messages else { return End::Doubt };
        let mut chunks = std::pin::pin!(messages.ready_chunks(CHUNK));
        let mut numbers = 0;
        loop {
            let chunk = tokio::select! {
                chunk = tokio::time::timeout(IDLE, chunks.next()) => chunk,
                () = self.sender.closed() => return End::Unwanted,
            };
            let end = match chunk {
                Ok(Some(chunk)) => self.hand_on(chunk, &mut numbers).await,
                Ok(None) => Some(End::Doubt),
                Err(_) => self.idle(numbers).await,
            };
            if let Some(end) = end {
                return end;
            }
        }
    }

    /// Hands on what follows without a hole; `numbers` is the consumer's own count.
    async fn hand_on(
        &mut self,
        chunk: Vec<Result<async_nats::jetstream::Message, pull::MessagesError>>,
        numbers: &mut u64,
    ) -> Option<End> {
        let mut stored = Vec::with_capacity(chunk.len());
        let mut doubt = None;
        for message in chunk {
            let Some(message) = follows(message, numbers) else {
                doubt = Some(End::Doubt);
                break;
            };
            // What was read before comes again after a new beginning.
            if message.sequence > self.last.sequence {
                self.last = Mark { sequence: message.sequence, at: Some(message.published_at) };
                stored.push(message);
            }
        }
        if !stored.is_empty() && self.sender.send(News::Messages(stored)).await.is_err() {
            return Some(End::Unwanted);
        }
        doubt
    }

    /// Whether the stream is still the one that was read.
    fn broken(&self, info: &Info) -> Option<String> {
        let (name, last) = (&self.wanted.stream_name, self.last.sequence);
        let state = &info.state;
        if identity(info) != self.wanted.stream_id {
            return Some(format!("the stream {name} was made anew"));
        }
        if state.last_sequence < last {
            return Some(format!("the stream {name} ends at {}, after {last} was read", state.last_sequence));
        }
        (state.first_sequence > last + 1).then(|| {
            let first = state.first_sequence;
            format!("the stream {name} begins at {first}: messages after {last} were dropped before they were read")
        })
    }

    /// Nothing has come for a while: when the consumer has nothing either, everything up to the end of the stream is read.
    async fn idle(&mut self, numbers: u64) -> Option<End> {
        let Ok(info) = self.wanted.stream.get_info().await else { return Some(End::Doubt) };
        if let Some(why) = self.broken(&info) {
            return Some(End::Broken(why));
        }
        let Ok(consumer) = self.wanted.stream.consumer_info(self.consumer_name()).await else {
            return Some(End::Doubt);
        };
        let level = consumer.num_pending == 0 && consumer.delivered.consumer_sequence == numbers;
        (level && !self.level(&info).await).then_some(End::Unwanted)
    }

    /// `false` when nobody listens any more.
    async fn level(&mut self, info: &Info) -> bool {
        let (sequence, at) = (info.state.last_sequence, timestamp(info.state.last_timestamp));
        if sequence > self.last.sequence {
            self.last = Mark { sequence, at: Some(at) };
        }
        self.sender.send(News::Level(self.last)).await.is_ok()
    }

    fn consumer_name(&self) -> String {
        format!("{}-{}", self.wanted.name, self.rounds)
    }

    fn config(&self) -> pull::Config {
        pull::Config {
            name: Some(self.consumer_name()),
            filter_subjects: self.wanted.filters.clone(),
            ack_policy: AckPolicy::None,
            memory_storage: true,
            num_replicas: 1,
            inactive_threshold: INACTIVE,
            deliver_policy: DeliverPolicy::ByStartSequence { start_sequence: self.last.sequence + 1 },
            ..pull::Config::default()
        }
    }
}

/// The message; `None` when something is missing before it.
fn follows(
    message: Result<async_nats::jetstream::Message, pull::MessagesError>,
    numbers: &mut u64,
) -> Option<Stored> {
    let message = message.ok()?;
    let (number, sequence, published_at) = {
        let info = message.info().ok()?;
        (info.consumer_sequence, info.stream_sequence, timestamp(info.published))
    };
    if number != *numbers + 1 {
        return None;
    }
    *numbers = number;
    Some(Stored { sequence, published_at, message: from_nats(message.message) })
}
