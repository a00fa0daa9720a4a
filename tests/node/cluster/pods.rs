//! Pods: processes of the real binary that share the shards.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use orlog_testkit::WAIT_TIMEOUT;
use orlog_testkit::child_process::ChildProcess;
use orlog_testkit::host::free_port;
use orlog_testkit::wait::{POLL_INTERVAL, until};
use parking_lot::Mutex;
use rustix::process::Signal;
use serde_json::Value;
use tempfile::TempDir;

use crate::cluster::upstream::Upstream;

const SHARDS: usize = 6;

const DEFINITION: &str = "\
saga: order
version: 1
start: OrderPlaced
correlate: orderId
vars: { orderId: =event.orderId, notes: '=[]' }
on:
  - event: Noted
    save: { notes: '=vars.notes + [event.n]' }
steps:
  - { id: charge, do: { effect: pay.charge, data: { orderId: =vars.orderId } } }
  - { id: finish, after: [], do: { event: Finished }, timeout: 10m }
  - { id: ship, after: [charge, finish], do: { effect: pay.ship, data: { orderId: =vars.orderId } } }
completed: { fact: OrderDone, data: { orderId: =vars.orderId } }
";

/// Current addresses of the pods; shared with the senders of events.
pub(crate) type Urls = Arc<Mutex<BTreeMap<String, String>>>;

fn certificate(file: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/certs")
        .join(file)
}

/// Client that trusts the CA of the pods, with an optional certificate.
pub(crate) fn https_client(name: Option<&str>) -> reqwest::Client {
    let read = |file: &str| std::fs::read(certificate(file)).unwrap();
    let client = orlog_effect::http::client().timeout(Duration::from_secs(3));
    let client =
        client.tls_certs_only(reqwest::Certificate::from_pem_bundle(&read("ca.pem")).unwrap());
    let client = match name {
        Some(name) => {
            let pem = [read(&format!("{name}.pem")), read(&format!("{name}.key"))].concat();
            client.identity(reqwest::Identity::from_pem(&pem).unwrap())
        }
        None => client,
    };
    client.build().unwrap()
}

/// Pods of a test and their shared state.
pub(crate) struct Pods {
    dir: TempDir,
    servers: Vec<String>,
    /// Server addresses of pods that use another route.
    routes: BTreeMap<String, Vec<String>>,
    replicas: usize,
    /// Name of the lease bucket.
    pub(crate) cluster_name: String,
    /// Additional configuration of the pods.
    pub(crate) more: String,
    /// Environment variables of the pods that start from now on.
    pub(crate) variables: BTreeMap<String, String>,
    scheme: &'static str,
    running: BTreeMap<String, ChildProcess>,
    pub(crate) urls: Urls,
    pub(crate) upstream: Arc<Upstream>,
    pub(crate) client: reqwest::Client,
}

impl Pods {
    pub(crate) async fn new(servers: &[String], replicas: usize) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let definitions = dir.path().join("definitions");
        std::fs::create_dir(&definitions).unwrap();
        std::fs::write(definitions.join("order.saga.yaml"), DEFINITION).unwrap();
        let client = orlog_effect::http::client()
            .timeout(Duration::from_secs(3))
            .build()
            .unwrap();
        let upstream = Upstream::open().await;
        let (servers, running, urls) = (servers.to_vec(), BTreeMap::new(), Urls::default());
        let routes = BTreeMap::new();
        let (cluster_name, more) = ("orlog".to_owned(), String::new());
        let scheme = "http";
        Self {
            dir,
            servers,
            routes,
            replicas,
            cluster_name,
            more,
            variables: BTreeMap::new(),
            scheme,
            running,
            urls,
            upstream,
            client,
        }
    }

    /// Makes the pods use TLS. The client has no certificate.
    pub(crate) fn use_tls(&mut self) {
        let [certificate, key, ca] =
            ["pod.pem", "pod.key", "ca.pem"].map(|file| certificate(file).display().to_string());
        self.more = format!(
            "[http.tls]\ncertificate = {certificate:?}\nkey = {key:?}\n[cluster.tls]\nca = {ca:?}\n\
             peer_name = \"pods.orlog.internal\"\n{}",
            self.more
        );
        self.scheme = "https";
        self.client = https_client(None);
    }

    fn config(&self, name: &str, port: u16) -> PathBuf {
        let (servers, upstream) = (
            self.routes.get(name).unwrap_or(&self.servers),
            &self.upstream.url,
        );
        let data = self.dir.path().join(name).display().to_string();
        let definitions = self.dir.path().join("definitions").display().to_string();
        let text = format!(
            "node_name = {name:?}\ndata_dir = {data:?}\nlisten = \"127.0.0.1:{port}\"\ndefinitions_dir = {definitions:?}\n\
             shards = {SHARDS}\n[tenants]\nkey_sharded = [\"big\"]\n[bus]\nkind = \"nats\"\n[nats]\nservers = {servers:?}\n\
             replicas = {}\nmanage_aggregate_stream = true\n[cluster]\nname = {:?}\nmode = \"leases\"\nlease_ttl = \"2s\"\n[upstreams.shop]\nbase_url = {upstream:?}\n\
             [upstreams.shop.effects.\"pay.charge\"]\nmethod = \"POST\"\npath = \"/charge\"\n\
             [upstreams.shop.effects.\"pay.ship\"]\nmethod = \"POST\"\npath = \"/ship\"\n{}",
            self.replicas, self.cluster_name, self.more
        );
        let path = self.dir.path().join(format!("{name}.toml"));
        std::fs::write(&path, text).unwrap();
        path
    }

    fn log(&self, name: &str) -> PathBuf {
        self.dir.path().join(format!("{name}.log"))
    }

    /// Starts or restarts a pod on its existing data and waits until it responds.
    pub(crate) async fn start(&mut self, name: &str) {
        let port = free_port();
        let process = self.run(name, port);
        let url = format!("{}://127.0.0.1:{port}", self.scheme);
        let mut look = tokio::time::interval(POLL_INTERVAL);
        while self
            .client
            .get(format!("{url}/health"))
            .send()
            .await
            .is_err()
        {
            assert!(
                !process.has_ended(),
                "pod {name} ended: {}",
                self.log_contains(name)
            );
            look.tick().await;
        }
        self.running.insert(name.to_owned(), process);
        self.urls.lock().insert(name.to_owned(), url);
    }

    fn run(&self, name: &str, port: u16) -> ChildProcess {
        let config = self.config(name, port).display().to_string();
        let binary = Path::new(env!("CARGO_BIN_EXE_orlog"));
        let mut variables = self.variables.clone();
        variables
            .entry("ORLOG_LOG__FORMAT".to_owned())
            .or_insert_with(|| "json".to_owned());
        let variables: Vec<_> = variables.into_iter().collect();
        let arguments = ["run", "--config", &config];
        ChildProcess::start(binary, &arguments, &variables, &self.log(name))
    }

    /// Starts a pod that must not start, waits until its process has ended, and returns its log.
    pub(crate) async fn start_rejected(&self, name: &str) -> String {
        let process = self.run(name, free_port());
        let label = format!("{name} does not start");
        until(&label, async || process.has_ended().then_some(())).await;
        self.log_contains(name)
    }

    /// Drains a pod, and waits until its process has ended.
    pub(crate) async fn stop(&mut self, name: &str) {
        self.drain(name);
        let label = format!("{name} stops");
        until(&label, async || {
            self.running[name].has_ended().then_some(())
        })
        .await;
        self.kill(name);
    }

    /// Waits until the process of a pod has ended by itself, and returns its log.
    pub(crate) async fn until_ended(&mut self, name: &str) -> String {
        let label = format!("{name} ends");
        until(&label, async || {
            self.running[name].has_ended().then_some(())
        })
        .await;
        self.kill(name);
        self.log_contains(name)
    }

    /// Starts pods and waits until every reachable pod owns a shard.
    pub(crate) async fn start_all(&mut self, names: &[&str]) {
        for name in names {
            self.start(name).await;
        }
        self.until_spread().await;
    }

    pub(crate) fn kill(&mut self, name: &str) {
        self.urls.lock().remove(name);
        drop(self.running.remove(name));
    }

    /// Terminates a pod like Kubernetes.
    pub(crate) fn drain(&mut self, name: &str) {
        self.urls.lock().remove(name);
        self.running[name].signal(Signal::TERM);
    }

    /// Starts a pod that connects to the servers through these addresses.
    pub(crate) async fn start_through(&mut self, name: &str, addresses: Vec<String>) {
        self.routes.insert(name.to_owned(), addresses);
        self.start(name).await;
    }

    /// Sends no requests to this pod until all running pods are queried again.
    pub(crate) fn exclude(&mut self, name: &str) {
        self.urls.lock().remove(name);
    }

    pub(crate) fn pause(&mut self, name: &str) {
        self.urls.lock().remove(name);
        self.running[name].signal(Signal::STOP);
    }

    pub(crate) fn resume(&mut self, name: &str) {
        self.running[name].signal(Signal::CONT);
    }

    /// Waits until every reachable pod owns a shard and every shard has an owner.
    pub(crate) async fn until_spread(&mut self) {
        self.find_resumed();
        let all: BTreeSet<String> = self.urls.lock().keys().cloned().collect();
        self.until(&format!("each of {all:?} has shards"), |holders| {
            *holders == all
        })
        .await;
    }

    /// Waits until these pods own all shards.
    pub(crate) async fn wait_for_owners(&self, names: &[&str]) {
        let expected: BTreeSet<String> = names.iter().map(|name| (*name).to_owned()).collect();
        self.until(&format!("{names:?} have all shards"), |holders| {
            holders.is_subset(&expected)
        })
        .await;
    }

    /// Restores the address of a resumed pod from its configuration.
    fn find_resumed(&self) {
        let mut urls = self.urls.lock();
        for (name, process) in &self.running {
            if !urls.contains_key(name) && !process.has_ended() {
                let text =
                    std::fs::read_to_string(self.dir.path().join(format!("{name}.toml"))).unwrap();
                let config: toml::Table = text.parse().unwrap();
                urls.insert(
                    name.clone(),
                    format!("{}://{}", self.scheme, config["listen"].as_str().unwrap()),
                );
            }
        }
    }

    async fn until(&self, label: &str, fact: impl Fn(&BTreeSet<String>) -> bool) {
        let mut last = Value::Null;
        let reached = async {
            let mut look = tokio::time::interval(POLL_INTERVAL);
            loop {
                let owners = self.owners(&mut last).await;
                if owners.is_some_and(|holders| fact(&holders)) {
                    return;
                }
                look.tick().await;
            }
        };
        let reached = tokio::time::timeout(WAIT_TIMEOUT, reached).await;
        assert!(
            reached.is_ok(),
            "{label}: not in a minute; {last}; {}",
            self.all_logs_contain()
        );
    }

    /// Returns the shard owners as reported by the reachable pods; `None` unless each shard has an owner.
    async fn owners(&self, last: &mut Value) -> Option<BTreeSet<String>> {
        let urls = self.urls.lock().clone();
        let (mut holders, mut shards) = (BTreeSet::new(), BTreeSet::new());
        for (name, url) in urls {
            let info: Value = self
                .client
                .get(format!("{url}/info"))
                .send()
                .await
                .ok()?
                .json()
                .await
                .ok()?;
            let own: Vec<u64> = info["shards"]
                .as_array()?
                .iter()
                .filter_map(|shard| shard["shard"].as_u64())
                .collect();
            if !own.is_empty() {
                holders.insert(name);
            }
            shards.extend(own);
            *last = info["cluster"].clone();
        }
        (shards.len() == SHARDS).then_some(holders)
    }

    /// Returns the shards that run in a pod.
    pub(crate) async fn shards_of(&self, name: &str) -> BTreeSet<u64> {
        let info = self.ask(name, "GET", "/info").send().await.unwrap();
        let info: Value = info.json().await.unwrap();
        let shards = info["shards"].as_array().unwrap();
        shards
            .iter()
            .filter_map(|shard| shard["shard"].as_u64())
            .collect()
    }

    /// Returns the position of the last commit of each shard that runs in a reachable pod.
    pub(crate) async fn positions(&self) -> BTreeMap<(String, u64), u64> {
        let urls = self.urls.lock().clone();
        let mut positions = BTreeMap::new();
        for (name, url) in urls {
            let Ok(response) = self.client.get(format!("{url}/metrics")).send().await else {
                continue;
            };
            let text = response.text().await.unwrap_or_default();
            for line in text.lines() {
                let Some(rest) = line.strip_prefix("orlog_store_position{shard=\"") else {
                    continue;
                };
                let Some((shard, position)) = rest.split_once("\"} ") else {
                    continue;
                };
                if let (Ok(shard), Ok(position)) = (shard.parse(), position.parse()) {
                    positions.insert((name.clone(), shard), position);
                }
            }
        }
        positions
    }

    /// Writes a file that pods can read.
    pub(crate) fn file(&self, name: &str, text: &str) -> PathBuf {
        let path = self.dir.path().join(name);
        std::fs::write(&path, text).unwrap();
        path
    }

    /// Creates a request to a pod.
    pub(crate) fn ask(&self, name: &str, method: &str, path: &str) -> reqwest::RequestBuilder {
        let url = format!("{}{path}", self.urls.lock()[name]);
        self.client.request(method.parse().unwrap(), url)
    }

    /// Returns the metrics of a pod in the Prometheus text format.
    pub(crate) async fn metrics(&self, name: &str) -> String {
        self.ask(name, "GET", "/metrics")
            .send()
            .await
            .unwrap()
            .text()
            .await
            .unwrap()
    }

    fn log_contains(&self, name: &str) -> String {
        let text = std::fs::read_to_string(self.log(name)).unwrap_or_default();
        let lines: Vec<&str> = text
            .lines()
            .filter(|line| !line.contains("request failed"))
            .collect();
        lines[lines.len().saturating_sub(25)..].join("\n")
    }

    pub(crate) fn all_logs_contain(&self) -> String {
        let logs = self
            .running
            .keys()
            .map(|name| format!("--- {name}\n{}\n", self.log_contains(name)));
        logs.collect()
    }
}
