//! Every expression of the dashboards and the alert rules, asked of a real Prometheus and a real VictoriaMetrics.

use std::collections::BTreeSet;
use std::path::Path;

use orlog::telemetry::metric_specs::{self, Kind};
use serde_json::Value;

use crate::node::Node;
use crate::servers::{PROMETHEUS, Server, WINDOW, program, promtool};

const DASHBOARDS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/deploy/grafana/dashboards");

/// What only replicated shards have, and what only breaks bring.
const EMPTY: [&str; 2] = ["orlog_log_", "orlog_stream_breaks_found_total"];

/// An expression, and where it stands.
#[derive(Debug)]
struct Asked {
    place: String,
    expression: String,
}

/// Those of every panel, with what Grafana would put in the place of its variables.
fn dashboards() -> Vec<Asked> {
    let mut asked = Vec::new();
    for entry in std::fs::read_dir(DASHBOARDS).unwrap() {
        let path = entry.unwrap().path();
        let board: Value = serde_json::from_str(&std::fs::read_to_string(&path).unwrap()).unwrap();
        for panel in board["panels"].as_array().unwrap() {
            for target in panel["targets"].as_array().into_iter().flatten() {
                let expression = target["expr"].as_str().unwrap();
                let filled = expression.replace("$__rate_interval", WINDOW).replace("[1h]", "[1m]");
                let filled = filled.replace("$instance", ".*").replace("$tenant", ".*");
                assert!(!filled.contains('$'), "{}: {filled}", path.display());
                let place = format!("{}: {}", path.display(), panel["title"]);
                asked.push(Asked { place, expression: filled });
            }
        }
    }
    asked
}

/// The expressions of the alert rules, one line each, by the name of the alert.
pub(crate) fn alerts() -> Vec<(String, String)> {
    let text = std::fs::read_to_string(Path::new(PROMETHEUS).join("alerts.yml")).unwrap();
    let mut alerts: Vec<(String, String)> = Vec::new();
    let mut folded = false;
    for line in text.lines().map(str::trim) {
        if let Some(name) = line.strip_prefix("- alert: ") {
            alerts.push((name.to_owned(), String::new()));
        } else if let Some(expression) = line.strip_prefix("expr: ") {
            folded = expression == ">-";
            if !folded {
                expression.clone_into(&mut alerts.last_mut().unwrap().1);
            }
        } else if line.starts_with("for: ") || line.starts_with("labels: ") {
            folded = false;
        } else if folded {
            let expression = &mut alerts.last_mut().unwrap().1;
            *expression = format!("{expression} {line}");
        }
    }
    alerts
}

/// The names of metrics in an expression.
fn names(expression: &str) -> BTreeSet<&str> {
    let words = expression.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_'));
    words.filter(|word| word.starts_with("orlog_") || word.starts_with("process_")).collect()
}

fn is_known(name: &str) -> bool {
    let bare = ["_bucket", "_sum", "_count"].iter().find_map(|end| name.strip_suffix(end));
    metric_specs::of(name).is_some_and(|spec| spec.kind != Kind::Histogram)
        || bare.and_then(metric_specs::of).is_some_and(|spec| spec.kind == Kind::Histogram)
}

#[test]
fn dashboards_and_rules_name_metrics_that_there_are_and_runbooks_that_exist() {
    for Asked { place, expression } in dashboards() {
        assert!(
            !names(&expression).is_empty() && names(&expression).into_iter().all(is_known),
            "{place}: {expression}"
        );
    }
    for (name, expression) in alerts() {
        assert!(names(&expression).into_iter().all(is_known), "{name}: {expression}");
    }
    let rules = std::fs::read_to_string(Path::new(PROMETHEUS).join("alerts.yml")).unwrap();
    let pages: Vec<&str> =
        rules.lines().filter_map(|line| line.trim().strip_prefix("runbook_url: ")).collect();
    assert_eq!(pages.len(), alerts().len(), "every alert has a page");
    for page in pages {
        let (_, page) = page.split_once("/docs/").unwrap();
        assert!(Path::new(env!("CARGO_MANIFEST_DIR")).join("docs").join(page).is_file(), "{page}");
    }
}

#[test]
fn promtool_finds_nothing_wrong_with_the_rules() {
    let rules = Path::new(PROMETHEUS).join("alerts.yml");
    if let Some(checked) = promtool(&["check", "rules", rules.to_str().unwrap()], "") {
        checked.unwrap();
    }
    let config = Path::new(PROMETHEUS).join("prometheus.yml");
    if let Some(checked) = promtool(&["check", "config", config.to_str().unwrap()], "") {
        checked.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn every_query_of_dashboards_and_rules_has_an_answer_on_both_servers() {
    if program("prometheus").is_none() || program("victoria-metrics").is_none() {
        return;
    }
    let node = Node::start().await;
    let servers = [Server::prometheus(&node.url, None).unwrap(), Server::victoria(&node.url).unwrap()];
    node.load().await;
    let (_, text) = node.metrics("text/plain").await;
    promtool(&["check", "metrics"], &text).unwrap().unwrap();
    let asked = async {
        for server in &servers {
            ask_everything(server).await;
        }
    };
    tokio::select! {
        () = asked => {}
        () = node.go_on() => unreachable!("the load goes on for ever"),
    }
    drop(servers);
    node.stop().await;
}

async fn ask_everything(server: &Server) {
    // Some scrapes lie behind every rate.
    server.until("count_over_time(orlog_accepting[1m]) > 5", |samples| !samples.is_empty()).await;
    for Asked { place, expression } in dashboards() {
        let empty = EMPTY.iter().any(|name| expression.contains(name));
        let answer = server.query(&expression).await;
        let answer = answer.unwrap_or_else(|error| panic!("{}: {place}: {expression}: {error}", server.name));
        assert_eq!(answer.is_empty(), empty, "{}: {place}: {expression}", server.name);
    }
    for (name, expression) in alerts() {
        let answer = server.query(&expression).await;
        assert!(answer.is_ok(), "{}: {name}: {expression}: {answer:?}", server.name);
        for series in names(&expression) {
            let found = server.query(series).await.unwrap();
            assert!(!found.is_empty(), "{}: {name}: there is no {series}", server.name);
        }
    }
}
