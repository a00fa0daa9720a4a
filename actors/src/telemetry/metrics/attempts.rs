//! Hears of every attempt, and counts it by upstream and how it ended.

use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError, RwLock};

use orlog_effect::limits::breaker::State;
use orlog_effect::{Attempted, Ending, Observer};
use orlog_model::{TraceParent, WorkItem};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::histogram::Histogram;

use super::sink::{Sheet, seconds};

const ENDINGS: [Ending; 6] =
    [Ending::Done, Ending::Refused, Ending::Busy, Ending::Down, Ending::Lost, Ending::TimedOut];

/// Counts attempts; whoever else wants to hear of them stands behind it.
pub struct AttemptCounts {
    count: Family<[(&'static str, String); 2], Counter>,
    seconds: Times,
    /// Each upstream's, looked up once.
    known: RwLock<BTreeMap<String, Arc<OfUpstream>>>,
    behind: Arc<dyn Observer>,
}

/// By upstream.
type Times = Family<[(&'static str, String); 1], Histogram, fn() -> Histogram>;

/// In the order of [`ENDINGS`].
struct OfUpstream {
    count: [Counter; ENDINGS.len()],
    seconds: Histogram,
}

impl AttemptCounts {
    /// With another observer behind it.
    #[must_use]
    pub fn before(behind: Arc<dyn Observer>) -> Arc<Self> {
        Arc::new(Self {
            count: Family::default(),
            seconds: Family::new_with_constructor(seconds),
            known: RwLock::default(),
            behind,
        })
    }

    /// Shows what it counts.
    pub fn show(&self, sheet: &mut impl Sheet) {
        sheet.put("effect_attempts_total", self.count.clone());
        sheet.put("effect_attempt_seconds", self.seconds.clone());
    }

    /// Attempts so far.
    #[must_use]
    pub fn total(&self) -> u64 {
        let known = self.known.read().unwrap_or_else(PoisonError::into_inner);
        known.values().flat_map(|upstream| &upstream.count).map(Counter::get).sum()
    }

    fn of(&self, upstream: &str) -> Arc<OfUpstream> {
        let known = self.known.read().unwrap_or_else(PoisonError::into_inner).get(upstream).cloned();
        known.unwrap_or_else(|| {
            let mut known = self.known.write().unwrap_or_else(PoisonError::into_inner);
            Arc::clone(known.entry(upstream.to_owned()).or_insert_with(|| Arc::new(self.begin(upstream))))
        })
    }

    fn begin(&self, upstream: &str) -> OfUpstream {
        let labels =
            |ending: Ending| [("upstream", upstream.to_owned()), ("ending", ending.as_str().to_owned())];
        OfUpstream {
            count: ENDINGS.map(|ending| self.count.get_or_create(&labels(ending)).clone()),
            seconds: self.seconds.get_or_create(&[("upstream", upstream.to_owned())]).clone(),
        }
    }
}

impl Observer for AttemptCounts {
    fn attempting(&self, item: &WorkItem) -> Option<TraceParent> {
        self.behind.attempting(item)
    }

    fn attempted(&self, attempted: &Attempted<'_>) {
        let figures = self.of(attempted.upstream);
        let index = ENDINGS.iter().position(|ending| *ending == attempted.ending);
        figures.count[index.expect("every ending is listed")].inc();
        figures.seconds.observe(attempted.took.as_secs_f64());
        self.behind.attempted(attempted);
    }

    fn breaker_changed(&self, upstream: &str, state: State) {
        self.behind.breaker_changed(upstream, state);
    }
}
