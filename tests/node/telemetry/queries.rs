//! Runs every expression of the dashboards and the alert rules on a real Prometheus and a real
//! VictoriaMetrics.

use std::collections::BTreeSet;
use std::path::Path;

use orlog::telemetry::metric_specs::{self, MetricKind};
use serde_json::Value;

use crate::telemetry::node::Node;
use crate::telemetry::servers::{PROMETHEUS, Server, WINDOW, promtool};

const DASHBOARDS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/deploy/grafana/dashboards");

/// Metrics that only replicated shards have, and those that only anomalies create.
const EMPTY: [&str; 2] = ["orlog_log_", "orlog_stream_anomalies_detected_total"];
/// Metrics that only nodes with the role `effect` have.
const OF_EFFECT_NODES: [&str; 2] = ["orlog_effect_queue_", "orlog_effect_subscriptions_failing"];

/// Expression and its location.
#[derive(Debug)]
struct PanelQuery {
    location: String,
    expression: String,
}

/// Returns the expressions of all panels, with values for the Grafana variables.
fn dashboards() -> Vec<PanelQuery> {
    let mut queries = Vec::new();
    for entry in std::fs::read_dir(DASHBOARDS).unwrap() {
        let path = entry.unwrap().path();
        let dashboard: Value =
            serde_json::from_str(&std::fs::read_to_string(&path).unwrap()).unwrap();
        for panel in dashboard["panels"].as_array().unwrap() {
            for target in panel["targets"].as_array().into_iter().flatten() {
                let expression = target["expr"].as_str().unwrap();
                let filled = expression
                    .replace("$__rate_interval", WINDOW)
                    .replace("[1h]", "[1m]");
                let filled = filled.replace("$instance", ".*").replace("$tenant", ".*");
                assert!(!filled.contains('$'), "{}: {filled}", path.display());
                let location = format!("{}: {}", path.display(), panel["title"]);
                queries.push(PanelQuery {
                    location,
                    expression: filled,
                });
            }
        }
    }
    queries
}

/// Returns the expressions of the alert rules, one line each, by alert name.
pub(crate) fn alerts() -> Vec<(String, String)> {
    let text = std::fs::read_to_string(Path::new(PROMETHEUS).join("alerts.yml")).unwrap();
    let mut alerts: Vec<(String, String)> = Vec::new();
    let mut is_multiline = false;
    for line in text.lines().map(str::trim) {
        if let Some(name) = line.strip_prefix("- alert: ") {
            alerts.push((name.to_owned(), String::new()));
        } else if let Some(expression) = line.strip_prefix("expr: ") {
            is_multiline = expression == ">-";
            if !is_multiline {
                expression.clone_into(&mut alerts.last_mut().unwrap().1);
            }
        } else if line.starts_with("for: ") || line.starts_with("labels: ") {
            is_multiline = false;
        } else if is_multiline {
            let expression = &mut alerts.last_mut().unwrap().1;
            *expression = format!("{expression} {line}");
        }
    }
    alerts
}

/// Returns the metric names of an expression.
fn names(expression: &str) -> BTreeSet<&str> {
    let tokens = expression.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_'));
    tokens
        .filter(|token| token.starts_with("orlog_") || token.starts_with("process_"))
        .collect()
}

fn is_known(name: &str) -> bool {
    let bare = ["_bucket", "_sum", "_count"]
        .iter()
        .find_map(|end| name.strip_suffix(end));
    metric_specs::find(name).is_some_and(|spec| spec.kind != MetricKind::Histogram)
        || bare
            .and_then(metric_specs::find)
            .is_some_and(|spec| spec.kind == MetricKind::Histogram)
}

#[test]
fn dashboards_and_rules_reference_existing_metrics_and_runbooks() {
    for PanelQuery {
        location: place,
        expression,
    } in dashboards()
    {
        assert!(
            !names(&expression).is_empty() && names(&expression).into_iter().all(is_known),
            "{place}: {expression}"
        );
    }
    for (name, expression) in alerts() {
        assert!(
            names(&expression).into_iter().all(is_known),
            "{name}: {expression}"
        );
    }
    let rules = std::fs::read_to_string(Path::new(PROMETHEUS).join("alerts.yml")).unwrap();
    let pages: Vec<&str> = rules
        .lines()
        .filter_map(|line| line.trim().strip_prefix("runbook_url: "))
        .collect();
    assert_eq!(pages.len(), alerts().len(), "every alert has a page");
    for page in pages {
        let (_, page) = page.trim_end_matches('\'').split_once("}}/").unwrap();
        let runbooks = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/runbooks");
        assert!(runbooks.join(page).is_file(), "{page}");
    }
}

/// Requirements: R17.
#[test]
fn external_label_sets_the_address_of_the_runbooks() {
    let dir = tempfile::tempdir().unwrap();
    let rules = Path::new(PROMETHEUS).join("alerts.yml");
    let default = "https://github.com/orlog/orlog/blob/main/docs/runbooks";
    for (labels, address) in [
        ("{}", default),
        ("{ runbooks: 'https://wiki/orlog' }", "https://wiki/orlog"),
    ] {
        let test = format!(
            "rule_files: [{}]
tests:
  - interval: 1m
    external_labels: {labels}
    input_series: [{{ series: 'orlog_instances_stuck{{saga=\"order\"}}', values: '1x10' }}]
    alert_rule_test:
      - eval_time: 10m
        alertname: OrlogSagaStuck
        exp_alerts:
          - exp_labels: {{ severity: page, saga: order }}
            exp_annotations:
              summary: '1 instances of order are stuck: a compensation failed permanently, and an operator must decide'
              runbook_url: {address}/stuck-saga.md
",
            rules.display()
        );
        let file = dir.path().join("runbooks.yml");
        std::fs::write(&file, test).unwrap();
        promtool(&["test", "rules", file.to_str().unwrap()], "")
            .unwrap_or_else(|output| panic!("{output}"));
    }
}

#[test]
fn promtool_accepts_the_rules() {
    let rules = Path::new(PROMETHEUS).join("alerts.yml");
    promtool(&["check", "rules", rules.to_str().unwrap()], "").unwrap();
    let config = Path::new(PROMETHEUS).join("prometheus.yml");
    promtool(
        &["check", "config", "--syntax-only", config.to_str().unwrap()],
        "",
    )
    .unwrap();
}

/// Requirements: R17.
#[tokio::test(flavor = "multi_thread")]
async fn every_query_returns_data_on_both_servers() {
    let node = Node::start().await;
    let servers = [
        Server::prometheus(&node.url, None),
        Server::victoria(&node.url),
    ];
    node.load().await;
    let (_, text) = node.metrics("text/plain").await;
    promtool(&["check", "metrics"], &text).unwrap();
    let queries = async {
        for server in &servers {
            run_all_queries(server).await;
        }
    };
    tokio::select! {
        () = queries => {}
        () = node.go_on() => unreachable!("the load goes on for ever"),
    }
    drop(servers);
    node.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn both_servers_scrape_a_node_that_requires_the_metrics_token() {
    let node = Node::with_metrics_token().await;
    let response = crate::harness::http::client()
        .get(format!("{}/metrics", node.url))
        .send()
        .await
        .unwrap();
    assert_eq!(response.status(), 401);
    for server in [
        Server::prometheus(&node.url, None),
        Server::victoria(&node.url),
    ] {
        server
            .until("orlog_node_accepting == 1", |samples| samples.len() == 1)
            .await;
    }
    node.stop().await;
}

async fn run_all_queries(server: &Server) {
    // Every rate has several scrapes.
    server
        .until("count_over_time(orlog_node_accepting[1m]) > 5", |samples| {
            !samples.is_empty()
        })
        .await;
    for PanelQuery {
        location: place,
        expression,
    } in dashboards()
    {
        let mut absent = EMPTY.iter().chain(&OF_EFFECT_NODES);
        let empty = absent.any(|name| expression.contains(name));
        let result = server.query(&expression).await;
        let result = result
            .unwrap_or_else(|error| panic!("{}: {place}: {expression}: {error}", server.name));
        assert_eq!(
            result.is_empty(),
            empty,
            "{}: {place}: {expression}",
            server.name
        );
    }
    for (name, expression) in alerts() {
        let result = server.query(&expression).await;
        assert!(
            result.is_ok(),
            "{}: {name}: {expression}: {result:?}",
            server.name
        );
        let expected = names(&expression)
            .into_iter()
            .filter(|series| !OF_EFFECT_NODES.iter().any(|name| series.starts_with(name)));
        for series in expected {
            let found = server.query(series).await.unwrap();
            assert!(
                !found.is_empty(),
                "{}: {name}: there is no {series}",
                server.name
            );
        }
    }
}
