//! Links of a simulated pod to the servers: the bus and the shard logs, which a partition cuts, and its clock.

use std::ops::ControlFlow;
use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use fastrand::Rng;
use orlog_bus::{
    Acker, Bus, Consumer, Delivery, Error as BusError, Message, PublishAck, ScanStart, StreamScan,
    Subscription, SubscriptionStart,
};
use orlog_model::{Clock, SteadyTime, Timestamp};
use orlog_store::{CommitLog, CommitLogError, LogEntry, LogPosition, Snapshot};
use orlog_testkit::memory_log::{AppendFault, MemoryLog};
use parking_lot::Mutex;
use tokio::time::Instant;
use uuid::Uuid;

use crate::cluster::simulation::servers::Servers;

/// Delay of a request that fails.
const BUS_TIMEOUT: Duration = Duration::from_secs(1);

/// State of the link of a pod. The store threads read it, so it does not depend on simulated time.
#[derive(Debug, Default)]
pub(super) struct Link {
    is_cut: AtomicBool,
}

impl Link {
    pub(super) fn set_cut(&self, is_cut: bool) {
        self.is_cut.store(is_cut, Ordering::SeqCst);
    }

    fn is_cut(&self) -> bool {
        self.is_cut.load(Ordering::SeqCst)
    }
}

/// Bus as one pod reaches it. Consumers have names of their own, because a former owner may still be subscribed.
pub(super) struct PodBus {
    pub(super) inner: Arc<dyn Bus>,
    pub(super) link: Arc<Link>,
    pub(super) servers: Arc<Servers>,
    /// Name of the process.
    pub(super) process: String,
}

impl PodBus {
    async fn check_link(&self) -> Result<(), BusError> {
        self.servers.pause(Duration::from_millis(60)).await;
        if self.link.is_cut() {
            tokio::time::sleep(BUS_TIMEOUT).await;
            return Err(unavailable());
        }
        Ok(())
    }
}

fn unavailable() -> BusError {
    BusError::Unavailable("no response".to_owned())
}

#[async_trait]
impl Bus for PodBus {
    fn stream_id(&self) -> Uuid {
        self.inner.stream_id()
    }

    async fn publish(&self, messages: Vec<Arc<Message>>) -> Result<Vec<PublishAck>, BusError> {
        self.check_link().await?;
        let acks = self.inner.publish(messages).await?;
        self.check_link().await?;
        Ok(acks)
    }

    async fn subscribe(&self, subscription: Subscription) -> Result<Box<dyn Consumer>, BusError> {
        self.check_link().await?;
        let name = format!("{}-{}", self.process, subscription.name);
        let inner = self
            .inner
            .subscribe(Subscription {
                name,
                ..subscription
            })
            .await?;
        Ok(Box::new(PodConsumer {
            inner,
            link: Arc::clone(&self.link),
        }))
    }

    async fn scan(
        &self,
        filters: Vec<String>,
        since: ScanStart,
    ) -> Result<Box<dyn StreamScan>, BusError> {
        self.check_link().await?;
        self.inner.scan(filters, since).await
    }

    async fn last_sequence(&self) -> Result<u64, BusError> {
        self.check_link().await?;
        self.inner.last_sequence().await
    }
}

struct PodConsumer {
    inner: Box<dyn Consumer>,
    link: Arc<Link>,
}

#[async_trait]
impl Consumer for PodConsumer {
    async fn next(&mut self, max: usize) -> Result<Vec<Delivery>, BusError> {
        let deliveries = self.inner.next(max).await?;
        if self.link.is_cut() {
            tokio::time::sleep(BUS_TIMEOUT).await;
            return Err(unavailable());
        }
        Ok(deliveries)
    }

    fn subscription_start(&self) -> &SubscriptionStart {
        self.inner.subscription_start()
    }

    fn acker(&self) -> Arc<dyn Acker> {
        self.inner.acker()
    }
}

/// Log of a shard as one owner reaches it: it loses entries and acknowledgements.
#[derive(Debug)]
pub(super) struct OwnerLog {
    pub(super) client: MemoryLog,
    pub(super) link: Arc<Link>,
    /// Whether the owner must stop.
    pub(super) stopped: Arc<AtomicBool>,
    pub(super) rng: Mutex<Rng>,
    /// Percentage of appends with a fault.
    pub(super) faults: u8,
}

impl OwnerLog {
    fn reach(&self) -> Result<&MemoryLog, CommitLogError> {
        if self.link.is_cut() || self.stopped.load(Ordering::SeqCst) {
            return Err(CommitLogError::Unavailable("no response".to_owned()));
        }
        Ok(&self.client)
    }
}

impl CommitLog for OwnerLog {
    fn identity(&self) -> Result<[u8; 16], CommitLogError> {
        self.reach()?.identity()
    }

    fn max_entry_bytes(&self) -> usize {
        self.client.max_entry_bytes()
    }

    fn append(&self, after: Option<u64>, entry: &Bytes) -> Result<u64, CommitLogError> {
        let client = self.reach()?;
        {
            let mut rng = self.rng.lock();
            if rng.u8(..100) < self.faults {
                let faults = [AppendFault::Lost, AppendFault::AckLost, AppendFault::Late];
                client.inject_faults([faults[rng.usize(..faults.len())]]);
            }
        }
        client.append(after, entry)
    }

    fn last(&self) -> Result<Option<LogEntry>, CommitLogError> {
        self.reach()?.last()
    }

    fn read(
        &self,
        after: u64,
        visit: &mut dyn FnMut(LogEntry) -> ControlFlow<()>,
    ) -> Result<(), CommitLogError> {
        self.reach()?.read(after, visit)
    }

    fn purge_before(&self, number: u64) -> Result<(), CommitLogError> {
        self.reach()?.purge_before(number)
    }

    fn snapshots(&self) -> Result<Vec<Snapshot>, CommitLogError> {
        self.reach()?.snapshots()
    }

    fn save(&self, snapshot: &Snapshot, file: &Path) -> Result<(), CommitLogError> {
        self.reach()?.save(snapshot, file)
    }

    fn load(&self, snapshot: &Snapshot, file: &Path) -> Result<(), CommitLogError> {
        self.reach()?.load(snapshot, file)
    }

    fn delete_snapshot(&self, snapshot: &Snapshot) -> Result<(), CommitLogError> {
        self.reach()?.delete_snapshot(snapshot)
    }

    fn recorded_claim(&self) -> Result<Option<LogPosition>, CommitLogError> {
        self.reach()?.recorded_claim()
    }

    fn record_claim(&self, claim: &LogPosition) -> Result<(), CommitLogError> {
        self.reach()?.record_claim(claim)
    }
}

/// Clock of a pod: its rate differs from that of the simulated time, and its wall clock is set.
pub(super) struct PodClock {
    started_at: Instant,
    /// Milliseconds of this clock in 1,000 ms of simulated time.
    rate: i64,
    /// Wall-clock time at the start, in milliseconds.
    wall: AtomicI64,
}

impl PodClock {
    pub(super) fn new(started_at: Instant, rate: i64) -> Arc<Self> {
        Arc::new(Self {
            started_at,
            rate,
            wall: AtomicI64::new(1_700_000_000_000),
        })
    }

    /// Sets the wall clock forward, or back.
    pub(super) fn set(&self, millis: i64) {
        self.wall.fetch_add(millis, Ordering::SeqCst);
    }

    fn elapsed(&self) -> i64 {
        i64::try_from(self.started_at.elapsed().as_millis()).expect("a short run") * self.rate
            / 1_000
    }
}

impl Clock for PodClock {
    fn now(&self) -> Timestamp {
        Timestamp::from_millis(self.wall.load(Ordering::SeqCst) + self.elapsed())
    }

    fn steady(&self) -> SteadyTime {
        SteadyTime::from_millis(self.elapsed())
    }

    fn sleep_until(&self, at: SteadyTime) -> Pin<Box<dyn Future<Output = ()> + Send + '_>> {
        // A sleep without end would overflow.
        let left = (at.as_millis() - self.elapsed()).clamp(0, i64::from(u32::MAX));
        let left =
            Duration::from_millis(u64::try_from(left * 1_000 / self.rate + 1).expect("positive"));
        Box::pin(async move {
            if at > self.steady() {
                tokio::time::sleep(left).await;
            }
        })
    }
}
