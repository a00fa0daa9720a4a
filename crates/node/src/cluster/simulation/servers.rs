//! Simulated servers: the bucket of the leases, the logs of the shards, and the links of the pods.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use fastrand::Rng;
use orlog_bus::Error;
use orlog_bus::membership::{ClusterView, Membership, Pod, ShardLease, ShardOwnership};
use parking_lot::{Mutex, MutexGuard};
use tokio::sync::watch;
use tokio::time::Instant;

use super::{SHARDS, TTL};

/// Time after which a client gives up a request without a response.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(5);
/// Upper limit of the epoch of a log at the start.
const MAX_FIRST_EPOCH: u64 = 10_000;

/// Request of a pod to the upstream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Request {
    pub(super) shard: u16,
    pub(super) work: String,
    pub(super) pod: String,
    pub(super) epoch: u64,
    pub(super) millis: u128,
}

/// Log of a shard. Its last epoch is that of the owner.
#[derive(Default)]
pub(super) struct ShardLog {
    pub(super) epoch: u64,
    /// Number of the last claim. It fences also an owner of the same epoch.
    pub(super) claims: u64,
    /// Time of the last claim.
    pub(super) claimed_at: Option<Instant>,
    /// Epochs of the leases in a bucket that was lost, from that of the owner to that of the last
    /// start. Their owners are unknown to the others.
    lost_epochs: Option<RangeInclusive<u64>>,
    /// Applied events in order.
    pub(super) committed: Vec<u64>,
    /// Number of events that the stream of the shard accepted.
    pub(super) accepted: u64,
}

/// State of the simulated world.
pub(super) struct State {
    pub(super) rng: Rng,
    started_at: Instant,
    sequence: u64,
    pods: BTreeMap<String, (u64, Pod, Instant)>,
    shards: BTreeMap<u16, ShardOwnership>,
    pub(super) logs: Vec<ShardLog>,
    /// End of the partition of a pod, or of the election of a leader.
    cut_until: BTreeMap<String, Instant>,
    pub(super) is_healed: bool,
    /// Whether an owner that was starting when the bucket of the leases was lost is excused as well.
    pub(super) excuses_starts: bool,
    /// Whether a lease ignores the epoch of the log.
    pub(super) epochs_fall_back: bool,
    pub(super) requests: Vec<Request>,
    pub(super) violations: Vec<String>,
    pub(super) faults: BTreeMap<&'static str, u64>,
    pub(super) takeovers: u64,
}

pub(super) struct Servers(Mutex<State>);

impl Servers {
    pub(super) fn new(seed: u64) -> Arc<Self> {
        let mut rng = Rng::with_seed(seed);
        // A log can have epochs of an earlier lease bucket.
        let logs = (0..SHARDS).map(|_| ShardLog {
            epoch: rng.u64(..MAX_FIRST_EPOCH),
            ..ShardLog::default()
        });
        let logs = logs.collect();
        Arc::new(Self(Mutex::new(State {
            rng,
            started_at: Instant::now(),
            sequence: 0,
            pods: BTreeMap::new(),
            shards: BTreeMap::new(),
            logs,
            cut_until: BTreeMap::new(),
            is_healed: false,
            epochs_fall_back: false,
            excuses_starts: false,
            requests: Vec::new(),
            violations: Vec::new(),
            faults: BTreeMap::new(),
            takeovers: 0,
        })))
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock()
    }

    /// Waits until a random time up to `max` has passed.
    pub(super) async fn pause(&self, max: Duration) {
        let millis = self
            .lock()
            .rng
            .u64(1..=u64::try_from(max.as_millis()).expect("a short time"));
        tokio::time::sleep(Duration::from_millis(millis)).await;
    }

    /// Sends a request of a pod; returns whether its response will be lost.
    pub(super) async fn send(&self, pod: &str) -> Result<bool, Error> {
        self.pause(Duration::from_millis(60)).await;
        if self.lock().is_cut(pod) {
            tokio::time::sleep(REQUEST_TIMEOUT).await;
            return Err(no_response());
        }
        let mut state = self.lock();
        let is_lost = !state.is_healed && state.rng.u8(..100) < 5;
        if is_lost {
            state.count("lost response");
        }
        Ok(is_lost)
    }

    /// Waits for the response to a request.
    async fn receive<T>(&self, pod: &str, is_lost: bool, response: T) -> Result<T, Error> {
        self.pause(Duration::from_millis(60)).await;
        if is_lost || self.lock().is_cut(pod) {
            tokio::time::sleep(REQUEST_TIMEOUT).await;
            return Err(no_response());
        }
        Ok(response)
    }
}

impl State {
    pub(super) fn count(&mut self, fault: &'static str) {
        *self.faults.entry(fault).or_default() += 1;
    }

    pub(super) fn cut(&mut self, pod: &str, duration: Duration) {
        self.cut_until
            .insert(pod.to_owned(), Instant::now() + duration);
    }

    pub(super) fn is_cut(&self, pod: &str) -> bool {
        self.cut_until
            .get(pod)
            .is_some_and(|end| Instant::now() < *end)
    }

    pub(super) fn heal(&mut self) {
        self.is_healed = true;
        self.cut_until.clear();
    }

    /// Loses the bucket of the leases; an empty one replaces it.
    pub(super) fn recreate_bucket(&mut self) {
        self.sequence = 0;
        for (shard, log) in (0..).zip(&mut self.logs) {
            // The owner of a lease may still be starting the shard.
            let record = self.shards.get(&shard).filter(|_| self.excuses_starts);
            let leased = record.map_or(0, |record| record.lease.epoch);
            log.lost_epochs = Some(log.epoch..=log.epoch.max(leased));
        }
        self.pods.clear();
        self.shards.clear();
    }

    /// Records that the log of a shard is claimed in this epoch: its former owner is fenced.
    pub(super) fn claim(&mut self, shard: u16, epoch: u64) -> u64 {
        let log = &mut self.logs[usize::from(shard)];
        (log.epoch, log.claims, log.claimed_at) = (epoch, log.claims + 1, Some(Instant::now()));
        self.takeovers += 1;
        log.claims
    }

    fn next(&mut self) -> u64 {
        self.sequence += 1;
        self.sequence
    }

    pub(super) fn view(&mut self) -> ClusterView {
        let now = Instant::now();
        self.pods.retain(|_, (_, _, end)| now < *end);
        let pods = self
            .pods
            .iter()
            .map(|(name, (_, pod, _))| (name.clone(), pod.clone()))
            .collect();
        ClusterView {
            pods,
            shards: self.shards.clone(),
            current: true,
        }
    }

    /// Records a request to the upstream. No former owner may begin one. If the bucket of the leases is lost,
    /// its owners are unknown to the others: they may continue for a time to live after a takeover.
    pub(super) fn perform(&mut self, shard: u16, work: &str, pod: &str, epoch: u64) {
        let log = &self.logs[usize::from(shard)];
        let current = log.epoch;
        let lost_epochs = log.lost_epochs.as_ref();
        let is_excused = lost_epochs.is_some_and(|epochs| epochs.contains(&epoch))
            && log
                .claimed_at
                .is_some_and(|claimed_at| claimed_at.elapsed() <= TTL);
        let millis = self.started_at.elapsed().as_millis();
        if current > epoch && !is_excused {
            self.violations.push(format!(
                "{millis} ms: {pod} began an attempt for {work} of shard {shard} in epoch \
                 {epoch}, but the epoch is {current}, claimed {:?} ago; epochs of a lost \
                 bucket: {:?}",
                log.claimed_at.map(|claimed_at| claimed_at.elapsed()),
                log.lost_epochs
            ));
        }
        self.requests.push(Request {
            shard,
            work: work.to_owned(),
            pod: pod.to_owned(),
            epoch,
            millis,
        });
    }
}

/// Connection of a pod to the servers.
pub(super) struct Connection {
    servers: Arc<Servers>,
    pod: String,
    announced: Mutex<Option<u64>>,
    view: watch::Sender<Arc<ClusterView>>,
}

impl Connection {
    pub(super) fn open(servers: &Arc<Servers>, pod: &str) -> Arc<Self> {
        let (servers, pod, announced) = (Arc::clone(servers), pod.to_owned(), Mutex::default());
        Arc::new(Self {
            servers,
            pod,
            announced,
            view: watch::Sender::default(),
        })
    }

    /// Delivers changes of the bucket.
    pub(super) async fn watch(self: Arc<Self>) {
        loop {
            self.servers.pause(Duration::from_millis(400)).await;
            let view = {
                let mut state = self.servers.lock();
                if state.is_cut(&self.pod) {
                    ClusterView {
                        current: false,
                        ..ClusterView::clone(&self.view.borrow())
                    }
                } else {
                    state.view()
                }
            };
            self.view.send_if_modified(|known| {
                let is_new = **known != view;
                if is_new {
                    *known = Arc::new(view);
                }
                is_new
            });
        }
    }
}

#[async_trait]
impl Membership for Connection {
    fn view(&self) -> watch::Receiver<Arc<ClusterView>> {
        self.view.subscribe()
    }

    async fn announce(&self, pod: &Pod) -> Result<bool, Error> {
        let is_lost = self.servers.send(&self.pod).await?;
        let seen = *self.announced.lock();
        let stored = {
            let mut state = self.servers.lock();
            drop(state.view());
            let known = state.pods.get(&pod.name);
            let is_other = |(revision, known, _): &(u64, Pod, Instant)| {
                known.incarnation != pod.incarnation && seen.is_some_and(|seen| seen != *revision)
            };
            if known.is_some_and(is_other) {
                None
            } else {
                let revision = state.next();
                state.pods.insert(
                    pod.name.clone(),
                    (revision, pod.clone(), Instant::now() + TTL),
                );
                Some(revision)
            }
        };
        let stored = self.servers.receive(&self.pod, is_lost, stored).await?;
        *self.announced.lock() = stored.or(seen);
        Ok(stored.is_some())
    }

    async fn leave(&self, pod: &Pod) -> Result<(), Error> {
        let is_lost = self.servers.send(&self.pod).await?;
        drop(self.servers.lock().pods.remove(&pod.name));
        self.servers.receive(&self.pod, is_lost, ()).await
    }

    async fn acquire(
        &self,
        shard: u16,
        pod: &Pod,
        seen: ShardLease,
        log_epoch: u64,
    ) -> Result<Option<ShardLease>, Error> {
        let is_lost = self.servers.send(&self.pod).await?;
        let lease = {
            let mut state = self.servers.lock();
            let revision = state
                .shards
                .get(&shard)
                .map_or(0, |record| record.lease.revision);
            (revision == seen.revision).then(|| {
                let log_epoch = if state.epochs_fall_back { 0 } else { log_epoch };
                let lease = ShardLease {
                    epoch: seen.epoch.max(log_epoch) + 1,
                    revision: state.next(),
                };
                let owner = Some((pod.name.clone(), pod.incarnation));
                state.shards.insert(shard, ShardOwnership { owner, lease });
                lease
            })
        };
        self.servers.receive(&self.pod, is_lost, lease).await
    }

    async fn release(&self, shard: u16, lease: ShardLease) -> Result<(), Error> {
        let is_lost = self.servers.send(&self.pod).await?;
        {
            let mut state = self.servers.lock();
            if state
                .shards
                .get(&shard)
                .is_some_and(|record| record.lease.revision == lease.revision)
            {
                let lease = ShardLease {
                    revision: state.next(),
                    ..lease
                };
                state
                    .shards
                    .insert(shard, ShardOwnership { owner: None, lease });
            }
        }
        self.servers.receive(&self.pod, is_lost, ()).await
    }
}

fn no_response() -> Error {
    Error::Unavailable("no response".to_owned())
}
