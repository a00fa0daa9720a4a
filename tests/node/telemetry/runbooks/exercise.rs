//! Exercise of one runbook: nodes with a fault, a Prometheus with the shipped rules, and the commands of the page.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use orlog::config::Config;
use orlog_testkit::WAIT_TIMEOUT;
use orlog_testkit::wait::until;
use serde_json::Value;

use super::page::RunbookPage;
use crate::harness::http::client;
use crate::telemetry::node::Node;
use crate::telemetry::servers::{PROMETHEUS, Server, WINDOW};

/// Replacement of every `for:`.
const WAIT: &str = "for: 1s";
/// Replacement of the ages of work in the outbox.
const OLD: &str = "_seconds) > 2";
/// Replacement of the consumer lag.
const LAG: &str = "orlog_consumer_lag) > 200";
/// Scrape interval of a single node.
const SCRAPE: Duration = Duration::from_secs(1);

/// Returns the shipped rules with shorter delays.
fn rules() -> String {
    let text = std::fs::read_to_string(Path::new(PROMETHEUS).join("alerts.yml")).unwrap();
    let sooner = |line: &str| {
        if line.trim().starts_with("for: ") {
            return line.split("for: ").next().unwrap().to_owned() + WAIT;
        }
        let line = ["_seconds) > 300", "_seconds) > 60"]
            .iter()
            .fold(line.to_owned(), |l, age| l.replace(age, OLD));
        let line = line.replace("orlog_consumer_lag) > 10000", LAG);
        ["[10m]", "[5m]"].iter().fold(line, |line, window| {
            line.replace(window, &format!("[{WINDOW}]"))
        })
    };
    text.lines().map(sooner).collect::<Vec<_>>().join("\n")
}

/// Nodes, their monitoring and the runbook page.
pub(super) struct RunbookExercise<N> {
    pub(super) node: N,
    pub(super) prometheus: Server,
    pub(super) page: RunbookPage,
    alert: &'static str,
    url: String,
    /// Directory in which the commands run.
    dir: PathBuf,
}

impl RunbookExercise<Node> {
    /// Starts the exercise on one node.
    pub(super) async fn begin(page: impl Into<RunbookPage>, alert: &'static str) -> Self {
        Self::begin_with(page, alert, |_, _| {}).await
    }

    /// Starts the exercise on one node with a changed configuration and directory.
    pub(super) async fn begin_with(
        page: impl Into<RunbookPage>,
        alert: &'static str,
        change: impl FnOnce(&mut Config, &Path),
    ) -> Self {
        let node = Node::start_with(change).await;
        let prometheus = Server::prometheus_of(&[&node.url], SCRAPE, Some(&rules()));
        // An increase needs two scrapes.
        prometheus
            .until("count_over_time(orlog_node_accepting[1m]) > 1", |all| {
                !all.is_empty()
            })
            .await;
        let exercise = Self {
            url: node.url.clone(),
            dir: node.dir.path().to_owned(),
            node,
            prometheus,
            page: page.into(),
            alert,
        };
        exercise.check_start().await;
        exercise
    }

    pub(super) async fn end(self) {
        drop(self.prometheus);
        self.node.stop().await;
    }
}

impl<N> RunbookExercise<N> {
    /// Starts the exercise on several nodes. The commands use the first one, in the directory `dir`.
    pub(super) async fn begin_on(
        node: N,
        urls: &[&str],
        dir: &Path,
        page: impl Into<RunbookPage>,
        alert: &'static str,
    ) -> Self {
        // A node whose bus does not respond answers a scrape after one second.
        let prometheus = Server::prometheus_of(urls, SCRAPE * 2, Some(&rules()));
        prometheus
            .until(
                "count_over_time(orlog_bus_available[1m]) > 1 and orlog_bus_available == 1",
                |all| all.len() == urls.len(),
            )
            .await;
        let exercise = Self {
            url: urls[0].to_owned(),
            dir: dir.to_owned(),
            node,
            prometheus,
            page: page.into(),
            alert,
        };
        exercise.check_start().await;
        exercise
    }

    /// The page has a diagnosis, and the alert does not fire before the fault.
    async fn check_start(&self) {
        let samples = self.prometheus.query(&self.firing()).await.unwrap();
        assert!(
            samples.is_empty(),
            "{} fires before the fault: {samples:?}",
            self.alert
        );
    }

    pub(super) fn firing(&self) -> String {
        format!("ALERTS{{alertname={:?},alertstate=\"firing\"}}", self.alert)
    }

    pub(super) async fn until_it_fires(&self) {
        self.prometheus
            .until(&self.firing(), |alerts| !alerts.is_empty())
            .await;
    }

    /// Waits until another alert of the page fires.
    pub(super) async fn until_alert(&self, alert: &str) {
        let firing = format!("ALERTS{{alertname={alert:?},alertstate=\"firing\"}}");
        self.prometheus
            .until(&firing, |alerts| !alerts.is_empty())
            .await;
    }

    /// Waits until all nodes respond and the alert does not fire.
    pub(super) async fn until_it_resolves(&self) {
        let resolved = format!("min(up) == 1 unless on () {}", self.firing());
        self.prometheus
            .until(&resolved, |samples| !samples.is_empty())
            .await;
    }

    /// Waits until the page of the node shows a problem with this text and a remedy.
    pub(super) async fn finds(&self, text: &str) {
        let found = |check: &Value| {
            let message = check["message"].as_str().unwrap();
            message.contains(text) && !check["remedy"].as_str().unwrap_or_default().is_empty()
        };
        until(&format!("the node reports {text:?}"), async || {
            self.problems().await.iter().any(found).then_some(())
        })
        .await;
    }

    /// Waits until the page of the node shows no problem of this check.
    pub(super) async fn finds_nothing(&self, check: &str) {
        until(
            &format!("the node reports no problem of {check}"),
            async || {
                self.problems()
                    .await
                    .iter()
                    .all(|found| found["name"] != check)
                    .then_some(())
            },
        )
        .await;
    }

    /// Returns the failed checks, as the page of the node reads them.
    async fn problems(&self) -> Vec<Value> {
        let response = client()
            .get(format!("{}/admin/diagnostics", self.url))
            .send()
            .await
            .unwrap();
        let response: Value = response.json().await.unwrap();
        let checks = response["checks"].as_array().unwrap().iter();
        checks
            .filter(|check| check["status"] != "ok")
            .cloned()
            .collect()
    }

    /// Runs the inspecting commands until each prints its expected texts.
    pub(super) async fn inspect(&self, texts: &[&[&str]]) {
        let commands = self.page.diagnosis();
        assert_eq!(commands.len(), texts.len(), "{commands:?}");
        for (command, texts) in commands.iter().zip(texts) {
            let mut output = String::new();
            let shows = async {
                loop {
                    output = self.run(command).await;
                    if texts.iter().all(|text| output.contains(text)) {
                        return;
                    }
                }
            };
            let in_time = tokio::time::timeout(WAIT_TIMEOUT, shows).await.is_ok();
            assert!(in_time, "{command} does not show {texts:?}:\n{output}");
        }
    }

    /// Runs the fixing commands; each must succeed.
    pub(super) async fn cure(&self) {
        for command in self.page.resolution() {
            self.run(command).await;
        }
    }

    /// Runs a command of the text of the page, with values for its placeholders.
    pub(super) async fn follow(&self, command: &str, values: &[(&str, &str)]) -> String {
        self.page.perform(command);
        let mut filled = command.to_owned();
        for (placeholder, value) in values {
            assert!(filled.contains(placeholder), "{command}: {placeholder}");
            filled = filled.replace(placeholder, value);
        }
        self.run(&filled).await
    }

    /// Runs `orlog doctor --node-only` of the text of the page; the output contains this problem.
    pub(super) async fn diagnose(&self, problem: &str) {
        let command = "orlog doctor --node-only";
        self.page.perform(command);
        let (code, output) = self.try_run(command).await;
        // Warnings alone are no failure of the command.
        assert!(matches!(code, Some(0 | 1)), "{code:?}: {output}");
        assert!(output.contains(problem), "{output}");
    }

    /// Returns the id of the dead letter of an instance when it exists; empty: of no instance.
    pub(super) async fn dead_letter_of(&self, correlation: &str) -> String {
        until(&format!("a dead letter of {correlation}"), async || {
            let list = self.run("orlog dlq list --output json").await;
            let list: Value = serde_json::from_str(&list).unwrap();
            let letters = list["items"].as_array().unwrap().iter();
            let mut own = letters
                .filter(|letter| letter["correlation"].as_str().unwrap_or_default() == correlation);
            own.next()
                .map(|letter| letter["id"].as_str().unwrap().to_owned())
        })
        .await
    }

    /// Runs a command in the directory of the exercise.
    pub(super) async fn run(&self, command: &str) -> String {
        let (code, output) = self.try_run(command).await;
        assert_eq!(code, Some(0), "{command}: {output}");
        self.page.record(command);
        output
    }

    /// Runs a command in the directory of the exercise; returns its exit code and its output.
    pub(super) async fn try_run(&self, command: &str) -> (Option<i32>, String) {
        let bin = PathBuf::from(env!("CARGO_BIN_EXE_orlog"));
        let path = std::env::var("PATH").unwrap_or_default();
        let path = format!("{}:{path}", bin.parent().unwrap().display());
        let mut shell = Command::new("/bin/sh");
        shell.args(["-ec", command]).current_dir(&self.dir);
        let environment = [
            ("PATH", path.as_str()),
            ("ORLOG_URL", &self.url),
            ("ORLOG_TENANT", "acme"),
        ];
        shell
            .envs(environment)
            .env("USER", "operator")
            .env_remove("ORLOG_CONFIG")
            .env_remove("ORLOG_OUTPUT");
        let output = tokio::task::spawn_blocking(move || shell.output().unwrap())
            .await
            .unwrap();
        let printed = [output.stdout, output.stderr].concat();
        (output.status.code(), String::from_utf8(printed).unwrap())
    }
}
