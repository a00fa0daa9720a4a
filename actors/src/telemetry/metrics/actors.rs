//! Gauges of live actors and their queued messages.

use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use strum::VariantArray as _;

use super::sink::{Labels1, MetricSink};

/// Kinds of actors.
#[derive(Clone, Copy, Debug, PartialEq, Eq, strum::IntoStaticStr, strum::VariantArray)]
#[strum(serialize_all = "snake_case")]
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
    /// Returns the name for logs and metrics.
    pub(crate) fn as_str(self) -> &'static str {
        self.into()
    }
}

/// Cached gauges of all actor kinds.
#[derive(Debug)]
pub(crate) struct ActorGauges {
    live: Family<Labels1, Gauge>,
    waiting: Family<Labels1, Gauge>,
    /// In the order of the variants.
    by_kind: [(Gauge, Gauge); ActorKind::VARIANTS.len()],
}

/// Actor kinds whose messages are counted when sent, and the two whose mailbox depth is sampled.
/// All other kinds receive lifecycle messages only.
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
        let live = Family::<Labels1, Gauge>::default();
        let waiting = Family::<Labels1, Gauge>::default();

        let by_kind = std::array::from_fn(|index| {
            let kind = ActorKind::VARIANTS[index];
            let label = [("kind", kind.as_str())];
            let depth = COUNTED_KINDS
                .contains(&kind)
                .then(|| waiting.get_or_create(&label).clone());
            (
                live.get_or_create(&label).clone(),
                depth.unwrap_or_default(),
            )
        });

        Self {
            live,
            waiting,
            by_kind,
        }
    }
}

impl ActorGauges {
    pub(super) fn register(&self, sink: &mut impl MetricSink) {
        sink.register("actors_live", self.live.clone());
        sink.register("mailbox_depth", self.waiting.clone());
    }

    pub(super) fn start(&self, kind: ActorKind) -> GaugeGuard {
        GaugeGuard::add(&self.by_kind[kind as usize].0, 1)
    }

    /// Returns the gauge of the queued messages of an actor kind.
    pub(super) fn depth(&self, kind: ActorKind) -> &Gauge {
        &self.by_kind[kind as usize].1
    }
}

/// Amount that counts in a gauge until the guard is dropped.
#[derive(Debug)]
pub(crate) struct GaugeGuard(Gauge, i64);

impl GaugeGuard {
    pub(crate) fn add(gauge: &Gauge, amount: usize) -> Self {
        let amount = i64::try_from(amount).unwrap_or(i64::MAX);
        gauge.inc_by(amount);
        Self(gauge.clone(), amount)
    }
}

impl Drop for GaugeGuard {
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
        let wait = |messages| GaugeGuard::add(gauges.depth(ActorKind::Relay), messages);
        let (one, three) = (wait(1), wait(3));
        let read = || {
            let label = [("kind", "relay")];
            (
                gauges.live.get_or_create(&label).get(),
                gauges.waiting.get_or_create(&label).get(),
            )
        };
        assert_eq!(read(), (1, 4));
        drop(three);
        assert_eq!(read(), (1, 1));
        drop((relay, one));
        assert_eq!(read(), (0, 0));
    }
}
