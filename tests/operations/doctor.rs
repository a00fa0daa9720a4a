//! The doctor: each thing is broken in turn, and its words are read.

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use serde_json::Value;

use crate::node::{Node, orlog, placed, run};

const GOOD: &str = "
saga: order
version: 1
correlate: orderId
start: OrderPlaced
vars: { orderId: =event.orderId }
steps:
  - id: charge
    do: { effect: bank.charge, data: { orderId: =vars.orderId } }
";

struct Patient {
    folder: tempfile::TempDir,
}

impl Patient {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir(folder.path().join("definitions")).unwrap();
        let patient = Self { folder };
        patient.write("definitions/order.saga.yaml", GOOD);
        patient.write("bank.token", "canary-7f3a");
        patient.configure("");
        patient
    }

    fn path(&self, name: &str) -> std::path::PathBuf {
        self.folder.path().join(name)
    }

    fn write(&self, name: &str, text: &str) {
        std::fs::write(self.path(name), text).unwrap();
    }

    /// A configuration that is good, behind these lines.
    fn configure(&self, first: &str) {
        let root = self.folder.path().display();
        let listen = if first.contains("listen") { "" } else { "listen = \"127.0.0.1:0\"" };
        self.write(
            "orlog.toml",
            &format!(
                "{first}\n{listen}\ndata = \"{root}/data\"\ndefinitions = \"{root}/definitions\"\n[upstreams.bank]\nbase_url = \"http://127.0.0.1:9\"\n[upstreams.bank.auth]\nbearer = \"file:{root}/bank.token\"\n[upstreams.bank.effects.\"bank.charge\"]\npath = \"/charge\"\n"
            ),
        );
    }

    /// What the doctor says: its exit code, and the findings of a level, as `check: found -> remedy`.
    async fn examine(&self, level: &str) -> (i32, Vec<String>) {
        let config = self.path("orlog.toml");
        let args = ["doctor", "--config", config.to_str().unwrap(), "--output", "json"];
        let (code, shown, errors) = run(orlog(&args)).await;
        let shown: Value =
            serde_json::from_str(&shown).unwrap_or_else(|error| panic!("{error}: {shown}{errors}"));
        assert!(!shown.to_string().contains("canary"), "a secret is shown");
        let found = shown["findings"].as_array().unwrap().iter().filter(|one| one["level"] == level);
        let text = |one: &Value, name: &str| one[name].as_str().unwrap_or_default().to_owned();
        let root = self.folder.path().display().to_string();
        let found = found.map(|one| {
            let line = format!("{}: {} -> {}", text(one, "check"), text(one, "found"), text(one, "remedy"));
            line.replace(&root, "DIR")
        });
        (code, found.collect())
    }

    /// What is bad is this, and it is said so.
    async fn bad(&self, check: &str, part: &str) {
        let (code, found) = self.examine("bad").await;
        assert!(code == 1 && found.iter().any(|one| one.contains(part)), "{found:#?}");
        for one in &found {
            assert!(one.starts_with(&format!("{check}: ")), "nothing else is bad: {one}");
            assert!(!one.ends_with("-> "), "it says what to do: {one}");
        }
    }

    /// Makes a data folder with an order in it.
    async fn live(&self) {
        let definitions = self.path("definitions");
        let data = self.path("data");
        let node = Node::start(|config| {
            config.data = data;
            config.definitions = Some(definitions);
        });
        let node = node.await;
        node.send("POST", "/v1/events", &[], Some(&placed("o-1"))).await.ok();
        node.app.stop().await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_well_is_praised_and_hosts_that_are_away_are_no_fault() {
    let patient = Patient::new();
    let (code, bad) = patient.examine("bad").await;
    assert_eq!((code, bad.as_slice()), (0, &[][..]));
    let (_, warnings) = patient.examine("warn").await;
    assert!(
        warnings.iter().any(|one| one.starts_with("hosts: http://127.0.0.1:9 does not answer")),
        "{warnings:?}"
    );
    let (_, good) = patient.examine("ok").await;
    for part in [
        "data folder: DIR/data is not there yet",
        "definitions: order",
        "secrets: 1 can be read",
        "clock: ",
        "upstreams: bank",
    ] {
        assert!(good.iter().any(|one| one.contains(part)), "{part}: {good:#?}");
    }
    assert!(!patient.path("data").exists(), "it makes nothing");
}

#[tokio::test(flavor = "multi_thread")]
async fn every_mistake_of_the_configuration_is_listed() {
    let patient = Patient::new();
    patient.configure("lissten = \"x\"\nshards = \"many\"");
    let (code, found) = patient.examine("bad").await;
    assert_eq!((code, found.len()), (1, 2), "{found:#?}");
    assert!(found[0].contains("did you mean `listen`?"), "{found:#?}");
    assert!(found[1].contains("orlog.toml: shards: invalid type"), "{found:#?}");
    patient.configure("shards = 0\nlisten = \"0.0.0.0:1\"\nroles = \"saga\"");
    let (_, found) = patient.examine("bad").await;
    for part in ["shards: 0 is not between", "roles: ", "auth.mode: everybody"] {
        assert!(found.iter().any(|one| one.contains(part)), "{part}: {found:#?}");
    }
    patient.write("orlog.toml", "data = ");
    patient.bad("configuration", "orlog.toml:1:").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn definitions_and_secrets_that_are_wrong_are_named() {
    let patient = Patient::new();
    std::fs::remove_file(patient.path("bank.token")).unwrap();
    patient.bad("secrets", "the secret file:DIR/bank.token cannot be read").await;
    patient.write("bank.token", "canary-7f3a");
    patient.write("definitions/order.saga.yaml", &GOOD.replace("bank.charge", "till.charge"));
    patient.bad("definitions", "till.charge").await;
    patient.write("definitions/order.saga.yaml", &GOOD.replace("do:", "doo:"));
    patient.bad("definitions", "order.saga.yaml:9:").await;
    let root = patient.folder.path().display();
    let nowhere =
        format!("listen = \"127.0.0.1:0\"\ndata = \"{root}/data\"\ndefinitions = \"{root}/nowhere\"");
    patient.write("orlog.toml", &nowhere);
    patient.bad("definitions", "DIR/nowhere is no folder").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_data_folder_is_looked_at_and_left_as_it_is() {
    let patient = Patient::new();
    patient.write("definitions/order.saga.yaml", &GOOD.replace("bank.charge", "test.charge"));
    patient.live().await;
    patient.write("definitions/order.saga.yaml", GOOD);
    let (code, good) = patient.examine("ok").await;
    assert_eq!(code, 0);
    for part in ["shard 0: format ", "events: "] {
        assert!(good.iter().any(|one| one.contains(part)), "{part}: {good:#?}");
    }
    patient.configure("shards = 2");
    patient.bad("data folder", "was made with shards = 1, now it is 2").await;
    patient.configure("");

    let journal = files(&patient.path("data/bus/log"), "seg");
    let damaged = journal.first().unwrap();
    let whole = std::fs::read(damaged).unwrap();
    let mut broken = whole.clone();
    broken[20] ^= 1;
    std::fs::write(damaged, &broken).unwrap();
    patient.bad("events", "is damaged at byte 0").await;
    std::fs::write(damaged, &whole).unwrap();

    let tables = patient.path("data/shard-0/tables/mdbx.dat");
    let whole = std::fs::read(&tables).unwrap();
    std::fs::write(&tables, vec![7; 64 * 1024]).unwrap();
    patient.bad("shard 0", "tables").await;
    std::fs::write(&tables, whole).unwrap();
    assert_eq!(patient.examine("bad").await.0, 0);

    let occupied = patient.path("occupied");
    std::fs::write(&occupied, "").unwrap();
    patient.write("orlog.toml", &format!("data = \"{}\"", occupied.display()));
    patient.bad("data folder", "is no folder").await;
}

/// The files in a folder with this ending.
fn files(folder: &Path, ending: &str) -> Vec<std::path::PathBuf> {
    let entries = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let mut found: Vec<_> =
        entries.filter(|path| path.extension().is_some_and(|found| found == ending)).collect();
    found.sort();
    found
}

#[tokio::test(flavor = "multi_thread")]
async fn a_folder_that_cannot_be_written_is_named() {
    let patient = Patient::new();
    let data = patient.path("data");
    std::fs::create_dir(&data).unwrap();
    std::fs::set_permissions(&data, std::fs::Permissions::from_mode(0o500)).unwrap();
    // Root may write everywhere.
    if std::fs::write(data.join("x"), "").is_err() {
        patient.bad("data folder", "cannot be written").await;
    }
    std::fs::set_permissions(&data, std::fs::Permissions::from_mode(0o700)).unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn an_address_that_somebody_has_is_named() {
    let patient = Patient::new();
    let somebody = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = somebody.local_addr().unwrap();
    patient.configure(&format!("listen = \"{address}\""));
    patient.bad("listen", &format!("{address} cannot be had")).await;
    patient.configure("listen = \"127.0.0.1:0\"");
    assert_eq!(patient.examine("bad").await.0, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn nats_that_does_not_answer_is_bad() {
    let patient = Patient::new();
    patient.write("orlog.toml", "[bus]\nkind = \"nats\"\n[nats]\nservers = [\"nats://127.0.0.1:9\"]");
    patient.bad("bus", "127.0.0.1:9").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_running_node_is_asked() {
    let node = Node::start(|_| ()).await;
    node.send("POST", "/v1/events", &[], Some(&placed("o-1"))).await.ok();
    let args = ["doctor", "--node-only", "--url", &node.url];
    let (code, shown, errors) = run(orlog(&args)).await;
    assert_eq!(code, 0, "{shown}{errors}");
    for part in ["takes work", "breakers", "shard 0", "no instance of this tenant", "none of this tenant"] {
        assert!(shown.contains(part), "{part}: {shown}");
    }
    // Beside the node, on its folder: nothing is disturbed.
    let file = node.folder.path().join("orlog.toml");
    std::fs::write(&file, format!("data = \"{}\"", node.data().display())).unwrap();
    let beside = ["doctor", "--config", file.to_str().unwrap()];
    let (code, shown, errors) = run(orlog(&beside)).await;
    assert_eq!(code, 0, "{shown}{errors}");
    assert!(shown.contains("a node has it open"), "{shown}");
    node.send("POST", "/v1/events", &[], Some(&placed("o-2"))).await.ok();

    node.app.drain().await;
    let (code, shown, _) = run(orlog(&args)).await;
    assert_eq!(code, 1, "{shown}");
    assert!(shown.contains("it drains and takes no new work"), "{shown}");
    let (code, shown, _) = run(orlog(&["doctor", "--node-only", "--url", "http://127.0.0.1:9"])).await;
    assert_eq!(code, 1, "{shown}");
    assert!(shown.contains("is a node running there?"), "{shown}");
}
