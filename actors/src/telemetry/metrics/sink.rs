//! Sink of metrics, common label types, and metrics that are created once for each value of a
//! label.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use parking_lot::RwLock;
use prometheus_client::encoding::EncodeMetric;
use prometheus_client::metrics::TypedMetric;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};

/// Registers metrics by their exported names without the prefix `orlog_`.
pub trait MetricSink {
    /// Registers a metric.
    fn register(
        &mut self,
        name: &'static str,
        metric: impl EncodeMetric + TypedMetric + fmt::Debug + Send + Sync + 'static,
    );
}

/// One label.
pub(super) type Labels1 = [(&'static str, &'static str); 1];
/// Two labels.
pub(super) type Labels2 = [(&'static str, &'static str); 2];

/// Creates a histogram from 0.1 ms to 15 s.
pub(super) fn seconds() -> Histogram {
    Histogram::new(exponential_buckets(0.000_1, 2.5, 14))
}

/// Metrics of each value of a label, created once.
#[derive(Debug)]
pub(super) struct Cached<T>(RwLock<BTreeMap<String, Arc<T>>>);

impl<T> Default for Cached<T> {
    fn default() -> Self {
        Self(RwLock::default())
    }
}

impl<T> Cached<T> {
    pub(super) fn get(&self, value: &str, create: impl FnOnce() -> T) -> Arc<T> {
        let known = self.0.read().get(value).cloned();

        known.unwrap_or_else(|| {
            let mut known = self.0.write();
            Arc::clone(
                known
                    .entry(value.to_owned())
                    .or_insert_with(|| Arc::new(create())),
            )
        })
    }

    pub(super) fn all(&self) -> Vec<Arc<T>> {
        self.0.read().values().cloned().collect()
    }
}
