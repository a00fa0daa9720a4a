//! Temporary consumers on the servers: ephemeral, in memory, without acknowledgements.
//!
//! A consumer with one replica runs on any server of the stream. A follower that has not received
//! the last messages yet reports that no messages are pending. Only a consumer on the server that
//! stated the end of the stream shows that there is nothing more up to that end.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll};
use std::time::Duration;

use async_nats::client::Statistics;
use async_nats::jetstream::Message;
use async_nats::jetstream::consumer::{self, AckPolicy, Consumer, DeliverPolicy, pull};
use async_nats::jetstream::stream::{Info, Stream};
use futures::StreamExt as _;
use orlog_model::Timestamp;
use tokio::time::{Interval, MissedTickBehavior, interval};

use super::connection::unavailable;
use crate::Error;

/// Maximum number of consumers that are created to get one on the leader. The servers choose at
/// random: with three servers, one request of 1,000 exceeds it.
const ATTEMPTS: usize = 16;
/// Delay after half of the attempts: the leader may have changed.
const PAUSE: Duration = Duration::from_millis(100);
/// Interval of the check whether the client has reconnected.
const RECONNECT_CHECK: Duration = Duration::from_millis(500);

/// Messages of a temporary consumer. They end after the client has reconnected.
///
/// The servers count a message as delivered when they send it. What was lost with a connection is
/// never sent again, the client continues the consumer after it, and until another message follows,
/// nothing shows the gap.
pub(super) struct UnacknowledgedMessages {
    messages: pull::Stream,
    statistics: Arc<Statistics>,
    /// Number of connections of the client before the first request for messages.
    connects: u64,
    check: Interval,
}

impl UnacknowledgedMessages {
    /// Starts to receive the messages of a consumer.
    pub(super) async fn receive(
        client: &async_nats::Client,
        consumer: pull::StreamBuilder<'_>,
    ) -> Result<Self, Error> {
        let statistics = client.statistics();
        // Before the request: a reconnect in between must end the messages too.
        let connects = statistics.connects.load(Ordering::Relaxed);

        let mut check = interval(RECONNECT_CHECK);
        check.set_missed_tick_behavior(MissedTickBehavior::Delay);

        Ok(Self {
            messages: consumer.messages().await.map_err(unavailable)?,
            statistics,
            connects,
            check,
        })
    }
}

impl futures::Stream for UnacknowledgedMessages {
    type Item = Result<Message, pull::MessagesError>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        // Messages before the check: a gap in front of one of them shows in its number.
        if let Poll::Ready(message) = self.messages.poll_next_unpin(context) {
            return Poll::Ready(message);
        }

        // The client continues the consumer after a gap that nothing shows.
        while self.check.poll_tick(context).is_ready() {
            if self.statistics.connects.load(Ordering::Relaxed) != self.connects {
                return Poll::Ready(None);
            }
        }
        Poll::Pending
    }
}

/// Returns the configuration of a consumer of these subjects (empty: all). The servers delete it
/// when it is inactive for the duration `inactive`.
pub(super) fn temporary(
    filter_subjects: Vec<String>,
    deliver_policy: DeliverPolicy,
    inactive: Duration,
) -> pull::Config {
    pull::Config {
        filter_subjects,
        ack_policy: AckPolicy::None,
        memory_storage: true,
        num_replicas: 1,
        inactive_threshold: inactive,
        deliver_policy,
        ..pull::Config::default()
    }
}

/// Returns the policy that starts after a sequence.
pub(super) fn after(sequence: u64) -> DeliverPolicy {
    DeliverPolicy::ByStartSequence {
        start_sequence: sequence + 1,
    }
}

/// Returns the policy that starts at a time.
pub(super) fn since(time: Timestamp) -> Result<DeliverPolicy, Error> {
    let nanos = i128::from(time.as_millis()) * 1_000_000;
    let start_time = async_nats::datetime::from_nanos(nanos)
        .map_err(|error| Error::Unavailable(error.to_string()))?;
    Ok(DeliverPolicy::ByStartTime { start_time })
}

/// Returns the info of the next message; `None` if a message of the consumer before it is missing.
/// `numbers` is the number of received messages.
pub(super) fn next_info<'m>(
    message: &'m Message,
    numbers: &mut u64,
) -> Option<async_nats::jetstream::message::Info<'m>> {
    let info = message.info().ok()?;
    (info.consumer_sequence == *numbers + 1).then(|| {
        *numbers += 1;
        info
    })
}

/// Returns whether the consumer runs on the server that stated this info of its stream. If it was
/// stated before the state of the consumer, the consumer knows all messages up to the stated end.
pub(super) fn is_on_leader(stream: &Info, consumer: &consumer::Info) -> bool {
    // A server that belongs to no cluster states itself as the leader of streams, and nothing for
    // consumers.
    let Some(cluster) = stream
        .cluster
        .as_ref()
        .filter(|cluster| cluster.name.is_some())
    else {
        return true;
    };
    let leader = consumer
        .cluster
        .as_ref()
        .and_then(|cluster| cluster.leader.as_ref());
    leader.is_some() && leader == cluster.leader.as_ref()
}

/// Creates a consumer on the leader of the stream; returns it and the info of the stream before its
/// creation. `config` gets the number of the attempt.
///
/// # Errors
/// If the servers do not respond, reject the request, or choose other servers each time.
pub(super) async fn create_on_leader(
    stream: &Stream<()>,
    config: impl Fn(usize) -> pull::Config,
) -> Result<(Info, Consumer<pull::Config>), Error> {
    for attempt in 0..ATTEMPTS {
        if attempt == ATTEMPTS / 2 {
            tokio::time::sleep(PAUSE).await;
        }

        let info = stream.get_info().await.map_err(unavailable)?;
        let consumer = stream
            .create_consumer(config(attempt))
            .await
            .map_err(unavailable)?;

        if is_on_leader(&info, consumer.cached_info()) {
            return Ok((info, consumer));
        }
        // Without the permission to delete, there is no response; the servers delete it after the
        // inactivity limit.
        let stream = stream.clone();
        let name = consumer.cached_info().name.clone();
        tokio::spawn(async move { drop(stream.delete_consumer(&name).await) });
    }
    Err(Error::Unavailable(
        "no consumer could be created on the leader of the stream".to_owned(),
    ))
}
