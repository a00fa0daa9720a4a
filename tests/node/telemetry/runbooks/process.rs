//! Node that is a process of the real binary, at an address that it keeps after a restart.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use orlog_testkit::child_process::ChildProcess;
use orlog_testkit::host::free_port;
use orlog_testkit::wait::until;
use rustix::process::Signal;
use serde_json::Value;
use tempfile::TempDir;

use crate::harness::http::{HttpResponse, client, send};
use crate::telemetry::node::event;

/// Saga whose instances wait for payments.
const ORDER: &str = r"
saga: order
version: 1
correlate: orderId
start: OrderPlaced
vars: { orderId: =event.orderId, paid: 0 }
on:
  - event: Paid
    save: { paid: =vars.paid + event.amount }
steps:
  - { id: close, do: { event: Closed }, timeout: 240h }
completed: { fact: OrderCompleted, data: { orderId: =vars.orderId } }
";

/// Process, its directory and its address.
pub(super) struct NodeProcess {
    pub(super) dir: Arc<TempDir>,
    pub(super) url: String,
    name: String,
    port: u16,
    process: Option<ChildProcess>,
}

/// Creates a directory with the definition of orders.
pub(super) fn directory() -> Arc<TempDir> {
    let dir = tempfile::tempdir().unwrap();
    std::fs::create_dir(dir.path().join("definitions")).unwrap();
    std::fs::write(dir.path().join("definitions/order.saga.yaml"), ORDER).unwrap();
    Arc::new(dir)
}

/// Returns the lines of a configuration that connect a node to a server.
pub(super) fn on_nats(url: &str) -> String {
    format!("[bus]\nkind = \"nats\"\n[nats]\nservers = [{url:?}]\nmanage_aggregate_stream = true\n")
}

impl NodeProcess {
    /// Starts a node in the directory with the configuration `orlog.toml`.
    pub(super) async fn start(config: &str) -> Self {
        Self::start_in(&directory(), "orlog", config).await
    }

    /// Starts a node in this directory with the configuration `<name>.toml`.
    pub(super) async fn start_in(dir: &Arc<TempDir>, name: &str, config: &str) -> Self {
        let port = free_port();
        let mut node = Self {
            dir: Arc::clone(dir),
            url: format!("http://127.0.0.1:{port}"),
            name: name.to_owned(),
            port,
            process: None,
        };
        node.configure(config);
        node.restart(&[]).await;
        node
    }

    /// Replaces the configuration. The first lines are top-level keys.
    pub(super) fn configure(&self, config: &str) {
        let data = if self.name == "orlog" {
            "data".to_owned()
        } else {
            format!("data-{}", self.name)
        };
        let text = format!(
            "node_name = {:?}\nlisten = \"127.0.0.1:{}\"\ndata_dir = {data:?}\ndefinitions_dir = \"definitions\"\n{config}",
            self.name, self.port
        );
        std::fs::write(self.config(), text).unwrap();
    }

    /// Returns the path of the configuration.
    fn config(&self) -> PathBuf {
        self.path(&format!("{}.toml", self.name))
    }

    /// Returns a path in the directory of the node.
    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// Starts the stopped node, and waits until it responds.
    pub(super) async fn restart(&mut self, options: &[&str]) {
        self.launch(options);
        let label = format!("{} starts", self.name);
        until(&label, async || {
            assert!(!self.has_ended(), "{label}: {}", self.log());
            let response = client().get(format!("{}/health", self.url)).send().await;
            response.ok().map(drop)
        })
        .await;
    }

    /// Starts the stopped node.
    pub(super) fn launch(&mut self, options: &[&str]) {
        assert!(self.process.is_none(), "{} runs", self.name);
        // Paths of the configuration are relative to the directory of the process.
        let script = "cd \"$1\"; shift; exec \"$@\"";
        let (dir, config) = (self.dir.path().display().to_string(), self.config());
        let binary = env!("CARGO_BIN_EXE_orlog");
        let config = config.display().to_string();
        let arguments = [
            "-c", script, "node", &dir, binary, "run", "--config", &config,
        ];
        let arguments = [&arguments, options].concat();
        let shell = Path::new("/bin/sh");
        self.process = Some(ChildProcess::start(
            shell,
            &arguments,
            &[],
            &self.path(&format!("{}.log", self.name)),
        ));
    }

    fn has_ended(&self) -> bool {
        self.process.as_ref().is_none_or(ChildProcess::has_ended)
    }

    /// Stops the node like a process manager.
    pub(super) fn stop(&mut self) {
        self.process.take().expect("it runs").end(Signal::TERM);
    }

    pub(super) fn kill(&mut self) {
        self.process = None;
    }

    /// Returns the output of the process.
    pub(super) fn log(&self) -> String {
        std::fs::read_to_string(self.path(&format!("{}.log", self.name))).unwrap_or_default()
    }

    /// Sends a request for the tenant `acme`.
    pub(super) async fn send(
        &self,
        method: &str,
        path: &str,
        body: Option<&Value>,
    ) -> HttpResponse {
        let url = format!("{}{path}", self.url);
        send(&client(), method, url, &[("x-tenant-id", "acme")], body).await
    }

    /// Publishes an event until the node accepts it.
    pub(super) async fn publish(&self, id: &str, kind: &str, data: &Value) {
        let event = event(id, kind, data);
        until(&format!("{id} is accepted"), async || {
            let response = self.send("POST", "/v1/events", Some(&event)).await;
            (response.status == 202).then_some(())
        })
        .await;
    }

    /// Waits until the body of a successful response matches.
    pub(super) async fn until(&self, path: &str, fits: impl Fn(&Value) -> bool) -> Value {
        until(&format!("{path} matches"), async || {
            let url = format!("{}{path}", self.url);
            let request = client().get(url).header("x-tenant-id", "acme");
            let response = request.send().await.ok()?;
            let body: Value = response.json().await.ok()?;
            fits(&body).then_some(body)
        })
        .await
    }
}
