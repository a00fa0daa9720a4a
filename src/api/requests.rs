//! What is counted about requests.

use std::time::Duration;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::{Registry, Unit};

/// What the names of all metrics begin with.
pub(super) const PREFIX: &str = "orlog";

/// Counts requests. Labels are bounded: routes as they are declared, not paths.
pub(super) struct Requests {
    registry: Registry,
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
        let mut registry = Registry::with_prefix(PREFIX);
        let count = Family::<RequestLabels, Counter>::default();
        let seconds = Family::<RouteLabels, Histogram>::new_with_constructor(|| {
            Histogram::new(exponential_buckets(0.000_1, 4.0, 10))
        });
        registry.register("http_requests", "Requests answered", count.clone());
        let help = "Time from a request's head to its answer's";
        registry.register_with_unit("http_request", help, Unit::Seconds, seconds.clone());
        Self { registry, count, seconds }
    }
}

impl Requests {
    /// What shows them.
    pub(super) fn registry(&self) -> &Registry {
        &self.registry
    }

    /// A request was answered.
    pub(super) fn note(&self, route: &str, method: &str, status: u16, took: Duration) {
        let labels = RequestLabels { route: route.to_owned(), method: method.to_owned(), status };
        self.count.get_or_create(&labels).inc();
        self.seconds.get_or_create(&RouteLabels { route: route.to_owned() }).observe(took.as_secs_f64());
    }
}
