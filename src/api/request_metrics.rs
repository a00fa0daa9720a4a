//! What is counted about requests.

use std::time::Duration;

use orlog_actors::Sheet as _;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};

use crate::telemetry::Shown;

/// Counts requests. Labels are bounded: routes as they are declared, not paths.
pub(super) struct Requests {
    shown: Shown,
    count: Family<RequestLabels, Counter>,
    seconds: Family<RouteLabels, Histogram>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct RequestLabels {
    route: String,
    method: String,
    status: u16,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct RouteLabels {
    route: String,
}

impl Default for Requests {
    fn default() -> Self {
        let mut shown = Shown::default();
        let count = Family::<RequestLabels, Counter>::default();
        let seconds = Family::<RouteLabels, Histogram>::new_with_constructor(|| {
            Histogram::new(exponential_buckets(0.000_1, 4.0, 10))
        });
        shown.put("http_requests_total", count.clone());
        shown.put("http_request_seconds", seconds.clone());
        Self { shown, count, seconds }
    }
}

impl Requests {
    /// What shows them.
    pub(super) fn shown(&self) -> &Shown {
        &self.shown
    }

    /// A request was answered.
    pub(super) fn note(&self, route: &str, method: &str, status: u16, took: Duration) {
        let labels = RequestLabels { route: route.to_owned(), method: method.to_owned(), status };
        self.count.get_or_create(&labels).inc();
        self.seconds.get_or_create(&RouteLabels { route: route.to_owned() }).observe(took.as_secs_f64());
    }
}
