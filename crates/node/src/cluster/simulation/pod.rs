//! Simulated pod: the shard controller of the product on a host that applies events.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use orlog_actors::ReleasedShard;
use orlog_bus::membership::Pod;
use orlog_effect::LeaseEnd;
use orlog_store::Error as StoreError;
use parking_lot::Mutex;
use tokio::sync::{Mutex as AsyncMutex, mpsc, watch};
use tokio::task::JoinHandle;
use uuid::Uuid;

use super::servers::{Connection, Servers};
use super::{SHARDS, TTL};
use crate::cluster::controller::{ControllerCommand, ControllerStatus, ShardController};
use crate::cluster::host::ShardHost;
use crate::config::{ClusterConfig, ClusterMode, Config};

/// Pause of a shard without events.
const IDLE: Duration = Duration::from_millis(500);

/// Defect of a host, to test the checks of the simulator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Defect {
    None,
    /// A stopped shard starts the attempts that wait.
    StoppedShardWorks,
    /// A shard stops half a time to live after the request.
    StopsLate,
}

/// Running shards: the sender ends the task of a shard.
type RunningShards = BTreeMap<u16, (watch::Sender<bool>, JoinHandle<()>)>;

struct Host {
    servers: Arc<Servers>,
    name: String,
    config: Config,
    defect: Defect,
    running: Mutex<RunningShards>,
    lost: mpsc::UnboundedSender<u16>,
    losses: AsyncMutex<mpsc::UnboundedReceiver<u16>>,
}

impl Host {
    /// Loads the snapshot, which may be slow.
    async fn load(&self) -> anyhow::Result<()> {
        let is_slow = {
            let mut state = self.servers.lock();
            let is_slow = !state.is_healed && state.rng.u8(..100) < 10;
            if is_slow {
                state.count("slow snapshot");
            }
            is_slow
        };
        self.servers
            .pause(if is_slow { TTL * 5 } else { TTL / 20 })
            .await;
        self.servers.send(&self.name).await?;
        Ok(())
    }

    /// Claims the log: fences the former owner.
    fn claim(&self, shard: u16, epoch: u64) -> anyhow::Result<u64> {
        let mut state = self.servers.lock();
        let log = &state.logs[usize::from(shard)];
        if log.epoch > epoch {
            let fenced = StoreError::Fenced {
                reason: "a later claim".to_owned(),
                epoch: log.epoch,
            };
            return Err(fenced.into());
        }
        Ok(state.claim(shard, epoch))
    }
}

/// Applies the events of a shard in order: one attempt, then its commit.
async fn apply_events(
    (servers, pod): (Arc<Servers>, String),
    (shard, epoch, claim): (u16, u64, u64),
    mut stopped: watch::Receiver<bool>,
    lost: mpsc::UnboundedSender<u16>,
) {
    loop {
        // A crashed pod drops the sender.
        if stopped.has_changed().is_err() || *stopped.borrow_and_update() {
            return;
        }
        let next = {
            let mut state = servers.lock();
            let log = &state.logs[usize::from(shard)];
            let next = u64::try_from(log.committed.len()).expect("few events");
            let next = (next < log.accepted).then_some(next);
            if let Some(next) = next {
                state.perform(shard, &format!("event {next}"), &pod, epoch);
            }
            next
        };
        let Some(event) = next else {
            tokio::time::sleep(IDLE).await;
            continue;
        };
        servers.pause(Duration::from_millis(300)).await;
        if servers.send(&pod).await.is_err() {
            continue;
        }
        let mut state = servers.lock();
        let log = &mut state.logs[usize::from(shard)];
        if log.claims != claim {
            // An error means that the pod has crashed.
            lost.send(shard).ok();
            return;
        }
        log.committed.push(event);
    }
}

#[async_trait]
impl ShardHost for Host {
    fn config(&self) -> &Config {
        &self.config
    }

    fn lease(&self) -> LeaseEnd {
        LeaseEnd::default()
    }

    async fn run_shard(
        &self,
        shard: u16,
        epoch: u64,
        mut stopped: watch::Receiver<bool>,
    ) -> anyhow::Result<()> {
        tokio::select! {
            biased;
            _ = stopped.wait_for(|stopped| *stopped) => anyhow::bail!("the shard is stopping"),
            loaded = self.load() => loaded?,
        }
        let claim = self.claim(shard, epoch)?;
        let (sender, stopped) = watch::channel(false);
        let identity = (Arc::clone(&self.servers), self.name.clone());
        let task = tokio::spawn(apply_events(
            identity,
            (shard, epoch, claim),
            stopped,
            self.lost.clone(),
        ));
        self.running.lock().insert(shard, (sender, task));
        Ok(())
    }

    async fn stop_shard(&self, shard: u16, grace: Duration) -> Option<ReleasedShard> {
        let (stop, mut task) = self.running.lock().remove(&shard)?;
        match self.defect {
            Defect::StoppedShardWorks => {
                std::mem::forget(stop);
                return None;
            }
            Defect::StopsLate => tokio::time::sleep(TTL / 2).await,
            Defect::None => {}
        }
        stop.send_replace(true);
        drop(tokio::time::timeout(grace, &mut task).await);
        task.abort();
        None
    }

    async fn next_lost_shard(&self) -> Option<u16> {
        let shard = self.losses.lock().await.recv().await?;
        drop(self.running.lock().remove(&shard));
        Some(shard)
    }

    fn abort(&self, reason: &str) {
        let name = &self.name;
        self.servers
            .lock()
            .violations
            .push(format!("{name} aborted: {reason}"));
    }
}

/// Running pod.
pub(super) struct SimPod {
    host: Arc<Host>,
    orders: watch::Sender<ControllerCommand>,
    controller: JoinHandle<()>,
    watcher: JoinHandle<()>,
}

impl SimPod {
    pub(super) fn start(servers: &Arc<Servers>, name: &str, defect: Defect) -> Self {
        let incarnation = Uuid::from_u128(servers.lock().rng.u128(..));
        let me = Pod {
            name: name.to_owned(),
            incarnation,
            url: String::new(),
            draining: false,
            node_keys: Vec::new(),
        };
        let cluster = ClusterConfig {
            mode: ClusterMode::Leases,
            lease_ttl: TTL,
            ..ClusterConfig::default()
        };
        let config = Config {
            cluster,
            shards: SHARDS,
            ..Config::default()
        };
        let (lost, losses) = mpsc::unbounded_channel();
        let host = Arc::new(Host {
            servers: Arc::clone(servers),
            name: name.to_owned(),
            config,
            defect,
            running: Mutex::default(),
            lost,
            losses: AsyncMutex::new(losses),
        });
        let connection = Connection::open(servers, name);
        let watcher = tokio::spawn(Arc::clone(&connection).watch());
        let (orders, ordered) = watch::channel(ControllerCommand::Run);
        let status = watch::Sender::new(ControllerStatus::default());
        let shard_host: Arc<dyn ShardHost> = Arc::<Host>::clone(&host);
        let controller =
            tokio::spawn(ShardController::new(&shard_host, connection, me, ordered, status).run());
        Self {
            host,
            orders,
            controller,
            watcher,
        }
    }

    /// Ends the process at once.
    pub(super) async fn crash(self) {
        self.controller.abort();
        self.watcher.abort();
        drop(self.controller.await);
        for (_, task) in std::mem::take(&mut *self.host.running.lock()).into_values() {
            task.abort();
        }
    }

    /// Leaves the cluster, then ends the process.
    pub(super) async fn leave(mut self) {
        self.orders.send_replace(ControllerCommand::Leave);
        if tokio::time::timeout(TTL * 20, &mut self.controller)
            .await
            .is_err()
        {
            let violation = format!("{} does not leave the cluster", self.host.name);
            self.host.servers.lock().violations.push(violation);
        }
        self.crash_rest();
    }

    fn crash_rest(&self) {
        self.controller.abort();
        self.watcher.abort();
    }
}
