//! Controller of the shards of this pod: runs the shards that placement assigns to it, and no others.
//!
//! One task waits for the first of: the end of the lease, a heartbeat, a change of the cluster state, the
//! end of a move, the loss of a shard, a command. After each it compares the actual with the desired
//! shards and starts the missing moves. Heartbeats and moves are separate tasks, so that nothing delays
//! the end of the lease.
//!
//! The lease ends one time to live after the start of the last successful heartbeat. Then the pod stops
//! its shards, because other pods may run them. The shard log fences commits of a previous owner;
//! stopping the shards also stops their effects. Each attempt of an effect checks the end of the lease
//! itself: after a suspension of the process it may start before the shards are stopped.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use orlog_actors::placement::{self, PlacementPolicy, PlacementStep};
use orlog_bus::membership::{ClusterView, Membership, Pod, ShardLease};
use orlog_effect::LeaseEnd;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{Instant, MissedTickBehavior};

use super::host::{ShardHost, placement_policy};
use super::shard_move::{MoveResult, release, release_lease, take};

/// Delay before a failed acquisition is retried.
const RETRY: Duration = Duration::from_millis(250);

/// Command to the controller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ControllerCommand {
    Run,
    /// Release the shards that other pods can acquire, and acquire none.
    HandOver,
    /// Stop the remaining shards, then end.
    Leave,
}

/// Progress of a handover.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct HandoverStatus {
    handing_over: bool,
    here: usize,
    /// Whether another pod can acquire the remaining shards.
    claimable: bool,
}

impl HandoverStatus {
    /// Returns whether no remaining shard can be acquired by another pod.
    pub(super) fn is_complete(self) -> bool {
        self.handing_over && (self.here == 0 || !self.claimable)
    }
}

/// Heartbeat with its result; `false`: another process uses this node name.
struct Heartbeat {
    started_at: Instant,
    result: Result<bool, String>,
}

pub(super) struct ShardController {
    host: Arc<dyn ShardHost>,
    membership: Arc<dyn Membership>,
    me: Pod,
    rule: PlacementPolicy,
    /// Local shards and their leases.
    owned: BTreeMap<u16, ShardLease>,
    /// Epochs in the logs of shards that are later than those of the leases.
    log_epochs: BTreeMap<u16, u64>,
    /// Shards that are being started or stopped.
    moving: BTreeSet<u16>,
    moves: JoinSet<MoveResult>,
    /// Stop requests of shards: end the requests of a shard to its replicated log.
    stops: BTreeMap<u16, watch::Sender<bool>>,
    retry: BTreeMap<u16, Instant>,
    /// End of the lease; `None`: this pod has none.
    lease_end: Option<Instant>,
    /// The end of the lease as the attempts of effects see it.
    lease: LeaseEnd,
    /// The heartbeat without a response; at most one.
    heartbeats: JoinSet<Heartbeat>,
    orders: watch::Receiver<ControllerCommand>,
    status: watch::Sender<HandoverStatus>,
}

impl ShardController {
    pub(super) fn new(
        host: &Arc<dyn ShardHost>,
        membership: Arc<dyn Membership>,
        me: Pod,
        orders: watch::Receiver<ControllerCommand>,
        status: watch::Sender<HandoverStatus>,
    ) -> Self {
        Self {
            host: Arc::clone(host),
            membership,
            me,
            rule: placement_policy(host.config()),
            owned: BTreeMap::new(),
            log_epochs: BTreeMap::new(),
            moving: BTreeSet::new(),
            moves: JoinSet::new(),
            stops: BTreeMap::new(),
            retry: BTreeMap::new(),
            lease_end: None,
            lease: host.lease(),
            heartbeats: JoinSet::new(),
            orders,
            status,
        }
    }

    pub(super) async fn run(mut self) {
        let mut view = self.membership.view();
        let mut beat = tokio::time::interval(self.ttl() / 3);
        beat.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let host = Arc::clone(&self.host);
        loop {
            tokio::select! {
                biased;
                () = reached(self.lease_end) => self.suspend(),
                Some(heartbeat) = self.heartbeats.join_next() => {
                    match self.announced(heartbeat.expect("a heartbeat does not panic")) {
                        Ok(true) => {}
                        Ok(false) => return self.abandon().await,
                        Err(()) => beat.reset_after(RETRY),
                    }
                }
                _ = self.orders.changed() => beat.reset_immediately(),
                _ = beat.tick(), if self.heartbeats.is_empty() => self.announce(),
                Some(moved) = self.moves.join_next() => self.moved(moved.expect("a move does not panic")),
                Some(shard) = host.next_lost_shard() => drop(self.owned.remove(&shard)),
                _ = view.changed() => {}
            }
            let order = *self.orders.borrow_and_update();
            if order == ControllerCommand::Leave {
                return self.leave().await;
            }
            self.me.draining = order == ControllerCommand::HandOver;
            let view = Arc::clone(&view.borrow_and_update());
            self.reconcile(&view);
        }
    }

    fn ttl(&self) -> Duration {
        self.host.config().cluster.lease_ttl
    }

    /// Sends a heartbeat.
    fn announce(&mut self) {
        let (membership, me, timeout) = (
            Arc::clone(&self.membership),
            self.me.clone(),
            self.ttl() / 2,
        );
        self.heartbeats.spawn(async move {
            let started_at = Instant::now();
            let result = match tokio::time::timeout(timeout, membership.announce(&me)).await {
                Ok(result) => result.map_err(|error| error.to_string()),
                Err(_) => Err(format!("no response within {timeout:?}")),
            };
            Heartbeat { started_at, result }
        });
    }

    /// Renews the lease after a successful heartbeat. Returns `false` if another process uses this node
    /// name.
    fn announced(&mut self, Heartbeat { started_at, result }: Heartbeat) -> Result<bool, ()> {
        match result {
            Ok(true) => {
                let end = started_at + self.ttl();
                if self.lease_end.is_none() {
                    self.lease.begin(end);
                } else if !self.lease.extend(end) {
                    // Attempts may have been dropped after the end.
                    self.suspend();
                    return Ok(true);
                }
                self.lease_end = Some(end);
                Ok(true)
            }
            Ok(false) => Ok(false),
            Err(error) => {
                tracing::warn!(%error, "lease renewal failed; retrying");
                Err(())
            }
        }
    }

    /// Compares the local shards with the desired ones.
    fn reconcile(&mut self, view: &ClusterView) {
        if self.lease_end.is_none_or(|end| end <= Instant::now()) {
            self.suspend();
        } else if view.current {
            self.drop_lost(view);
            let owned: Vec<u16> = self.owned.keys().copied().collect();
            for step in
                placement::plan_steps(view, &self.me, &owned, self.host.config().shards, self.rule)
            {
                self.start(step);
            }
        }
        let assigned = placement::assign(view, self.host.config().shards, self.rule);
        let elsewhere = |shard: &u16| assigned.get(shard).is_some_and(|pod| *pod != self.me.name);
        let claimable = !self.moving.is_empty() || self.owned.keys().any(elsewhere);
        let here = self.owned.len() + self.moving.len();
        self.status.send_replace(HandoverStatus {
            handing_over: self.me.draining,
            here,
            claimable,
        });
    }

    /// Stops all shards after the lease has expired, because other pods may run them.
    fn suspend(&mut self) {
        self.lease_end = None;
        for stop in self.stops.values() {
            stop.send_replace(true);
        }
        if !self.owned.is_empty() {
            let shards: Vec<u16> = self.owned.keys().copied().collect();
            tracing::warn!(?shards, "pod lease expired; stopping all shards");
            for shard in shards {
                self.stop(shard, Duration::ZERO, None);
            }
        }
    }

    /// Stops local shards that another pod has acquired.
    fn drop_lost(&mut self, view: &ClusterView) {
        let lost = |shard: &u16, lease: &ShardLease| {
            view.shards
                .get(shard)
                .is_some_and(|found| found.lease.epoch > lease.epoch)
        };
        let lost: Vec<u16> = self
            .owned
            .iter()
            .filter(|(s, e)| lost(s, e))
            .map(|(shard, _)| *shard)
            .collect();
        for shard in lost {
            tracing::warn!(shard, "shard acquired by another pod");
            self.stop(shard, Duration::ZERO, None);
        }
    }

    fn start(&mut self, step: PlacementStep) {
        match step {
            PlacementStep::Release(shard) => {
                let lease = self.owned.get(&shard).copied();
                self.stop(shard, self.host.config().cluster.handover_timeout, lease);
            }
            PlacementStep::Acquire(shard, _) | PlacementStep::ReleaseLease(shard, _)
                if self
                    .retry
                    .get(&shard)
                    .is_some_and(|at| Instant::now() < *at) => {}
            PlacementStep::ReleaseLease(shard, lease) => {
                if self.moving.insert(shard) {
                    self.moves
                        .spawn(release_lease(Arc::clone(&self.membership), shard, lease));
                }
            }
            PlacementStep::Acquire(shard, seen) => {
                if self.moving.insert(shard) {
                    let (host, membership) = (Arc::clone(&self.host), Arc::clone(&self.membership));
                    let log_epoch = self.log_epochs.get(&shard).copied().unwrap_or_default();
                    let (sender, stopped) = watch::channel(false);
                    self.stops.insert(shard, sender);
                    let lease = (seen, log_epoch);
                    self.moves.spawn(take(
                        host,
                        membership,
                        self.me.clone(),
                        (shard, lease),
                        stopped,
                    ));
                }
            }
        }
    }

    /// Stops a shard. Announces the release of the lease if this pod still owns the record.
    fn stop(&mut self, shard: u16, grace: Duration, lease: Option<ShardLease>) {
        if self.owned.remove(&shard).is_some() && self.moving.insert(shard) {
            if grace.is_zero()
                && let Some(stop) = self.stops.get(&shard)
            {
                stop.send_replace(true);
            }
            let (host, membership) = (Arc::clone(&self.host), Arc::clone(&self.membership));
            self.moves
                .spawn(release(host, membership, shard, grace, lease));
        }
    }

    fn moved(&mut self, moved: MoveResult) {
        let (MoveResult::Acquired(shard, _)
        | MoveResult::NotAcquired(shard, _)
        | MoveResult::Released(shard)) = moved;
        self.moving.remove(&shard);
        self.retry.remove(&shard);
        match moved {
            MoveResult::Acquired(shard, lease) => {
                self.owned.insert(shard, lease);
                // The lease of the pod ended during the start, and with it the log of the shard: it starts again.
                if self.stops.get(&shard).is_some_and(|stop| *stop.borrow()) {
                    self.stop(shard, Duration::ZERO, Some(lease));
                }
            }
            MoveResult::NotAcquired(shard, log_epoch) => {
                self.retry.insert(shard, Instant::now() + RETRY);
                self.log_epochs
                    .extend(log_epoch.map(|epoch| (shard, epoch)));
            }
            MoveResult::Released(_) => {}
        }
    }

    async fn leave(mut self) {
        loop {
            // A start that is in progress would delay the end of the process.
            for (_, stop) in self
                .stops
                .iter()
                .filter(|(shard, _)| !self.owned.contains_key(shard))
            {
                stop.send_replace(true);
            }
            for (shard, lease) in self.owned.clone() {
                self.stop(shard, Duration::ZERO, Some(lease));
            }
            match self.moves.join_next().await {
                Some(moved) => self.moved(moved.expect("a move does not panic")),
                None => break,
            }
        }
        if let Err(error) = self.membership.leave(&self.me).await {
            tracing::warn!(%error, "pod departure not announced; other pods will detect it");
        }
    }

    /// Stops this process because a newer process uses the same node name.
    async fn abandon(mut self) {
        let name = &self.me.name;
        tracing::error!(
            name,
            "another process uses this node name; stopping. Set a unique `node_name` per pod"
        );
        self.suspend();
        while self.moves.join_next().await.is_some() {}
        self.host.abort("another process uses this node name");
    }
}

/// Waits until this time.
async fn reached(end: Option<Instant>) {
    match end {
        Some(end) => tokio::time::sleep_until(end).await,
        None => std::future::pending().await,
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use async_trait::async_trait;
    use orlog_actors::ReleasedShard;
    use uuid::Uuid;

    use super::*;
    use crate::config::{ClusterConfig, ClusterMode, Config};

    const SHARDS: u16 = 2;
    const TTL: Duration = Duration::from_secs(4);

    /// Servers that respond to the first heartbeat only.
    struct SilentServers {
        view: watch::Sender<Arc<ClusterView>>,
        started: AtomicUsize,
        ended: Arc<AtomicUsize>,
    }

    /// Counts the end of a heartbeat.
    struct Ended(Arc<AtomicUsize>);

    impl Drop for Ended {
        fn drop(&mut self) {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }

    #[async_trait]
    impl Membership for SilentServers {
        fn view(&self) -> watch::Receiver<Arc<ClusterView>> {
            self.view.subscribe()
        }

        async fn announce(&self, _: &Pod) -> Result<bool, orlog_bus::Error> {
            let _ended = Ended(Arc::clone(&self.ended));
            if self.started.fetch_add(1, Ordering::SeqCst) > 0 {
                std::future::pending::<()>().await;
            }
            Ok(true)
        }

        async fn leave(&self, _: &Pod) -> Result<(), orlog_bus::Error> {
            Ok(())
        }

        async fn acquire(
            &self,
            _: u16,
            _: &Pod,
            _: ShardLease,
            _: u64,
        ) -> Result<Option<ShardLease>, orlog_bus::Error> {
            Ok(Some(ShardLease {
                epoch: 1,
                revision: 1,
            }))
        }

        async fn release(&self, _: u16, _: ShardLease) -> Result<(), orlog_bus::Error> {
            Ok(())
        }
    }

    /// Host that counts its running shards.
    struct CountingHost {
        config: Config,
        running: watch::Sender<usize>,
        /// A start lasts until it is stopped.
        is_slow: bool,
    }

    #[async_trait]
    impl ShardHost for CountingHost {
        fn config(&self) -> &Config {
            &self.config
        }

        fn lease(&self) -> LeaseEnd {
            LeaseEnd::default()
        }

        async fn run_shard(
            &self,
            _: u16,
            _: u64,
            mut stopped: watch::Receiver<bool>,
        ) -> anyhow::Result<()> {
            self.running.send_modify(|running| *running += 1);
            if self.is_slow {
                stopped.wait_for(|stopped| *stopped).await?;
                self.running.send_modify(|running| *running -= 1);
                anyhow::bail!("stopped");
            }
            Ok(())
        }

        async fn stop_shard(&self, _: u16, _: Duration) -> Option<ReleasedShard> {
            self.running.send_modify(|running| *running -= 1);
            None
        }

        async fn next_lost_shard(&self) -> Option<u16> {
            std::future::pending().await
        }

        fn abort(&self, reason: &str) {
            unreachable!("{reason}");
        }
    }

    #[tokio::test]
    async fn shards_stop_at_the_end_of_the_lease_while_a_heartbeat_waits() {
        check_end_of_lease(false).await;
    }

    #[tokio::test]
    async fn starts_in_progress_stop_at_the_end_of_the_lease() {
        check_end_of_lease(true).await;
    }

    async fn check_end_of_lease(is_slow: bool) {
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
        let me = Pod {
            name: "a".to_owned(),
            incarnation: Uuid::new_v4(),
            url: String::new(),
            draining: false,
            node_keys: Vec::new(),
        };
        let pods = BTreeMap::from([(me.name.clone(), me.clone())]);
        let view = Arc::new(ClusterView {
            pods,
            shards: BTreeMap::new(),
            current: true,
        });
        let ended = Arc::new(AtomicUsize::new(0));
        let (view, started) = (watch::Sender::new(view), AtomicUsize::new(0));
        let servers = Arc::new(SilentServers {
            view,
            started,
            ended: Arc::clone(&ended),
        });
        let counting = Arc::new(CountingHost {
            config,
            running: watch::Sender::new(0),
            is_slow,
        });
        let host: Arc<dyn ShardHost> = Arc::<CountingHost>::clone(&counting);
        let (_orders, ordered) = watch::channel(ControllerCommand::Run);
        let (status, _) = watch::channel(HandoverStatus::default());
        let controller =
            tokio::spawn(ShardController::new(&host, servers, me, ordered, status).run());
        let mut running = counting.running.subscribe();
        let deadline = Duration::from_secs(30);
        let all = running.wait_for(|running| *running == usize::from(SHARDS));
        tokio::time::timeout(deadline, all)
            .await
            .expect("the shards start")
            .expect("the host is alive");
        let none = running.wait_for(|running| *running == 0);
        tokio::time::timeout(deadline, none)
            .await
            .expect("the shards stop")
            .expect("the host is alive");
        // The first heartbeat succeeded, the second one timed out, and the third one still waits.
        let ended = ended.load(Ordering::SeqCst);
        assert!(
            ended <= 2,
            "the shards stopped only after heartbeat {ended} ended"
        );
        controller.abort();
    }
}
