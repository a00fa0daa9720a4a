//! The shapes of figures that are looked up.

use std::fmt;
use std::sync::atomic::AtomicU64;

use orlog_actors::Mailboxes;
use orlog_store::{BOUNDS_SECONDS, Durations};
use prometheus_client::encoding::{EncodeMetric, MetricEncoder, NoLabelSet};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::{MetricType, TypedMetric};

/// A whole number.
pub(super) type Whole = Gauge<u64, AtomicU64>;
/// A number with a fraction.
pub(super) type Real = Gauge<f64, AtomicU64>;
/// One label.
pub(super) type By1 = [(&'static str, String); 1];
/// Two labels.
pub(super) type By2 = [(&'static str, String); 2];
/// Numbers by one label.
pub(super) type Labelled = Family<By1, Whole>;
/// Counts by one label.
pub(super) type Counts = Family<By1, Counter>;

/// A gauge without labels.
pub(super) fn one(value: u64) -> Whole {
    let gauge = Whole::default();
    gauge.set(value);
    gauge
}

/// The same with a fraction.
pub(super) fn real(value: f64) -> Real {
    let gauge = Real::default();
    gauge.set(value);
    gauge
}

/// Histograms that somebody else has counted, with their labels.
#[derive(Debug, Default)]
pub(super) struct Histograms(Vec<(Option<By1>, Classes)>);

#[derive(Debug)]
struct Classes {
    /// Upper bound, and how many lie in the class.
    buckets: Vec<(f64, u64)>,
    sum: f64,
}

impl Histograms {
    /// Adds that of a shard.
    pub(super) fn add(&mut self, shard: u16, durations: &Durations) {
        let bounds = BOUNDS_SECONDS.into_iter().chain([f64::INFINITY]);
        let classes =
            Classes { buckets: bounds.zip(durations.counts).collect(), sum: durations.sum.as_secs_f64() };
        self.0.push((Some([("shard", shard.to_string())]), classes));
    }
}

/// How full mailboxes are.
pub(super) fn mailboxes(mailboxes: &Mailboxes) -> Histograms {
    let bounds = Mailboxes::BOUNDS.into_iter().map(count).chain([f64::INFINITY]);
    let classes = Classes { buckets: bounds.zip(mailboxes.counts).collect(), sum: count(mailboxes.inputs) };
    Histograms(vec![(None, classes)])
}

/// Exact up to 2^53.
#[expect(clippy::cast_precision_loss, reason = "figures for people")]
pub(super) fn count(count: u64) -> f64 {
    count as f64
}

impl EncodeMetric for Histograms {
    fn encode(&self, mut encoder: MetricEncoder<'_>) -> fmt::Result {
        for (labels, Classes { buckets, sum }) in &self.0 {
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

impl TypedMetric for Histograms {
    const TYPE: MetricType = MetricType::Histogram;
}
