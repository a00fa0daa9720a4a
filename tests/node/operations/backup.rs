//! Backups: created under load, damaged, restored, and continued from.

use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use axum::Router;
use axum::http::HeaderMap;
use axum::routing::post;
use orlog::backup;
use orlog_testkit::WAIT_TIMEOUT;
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::net::TcpListener;

use crate::harness::http::client;
use crate::harness::process::Process;
use crate::harness::process::{orlog, run};
use crate::operations::node::{Node, placed};

const ORDER: &str = "
saga: order
version: 1
correlate: orderId
start: OrderPlaced
vars: { orderId: =event.orderId, paid: 0 }
on:
  - event: Paid
    save: { paid: =vars.paid + event.amount }
steps:
  - id: reserve
    do: { effect: stock.reserve, data: { orderId: =vars.orderId } }
  - id: cool
    do: { wait: 400ms }
  - id: receipt
    do: { saga: receipt, correlation: =vars.orderId + '-receipt', data: { of: =vars.orderId } }
  - id: charge
    do: { effect: bank.charge, data: { orderId: =vars.orderId, paid: =vars.paid } }
completed: { fact: OrderCompleted, data: { orderId: =vars.orderId } }
";

/// Receipt saga of an order, often in the other shard.
const RECEIPT: &str = "
saga: receipt
version: 1
correlate: of
start: ReceiptNeeded
vars: { of: =event.of }
steps:
  - id: print
    do: { effect: printer.print, data: { orderId: =vars.of } }
";

/// Amounts paid for each order, one event each.
const AMOUNTS: [u64; 3] = [1, 2, 4];

/// Executed action and its order.
pub(crate) type ExecutedAction = (String, String);

/// Calls that the shop received.
pub(crate) type ExecutionLog = Arc<Mutex<BTreeMap<ExecutedAction, BTreeSet<UpstreamCall>>>>;

/// Idempotency key of a call, and the reported paid amount.
pub(crate) type UpstreamCall = (String, Option<u64>);

/// Starts an upstream that records its calls.
async fn shop() -> (String, ExecutionLog) {
    let log = ExecutionLog::default();
    let written = Arc::clone(&log);
    let handler = move |headers: HeaderMap, axum::Json(body): axum::Json<Value>| {
        let key = headers["idempotency-key"].to_str().unwrap().to_owned();
        let order = body["orderId"].as_str().unwrap().to_owned();
        let label = headers["x-what"].to_str().unwrap().to_owned();
        let received = (key, body["paid"].as_u64());
        written
            .lock()
            .entry((label, order))
            .or_default()
            .insert(received);
        async { axum::Json(json!({})) }
    };
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let router = Router::new().route("/do", post(handler));
    tokio::spawn(async move { axum::serve(listener, router).await });
    (url, log)
}

pub(crate) struct BackupFixture {
    dir: tempfile::TempDir,
    /// Lines of the section `store`.
    store: &'static str,
}

impl BackupFixture {
    pub(crate) fn new() -> Self {
        Self::with_store("memtable_max_age = \"50ms\"")
    }

    pub(crate) fn with_store(store: &'static str) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let definitions = dir.path().join("definitions");
        std::fs::create_dir(&definitions).unwrap();
        std::fs::write(definitions.join("order.saga.yaml"), ORDER).unwrap();
        std::fs::write(definitions.join("receipt.saga.yaml"), RECEIPT).unwrap();
        Self { dir, store }
    }

    /// Starts a node on this data directory, with its own shop.
    pub(crate) async fn start(&self, data: &str) -> (Process, ExecutionLog) {
        let (url, log) = shop().await;
        let effect = |name: &str| {
            format!(
                "[upstreams.shop.effects.\"{name}\"]\nmethod = \"POST\"\npath = \"/do\"\nbody = true\nheaders = {{ \"x-what\" = \"{name}\" }}\n"
            )
        };
        let text = format!(
            "definitions_dir = \"{}\"\nshards = 2\n[tenants]\nkey_sharded = [\"big\"]\n[store]\n{}\n[bus]\nsegment_size = \"64KiB\"\nretention_size = \"64KiB\"\n[upstreams.shop]\nbase_url = \"{url}\"\n{}",
            self.path("definitions").display(),
            self.store,
            ["stock.reserve", "printer.print", "bank.charge"]
                .map(effect)
                .concat(),
        );
        let config = self.path(&format!("{data}.toml"));
        std::fs::write(&config, text).unwrap();
        let data = self.path(data);
        (
            Process::start(&[
                "--config",
                config.to_str().unwrap(),
                "--data-dir",
                data.to_str().unwrap(),
            ]),
            log,
        )
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }
}

/// Returns the events of an order.
pub(crate) fn story(id: &str) -> Vec<Value> {
    let paid = |amount: u64| {
        json!({
            "specversion": "1.0", "id": format!("paid-{amount}-{id}"), "type": "Paid", "source": "urn:shop",
            "data": { "orderId": id, "amount": amount },
        })
    };
    std::iter::once(placed(id))
        .chain(AMOUNTS.map(paid))
        .collect()
}

/// Publishes orders in sequence until it is stopped.
async fn load(url: String, accepted: Arc<Mutex<Vec<String>>>, stop: Arc<AtomicBool>) {
    let http = client();
    let mut next = 0;
    let mut pace = tokio::time::interval(Duration::from_millis(20));
    while !stop.load(Ordering::SeqCst) {
        pace.tick().await;
        let ids: Vec<String> = (next..next + 5)
            .map(|number| format!("o-{number}"))
            .collect();
        next += 5;
        let batch: Vec<Value> = ids.iter().flat_map(|id| story(id)).collect();
        let response = http
            .post(format!("{url}/v1/events"))
            .header("x-tenant-id", "big")
            .json(&batch)
            .send()
            .await;
        if response.is_ok_and(|response| response.status() == 202) {
            accepted.lock().extend(ids);
        }
    }
}

pub(crate) async fn wait_for(label: &str, is_so: impl Fn() -> bool) {
    let waited = tokio::time::timeout(WAIT_TIMEOUT, async {
        let mut tick = tokio::time::interval(Duration::from_millis(10));
        while !is_so() {
            tick.tick().await;
        }
    });
    assert!(waited.await.is_ok(), "{label} did not happen");
}

/// Returns the correlation ids of the instances in this status.
async fn instances_with_status(url: &str, saga: &str, status: &str) -> BTreeSet<String> {
    let http = client();
    let (mut found, mut cursor) = (BTreeSet::new(), String::new());
    loop {
        let url = format!("{url}/v1/sagas?limit=1000&saga={saga}&status={status}{cursor}");
        let page: Value = http
            .get(url)
            .header("x-tenant-id", "big")
            .send()
            .await
            .unwrap()
            .json()
            .await
            .unwrap();
        let items = page["items"]
            .as_array()
            .unwrap_or_else(|| panic!("{page}"))
            .iter();
        found.extend(items.map(|item| item["correlation"].as_str().unwrap().to_owned()));
        match page["next_cursor"].as_str() {
            Some(next) => cursor = format!("&cursor={next}"),
            None => return found,
        }
    }
}

/// Backup created under load.
struct BackupUnderLoad {
    dir: PathBuf,
    /// Orders that were accepted before the backup.
    promised: BTreeSet<String>,
    /// Calls that the shop received before the backup.
    received: BTreeMap<ExecutedAction, BTreeSet<UpstreamCall>>,
}

/// Requirements: E8.
#[tokio::test(flavor = "multi_thread")]
async fn backup_under_load_restores_consistently() {
    let fixture = BackupFixture::new();
    let (node, log) = fixture.start("data").await;
    let (accepted, stop) = (
        Arc::new(Mutex::new(Vec::new())),
        Arc::new(AtomicBool::new(false)),
    );
    let publisher = tokio::spawn(load(
        node.url.clone(),
        Arc::clone(&accepted),
        Arc::clone(&stop),
    ));
    let mut moments = Vec::new();
    for number in 0..3_usize {
        let before = accepted.lock().len();
        wait_for("the load", || accepted.lock().len() > before + 100).await;
        let promised = accepted.lock().iter().cloned().collect();
        let received = log.lock().clone();
        let dir = fixture.path(&format!("backup-{number}"));
        let args = ["backup", "--url", &node.url, "--to", dir.to_str().unwrap()];
        let (code, _, errors) = run(orlog(&args)).await;
        assert_eq!(code, 0, "{errors}");
        moments.push(BackupUnderLoad {
            dir,
            promised,
            received,
        });
    }
    stop.store(true, Ordering::SeqCst);
    node.kill();
    publisher.await.unwrap();
    assert!(
        !fixture
            .path("data/backups")
            .read_dir()
            .unwrap()
            .any(|entry| entry.unwrap().path().is_dir())
    );
    for (number, moment) in moments.iter().enumerate() {
        let data = format!("restored-{number}");
        let (from, to) = (moment.dir.to_str().unwrap(), fixture.path(&data));
        let (code, _, errors) = run(orlog(&[
            "restore",
            "--from",
            from,
            "--to",
            to.to_str().unwrap(),
        ]))
        .await;
        assert_eq!(code, 0, "{errors}");
        let (node, log) = fixture.start(&data).await;
        let completed = wait_until_idle(&node.url, &moment.promised).await;
        // An owner of the events may publish them again.
        let repeated_events: Vec<Value> = completed
            .iter()
            .take(50)
            .flat_map(|order| story(order))
            .collect();
        let http = client();
        let response = http
            .post(format!("{}/v1/events", node.url))
            .header("x-tenant-id", "big")
            .json(&repeated_events);
        assert_eq!(response.send().await.unwrap().status(), 202);
        assert!(
            wait_until_idle(&node.url, &moment.promised)
                .await
                .is_superset(&completed)
        );
        node.kill();
        let log = log.lock();
        assert!(!log.is_empty(), "backup {number}: work was in flight");
        agree(&moment.received, &log, &completed);
    }
}

/// Compares the records before the backup and after the restore: every payment is counted once, and
/// every action is executed under one key only.
pub(crate) fn agree(
    before: &BTreeMap<ExecutedAction, BTreeSet<UpstreamCall>>,
    after: &BTreeMap<ExecutedAction, BTreeSet<UpstreamCall>>,
    orders: &BTreeSet<String>,
) {
    let mut all = before.clone();
    for (action, received) in after {
        all.entry(action.clone())
            .or_default()
            .extend(received.clone());
    }
    for ((label, order), received) in &all {
        assert_eq!(
            received.len(),
            1,
            "{label} of {order} was asked for in several ways: {received:?}"
        );
        let paid = received.iter().next().and_then(|(_, paid)| *paid);
        assert_eq!(
            paid,
            (label == "bank.charge").then(|| AMOUNTS.iter().sum()),
            "{label} of {order}"
        );
    }
    for label in ["stock.reserve", "printer.print", "bank.charge"] {
        // Actions between reading the record and the backup are in neither record.
        let done = after.keys().filter(|(action, _)| action == label).count();
        assert!(
            done <= orders.len(),
            "{label} was done {done} times for {} orders",
            orders.len()
        );
    }
}

/// Returns the completed orders, once the accepted ones are completed and no work is pending. Asserts
/// that no order failed, every order has its receipt, and every receipt has its order.
pub(crate) async fn wait_until_idle(url: &str, promised: &BTreeSet<String>) -> BTreeSet<String> {
    let mut tick = tokio::time::interval(Duration::from_millis(300));
    let mut progress = String::new();
    for _ in 0..200 {
        tick.tick().await;
        let mut in_progress = instances_with_status(url, "order", "running,compensating").await;
        in_progress.extend(instances_with_status(url, "receipt", "running,compensating").await);
        let completed = instances_with_status(url, "order", "completed").await;
        let receipts = instances_with_status(url, "receipt", "completed").await;
        let expected: BTreeSet<_> = completed
            .iter()
            .map(|order| format!("{order}-receipt"))
            .collect();
        if in_progress.is_empty() && completed.is_superset(promised) && receipts == expected {
            for saga in ["order", "receipt"] {
                assert!(
                    instances_with_status(url, saga, "failed,stuck,cancelled")
                        .await
                        .is_empty()
                );
            }
            return completed;
        }
        let (done, all) = (completed.len(), promised.len());
        let lone: Vec<_> = receipts.symmetric_difference(&expected).collect();
        progress = format!(
            "{done} are completed, {all} were promised; these go on: {in_progress:?}; alone: {lone:?}"
        );
    }
    panic!("not idle: {progress}");
}

/// Creates a backup of a node with a few orders.
pub(crate) async fn small(to: &Path) {
    let node = Node::start(|_| ()).await;
    node.send(
        "POST",
        "/v1/events",
        &[],
        Some(&json!([placed("o-1"), placed("o-2")])),
    )
    .await
    .ok();
    let (code, output, errors) = run(orlog(&[
        "backup",
        "--url",
        &node.url,
        "--to",
        to.to_str().unwrap(),
    ]))
    .await;
    assert_eq!(code, 0, "{errors}");
    assert!(output.contains("was written: taken"), "{output}");
    node.app.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn corrupt_backup_is_rejected() {
    let dir = tempfile::tempdir().unwrap();
    let (from, to) = (dir.path().join("backup"), dir.path().join("data"));
    small(&from).await;
    let manifest = backup::verify(&from).unwrap();
    assert!(manifest.files.len() >= 4, "{manifest:?}");
    let names = manifest
        .files
        .iter()
        .map(|file| file.path.as_str())
        .chain([backup::MANIFEST, backup::SUMS]);
    for name in names {
        let path = from.join(name);
        let whole = std::fs::read(&path).unwrap();
        let mut broken = whole.clone();
        let middle = broken.len() / 2;
        broken[middle] ^= 1;
        std::fs::write(&path, &broken).unwrap();
        let error = backup::restore(&from, &to).unwrap_err().to_string();
        assert!(error.contains(name), "{name}: {error}");
        std::fs::write(&path, &whole[..whole.len() / 2]).unwrap();
        assert!(backup::restore(&from, &to).is_err(), "{name} is cut");
        std::fs::remove_file(&path).unwrap();
        assert!(backup::restore(&from, &to).is_err(), "{name} is gone");
        std::fs::write(&path, &whole).unwrap();
        assert!(!to.exists(), "{name}: nothing is made of a damaged backup");
    }
    std::fs::write(from.join("stranger"), "x").unwrap();
    let (code, _, errors) = run(orlog(&["backup", "verify", from.to_str().unwrap()])).await;
    assert_eq!(code, 1, "{errors}");
    assert!(
        errors.contains("stranger is not listed in the manifest"),
        "{errors}"
    );
    std::fs::remove_file(from.join("stranger")).unwrap();
    assert_eq!(
        run(orlog(&["backup", "verify", from.to_str().unwrap()]))
            .await
            .0,
        0
    );
    let (code, _, errors) = run(orlog(&["backup", "verify", dir.path().to_str().unwrap()])).await;
    assert_eq!(code, 3, "{errors}");

    // Existing data is not changed.
    std::fs::create_dir(&to).unwrap();
    std::fs::write(to.join("mine"), "x").unwrap();
    let args = [
        "restore",
        "--from",
        from.to_str().unwrap(),
        "--to",
        to.to_str().unwrap(),
    ];
    let (code, _, errors) = run(orlog(&args)).await;
    assert_eq!(code, 4, "{errors}");
    assert_eq!(std::fs::read_dir(&to).unwrap().count(), 1);
    std::fs::remove_file(to.join("mine")).unwrap();
    // An incomplete restore is distinguished from an empty directory and from a data directory.
    std::fs::create_dir(to.join(orlog::layout::RESTORING)).unwrap();
    let (code, _, errors) = run(orlog(&args)).await;
    assert_eq!(code, 4, "{errors}");
    assert!(
        errors.contains("contains an interrupted restore; empty it and restore again"),
        "{errors}"
    );
    let (code, _, errors) = run(orlog(&[
        "run",
        "--listen",
        "127.0.0.1:0",
        "--data-dir",
        to.to_str().unwrap(),
    ]))
    .await;
    assert_eq!(code, 1, "{errors}");
    assert!(
        errors.contains("contains an interrupted restore; empty it and restore again"),
        "{errors}"
    );
    std::fs::remove_dir(to.join(orlog::layout::RESTORING)).unwrap();
    assert_eq!(
        std::fs::read_dir(&to).unwrap().count(),
        0,
        "neither has made anything"
    );
    // The root of a file system contains an entry.
    std::fs::create_dir(to.join("lost+found")).unwrap();
    assert_eq!(run(orlog(&args)).await.0, 0);
    assert!(to.join("layout.toml").exists() && !to.join(orlog::layout::RESTORING).exists());
    assert_eq!(
        std::fs::metadata(&from).unwrap().permissions().mode() & 0o777,
        0o700
    );
    let mut sums = std::process::Command::new("sha256sum");
    assert!(
        sums.args(["--check", "--quiet", "SHA256SUMS"])
            .current_dir(&from)
            .status()
            .unwrap()
            .success()
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn offline_directory_can_be_backed_up_and_one_in_use_is_rejected() {
    let dir = tempfile::tempdir().unwrap();
    let (first, second) = (dir.path().join("first"), dir.path().join("second"));
    let node = Node::start(|_| ()).await;
    node.send("POST", "/v1/events", &[], Some(&placed("o-1")))
        .await
        .ok();
    let data = node.data().to_str().unwrap().to_owned();
    let args = |to: &Path| {
        ["backup", "--data-dir", &data, "--to", to.to_str().unwrap()].map(str::to_owned)
    };
    let command = |to: &Path| orlog(&args(to).iter().map(String::as_str).collect::<Vec<_>>());
    let (code, _, errors) = run(command(&first)).await;
    assert_eq!(code, 1, "{errors}");
    assert!(errors.contains("is locked by another process"), "{errors}");
    node.app.stop().await.unwrap();
    let (code, _, errors) = run(command(&second)).await;
    assert_eq!(code, 0, "{errors}");
    let manifest = backup::verify(&second).unwrap();
    assert!(
        matches!(manifest.bus, backup::BusBackup::Embedded { last_sequence, .. } if last_sequence >= 1),
        "{manifest:?}"
    );
    let (code, _, errors) = run(command(&second)).await;
    assert_eq!(code, 4, "{errors}");
}

#[tokio::test(flavor = "multi_thread")]
async fn node_holds_one_backup_at_a_time() {
    let node = Node::start(|_| ()).await;
    let first = node.send("POST", "/admin/backup", &[], None).await.ok();
    node.send("POST", "/admin/backup", &[], None)
        .await
        .rejected(409, "OR0044");
    let second = node
        .send("POST", "/admin/backup?replace=true", &[], None)
        .await
        .ok();
    let file = |of: &Value, path: &str| {
        format!("/admin/backup/{}/files/{path}", of["id"].as_str().unwrap())
    };
    node.send("GET", &file(&first, "manifest.json"), &[], None)
        .await
        .rejected(404, "OR0009");
    let manifest = node
        .send("GET", &file(&second, "manifest.json"), &[], None)
        .await;
    assert_eq!(manifest.json(), second["manifest"]);
    for path in ["..%2F..%2Flayout.toml", "%2Fetc%2Fpasswd", "nothing"] {
        node.send("GET", &file(&second, path), &[], None)
            .await
            .rejected(400, "OR0008");
    }
    let one = format!("/admin/backup/{}", second["id"].as_str().unwrap());
    assert_eq!(node.send("DELETE", &one, &[], None).await.status, 204);
    node.send("DELETE", &one, &[], None)
        .await
        .rejected(404, "OR0009");
}
