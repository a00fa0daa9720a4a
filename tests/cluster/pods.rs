//! Pods: processes of the real binary that share the shards.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use orlog_testkit::child_process::Kept;
use orlog_testkit::nats_server::free_port;
use rustix::process::Signal;
use serde_json::Value;
use tempfile::TempDir;

use crate::upstream::Upstream;

const SHARDS: usize = 6;
/// Between two looks at what pods say.
const LOOK: Duration = Duration::from_millis(10);

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

/// Where pods can be reached now; shared with whoever sends them events.
pub(crate) type Urls = Arc<Mutex<BTreeMap<String, String>>>;

/// The pods of a test, and what they share.
pub(crate) struct Pods {
    folder: TempDir,
    servers: Vec<String>,
    /// Pods that reach the servers another way.
    ways: BTreeMap<String, String>,
    replicas: usize,
    /// More of their configuration.
    pub(crate) more: String,
    running: BTreeMap<String, Kept>,
    pub(crate) urls: Urls,
    pub(crate) upstream: Arc<Upstream>,
    pub(crate) client: reqwest::Client,
}

impl Pods {
    pub(crate) async fn new(servers: &[String], replicas: usize) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let definitions = folder.path().join("definitions");
        std::fs::create_dir(&definitions).unwrap();
        std::fs::write(definitions.join("order.saga.yaml"), DEFINITION).unwrap();
        let client = orlog_effect::http::client().timeout(Duration::from_secs(3)).build().unwrap();
        let upstream = Upstream::open().await;
        let (servers, running, urls) = (servers.to_vec(), BTreeMap::new(), Urls::default());
        let ways = BTreeMap::new();
        Self { folder, servers, ways, replicas, more: String::new(), running, urls, upstream, client }
    }

    fn config(&self, name: &str, port: u16) -> PathBuf {
        let way = self.ways.get(name).map(|way| vec![way.clone()]);
        let (servers, upstream) = (way.as_ref().unwrap_or(&self.servers), &self.upstream.url);
        let data = self.folder.path().join(name);
        let definitions = self.folder.path().join("definitions");
        let text = format!(
            "node = {name:?}\ndata = {data:?}\nlisten = \"127.0.0.1:{port}\"\ndefinitions = {definitions:?}\n\
             shards = {SHARDS}\n[tenants]\nspread = [\"big\"]\n[bus]\nkind = \"nats\"\n[nats]\nservers = {servers:?}\n\
             replicas = {}\nown_aggregate_stream = true\n[cluster]\nmode = \"leased\"\nttl = \"2s\"\n[upstreams.shop]\nbase_url = {upstream:?}\n\
             [upstreams.shop.effects.\"pay.charge\"]\nmethod = \"POST\"\npath = \"/charge\"\n\
             [upstreams.shop.effects.\"pay.ship\"]\nmethod = \"POST\"\npath = \"/ship\"\n{}",
            self.replicas, self.more
        );
        let path = self.folder.path().join(format!("{name}.toml"));
        std::fs::write(&path, text).unwrap();
        path
    }

    fn log(&self, name: &str) -> PathBuf {
        self.folder.path().join(format!("{name}.log"))
    }

    /// Starts a pod, again, on what it has on its disk, and waits until it answers.
    pub(crate) async fn start(&mut self, name: &str) {
        let port = free_port();
        let config = self.config(name, port).display().to_string();
        let binary = Path::new(env!("CARGO_BIN_EXE_orlog"));
        let variables = [("ORLOG_LOG__FORMAT".to_owned(), "json".to_owned())];
        let process = Kept::start(binary, &["run", "--config", &config], &variables, &self.log(name));
        let url = format!("http://127.0.0.1:{port}");
        let mut look = tokio::time::interval(LOOK);
        while self.client.get(format!("{url}/health")).send().await.is_err() {
            assert!(!process.has_ended(), "pod {name} ended: {}", self.said(name));
            look.tick().await;
        }
        self.running.insert(name.to_owned(), process);
        self.urls.lock().unwrap().insert(name.to_owned(), url);
    }

    pub(crate) fn kill(&mut self, name: &str) {
        self.urls.lock().unwrap().remove(name);
        drop(self.running.remove(name));
    }

    /// As Kubernetes ends a pod.
    pub(crate) fn drain(&mut self, name: &str) {
        self.urls.lock().unwrap().remove(name);
        self.running[name].signal(Signal::TERM);
    }

    /// Starts a pod that reaches the servers by this address.
    pub(crate) async fn start_by(&mut self, name: &str, way: &str) {
        self.ways.insert(name.to_owned(), way.to_owned());
        self.start(name).await;
    }

    /// Nobody asks this pod for anything, until all that run are asked again.
    pub(crate) fn leave_alone(&mut self, name: &str) {
        self.urls.lock().unwrap().remove(name);
    }

    pub(crate) fn pause(&mut self, name: &str) {
        self.urls.lock().unwrap().remove(name);
        self.running[name].signal(Signal::STOP);
    }

    pub(crate) fn resume(&mut self, name: &str) {
        self.running[name].signal(Signal::CONT);
    }

    /// Waits until every pod that can be reached runs a shard, and every shard runs.
    pub(crate) async fn until_spread(&mut self) {
        self.find_resumed();
        let all: BTreeSet<String> = self.urls.lock().unwrap().keys().cloned().collect();
        self.until(&format!("each of {all:?} has shards"), |holders| *holders == all).await;
    }

    /// Waits until these run every shard between them.
    pub(crate) async fn until_held_by(&self, names: &[&str]) {
        let wanted: BTreeSet<String> = names.iter().map(|name| (*name).to_owned()).collect();
        self.until(&format!("{names:?} have all shards"), |holders| holders.is_subset(&wanted)).await;
    }

    /// A pod that goes on has the address that stands in its configuration.
    fn find_resumed(&self) {
        let mut urls = self.urls.lock().unwrap();
        for (name, process) in &self.running {
            if !urls.contains_key(name) && !process.has_ended() {
                let text = std::fs::read_to_string(self.folder.path().join(format!("{name}.toml"))).unwrap();
                let config: toml::Table = text.parse().unwrap();
                urls.insert(name.clone(), format!("http://{}", config["listen"].as_str().unwrap()));
            }
        }
    }

    async fn until(&self, what: &str, fact: impl Fn(&BTreeSet<String>) -> bool) {
        let mut last = Value::Null;
        let reached = async {
            let mut look = tokio::time::interval(LOOK);
            loop {
                let held = self.held(&mut last).await;
                if held.is_some_and(|holders| fact(&holders)) {
                    return;
                }
                look.tick().await;
            }
        };
        let reached = tokio::time::timeout(Duration::from_mins(1), reached).await;
        assert!(reached.is_ok(), "{what}: not in a minute; {last}; {}", self.all_said());
    }

    /// Who runs shards, as the pods that can be reached say of themselves; `None` unless each shard runs somewhere.
    async fn held(&self, last: &mut Value) -> Option<BTreeSet<String>> {
        let urls = self.urls.lock().unwrap().clone();
        let (mut holders, mut shards) = (BTreeSet::new(), BTreeSet::new());
        for (name, url) in urls {
            let info: Value = self.client.get(format!("{url}/info")).send().await.ok()?.json().await.ok()?;
            let own: Vec<u64> =
                info["shards"].as_array()?.iter().filter_map(|shard| shard["shard"].as_u64()).collect();
            if !own.is_empty() {
                holders.insert(name);
            }
            shards.extend(own);
            *last = info["cluster"].clone();
        }
        (shards.len() == SHARDS).then_some(holders)
    }

    /// A file that pods can read.
    pub(crate) fn file(&self, name: &str, text: &str) -> PathBuf {
        let path = self.folder.path().join(name);
        std::fs::write(&path, text).unwrap();
        path
    }

    /// Asks a pod.
    pub(crate) fn ask(&self, name: &str, method: &str, path: &str) -> reqwest::RequestBuilder {
        let url = format!("{}{path}", self.urls.lock().unwrap()[name]);
        self.client.request(method.parse().unwrap(), url)
    }

    /// What a pod shows of itself in the text format of Prometheus.
    pub(crate) async fn metrics(&self, name: &str) -> String {
        self.ask(name, "GET", "/metrics").send().await.unwrap().text().await.unwrap()
    }

    fn said(&self, name: &str) -> String {
        let text = std::fs::read_to_string(self.log(name)).unwrap_or_default();
        let lines: Vec<&str> = text.lines().filter(|line| !line.contains("a request failed")).collect();
        lines[lines.len().saturating_sub(25)..].join("\n")
    }

    pub(crate) fn all_said(&self) -> String {
        let said = self.running.keys().map(|name| format!("--- {name}\n{}\n", self.said(name)));
        said.collect()
    }
}
