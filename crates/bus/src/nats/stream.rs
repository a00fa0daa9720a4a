//! One stream of JetStream as a bus.
//!
//! It keeps the contract of [`Bus`] and adds:
//! - A publish goes to whichever stream takes its subject; it returns when the servers have acknowledged. Where they do not
//!   answer, it may have landed: publish it again under the same id.
//! - Consumers on the servers are made and dropped at will: what was done is kept by the subscriber's own checkpoint, or else by
//!   [`NatsStream::save_cursors`], which is also done every few seconds.
//! - A stream that was made anew, lost its end, was restored, or has dropped what was not read yet is noticed: at the
//!   beginning ([`Consumer::start`]), and under way by an error.

use std::sync::{Arc, PoisonError, RwLock, Weak};
use std::time::Duration;

use async_nats::jetstream::consumer::{AckPolicy, DeliverPolicy, pull};
use async_nats::jetstream::context::GetStreamErrorKind;
use async_nats::jetstream::stream::{Info, RawMessageErrorKind, Stream};
use async_trait::async_trait;
use orlog_model::{StreamPosition, Timestamp};
use uuid::Uuid;

use super::connection::{Connection, chain};
use super::consumer::NatsConsumer;
use super::cursors::Cursors;
use super::filters::reduced;
use super::identity;
use super::message::timestamp;
use super::publish::publish;
use super::scan::NatsPast;
use super::shared_reader::Hub;
use super::stream_reader::Wanted;
use crate::checkpoint::{Begin, Sight, judge};
use crate::subject::encode_token;
use crate::subject_matcher::Interest;
use crate::{Bus, Consumer, Error, Message, Past, Receipt, Since, Start, Subscription};

/// Cursors are brought to the servers this often.
const SAVE_EVERY: Duration = Duration::from_secs(3);
/// How far the clocks of the servers may differ: what is read from a time on is read from this much earlier.
const SKEW: Duration = Duration::from_mins(1);
/// The oldest servers that can move a consumer.
const RESET: (u64, u64) = (2, 14);

/// A stream, opened.
#[derive(Debug)]
pub struct NatsStream {
    connection: Connection,
    stream: Stream<()>,
    name: String,
    /// Begins the names of consumers: the pod, and a word that no other process has.
    reader: String,
    /// As it was when it was looked at last.
    id: RwLock<Uuid>,
    cursors: Arc<Cursors>,
    hub: Arc<Hub>,
}

impl NatsStream {
    /// Opens a stream that exists. The pod's name stands in what operators see.
    ///
    /// # Errors
    /// When it does not exist, or the servers do not answer.
    pub async fn open(connection: &Connection, name: &str, pod: &str) -> Result<Arc<Self>, Error> {
        let info = match connection.jetstream.get_stream(name).await {
            Ok(stream) => stream.cached_info().clone(),
            Err(error) => return Err(not_opened(name, &error)),
        };
        let stream = connection.jetstream.get_stream_no_info(name).await;
        let stream = stream.map_err(|error| not_opened(name, &error))?;
        let pod = encode_token(pod);
        let cursors = Cursors::open(stream.clone(), &pod, connection.is_at_least(RESET)).await?;
        let opened = Arc::new(Self {
            connection: connection.clone(),
            stream,
            name: name.to_owned(),
            reader: format!("{pod}-{}", &Uuid::new_v4().simple().to_string()[..8]),
            id: RwLock::new(identity(&info)),
            cursors,
            hub: Arc::default(),
        });
        tokio::spawn(keep(Arc::downgrade(&opened)));
        Ok(opened)
    }

    /// Brings the cursors to the servers now.
    ///
    /// # Errors
    /// When the servers do not answer.
    pub async fn save_cursors(&self) -> Result<(), Error> {
        self.cursors.save().await
    }

    /// Looks at the stream, which may be another one by now.
    async fn look(&self) -> Result<Info, Error> {
        let info = self.stream.get_info().await.map_err(|error| Error::Unavailable(chain(&error)))?;
        *self.id.write().unwrap_or_else(PoisonError::into_inner) = identity(&info);
        Ok(info)
    }

    /// Where a subscription begins.
    async fn start(&self, name: &str, after: Option<StreamPosition>) -> Result<Start, Error> {
        let info = self.look().await?;
        let (stream_id, state) = (identity(&info), &info.state);
        let position = after.unwrap_or_else(|| StreamPosition::behind(stream_id, self.cursors.of(name)));
        let (first, last) = (state.first_sequence, state.last_sequence);
        let same = position.stream_id == stream_id && (first..=last).contains(&position.sequence);
        let at = if same && position.at.is_some() { self.time_of(position.sequence).await? } else { None };
        let (begin, found) = judge(&position, Sight { stream_id, first, last, at });
        // Without a checkpoint of its own a subscription wants what there is.
        let found = found.filter(|_| after.is_some_and(|position| position.sequence > 0));
        let after = match begin {
            Begin::After(sequence) => sequence,
            Begin::Since(None) => 0,
            Begin::Since(Some(time)) => self.before(time.before(SKEW)).await?,
        };
        Ok(Start { stream_id, after, found })
    }

    /// When a message was published; `None` where it is gone.
    async fn time_of(&self, sequence: u64) -> Result<Option<Timestamp>, Error> {
        match self.stream.get_raw_message(sequence).await {
            Ok(message) => Ok(Some(timestamp(message.time))),
            Err(error) if matches!(error.kind(), RawMessageErrorKind::NoMessageFound) => Ok(None),
            Err(error) => Err(Error::Unavailable(chain(&error))),
        }
    }

    /// The last message before a time. The servers know: a consumer that begins at a time stands behind it.
    async fn before(&self, time: Timestamp) -> Result<u64, Error> {
        let unavailable = |error: &dyn std::error::Error| Error::Unavailable(chain(error));
        let nanos = i128::from(time.millis()) * 1_000_000;
        let start_time =
            async_nats::datetime::from_nanos(nanos).map_err(|e| Error::Unavailable(e.to_string()))?;
        let name = format!("{}-at-{}", self.reader, Uuid::new_v4().simple());
        let config = pull::Config {
            name: Some(name.clone()),
            ack_policy: AckPolicy::None,
            memory_storage: true,
            num_replicas: 1,
            inactive_threshold: SAVE_EVERY,
            deliver_policy: DeliverPolicy::ByStartTime { start_time },
            ..pull::Config::default()
        };
        let consumer = self.stream.create_consumer(config).await.map_err(|e| unavailable(&e))?;
        // Where it fails the servers drop it by themselves.
        drop(self.stream.delete_consumer(&name).await);
        Ok(consumer.cached_info().delivered.stream_sequence)
    }
}

async fn keep(stream: Weak<NatsStream>) {
    loop {
        tokio::time::sleep(SAVE_EVERY).await;
        let Some(stream) = stream.upgrade() else { return };
        if let Err(error) = stream.save_cursors().await {
            tracing::debug!(stream = stream.name, %error, "the cursors were not saved; the next time they are");
        }
    }
}

fn not_opened(name: &str, error: &async_nats::jetstream::context::GetStreamError) -> Error {
    Error::Unavailable(match error.kind() {
        GetStreamErrorKind::JetStream(error) if error.code() == 404 => {
            format!("there is no stream {name}; `orlog streams apply` makes those that are missing")
        }
        _ => chain(error),
    })
}

#[async_trait]
impl Bus for NatsStream {
    fn stream_id(&self) -> Uuid {
        *self.id.read().unwrap_or_else(PoisonError::into_inner)
    }

    async fn publish(&self, messages: Vec<Message>) -> Result<Vec<Receipt>, Error> {
        publish(&self.connection, &messages).await
    }

    async fn subscribe(&self, subscription: Subscription) -> Result<Box<dyn Consumer>, Error> {
        let interest = Interest::of(&subscription)?;
        let Subscription { name, filters, after, max_in_flight, .. } = subscription;
        let claim = self.cursors.claim(&name, filters.clone())?;
        let start = self.start(&name, after).await?;
        claim.floor.store(start.after, std::sync::atomic::Ordering::Relaxed);
        let wanted = |kind: &str, filters| Wanted {
            stream: self.stream.clone(),
            stream_name: self.name.clone(),
            stream_id: start.stream_id,
            name: format!("{}-{kind}", self.reader),
            filters,
            after: start.after,
        };
        let member = self.hub.join(filters.clone(), wanted("hub", Vec::new()));
        let own = wanted(&encode_token(&name), reduced(filters.iter().map(String::as_str)));
        Ok(Box::new(NatsConsumer::new(claim, interest, max_in_flight, member, own, start)))
    }

    async fn read_past(&self, filters: Vec<String>, since: Since) -> Result<Box<dyn Past>, Error> {
        Interest::in_subjects(&filters)?;
        let end = self.look().await?.state.last_sequence;
        let name = format!("{}-past-{}", self.reader, Uuid::new_v4().simple());
        let filters = reduced(filters.iter().map(String::as_str));
        Ok(Box::new(NatsPast::open(&self.stream, name, filters, since, end).await?))
    }

    async fn last_sequence(&self) -> Result<u64, Error> {
        Ok(self.look().await?.state.last_sequence)
    }
}
