//! `orlog doctor`: each fault is injected in turn, and the report is checked.

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use serde_json::Value;

use crate::harness::process::{orlog, run};
use crate::operations::node::{Node, placed};

const VALID_DEFINITION: &str = "
saga: order
version: 1
correlate: orderId
start: OrderPlaced
vars: { orderId: =event.orderId }
steps:
  - id: charge
    do: { effect: bank.charge, data: { orderId: =vars.orderId } }
";

struct DoctorFixture {
    dir: tempfile::TempDir,
}

impl DoctorFixture {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir(dir.path().join("definitions")).unwrap();
        let patient = Self { dir };
        patient.write("definitions/order.saga.yaml", VALID_DEFINITION);
        patient.write("bank.token", "canary-7f3a");
        patient.configure("");
        patient
    }

    fn path(&self, name: &str) -> std::path::PathBuf {
        self.dir.path().join(name)
    }

    fn write(&self, name: &str, text: &str) {
        std::fs::write(self.path(name), text).unwrap();
    }

    /// Writes a valid configuration after these lines.
    fn configure(&self, first: &str) {
        let root = self.dir.path().display();
        let listen = if first.contains("listen") {
            ""
        } else {
            "listen = \"127.0.0.1:0\""
        };
        self.write(
            "orlog.toml",
            &format!(
                "{first}\n{listen}\ndata_dir = \"{root}/data\"\ndefinitions_dir = \"{root}/definitions\"\n[upstreams.bank]\nbase_url = \"http://127.0.0.1:9\"\n[upstreams.bank.auth]\nbearer = \"file:{root}/bank.token\"\n[upstreams.bank.effects.\"bank.charge\"]\npath = \"/charge\"\n"
            ),
        );
    }

    /// Runs the doctor; returns its exit code and the results with a status, as `check: found -> remedy`.
    async fn run_doctor(&self, status: &str) -> (i32, Vec<String>) {
        let config = self.path("orlog.toml");
        let args = [
            "doctor",
            "--config",
            config.to_str().unwrap(),
            "--output",
            "json",
        ];
        let (code, output, errors) = run(orlog(&args)).await;
        let output: Value = serde_json::from_str(&output)
            .unwrap_or_else(|error| panic!("{error}: {output}{errors}"));
        assert!(!output.to_string().contains("canary"), "a secret is shown");
        let found = output["checks"]
            .as_array()
            .unwrap()
            .iter()
            .filter(|one| one["status"] == status);
        let text = |one: &Value, name: &str| one[name].as_str().unwrap_or_default().to_owned();
        let root = self.dir.path().display().to_string();
        let found = found.map(|one| {
            let line = format!(
                "{}: {} -> {}",
                text(one, "name"),
                text(one, "message"),
                text(one, "remedy")
            );
            line.replace(&root, "DIR")
        });
        (code, found.collect())
    }

    /// Asserts that a node does not start, and reports this code and this remedy once.
    async fn does_not_start(&self, code: &str, remedy: &str) {
        let (exit, _, errors) = run(orlog(&[
            "run",
            "--config",
            self.path("orlog.toml").to_str().unwrap(),
        ]))
        .await;
        let last = errors.lines().last().unwrap_or_default();
        assert!(exit == 1 && last.contains(remedy), "{exit}: {errors}");
        assert_eq!(last.matches(code).count(), 1, "{last}");
        assert!(last.matches("is corrupt").count() <= 1, "{last}");
    }

    /// Asserts that this check fails with this text.
    async fn failed(&self, check: &str, part: &str) {
        let (code, found) = self.run_doctor("error").await;
        assert!(
            code == 1 && found.iter().any(|one| one.contains(part)),
            "{found:#?}"
        );
        for one in &found {
            assert!(
                one.starts_with(&format!("{check}: ")),
                "nothing else is bad: {one}"
            );
            assert!(!one.ends_with("-> "), "it says what to do: {one}");
        }
    }

    /// Creates a data directory with an order.
    async fn live(&self) {
        let definitions = self.path("definitions");
        let data = self.path("data");
        let node = Node::start(|config| {
            config.data_dir = data;
            config.definitions_dir = Some(definitions);
        });
        let node = node.await;
        node.send("POST", "/v1/events", &[], Some(&placed("o-1")))
            .await
            .ok();
        node.app.stop().await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn healthy_node_passes_and_unreachable_hosts_are_warnings() {
    let patient = DoctorFixture::new();
    let (code, failed) = patient.run_doctor("error").await;
    assert_eq!((code, failed.as_slice()), (0, &[][..]));
    let (_, warnings) = patient.run_doctor("warn").await;
    assert!(
        warnings
            .iter()
            .any(|one| one.starts_with("hosts: http://127.0.0.1:9 does not respond")),
        "{warnings:?}"
    );
    let (_, passed) = patient.run_doctor("ok").await;
    for part in [
        "data directory: DIR/data does not exist yet and can be created",
        "definitions: order",
        "secrets: 1 readable",
        "clock: ",
        "upstreams: bank",
    ] {
        assert!(
            passed.iter().any(|one| one.contains(part)),
            "{part}: {passed:#?}"
        );
    }
    assert!(!patient.path("data").exists(), "it makes nothing");
}

#[tokio::test(flavor = "multi_thread")]
async fn doctor_lists_every_configuration_error() {
    let patient = DoctorFixture::new();
    patient.configure("lissten = \"x\"\nshards = \"many\"");
    let (code, found) = patient.run_doctor("error").await;
    assert_eq!((code, found.len()), (1, 2), "{found:#?}");
    assert!(found[0].contains("did you mean `listen`?"), "{found:#?}");
    assert!(
        found[1].contains("orlog.toml:") && found[1].contains(": shards: invalid type"),
        "{found:#?}"
    );
    patient.configure("shards = 0\nlisten = \"0.0.0.0:1\"\nrole = \"saga\"");
    let (_, found) = patient.run_doctor("error").await;
    for part in [
        "shards: 0 is not between",
        "role: ",
        "auth.mode: 0.0.0.0:1 is reachable",
    ] {
        assert!(
            found.iter().any(|one| one.contains(part)),
            "{part}: {found:#?}"
        );
    }
    patient.write("orlog.toml", "data_dir = ");
    patient.failed("configuration", "orlog.toml:1:").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn doctor_reports_invalid_definitions_and_secrets() {
    let patient = DoctorFixture::new();
    std::fs::remove_file(patient.path("bank.token")).unwrap();
    patient
        .failed("secrets", "cannot read secret file:DIR/bank.token")
        .await;
    patient.write("bank.token", "canary-7f3a");
    patient.write(
        "definitions/order.saga.yaml",
        &VALID_DEFINITION.replace("bank.charge", "till.charge"),
    );
    patient.failed("definitions", "till.charge").await;
    patient.write(
        "definitions/order.saga.yaml",
        &VALID_DEFINITION.replace("do:", "doo:"),
    );
    patient.failed("definitions", "order.saga.yaml:9:").await;
    patient.write("definitions/order.saga.yaml", VALID_DEFINITION);
    patient.configure(&format!(
        "auth.mode = \"token\"\nauth.token.file = \"{}\"",
        patient.path("admin.token").display()
    ));
    patient
        .failed("secrets", "auth.token.file: cannot read DIR/admin.token")
        .await;
    patient.write("admin.token", &"t".repeat(64));
    std::fs::set_permissions(
        patient.path("admin.token"),
        std::fs::Permissions::from_mode(0o644),
    )
    .unwrap();
    patient
        .failed("secrets", "other users can access DIR/admin.token")
        .await;
    let root = patient.dir.path().display();
    let nowhere = format!(
        "listen = \"127.0.0.1:0\"\ndata_dir = \"{root}/data\"\ndefinitions_dir = \"{root}/nowhere\""
    );
    patient.write("orlog.toml", &nowhere);
    patient
        .failed("definitions", "DIR/nowhere is not a directory")
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn doctor_does_not_modify_the_data_directory() {
    let patient = DoctorFixture::new();
    patient.write(
        "definitions/order.saga.yaml",
        &VALID_DEFINITION.replace("bank.charge", "test.charge"),
    );
    patient.live().await;
    patient.write("definitions/order.saga.yaml", VALID_DEFINITION);
    let (code, passed) = patient.run_doctor("ok").await;
    assert_eq!(code, 0);
    for part in ["shard 0: format ", "events: "] {
        assert!(
            passed.iter().any(|one| one.contains(part)),
            "{part}: {passed:#?}"
        );
    }
    patient.configure("shards = 2");
    patient
        .failed(
            "data directory",
            "was created with shards = 1, configured is 2; restore the setting, or use another directory",
        )
        .await;
    patient.configure("");

    let journal = files(&patient.path("data/bus/log"), "seg");
    let damaged = journal.first().unwrap();
    let whole = std::fs::read(damaged).unwrap();
    let mut broken = whole.clone();
    broken[20] ^= 1;
    std::fs::write(damaged, &broken).unwrap();
    patient
        .failed(
            "events",
            "OR0063: cannot open the embedded bus log: DIR/data/bus/log",
        )
        .await;
    patient.failed("events", "is corrupt at byte 0").await;
    patient
        .does_not_start("OR0063", "restore a backup with `orlog restore`")
        .await;
    std::fs::write(damaged, &whole).unwrap();

    let stream_id = patient.path("data/bus/stream-id");
    let id = std::fs::read(&stream_id).unwrap();
    std::fs::write(&stream_id, "").unwrap();
    patient
        .failed(
            "events",
            "has no stream id -> write the `identity` of [durable.bus] in layout.toml",
        )
        .await;
    patient
        .does_not_start(
            "OR0063",
            "write the `identity` of [durable.bus] in layout.toml",
        )
        .await;
    std::fs::write(&stream_id, id).unwrap();

    let journal = files(&patient.path("data/shard-0/journal"), "seg");
    let damaged = journal.first().unwrap();
    let whole = std::fs::read(damaged).unwrap();
    let mut broken = whole.clone();
    broken[20] ^= 1;
    std::fs::write(damaged, &broken).unwrap();
    patient
        .failed("shard 0", "OR0063: DIR/data/shard-0/journal")
        .await;
    patient
        .does_not_start("OR0063", "`orlog rebuild` creates only tables")
        .await;
    std::fs::write(damaged, &whole).unwrap();

    let tables = patient.path("data/shard-0/tables/mdbx.dat");
    let whole = std::fs::read(&tables).unwrap();
    std::fs::write(&tables, vec![7; 64 * 1024]).unwrap();
    patient.failed("shard 0", "tables").await;
    std::fs::write(&tables, whole).unwrap();
    assert_eq!(patient.run_doctor("error").await.0, 0);

    let occupied = patient.path("occupied");
    std::fs::write(&occupied, "").unwrap();
    patient.write(
        "orlog.toml",
        &format!("data_dir = \"{}\"", occupied.display()),
    );
    patient.failed("data directory", "is not a directory").await;
}

/// Returns the files of a directory with this suffix.
fn files(dir: &Path, ending: &str) -> Vec<std::path::PathBuf> {
    let entries = std::fs::read_dir(dir)
        .unwrap()
        .map(|entry| entry.unwrap().path());
    let mut found: Vec<_> = entries
        .filter(|path| path.extension().is_some_and(|found| found == ending))
        .collect();
    found.sort();
    found
}

#[tokio::test(flavor = "multi_thread")]
async fn doctor_reports_an_unwritable_directory() {
    let patient = DoctorFixture::new();
    let data = patient.path("data");
    std::fs::create_dir(&data).unwrap();
    std::fs::set_permissions(&data, std::fs::Permissions::from_mode(0o500)).unwrap();
    // Root can write everywhere.
    if std::fs::write(data.join("x"), "").is_err() {
        patient.failed("data directory", "is not writable").await;
    }
    std::fs::set_permissions(&data, std::fs::Permissions::from_mode(0o700)).unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn doctor_reports_an_address_in_use() {
    let patient = DoctorFixture::new();
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    patient.configure(&format!("listen = \"{address}\""));
    patient
        .failed("listen", &format!("cannot bind {address}"))
        .await;
    patient.configure("listen = \"127.0.0.1:0\"");
    assert_eq!(patient.run_doctor("error").await.0, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn doctor_reports_unreachable_nats() {
    let patient = DoctorFixture::new();
    patient.write(
        "orlog.toml",
        "[bus]\nkind = \"nats\"\n[nats]\nservers = [\"nats://127.0.0.1:9\"]",
    );
    patient.failed("bus", "127.0.0.1:9").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn doctor_queries_a_running_node() {
    let node = Node::start(|_| ()).await;
    node.send("POST", "/v1/events", &[], Some(&placed("o-1")))
        .await
        .ok();
    let args = ["doctor", "--node-only", "--url", &node.url];
    let (code, output, errors) = run(orlog(&args)).await;
    assert_eq!(code, 0, "{output}{errors}");
    for part in [
        "accepts work",
        "breakers",
        "shard 0",
        "no instance of this tenant",
        "none for this tenant",
    ] {
        assert!(output.contains(part), "{part}: {output}");
    }
    // Runs beside the node, on its directory, without disturbing it.
    let file = node.dir.path().join("orlog.toml");
    std::fs::write(&file, format!("data_dir = \"{}\"", node.data().display())).unwrap();
    let beside = ["doctor", "--config", file.to_str().unwrap()];
    let (code, output, errors) = run(orlog(&beside)).await;
    assert_eq!(code, 0, "{output}{errors}");
    assert!(output.contains("in use by a running node"), "{output}");
    let (code, output, errors) = run(orlog(&[&beside[..], &["--deep"]].concat())).await;
    assert_eq!(code, 0, "{output}{errors}");
    assert!(
        output.contains("the tables were not read: a running node uses them"),
        "{output}"
    );
    assert!(!output.contains("rows are readable"), "{output}");
    node.send("POST", "/v1/events", &[], Some(&placed("o-2")))
        .await
        .ok();

    node.app.drain().await;
    let (code, output, _) = run(orlog(&args)).await;
    assert_eq!(code, 1, "{output}");
    for part in [
        "drains and rejects new work",
        "restart it after it has stopped",
    ] {
        assert!(output.contains(part), "{part}: {output}");
    }
    let (code, output, _) = run(orlog(&[
        "doctor",
        "--node-only",
        "--url",
        "http://127.0.0.1:9",
    ]))
    .await;
    assert_eq!(code, 1, "{output}");
    assert!(
        output.contains("check that a node runs there (--url, ORLOG_URL)"),
        "{output}"
    );
}
