//! Metric types for values that are read per request.

use std::fmt;
use std::sync::atomic::AtomicU64;

use orlog_actors::MailboxStats;
use orlog_store::{BOUNDS_SECONDS, DurationHistogram};
use prometheus_client::encoding::{EncodeMetric, MetricEncoder, NoLabelSet};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::{MetricType, TypedMetric};

/// Integer gauge.
pub(super) type IntGauge = Gauge<u64, AtomicU64>;
/// Floating-point gauge.
pub(super) type FloatGauge = Gauge<f64, AtomicU64>;
/// One label.
pub(super) type Labels1 = [(&'static str, String); 1];
/// Two labels.
pub(super) type Labels2 = [(&'static str, String); 2];
/// Integer gauges by one label.
pub(super) type IntGaugeFamily = Family<Labels1, IntGauge>;
/// Counters by one label.
pub(super) type CounterFamily = Family<Labels1, Counter>;

/// Creates an integer gauge without labels.
pub(super) fn int_gauge(value: u64) -> IntGauge {
    let gauge = IntGauge::default();
    gauge.set(value);
    gauge
}

/// Creates a floating-point gauge without labels.
pub(super) fn float_gauge(value: f64) -> FloatGauge {
    let gauge = FloatGauge::default();
    gauge.set(value);
    gauge
}

/// Histograms with externally counted buckets, and their labels.
#[derive(Debug, Default)]
pub(super) struct StaticHistograms(Vec<(Option<Labels1>, Buckets)>);

#[derive(Debug)]
struct Buckets {
    /// Upper bound and count of each bucket.
    buckets: Vec<(f64, u64)>,
    sum: f64,
}

impl StaticHistograms {
    /// Adds the histogram of a shard.
    pub(super) fn add(&mut self, shard: u16, durations: &DurationHistogram) {
        let bounds = BOUNDS_SECONDS.into_iter().chain([f64::INFINITY]);
        let classes =
            Buckets { buckets: bounds.zip(durations.counts).collect(), sum: durations.sum.as_secs_f64() };
        self.0.push((Some([("shard", shard.to_string())]), classes));
    }
}

/// Returns the histograms of mailbox depths.
pub(super) fn mailboxes(mailboxes: &MailboxStats) -> StaticHistograms {
    let bounds = MailboxStats::BOUNDS.into_iter().map(count).chain([f64::INFINITY]);
    let classes = Buckets { buckets: bounds.zip(mailboxes.counts).collect(), sum: count(mailboxes.inputs) };
    StaticHistograms(vec![(None, classes)])
}

/// Converts a count to a float; exact up to 2^53.
#[expect(clippy::cast_precision_loss, reason = "metrics tolerate rounding")]
pub(super) fn count(count: u64) -> f64 {
    count as f64
}

impl EncodeMetric for StaticHistograms {
    fn encode(&self, mut encoder: MetricEncoder<'_>) -> fmt::Result {
        for (labels, Buckets { buckets, sum }) in &self.0 {
            let all = buckets.iter().map(|(_, count)| count).sum();
            match labels {
                Some(labels) => {
                    let mut encoder = encoder.encode_family(labels)?;
                    encoder.encode_histogram::<NoLabelSet>(*sum, all, buckets, None)?;
                }
                None => encoder.encode_histogram::<NoLabelSet>(*sum, all, buckets, None)?,
            }
        }
        Ok(())
    }

    fn metric_type(&self) -> MetricType {
        Self::TYPE
    }
}

impl TypedMetric for StaticHistograms {
    const TYPE: MetricType = MetricType::Histogram;
}
