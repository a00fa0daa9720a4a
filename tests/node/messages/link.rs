//! Two nodes as processes, linked by signed HTTP or by NATS over connections that are cut at random, and killed at random.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use orlog_signature::SigningKey;
use orlog_testkit::host::free_port;
use orlog_testkit::long_run_size;
use orlog_testkit::nats_server::NatsServer;
use orlog_testkit::runtime::seed;
use orlog_testkit::wait::until;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::io::{AsyncReadExt as _, copy, copy_bidirectional};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

use super::over_nats::documented;
use crate::harness::http::{client, send};
use crate::harness::process::Process;

/// Names of the nodes, as in docs/peers.md.
const NAMES: [&str; 2] = ["a.example.com", "b.example.com"];

/// Proxy before a port, which keeps its own address when the port changes.
struct Link {
    address: String,
    is_cut: Arc<AtomicBool>,
    /// Number of connections that were cut.
    cuts: Arc<AtomicUsize>,
}

impl Link {
    /// Cuts each connection after at most this number of bytes.
    async fn open(target: watch::Receiver<Option<u16>>, max_bytes: u64, seed: u64) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let (is_cut, cuts) = (
            Arc::new(AtomicBool::new(true)),
            Arc::<AtomicUsize>::default(),
        );
        let (cutting, cut) = (Arc::clone(&is_cut), Arc::clone(&cuts));
        tokio::spawn(async move {
            let mut random = fastrand::Rng::with_seed(seed);
            while let Ok((client, _)) = listener.accept().await {
                let limit = (random.bool(), random.u64(..max_bytes));
                let limit = cutting.load(Ordering::Acquire).then_some(limit);
                tokio::spawn(carry(client, *target.borrow(), limit, Arc::clone(&cut)));
            }
        });
        Self {
            address,
            is_cut,
            cuts,
        }
    }
}

/// Carries a connection; with a limit, until one direction has carried this number of bytes.
async fn carry(
    mut client: TcpStream,
    port: Option<u16>,
    limit: Option<(bool, u64)>,
    cuts: Arc<AtomicUsize>,
) {
    let Some(port) = port else { return };
    let Ok(mut node) = TcpStream::connect(("127.0.0.1", port)).await else {
        return;
    };
    // The end of the task closes both connections.
    let Some((of_requests, limit)) = limit else {
        drop(copy_bidirectional(&mut client, &mut node).await);
        return;
    };
    let ((from_client, mut to_client), (from_node, mut to_node)) = (client.split(), node.split());
    let [requests, responses] = if of_requests {
        [limit, u64::MAX]
    } else {
        [u64::MAX, limit]
    };
    let (mut requests, mut responses) = (from_client.take(requests), from_node.take(responses));
    tokio::select! {
        _ = copy(&mut requests, &mut to_node) => {}
        _ = copy(&mut responses, &mut to_client) => {}
    }
    if requests.limit() == 0 || responses.limit() == 0 {
        cuts.fetch_add(1, Ordering::AcqRel);
    }
}

/// Node that is killed and started again with its data.
struct Node {
    name: &'static str,
    dir: TempDir,
    /// Port of the process.
    port: watch::Sender<Option<u16>>,
    process: Option<Process>,
    http: reqwest::Client,
}

/// Two nodes, and what is between them.
struct Pair {
    nodes: [Node; 2],
    links: Vec<Link>,
    _servers: Vec<NatsServer>,
}

impl Pair {
    /// Links the nodes by a proxy before each one.
    async fn over_http(seed: u64, max_bytes: u64) -> Self {
        let (nodes, keys) = Node::prepare();
        let mut links = Vec::new();
        for (node, seed) in nodes.iter().zip(seed..) {
            links.push(Link::open(node.port.subscribe(), max_bytes, seed).await);
        }
        for (own, peer) in [(0, 1), (1, 0)] {
            nodes[own].configure(
                "",
                (nodes[peer].name, &keys[peer]),
                &format!("http://{}", links[peer].address),
            );
        }
        Self {
            nodes,
            links,
            _servers: Vec::new(),
        }
    }

    /// Links the nodes by the documented leaf node, with a proxy between the servers.
    async fn over_nats(seed: u64, max_bytes: u64) -> Self {
        let (nodes, keys) = Node::prepare();
        let [_, leaf, hub] = documented();
        let port = free_port();
        let link = Link::open(watch::Sender::new(Some(port)).subscribe(), max_bytes, seed).await;
        // Without TLS, for which the page has no certificate.
        let tls = hub.lines().find(|line| line.contains("tls {")).unwrap();
        let hub = hub.replace(tls, "");
        // The leaf node learns no other address, so that the proxy stays the only path.
        let listen = format!("127.0.0.1:{port}\"\n  no_advertise: true\n");
        let hub = NatsServer::start_with(&hub.replace("0.0.0.0:7422\"\n", &listen));
        let url = format!("nats-leaf://link:secret@{}", link.address);
        let leaf = NatsServer::start_with(
            &leaf.replace("tls://link:secret@nats.b.example.com:7422", &url),
        );
        let servers = vec![leaf, hub];
        for (own, peer) in [(0, 1), (1, 0)] {
            let password = nodes[own].dir.path().join("password");
            private(&password, "secret");
            let bus = format!(
                "[bus]\nkind = \"nats\"\n[nats]\nservers = [{:?}]\nuser = \"orlog\"\npassword = \"file:{}\"\n\
                 manage_aggregate_stream = true\n",
                servers[own].url(),
                password.display()
            );
            let address = format!("nats:orlog.node.{}", nodes[peer].name.replace('.', "%2E"));
            nodes[own].configure(&bus, (nodes[peer].name, &keys[peer]), &address);
        }
        Self {
            nodes,
            links: vec![link],
            _servers: servers,
        }
    }
}

impl Node {
    /// Creates two nodes with their keys; returns also the public keys.
    fn prepare() -> ([Self; 2], [String; 2]) {
        let nodes = NAMES.map(|name| {
            let (dir, pem) = (
                tempfile::tempdir().unwrap(),
                SigningKey::generate_pem().unwrap(),
            );
            private(&dir.path().join("key"), &pem);
            let public = SigningKey::from_pem(&pem).unwrap().public_key().to_string();
            (
                Self {
                    name,
                    dir,
                    port: watch::Sender::new(None),
                    process: None,
                    http: client(),
                },
                public,
            )
        });
        let [(one, one_key), (two, two_key)] = nodes;
        ([one, two], [one_key, two_key])
    }

    /// Writes the configuration with the other node as a peer.
    fn configure(&self, bus: &str, (peer, key): (&str, &str), address: &str) {
        let (own, file) = (self.name, self.dir.path().join("key").display().to_string());
        let text = format!(
            "[identity]\nname = \"{own}\"\nkey_file = \"{file}\"\n{bus}[peers.\"{peer}\"]\naddress = \"{address}\"\nkeys = [\"{key}\"]\n"
        );
        std::fs::write(self.config(), text).unwrap();
    }

    fn config(&self) -> PathBuf {
        self.dir.path().join("orlog.toml")
    }

    fn start(&mut self) {
        let (config, data) = (self.config(), self.dir.path().join("data"));
        let process = Process::start(&[
            "--config",
            config.to_str().unwrap(),
            "--data-dir",
            data.to_str().unwrap(),
        ]);
        let port = process.url.rsplit(':').next().unwrap().parse().unwrap();
        self.port.send_replace(Some(port));
        self.process = Some(process);
    }

    fn kill_and_start(&mut self) {
        self.port.send_replace(None);
        if let Some(process) = self.process.take() {
            process.kill();
        }
        self.start();
    }

    /// Sends a request in the context `shop`.
    async fn ask(&self, method: &str, path: &str, body: Option<&Value>) -> Value {
        let url = format!("{}{path}", self.process.as_ref().unwrap().url);
        send(&self.http, method, url, &[("x-tenant-id", "shop")], body)
            .await
            .ok()
    }

    /// Returns all messages of a box with a status.
    async fn messages(&self, query: &str) -> Vec<Value> {
        let (mut all, mut cursor) = (Vec::new(), String::new());
        loop {
            let page = self
                .ask(
                    "GET",
                    &format!("/v1/messages?limit=1000&{query}{cursor}"),
                    None,
                )
                .await;
            all.extend(page["items"].as_array().unwrap().iter().cloned());
            let Some(next) = page["next_cursor"].as_str() else {
                return all;
            };
            cursor = format!("&cursor={next}");
        }
    }
}

/// Executes the jobs of a node, also after its restarts.
async fn run_jobs(mut node: watch::Receiver<Option<u16>>) {
    let http = client();
    let request = async |port: u16, path: &str, body: &Value| {
        let url = format!("http://127.0.0.1:{port}{path}");
        let response = http
            .post(url)
            .header("x-tenant-id", "shop")
            .json(body)
            .send()
            .await
            .ok()?;
        response.json::<Value>().await.ok()
    };
    // Jobs whose result has no response yet.
    let mut held: Vec<Value> = Vec::new();
    loop {
        let Ok(Some(port)) = node.wait_for(Option::is_some).await.map(|port| *port) else {
            return;
        };
        let claim = json!({ "effects": ["job.echo"], "worker": "w", "wait_seconds": 1 });
        let claimed = request(port, "/v1/work/claim", &claim)
            .await
            .unwrap_or_default();
        held.extend(claimed["jobs"].as_array().into_iter().flatten().cloned());
        for job in std::mem::take(&mut held) {
            let path = format!("/v1/work/jobs/{}/result", job["job"].as_str().unwrap());
            let result = json!({ "claim": job["claim"], "result": "succeeded", "payload": {} });
            let response = request(port, &path, &result).await.unwrap_or_default();
            // Without a response, the node was killed. The claim stays valid: the worker sends the result again.
            if !response["duplicate"].is_boolean() && response["code"] != "OR0030" {
                held.push(job);
            }
        }
    }
}

fn private(file: &Path, text: &str) {
    use std::os::unix::fs::PermissionsExt as _;
    std::fs::write(file, text).unwrap();
    std::fs::set_permissions(file, std::fs::Permissions::from_mode(0o600)).unwrap();
}

/// Returns whether a history entry is the arrival of a result; its note names the sender of the report.
fn is_result(entry: &Value) -> bool {
    entry["note"]
        .as_str()
        .is_some_and(|note| note.ends_with("processed"))
}

/// Sends `count` jobs each way; the nodes are killed at random, in all `kills` times.
async fn exchange(pair: Pair, count: usize, kills: usize, seed: u64) {
    let Pair {
        mut nodes,
        links,
        _servers,
    } = pair;
    for (own, peer) in [(0, 1), (1, 0)] {
        nodes[own].start();
        let sender = format!("context:shop@{}", NAMES[peer]);
        let lists = json!({ "admins": ["user:root"], "readers": [], "executors": [sender] });
        nodes[own]
            .ask("PUT", "/v1/contexts/shop", Some(&lists))
            .await;
    }
    let runners = nodes
        .each_ref()
        .map(|node| tokio::spawn(run_jobs(node.port.subscribe())).abort_handle());
    let mut random = fastrand::Rng::with_seed(seed);
    let kill_every = (2 * count / kills.max(1)).max(1);
    for number in 0..2 * count {
        let (node, to) = (
            &nodes[number % 2],
            format!("shop@{}", NAMES[1 - number % 2]),
        );
        // The result names the job of the message.
        let job = format!("j{}", number / 2);
        let flow = json!({ "jobs": [{ "id": job, "type": "echo", "script": "x" }] });
        let id = format!("m-{}", number / 2);
        node.ask(
            "POST",
            "/v1/messages",
            Some(&json!({ "id": id, "to": to, "type": "job", "flow": flow })),
        )
        .await;
        if number % kill_every == kill_every - 1 {
            nodes[random.usize(..2)].kill_and_start();
        }
    }
    for (node, other) in [(&nodes[0], &nodes[1]), (&nodes[1], &nodes[0])] {
        check_results(node, other, count, seed).await;
    }
    let cuts: Vec<_> = links
        .iter()
        .map(|link| link.cuts.load(Ordering::Acquire))
        .collect();
    println!("connections that were cut, by link: {cuts:?}");
    // Each connection ends after some messages.
    assert!(
        cuts.iter().sum::<usize>() > count / 100,
        "the links were hardly cut, seed {seed}"
    );
    for link in &links {
        link.is_cut.store(false, Ordering::Release);
    }
    for node in &nodes {
        until("nothing is pending", || async {
            let all = node
                .ask("GET", "/v1/sagas?status=running&limit=10", None)
                .await;
            all["items"].as_array().unwrap().is_empty().then_some(())
        })
        .await;
    }
    runners.iter().for_each(tokio::task::AbortHandle::abort);
}

/// Waits until all messages of a node have their result, and checks that each one was received once, and its result once.
async fn check_results(node: &Node, other: &Node, count: usize, seed: u64) {
    let mut ended = 0;
    // The deadline applies to the progress, not to the whole exchange.
    while ended < count {
        let found = until("more messages end", || async {
            let found = node.messages("box=out&status=processed").await.len();
            (found > ended).then_some(found)
        });
        ended = found.await;
    }
    assert_eq!(node.messages("box=out").await.len(), count, "seed {seed}");
    let received = other.messages("box=in").await;
    assert_eq!(
        received.len(),
        count,
        "each message arrives once, seed {seed}"
    );
    for number in 0..count {
        let sent = node
            .ask("GET", &format!("/v1/messages/m-{number}"), None)
            .await;
        let jobs: Vec<_> = sent["result"]
            .as_object()
            .unwrap()
            .keys()
            .cloned()
            .collect();
        assert_eq!(
            jobs,
            [format!("j{number}")],
            "the result belongs to the message, seed {seed}"
        );
        let instance = node
            .ask("GET", &format!("/v1/sagas/orlog.message/m-{number}"), None)
            .await;
        let history = instance["history"]["items"].as_array().unwrap();
        let results = history.iter().filter(|entry| is_result(entry)).count();
        assert_eq!(
            results, 1,
            "the result arrives once, seed {seed}: {history:?}"
        );
    }
}

/// Requirements: F6, E8.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_result_arrives_once_although_the_link_is_cut_and_both_nodes_are_killed() {
    let seed = seed(20_261_126);
    exchange(Pair::over_http(seed, 6_000).await, 12, 4, seed).await;
}

/// Requirements: F6, E8.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_result_over_nats_arrives_once_although_the_link_is_cut_and_both_nodes_are_killed() {
    let seed = seed(20_261_126);
    exchange(Pair::over_nats(seed, 25_000).await, 12, 3, seed).await;
}

/// `ORLOG_MESSAGES` jobs each way (1000), and a kill for each 20 of them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "long; make stress"]
async fn every_result_of_many_messages_arrives_once() {
    let (count, seed) = (long_run_size("ORLOG_MESSAGES", 1_000), seed(1));
    exchange(Pair::over_http(seed, 20_000).await, count, count / 20, seed).await;
}

/// As over HTTP.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "long; make stress"]
async fn every_result_of_many_messages_over_nats_arrives_once() {
    let (count, seed) = (long_run_size("ORLOG_MESSAGES", 1_000), seed(1));
    exchange(
        Pair::over_nats(seed, 150_000).await,
        count,
        count / 20,
        seed,
    )
    .await;
}
