//! Simulated pod with the runtime of the product: stores, programs and effects.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant as RealInstant};

use anyhow::Context as _;
use async_trait::async_trait;
use fastrand::Rng;
use futures::FutureExt as _;
use orlog_actors::{
    EMBEDDED_STREAM, EventSource, Limits, ProgramRegistry, ReleasedShard, RestartIntensity,
    RunningShards, Runtime, RuntimeConfig, RuntimeDependencies, ShardDependencies, StreamSharing,
};
use orlog_bus::Bus;
use orlog_bus::membership::Pod;
use orlog_bus::subject::SubjectKind;
use orlog_effect::{Catalog, EffectObserver, LeaseEnd, NoopObserver, Upstream, UpstreamScope};
use orlog_model::{Clock, InstanceKey, TenantId};
use orlog_store::{
    Durability, Error as StoreError, Options as StoreOptions, Reader, ReplicationOptions, Writer,
};
use orlog_testkit::faulty_bus::{Faults, FaultyBus};
use orlog_testkit::memory_log::MemoryLog;
use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use uuid::Uuid;

use super::links::{Link, OwnerLog, PodBus, PodClock};
use super::{NodeDefect, REAL_LIMIT, TENANTS, World, programs, slots, tenant};
use crate::cluster::controller::{ControllerCommand, ControllerStatus, ShardController};
use crate::cluster::host::ShardHost;
use crate::cluster::simulation::servers::{Connection, Servers};
use crate::cluster::simulation::{SHARDS, TTL};
use crate::component_config;
use crate::config::{ClusterConfig, ClusterMode, Config};

/// Pause before the store of a crashed process is opened again.
const LOCK_PAUSE: Duration = Duration::from_millis(20);

/// Epoch in which a process runs a shard.
type Epochs = Arc<Mutex<BTreeMap<u16, u64>>>;

struct Host {
    servers: Arc<Servers>,
    logs: Arc<Vec<MemoryLog>>,
    /// Clients of this process.
    clients: Mutex<Vec<MemoryLog>>,
    process: String,
    name: String,
    dir: PathBuf,
    config: Config,
    opening: Arc<AtomicUsize>,
    link: Arc<Link>,
    epochs: Epochs,
    runtime: OnceLock<Runtime>,
    defect: NodeDefect,
}

impl Host {
    fn runtime(&self) -> &Runtime {
        self.runtime
            .get()
            .expect("the runtime starts before the controller")
    }

    /// Takes the store of the shard over from its log.
    async fn open(
        &self,
        shard: u16,
        epoch: u64,
        stopped: watch::Receiver<bool>,
    ) -> anyhow::Result<(Writer, Reader)> {
        let seed = self.servers.lock().rng.u64(..);
        let faults = if self.servers.lock().is_healed { 0 } else { 5 };
        let client = self.logs[usize::from(shard)].client();
        self.clients.lock().push(client.clone());
        let is_stopped = Arc::new(AtomicBool::new(false));
        let log = OwnerLog {
            client,
            link: Arc::clone(&self.link),
            stopped: Arc::clone(&is_stopped),
            rng: Mutex::new(Rng::with_seed(seed)),
            faults,
        };
        tokio::spawn(follow(stopped, is_stopped));
        let log = Arc::new(log);
        loop {
            let replication = ReplicationOptions {
                snapshot_commits: 40,
                ..ReplicationOptions::new(Arc::<OwnerLog>::clone(&log), epoch)
            };
            let dir = self.dir.join(format!("shard-{shard}"));
            let open = move || orlog_store::open_replicated(&dir, store_options(), replication);
            self.opening.fetch_add(1, Ordering::SeqCst);
            let opened = tokio::task::spawn_blocking(open).await;
            self.opening.fetch_sub(1, Ordering::SeqCst);
            match opened? {
                Err(StoreError::Locked { .. }) => tokio::time::sleep(LOCK_PAUSE).await,
                opened => return Ok(opened?),
            }
        }
    }
}

/// Makes the log unavailable when the shard must stop. A dropped sender means that it runs on.
async fn follow(mut stopped: watch::Receiver<bool>, is_stopped: Arc<AtomicBool>) {
    if stopped.wait_for(|stopped| *stopped).await.is_ok() {
        is_stopped.store(true, Ordering::SeqCst);
    }
}

#[async_trait]
impl ShardHost for Host {
    fn config(&self) -> &Config {
        &self.config
    }

    async fn run_shard(
        &self,
        shard: u16,
        epoch: u64,
        mut stopped: watch::Receiver<bool>,
    ) -> anyhow::Result<()> {
        let pause = {
            let mut state = self.servers.lock();
            let is_slow = !state.is_healed && state.rng.u8(..100) < 10;
            if is_slow {
                state.count("slow snapshot");
            }
            if is_slow { TTL * 5 } else { TTL / 20 }
        };
        let until_stopped = stopped.clone();
        tokio::select! {
            biased;
            _ = stopped.wait_for(|stopped| *stopped) => anyhow::bail!("the shard is stopping"),
            () = self.servers.pause(pause) => {}
        }
        let (writer, reader) = self.open(shard, epoch, until_stopped).await?;
        self.servers.lock().claim(shard, epoch);
        self.epochs.lock().insert(shard, epoch);
        let slots = component_config::ranges(SHARDS)
            .nth(usize::from(shard))
            .context("no such shard")?;
        self.runtime()
            .acquire_shard(ShardDependencies {
                index: shard,
                slots,
                writer,
                reader,
            })
            .await?;
        Ok(())
    }

    fn lease(&self) -> LeaseEnd {
        match self.defect {
            // Attempts check the lease, also of a shard that is not stopped.
            NodeDefect::StopsLate | NodeDefect::NeverStops => LeaseEnd::default(),
            NodeDefect::None | NodeDefect::EpochsFallBack | NodeDefect::FailsWithTheBus => {
                self.runtime().lease()
            }
        }
    }

    async fn stop_shard(&self, shard: u16, grace: Duration) -> Option<ReleasedShard> {
        match self.defect {
            NodeDefect::StopsLate => tokio::time::sleep(TTL * 2).await,
            NodeDefect::NeverStops => return None,
            NodeDefect::None | NodeDefect::EpochsFallBack | NodeDefect::FailsWithTheBus => {}
        }
        self.runtime().release_shard(shard, grace).await
    }

    async fn next_lost_shard(&self) -> Option<u16> {
        self.runtime().next_lost_shard().await
    }

    fn abort(&self, reason: &str) {
        self.servers
            .lock()
            .violations
            .push(format!("{} aborted: {reason}", self.name));
    }
}

/// Running pod.
pub(super) struct SimNode {
    host: Arc<Host>,
    pub(super) clock: Arc<PodClock>,
    orders: watch::Sender<ControllerCommand>,
    controller: JoinHandle<()>,
    watcher: JoinHandle<()>,
}

impl SimNode {
    /// Starts a process on the directory of the pod.
    pub(super) async fn start(world: &World, name: &str, clock: &Arc<PodClock>) -> Self {
        let (incarnation, seed) = {
            let mut state = world.servers.lock();
            (Uuid::from_u128(state.rng.u128(..)), state.rng.u64(..))
        };
        let cluster = ClusterConfig {
            mode: ClusterMode::Leases,
            lease_ttl: TTL,
            ..ClusterConfig::default()
        };
        let host = Arc::new(Host {
            servers: Arc::clone(&world.servers),
            logs: Arc::clone(&world.logs),
            clients: Mutex::default(),
            process: format!("{name}-{incarnation}"),
            name: name.to_owned(),
            dir: world
                .home
                .path()
                .join(format!("{name}-{}", world.power_failures)),
            config: Config {
                cluster,
                shards: SHARDS,
                ..Config::default()
            },
            opening: Arc::clone(&world.opening),
            link: Arc::clone(&world.links[name]),
            epochs: Epochs::default(),
            runtime: OnceLock::new(),
            defect: world.defect,
        });
        let runtime = start_runtime(world, &host, clock, seed).await;
        assert!(
            host.runtime.set(runtime).is_ok(),
            "this is the only runtime of the process"
        );
        let connection = Connection::open(&world.servers, name);
        let watcher = tokio::spawn(Arc::clone(&connection).watch());
        let (orders, ordered) = watch::channel(ControllerCommand::Run);
        let status = watch::Sender::new(ControllerStatus::default());
        let me = Pod {
            name: name.to_owned(),
            incarnation,
            url: String::new(),
            draining: false,
            node_keys: Vec::new(),
        };
        let shard_host: Arc<dyn ShardHost> = Arc::<Host>::clone(&host);
        let controller = ShardController::new(&shard_host, connection, me, ordered, status);
        let controller = tokio::spawn(controller.run());
        Self {
            host,
            clock: Arc::clone(clock),
            orders,
            controller,
            watcher,
        }
    }

    /// Ends the process at once: nothing is flushed.
    pub(super) async fn crash(self) {
        self.controller.abort();
        self.watcher.abort();
        drop(self.controller.await);
        let runtime = self.host.runtime();
        runtime.root().kill();
        runtime.ended().await;
        for client in &*self.host.clients.lock() {
            client.end_process();
        }
    }

    /// Leaves the cluster, then ends the process.
    pub(super) async fn leave(mut self) {
        self.orders.send_replace(ControllerCommand::Leave);
        let started_at = RealInstant::now();
        let has_left = loop {
            let has_left = tokio::time::timeout(TTL * 20, &mut self.controller)
                .await
                .is_ok();
            if has_left || started_at.elapsed() > REAL_LIMIT {
                break has_left;
            }
        };
        if !has_left {
            let violation = format!("{} does not leave the cluster", self.host.name);
            self.host.servers.lock().violations.push(violation);
        }
        self.controller.abort();
        self.watcher.abort();
        if let Err(error) = self.host.runtime().stop().await {
            self.host
                .servers
                .lock()
                .violations
                .push(format!("{} does not stop: {error}", self.host.name));
        }
    }

    /// Returns the reader of the shard of an instance, if this pod owns it.
    pub(super) fn reader(&self, key: &InstanceKey) -> Option<Reader> {
        self.host.runtime().reader(key)
    }

    pub(super) fn readers(&self) -> Vec<Reader> {
        self.host.runtime().readers().collect()
    }

    /// Returns the shards that run here, for messages.
    pub(super) fn state(&self) -> String {
        let runtime = self.host.runtime();
        format!(
            "{}: shards {:?}, {:?}",
            self.host.name,
            runtime.owned_shards(),
            runtime.health()
        )
    }

    /// Returns whether the actors have ended without a request.
    pub(super) fn has_failed(&self) -> bool {
        self.host.runtime().ended().now_or_never().is_some()
    }
}

async fn start_runtime(
    world: &World,
    host: &Arc<Host>,
    clock: &Arc<PodClock>,
    seed: u64,
) -> Runtime {
    let clock = Arc::<PodClock>::clone(clock) as Arc<dyn Clock>;
    let embedded: Arc<dyn Bus> = Arc::<orlog_bus::embedded::Embedded>::clone(&world.bus);
    let faults = Faults {
        lost_responses: 5,
        lost_acks: 0,
        duplicates: 10,
        delays: 10,
        signing_panics: 0,
        defects: 0,
    };
    let bus: Arc<dyn Bus> = Arc::new(PodBus {
        inner: FaultyBus::new(embedded, faults, seed),
        link: Arc::clone(&host.link),
        servers: Arc::clone(&world.servers),
        process: host.process.clone(),
    });
    let observer: Arc<dyn EffectObserver> = Arc::new(NoopObserver);
    let catalog =
        Catalog::new(pod_upstreams(world, host), &clock, &observer).expect("a valid catalog");
    let sharing = (world.defect != NodeDefect::FailsWithTheBus).then(StreamSharing::default);
    let source = EventSource {
        name: EMBEDDED_STREAM.to_owned(),
        bus: Arc::clone(&bus),
        kinds: vec![
            SubjectKind::Aggregate,
            SubjectKind::WorkflowEvent,
            SubjectKind::Workflow,
        ],
        sharing,
        authority: None,
    };
    let dependencies = RuntimeDependencies {
        bus,
        sources: vec![source],
        catalog: Arc::new(catalog),
        programs: Arc::new(ProgramRegistry::new(programs())),
        clock,
        running: RunningShards::new(slots()),
        shards: Vec::new(),
        dead_letter_encoder: Arc::new(
            |letter| serde_json::json!({ "id": letter.id, "node": letter.node }),
        ),
        observer: None,
        tracer: None,
    };
    let config = RuntimeConfig {
        node: host.name.clone(),
        limits: Limits {
            max_live_instances: 8,
            max_group_commit: 16,
            ..Limits::default()
        },
        // No fault of this simulation may restart a shard.
        intensity: RestartIntensity {
            max_restarts: 0,
            ..RestartIntensity::default()
        },
        publishes_results: true,
        ..RuntimeConfig::default()
    };
    Runtime::start(dependencies, config)
        .await
        .expect("the runtime starts")
}

/// Returns the upstreams as this process reaches them: each attempt is checked and recorded. The tenants have
/// upstreams of their own, and share the gateway.
fn pod_upstreams(world: &World, host: &Host) -> Vec<Upstream> {
    let (servers, epochs, name) = (
        Arc::clone(&host.servers),
        Arc::clone(&host.epochs),
        host.name.clone(),
    );
    let check = move |instance: &InstanceKey, key| {
        let shard = component_config::shard_of(slots().slot_of(instance), SHARDS);
        let epochs = epochs.lock();
        let epoch = epochs.get(&shard).copied().unwrap_or_default();
        servers
            .lock()
            .perform(shard, &format!("{key}"), &name, epoch);
    };
    let (gateways, effects): (Vec<_>, Vec<_>) = world
        .upstreams
        .observed(world.upstreams.bus(), Arc::new(check))
        .upstreams()
        .into_iter()
        .partition(|upstream| upstream.scope == UpstreamScope::Commands);
    let of_tenant = |tenant: &TenantId| {
        let named = |upstream: Upstream| Upstream {
            name: format!("{tenant}-{}", upstream.name),
            ..upstream
        };
        let tenants = Some([tenant.clone()].into());
        effects
            .iter()
            .cloned()
            .map(|upstream| named(upstream).for_tenants(tenants.clone()))
            .collect::<Vec<_>>()
    };
    gateways
        .into_iter()
        .chain(TENANTS.iter().flat_map(|name| of_tenant(&tenant(name))))
        .collect()
}

pub(super) fn store_options() -> StoreOptions {
    StoreOptions {
        slots: slots(),
        durability: Durability::Interval(Duration::from_secs(1)),
        memtable_bytes: 128 << 10,
        journal_segment_bytes: 256 << 10,
        max_bytes: 256 << 20,
        ..StoreOptions::default()
    }
}
