//! Metric types for values that are read per request.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use orlog_actors::{MailboxStats, MetricSink as _};
use orlog_store::{BOUNDS_SECONDS, DurationHistogram};
use prometheus_client::encoding::{EncodeMetric, MetricEncoder, NoLabelSet};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::{MetricType, TypedMetric};

use orlog_node::telemetry::MetricsRegistry;

type IntGauge = Gauge<u64, AtomicU64>;
type FloatGauge = Gauge<f64, AtomicU64>;
type Labels = Vec<(&'static str, String)>;
type Families<M> = BTreeMap<&'static str, Family<Labels, M>>;
/// Name and value of a label.
pub(super) type Label<'a> = (&'static str, &'a str);

/// Metrics with labels, by name.
#[derive(Default)]
pub(super) struct LabeledMetrics {
    integers: Families<IntGauge>,
    seconds: Families<FloatGauge>,
    counters: Families<Counter>,
}

impl LabeledMetrics {
    /// Sets an integer gauge.
    pub(super) fn set(&mut self, name: &'static str, labels: &[Label<'_>], value: u64) {
        series(&mut self.integers, name, labels).set(value);
    }

    /// Sets a gauge of seconds.
    pub(super) fn set_duration(
        &mut self,
        name: &'static str,
        labels: &[Label<'_>],
        value: Duration,
    ) {
        series(&mut self.seconds, name, labels).set(value.as_secs_f64());
    }

    /// Adds to a counter.
    pub(super) fn count(&mut self, name: &'static str, labels: &[Label<'_>], value: u64) {
        series(&mut self.counters, name, labels).inc_by(value);
    }

    /// Registers the metrics.
    pub(super) fn register(self, registry: &mut MetricsRegistry) {
        self.integers
            .into_iter()
            .for_each(|(name, family)| registry.register(name, family));
        self.seconds
            .into_iter()
            .for_each(|(name, family)| registry.register(name, family));

        self.counters
            .into_iter()
            .for_each(|(name, family)| registry.register(name, family));
    }
}

fn series<M: Clone + Default>(
    families: &mut Families<M>,
    name: &'static str,
    labels: &[Label<'_>],
) -> M {
    let labels = labels
        .iter()
        .map(|(name, value)| (*name, (*value).to_owned()))
        .collect();
    families
        .entry(name)
        .or_default()
        .get_or_create_owned(&labels)
}

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
pub(super) struct StaticHistograms(Vec<(Option<Labels>, Buckets)>);

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
        let classes = Buckets {
            buckets: bounds.zip(durations.counts).collect(),
            sum: durations.sum.as_secs_f64(),
        };
        self.0
            .push((Some(vec![("shard", shard.to_string())]), classes));
    }
}

/// Returns the histograms of mailbox depths.
pub(super) fn mailboxes(mailboxes: &MailboxStats) -> StaticHistograms {
    let bounds = MailboxStats::BOUNDS
        .into_iter()
        .map(count)
        .chain([f64::INFINITY]);
    let classes = Buckets {
        buckets: bounds.zip(mailboxes.counts).collect(),
        sum: count(mailboxes.inputs),
    };

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
