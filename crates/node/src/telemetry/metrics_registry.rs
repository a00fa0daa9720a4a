//! Registry of the metrics at `/metrics`, under the names of `metric_specs.rs`.

use std::fmt;

use orlog_actors::MetricSink;
use prometheus_client::encoding::EncodeMetric;
use prometheus_client::encoding::text::encode_registry;
use prometheus_client::metrics::TypedMetric;
use prometheus_client::registry::{Registry, Unit};

use super::metric_specs::{self, MetricKind};

/// Prefix of all names; the metrics of the runtime are registered without it.
const PREFIX: &str = "orlog_";

/// Registry of metrics. Rejects names that are not in the table.
#[derive(Debug, Default)]
pub struct MetricsRegistry(Registry);

impl MetricsRegistry {
    /// Appends the metrics as `OpenMetrics` text, without the end marker.
    ///
    /// # Errors
    /// Those of `text`; a string has none.
    pub fn encode(&self, text: &mut String) -> fmt::Result {
        encode_registry(text, &self.0)
    }
}

impl MetricSink for MetricsRegistry {
    fn register(
        &mut self,
        name: &'static str,
        metric: impl EncodeMetric + TypedMetric + fmt::Debug + Send + Sync + 'static,
    ) {
        let whole = format!("{PREFIX}{name}");
        let spec = metric_specs::find(&whole)
            // Metrics of the process have the standard prefix `process_`.
            .or_else(|| metric_specs::find(name))
            .expect("the table names every metric");

        // The format appends the suffix itself.
        let bare = if spec.kind == MetricKind::Counter {
            spec.name.trim_end_matches("_total")
        } else {
            spec.name
        };
        match spec.unit() {
            Some(unit) => {
                let bare = bare.trim_end_matches(unit).trim_end_matches('_');
                self.0
                    .register_with_unit(bare, spec.help, Unit::Other(unit.to_owned()), metric);
            }
            None => self.0.register(bare, spec.help, metric),
        }
    }
}
