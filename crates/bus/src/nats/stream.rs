//! One JetStream stream as a bus.
//!
//! It implements the contract of [`Bus`] and adds:
//! - A publish goes to the stream of its subject and returns after the servers acknowledge it. If
//!   they do not respond, the message may be stored: publish it again under the same id.
//! - Consumers on the servers are temporary. Progress is stored by the subscriber's own checkpoint,
//!   or else by [`NatsStream::save_cursors`], which also runs every few seconds.
//! - A stream that was recreated, truncated or restored, or that dropped unread messages, is
//!   detected: at the start by [`Consumer::subscription_start`], and later by an error.

use std::sync::{Arc, Weak};
use std::time::Duration;

use async_nats::jetstream::consumer::pull;
use async_nats::jetstream::context::GetStreamErrorKind;
use async_nats::jetstream::stream::{Info, PeerInfo, Stream};
use async_trait::async_trait;
use orlog_model::{StreamPosition, Timestamp};
use parking_lot::RwLock;
use uuid::Uuid;

use super::connection::{Connection, chain, unavailable};
use super::cursors::Cursors;
use super::filters::merge_overlapping;
use super::identity;
use super::publish::{max_message_size, publish};
use super::raw_message::RawMessages;
use super::scan::NatsScan;
use super::shared_reader::SharedReader;
use super::source::NatsSource;
use super::stream_reader::{MAX_OUTAGE, ReaderConfig};
use super::temporary_consumer::{since, temporary};
use crate::checkpoint::{AckPosition, StartPosition, StreamInfo, resolve_start};
use crate::consumer::{AckHandle, SourceConsumer};
use crate::subject::encode_token;
use crate::subject_matcher::SubjectMatcher;
use crate::{
    Bus, Consumer, Error, Message, PublishAck, ScanStart, StreamScan, Subscription,
    SubscriptionStart,
};

/// Interval at which cursors are saved to the servers.
const SAVE_EVERY: Duration = Duration::from_secs(3);
/// Maximum clock skew between servers: a read from a point in time starts this much earlier.
const MAX_CLOCK_SKEW: Duration = Duration::from_mins(1);
/// Silence after which a replica counts as unreachable. Replicas respond to their leader every
/// second.
const MAX_SILENCE: Duration = Duration::from_secs(5);
/// Minimum server version that can reset a consumer.
const RESET: (u64, u64) = (2, 14);

/// Open stream.
#[derive(Debug)]
pub struct NatsStream {
    connection: Connection,
    stream: Stream<()>,
    name: String,
    /// Prefix of consumer names: the pod and an id that is unique to the process.
    reader: String,
    /// Identity at the last check.
    id: RwLock<Uuid>,
    cursors: Arc<Cursors>,
    raw: RawMessages,
    shared_reader: Arc<SharedReader>,
}

impl NatsStream {
    /// Opens an existing stream. The pod name is visible to operators.
    ///
    /// # Errors
    /// If the stream does not exist, or if the servers do not respond.
    pub async fn open(connection: &Connection, name: &str, pod: &str) -> Result<Arc<Self>, Error> {
        let info = match connection.jetstream.get_stream(name).await {
            Ok(stream) => stream.cached_info().clone(),
            Err(error) => return Err(open_error(name, &error)),
        };

        let stream = connection.jetstream.get_stream_no_info(name).await;
        let stream = stream.map_err(|error| open_error(name, &error))?;

        let cursors = Cursors::open(stream.clone(), pod, connection.is_at_least(RESET)).await?;
        let opened = Arc::new(Self {
            connection: connection.clone(),
            stream,
            name: name.to_owned(),
            reader: format!(
                "{}-{}",
                encode_token(pod),
                &Uuid::new_v4().simple().to_string()[..8]
            ),
            id: RwLock::new(identity(&info)),
            cursors,
            raw: RawMessages::new(&connection.jetstream, name),
            shared_reader: Arc::default(),
        });

        tokio::spawn(run_cursor_saver(Arc::downgrade(&opened)));
        Ok(opened)
    }

    /// Saves the cursors to the servers now.
    ///
    /// # Errors
    /// If the servers do not respond.
    pub async fn save_cursors(&self) -> Result<(), Error> {
        self.cursors.save().await
    }

    /// Reads the stream info; the stream may have been recreated.
    async fn refresh_info(&self) -> Result<Info, Error> {
        let info = self.stream.get_info().await.map_err(unavailable)?;
        *self.id.write() = identity(&info);
        Ok(info)
    }

    /// Returns the start position of a subscription.
    async fn start(
        &self,
        name: &str,
        after: Option<StreamPosition>,
    ) -> Result<SubscriptionStart, Error> {
        let info = self.refresh_info().await?;
        let stream_id = identity(&info);
        let first = info.state.first_sequence;
        let last = info.state.last_sequence;
        let position =
            after.unwrap_or_else(|| StreamPosition::after(stream_id, self.cursors.cursor(name)));

        // The publish time of the message proves that the stream is the one of the checkpoint.
        let at = if position.at.is_some() && (first..=last).contains(&position.sequence) {
            self.raw.time_of(position.sequence).await?
        } else {
            None
        };
        let (start, found) = resolve_start(
            &position,
            StreamInfo {
                stream_id,
                first,
                last,
                at,
            },
        );

        if position.stream_id != stream_id && found.is_none() && position.sequence > 0 {
            tracing::warn!(
                stream = self.name,
                subscription = name,
                checkpoint = position.sequence,
                "stream was restored: it has another creation time and the message at the \
                 checkpoint; reading continues"
            );
        }

        // A subscription without its own checkpoint reads the available messages.
        let found = found.filter(|_| after.is_some_and(|position| position.sequence > 0));

        // No message is skipped: a duplicate is detected by its id.
        let after = match start {
            StartPosition::After(sequence) => sequence,
            StartPosition::Since(None) => 0,
            StartPosition::Since(Some(time)) => {
                self.before(time.saturating_sub(MAX_CLOCK_SKEW)).await?
            }
        };
        Ok(SubscriptionStart {
            stream_id,
            after,
            anomaly: found,
        })
    }

    fn reader_config(
        &self,
        stream_id: Uuid,
        kind: &str,
        filters: Vec<String>,
        after: AckPosition,
    ) -> ReaderConfig {
        ReaderConfig {
            stream: self.stream.clone(),
            stream_name: self.name.clone(),
            stream_id,
            raw: self.raw.clone(),
            failures: Arc::clone(&self.connection.read_failures),
            name: format!("{}-{kind}", self.reader),
            filters,
            after,
            max_outage: Some(MAX_OUTAGE),
        }
    }

    /// Returns the last message before a time. The servers determine it: a consumer that starts at
    /// a time is positioned after that message.
    async fn before(&self, time: Timestamp) -> Result<u64, Error> {
        let name = format!("{}-at-{}", self.reader, Uuid::new_v4().simple());
        let config = pull::Config {
            name: Some(name.clone()),
            ..temporary(Vec::new(), since(time)?, SAVE_EVERY)
        };

        let consumer = self
            .stream
            .create_consumer(config)
            .await
            .map_err(unavailable)?;

        // If this fails, the servers delete it after the inactivity limit.
        drop(self.stream.delete_consumer(&name).await);
        Ok(consumer.cached_info().delivered.stream_sequence)
    }
}

async fn run_cursor_saver(stream: Weak<NatsStream>) {
    loop {
        tokio::time::sleep(SAVE_EVERY).await;
        let Some(stream) = stream.upgrade() else {
            return;
        };
        if let Err(error) = stream.save_cursors().await {
            tracing::debug!(
                stream = stream.name, %error,
                "cursor save failed; retrying at the next interval"
            );
        }
    }
}

fn open_error(name: &str, error: &async_nats::jetstream::context::GetStreamError) -> Error {
    Error::Unavailable(match error.kind() {
        GetStreamErrorKind::JetStream(error) if error.code() == 404 => {
            format!(
                "stream {name} does not exist; run `orlog streams apply` to create missing streams"
            )
        }
        _ => chain(error),
    })
}

/// Returns why the servers of a stream store no messages. Without a quorum, they still respond to
/// requests: a leader until it steps down, then another server.
fn lost_quorum(leader: Option<&str>, replicas: &[PeerInfo]) -> Option<String> {
    if leader.is_none() {
        return Some("no leader, because most of its servers do not respond".to_owned());
    }

    let silent: Vec<&str> = replicas
        .iter()
        .filter(|replica| replica.offline || replica.active > MAX_SILENCE)
        .map(|replica| replica.name.as_str())
        .collect();
    // The leader does not list itself.
    let all = replicas.len() + 1;
    let has_quorum = (all - silent.len()) * 2 > all;

    (!has_quorum).then(|| {
        format!(
            "no quorum, because {} of {all} servers do not respond: {}",
            silent.len(),
            silent.join(", ")
        )
    })
}

#[async_trait]
impl Bus for NatsStream {
    fn stream_id(&self) -> Uuid {
        *self.id.read()
    }

    async fn publish(&self, messages: Vec<Arc<Message>>) -> Result<Vec<PublishAck>, Error> {
        publish(&self.connection, &messages).await
    }

    fn max_message_size(&self) -> usize {
        max_message_size(&self.connection)
    }

    fn sign(&self, message: Message) -> Message {
        self.connection.signer.sign(message)
    }

    fn vouch(&self, message: Message, now: Timestamp) -> Message {
        self.connection.signer.vouch(message, now)
    }

    fn vouched_at(&self, message: &Message) -> Option<Timestamp> {
        self.connection.signer.vouched_at(message)
    }

    fn rejection(&self, message: &Message) -> Option<String> {
        self.connection
            .signer
            .verify(message)
            .err()
            .map(|error| error.to_string())
    }

    async fn subscribe(&self, subscription: Subscription) -> Result<Box<dyn Consumer>, Error> {
        let interest = SubjectMatcher::for_subscription(&subscription)?;
        let Subscription {
            name,
            filters,
            start_after,
            max_in_flight,
            ..
        } = subscription;

        // The name first: a second consumer of it fails without a request to the servers.
        let claim = self.cursors.acquire(&name, filters.clone())?;
        let start = self.start(&name, start_after).await?;
        claim
            .cursor
            .store(start.after, std::sync::atomic::Ordering::Relaxed);

        let after = AckPosition {
            sequence: start.after,
            at: start_after
                .filter(|checkpoint| checkpoint.sequence == start.after && start.anomaly.is_none())
                .and_then(|checkpoint| checkpoint.at),
        };

        let reader_config =
            |kind: &str, filters| self.reader_config(start.stream_id, kind, filters, after);
        // The shared reader merges the filters of its members, so its own configuration has none.
        let member = self
            .shared_reader
            .join(filters.clone(), reader_config("hub", Vec::new()));
        let own = reader_config(
            &encode_token(&name),
            merge_overlapping(filters.iter().map(String::as_str)),
        );

        // No checkpoint and no notification: the cursors on the servers show the ack floor, and are
        // saved at an interval.
        let ack_handle = AckHandle::new(Arc::clone(&claim.cursor), max_in_flight, false, || {});
        let source = NatsSource::new(interest, member, own);
        Ok(Box::new(SourceConsumer::new(
            source, ack_handle, claim, start,
        )))
    }

    async fn scan(
        &self,
        filters: Vec<String>,
        start: ScanStart,
    ) -> Result<Box<dyn StreamScan>, Error> {
        SubjectMatcher::for_filters(&filters)?;
        let info = self.refresh_info().await?;

        let (after, since) = match start {
            ScanStart::Sequence(first) => (first.saturating_sub(1), None),
            ScanStart::Time(time) => (self.before(time).await?, Some(time)),
        };
        let after = AckPosition {
            sequence: after,
            at: None,
        };

        let config = self.reader_config(
            identity(&info),
            &format!("past-{}", Uuid::new_v4().simple()),
            merge_overlapping(filters.iter().map(String::as_str)),
            after,
        );

        Ok(Box::new(NatsScan::start(
            config,
            since,
            info.state.last_sequence,
        )))
    }

    async fn last_sequence(&self) -> Result<u64, Error> {
        let info = self.refresh_info().await?;
        let cluster = info.cluster.as_ref();
        match cluster.and_then(|cluster| lost_quorum(cluster.leader.as_deref(), &cluster.replicas))
        {
            Some(reason) => Err(Error::Unavailable(format!(
                "stream {}: {reason}",
                self.name
            ))),
            None => Ok(info.state.last_sequence),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn replica(name: &str, silence: Duration, offline: bool) -> PeerInfo {
        PeerInfo {
            name: name.to_owned(),
            current: true,
            active: silence,
            offline,
            lag: None,
        }
    }

    #[test]
    fn quorum_is_lost_if_half_of_the_servers_are_offline_or_silent() {
        let second = Duration::from_secs(1);
        let (up, silent) = (replica("a", second, false), replica("b", second * 6, false));
        let offline = replica("c", second, true);
        let lost = |replicas: &[PeerInfo]| lost_quorum(Some("l"), replicas);
        assert_eq!(lost(&[]), None);
        assert_eq!(lost(&[up.clone(), silent.clone()]), None);
        let reason = lost(&[silent.clone(), offline.clone()]);
        assert_eq!(
            reason.as_deref(),
            Some("no quorum, because 2 of 3 servers do not respond: b, c")
        );
        assert!(lost(std::slice::from_ref(&silent)).is_some());
        assert_eq!(lost(&[up.clone(), up.clone(), silent, offline]), None);
        assert!(lost_quorum(None, &[up.clone(), up]).is_some());
    }
}
