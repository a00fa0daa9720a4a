//! Consumers on the server that leads their stream.
//!
//! A consumer with one replica runs on any server of the stream. A follower that has not received the
//! last messages yet reports that no messages are pending. Only a consumer on the server that stated
//! the end of the stream shows that there is nothing more up to that end.

use std::time::Duration;

use async_nats::jetstream::consumer::{self, Consumer, pull};
use async_nats::jetstream::stream::{Info, Stream};

use super::connection::chain;
use crate::Error;

/// Maximum number of consumers that are created to get one on the leader. The servers choose at random:
/// with three servers, one request of 1,000 exceeds it.
const ATTEMPTS: usize = 16;
/// Delay after half of the attempts: the leader may have changed.
const PAUSE: Duration = Duration::from_millis(100);

/// Returns whether the consumer runs on the server that stated this info of its stream. If it was stated
/// before the state of the consumer, the consumer knows all messages up to the stated end.
pub(super) fn is_on_leader(stream: &Info, consumer: &consumer::Info) -> bool {
    // A server that belongs to no cluster states itself as the leader of streams, and nothing for consumers.
    let Some(cluster) = stream.cluster.as_ref().filter(|cluster| cluster.name.is_some()) else { return true };
    let leader = consumer.cluster.as_ref().and_then(|cluster| cluster.leader.as_ref());
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
        let info = stream.get_info().await.map_err(|error| Error::Unavailable(chain(&error)))?;
        let consumer = stream.create_consumer(config(attempt)).await;
        let consumer = consumer.map_err(|error| Error::Unavailable(chain(&error)))?;
        if is_on_leader(&info, consumer.cached_info()) {
            return Ok((info, consumer));
        }
        // Without the permission to delete, there is no response; the servers delete it after the inactivity limit.
        let (stream, name) = (stream.clone(), consumer.cached_info().name.clone());
        tokio::spawn(async move { drop(stream.delete_consumer(&name).await) });
    }
    Err(Error::Unavailable("no consumer could be created on the leader of the stream".to_owned()))
}
