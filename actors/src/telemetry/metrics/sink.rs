//! Where figures go, and the shapes that many of them have.

use std::fmt;

use prometheus_client::encoding::EncodeMetric;
use prometheus_client::metrics::TypedMetric;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};

/// Takes figures by the names under which they are shown, without the prefix `orlog_`.
pub trait Sheet {
    /// Shows this one from now on.
    fn put(
        &mut self,
        name: &'static str,
        metric: impl EncodeMetric + TypedMetric + fmt::Debug + Send + Sync + 'static,
    );
}

/// One label.
pub(super) type By1 = [(&'static str, &'static str); 1];
/// Two labels.
pub(super) type By2 = [(&'static str, &'static str); 2];

/// From a tenth of a millisecond to a quarter of a minute.
pub(super) fn seconds() -> Histogram {
    Histogram::new(exponential_buckets(0.000_1, 2.5, 14))
}
