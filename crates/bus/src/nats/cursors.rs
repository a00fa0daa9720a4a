//! Cursors of the subscriptions, visible to operators in a durable consumer on the servers.
//!
//! There is one consumer per pod and stream, named `orlog-<pod>`. No client reads from it. Every
//! few seconds its ack floor moves to the lowest position of all subscriptions of the pod, so that
//! NATS tools show the lag. Its metadata stores the cursor of each subscription, for subscriptions
//! without a checkpoint. If a pod never returns, the servers delete its consumer after a day.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use async_nats::jetstream::consumer::{AckPolicy, DeliverPolicy, pull};
use async_nats::jetstream::context::ConsumerInfoErrorKind;
use async_nats::jetstream::stream::{ConsumerErrorKind, Stream};

use super::connection::unavailable;
use super::filters::merge_overlapping;
use crate::Error;
use crate::consumer::{DurableName, DurableNames, NameGuard};
use crate::subject::encode_token;

/// The servers delete a consumer that is inactive for this duration.
const INACTIVE: Duration = Duration::from_hours(24);
/// Prefix of the cursor names in the metadata.
const CURSOR: &str = "orlog.cursor.";

/// All durable names of a pod on a stream.
#[derive(Debug)]
pub(super) struct Cursors {
    stream: Stream<()>,
    consumer: String,
    /// Whether the servers can reset the position of a consumer.
    can_reset: bool,
    /// Names with their filters.
    names: Arc<DurableNames<Vec<String>>>,
    /// Serializes the writes.
    saving: tokio::sync::Mutex<Option<SavedCursors>>,
}

/// Returns the name of the durable consumer that shows the progress of a pod.
#[must_use]
pub fn durable_consumer(pod: &str) -> String {
    format!("orlog-{}", encode_token(pod))
}

/// State stored on the servers.
#[derive(Clone, Debug, PartialEq, Eq)]
struct SavedCursors {
    ack_floor: u64,
    filters: Vec<String>,
    cursors: BTreeMap<String, u64>,
}

impl Cursors {
    /// Reads the cursors of an earlier process of the same pod.
    pub(super) async fn open(
        stream: Stream<()>,
        pod: &str,
        can_reset: bool,
    ) -> Result<Arc<Self>, Error> {
        let consumer = durable_consumer(pod);
        let mut names = BTreeMap::new();
        match stream.consumer_info(&consumer).await {
            Ok(info) => {
                let metadata: BTreeMap<_, _> = info.config.metadata.into_iter().collect();
                for (key, ack_floor) in &metadata {
                    if let (Some(name), Ok(ack_floor)) =
                        (key.strip_prefix(CURSOR), ack_floor.parse::<u64>())
                    {
                        names.insert(name.to_owned(), DurableName::new(ack_floor, Vec::new()));
                    }
                }
            }
            Err(error) if matches!(error.kind(), ConsumerInfoErrorKind::NotFound) => {}
            Err(error) => return Err(unavailable(error)),
        }

        Ok(Arc::new(Self {
            stream,
            consumer,
            can_reset,
            names: DurableNames::new(names),
            saving: tokio::sync::Mutex::default(),
        }))
    }

    /// Returns the cursor of a name.
    pub(super) fn cursor(&self, name: &str) -> u64 {
        self.names.cursor(name)
    }

    /// Acquires a name and sets its filters.
    pub(super) fn acquire(
        &self,
        name: &str,
        filters: Vec<String>,
    ) -> Result<NameGuard<Vec<String>>, Error> {
        let guard = self.names.acquire(name, None, || Ok(Vec::new()))?;

        // A name that was read from the metadata has no filters yet.
        if let Some(entry) = self.names.names().get_mut(name) {
            entry.details = filters;
        }
        Ok(guard)
    }

    /// Writes moved cursors to the servers.
    ///
    /// # Errors
    /// If the servers do not respond; their cursors are then older.
    pub(super) async fn save(&self) -> Result<(), Error> {
        let mut saved = self.saving.lock().await;
        let Some(now) = self.now().filter(|now| saved.as_ref() != Some(now)) else {
            return Ok(());
        };

        let moved = self.write(&now).await;
        // After a failure, the next call writes again, even if no cursor moves.
        *saved = moved.is_ok().then_some(now);
        moved
    }

    fn now(&self) -> Option<SavedCursors> {
        let names = self.names.names();
        let cursors: BTreeMap<_, _> = names
            .iter()
            .map(|(name, entry)| (name.clone(), entry.cursor()))
            .collect();

        // Inactive names do not hold back the floor, unless all names are inactive.
        let in_use = names
            .values()
            .filter(|entry| entry.in_use)
            .map(DurableName::cursor);
        let ack_floor = in_use.min().or_else(|| cursors.values().min().copied())?;

        let filters = merge_overlapping(
            names
                .values()
                .flat_map(|entry| entry.details.iter().map(String::as_str)),
        );

        Some(SavedCursors {
            ack_floor,
            filters,
            cursors,
        })
    }

    async fn write(&self, now: &SavedCursors) -> Result<(), Error> {
        let config = self.config(now);
        if self.can_reset {
            // Creates or updates everything except the position. A consumer of an older server is
            // recreated.
            if self.stream.create_consumer(config.clone()).await.is_err() {
                self.delete().await?;
                self.stream
                    .create_consumer(config)
                    .await
                    .map_err(unavailable)?;
            }

            let reset = self
                .stream
                .reset_consumer(&self.consumer, Some(now.ack_floor + 1))
                .await;
            return reset.map(|_| ()).map_err(unavailable);
        }

        self.delete().await?;
        self.stream
            .create_consumer(config)
            .await
            .map(|_| ())
            .map_err(unavailable)
    }

    async fn delete(&self) -> Result<(), Error> {
        match self.stream.delete_consumer(&self.consumer).await {
            Err(error) if !is_missing(&error) => Err(unavailable(error)),
            Ok(_) | Err(_) => Ok(()),
        }
    }

    fn config(&self, now: &SavedCursors) -> pull::Config {
        let cursors = now
            .cursors
            .iter()
            .map(|(name, ack_floor)| (format!("{CURSOR}{name}"), ack_floor.to_string()));
        let start_sequence = now.ack_floor + 1;

        pull::Config {
            durable_name: Some(self.consumer.clone()),
            description: Some("Progress of this pod; not used for reading".to_owned()),
            filter_subjects: now.filters.clone(),
            ack_policy: AckPolicy::Explicit,
            // The servers reject an update that changes the start, so it is constant if the
            // position can be reset.
            deliver_policy: if self.can_reset {
                DeliverPolicy::All
            } else {
                DeliverPolicy::ByStartSequence { start_sequence }
            },
            inactive_threshold: INACTIVE,
            metadata: cursors.collect::<HashMap<_, _>>(),
            ..pull::Config::default()
        }
    }
}

fn is_missing(error: &async_nats::jetstream::stream::ConsumerError) -> bool {
    matches!(error.kind(), ConsumerErrorKind::JetStream(error) if error.code() == 404)
}
