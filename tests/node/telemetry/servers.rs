//! Prometheus and VictoriaMetrics, each on a free port, scraping one node.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use orlog_testkit::WAIT_TIMEOUT;
use orlog_testkit::child_process::ChildProcess;
use orlog_testkit::host::{free_port, missing};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::Value;
use tempfile::TempDir;

use crate::harness::http::client;
use crate::telemetry::node::POLL_INTERVAL;

/// Directory of the shipped Prometheus files in `deploy`.
pub(crate) const PROMETHEUS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/deploy/prometheus");

/// Returns a program that `make monitoring` unpacks.
fn program(name: &str) -> PathBuf {
    let own = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join(".tools/monitoring/bin")
        .join(name);
    let path = std::env::var_os("PATH").unwrap_or_default();
    let mut found =
        std::iter::once(own).chain(std::env::split_paths(&path).map(|dir| dir.join(name)));
    found
        .find(|program| program.is_file())
        .unwrap_or_else(|| missing(name, "monitoring"))
}

/// Token of the servers (`auth.metrics_token`).
pub(crate) const METRICS_TOKEN: &str = "metrics-token-0123456789abcdef0123456789";
/// Scrape interval. Rates are queried over [`WINDOW`].
const SCRAPE: Duration = Duration::from_secs(1);
/// Replacement of every time window.
pub(crate) const WINDOW: &str = "10s";

/// Server that scrapes and executes queries; stopped on drop.
pub(crate) struct Server {
    pub(crate) name: &'static str,
    url: String,
    _process: ChildProcess,
    dir: TempDir,
}

impl Server {
    /// Starts Prometheus, with rules if given.
    pub(crate) fn prometheus(node: &str, rules: Option<&str>) -> Self {
        Self::prometheus_of(&[node], SCRAPE, rules)
    }

    /// Starts Prometheus for several nodes with this scrape interval.
    pub(crate) fn prometheus_of(nodes: &[&str], interval: Duration, rules: Option<&str>) -> Self {
        let (binary, dir) = (program("prometheus"), tempfile::tempdir().unwrap());
        let rule_files = rules.map(|rules| {
            std::fs::write(dir.path().join("rules.yml"), rules).unwrap();
            "rule_files: [rules.yml]\n"
        });
        let config = config(&dir, nodes, interval, rule_files.unwrap_or_default());
        let port = free_port();
        let data = dir.path().join("data");
        let arguments = [
            format!("--config.file={}", config.display()),
            format!("--storage.tsdb.path={}", data.display()),
            format!("--web.listen-address=127.0.0.1:{port}"),
            "--storage.tsdb.retention.time=1d".to_owned(),
        ];
        Self::start("prometheus", &binary, &arguments, port, dir)
    }

    /// Starts VictoriaMetrics, which scrapes by itself.
    pub(crate) fn victoria(node: &str) -> Self {
        let (binary, dir) = (program("victoria-metrics"), tempfile::tempdir().unwrap());
        let (config, port) = (config(&dir, &[node], SCRAPE, ""), free_port());
        let data = dir.path().join("data");
        let arguments = [
            format!("-promscrape.config={}", config.display()),
            format!("-storageDataPath={}", data.display()),
            format!("-httpListenAddr=127.0.0.1:{port}"),
            "-retentionPeriod=1d".to_owned(),
            // The configuration is for Prometheus and has settings that VictoriaMetrics does not support.
            "-promscrape.config.strictParse=false".to_owned(),
            // The queries need the latest scrape.
            "-search.latencyOffset=0s".to_owned(),
            "-search.disableCache".to_owned(),
            "-memory.allowedBytes=128MB".to_owned(),
        ];
        Self::start("victoria-metrics", &binary, &arguments, port, dir)
    }

    fn start(
        name: &'static str,
        binary: &Path,
        arguments: &[String],
        port: u16,
        dir: TempDir,
    ) -> Self {
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
        let process = ChildProcess::start(binary, &arguments, &[], &dir.path().join("log"));
        Self {
            name,
            url: format!("http://127.0.0.1:{port}"),
            _process: process,
            dir,
        }
    }

    /// Returns the current samples of an expression with their labels; an error if the expression is
    /// invalid.
    pub(crate) async fn query(&self, expression: &str) -> Result<Vec<Value>, String> {
        let encoded = utf8_percent_encode(expression, NON_ALPHANUMERIC);
        let url = format!("{}/api/v1/query?query={encoded}", self.url);
        let response = client()
            .get(url)
            .send()
            .await
            .map_err(|error| error.to_string())?;
        let response: Value = response.json().await.map_err(|error| error.to_string())?;
        if response["status"] != "success" {
            return Err(response["error"].to_string());
        }
        Ok(response["data"]["result"]
            .as_array()
            .cloned()
            .unwrap_or_default())
    }

    /// Waits until the samples of an expression match.
    pub(crate) async fn until(
        &self,
        expression: &str,
        fits: impl Fn(&[Value]) -> bool,
    ) -> Vec<Value> {
        let mut last = Err("it was never called".to_owned());
        let mut ticks = tokio::time::interval(POLL_INTERVAL);
        let waited = tokio::time::timeout(WAIT_TIMEOUT, async {
            loop {
                ticks.tick().await;
                last = self.query(expression).await;
                if last.as_ref().is_ok_and(|samples| fits(samples)) {
                    return;
                }
            }
        });
        let in_time = waited.await.is_ok();
        let log = || std::fs::read_to_string(self.dir.path().join("log")).unwrap_or_default();
        assert!(
            in_time,
            "{}: {expression} stays at {last:?}\n{}",
            self.name,
            log()
        );
        last.unwrap()
    }
}

fn config(dir: &TempDir, nodes: &[&str], interval: Duration, rules: &str) -> PathBuf {
    let targets: Vec<&str> = nodes
        .iter()
        .map(|node| node.strip_prefix("http://").unwrap())
        .collect();
    let path = dir.path().join("prometheus.yml");
    let seconds = interval.as_secs();
    let token = dir.path().join("metrics-token");
    std::fs::write(&token, METRICS_TOKEN).unwrap();
    let text = format!(
        "global: {{ scrape_interval: {seconds}s, evaluation_interval: 1s }}\n{rules}scrape_configs:\n  - job_name: orlog\n    authorization: {{ credentials_file: \"{}\" }}\n    static_configs: [{{ targets: {targets:?} }}]\n",
        token.display()
    );
    std::fs::write(&path, text).unwrap();
    path
}

/// Runs promtool; returns its output if it finds an error.
pub(crate) fn promtool(arguments: &[&str], input: &str) -> Result<(), String> {
    use std::io::Write as _;
    use std::process::Stdio;
    let mut command = Command::new(program("promtool"));
    let pipes = command
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let mut child = pipes.spawn().unwrap();
    child
        .stdin
        .take()
        .unwrap()
        .write_all(input.as_bytes())
        .unwrap();
    let output = child.wait_with_output().unwrap();
    let printed = [output.stdout, output.stderr].concat();
    if output.status.success() {
        Ok(())
    } else {
        Err(String::from_utf8(printed).unwrap())
    }
}
