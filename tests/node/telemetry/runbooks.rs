//! Exercises of docs/runbooks: each fault is injected into a real node and the alert fires in a real
//! Prometheus. Then the commands of the page run, the fault is fixed, and the alert is resolved.
//!
//! The rules are the shipped ones, with shorter delays and windows.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::Ordering;
use std::time::Duration;

use serde_json::json;

use crate::telemetry::node::{Node, event, placed};
use crate::telemetry::servers::{PROMETHEUS, Server, WINDOW};

/// Replacement of every `for:`.
const WAIT: &str = "for: 1s";
/// Replacement of the outbox age of five minutes.
const OLD: &str = "_seconds) > 2";

/// Returns the shipped rules with shorter delays.
fn rules() -> String {
    let text = std::fs::read_to_string(Path::new(PROMETHEUS).join("alerts.yml")).unwrap();
    let sooner = |line: &str| {
        if line.trim().starts_with("for: ") {
            return line.split("for: ").next().unwrap().to_owned() + WAIT;
        }
        let line = line.replace("_seconds) > 300", OLD);
        ["[10m]", "[5m]"].iter().fold(line, |line, window| line.replace(window, &format!("[{WINDOW}]")))
    };
    text.lines().map(sooner).collect::<Vec<_>>().join("\n")
}

/// Returns the commands of a page: those that inspect, and those that fix.
fn commands(page: &str) -> (Vec<String>, Vec<String>) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/runbooks").join(page);
    let text = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let (inspect, cure) = text.split_once("\n## Resolution\n").unwrap();
    let fenced = |part: &str| {
        let blocks = part.split("```sh\n").skip(1).map(|block| block.split("```").next().unwrap());
        blocks.flat_map(str::lines).map(str::to_owned).collect()
    };
    (fenced(inspect), fenced(cure))
}

/// Node, its monitoring and the runbook page.
struct RunbookExercise {
    node: Node,
    prometheus: Server,
    alert: &'static str,
    inspect: Vec<String>,
    cure: Vec<String>,
}

impl RunbookExercise {
    /// Starts the exercise.
    async fn begin(page: &str, alert: &'static str) -> Self {
        let node = Node::start().await;
        let prometheus = Server::prometheus(&node.url, Some(&rules()));
        let (inspect, cure) = commands(page);
        assert!(!inspect.is_empty(), "{page} says what to look at");
        let exercise = Self { node, prometheus, alert, inspect, cure };
        exercise
            .prometheus
            .until("count_over_time(orlog_node_accepting[1m]) > 1", |all| !all.is_empty())
            .await;
        assert!(!exercise.fires().await, "{alert} fires before anything is wrong");
        exercise
    }

    fn firing(&self) -> String {
        format!("ALERTS{{alertname={:?},alertstate=\"firing\"}}", self.alert)
    }

    async fn fires(&self) -> bool {
        !self.prometheus.query(&self.firing()).await.unwrap().is_empty()
    }

    async fn until_it_fires(&self) {
        self.prometheus.until(&self.firing(), |alerts| !alerts.is_empty()).await;
    }

    async fn until_it_resolves(&self) {
        self.prometheus.until(&self.firing(), <[_]>::is_empty).await;
    }

    /// Runs the inspecting commands; each must print its expected texts.
    async fn inspect(&self, texts: &[&[&str]]) {
        assert_eq!(self.inspect.len(), texts.len(), "{:?}", self.inspect);
        for (command, texts) in self.inspect.iter().zip(texts) {
            let output = self.run(command).await;
            for text in *texts {
                assert!(output.contains(text), "{command} does not show {text}:\n{output}");
            }
        }
    }

    /// Runs the fixing commands; each must succeed.
    async fn cure(&self) {
        for command in &self.cure {
            self.run(command).await;
        }
    }

    /// Runs a command in the directory of the definitions.
    async fn run(&self, command: &str) -> String {
        let bin = PathBuf::from(env!("CARGO_BIN_EXE_orlog"));
        let path = std::env::var("PATH").unwrap_or_default();
        let path = format!("{}:{path}", bin.parent().unwrap().display());
        let mut shell = Command::new("/bin/sh");
        shell.args(["-ec", command]).current_dir(self.node.dir.path());
        let environment = [("PATH", path.as_str()), ("ORLOG_URL", &self.node.url), ("ORLOG_TENANT", "acme")];
        shell.envs(environment).env("USER", "operator").env_remove("ORLOG_CONFIG").env_remove("ORLOG_OUTPUT");
        let output = tokio::task::spawn_blocking(move || shell.output().unwrap()).await.unwrap();
        let printed = [output.stdout, output.stderr].concat();
        let printed = String::from_utf8(printed).unwrap();
        assert!(output.status.success(), "{command}: {printed}");
        printed
    }

    async fn end(self) {
        drop(self.prometheus);
        self.node.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn runbook_stuck_saga() {
    let exercise = RunbookExercise::begin("stuck-saga.md", "OrlogSagaStuck").await;
    let node = &exercise.node;
    node.switches.refunds.store(false, Ordering::SeqCst);
    node.publish("acme", &[placed("stuck-1", 700), placed("good-1", 5)]).await;
    exercise.until_it_fires().await;
    exercise.inspect(&[&["stuck-1", "stuck"], &["stuck-1", "bank_closed"]]).await;
    node.switches.refunds.store(true, Ordering::SeqCst);
    exercise.cure().await;
    exercise.until_it_resolves().await;
    let output = exercise.run("orlog saga show order stuck-1").await;
    assert!(output.contains("failed") && output.contains("the bank is open again"), "{output}");
    exercise.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn runbook_open_breaker() {
    let exercise = RunbookExercise::begin("open-breaker.md", "OrlogBreakerOpen").await;
    let node = &exercise.node;
    node.switches.carrier.store(false, Ordering::SeqCst);
    node.publish("acme", &[placed("a", 5), placed("b", 5), placed("c", 5)]).await;
    exercise.until_it_fires().await;
    exercise.inspect(&[&["\"name\":\"carrier\"", "open\""], &["carrier.ship"]]).await;
    node.switches.carrier.store(true, Ordering::SeqCst);
    exercise.cure().await;
    exercise.until_it_resolves().await;
    node.until(
        "what waited is done",
        "orlog_tenant_instances_ended_total{tenant=\"acme\",status=\"completed\"} 3",
    )
    .await;
    exercise.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn runbook_growing_outbox() {
    let exercise = RunbookExercise::begin("outbox-backlog.md", "OrlogOutboxGrows").await;
    let node = &exercise.node;
    node.switches.gateway.store(false, Ordering::SeqCst);
    let written =
        |n: u32| event(&format!("w-{n}"), "LetterWritten", &json!({ "letterId": format!("l-{n}") }));
    node.publish("acme", &[written(1), written(2)]).await;
    exercise.until_it_fires().await;
    exercise
        .inspect(&[&["outbox:acme:command:post:", "Stamp"], &["\"name\":\"gateway\"", "\"in_flight\""]])
        .await;
    node.switches.gateway.store(true, Ordering::SeqCst);
    exercise.cure().await;
    exercise.until_it_resolves().await;
    exercise.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn runbook_slow_disk() {
    let exercise = RunbookExercise::begin("slow-disk.md", "OrlogDiskSlow").await;
    let node = &exercise.node;
    let walked_through = async {
        node.disk.set_slow(Duration::from_millis(200));
        exercise.until_it_fires().await;
        let fsyncs: &[&str] =
            &["orlog_store_fsync_seconds_bucket{le=\"0.1\",shard=\"0\"}", "orlog_store_unflushed_commits"];
        exercise.inspect(&[fsyncs, &["\"store\":{\"status\":\"ok\"}"]]).await;
        node.disk.set_slow(Duration::ZERO);
        exercise.cure().await;
        exercise.until_it_resolves().await;
    };
    tokio::select! {
        () = walked_through => {}
        () = node.go_on() => unreachable!("the load goes on for ever"),
    }
    exercise.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn runbook_poison_message() {
    let exercise = RunbookExercise::begin("poison-messages.md", "OrlogPoisonMessages").await;
    let node = &exercise.node;
    let without_total = event("placed-poison", "OrderPlaced", &json!({ "orderId": "poison-1" }));
    node.publish("acme", &[without_total, placed("good-1", 5)]).await;
    exercise.until_it_fires().await;
    exercise.inspect(&[&["poison-1", "schema_mismatch", "total"]]).await;
    node.bear_orders_without_total();
    exercise.cure().await;
    exercise.until_it_resolves().await;
    let output = exercise.run("orlog saga show order poison-1").await;
    assert!(output.contains("completed"), "{output}");
    exercise.end().await;
}
