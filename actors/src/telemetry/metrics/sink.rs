//! Sink of metrics, and common label types.

use std::fmt;

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
