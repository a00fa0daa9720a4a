//! A whole runtime in the test's process: stores and a bus in a folder, programs, and a [`World`] around it.
//!
//! A [`Setup`] can be started again and again on the same folder, after [`Rig::stop`] or [`Rig::crash`]. Nothing here sleeps
//! to wait: [`Rig::until`] waits for a fact, with a deadline, and says what was missing.

pub mod consistency;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use orlog_actors::{
    CommitObserver, Config, EventSource, Intensity, Limits, Parts, Programs, Runtime, ShardParts,
};
use orlog_bus::Bus;
use orlog_bus::embedded::{Embedded, Options as BusOptions};
use orlog_effect::{Catalog, Observer, Silent};
use orlog_journal::{Disk, LocalDisk};
use orlog_model::{Clock, EventId, InstanceKey, SLOTS, Slots, TenantId};
use orlog_program::Program;
use orlog_store::{Error as StoreError, Options as StoreOptions, Reader};

use crate::SimClock;
use crate::fake_upstreams::{Way, World};
use crate::faulty_bus::{Faults, FaultyBus};
use crate::sagas::Order;

/// How long a test waits for a fact, at most.
pub const DEADLINE: Duration = Duration::from_secs(30);
/// A fact that no commit brings about is looked for this often.
const LOOK: Duration = Duration::from_millis(10);

/// What a runtime is built from, again and again.
#[derive(Clone)]
pub struct Setup {
    /// The folder in which everything lies.
    pub home: PathBuf,
    /// How many shards.
    pub shards: u16,
    /// The programs in force.
    pub programs: Vec<Arc<dyn Program>>,
    /// Bounds of each shard.
    pub limits: Limits,
    /// How often what dies is started again.
    pub intensity: Intensity,
    /// The present.
    pub clock: Arc<dyn Clock>,
    /// How the stores behave. The tenant of the tests is spread over all slots.
    pub store: StoreOptions,
    /// The disk under the stores' journals.
    pub disk: Arc<dyn Disk>,
    /// Hears of commits.
    pub observer: Option<Arc<dyn CommitObserver>>,
    /// What goes wrong on the bus, and the seed of it.
    pub faults: Option<(Faults, u64)>,
}

/// A running runtime.
pub struct Rig {
    /// The runtime.
    pub runtime: Runtime,
    /// Its bus, faults included.
    pub bus: Arc<dyn Bus>,
    /// What is around it.
    pub world: Arc<World>,
    embedded: Arc<Embedded>,
    slots: Slots,
}

/// The tenant that tests use; it is spread over all slots.
///
/// # Panics
/// Never: its name is a fixed one.
#[must_use]
pub fn tenant() -> TenantId {
    TenantId::new("acme").expect("a short word")
}

/// The seed of a run: `ORLOG_SEED`, else the one given. It is printed, so that a run that failed can be had again.
///
/// # Panics
/// When `ORLOG_SEED` is no number.
#[must_use]
pub fn seed(default: u64) -> u64 {
    let seed =
        std::env::var("ORLOG_SEED").map_or(default, |text| text.parse().expect("ORLOG_SEED is a number"));
    println!("ORLOG_SEED={seed}");
    seed
}

impl Setup {
    /// One shard in that folder that restarts whatever dies.
    #[must_use]
    pub fn new(home: PathBuf, programs: Vec<Arc<dyn Program>>, clock: Arc<dyn Clock>) -> Self {
        let store = StoreOptions {
            slots: Slots::spreading([tenant()]),
            // Small: tests fold, roll segments and truncate all the time.
            generation_bytes: 256 << 10,
            journal_segment_bytes: 1 << 20,
            max_bytes: 1 << 30,
            ..StoreOptions::default()
        };
        Self {
            home,
            shards: 1,
            programs,
            limits: Limits::default(),
            intensity: Intensity { restarts: 100_000, period: Duration::from_mins(1) },
            clock,
            store,
            disk: Arc::new(LocalDisk),
            observer: None,
            faults: None,
        }
    }

    /// Starts a runtime on what lies in the folder.
    ///
    /// # Panics
    /// When it does not start.
    pub async fn start(&self, world: &Arc<World>) -> Rig {
        let options = BusOptions { segment_bytes: 1 << 20, ..BusOptions::default() };
        let embedded = Embedded::open(self.home.join("bus"), &options, Arc::clone(&self.clock));
        let embedded = Arc::new(embedded.expect("the bus opens"));
        let plain: Arc<dyn Bus> = Arc::<Embedded>::clone(&embedded);
        let bus = match self.faults {
            Some((faults, seed)) => FaultyBus::new(plain, faults, seed),
            None => plain,
        };
        world.attach(Some(Arc::clone(&bus)));
        let observer: Arc<dyn Observer> = Arc::new(Silent);
        let catalog = Catalog::new(world.upstreams(), &self.clock, &observer);
        let parts = Parts {
            bus: Arc::clone(&bus),
            sources: vec![EventSource::embedded(Arc::clone(&bus))],
            catalog: Arc::new(catalog.expect("the upstreams go together")),
            programs: Arc::new(Programs::new(self.programs.iter().cloned())),
            clock: Arc::clone(&self.clock),
            shards: self.open_shards().await,
            letters: Arc::new(|letter| serde_json::json!({ "id": letter.id, "node": letter.node })),
            observer: self.observer.clone(),
            tracer: None,
        };
        let config = Config {
            node: "test".to_owned(),
            limits: self.limits.clone(),
            intensity: self.intensity,
            slots: self.store.slots.clone(),
            ..Config::default()
        };
        let runtime = Runtime::start(parts, config).await.expect("the runtime starts");
        Rig { runtime, bus, world: Arc::clone(world), embedded, slots: self.store.slots.clone() }
    }

    async fn open_shards(&self) -> Vec<ShardParts> {
        let mut shards = Vec::new();
        for index in 0..self.shards {
            let slots = SLOTS / self.shards * index..SLOTS / self.shards * (index + 1);
            let (writer, reader) = self.open_store(index).await;
            shards.push(ShardParts { index, slots, writer, reader });
        }
        shards
    }

    /// Opens a shard's store; one that a crashed runtime holds is free as soon as its last task has noticed.
    async fn open_store(&self, index: u16) -> (orlog_store::Writer, Reader) {
        let dir = self.home.join(format!("shard-{index}"));
        let opened = async {
            loop {
                match orlog_store::open_on(&dir, self.store.clone(), Arc::clone(&self.disk)) {
                    Err(StoreError::Locked { .. }) => tokio::time::sleep(LOOK).await,
                    other => return other.expect("the store opens"),
                }
            }
        };
        tokio::time::timeout(DEADLINE, opened).await.expect("the store is let go in time")
    }
}

impl Rig {
    /// Waits until `fact` holds.
    ///
    /// # Panics
    /// When it does not within [`DEADLINE`]; the message says how things stand.
    #[track_caller]
    pub fn until<'a>(
        &'a self,
        what: &'a str,
        fact: impl Fn(&Self) -> bool + 'a,
    ) -> impl Future<Output = ()> + 'a {
        let place = std::panic::Location::caller();
        async move {
            let mut commits = self.reader().watch();
            let waiting = async {
                while !fact(self) {
                    // What is awaited is a commit, or something else that happens meanwhile.
                    drop(tokio::time::timeout(LOOK, commits.changed()).await);
                }
            };
            let reached = tokio::time::timeout(DEADLINE, waiting).await;
            assert!(reached.is_ok(), "{place}: {what}: not within {DEADLINE:?}: {}", self.state());
        }
    }

    /// Waits until each of these instances exists and rests: it has ended or is stuck, and nothing is left to do.
    #[track_caller]
    pub fn until_ended<'a>(&'a self, keys: &'a [InstanceKey]) -> impl Future<Output = ()> + 'a {
        self.until("every instance rests", move |rig| {
            // In this order: what an instance asks for lies in the outbox once its end can be seen.
            keys.iter().all(|key| rig.rests(key)) && rig.outbox_depth() == 0
        })
    }

    fn rests(&self, key: &InstanceKey) -> bool {
        let instance = self.runtime.reader(key).and_then(|reader| reader.instance(key).ok().flatten());
        instance.is_some_and(|i| !i.paused && (i.status.is_final() || i.status == orlog_model::Status::Stuck))
    }

    /// The work that lies in the outboxes; the greatest number while a store is being recovered.
    #[must_use]
    pub fn outbox_depth(&self) -> u64 {
        let depths = self.runtime.readers().map(|reader| reader.outbox_depth());
        depths.map(|depth| depth.unwrap_or(u64::MAX)).fold(0, u64::saturating_add)
    }

    /// The store of the first shard.
    ///
    /// # Panics
    /// Never: a rig has a shard.
    #[must_use]
    pub fn reader(&self) -> Reader {
        self.runtime.readers().next().expect("a rig has a shard")
    }

    /// The slots in use.
    #[must_use]
    pub fn slots(&self) -> &Slots {
        &self.slots
    }

    /// How things stand, for people.
    #[must_use]
    pub fn state(&self) -> String {
        let mut parts =
            vec![format!("{:?}", self.runtime.health()), format!("{:?}", self.runtime.deepest_mailboxes(3))];
        for reader in self.runtime.readers() {
            parts.extend(["outbox", "schedule", "deadletter", "held"].map(|table| {
                match reader.rows(table, None, 5) {
                    Ok(rows) => {
                        format!("{table} {:?}", rows.into_iter().map(|row| row.key).collect::<Vec<_>>())
                    }
                    Err(error) => format!("{table}: {error}"),
                }
            }));
            parts.push(format!("{:?}", reader.count(&tenant())));
        }
        parts.join("; ")
    }

    /// Leads orders to their end: the time of those that no answer comes for is up when all others rest.
    ///
    /// # Panics
    /// When they do not come to their end within [`DEADLINE`].
    pub async fn finish(&self, orders: &[Order], clock: &SimClock, timeout: Duration) {
        let silent = |(_, plan): &&Order| Way::of(plan, "reserve") == Way::Silent;
        self.until("every order rests or waits", |rig| {
            let waits = |(key, _): &Order| !rig.world.done_for(key).is_empty();
            orders.iter().all(|order| if silent(&order) { waits(order) } else { rig.rests(&order.0) })
                && rig.outbox_depth() == 0
        })
        .await;
        if orders.iter().any(|order| silent(&order)) {
            clock.advance(timeout);
        }
        let keys: Vec<InstanceKey> = orders.iter().map(|(key, _)| key.clone()).collect();
        self.until_ended(&keys).await;
    }

    /// Publishes an event as the world does.
    ///
    /// # Panics
    /// When the bus does not take it within [`DEADLINE`].
    pub async fn publish(&self, event: &orlog_model::Event) {
        let published = async { while self.world.publish(event).await.is_err() {} };
        tokio::time::timeout(DEADLINE, published).await.expect("the bus takes the event");
    }

    /// Waits until the bus has nothing that is not done with.
    pub async fn until_consumed(&self) {
        let shards = self.runtime.readers().count();
        let last = self.bus.last_sequence().await.unwrap_or(0);
        self.until("every message is done with", |rig| {
            let checkpoints = rig.runtime.readers().filter_map(|reader| reader.checkpoints().ok()).flatten();
            checkpoints.filter(|(_, position)| position.sequence >= last).count() == shards
        })
        .await;
    }

    /// The bus without its faults.
    pub(crate) fn embedded(&self) -> &Embedded {
        &self.embedded
    }

    /// Stops in good order.
    ///
    /// # Panics
    /// When a store cannot be flushed.
    pub async fn stop(self) {
        self.runtime.stop().await.expect("the stores flush");
        self.world.attach(None);
        self.embedded.close();
    }

    /// Ends at once, as far as that is possible within a process: actors are killed, nothing is flushed.
    pub async fn crash(self) {
        self.world.attach(None);
        self.runtime.root().kill();
        self.runtime.ended().await;
        self.embedded.close();
    }
}

/// Lets simulated time pass, faster than real time, for as long as the answer is held. Time jumps no further than a few
/// milliseconds at once, so that long timeouts are the test's own business.
#[must_use]
pub fn passing(clock: &Arc<SimClock>) -> Passing {
    let clock = Arc::clone(clock);
    let task = tokio::spawn(async move {
        loop {
            tokio::time::sleep(Duration::from_millis(1)).await;
            clock.advance(Duration::from_millis(5));
        }
    });
    Passing(task.abort_handle())
}

/// See [`passing`].
#[derive(Debug)]
pub struct Passing(tokio::task::AbortHandle);

impl Drop for Passing {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// An id for an instruction.
///
/// # Panics
/// Never: it is short.
#[must_use]
pub fn control_id(label: &str, number: usize) -> EventId {
    EventId::new(format!("{label}:{number}")).expect("a short word")
}
