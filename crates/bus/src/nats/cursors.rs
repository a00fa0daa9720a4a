//! Cursors of the subscriptions, visible to operators in a durable consumer on the servers.
//!
//! There is one consumer per pod and stream, named `orlog-<pod>`. No client reads from it. Every few
//! seconds its ack floor moves to the lowest position of all subscriptions of the pod, so that NATS
//! tools show the lag. Its metadata stores the cursor of each subscription, for subscriptions without a
//! checkpoint. If a pod never returns, the servers delete its consumer after a day.

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use async_nats::jetstream::consumer::{AckPolicy, DeliverPolicy, pull};
use async_nats::jetstream::context::ConsumerInfoErrorKind;
use async_nats::jetstream::stream::{ConsumerErrorKind, Stream};

use super::connection::chain;
use super::filters::merge_overlapping;
use crate::Error;

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
    state: Mutex<State>,
    /// Serializes the writes.
    saving: tokio::sync::Mutex<Option<SavedCursors>>,
}

#[derive(Debug, Default)]
struct State {
    names: BTreeMap<String, DurableName>,
}

#[derive(Debug)]
struct DurableName {
    ack_floor: Arc<AtomicU64>,
    filters: Vec<String>,
    in_use: bool,
}

/// State stored on the servers.
#[derive(Clone, Debug, PartialEq, Eq)]
struct SavedCursors {
    ack_floor: u64,
    filters: Vec<String>,
    cursors: BTreeMap<String, u64>,
}

/// Exclusive right to consume under a name; dropping it releases the name.
#[derive(Debug)]
pub(super) struct SubscriptionGuard {
    cursors: Arc<Cursors>,
    name: String,
    /// Position of the cursor. The cursor moves with it.
    pub(super) ack_floor: Arc<AtomicU64>,
}

impl Cursors {
    /// Reads the cursors of an earlier process of the same pod.
    pub(super) async fn open(stream: Stream<()>, pod: &str, can_reset: bool) -> Result<Arc<Self>, Error> {
        let consumer = format!("orlog-{pod}");
        let mut names = BTreeMap::new();
        match stream.consumer_info(&consumer).await {
            Ok(info) => {
                let metadata: BTreeMap<_, _> = info.config.metadata.into_iter().collect();
                for (key, ack_floor) in &metadata {
                    if let (Some(name), Ok(ack_floor)) = (key.strip_prefix(CURSOR), ack_floor.parse::<u64>())
                    {
                        let ack_floor = Arc::new(AtomicU64::new(ack_floor));
                        names.insert(
                            name.to_owned(),
                            DurableName { ack_floor, filters: Vec::new(), in_use: false },
                        );
                    }
                }
            }
            Err(error) if matches!(error.kind(), ConsumerInfoErrorKind::NotFound) => {}
            Err(error) => return Err(Error::Unavailable(chain(&error))),
        }
        let state = Mutex::new(State { names });
        Ok(Arc::new(Self { stream, consumer, can_reset, state, saving: tokio::sync::Mutex::default() }))
    }

    /// Returns the cursor of a name.
    pub(super) fn cursor(&self, name: &str) -> u64 {
        self.state().names.get(name).map_or(0, |entry| entry.ack_floor.load(Ordering::Relaxed))
    }

    /// Acquires a name and sets its cursor.
    pub(super) fn acquire(
        self: &Arc<Self>,
        name: &str,
        filters: Vec<String>,
    ) -> Result<SubscriptionGuard, Error> {
        let mut state = self.state();
        let entry = state.names.entry(name.to_owned()).or_insert_with(|| DurableName {
            ack_floor: Arc::default(),
            filters: Vec::new(),
            in_use: false,
        });
        if entry.in_use {
            return Err(Error::InUse(name.to_owned()));
        }
        entry.in_use = true;
        entry.filters = filters;
        // A separate counter, so that late acknowledgements of an earlier consumer have no effect.
        entry.ack_floor = Arc::new(AtomicU64::new(entry.ack_floor.load(Ordering::Relaxed)));
        let ack_floor = Arc::clone(&entry.ack_floor);
        drop(state);
        Ok(SubscriptionGuard { cursors: Arc::clone(self), name: name.to_owned(), ack_floor })
    }

    /// Writes moved cursors to the servers.
    ///
    /// # Errors
    /// If the servers do not respond; their cursors are then older.
    pub(super) async fn save(&self) -> Result<(), Error> {
        let mut saved = self.saving.lock().await;
        let Some(now) = self.now().filter(|now| saved.as_ref() != Some(now)) else { return Ok(()) };
        let moved = self.write(&now).await;
        *saved = moved.is_ok().then_some(now);
        moved
    }

    fn now(&self) -> Option<SavedCursors> {
        let state = self.state();
        let cursors: BTreeMap<String, u64> = state
            .names
            .iter()
            .map(|(name, entry)| (name.clone(), entry.ack_floor.load(Ordering::Relaxed)))
            .collect();
        // Inactive names do not hold back the floor, unless all names are inactive.
        let in_use = || state.names.values().filter(|entry| entry.in_use);
        let ack_floors = in_use().map(|entry| entry.ack_floor.load(Ordering::Relaxed));
        let ack_floor = ack_floors.min().or_else(|| cursors.values().min().copied())?;
        let filters = merge_overlapping(
            state.names.values().flat_map(|entry| entry.filters.iter().map(String::as_str)),
        );
        Some(SavedCursors { ack_floor, filters, cursors })
    }

    async fn write(&self, now: &SavedCursors) -> Result<(), Error> {
        let unavailable = |error: &dyn std::error::Error| Error::Unavailable(chain(error));
        let config = self.config(now);
        if self.can_reset {
            // Creates or updates everything except the position. A consumer of an older server is recreated.
            if self.stream.create_consumer(config.clone()).await.is_err() {
                self.delete().await?;
                self.stream.create_consumer(config).await.map_err(|e| unavailable(&e))?;
            }
            let reset = self.stream.reset_consumer(&self.consumer, Some(now.ack_floor + 1)).await;
            return reset.map(|_| ()).map_err(|e| unavailable(&e));
        }
        self.delete().await?;
        self.stream.create_consumer(config).await.map(|_| ()).map_err(|e| unavailable(&e))
    }

    async fn delete(&self) -> Result<(), Error> {
        match self.stream.delete_consumer(&self.consumer).await {
            Err(error) if !is_missing(&error) => Err(Error::Unavailable(chain(&error))),
            Ok(_) | Err(_) => Ok(()),
        }
    }

    fn config(&self, now: &SavedCursors) -> pull::Config {
        let cursors =
            now.cursors.iter().map(|(name, ack_floor)| (format!("{CURSOR}{name}"), ack_floor.to_string()));
        let start_sequence = now.ack_floor + 1;
        pull::Config {
            durable_name: Some(self.consumer.clone()),
            description: Some("Progress of this pod; not used for reading".to_owned()),
            filter_subjects: now.filters.clone(),
            ack_policy: AckPolicy::Explicit,
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

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no thread panics while it holds this lock")
    }
}

fn is_missing(error: &async_nats::jetstream::stream::ConsumerError) -> bool {
    matches!(error.kind(), ConsumerErrorKind::JetStream(error) if error.code() == 404)
}

impl Drop for SubscriptionGuard {
    fn drop(&mut self) {
        if let Some(entry) = self.cursors.state().names.get_mut(&self.name) {
            entry.in_use = false;
        }
    }
}
