//! Metrics of API requests.

use std::time::Duration;

use orlog_actors::MetricSink as _;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};

use super::quotas::Quotas;
use orlog_node::auth::SignedRequests;
use orlog_node::telemetry::MetricsRegistry;

/// Request counters. Labels are bounded: declared routes, not paths.
pub(crate) struct RequestMetrics {
    registry: MetricsRegistry,
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

impl RequestMetrics {
    /// Creates the counters, with those of the quotas and of signed requests.
    pub(crate) fn new(quotas: &Quotas, signed: &SignedRequests) -> Self {
        let mut metrics_registry = MetricsRegistry::default();
        let count = Family::<RequestLabels, Counter>::default();
        let seconds = Family::<RouteLabels, Histogram>::new_with_constructor(|| {
            // From 0.1 ms to 26 s: a wait of a worker is in the last buckets.
            Histogram::new(exponential_buckets(0.000_1, 4.0, 10))
        });
        metrics_registry.register("http_requests_total", count.clone());
        metrics_registry.register("http_request_seconds", seconds.clone());
        metrics_registry.register("http_quota_rejections_total", quotas.rejected());
        metrics_registry.register("http_signatures_rejected_total", signed.rejected());

        Self {
            registry: metrics_registry,
            count,
            seconds,
        }
    }

    /// Returns the metrics registry.
    pub(crate) fn registry(&self) -> &MetricsRegistry {
        &self.registry
    }

    /// Records a completed request.
    pub(crate) fn record(&self, route: &str, method: &str, status: u16, took: Duration) {
        let labels = RequestLabels {
            route: route.to_owned(),
            method: method.to_owned(),
            status,
        };
        self.count.get_or_create(&labels).inc();

        self.seconds
            .get_or_create(&RouteLabels {
                route: route.to_owned(),
            })
            .observe(took.as_secs_f64());
    }
}
