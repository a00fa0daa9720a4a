//! A data directory that lost a part of itself: the node and the doctor reject it, and the operator can
//! accept the loss.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use orlog::App;
use orlog_bus::codec::{self, DecodeDefaults};
use orlog_model::{CorrelationId, InstanceKey, SagaName, Status, TenantId, Timestamp};
use orlog_testkit::WAIT_TIMEOUT;

use crate::harness::node::{self, NodeBuilder};
use crate::harness::process::{orlog, run};
use crate::operations::node::{ORDER, placed};

const SHARDS: u16 = 2;

/// Data directory of a stopped node with completed orders.
struct StoppedNode {
    dir: Arc<tempfile::TempDir>,
}

impl StoppedNode {
    async fn with_orders(count: usize) -> Self {
        let dir = Arc::new(tempfile::tempdir().unwrap());
        std::fs::create_dir(dir.path().join("definitions")).unwrap();
        std::fs::write(dir.path().join("definitions/order.saga.yaml"), ORDER).unwrap();
        let node = Self { dir };
        let running = node.start(false).await.unwrap();
        for n in 0..count {
            order(&running.app, n).await;
        }
        running.stop().await;
        node
    }

    fn data(&self, path: &str) -> PathBuf {
        self.dir.path().join("data").join(path)
    }

    async fn start(&self, accept_data_loss: bool) -> anyhow::Result<node::Node> {
        let builder = NodeBuilder::on(Arc::clone(&self.dir))
            .effect("test.charge")
            .config(|config| {
                config.shards = SHARDS;
                config.tenants.key_sharded = vec![TenantId::default_tenant()];
            });
        builder
            .overrides(|overrides| overrides.accept_data_loss = accept_data_loss)
            .try_start()
            .await
    }

    /// Returns the exit code and the output of the doctor.
    async fn doctor(&self) -> (i32, String) {
        let file = self.dir.path().join("orlog.toml");
        let (data, definitions) = (self.data(""), self.dir.path().join("definitions"));
        let text = format!(
            "shards = {SHARDS}\nlisten = \"127.0.0.1:0\"\ndata_dir = \"{}\"\ndefinitions_dir = \"{}\"\n[tenants]\nkey_sharded = [\"\"]\n[upstreams.bank]\nbase_url = \"http://127.0.0.1:9\"\n[upstreams.bank.effects.\"test.charge\"]\npath = \"/charge\"\n",
            data.display(),
            definitions.display()
        );
        std::fs::write(&file, text).unwrap();
        let (code, output, errors) =
            run(orlog(&["doctor", "--config", file.to_str().unwrap()])).await;
        (code, output + &errors)
    }

    /// The node and the doctor reject the directory with this text and change nothing. With the loss
    /// accepted, the node continues: a new order completes, also after a restart without the option.
    async fn check_loss(&self, text: &str) {
        let before = files(&self.data(""));
        let (code, output) = self.doctor().await;
        assert!(
            code == 1 && output.contains("OR0061") && output.contains(text),
            "{code} {output}"
        );
        let error = self
            .start(false)
            .await
            .err()
            .expect("the node does not start");
        let error = format!("{error:#}");
        assert!(error.contains("OR0061") && error.contains(text), "{error}");
        assert!(error.contains("--accept-data-loss"), "{error}");
        assert_eq!(files(&self.data("")), before, "nothing is written");
        for (round, accept) in [true, false].into_iter().enumerate() {
            let node = self.start(accept).await.unwrap();
            for n in 0..4 {
                order(&node.app, 1000 + round * 10 + n).await;
            }
            node.stop().await;
        }
        let (code, output) = self.doctor().await;
        assert_eq!(code, 0, "{output}");
    }
}

/// Returns the files below a directory, except those that readers lock.
fn files(dir: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(dir)
        .unwrap()
        .map(|entry| entry.unwrap().path())
    {
        if entry.is_dir() {
            found.extend(files(&entry));
        } else if !entry.ends_with("lock") && !entry.ends_with("mdbx.lck") {
            found.push(entry);
        }
    }
    found.sort();
    found
}

/// Publishes an order and waits until it is completed.
async fn order(app: &App, n: usize) {
    let id = format!("o-{n}");
    let event = codec::from_json(
        &placed(&id),
        &DecodeDefaults {
            tenant: None,
            now: Timestamp::default(),
        },
    );
    app.publish(vec![event.unwrap()]).await.unwrap();
    let key = InstanceKey {
        tenant: TenantId::default_tenant(),
        saga: SagaName::new("order").unwrap(),
        correlation: CorrelationId::new(&id).unwrap(),
    };
    let reader = app.runtime.reader(&key).unwrap();
    let deadline = Instant::now() + WAIT_TIMEOUT;
    while reader
        .instance(&key)
        .unwrap()
        .is_none_or(|instance| instance.status != Status::Completed)
    {
        assert!(Instant::now() < deadline, "order {n} completes");
        tokio::task::yield_now().await;
    }
}

/// Deletes the last journal segment in a directory.
fn delete_last_segment(dir: &Path) {
    let mut segments = files(dir);
    segments.retain(|path| path.extension().is_some_and(|extension| extension == "seg"));
    std::fs::remove_file(segments.last().unwrap()).unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn event_log_without_its_last_segment_is_rejected() {
    let node = StoppedNode::with_orders(5).await;
    delete_last_segment(&node.data("bus/log"));
    node.check_loss("bus lost durable data").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn event_log_that_ends_before_a_checkpoint_is_rejected() {
    let node = StoppedNode::with_orders(5).await;
    delete_last_segment(&node.data("bus/log"));
    // The positions are older than the log: only the checkpoints of the stores are evidence.
    let layout = std::fs::read_to_string(node.data("layout.toml")).unwrap();
    let (settings, _) = layout.split_once("[durable").unwrap();
    std::fs::write(node.data("layout.toml"), settings).unwrap();
    let error = format!(
        "{:#}",
        node.start(false)
            .await
            .err()
            .expect("the node does not start")
    );
    assert!(
        error.contains("OR0061") && error.contains("was read"),
        "{error}"
    );
    let running = node.start(true).await.unwrap();
    order(&running.app, 1000).await;
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn missing_event_log_is_rejected() {
    let node = StoppedNode::with_orders(5).await;
    std::fs::remove_dir_all(node.data("bus")).unwrap();
    node.check_loss("bus lost durable data: it is missing")
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn missing_shard_is_rejected() {
    let node = StoppedNode::with_orders(5).await;
    std::fs::remove_dir_all(node.data("shard-1")).unwrap();
    node.check_loss("shard-1 lost durable data: it is missing")
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn missing_journal_segment_is_rejected() {
    let node = StoppedNode::with_orders(5).await;
    delete_last_segment(&node.data("shard-0/journal"));
    node.check_loss("its last segments are missing").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn missing_tables_are_rejected() {
    let node = StoppedNode::with_orders(5).await;
    std::fs::remove_dir_all(node.data("shard-0/tables")).unwrap();
    node.check_loss("the journal exists, but the tables are missing")
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn older_copy_of_a_shard_is_rejected() {
    let node = StoppedNode::with_orders(5).await;
    let copy = node.dir.path().join("copy");
    let status = std::process::Command::new("cp")
        .arg("-r")
        .arg(node.data("shard-0"))
        .arg(&copy)
        .status();
    assert!(status.unwrap().success());
    let running = node.start(false).await.unwrap();
    for n in 10..20 {
        order(&running.app, n).await;
    }
    running.stop().await;
    std::fs::remove_dir_all(node.data("shard-0")).unwrap();
    std::fs::rename(copy, node.data("shard-0")).unwrap();
    node.check_loss("was durable; its last segments are missing")
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn store_behind_the_cursor_of_the_event_log_is_rejected() {
    let node = StoppedNode::with_orders(5).await;
    let layout = std::fs::read_to_string(node.data("layout.toml")).unwrap();
    let (settings, _) = layout.split_once("[durable").unwrap();
    std::fs::write(node.data("layout.toml"), settings).unwrap();
    std::fs::remove_dir_all(node.data("shard-0")).unwrap();
    let error = format!(
        "{:#}",
        node.start(false)
            .await
            .err()
            .expect("the node does not start")
    );
    assert!(
        error.contains("OR0061: the store of shard-0 lost durable data"),
        "{error}"
    );
    let running = node.start(true).await.unwrap();
    order(&running.app, 1000).await;
    running.stop().await;
}
