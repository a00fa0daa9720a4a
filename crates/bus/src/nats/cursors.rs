//! How far each subscription has got, and where operators see it: in a durable consumer on the servers.
//!
//! One consumer a pod and stream, named `orlog-<pod>`. Nobody reads from it: its ack floor is moved every few seconds behind
//! what all subscriptions of the pod have done, so that lag shows in the tools of NATS. Its metadata keeps each
//! subscription's own cursor, for those that come back without a checkpoint. When a pod is gone for good, the servers drop its
//! consumer after a day.

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use async_nats::jetstream::consumer::{AckPolicy, DeliverPolicy, pull};
use async_nats::jetstream::context::ConsumerInfoErrorKind;
use async_nats::jetstream::stream::{ConsumerErrorKind, Stream};

use super::connection::chain;
use super::filters::reduced;
use crate::Error;

/// A consumer that nothing was done to for this long is dropped by the servers.
const INACTIVE: Duration = Duration::from_hours(24);
/// Begins the names of cursors in the metadata.
const CURSOR: &str = "orlog.cursor.";

/// All durable names of a pod on a stream.
#[derive(Debug)]
pub(super) struct Cursors {
    stream: Stream<()>,
    consumer: String,
    /// The servers can move a consumer.
    can_reset: bool,
    state: Mutex<State>,
    /// One writes at a time.
    saving: tokio::sync::Mutex<Option<Saved>>,
}

#[derive(Debug, Default)]
struct State {
    names: BTreeMap<String, Name>,
}

#[derive(Debug)]
struct Name {
    floor: Arc<AtomicU64>,
    filters: Vec<String>,
    in_use: bool,
}

/// What the servers have.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Saved {
    floor: u64,
    filters: Vec<String>,
    cursors: BTreeMap<String, u64>,
}

/// The right to consume under a name; dropping it gives the name back.
#[derive(Debug)]
pub(super) struct Claim {
    cursors: Arc<Cursors>,
    name: String,
    /// Where the cursor lies. It moves when this does.
    pub(super) floor: Arc<AtomicU64>,
}

impl Cursors {
    /// Reads what an earlier process of the same pod left.
    pub(super) async fn open(stream: Stream<()>, pod: &str, can_reset: bool) -> Result<Arc<Self>, Error> {
        let consumer = format!("orlog-{pod}");
        let mut names = BTreeMap::new();
        match stream.consumer_info(&consumer).await {
            Ok(info) => {
                let metadata: BTreeMap<_, _> = info.config.metadata.into_iter().collect();
                for (key, floor) in &metadata {
                    if let (Some(name), Ok(floor)) = (key.strip_prefix(CURSOR), floor.parse::<u64>()) {
                        let floor = Arc::new(AtomicU64::new(floor));
                        names.insert(name.to_owned(), Name { floor, filters: Vec::new(), in_use: false });
                    }
                }
            }
            Err(error) if matches!(error.kind(), ConsumerInfoErrorKind::NotFound) => {}
            Err(error) => return Err(Error::Unavailable(chain(&error))),
        }
        let state = Mutex::new(State { names });
        Ok(Arc::new(Self { stream, consumer, can_reset, state, saving: tokio::sync::Mutex::default() }))
    }

    /// Where the cursor of a name lies.
    pub(super) fn of(&self, name: &str) -> u64 {
        self.state().names.get(name).map_or(0, |entry| entry.floor.load(Ordering::Relaxed))
    }

    /// Takes a name and sets its cursor.
    pub(super) fn claim(self: &Arc<Self>, name: &str, filters: Vec<String>) -> Result<Claim, Error> {
        let mut state = self.state();
        let entry = state.names.entry(name.to_owned()).or_insert_with(|| Name {
            floor: Arc::default(),
            filters: Vec::new(),
            in_use: false,
        });
        if entry.in_use {
            return Err(Error::InUse(name.to_owned()));
        }
        entry.in_use = true;
        entry.filters = filters;
        // A counter of its own, so that late answers to an earlier consumer move nothing.
        entry.floor = Arc::new(AtomicU64::new(entry.floor.load(Ordering::Relaxed)));
        let floor = Arc::clone(&entry.floor);
        drop(state);
        Ok(Claim { cursors: Arc::clone(self), name: name.to_owned(), floor })
    }

    /// Brings the servers up to date, where something has moved.
    ///
    /// # Errors
    /// When the servers do not answer; then what they have lies further back.
    pub(super) async fn save(&self) -> Result<(), Error> {
        let mut saved = self.saving.lock().await;
        let Some(now) = self.now().filter(|now| saved.as_ref() != Some(now)) else { return Ok(()) };
        let moved = self.write(&now).await;
        *saved = moved.is_ok().then_some(now);
        moved
    }

    fn now(&self) -> Option<Saved> {
        let state = self.state();
        let cursors: BTreeMap<String, u64> = state
            .names
            .iter()
            .map(|(name, entry)| (name.clone(), entry.floor.load(Ordering::Relaxed)))
            .collect();
        // Those that are gone hold nobody back, but while all are gone.
        let in_use = || state.names.values().filter(|entry| entry.in_use);
        let floors = in_use().map(|entry| entry.floor.load(Ordering::Relaxed));
        let floor = floors.min().or_else(|| cursors.values().min().copied())?;
        let filters =
            reduced(state.names.values().flat_map(|entry| entry.filters.iter().map(String::as_str)));
        Some(Saved { floor, filters, cursors })
    }

    async fn write(&self, now: &Saved) -> Result<(), Error> {
        let unavailable = |error: &dyn std::error::Error| Error::Unavailable(chain(error));
        let config = self.config(now);
        if self.can_reset {
            // Made or changed, but for where it stands. One that an older server made is made anew.
            if self.stream.create_consumer(config.clone()).await.is_err() {
                self.delete().await?;
                self.stream.create_consumer(config).await.map_err(|e| unavailable(&e))?;
            }
            let reset = self.stream.reset_consumer(&self.consumer, Some(now.floor + 1)).await;
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

    fn config(&self, now: &Saved) -> pull::Config {
        let cursors = now.cursors.iter().map(|(name, floor)| (format!("{CURSOR}{name}"), floor.to_string()));
        let start_sequence = now.floor + 1;
        pull::Config {
            durable_name: Some(self.consumer.clone()),
            description: Some("How far this pod has got; nobody reads from it".to_owned()),
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
        self.state.lock().expect("no holder of this lock panics")
    }
}

fn is_missing(error: &async_nats::jetstream::stream::ConsumerError) -> bool {
    matches!(error.kind(), ConsumerErrorKind::JetStream(error) if error.code() == 404)
}

impl Drop for Claim {
    fn drop(&mut self) {
        if let Some(entry) = self.cursors.state().names.get_mut(&self.name) {
            entry.in_use = false;
        }
    }
}
