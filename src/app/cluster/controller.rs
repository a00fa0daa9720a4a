//! Keeps the shards that belong to this pod running here, and no others.
//!
//! One task, which waits for whatever comes first: time to say that this pod is there, a change of what is known, the end
//! of a move, the loss of a shard, an order. After each it compares what runs with what should, and begins what is missing.
//!
//! A pod that was not heard for as long as it counts as alive stops its shards by itself: others may run them by now. That
//! they could not commit any more is the log's affair; this keeps their effects from going on.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use orlog_actors::placement::{self, Rule, Step};
use orlog_bus::membership::{Membership, Pod, View};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{Instant, MissedTickBehavior};

use super::host::{Host, rule};

/// Before a shard that could not be taken is tried again.
const RETRY: Duration = Duration::from_millis(250);

/// A shard that has not started by then is let go and tried again, so that this is seen.
const PATIENCE: Duration = Duration::from_mins(1);

/// What the pod is to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Order {
    Run,
    /// Hand over what others can take, and take nothing.
    HandOver,
    /// Stop what is left, and end.
    Leave,
}

/// How far a pod that hands over has come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Rest {
    handing_over: bool,
    here: usize,
    /// There is somebody to take them.
    wanted: bool,
}

impl Rest {
    /// Nothing is here that anybody would take.
    pub(super) fn is_over(self) -> bool {
        self.handing_over && (self.here == 0 || !self.wanted)
    }
}

/// How a move ended.
#[derive(Clone, Copy)]
enum Moved {
    Taken(u16, u64),
    /// It runs elsewhere, or it could not be started; the next look tells.
    Missed(u16),
    Released(u16),
}

pub(super) struct Keeper {
    host: Arc<dyn Host>,
    membership: Arc<dyn Membership>,
    me: Pod,
    rule: Rule,
    /// The shards that run here, and the numbers of their records.
    held: BTreeMap<u16, u64>,
    /// Those on their way here or away.
    moving: BTreeSet<u16>,
    moves: JoinSet<Moved>,
    retry: BTreeMap<u16, Instant>,
    /// When the last announcement was begun that was heard.
    heard: Option<Instant>,
    orders: watch::Receiver<Order>,
    shown: watch::Sender<Rest>,
}

impl Keeper {
    pub(super) fn new(
        host: &Arc<dyn Host>,
        membership: Arc<dyn Membership>,
        me: Pod,
        orders: watch::Receiver<Order>,
        shown: watch::Sender<Rest>,
    ) -> Self {
        Self {
            host: Arc::clone(host),
            membership,
            me,
            rule: rule(host.config()),
            held: BTreeMap::new(),
            moving: BTreeSet::new(),
            moves: JoinSet::new(),
            retry: BTreeMap::new(),
            heard: None,
            orders,
            shown,
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
                Some(shard) = host.runtime().lost() => drop(self.held.remove(&shard)),
                _ = view.changed() => {}
            }
            let order = *self.orders.borrow_and_update();
            if order == Order::Leave {
                return self.leave().await;
            }
            self.me.draining = order == Order::HandOver;
            if beats && !self.announce().await {
                return self.give_up().await;
            }
            let view = Arc::clone(&view.borrow_and_update());
            self.look(&view);
        }
    }

    fn ttl(&self) -> Duration {
        self.host.config().cluster.ttl
    }

    /// `false` when another process goes by this name.
    async fn announce(&mut self) -> bool {
        let begun = Instant::now();
        match tokio::time::timeout(self.ttl() / 2, self.membership.announce(&self.me)).await {
            Ok(Ok(true)) => self.heard = Some(begun),
            Ok(Ok(false)) => return false,
            Ok(Err(error)) => tracing::warn!(%error, "this pod could not say that it is there"),
            Err(_) => tracing::warn!("this pod could not say that it is there: no answer"),
        }
        true
    }

    /// Compares what runs here with what should.
    fn look(&mut self, view: &View) {
        if self.heard.is_none_or(|heard| heard.elapsed() >= self.ttl()) {
            self.suspend();
        } else if view.current {
            self.drop_taken(view);
            let held: Vec<u16> = self.held.keys().copied().collect();
            for step in placement::steps(view, &self.me, &held, self.host.config().shards, self.rule) {
                self.begin(step);
            }
        }
        let assigned = placement::assignment(view, self.host.config().shards, self.rule);
        let elsewhere = |shard: &u16| assigned.get(shard).is_some_and(|pod| *pod != self.me.name);
        let wanted = !self.moving.is_empty() || self.held.keys().any(elsewhere);
        let here = self.held.len() + self.moving.len();
        self.shown.send_replace(Rest { handing_over: self.me.draining, here, wanted });
    }

    /// Not heard for too long: others may run these shards by now.
    fn suspend(&mut self) {
        if !self.held.is_empty() {
            let shards: Vec<u16> = self.held.keys().copied().collect();
            tracing::warn!(?shards, "this pod was not heard for too long; it stops its shards");
            for shard in shards {
                self.stop(shard, Duration::ZERO, None);
            }
        }
    }

    /// Stops what another pod has taken although it runs here.
    fn drop_taken(&mut self, view: &View) {
        let taken =
            |shard: &u16, epoch: &u64| view.shards.get(shard).is_some_and(|holding| holding.epoch > *epoch);
        let taken: Vec<u16> =
            self.held.iter().filter(|(s, e)| taken(s, e)).map(|(shard, _)| *shard).collect();
        for shard in taken {
            tracing::warn!(shard, "another pod has taken this shard");
            self.stop(shard, Duration::ZERO, None);
        }
    }

    fn begin(&mut self, step: Step) {
        match step {
            Step::LetGo(shard) => {
                let epoch = self.held.get(&shard).copied();
                self.stop(shard, self.host.config().cluster.handover, epoch);
            }
            Step::Take(shard, _) if self.retry.get(&shard).is_some_and(|at| Instant::now() < *at) => {}
            Step::Take(shard, seen) => {
                if self.moving.insert(shard) {
                    let (host, membership) = (Arc::clone(&self.host), Arc::clone(&self.membership));
                    self.moves.spawn(take(host, membership, self.me.clone(), shard, seen));
                }
            }
        }
    }

    /// Stops a shard, and says so under `epoch`, where it is still this pod's to say.
    fn stop(&mut self, shard: u16, grace: Duration, epoch: Option<u64>) {
        if self.held.remove(&shard).is_some() && self.moving.insert(shard) {
            let (host, membership) = (Arc::clone(&self.host), Arc::clone(&self.membership));
            self.moves.spawn(release(host, membership, shard, grace, epoch));
        }
    }

    fn moved(&mut self, moved: Moved) {
        let (Moved::Taken(shard, _) | Moved::Missed(shard) | Moved::Released(shard)) = moved;
        self.moving.remove(&shard);
        self.retry.remove(&shard);
        match moved {
            Moved::Taken(shard, epoch) => drop(self.held.insert(shard, epoch)),
            Moved::Missed(shard) => drop(self.retry.insert(shard, Instant::now() + RETRY)),
            Moved::Released(_) => {}
        }
    }

    async fn leave(mut self) {
        while let Some(moved) = self.moves.join_next().await {
            self.moved(moved.expect("a move does not panic"));
        }
        for (shard, epoch) in std::mem::take(&mut self.held) {
            let (host, membership) = (Arc::clone(&self.host), Arc::clone(&self.membership));
            release(host, membership, shard, Duration::ZERO, Some(epoch)).await;
        }
        if let Err(error) = self.membership.withdraw(&self.me).await {
            tracing::warn!(%error, "the others find out by themselves that this pod is gone");
        }
    }

    /// Another process goes by this name: it is the younger one, and stays.
    async fn give_up(mut self) {
        let name = &self.me.name;
        tracing::error!(
            name,
            "another process goes by this name; this one ends: give each pod a name of its own (`node`)"
        );
        self.suspend();
        while self.moves.join_next().await.is_some() {}
        self.host.runtime().root().stop(Some("another process goes by this name".to_owned()));
    }
}

async fn take(host: Arc<dyn Host>, membership: Arc<dyn Membership>, me: Pod, shard: u16, seen: u64) -> Moved {
    let begun = Instant::now();
    let epoch = match membership.take(shard, &me, seen).await {
        Ok(Some(epoch)) => epoch,
        Ok(None) => return Moved::Missed(shard),
        Err(error) => {
            tracing::warn!(shard, %error, "a shard could not be taken; it is tried again");
            return Moved::Missed(shard);
        }
    };
    let started = tokio::time::timeout(PATIENCE, host.run_shard(shard, epoch)).await;
    match started.unwrap_or_else(|_| Err(anyhow::anyhow!("it did not start within {PATIENCE:?}"))) {
        Ok(()) => {
            let took_millis = u64::try_from(begun.elapsed().as_millis()).unwrap_or(u64::MAX);
            tracing::info!(shard, epoch, took_millis, "this pod runs the shard");
            Moved::Taken(shard, epoch)
        }
        Err(error) => {
            tracing::error!(
                shard,
                epoch,
                error = format!("{error:#}"),
                "the shard did not start; it is tried again"
            );
            // An error means that its record stays, and this pod takes it again.
            drop(membership.let_go(shard, epoch).await);
            Moved::Missed(shard)
        }
    }
}

async fn release(
    host: Arc<dyn Host>,
    membership: Arc<dyn Membership>,
    shard: u16,
    grace: Duration,
    epoch: Option<u64>,
) -> Moved {
    let released = host.runtime().release(shard, grace).await;
    // Nothing is committed here any more; closing the files may take longer than others should wait.
    if let Some(epoch) = epoch
        && let Err(error) = membership.let_go(shard, epoch).await
    {
        tracing::warn!(shard, %error, "the others find out by themselves that this shard was let go");
    }
    if let Some(released) = released
        && let Err(error) = released.close().await
    {
        tracing::warn!(shard, %error, "the store of a shard that was let go did not close in good order");
    }
    tracing::info!(shard, "this pod does not run the shard any more");
    Moved::Released(shard)
}
