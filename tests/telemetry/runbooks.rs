//! The exercises of docs/runbooks: each fault is made on a real node, the alert fires in a real Prometheus, the commands of the page
//! are typed, the cure is applied, and the alert is gone.
//!
//! The rules are those that are shipped, with every wait and every window shortened.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::Ordering;
use std::time::Duration;

use serde_json::json;

use crate::node::{Node, event, placed};
use crate::servers::{PROMETHEUS, Server, WINDOW, program};

/// What stands in the place of every `for:`.
const WAIT: &str = "for: 1s";
/// What stands in the place of five minutes in the outbox.
const OLD: &str = "_seconds) > 2";

/// The rules as they are shipped, but sooner.
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

/// The commands of a page: those that look, and those that cure.
fn commands(page: &str) -> (Vec<String>, Vec<String>) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/runbooks").join(page);
    let text = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let (look, cure) = text.split_once("\n## What to do\n").unwrap();
    let fenced = |part: &str| {
        let blocks = part.split("```sh\n").skip(1).map(|block| block.split("```").next().unwrap());
        blocks.flat_map(str::lines).map(str::to_owned).collect()
    };
    (fenced(look), fenced(cure))
}

/// A node, what watches it, and the page that is read.
struct Exercise {
    node: Node,
    prometheus: Server,
    alert: &'static str,
    look: Vec<String>,
    cure: Vec<String>,
}

impl Exercise {
    /// `None`: there is no Prometheus here.
    async fn begin(page: &str, alert: &'static str) -> Option<Self> {
        program("prometheus")?;
        let node = Node::start().await;
        let prometheus = Server::prometheus(&node.url, Some(&rules()))?;
        let (look, cure) = commands(page);
        assert!(!look.is_empty(), "{page} says what to look at");
        let exercise = Self { node, prometheus, alert, look, cure };
        exercise.prometheus.until("count_over_time(orlog_accepting[1m]) > 1", |all| !all.is_empty()).await;
        assert!(!exercise.fires().await, "{alert} fires before anything is wrong");
        Some(exercise)
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

    async fn until_it_is_gone(&self) {
        self.prometheus.until(&self.firing(), <[_]>::is_empty).await;
    }

    /// Types the commands that look; each must show its words.
    async fn look(&self, words: &[&[&str]]) {
        assert_eq!(self.look.len(), words.len(), "{:?}", self.look);
        for (command, words) in self.look.iter().zip(words) {
            let shown = self.run(command).await;
            for word in *words {
                assert!(shown.contains(word), "{command} does not show {word}:\n{shown}");
            }
        }
    }

    /// Types the commands that cure; each must succeed.
    async fn cure(&self) {
        for command in &self.cure {
            self.run(command).await;
        }
    }

    /// Types a command where the folder of definitions lies.
    async fn run(&self, command: &str) -> String {
        let bin = PathBuf::from(env!("CARGO_BIN_EXE_orlog"));
        let path = std::env::var("PATH").unwrap_or_default();
        let path = format!("{}:{path}", bin.parent().unwrap().display());
        let mut shell = Command::new("/bin/sh");
        shell.args(["-ec", command]).current_dir(self.node.folder.path());
        let environment = [("PATH", path.as_str()), ("ORLOG_URL", &self.node.url), ("ORLOG_TENANT", "acme")];
        shell.envs(environment).env("USER", "operator").env_remove("ORLOG_CONFIG").env_remove("ORLOG_OUTPUT");
        let output = tokio::task::spawn_blocking(move || shell.output().unwrap()).await.unwrap();
        let said = [output.stdout, output.stderr].concat();
        let said = String::from_utf8(said).unwrap();
        assert!(output.status.success(), "{command}: {said}");
        said
    }

    async fn end(self) {
        drop(self.prometheus);
        self.node.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stuck_saga_is_found_and_goes_on() {
    let Some(exercise) = Exercise::begin("stuck-saga.md", "OrlogSagaStuck").await else { return };
    let node = &exercise.node;
    node.switches.refunds.store(false, Ordering::SeqCst);
    node.publish("acme", &[placed("stuck-1", 700), placed("good-1", 5)]).await;
    exercise.until_it_fires().await;
    exercise.look(&[&["stuck-1", "stuck"], &["stuck-1", "bank_closed"]]).await;
    node.switches.refunds.store(true, Ordering::SeqCst);
    exercise.cure().await;
    exercise.until_it_is_gone().await;
    let shown = exercise.run("orlog saga show order stuck-1").await;
    assert!(shown.contains("failed") && shown.contains("the bank is open again"), "{shown}");
    exercise.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_open_breaker_is_found_and_closes() {
    let Some(exercise) = Exercise::begin("open-breaker.md", "OrlogBreakerOpen").await else { return };
    let node = &exercise.node;
    node.switches.carrier.store(false, Ordering::SeqCst);
    node.publish("acme", &[placed("a", 5), placed("b", 5), placed("c", 5)]).await;
    exercise.until_it_fires().await;
    exercise.look(&[&["\"name\":\"carrier\"", "open\""], &["carrier.ship"]]).await;
    node.switches.carrier.store(true, Ordering::SeqCst);
    exercise.cure().await;
    exercise.until_it_is_gone().await;
    node.until(
        "what waited is done",
        "orlog_tenant_instances_ended_total{tenant=\"acme\",status=\"completed\"} 3",
    )
    .await;
    exercise.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_growing_outbox_is_found_and_gets_empty() {
    let Some(exercise) = Exercise::begin("outbox-backlog.md", "OrlogOutboxGrows").await else { return };
    let node = &exercise.node;
    node.switches.gateway.store(false, Ordering::SeqCst);
    let written =
        |n: u32| event(&format!("w-{n}"), "LetterWritten", &json!({ "letterId": format!("l-{n}") }));
    node.publish("acme", &[written(1), written(2)]).await;
    exercise.until_it_fires().await;
    exercise
        .look(&[&["outbox:acme:command:post:", "Stamp"], &["\"name\":\"gateway\"", "\"in_flight\""]])
        .await;
    node.switches.gateway.store(true, Ordering::SeqCst);
    exercise.cure().await;
    exercise.until_it_is_gone().await;
    exercise.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_slow_disk_is_found_and_gets_fast() {
    let Some(exercise) = Exercise::begin("slow-disk.md", "OrlogDiskSlow").await else { return };
    let node = &exercise.node;
    let walked_through = async {
        node.disk.set_slow(Duration::from_millis(200));
        exercise.until_it_fires().await;
        let fsyncs: &[&str] =
            &["orlog_store_fsync_seconds_bucket{le=\"0.1\",shard=\"0\"}", "orlog_store_unfolded_commits"];
        exercise.look(&[fsyncs, &["\"store\":{\"status\":\"ok\"}"]]).await;
        node.disk.set_slow(Duration::ZERO);
        exercise.cure().await;
        exercise.until_it_is_gone().await;
    };
    tokio::select! {
        () = walked_through => {}
        () = node.go_on() => unreachable!("the load goes on for ever"),
    }
    exercise.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_poison_message_is_found_and_applied_once_the_definition_bears_it() {
    let Some(exercise) = Exercise::begin("poison-messages.md", "OrlogPoisonMessages").await else { return };
    let node = &exercise.node;
    let without_total = event("placed-poison", "OrderPlaced", &json!({ "orderId": "poison-1" }));
    node.publish("acme", &[without_total, placed("good-1", 5)]).await;
    exercise.until_it_fires().await;
    exercise.look(&[&["poison-1", "schema_mismatch", "total"]]).await;
    node.bear_orders_without_total();
    exercise.cure().await;
    exercise.until_it_is_gone().await;
    let shown = exercise.run("orlog saga show order poison-1").await;
    assert!(shown.contains("completed"), "{shown}");
    exercise.end().await;
}
