//! What becomes of work items, by upstream. Series are bounded by the configuration.

use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use orlog_model::Verdict;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::histogram::Histogram;

use super::sink::{Sheet, seconds};

type ByUpstream = [(&'static str, String); 2];

/// All upstreams.
#[derive(Debug)]
pub(crate) struct Effects {
    performed: Family<ByUpstream, Counter>,
    seconds: Family<ByUpstream, Histogram, fn() -> Histogram>,
    /// Each upstream's, looked up once.
    known: RwLock<BTreeMap<String, Arc<Verdicts>>>,
}

impl Default for Effects {
    fn default() -> Self {
        Self {
            performed: Family::default(),
            seconds: Family::new_with_constructor(seconds),
            known: RwLock::default(),
        }
    }
}

impl Effects {
    pub(super) fn show(&self, sheet: &mut impl Sheet) {
        sheet.put("effects_performed_total", self.performed.clone());
        sheet.put("effect_seconds", self.seconds.clone());
    }

    /// Those of an upstream.
    pub(crate) fn verdicts(&self, upstream: &str) -> Arc<Verdicts> {
        let known = self.known.read().unwrap_or_else(PoisonError::into_inner).get(upstream).cloned();
        known.unwrap_or_else(|| {
            let mut known = self.known.write().unwrap_or_else(PoisonError::into_inner);
            let begin = || Arc::new(Verdicts::of_upstream(upstream, self));
            Arc::clone(known.entry(upstream.to_owned()).or_insert_with(begin))
        })
    }

    fn of(&self, upstream: &str, outcome: &str) -> Figures {
        let labels = [("upstream", upstream.to_owned()), ("outcome", outcome.to_owned())];
        Figures {
            performed: self.performed.get_or_create(&labels).clone(),
            seconds: self.seconds.get_or_create(&labels).clone(),
        }
    }
}

#[derive(Debug)]
struct Figures {
    performed: Counter,
    seconds: Histogram,
}

/// One upstream's.
#[derive(Debug)]
pub(crate) struct Verdicts {
    accepted: Figures,
    succeeded: Figures,
    failed: Figures,
    timed_out: Figures,
}

impl Verdicts {
    fn of_upstream(upstream: &str, effects: &Effects) -> Self {
        Self {
            accepted: effects.of(upstream, "accepted"),
            succeeded: effects.of(upstream, "succeeded"),
            failed: effects.of(upstream, "failed"),
            timed_out: effects.of(upstream, "timed_out"),
        }
    }

    /// A work item ended like this, so long after it was offered.
    pub(crate) fn count(&self, verdict: &Verdict, took: Duration) {
        let figures = match verdict {
            Verdict::Accepted => &self.accepted,
            Verdict::Succeeded { .. } => &self.succeeded,
            Verdict::Failed { .. } => &self.failed,
            Verdict::TimedOut { .. } => &self.timed_out,
        };
        figures.performed.inc();
        figures.seconds.observe(took.as_secs_f64());
    }
}
