//! Controller of the shards of this pod: runs the shards that placement assigns to it, and no
//! others.
//!
//! One task waits for the first of: the end of the lease, a heartbeat, a change of the cluster
//! state, the end of a move, the loss of a shard, a command. After each it compares the actual with
//! the desired shards and starts the missing moves. Heartbeats and moves are separate tasks, so
//! that nothing delays the end of the lease.
//!
//! The lease ends one time to live after the start of the last successful heartbeat. Then the pod
//! stops its shards, because other pods may run them. The shard log fences commits of a previous
//! owner; stopping the shards also stops their effects. Each attempt of an effect checks the end of
//! the lease itself: after a suspension of the process it may start before the shards are stopped.
//!
//! A pod whose lease expires repeatedly leaves its shards to the other pods for a while
//! ([`LeaseBackoff`]).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use orlog_bus::RetryLog;
use orlog_bus::membership::{ClusterView, Membership, Pod, ShardLease};
use orlog_effect::LeaseEnd;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{Instant, MissedTickBehavior};

use super::host::{ShardHost, placement_policy};
use super::lease_backoff::{Expiry, LeaseBackoff};
use super::placement::{self, PlacementPolicy, PlacementStep};
use super::shard_move::{MoveResult, Obstacle, release, release_lease, take};

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

/// State of the shards of this pod, for the health of the node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct ControllerStatus {
    pub(super) handover: HandoverStatus,
    /// Why this pod has no lease and runs no shard; `None` while it has one, and before its first
    /// heartbeat ends.
    pub(super) lease_failure: Option<String>,
    /// Shards that placement assigns to this pod and that it cannot start, each with the failure of
    /// the last start.
    pub(super) start_failures: BTreeMap<u16, String>,
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
    /// Shards that did not start, each with the failure of the last start.
    start_failures: BTreeMap<u16, String>,
    /// Failed starts of each shard.
    start_retries: BTreeMap<u16, RetryLog>,
    /// Failure of the last heartbeat, or the end of the lease without one.
    lease_failure: Option<String>,
    /// End of the lease; `None`: this pod has none.
    lease_end: Option<Instant>,
    /// The end of the lease as the attempts of effects see it.
    lease: LeaseEnd,
    backoff: LeaseBackoff,
    /// Failed heartbeats.
    retries: RetryLog,
    /// The heartbeat without a response; at most one.
    heartbeats: JoinSet<Heartbeat>,
    orders: watch::Receiver<ControllerCommand>,
    status: watch::Sender<ControllerStatus>,
}

impl ShardController {
    pub(super) fn new(
        host: &Arc<dyn ShardHost>,
        membership: Arc<dyn Membership>,
        me: Pod,
        orders: watch::Receiver<ControllerCommand>,
        status: watch::Sender<ControllerStatus>,
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
            start_failures: BTreeMap::new(),
            start_retries: BTreeMap::new(),
            lease_failure: None,
            lease_end: None,
            lease: host.lease(),
            backoff: LeaseBackoff::new(host.config().cluster.lease_ttl),
            retries: RetryLog::default(),
            heartbeats: JoinSet::new(),
            orders,
            status,
        }
    }

    pub(super) async fn run(mut self) {
        let mut view = self.membership.view();
        let mut beat = tokio::time::interval(self.ttl() / 3);

        // After a suspension of the process, one heartbeat is enough; a burst would only load the
        // servers.
        beat.set_missed_tick_behavior(MissedTickBehavior::Delay);

        // A clone: the branches below change `self` while the loss of a shard is awaited.
        let host = Arc::clone(&self.host);
        loop {
            tokio::select! {
                // The end of the lease has precedence over everything else that is ready: from then
                // on other pods may run the shards.
                biased;
                () = reached(self.lease_end) => self.suspend(),
                () = reached(self.backoff.end()) => {
                    self.backoff.finish();
                    beat.reset_immediately();
                }
                Some(heartbeat) = self.heartbeats.join_next() => {
                    match self.handle_heartbeat(heartbeat.expect("a heartbeat does not panic")) {
                        Ok(true) => {}
                        // The first heartbeat of a newer process with this name replaces the record
                        // without a condition, so that the older process gets this result.
                        Ok(false) => return self.abandon().await,
                        Err(()) => beat.reset_after(RETRY),
                    }
                }
                // A new command can change the drain state, which other pods read in the next
                // heartbeat.
                changed = self.orders.changed() => match changed {
                    Ok(()) => beat.reset_immediately(),
                    // The owner of the controller was dropped: no other command can arrive, and
                    // this branch would be ready for ever.
                    Err(_) => return self.leave().await,
                },
                _ = beat.tick(), if self.heartbeats.is_empty() => self.announce(),
                Some(result) = self.moves.join_next() => {
                    self.handle_move(result.expect("a move does not panic"));
                }
                Some(shard) = host.next_lost_shard() => drop(self.owned.remove(&shard)),
                _ = view.changed() => {}
            }

            // Read after each event, because another branch can be ready at the same time as a
            // command.
            let order = *self.orders.borrow_and_update();
            if order == ControllerCommand::Leave {
                return self.leave().await;
            }

            // A pod that waits does not acquire shards: the other pods must not leave them to it.
            self.me.draining = order == ControllerCommand::HandOver || self.backoff.end().is_some();

            // Marks the view as seen, and releases the lock of the channel before the
            // reconciliation.
            let view = Arc::clone(&view.borrow_and_update());
            self.reconcile(&view, order);
        }
    }

    fn ttl(&self) -> Duration {
        self.host.config().cluster.lease_ttl
    }

    /// Sends a heartbeat.
    fn announce(&mut self) {
        let membership = Arc::clone(&self.membership);
        let me = self.me.clone();

        // Half of the time to live leaves time for a second heartbeat before the lease ends.
        let timeout = self.ttl() / 2;
        self.heartbeats.spawn(async move {
            // The lease counts from here: the servers may have stored the heartbeat long before
            // their response arrives.
            let started_at = Instant::now();
            let result = match tokio::time::timeout(timeout, membership.announce(&me)).await {
                Ok(result) => result.map_err(|error| error.to_string()),
                Err(_) => Err(format!("no response within {timeout:?}")),
            };
            Heartbeat { started_at, result }
        });
    }

    /// Renews the lease after a successful heartbeat. Returns `false` if another process uses this
    /// node name.
    fn handle_heartbeat(
        &mut self,
        Heartbeat { started_at, result }: Heartbeat,
    ) -> Result<bool, ()> {
        match result {
            Ok(true) => {
                // The start of the heartbeat, not its response, is before the time at which the
                // servers count.
                let end = started_at + self.ttl();
                self.lease_failure = None;
                self.retries
                    .succeeded(|failures| tracing::info!(failures, "lease is renewed again"));
                if self.lease_end.is_none() {
                    self.lease.begin(end);
                    self.backoff.begin(started_at);
                } else if !self.lease.extend(end) {
                    // Attempts may have been dropped after the end.
                    self.suspend();
                    return Ok(true);
                }

                self.lease_end = Some(end);
                if let Some(expiries) = self.backoff.settle(started_at) {
                    tracing::info!(expiries, "pod lease is stable again");
                }

                Ok(true)
            }
            Ok(false) => Ok(false),
            Err(error) => {
                self.retries.failed(
                    |failures| tracing::warn!(failures, %error, "lease renewal failed; retrying"),
                );
                self.lease_failure = Some(error);
                Err(())
            }
        }
    }

    /// Compares the local shards with the desired ones.
    fn reconcile(&mut self, view: &ClusterView, order: ControllerCommand) {
        if self.lease_end.is_none_or(|end| end <= Instant::now()) {
            self.suspend();

        // An outdated view proves nothing: shards neither start nor stop because of it. The lease
        // ends them if it stays outdated.
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

        // A shard in a move counts, too: a handover must not end while a shard is still being
        // stopped.
        let claimable = !self.moving.is_empty()
            || self
                .owned
                .keys()
                .any(|shard| assigned.get(shard).is_some_and(|pod| *pod != self.me.name));

        // A failure concerns this pod only while the shard is assigned to it.
        let is_mine = |shard: &u16| assigned.get(shard) == Some(&self.me.name);
        self.start_failures.retain(|shard, _| is_mine(shard));
        self.start_retries.retain(|shard, _| is_mine(shard));
        self.publish_status(order, claimable);
    }

    /// Publishes the status if it has changed. `claimable`: another pod can acquire the remaining
    /// shards.
    fn publish_status(&self, order: ControllerCommand, claimable: bool) {
        let handover = HandoverStatus {
            handing_over: order == ControllerCommand::HandOver,
            here: self.owned.len() + self.moving.len(),
            claimable,
        };
        let next = ControllerStatus {
            handover,
            lease_failure: self.lease_obstacle(),
            start_failures: self.start_failures.clone(),
        };

        // Each heartbeat comes here, and a change of the status wakes its readers.
        self.status.send_if_modified(|status| {
            let is_changed = *status != next;
            if is_changed {
                *status = next;
            }
            is_changed
        });
    }

    /// Returns why the pod runs no shards although placement may assign some to it.
    fn lease_obstacle(&self) -> Option<String> {
        if self.backoff.end().is_some() {
            let text =
                "the lease expired repeatedly; the pod leaves its shards to other pods for a while";
            return Some(text.to_owned());
        }
        // A failed heartbeat is no obstacle while the lease lasts: the next one may renew it.
        let has_lease = self.lease_end.is_some();
        self.lease_failure.clone().filter(|_| !has_lease)
    }

    /// Stops all shards after the lease has expired, because other pods may run them.
    fn suspend(&mut self) {
        if self.lease_end.take().is_some() {
            let ttl = self.ttl();
            self.lease_failure
                .get_or_insert_with(|| format!("no heartbeat has succeeded within {ttl:?}"));
            self.report_expiry();
        }

        // The shards do not start, because the pod has no lease.
        self.start_failures.clear();

        // A start, or a commit, may wait for the log of its shard; without this signal the shard
        // would not stop before that request ends.
        for stop in self.stops.values() {
            stop.send_replace(true);
        }

        let shards: Vec<u16> = self.owned.keys().copied().collect();
        for shard in shards {
            // The release is not announced: the record is invalid without a lease, and the servers
            // may be unreachable.
            self.stop(shard, Duration::ZERO, None);
        }
    }

    /// Reports the first expiry and the start of a series, not each expiry.
    fn report_expiry(&mut self) {
        let shards: Vec<u16> = self.owned.keys().copied().collect();
        match self.backoff.expire(Instant::now()) {
            Expiry::Single if shards.is_empty() => {}
            Expiry::Single => tracing::warn!(?shards, "pod lease expired; stopping all shards"),
            Expiry::SecondOfSeries { delay } => tracing::warn!(
                ?shards,
                ?delay,
                "pod lease expires repeatedly; other pods acquire the shards. Check the CPU time \
                 of the pod and its connection to NATS"
            ),
            Expiry::Later { delay } => {
                tracing::debug!(?shards, ?delay, "pod lease expired again");
            }
        }
    }

    /// Stops local shards that another pod has acquired.
    fn drop_lost(&mut self, view: &ClusterView) {
        let lost = |shard: &u16, lease: &ShardLease| {
            view.shards
                .get(shard)
                // Compared by epoch, not by owner: a view from before the acquisition still names
                // the previous owner.
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
            // The record belongs to the other pod now, so there is nothing to release.
            self.stop(shard, Duration::ZERO, None);
        }
    }

    fn start(&mut self, step: PlacementStep) {
        match step {
            PlacementStep::Release(shard) => {
                // The target pod acquires the shard as soon as the record has no owner.
                let lease = self.owned.get(&shard).copied();
                self.stop(shard, self.host.config().cluster.handover_timeout, lease);
            }

            // A start costs the CPU time that the heartbeats of an overloaded pod lack.
            PlacementStep::Acquire(..) if self.backoff.end().is_some() => {}
            // Each event of the loop plans the same step again, so only the delay limits the
            // attempts.
            PlacementStep::Acquire(shard, _) | PlacementStep::ReleaseLease(shard, _)
                if self
                    .retry
                    .get(&shard)
                    .is_some_and(|at| Instant::now() < *at) => {}
            PlacementStep::ReleaseLease(shard, lease) => {
                // The end of a move that is in progress causes the next reconciliation.
                if self.moving.insert(shard) {
                    self.moves
                        .spawn(release_lease(Arc::clone(&self.membership), shard, lease));
                }
            }
            PlacementStep::Acquire(shard, seen) => {
                if self.moving.insert(shard) {
                    let host = Arc::clone(&self.host);
                    let membership = Arc::clone(&self.membership);

                    // The log may have a later epoch than the lease, if the lease bucket was
                    // recreated.
                    let log_epoch = self.log_epochs.get(&shard).copied().unwrap_or_default();
                    // A new signal for each start: the one of the previous run stays true for ever.
                    let (sender, stopped) = watch::channel(false);
                    self.stops.insert(shard, sender);

                    self.moves.spawn(take(
                        host,
                        membership,
                        self.me.clone(),
                        shard,
                        seen,
                        log_epoch,
                        stopped,
                    ));
                }
            }
        }
    }

    /// Stops a shard. Announces the release of the lease if this pod still owns the record.
    fn stop(&mut self, shard: u16, grace: Duration, lease: Option<ShardLease>) {
        if self.owned.remove(&shard).is_some() && self.moving.insert(shard) {
            // With grace, in-flight work commits; without, nothing of it may be committed here any
            // more, so its requests to the log end at once.
            if grace.is_zero()
                && let Some(stop) = self.stops.get(&shard)
            {
                stop.send_replace(true);
            }

            let host = Arc::clone(&self.host);
            let membership = Arc::clone(&self.membership);
            self.moves
                .spawn(release(host, membership, shard, grace, lease));
        }
    }

    fn handle_move(&mut self, result: MoveResult) {
        let (MoveResult::Acquired(shard, _)
        | MoveResult::NotAcquired(shard, _)
        | MoveResult::Released(shard)) = &result;
        let shard = *shard;
        self.moving.remove(&shard);
        // Each result ends the delay of the previous one; a failure starts the next delay below.
        self.retry.remove(&shard);

        match result {
            MoveResult::Acquired(shard, lease) => {
                self.owned.insert(shard, lease);
                self.start_failures.remove(&shard);
                if let Some(mut retries) = self.start_retries.remove(&shard) {
                    retries.succeeded(|failures| {
                        tracing::info!(shard, failures, "shard start succeeded after failures");
                    });
                }
                // The lease of the pod ended during the start, and with it the log of the shard: it
                // starts again.
                if self.stops.get(&shard).is_some_and(|stop| *stop.borrow()) {
                    self.stop(shard, Duration::ZERO, Some(lease));
                }
            }
            MoveResult::NotAcquired(shard, obstacle) => {
                self.retry.insert(shard, Instant::now() + RETRY);
                self.note_obstacle(shard, obstacle);
            }
            MoveResult::Released(_) => {}
        }
    }

    /// Notes why a shard was not acquired.
    fn note_obstacle(&mut self, shard: u16, obstacle: Obstacle) {
        let retries = self.start_retries.entry(shard).or_default();
        match obstacle {
            // The shard runs on another pod, so earlier failures of this pod no longer matter.
            Obstacle::OtherOwner => {
                self.start_failures.remove(&shard);
                self.start_retries.remove(&shard);
            }
            Obstacle::LaterEpoch(epoch) => {
                retries.failed(|failures| {
                    tracing::warn!(
                        shard,
                        epoch,
                        failures,
                        "shard log has a later epoch; retrying"
                    );
                });
                // The next acquisition takes an epoch after this one.
                self.log_epochs.insert(shard, epoch);
            }
            // Without a lease, a start in progress was stopped.
            Obstacle::Failure(_) if self.lease_end.is_none() => {}
            Obstacle::Failure(error) => {
                // The first failure is logged, also if the shard had another obstacle before.
                if !self.start_failures.contains_key(&shard) {
                    *retries = RetryLog::default();
                }
                retries.failed(|failures| {
                    tracing::error!(shard, error, failures, "shard start failed; retrying");
                });
                self.start_failures.insert(shard, error);
            }
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

            // With the lease, the release is announced: other pods acquire the shard without
            // waiting for the departure of this pod.
            for (shard, lease) in self.owned.clone() {
                self.stop(shard, Duration::ZERO, Some(lease));
            }

            // A start that ends here may have acquired its shard, which `handle_move` or the next
            // iteration stops.
            match self.moves.join_next().await {
                Some(moved) => self.handle_move(moved.expect("a move does not panic")),
                None => break,
            }
        }

        // After all shards have stopped: other pods acquire them as soon as they receive this.
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

        // The stores close in these tasks, which the end of the process would interrupt.
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
    use parking_lot::Mutex;
    use uuid::Uuid;

    use super::*;
    use crate::config::{ClusterConfig, ClusterMode, Config};

    const SHARDS: u16 = 2;
    const TTL: Duration = Duration::from_secs(4);
    const WAIT: Duration = Duration::from_mins(1);

    /// Servers that respond to the first heartbeats only.
    struct SilentServers {
        view: watch::Sender<Arc<ClusterView>>,
        /// Number of heartbeats with a response.
        responses: usize,
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
            if self.started.fetch_add(1, Ordering::SeqCst) >= self.responses {
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
        started: AtomicUsize,
        /// A start lasts until it is stopped.
        is_slow: bool,
        /// Why no shard starts.
        failure: Mutex<Option<&'static str>>,
        /// Number of failed starts.
        failed: watch::Sender<usize>,
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
            if let Some(failure) = *self.failure.lock() {
                self.failed.send_modify(|failed| *failed += 1);
                // The texts of repeated failures can differ.
                anyhow::bail!("{failure} ({})", Uuid::new_v4());
            }
            self.running.send_modify(|running| *running += 1);
            self.started.fetch_add(1, Ordering::SeqCst);
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

    fn pod() -> Pod {
        Pod {
            name: "a".to_owned(),
            incarnation: Uuid::new_v4(),
            url: String::new(),
            draining: false,
            node_keys: Vec::new(),
        }
    }

    fn view_of(pod: &Pod) -> Arc<ClusterView> {
        Arc::new(ClusterView {
            pods: BTreeMap::from([(pod.name.clone(), pod.clone())]),
            shards: BTreeMap::new(),
            current: true,
        })
    }

    fn counting_host(is_slow: bool, failure: Option<&'static str>) -> Arc<CountingHost> {
        let cluster = ClusterConfig {
            mode: ClusterMode::Leases,
            lease_ttl: TTL,
            ..ClusterConfig::default()
        };
        Arc::new(CountingHost {
            config: Config {
                cluster,
                shards: SHARDS,
                ..Config::default()
            },
            running: watch::Sender::new(0),
            started: AtomicUsize::new(0),
            is_slow,
            failure: Mutex::new(failure),
            failed: watch::Sender::new(0),
        })
    }

    /// Servers whose responses are so rare that each lease expires.
    struct SlowServers {
        view: watch::Sender<Arc<ClusterView>>,
        answered: Mutex<Option<Instant>>,
        /// Heartbeats of a pod that acquires no shards.
        declined: AtomicUsize,
    }

    #[async_trait]
    impl Membership for SlowServers {
        fn view(&self) -> watch::Receiver<Arc<ClusterView>> {
            self.view.subscribe()
        }

        async fn announce(&self, pod: &Pod) -> Result<bool, orlog_bus::Error> {
            let is_due = {
                let mut answered = self.answered.lock();
                let is_due = answered.is_none_or(|at| at.elapsed() > TTL * 3 / 2);
                if is_due {
                    *answered = Some(Instant::now());
                }
                is_due
            };
            if !is_due {
                std::future::pending::<()>().await;
            }
            self.declined
                .fetch_add(usize::from(pod.draining), Ordering::SeqCst);
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

    #[tokio::test(start_paused = true)]
    async fn pod_whose_lease_expires_repeatedly_leaves_its_shards_to_other_pods() {
        let me = pod();
        let servers = Arc::new(SlowServers {
            view: watch::Sender::new(view_of(&me)),
            answered: Mutex::default(),
            declined: AtomicUsize::new(0),
        });
        let counting = counting_host(false, None);
        let host: Arc<dyn ShardHost> = Arc::<CountingHost>::clone(&counting);
        let membership: Arc<dyn Membership> = Arc::<SlowServers>::clone(&servers);
        let (_orders, ordered) = watch::channel(ControllerCommand::Run);
        let (status, _) = watch::channel(ControllerStatus::default());
        let controller =
            tokio::spawn(ShardController::new(&host, membership, me, ordered, status).run());

        let eight_minutes = Duration::from_mins(8);
        let ended = tokio::time::timeout(eight_minutes, controller).await;
        assert!(ended.is_err(), "the controller ended");
        // Without the delays, about 80 starts of each shard.
        let starts = counting.started.load(Ordering::SeqCst) / usize::from(SHARDS);
        assert!((3..=16).contains(&starts), "{starts} starts");
        assert!(servers.declined.load(Ordering::SeqCst) > 0);
    }

    /// A running controller with its host and servers.
    struct Fixture {
        host: Arc<CountingHost>,
        ended_heartbeats: Arc<AtomicUsize>,
        status: watch::Receiver<ControllerStatus>,
        controller: tokio::task::JoinHandle<()>,
        orders: watch::Sender<ControllerCommand>,
    }

    impl Fixture {
        fn start(responses: usize, is_slow: bool, failure: Option<&'static str>) -> Self {
            let me = pod();
            let ended_heartbeats = Arc::new(AtomicUsize::new(0));
            let servers = Arc::new(SilentServers {
                view: watch::Sender::new(view_of(&me)),
                responses,
                started: AtomicUsize::new(0),
                ended: Arc::clone(&ended_heartbeats),
            });
            let host = counting_host(is_slow, failure);
            let (orders, ordered) = watch::channel(ControllerCommand::Run);
            let (sender, status) = watch::channel(ControllerStatus::default());
            let shard_host: Arc<dyn ShardHost> = Arc::<CountingHost>::clone(&host);
            let controller = ShardController::new(&shard_host, servers, me, ordered, sender);
            Self {
                host,
                ended_heartbeats,
                status,
                controller: tokio::spawn(controller.run()),
                orders,
            }
        }

        async fn until_running(&self, count: usize) {
            let mut running = self.host.running.subscribe();
            let reached = running.wait_for(|running| *running == count);
            tokio::time::timeout(WAIT, reached)
                .await
                .expect("the shards start or stop")
                .expect("the host is alive");
        }

        async fn until_status(&mut self, is_reached: impl FnMut(&ControllerStatus) -> bool) {
            tokio::time::timeout(WAIT, self.status.wait_for(is_reached))
                .await
                .expect("the status changes")
                .expect("the controller is alive");
        }
    }

    async fn check_end_of_lease(is_slow: bool) {
        let fixture = Fixture::start(1, is_slow, None);
        fixture.until_running(usize::from(SHARDS)).await;
        fixture.until_running(0).await;
        // The first heartbeat succeeded, the second one timed out, and the third one still waits.
        let ended = fixture.ended_heartbeats.load(Ordering::SeqCst);
        assert!(
            ended <= 2,
            "the shards stopped only after heartbeat {ended} ended"
        );
        fixture.controller.abort();
    }

    #[tokio::test]
    async fn controller_without_an_owner_stops_its_shards_and_ends() {
        let fixture = Fixture::start(usize::MAX, false, None);
        fixture.until_running(usize::from(SHARDS)).await;
        drop(fixture.orders);
        tokio::time::timeout(WAIT, fixture.controller)
            .await
            .expect("the controller ends")
            .expect("the controller does not panic");
        assert_eq!(*fixture.host.running.borrow(), 0);
    }

    /// Requirements: R16.
    #[tokio::test]
    async fn status_contains_why_a_shard_does_not_start_until_it_runs() {
        let mut fixture = Fixture::start(usize::MAX, false, Some("the log is full"));
        let has_failures = |status: &ControllerStatus| {
            let failures: Vec<&str> = status.start_failures.values().map(String::as_str).collect();
            failures.len() == usize::from(SHARDS)
                && failures
                    .iter()
                    .all(|failure| failure.starts_with("the log is full"))
        };
        fixture.until_status(has_failures).await;
        *fixture.host.failure.lock() = None;
        fixture
            .until_status(|status| status.start_failures.is_empty())
            .await;
        fixture.until_running(usize::from(SHARDS)).await;
        fixture.controller.abort();
    }

    #[tokio::test(start_paused = true)]
    async fn repeated_failures_of_a_start_are_logged_once() {
        let log = Arc::new(Mutex::new(Vec::new()));
        let writer = Arc::clone(&log);
        let subscriber = tracing_subscriber::fmt()
            .with_writer(move || LogWriter(Arc::clone(&writer)))
            .with_ansi(false)
            .finish();
        let _guard = tracing::subscriber::set_default(subscriber);
        let lines = |text: &str| {
            let log = String::from_utf8(log.lock().clone()).unwrap();
            log.lines().filter(|line| line.contains(text)).count()
        };

        let fixture = Fixture::start(usize::MAX, false, Some("the log is full"));
        let mut failed = fixture.host.failed.subscribe();
        failed.wait_for(|failed| *failed >= 100).await.unwrap();
        assert_eq!(lines("shard start failed"), usize::from(SHARDS));

        *fixture.host.failure.lock() = None;
        fixture.until_running(usize::from(SHARDS)).await;
        let ended = "shard start succeeded after failures";
        tokio::time::timeout(WAIT, async {
            while lines(ended) < usize::from(SHARDS) {
                tokio::task::yield_now().await;
            }
        })
        .await
        .expect("each shard logs the end of its failures");
        fixture.controller.abort();
    }

    /// Buffer of log lines.
    struct LogWriter(Arc<Mutex<Vec<u8>>>);

    impl std::io::Write for LogWriter {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0.lock().extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    /// Requirements: R16.
    #[tokio::test]
    async fn status_contains_why_the_pod_has_no_lease() {
        let mut fixture = Fixture::start(1, false, None);
        fixture.until_running(usize::from(SHARDS)).await;
        assert_eq!(fixture.status.borrow().lease_failure, None);
        let is_expired = |status: &ControllerStatus| {
            status.lease_failure.as_deref() == Some("no response within 2s")
        };
        fixture.until_status(is_expired).await;
        fixture.until_running(0).await;
        fixture.controller.abort();
    }
}
