//! What is shown at `/metrics`: figures under the names of [`spec`].

use std::fmt;

use orlog_actors::Sheet;
use prometheus_client::encoding::EncodeMetric;
use prometheus_client::encoding::text::encode_registry;
use prometheus_client::metrics::TypedMetric;
use prometheus_client::registry::{Registry, Unit};

use super::metric_specs::{self, Kind};

/// Names of the running system come without this.
const PREFIX: &str = "orlog_";

/// Figures and their names. Takes no name that is not in the table.
#[derive(Debug, Default)]
pub struct Shown(Registry);

impl Shown {
    /// Appends them as `OpenMetrics` text, without the end.
    ///
    /// # Errors
    /// Those of `text`, which as a string has none.
    pub fn write(&self, text: &mut String) -> fmt::Result {
        encode_registry(text, &self.0)
    }
}

impl Sheet for Shown {
    fn put(
        &mut self,
        name: &'static str,
        metric: impl EncodeMetric + TypedMetric + fmt::Debug + Send + Sync + 'static,
    ) {
        let whole = format!("{PREFIX}{name}");
        let spec = metric_specs::of(&whole)
            .or_else(|| metric_specs::of(name))
            .expect("the table names every metric");
        // What the format appends by itself.
        let bare = if spec.kind == Kind::Counter { spec.name.trim_end_matches("_total") } else { spec.name };
        match spec.unit() {
            Some(unit) => {
                let bare = bare.trim_end_matches(unit).trim_end_matches('_');
                self.0.register_with_unit(bare, spec.help, Unit::Other(unit.to_owned()), metric);
            }
            None => self.0.register(bare, spec.help, metric),
        }
    }
}
