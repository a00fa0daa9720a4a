//! Exercise of one runbook: nodes with a fault, a Prometheus with the shipped rules, and the commands of the page.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use orlog::config::Config;
use orlog_testkit::WAIT_TIMEOUT;
use orlog_testkit::wait::until;
use serde_json::Value;

use crate::harness::http::client;
use crate::telemetry::node::Node;
use crate::telemetry::servers::{PROMETHEUS, Server, WINDOW};

/// Replacement of every `for:`.
const WAIT: &str = "for: 1s";
/// Replacement of the ages of work in the outbox.
const OLD: &str = "_seconds) > 2";
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
        ["[10m]", "[5m]"].iter().fold(line, |line, window| {
            line.replace(window, &format!("[{WINDOW}]"))
        })
    };
    text.lines().map(sooner).collect::<Vec<_>>().join("\n")
}

/// Returns the commands of a page: those that inspect, and those that fix.
fn commands(page: &str) -> (Vec<String>, Vec<String>) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("docs/runbooks")
        .join(page);
    let text = std::fs::read_to_string(&path)
        .unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let (inspect, cure) = text.split_once("\n## Resolution\n").unwrap();
    let fenced = |part: &str| {
        let blocks = part
            .split("```sh\n")
            .skip(1)
            .map(|block| block.split("```").next().unwrap());
        let lines = blocks
            .flat_map(str::lines)
            .map(str::trim)
            .filter(|line| !line.is_empty());
        lines.map(str::to_owned).collect()
    };
    (fenced(inspect), fenced(cure))
}

/// Nodes, their monitoring and the runbook page.
pub(super) struct RunbookExercise<N> {
    pub(super) node: N,
    pub(super) prometheus: Server,
    url: String,
    dir: PathBuf,
    alert: &'static str,
    inspect: Vec<String>,
    pub(super) cure: Vec<String>,
}

impl RunbookExercise<Node> {
    /// Starts the exercise on one node.
    pub(super) async fn begin(page: &str, alert: &'static str) -> Self {
        Self::begin_with(page, alert, |_, _| {}).await
    }

    /// Starts the exercise on one node with a changed configuration and directory.
    pub(super) async fn begin_with(
        page: &str,
        alert: &'static str,
        change: impl FnOnce(&mut Config, &Path),
    ) -> Self {
        let node = Node::start_with(change).await;
        let prometheus = Server::prometheus_of(&[&node.url], SCRAPE, Some(&rules()));
        let (url, dir) = (node.url.clone(), node.dir.path().to_owned());
        // An increase needs two scrapes.
        prometheus
            .until("count_over_time(orlog_node_accepting[1m]) > 1", |all| {
                !all.is_empty()
            })
            .await;
        Self::on(node, (url, dir), prometheus, (page, alert)).await
    }

    pub(super) async fn end(self) {
        drop(self.prometheus);
        self.node.stop().await;
    }
}

impl<N> RunbookExercise<N> {
    /// Starts the exercise on several nodes. The commands use the first one.
    pub(super) async fn begin_on(node: N, urls: &[&str], page: &str, alert: &'static str) -> Self {
        // A node whose bus does not respond answers a scrape after one second.
        let prometheus = Server::prometheus_of(urls, SCRAPE * 2, Some(&rules()));
        prometheus
            .until("orlog_bus_available == 1", |all| all.len() == urls.len())
            .await;
        Self::on(
            node,
            (urls[0].to_owned(), std::env::temp_dir()),
            prometheus,
            (page, alert),
        )
        .await
    }

    async fn on(
        node: N,
        (url, dir): (String, PathBuf),
        prometheus: Server,
        (page, alert): (&str, &'static str),
    ) -> Self {
        let (inspect, cure) = commands(page);
        assert!(!inspect.is_empty(), "{page} says what to look at");
        let exercise = Self {
            node,
            prometheus,
            url,
            dir,
            alert,
            inspect,
            cure,
        };
        assert!(
            !exercise.fires().await,
            "{alert} fires before anything is wrong"
        );
        exercise
    }

    pub(super) fn firing(&self) -> String {
        format!("ALERTS{{alertname={:?},alertstate=\"firing\"}}", self.alert)
    }

    async fn fires(&self) -> bool {
        !self
            .prometheus
            .query(&self.firing())
            .await
            .unwrap()
            .is_empty()
    }

    pub(super) async fn until_it_fires(&self) {
        self.prometheus
            .until(&self.firing(), |alerts| !alerts.is_empty())
            .await;
    }

    pub(super) async fn until_it_resolves(&self) {
        self.prometheus.until(&self.firing(), <[_]>::is_empty).await;
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
        assert_eq!(self.inspect.len(), texts.len(), "{:?}", self.inspect);
        for (command, texts) in self.inspect.iter().zip(texts) {
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
        for command in &self.cure {
            self.run(command).await;
        }
    }

    /// Runs a command in the directory of the definitions.
    pub(super) async fn run(&self, command: &str) -> String {
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
        let printed = String::from_utf8(printed).unwrap();
        assert!(output.status.success(), "{command}: {printed}");
        printed
    }
}
