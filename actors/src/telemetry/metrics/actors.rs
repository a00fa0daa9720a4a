//! Gauges of live actors and their queued messages.

use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;

use super::sink::{Labels1, MetricSink};

/// Kinds of actors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ActorKind {
    Root,
    Effects,
    Provider,
    Publisher,
    Shard,
    Committer,
    Relay,
    Timer,
    Ingester,
    DeadLetterPublisher,
    Saga,
    WorkerSupervisor,
    WorkerGroup,
}

impl ActorKind {
    const ALL: [ActorKind; 13] = [
        ActorKind::Root,
        ActorKind::Effects,
        ActorKind::Provider,
        ActorKind::Publisher,
        ActorKind::Shard,
        ActorKind::Committer,
        ActorKind::Relay,
        ActorKind::Timer,
        ActorKind::Ingester,
        ActorKind::DeadLetterPublisher,
        ActorKind::Saga,
        ActorKind::WorkerSupervisor,
        ActorKind::WorkerGroup,
    ];

    /// Returns the name for logs and metrics.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            ActorKind::Root => "root",
            ActorKind::Effects => "effects",
            ActorKind::Provider => "provider",
            ActorKind::Publisher => "publisher",
            ActorKind::Shard => "shard",
            ActorKind::Committer => "committer",
            ActorKind::Relay => "relay",
            ActorKind::Timer => "timer",
            ActorKind::Ingester => "ingester",
            ActorKind::DeadLetterPublisher => "dead_letter_publisher",
            ActorKind::Saga => "saga",
            ActorKind::WorkerSupervisor => "worker_supervisor",
            ActorKind::WorkerGroup => "worker_group",
        }
    }
}

/// Cached gauges of all actor kinds.
#[derive(Debug)]
pub(super) struct ActorGauges {
    live: Family<Labels1, Gauge>,
    waiting: Family<Labels1, Gauge>,
    /// In the order of [`ActorKind::ALL`].
    by_kind: [(Gauge, Gauge); ActorKind::ALL.len()],
}

/// Actor kinds whose messages are counted when sent, and the two whose mailbox depth is sampled. All
/// other kinds receive lifecycle messages only.
const COUNTED_KINDS: [ActorKind; 6] = [
    ActorKind::Relay,
    ActorKind::Timer,
    ActorKind::Provider,
    ActorKind::Publisher,
    ActorKind::Saga,
    ActorKind::Committer,
];

impl Default for ActorGauges {
    fn default() -> Self {
        let (live, waiting) = (Family::<Labels1, Gauge>::default(), Family::<Labels1, Gauge>::default());
        let by_kind = ActorKind::ALL.map(|kind| {
            let label = [("kind", kind.as_str())];
            let depth = COUNTED_KINDS.contains(&kind).then(|| waiting.get_or_create(&label).clone());
            (live.get_or_create(&label).clone(), depth.unwrap_or_default())
        });
        Self { live, waiting, by_kind }
    }
}

impl ActorGauges {
    pub(super) fn register(&self, sink: &mut impl MetricSink) {
        sink.register("actors_live", self.live.clone());
        sink.register("mailbox_depth", self.waiting.clone());
    }

    pub(super) fn start(&self, kind: ActorKind) -> LiveActorGuard {
        let live = self.by_kind[kind as usize].0.clone();
        live.inc();
        LiveActorGuard(live)
    }

    pub(super) fn set_depth(&self, kind: ActorKind, messages: u64) {
        self.by_kind[kind as usize].1.set(i64::try_from(messages).unwrap_or(i64::MAX));
    }

    pub(super) fn wait(&self, kind: ActorKind, messages: usize) -> MailboxGuard {
        let waiting = self.by_kind[kind as usize].1.clone();
        let messages = i64::try_from(messages).unwrap_or(i64::MAX);
        waiting.inc_by(messages);
        MailboxGuard(waiting, messages)
    }
}

/// Guard in an actor's state that counts it as live.
#[derive(Debug)]
pub(crate) struct LiveActorGuard(Gauge);

impl Drop for LiveActorGuard {
    fn drop(&mut self) {
        self.0.dec();
    }
}

/// Guard that accompanies messages until they are received or their actor stops.
#[derive(Debug)]
pub(crate) struct MailboxGuard(Gauge, i64);

impl Drop for MailboxGuard {
    fn drop(&mut self) {
        self.0.dec_by(self.1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dropped_actors_are_not_counted() {
        let gauges = ActorGauges::default();
        let relay = gauges.start(ActorKind::Relay);
        let (one, three) = (gauges.wait(ActorKind::Relay, 1), gauges.wait(ActorKind::Relay, 3));
        let read = || {
            let label = [("kind", "relay")];
            (gauges.live.get_or_create(&label).get(), gauges.waiting.get_or_create(&label).get())
        };
        assert_eq!(read(), (1, 4));
        drop(three);
        assert_eq!(read(), (1, 1));
        drop((relay, one));
        assert_eq!(read(), (0, 0));
    }

    #[test]
    fn every_actor_kind_has_an_index() {
        for (index, kind) in ActorKind::ALL.into_iter().enumerate() {
            assert_eq!(kind as usize, index);
        }
    }
}
