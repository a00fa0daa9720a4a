//! Complete runtime in the test process: stores and a bus in a directory, programs, and
//! [`FakeUpstreams`].
//!
//! A [`TestRuntimeConfig`] can be started repeatedly on the same directory, after [`TestRuntime::stop`]
//! or [`TestRuntime::crash`]. Tests never sleep: [`TestRuntime::wait_until`] waits for a condition with
//! a deadline, and reports the missing condition.

pub mod consistency;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use orlog_actors::{
    CommitObserver, EventSource, Limits, ProgramRegistry, RestartIntensity, RunningShards, Runtime,
    RuntimeConfig, RuntimeDependencies, ShardDependencies,
};
use orlog_bus::Bus;
use orlog_bus::embedded::{Embedded, Options as BusOptions};
use orlog_effect::{Catalog, EffectObserver, NoopObserver, Upstream};
use orlog_journal::{Disk, LocalDisk};
use orlog_model::{Clock, EventId, InstanceKey, SLOTS, SlotAssigner, TenantId};
use orlog_program::Program;
use orlog_store::{Error as StoreError, Options as StoreOptions, Reader};

use crate::SimClock;
use crate::fake_upstreams::{FakeBehavior, FakeUpstreams};
use crate::faulty_bus::{Faults, FaultyBus};
use crate::publish_sink::PublishSink;
use crate::sagas::PlannedOrder;
use crate::wait::{POLL_INTERVAL, WAIT_TIMEOUT};

/// Configuration of a test runtime; can be started repeatedly.
#[derive(Clone)]
pub struct TestRuntimeConfig {
    /// Directory of all data.
    pub data_dir: PathBuf,
    /// Number of shards.
    pub shards: u16,
    /// Active programs.
    pub programs: Vec<Arc<dyn Program>>,
    /// Limits of each shard.
    pub limits: Limits,
    /// Restart intensity of failed actors.
    pub intensity: RestartIntensity,
    /// Clock.
    pub clock: Arc<dyn Clock>,
    /// Options of the stores. The tenant of the tests is key-sharded over all slots.
    pub store: StoreOptions,
    /// Disk of the journals.
    pub disk: Arc<dyn Disk>,
    /// Observer of commits.
    pub observer: Option<Arc<dyn CommitObserver>>,
    /// Bus faults and their seed.
    pub faults: Option<(Faults, u64)>,
    /// The messages that the runtime publishes are discarded.
    pub discards_published: bool,
    /// Upstreams in addition to the fake ones.
    pub more_upstreams: Vec<Upstream>,
    /// The results of effects are published.
    pub publishes_results: bool,
}

/// Running test runtime.
pub struct TestRuntime {
    /// Runtime.
    pub runtime: Runtime,
    /// Bus, including its faults.
    pub bus: Arc<dyn Bus>,
    /// Fake upstreams.
    pub upstreams: Arc<FakeUpstreams>,
    /// Catalog of all upstreams.
    pub catalog: Arc<Catalog>,
    embedded: Arc<Embedded>,
    slots: SlotAssigner,
}

/// Returns the tenant of the tests; it is key-sharded over all slots.
///
/// # Panics
/// Never: the name is a valid constant.
#[must_use]
pub fn tenant() -> TenantId {
    TenantId::new("acme").expect("a valid name")
}

/// Returns the seed of a run: `ORLOG_SEED`, or the default. Prints the seed, so that a failed run can
/// be reproduced.
///
/// # Panics
/// If `ORLOG_SEED` is not a number.
#[must_use]
pub fn seed(default: u64) -> u64 {
    let seed = std::env::var("ORLOG_SEED").map_or(default, |text| {
        text.parse().expect("ORLOG_SEED is a number")
    });
    println!("ORLOG_SEED={seed}");
    seed
}

impl TestRuntimeConfig {
    /// Creates a configuration with one shard in that directory; failed actors restart.
    #[must_use]
    pub fn new(data_dir: PathBuf, programs: Vec<Arc<dyn Program>>, clock: Arc<dyn Clock>) -> Self {
        let store = StoreOptions {
            slots: SlotAssigner::with_key_sharded([tenant()]),
            // Small, so that tests flush the memtable, roll segments and truncate often.
            memtable_bytes: 256 << 10,
            journal_segment_bytes: 1 << 20,
            max_bytes: 1 << 30,
            ..StoreOptions::default()
        };
        Self {
            data_dir,
            shards: 1,
            programs,
            limits: Limits::default(),
            intensity: RestartIntensity {
                max_restarts: 100_000,
                period: Duration::from_mins(1),
            },
            clock,
            store,
            disk: Arc::new(LocalDisk),
            observer: None,
            faults: None,
            discards_published: false,
            more_upstreams: Vec::new(),
            publishes_results: true,
        }
    }

    /// Starts a runtime on the data of the directory.
    ///
    /// # Panics
    /// If the runtime does not start.
    pub async fn start(&self, upstreams: &Arc<FakeUpstreams>) -> TestRuntime {
        let options = BusOptions {
            segment_bytes: 1 << 20,
            ..BusOptions::default()
        };
        let embedded = Embedded::open(self.data_dir.join("bus"), &options, Arc::clone(&self.clock));
        let embedded = Arc::new(embedded.expect("the bus opens"));
        let inner_bus: Arc<dyn Bus> = Arc::<Embedded>::clone(&embedded);
        let bus = match self.faults {
            Some((faults, seed)) => FaultyBus::new(inner_bus, faults, seed),
            None => inner_bus,
        };
        upstreams.connect(Some(Arc::clone(&bus)));
        let bus = if self.discards_published {
            Arc::new(PublishSink(bus))
        } else {
            bus
        };
        let observer: Arc<dyn EffectObserver> = Arc::new(NoopObserver);
        let all = [upstreams.upstreams(), self.more_upstreams.clone()].concat();
        let catalog = Arc::new(Catalog::new(all, &self.clock, &observer).expect("a valid catalog"));
        let dependencies = RuntimeDependencies {
            bus: Arc::clone(&bus),
            sources: vec![EventSource::embedded(Arc::clone(&bus))],
            catalog: Arc::clone(&catalog),
            programs: Arc::new(ProgramRegistry::new(self.programs.iter().cloned())),
            clock: Arc::clone(&self.clock),
            running: RunningShards::new(self.store.slots.clone()),
            shards: self.open_shards().await,
            dead_letter_encoder: Arc::new(
                |dead_letter| serde_json::json!({ "id": dead_letter.id, "node": dead_letter.node }),
            ),
            observer: self.observer.clone(),
            tracer: None,
        };
        let config = RuntimeConfig {
            node: "test".to_owned(),
            limits: self.limits.clone(),
            intensity: self.intensity,
            publishes_results: self.publishes_results,
            ..RuntimeConfig::default()
        };
        let runtime = Runtime::start(dependencies, config)
            .await
            .expect("the runtime starts");
        TestRuntime {
            runtime,
            bus,
            upstreams: Arc::clone(upstreams),
            catalog,
            embedded,
            slots: self.store.slots.clone(),
        }
    }

    async fn open_shards(&self) -> Vec<ShardDependencies> {
        let mut shards = Vec::new();
        for index in 0..self.shards {
            let slots = SLOTS / self.shards * index..SLOTS / self.shards * (index + 1);
            let (writer, reader) = self.open_store(index).await;
            shards.push(ShardDependencies {
                index,
                slots,
                writer,
                reader,
            });
        }
        shards
    }

    /// Opens the store of a shard. The store of a crashed runtime is released when its last task ends.
    async fn open_store(&self, index: u16) -> (orlog_store::Writer, Reader) {
        let dir = self.data_dir.join(format!("shard-{index}"));
        let opened = async {
            loop {
                match orlog_store::open_with_disk(&dir, self.store.clone(), Arc::clone(&self.disk))
                {
                    Err(StoreError::Locked { .. }) => tokio::time::sleep(POLL_INTERVAL).await,
                    other => return other.expect("the store opens"),
                }
            }
        };
        tokio::time::timeout(WAIT_TIMEOUT, opened)
            .await
            .expect("the store is released in time")
    }
}

impl TestRuntime {
    /// Waits until `condition` is true.
    ///
    /// # Panics
    /// If it is not true within [`WAIT_TIMEOUT`]; the message contains the current state.
    #[track_caller]
    pub fn wait_until<'a>(
        &'a self,
        description: &'a str,
        condition: impl Fn(&Self) -> bool + 'a,
    ) -> impl Future<Output = ()> + 'a {
        let location = std::panic::Location::caller();
        async move {
            let mut commits = self.reader().watch();
            let waiting = async {
                while !condition(self) {
                    // The condition depends on a commit, or on something else that happens meanwhile.
                    drop(tokio::time::timeout(POLL_INTERVAL, commits.changed()).await);
                }
            };
            let reached = tokio::time::timeout(WAIT_TIMEOUT, waiting).await;
            assert!(
                reached.is_ok(),
                "{location}: {description}: not within {WAIT_TIMEOUT:?}: {}",
                self.state()
            );
        }
    }

    /// Waits until each of these instances exists and is idle: it has ended or is stuck, and has no pending
    /// work.
    #[track_caller]
    pub fn wait_until_ended<'a>(
        &'a self,
        keys: &'a [InstanceKey],
    ) -> impl Future<Output = ()> + 'a {
        self.wait_until("every instance is idle", move |runtime| {
            // In this order: the work of an instance is in the outbox before its end is visible.
            keys.iter().all(|key| runtime.is_idle(key)) && runtime.outbox_depth() == 0
        })
    }

    fn is_idle(&self, key: &InstanceKey) -> bool {
        let instance = self
            .runtime
            .reader(key)
            .and_then(|reader| reader.instance(key).ok().flatten());
        instance.is_some_and(|i| {
            !i.paused && (i.status.is_final() || i.status == orlog_model::Status::Stuck)
        })
    }

    /// Returns the number of work items in the outboxes; `u64::MAX` while a store recovers.
    #[must_use]
    pub fn outbox_depth(&self) -> u64 {
        let depths = self.runtime.readers().map(|reader| reader.outbox_depth());
        depths
            .map(|depth| depth.unwrap_or(u64::MAX))
            .fold(0, u64::saturating_add)
    }

    /// Returns the reader of the first shard.
    ///
    /// # Panics
    /// Never: a test runtime has at least one shard.
    #[must_use]
    pub fn reader(&self) -> Reader {
        self.runtime
            .readers()
            .next()
            .expect("a runtime has at least one shard")
    }

    /// Returns the slots in use.
    #[must_use]
    pub fn slots(&self) -> &SlotAssigner {
        &self.slots
    }

    /// Returns a description of the current state for failure messages.
    #[must_use]
    pub fn state(&self) -> String {
        let mut parts = vec![
            format!("{:?}", self.runtime.health()),
            format!("{:?}", self.runtime.deepest_mailboxes(3)),
        ];
        for reader in self.runtime.readers() {
            parts.extend(
                ["outbox", "schedule", "deadletter", "buffered_input"].map(|table| {
                    match reader.inspect_rows(table, None, 5) {
                        Ok(rows) => {
                            format!(
                                "{table} {:?}",
                                rows.into_iter().map(|row| row.key).collect::<Vec<_>>()
                            )
                        }
                        Err(error) => format!("{table}: {error}"),
                    }
                }),
            );
            parts.push(format!("{:?}", reader.count(&tenant())));
        }
        parts.join("; ")
    }

    /// Runs orders to their end. When all others are idle, the time advances past the timeout of orders
    /// without a response.
    ///
    /// # Panics
    /// If they do not end within [`WAIT_TIMEOUT`].
    pub async fn finish(&self, orders: &[PlannedOrder], clock: &SimClock, timeout: Duration) {
        let emits_no_event =
            |(_, plan): &&PlannedOrder| FakeBehavior::of(plan, "reserve") == FakeBehavior::NoEvent;
        self.wait_until("every order is idle or waits", |runtime| {
            let waits = |(key, _): &PlannedOrder| !runtime.upstreams.executed_for(key).is_empty();
            orders.iter().all(|order| {
                if emits_no_event(&order) {
                    waits(order)
                } else {
                    runtime.is_idle(&order.0)
                }
            }) && runtime.outbox_depth() == 0
        })
        .await;
        if orders.iter().any(|order| emits_no_event(&order)) {
            clock.advance(timeout);
        }
        let keys: Vec<InstanceKey> = orders.iter().map(|(key, _)| key.clone()).collect();
        self.wait_until_ended(&keys).await;
    }

    /// Publishes an event as an upstream does.
    ///
    /// # Panics
    /// If the bus does not accept it within [`WAIT_TIMEOUT`].
    pub async fn publish(&self, event: &orlog_model::Event) {
        let published = async { while self.upstreams.publish(event).await.is_err() {} };
        tokio::time::timeout(WAIT_TIMEOUT, published)
            .await
            .expect("the bus accepts the event");
    }

    /// Waits until all messages of the bus are acknowledged.
    pub async fn wait_until_consumed(&self) {
        let shards = self.runtime.readers().count();
        let last = self.bus.last_sequence().await.unwrap_or(0);
        self.wait_until("every message is processed", |runtime| {
            let checkpoints = runtime
                .runtime
                .readers()
                .filter_map(|reader| reader.checkpoints().ok())
                .flatten();
            checkpoints
                .filter(|(_, position)| position.sequence >= last)
                .count()
                == shards
        })
        .await;
    }

    /// Returns the bus without its faults.
    pub(crate) fn embedded(&self) -> &Embedded {
        &self.embedded
    }

    /// Stops the runtime gracefully.
    ///
    /// # Panics
    /// If a store cannot be flushed.
    pub async fn stop(self) {
        self.runtime.stop().await.expect("the stores flush");
        self.upstreams.connect(None);
        self.embedded.close();
    }

    /// Crashes the runtime as far as possible within a process: kills the actors, flushes nothing.
    pub async fn crash(self) {
        self.upstreams.connect(None);
        self.runtime.root().kill();
        self.runtime.ended().await;
        self.embedded.close();
    }
}

/// Advances simulated time faster than real time while the return value is alive. A single jump is at
/// most a few milliseconds, so tests must handle long timeouts themselves.
#[must_use]
pub fn drive_clock(clock: &Arc<SimClock>) -> ClockDriver {
    let clock = Arc::clone(clock);
    let task = tokio::spawn(async move {
        loop {
            tokio::time::sleep(Duration::from_millis(1)).await;
            clock.advance(Duration::from_millis(5));
        }
    });
    ClockDriver(task.abort_handle())
}

/// Guard of [`drive_clock`].
#[derive(Debug)]
pub struct ClockDriver(tokio::task::AbortHandle);

impl Drop for ClockDriver {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Returns an id of a control request.
///
/// # Panics
/// Never: the id is short.
#[must_use]
pub fn control_request_id(label: &str, number: usize) -> EventId {
    EventId::new(format!("{label}:{number}")).expect("a valid name")
}
