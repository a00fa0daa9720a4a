//! Backups: taken under load, damaged, restored, and gone on with.

use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Router;
use axum::http::HeaderMap;
use axum::routing::post;
use orlog::backup;
use serde_json::{Value, json};
use tokio::net::TcpListener;

use crate::node::{Node, PATIENCE, orlog, placed, run};
use crate::process::Process;

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

/// Of an order, often in the other shard.
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

/// What is paid for each order, one event each.
const AMOUNTS: [u64; 3] = [1, 2, 4];

/// What was done, and for which order.
type Deed = (String, String);

/// What was asked of the shop.
type Book = Arc<Mutex<BTreeMap<Deed, BTreeSet<Asked>>>>;

/// Under which key something was asked for, and how much was said to have been paid.
type Asked = (String, Option<u64>);

/// An upstream that writes down what it is asked.
async fn shop() -> (String, Book) {
    let book = Book::default();
    let written = Arc::clone(&book);
    let handler = move |headers: HeaderMap, axum::Json(body): axum::Json<Value>| {
        let key = headers["idempotency-key"].to_str().unwrap().to_owned();
        let order = body["orderId"].as_str().unwrap().to_owned();
        let what = headers["x-what"].to_str().unwrap().to_owned();
        let asked = (key, body["paid"].as_u64());
        written.lock().unwrap().entry((what, order)).or_default().insert(asked);
        async { axum::Json(json!({})) }
    };
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let router = Router::new().route("/do", post(handler));
    tokio::spawn(async move { axum::serve(listener, router).await });
    (url, book)
}

struct Ground {
    folder: tempfile::TempDir,
}

impl Ground {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let definitions = folder.path().join("definitions");
        std::fs::create_dir(&definitions).unwrap();
        std::fs::write(definitions.join("order.saga.yaml"), ORDER).unwrap();
        std::fs::write(definitions.join("receipt.saga.yaml"), RECEIPT).unwrap();
        Self { folder }
    }

    /// A node on this data folder, with a shop of its own.
    async fn start(&self, data: &str) -> (Process, Book) {
        let (url, book) = shop().await;
        let effect = |name: &str| {
            format!(
                "[upstreams.shop.effects.\"{name}\"]\nmethod = \"POST\"\npath = \"/do\"\nbody = true\nheaders = {{ \"x-what\" = \"{name}\" }}\n"
            )
        };
        let text = format!(
            "definitions = \"{}\"\nshards = 2\n[tenants]\nspread = [\"big\"]\n[store]\ngeneration_age = \"50ms\"\n[bus]\nsegment_size = \"64KiB\"\nretention_size = \"64KiB\"\n[upstreams.shop]\nbase_url = \"{url}\"\n{}",
            self.path("definitions").display(),
            ["stock.reserve", "printer.print", "bank.charge"].map(effect).concat(),
        );
        let config = self.path(&format!("{data}.toml"));
        std::fs::write(&config, text).unwrap();
        let data = self.path(data);
        (Process::start(&["--config", config.to_str().unwrap(), "--data", data.to_str().unwrap()]), book)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }
}

/// The events of an order.
fn story(id: &str) -> Vec<Value> {
    let paid = |amount: u64| {
        json!({
            "specversion": "1.0", "id": format!("paid-{amount}-{id}"), "type": "Paid", "source": "urn:shop",
            "data": { "orderId": id, "amount": amount },
        })
    };
    std::iter::once(placed(id)).chain(AMOUNTS.map(paid)).collect()
}

/// Publishes orders, one request after the other, until it is told to stop.
async fn load(url: String, accepted: Arc<Mutex<Vec<String>>>, stop: Arc<AtomicBool>) {
    let http = orlog_effect::http::client().timeout(PATIENCE).build().unwrap();
    let mut next = 0;
    let mut pace = tokio::time::interval(Duration::from_millis(20));
    while !stop.load(Ordering::SeqCst) {
        pace.tick().await;
        let ids: Vec<String> = (next..next + 5).map(|number| format!("o-{number}")).collect();
        next += 5;
        let batch: Vec<Value> = ids.iter().flat_map(|id| story(id)).collect();
        let answer =
            http.post(format!("{url}/v1/events")).header("x-tenant-id", "big").json(&batch).send().await;
        if answer.is_ok_and(|answer| answer.status() == 202) {
            accepted.lock().unwrap().extend(ids);
        }
    }
}

async fn wait_for(what: &str, is_so: impl Fn() -> bool) {
    let waited = tokio::time::timeout(PATIENCE, async {
        let mut tick = tokio::time::interval(Duration::from_millis(10));
        while !is_so() {
            tick.tick().await;
        }
    });
    assert!(waited.await.is_ok(), "{what} did not happen");
}

/// The correlation ids of the instances in this status.
async fn standing(url: &str, saga: &str, status: &str) -> BTreeSet<String> {
    let http = orlog_effect::http::client().timeout(PATIENCE).build().unwrap();
    let (mut found, mut cursor) = (BTreeSet::new(), String::new());
    loop {
        let url = format!("{url}/v1/sagas?limit=1000&saga={saga}&status={status}{cursor}");
        let page: Value =
            http.get(url).header("x-tenant-id", "big").send().await.unwrap().json().await.unwrap();
        let items = page["items"].as_array().unwrap_or_else(|| panic!("{page}")).iter();
        found.extend(items.map(|item| item["correlation"].as_str().unwrap().to_owned()));
        match page["next"].as_str() {
            Some(next) => cursor = format!("&cursor={next}"),
            None => return found,
        }
    }
}

/// A backup that was taken under load.
struct Moment {
    folder: PathBuf,
    /// Orders that were accepted before.
    promised: BTreeSet<String>,
    /// What the shop had been asked before.
    asked: BTreeMap<Deed, BTreeSet<Asked>>,
}

#[tokio::test(flavor = "multi_thread")]
async fn a_backup_that_was_taken_under_load_goes_on_where_it_was_taken() {
    let ground = Ground::new();
    let (node, book) = ground.start("data").await;
    let (accepted, stop) = (Arc::new(Mutex::new(Vec::new())), Arc::new(AtomicBool::new(false)));
    let publisher = tokio::spawn(load(node.url.clone(), Arc::clone(&accepted), Arc::clone(&stop)));
    let mut moments = Vec::new();
    for number in 0..3_usize {
        let before = accepted.lock().unwrap().len();
        wait_for("the load", || accepted.lock().unwrap().len() > before + 100).await;
        let promised = accepted.lock().unwrap().iter().cloned().collect();
        let asked = book.lock().unwrap().clone();
        let folder = ground.path(&format!("backup-{number}"));
        let args = ["backup", "--url", &node.url, "--to", folder.to_str().unwrap()];
        let (code, _, errors) = run(orlog(&args)).await;
        assert_eq!(code, 0, "{errors}");
        moments.push(Moment { folder, promised, asked });
    }
    stop.store(true, Ordering::SeqCst);
    node.kill();
    publisher.await.unwrap();
    assert!(!ground.path("data/backups").read_dir().unwrap().any(|entry| entry.unwrap().path().is_dir()));
    for (number, moment) in moments.iter().enumerate() {
        let data = format!("restored-{number}");
        let (from, to) = (moment.folder.to_str().unwrap(), ground.path(&data));
        let (code, _, errors) = run(orlog(&["restore", "--from", from, "--to", to.to_str().unwrap()])).await;
        assert_eq!(code, 0, "{errors}");
        let (node, book) = ground.start(&data).await;
        let completed = at_rest(&node.url, &moment.promised).await;
        // Whoever has the events may publish them again.
        let again: Vec<Value> = completed.iter().take(50).flat_map(|order| story(order)).collect();
        let http = orlog_effect::http::client().timeout(PATIENCE).build().unwrap();
        let answer = http.post(format!("{}/v1/events", node.url)).header("x-tenant-id", "big").json(&again);
        assert_eq!(answer.send().await.unwrap().status(), 202);
        assert!(at_rest(&node.url, &moment.promised).await.is_superset(&completed));
        node.kill();
        let book = book.lock().unwrap();
        assert!(!book.is_empty(), "backup {number}: something was under way");
        agree(&moment.asked, &book, &completed);
    }
}

/// The books before the moment and after the restoration: every payment was counted once, every deed was done, and none under two keys.
fn agree(
    before: &BTreeMap<Deed, BTreeSet<Asked>>,
    after: &BTreeMap<Deed, BTreeSet<Asked>>,
    orders: &BTreeSet<String>,
) {
    let mut all = before.clone();
    for (deed, asked) in after {
        all.entry(deed.clone()).or_default().extend(asked.clone());
    }
    for ((what, order), asked) in &all {
        assert_eq!(asked.len(), 1, "{what} of {order} was asked for in several ways: {asked:?}");
        let paid = asked.iter().next().and_then(|(_, paid)| *paid);
        assert_eq!(paid, (what == "bank.charge").then(|| AMOUNTS.iter().sum()), "{what} of {order}");
    }
    for what in ["stock.reserve", "printer.print", "bank.charge"] {
        // What was done between the look into the book and the moment stands in neither.
        let done = after.keys().filter(|(deed, _)| deed == what).count();
        assert!(done <= orders.len(), "{what} was done {done} times for {} orders", orders.len());
    }
}

/// The orders that are completed, once the promised ones are and nothing is under way: none has failed, every order has its
/// receipt, and no receipt lacks its order.
async fn at_rest(url: &str, promised: &BTreeSet<String>) -> BTreeSet<String> {
    let mut tick = tokio::time::interval(Duration::from_millis(300));
    let mut left = String::new();
    for _ in 0..200 {
        tick.tick().await;
        let mut going = standing(url, "order", "running,compensating").await;
        going.extend(standing(url, "receipt", "running,compensating").await);
        let completed = standing(url, "order", "completed").await;
        let receipts = standing(url, "receipt", "completed").await;
        let expected: BTreeSet<_> = completed.iter().map(|order| format!("{order}-receipt")).collect();
        if going.is_empty() && completed.is_superset(promised) && receipts == expected {
            for saga in ["order", "receipt"] {
                assert!(standing(url, saga, "failed,stuck,cancelled").await.is_empty());
            }
            return completed;
        }
        let (done, all) = (completed.len(), promised.len());
        let lone: Vec<_> = receipts.symmetric_difference(&expected).collect();
        left = format!("{done} are completed, {all} were promised; these go on: {going:?}; alone: {lone:?}");
    }
    panic!("not at rest: {left}");
}

/// A backup of a node with a few orders.
async fn small(to: &Path) {
    let node = Node::start(|_| ()).await;
    node.send("POST", "/v1/events", &[], Some(&json!([placed("o-1"), placed("o-2")]))).await.ok();
    let (code, shown, errors) =
        run(orlog(&["backup", "--url", &node.url, "--to", to.to_str().unwrap()])).await;
    assert_eq!(code, 0, "{errors}");
    assert!(shown.contains("was written: taken"), "{shown}");
    node.app.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_backup_with_one_wrong_byte_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let (from, to) = (folder.path().join("backup"), folder.path().join("data"));
    small(&from).await;
    let manifest = backup::verify(&from).unwrap();
    assert!(manifest.files.len() >= 4, "{manifest:?}");
    let names = manifest.files.iter().map(|file| file.path.as_str()).chain([backup::MANIFEST, backup::SUMS]);
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
    assert!(errors.contains("stranger does not belong to it"), "{errors}");
    std::fs::remove_file(from.join("stranger")).unwrap();
    assert_eq!(run(orlog(&["backup", "verify", from.to_str().unwrap()])).await.0, 0);
    let (code, _, errors) = run(orlog(&["backup", "verify", folder.path().to_str().unwrap()])).await;
    assert_eq!(code, 3, "{errors}");

    // What is there is not touched.
    std::fs::create_dir(&to).unwrap();
    std::fs::write(to.join("mine"), "x").unwrap();
    let args = ["restore", "--from", from.to_str().unwrap(), "--to", to.to_str().unwrap()];
    let (code, _, errors) = run(orlog(&args)).await;
    assert_eq!(code, 4, "{errors}");
    assert_eq!(std::fs::read_dir(&to).unwrap().count(), 1);
    std::fs::remove_file(to.join("mine")).unwrap();
    // A restoration that was cut off is told from an empty folder and from a data folder.
    std::fs::create_dir(to.join(backup::RESTORING)).unwrap();
    let (code, _, errors) = run(orlog(&args)).await;
    assert_eq!(code, 4, "{errors}");
    assert!(errors.contains("cut off; remove everything in it and restore again"), "{errors}");
    let (code, _, errors) =
        run(orlog(&["run", "--listen", "127.0.0.1:0", "--data", to.to_str().unwrap()])).await;
    assert_eq!(code, 1, "{errors}");
    assert!(errors.contains("cut off; remove everything in it and restore again"), "{errors}");
    std::fs::remove_dir(to.join(backup::RESTORING)).unwrap();
    assert_eq!(std::fs::read_dir(&to).unwrap().count(), 0, "neither has made anything");
    // The root of a file system is not quite empty.
    std::fs::create_dir(to.join("lost+found")).unwrap();
    assert_eq!(run(orlog(&args)).await.0, 0);
    assert!(to.join("layout.toml").exists() && !to.join(backup::RESTORING).exists());
    assert_eq!(std::fs::metadata(&from).unwrap().permissions().mode() & 0o777, 0o700);
    let mut sums = std::process::Command::new("sha256sum");
    assert!(sums.args(["--check", "--quiet", "SHA256SUMS"]).current_dir(&from).status().unwrap().success());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_folder_at_rest_is_copied_too_and_one_in_use_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let (first, second) = (folder.path().join("first"), folder.path().join("second"));
    let node = Node::start(|_| ()).await;
    node.send("POST", "/v1/events", &[], Some(&placed("o-1"))).await.ok();
    let data = node.data().to_str().unwrap().to_owned();
    let args = |to: &Path| ["backup", "--data", &data, "--to", to.to_str().unwrap()].map(str::to_owned);
    let command = |to: &Path| orlog(&args(to).iter().map(String::as_str).collect::<Vec<_>>());
    let (code, _, errors) = run(command(&first)).await;
    assert_eq!(code, 1, "{errors}");
    assert!(errors.contains("is held by another writer"), "{errors}");
    node.app.stop().await.unwrap();
    let (code, _, errors) = run(command(&second)).await;
    assert_eq!(code, 0, "{errors}");
    let manifest = backup::verify(&second).unwrap();
    assert!(
        matches!(manifest.bus, backup::BusCopy::Embedded { last_sequence, .. } if last_sequence >= 1),
        "{manifest:?}"
    );
    let (code, _, errors) = run(command(&second)).await;
    assert_eq!(code, 4, "{errors}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_keeps_one_backup_at_a_time() {
    let node = Node::start(|_| ()).await;
    let first = node.send("POST", "/admin/backup", &[], None).await.ok();
    node.send("POST", "/admin/backup", &[], None).await.problem(409, "OR0044");
    let second = node.send("POST", "/admin/backup?replace=true", &[], None).await.ok();
    let file = |of: &Value, path: &str| format!("/admin/backup/{}/files/{path}", of["id"].as_str().unwrap());
    node.send("GET", &file(&first, "manifest.json"), &[], None).await.problem(404, "OR0009");
    let manifest = node.send("GET", &file(&second, "manifest.json"), &[], None).await;
    assert_eq!(manifest.json(), second["manifest"]);
    for path in ["..%2F..%2Flayout.toml", "%2Fetc%2Fpasswd", "nothing"] {
        node.send("GET", &file(&second, path), &[], None).await.problem(400, "OR0008");
    }
    let one = format!("/admin/backup/{}", second["id"].as_str().unwrap());
    assert_eq!(node.send("DELETE", &one, &[], None).await.status, 204);
    node.send("DELETE", &one, &[], None).await.problem(404, "OR0009");
}
