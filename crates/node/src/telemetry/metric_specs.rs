//! Table of all metrics: names, types, labels and descriptions, read from `docs/telemetry.md`.
//! Metrics that are not in it cannot be registered.

use std::sync::LazyLock;

/// Documentation with the table.
const DOCUMENTATION: &str = include_str!("../../../../docs/telemetry.md");

/// Kind of a metric.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MetricKind {
    /// Value that only grows while the process runs.
    Counter,
    /// Value that goes up and down.
    Gauge,
    /// Distribution of values in buckets.
    Histogram,
}

impl MetricKind {
    const ALL: [Self; 3] = [Self::Counter, Self::Gauge, Self::Histogram];

    /// Returns the name of the kind.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            MetricKind::Counter => "counter",
            MetricKind::Gauge => "gauge",
            MetricKind::Histogram => "histogram",
        }
    }
}

/// Specification of a metric.
#[derive(Clone, Debug)]
pub struct MetricSpec {
    /// Name of the metric; the series of a histogram have the suffixes `_bucket`, `_sum` and
    /// `_count`.
    pub name: &'static str,
    /// Kind of the metric.
    pub kind: MetricKind,
    /// Labels of the series.
    pub labels: Vec<&'static str>,
    /// Description of the metric.
    pub help: &'static str,
}

impl MetricSpec {
    /// Parses a row of the table: name, kind, labels and description. `None` for other lines.
    fn parse(line: &'static str) -> Option<Self> {
        let row = line
            .strip_prefix("| `")
            .filter(|row| row.starts_with("orlog_") || row.starts_with("process_"));
        let [name, kind, labels, help]: [_; 4] = row?
            .trim_end_matches(" |")
            .split(" | ")
            .collect::<Vec<_>>()
            .try_into()
            .ok()?;

        Some(Self {
            name: name.trim_end_matches('`'),
            kind: MetricKind::ALL
                .into_iter()
                .find(|known| known.as_str() == kind)?,
            labels: labels
                .split(", ")
                .map(|label| label.trim_matches('`'))
                .filter(|l| !l.is_empty())
                .collect(),
            help,
        })
    }

    /// Returns `seconds` or `bytes`; `None` for a count.
    #[must_use]
    pub fn unit(&self) -> Option<&'static str> {
        let name = self.name.strip_suffix("_total").unwrap_or(self.name);
        ["seconds", "bytes"]
            .into_iter()
            .find(|unit| name.ends_with(unit))
    }
}

/// All metrics.
pub static ALL: LazyLock<Vec<MetricSpec>> = LazyLock::new(|| {
    DOCUMENTATION
        .lines()
        .filter_map(MetricSpec::parse)
        .collect()
});

/// Returns the metric with this name.
#[must_use]
pub fn find(name: &str) -> Option<&'static MetricSpec> {
    ALL.iter().find(|spec| spec.name == name)
}
