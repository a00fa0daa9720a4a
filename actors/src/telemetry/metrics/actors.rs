//! Which actors live, and how much waits for them.

use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;

use super::sink::{By1, Sheet};

/// The kinds of actors.
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
    Postman,
    Saga,
    Foreman,
    Crew,
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
        ActorKind::Postman,
        ActorKind::Saga,
        ActorKind::Foreman,
        ActorKind::Crew,
    ];

    /// The word people and metrics see.
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
            ActorKind::Postman => "postman",
            ActorKind::Saga => "saga",
            ActorKind::Foreman => "foreman",
            ActorKind::Crew => "crew",
        }
    }
}

/// The gauges, each looked up once.
#[derive(Debug)]
pub(super) struct Census {
    live: Family<By1, Gauge>,
    waiting: Family<By1, Gauge>,
    /// In the order of [`ActorKind::ALL`].
    by_kind: [(Gauge, Gauge); ActorKind::ALL.len()],
}

/// Those whose messages are counted where they are sent, and the two of which it is looked up what waits. All others are told
/// only of lives and ends.
const COUNTED: [ActorKind; 6] = [
    ActorKind::Relay,
    ActorKind::Timer,
    ActorKind::Provider,
    ActorKind::Publisher,
    ActorKind::Saga,
    ActorKind::Committer,
];

impl Default for Census {
    fn default() -> Self {
        let (live, waiting) = (Family::<By1, Gauge>::default(), Family::<By1, Gauge>::default());
        let by_kind = ActorKind::ALL.map(|kind| {
            let label = [("kind", kind.as_str())];
            let depth = COUNTED.contains(&kind).then(|| waiting.get_or_create(&label).clone());
            (live.get_or_create(&label).clone(), depth.unwrap_or_default())
        });
        Self { live, waiting, by_kind }
    }
}

impl Census {
    pub(super) fn show(&self, sheet: &mut impl Sheet) {
        sheet.put("actors_live", self.live.clone());
        sheet.put("mailbox_depth", self.waiting.clone());
    }

    pub(super) fn begin(&self, kind: ActorKind) -> Alive {
        let live = self.by_kind[kind as usize].0.clone();
        live.inc();
        Alive(live)
    }

    pub(super) fn look(&self, kind: ActorKind, messages: u64) {
        self.by_kind[kind as usize].1.set(i64::try_from(messages).unwrap_or(i64::MAX));
    }

    pub(super) fn wait(&self, kind: ActorKind, messages: usize) -> Waiting {
        let waiting = self.by_kind[kind as usize].1.clone();
        let messages = i64::try_from(messages).unwrap_or(i64::MAX);
        waiting.inc_by(messages);
        Waiting(waiting, messages)
    }
}

/// Held by an actor's state: it lives.
#[derive(Debug)]
pub(crate) struct Alive(Gauge);

impl Drop for Alive {
    fn drop(&mut self) {
        self.0.dec();
    }
}

/// Travels with messages until they are taken, or nobody is there any more to take them.
#[derive(Debug)]
pub(crate) struct Waiting(Gauge, i64);

impl Drop for Waiting {
    fn drop(&mut self) {
        self.0.dec_by(self.1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_dropped_is_counted_no_more() {
        let census = Census::default();
        let relay = census.begin(ActorKind::Relay);
        let (one, three) = (census.wait(ActorKind::Relay, 1), census.wait(ActorKind::Relay, 3));
        let read = || {
            let label = [("kind", "relay")];
            (census.live.get_or_create(&label).get(), census.waiting.get_or_create(&label).get())
        };
        assert_eq!(read(), (1, 4));
        drop(three);
        assert_eq!(read(), (1, 1));
        drop((relay, one));
        assert_eq!(read(), (0, 0));
    }

    #[test]
    fn every_kind_has_its_place() {
        for (index, kind) in ActorKind::ALL.into_iter().enumerate() {
            assert_eq!(kind as usize, index);
        }
    }
}
