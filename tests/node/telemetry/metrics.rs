//! Compares the table of metrics with the documentation and with the metrics of a node.

use std::collections::{BTreeMap, BTreeSet};

use orlog::telemetry::metric_specs::{self, MetricKind, MetricSpec};

use crate::telemetry::node::Node;

/// Metrics without series on a healthy single node.
const ELSEWHERE: [&str; 12] = [
    "orlog_bus_messages_rejected_total",
    "orlog_effect_queue_depth",
    "orlog_effect_queue_in_flight",
    "orlog_effect_queue_oldest_age_seconds",
    "orlog_effect_subscriptions_failing",
    "orlog_log_epoch",
    "orlog_log_unavailable",
    "orlog_log_append_seconds",
    "orlog_log_unsnapshotted_commits",
    "orlog_log_unsnapshotted_bytes",
    "orlog_log_snapshot_failing",
    "orlog_stream_anomalies_detected_total",
];

fn row(spec: &MetricSpec) -> String {
    let labels: Vec<String> = spec
        .labels
        .iter()
        .map(|label| format!("`{label}`"))
        .collect();
    format!(
        "| `{}` | {} | {} | {} |",
        spec.name,
        spec.kind.as_str(),
        labels.join(", "),
        spec.help
    )
}

#[test]
fn documentation_lists_every_metric() {
    let text =
        std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/docs/telemetry.md")).unwrap();
    let is_row = |line: &&str| line.starts_with("| `orlog_") || line.starts_with("| `process_");
    let documented: Vec<&str> = text.lines().filter(is_row).collect();
    let expected: Vec<String> = metric_specs::ALL.iter().map(row).collect();
    assert_eq!(
        documented, expected,
        "a row of docs/telemetry.md is malformed"
    );
}

/// Returns the name of a series without the suffix of its kind, its labels, and its value.
fn sample(line: &str) -> (&str, Vec<&str>) {
    let name = line.split(['{', ' ']).next().unwrap();
    let labels = line
        .split_once('{')
        .map_or("", |(_, rest)| rest.rsplit_once('}').unwrap().0);
    let keys = labels
        .split("\",")
        .filter(|pair| !pair.is_empty())
        .map(|pair| pair.split_once('=').unwrap().0);
    (name, keys.collect())
}

fn spec_of(series: &str) -> &'static MetricSpec {
    let bare = ["_bucket", "_sum", "_count"]
        .iter()
        .find_map(|end| series.strip_suffix(end));
    let histogram = bare
        .and_then(metric_specs::find)
        .filter(|spec| spec.kind == MetricKind::Histogram);
    histogram
        .or_else(|| metric_specs::find(series))
        .unwrap_or_else(|| panic!("{series} is in no table"))
}

/// Requirements: R17.
#[tokio::test(flavor = "multi_thread")]
async fn exported_metrics_match_the_specification() {
    let node = Node::start().await;
    node.load().await;
    let (content_type, text) = node.metrics("text/plain").await;
    assert_eq!(content_type, "text/plain; version=0.0.4; charset=utf-8");
    let (mut described, mut exported) = (BTreeMap::new(), BTreeSet::new());
    for line in text.lines() {
        if let Some(about) = line.strip_prefix("# HELP ") {
            let (name, help) = about.split_once(' ').unwrap();
            assert_eq!(
                help,
                format!("{}.", metric_specs::find(name).unwrap().help),
                "{name}"
            );
        } else if let Some(about) = line.strip_prefix("# TYPE ") {
            let (name, kind) = about.split_once(' ').unwrap();
            assert_eq!(
                described.insert(name, kind),
                None,
                "{name} is described twice"
            );
            assert_eq!(
                kind,
                metric_specs::find(name).unwrap().kind.as_str(),
                "{name}"
            );
        } else {
            let (series, labels) = sample(line);
            let spec = spec_of(series);
            let labels: Vec<_> = labels.into_iter().filter(|label| *label != "le").collect();
            assert_eq!(labels, spec.labels, "{line}");
            exported.insert(spec.name);
        }
    }
    let missing: Vec<_> = metric_specs::ALL
        .iter()
        .map(|spec| spec.name)
        .filter(|name| !exported.contains(name))
        .collect();
    let unexpected: Vec<_> = missing
        .iter()
        .filter(|name| !ELSEWHERE.contains(name))
        .collect();
    assert!(
        unexpected.is_empty(),
        "a loaded node does not show {unexpected:?}"
    );
    check_values(&text);
    let (content_type, open) = node
        .metrics("application/openmetrics-text; version=1.0.0")
        .await;
    assert!(content_type.starts_with("application/openmetrics-text"));
    assert!(open.ends_with("\n# EOF\n"));
    assert!(open.contains("# TYPE orlog_commits counter\n"), "{open}");
    node.stop().await;
}

#[track_caller]
fn check_values(text: &str) {
    let tenants: BTreeSet<&str> = text
        .lines()
        .filter_map(|l| l.strip_prefix("orlog_tenant_transitions_total{"))
        .collect();
    assert_eq!(
        tenants.len(),
        4,
        "three tenants and the others: {tenants:?}"
    );
    for line in [
        "orlog_tenant_transitions_total{tenant=\"other\"} ",
        "orlog_tenant_instances_started_total{tenant=\"acme\"} 7",
        "orlog_tenant_instances_stuck_total{tenant=\"acme\"} 1",
        "orlog_instances_stuck{saga=\"order\"} 1",
        "orlog_definition_instances_started_total{saga=\"order\",version=\"1\"} 18",
        "orlog_definition_instances_ended_total{saga=\"order\",version=\"1\",status=\"failed\"} 10",
        "orlog_saga_own_inputs_total{saga=\"order\"} 0",
        "orlog_bus_available 1",
        "orlog_dead_letters_created_total{reason=\"schema_mismatch\"} 5",
        "orlog_dead_letters_created_total{reason=\"undecodable\"} 0",
        "orlog_effect_attempts_total{upstream=\"carrier\",outcome=\"unavailable\"} ",
        "orlog_effects_completed_total{upstream=\"bank\",outcome=\"failed\"} ",
        "orlog_outbox_depth{shard=\"0\",kind=\"effect\"} 2",
        "orlog_outbox_depth{shard=\"0\",kind=\"command\"} 0",
        "orlog_timers_armed{shard=\"0\"} 5",
        "orlog_shard_owned{shard=\"0\"} 1",
        "orlog_consumer_lag{stream=\"events\",shard=\"0\"} ",
        "orlog_actors_live{kind=\"shard\"} 1",
        "orlog_actors_restarted_total{supervisor=\"shard\",kind=\"saga\"} 0",
        "orlog_store_rows{shard=\"0\",table=\"attention\"} ",
    ] {
        assert!(
            text.lines().any(|l| l.starts_with(line)),
            "{line} is not in\n{text}"
        );
    }
    let positive = |name: &str| {
        let line = text
            .lines()
            .find(|l| l.starts_with(name))
            .unwrap_or_else(|| panic!("no {name}"));
        assert!(
            line.rsplit_once(' ').unwrap().1.parse::<f64>().unwrap() > 0.0,
            "{line}"
        );
    };
    for name in [
        "orlog_store_fsync_seconds_count{shard=\"0\"}",
        "orlog_store_fsync_seconds_sum{shard=\"0\"}",
        "orlog_outbox_oldest_age_seconds{shard=\"0\",kind=\"effect\"}",
        "orlog_store_tables_max_bytes{shard=\"0\"}",
        "orlog_store_pages{shard=\"0\"}",
        "orlog_disk_free_bytes",
        "orlog_instance_mailbox_depth_count",
        "process_resident_memory_bytes",
    ] {
        positive(name);
    }
}
