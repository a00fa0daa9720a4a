//! Controller of the shards of this pod: runs the shards that placement assigns to it, and no others.
//!
//! One task waits for the first of: a heartbeat, a change of the cluster state, the end of a move, the
//! loss of a shard, a command. After each it compares the actual with the desired shards and starts the
//! missing moves.
//!
//! A pod without a successful heartbeat for the lease duration stops its shards, because other pods may
//! run them. The shard log fences commits of a previous owner; stopping the shards also stops their
//! effects.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use orlog_actors::placement::{self, PlacementPolicy, PlacementStep};
use orlog_bus::membership::{ClusterView, Membership, Pod};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{Instant, MissedTickBehavior};

use super::host::{ShardHost, placement_policy};

/// Delay before a failed acquisition is retried.
const RETRY: Duration = Duration::from_millis(250);

/// Start timeout of a shard. On expiry the shard is released and retried, so that the failure is
/// visible.
const START_TIMEOUT: Duration = Duration::from_mins(1);

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

/// Result of a move.
#[derive(Clone, Copy)]
enum MoveResult {
    Acquired(u16, u64),
    /// The shard runs on another pod or did not start; the next reconciliation decides.
    NotAcquired(u16),
    Released(u16),
}

pub(super) struct ShardController {
    host: Arc<dyn ShardHost>,
    membership: Arc<dyn Membership>,
    me: Pod,
    rule: PlacementPolicy,
    /// Local shards and the revisions of their records.
    owned: BTreeMap<u16, u64>,
    /// Shards that are being started or stopped.
    moving: BTreeSet<u16>,
    moves: JoinSet<MoveResult>,
    retry: BTreeMap<u16, Instant>,
    /// Start time of the last successful heartbeat.
    last_heartbeat: Option<Instant>,
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
            moving: BTreeSet::new(),
            moves: JoinSet::new(),
            retry: BTreeMap::new(),
            last_heartbeat: None,
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
            let mut beats = false;
            tokio::select! {
                _ = beat.tick() => beats = true,
                _ = self.orders.changed() => beats = true,
                Some(moved) = self.moves.join_next() => self.moved(moved.expect("a move does not panic")),
                Some(shard) = host.runtime().next_lost_shard() => drop(self.owned.remove(&shard)),
                _ = view.changed() => {}
            }
            let order = *self.orders.borrow_and_update();
            if order == ControllerCommand::Leave {
                return self.leave().await;
            }
            self.me.draining = order == ControllerCommand::HandOver;
            if beats && !self.announce().await {
                return self.abandon().await;
            }
            let view = Arc::clone(&view.borrow_and_update());
            self.reconcile(&view);
        }
    }

    fn ttl(&self) -> Duration {
        self.host.config().cluster.lease_ttl
    }

    /// Renews the lease. Returns `false` if another process uses this node name.
    async fn announce(&mut self) -> bool {
        let started_at = Instant::now();
        match tokio::time::timeout(self.ttl() / 2, self.membership.announce(&self.me)).await {
            Ok(Ok(true)) => self.last_heartbeat = Some(started_at),
            Ok(Ok(false)) => return false,
            Ok(Err(error)) => tracing::warn!(%error, "lease renewal failed"),
            Err(_) => tracing::warn!("lease renewal timed out"),
        }
        true
    }

    /// Compares the local shards with the desired ones.
    fn reconcile(&mut self, view: &ClusterView) {
        if self.last_heartbeat.is_none_or(|received| received.elapsed() >= self.ttl()) {
            self.suspend();
        } else if view.current {
            self.drop_lost(view);
            let owned: Vec<u16> = self.owned.keys().copied().collect();
            for step in placement::plan_steps(view, &self.me, &owned, self.host.config().shards, self.rule) {
                self.start(step);
            }
        }
        let assigned = placement::assign(view, self.host.config().shards, self.rule);
        let elsewhere = |shard: &u16| assigned.get(shard).is_some_and(|pod| *pod != self.me.name);
        let claimable = !self.moving.is_empty() || self.owned.keys().any(elsewhere);
        let here = self.owned.len() + self.moving.len();
        self.status.send_replace(HandoverStatus { handing_over: self.me.draining, here, claimable });
    }

    /// Stops all shards after the lease has expired, because other pods may run them.
    fn suspend(&mut self) {
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
        let lost =
            |shard: &u16, epoch: &u64| view.shards.get(shard).is_some_and(|holding| holding.epoch > *epoch);
        let lost: Vec<u16> = self.owned.iter().filter(|(s, e)| lost(s, e)).map(|(shard, _)| *shard).collect();
        for shard in lost {
            tracing::warn!(shard, "shard acquired by another pod");
            self.stop(shard, Duration::ZERO, None);
        }
    }

    fn start(&mut self, step: PlacementStep) {
        match step {
            PlacementStep::Release(shard) => {
                let epoch = self.owned.get(&shard).copied();
                self.stop(shard, self.host.config().cluster.handover_timeout, epoch);
            }
            PlacementStep::Acquire(shard, _)
                if self.retry.get(&shard).is_some_and(|at| Instant::now() < *at) => {}
            PlacementStep::Acquire(shard, seen) => {
                if self.moving.insert(shard) {
                    let (host, membership) = (Arc::clone(&self.host), Arc::clone(&self.membership));
                    self.moves.spawn(take(host, membership, self.me.clone(), shard, seen));
                }
            }
        }
    }

    /// Stops a shard. Announces the release under `epoch` if this pod still owns the record.
    fn stop(&mut self, shard: u16, grace: Duration, epoch: Option<u64>) {
        if self.owned.remove(&shard).is_some() && self.moving.insert(shard) {
            let (host, membership) = (Arc::clone(&self.host), Arc::clone(&self.membership));
            self.moves.spawn(release(host, membership, shard, grace, epoch));
        }
    }

    fn moved(&mut self, moved: MoveResult) {
        let (MoveResult::Acquired(shard, _) | MoveResult::NotAcquired(shard) | MoveResult::Released(shard)) =
            moved;
        self.moving.remove(&shard);
        self.retry.remove(&shard);
        match moved {
            MoveResult::Acquired(shard, epoch) => drop(self.owned.insert(shard, epoch)),
            MoveResult::NotAcquired(shard) => drop(self.retry.insert(shard, Instant::now() + RETRY)),
            MoveResult::Released(_) => {}
        }
    }

    async fn leave(mut self) {
        while let Some(moved) = self.moves.join_next().await {
            self.moved(moved.expect("a move does not panic"));
        }
        for (shard, epoch) in std::mem::take(&mut self.owned) {
            let (host, membership) = (Arc::clone(&self.host), Arc::clone(&self.membership));
            release(host, membership, shard, Duration::ZERO, Some(epoch)).await;
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
        self.host.runtime().root().stop(Some("another process uses this node name".to_owned()));
    }
}

async fn take(
    host: Arc<dyn ShardHost>,
    membership: Arc<dyn Membership>,
    me: Pod,
    shard: u16,
    seen: u64,
) -> MoveResult {
    let started_at = Instant::now();
    let epoch = match membership.acquire(shard, &me, seen).await {
        Ok(Some(epoch)) => epoch,
        Ok(None) => return MoveResult::NotAcquired(shard),
        Err(error) => {
            tracing::warn!(shard, %error, "shard acquisition failed; retrying");
            return MoveResult::NotAcquired(shard);
        }
    };
    let started = tokio::time::timeout(START_TIMEOUT, host.run_shard(shard, epoch)).await;
    match started.unwrap_or_else(|_| Err(anyhow::anyhow!("it did not start within {START_TIMEOUT:?}"))) {
        Ok(()) => {
            let took_millis = u64::try_from(started_at.elapsed().as_millis()).unwrap_or(u64::MAX);
            tracing::info!(shard, epoch, took_millis, "shard started");
            MoveResult::Acquired(shard, epoch)
        }
        Err(error) => {
            tracing::error!(shard, epoch, error = format!("{error:#}"), "shard start failed; retrying");
            // On an error the record stays, and this pod acquires the shard again.
            drop(membership.release(shard, epoch).await);
            MoveResult::NotAcquired(shard)
        }
    }
}

async fn release(
    host: Arc<dyn ShardHost>,
    membership: Arc<dyn Membership>,
    shard: u16,
    grace: Duration,
    epoch: Option<u64>,
) -> MoveResult {
    let released = host.runtime().release_shard(shard, grace).await;
    // No further commits happen here; the release does not wait until the files are closed.
    if let Some(epoch) = epoch
        && let Err(error) = membership.release(shard, epoch).await
    {
        tracing::warn!(shard, %error, "shard release not announced; other pods will detect it");
    }
    if let Some(released) = released
        && let Err(error) = released.close().await
    {
        tracing::warn!(shard, %error, "store of a released shard did not close cleanly");
    }
    tracing::info!(shard, "shard stopped");
    MoveResult::Released(shard)
}
