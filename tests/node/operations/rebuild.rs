//! Rebuild of the tables of a shard: all work of the journal exists again, and nothing is executed under
//! another key.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

use orlog_testkit::WAIT_TIMEOUT;
use serde_json::Value;

use crate::harness::http::client;
use crate::harness::process::{orlog, run};
use crate::operations::backup::{
    BackupFixture, ExecutionLog, agree, small, story, wait_for, wait_until_idle,
};

/// Size of a page of the tables, in bytes.
const PAGE: usize = 4096;
/// Pages with the metadata of the environment.
const META_PAGES: usize = 3;

fn tables(fixture: &BackupFixture, shard: u16) -> PathBuf {
    fixture.path(&format!("data/shard-{shard}/tables/mdbx.dat"))
}

/// Overwrites all pages with rows.
fn overwrite_pages(file: &Path) {
    let mut bytes = std::fs::read(file).unwrap();
    fastrand::Rng::with_seed(4).fill(&mut bytes[META_PAGES * PAGE..]);
    std::fs::write(file, bytes).unwrap();
}

/// Publishes orders and waits until their first effects are executed.
async fn publish(
    url: &str,
    log: &ExecutionLog,
    numbers: std::ops::Range<usize>,
) -> BTreeSet<String> {
    let ids: BTreeSet<String> = numbers.map(|number| format!("o-{number}")).collect();
    let batch: Vec<Value> = ids.iter().flat_map(|id| story(id)).collect();
    let http = client();
    let response = http
        .post(format!("{url}/v1/events"))
        .header("x-tenant-id", "big")
        .json(&batch)
        .send();
    assert_eq!(response.await.unwrap().status(), 202);
    let reserved = |id: &String| {
        log.lock()
            .contains_key(&("stock.reserve".to_owned(), id.clone()))
    };
    wait_for("the first effect of each order", || {
        ids.iter().all(reserved)
    })
    .await;
    ids
}

fn rebuild(fixture: &BackupFixture, shard: &str, more: &[&str]) -> Command {
    let data = fixture.path("data");
    let args = [
        "rebuild",
        "--data-dir",
        data.to_str().unwrap(),
        "--shard",
        shard,
    ];
    orlog(&[&args, more].concat())
}

/// Returns the errors of a node that does not start.
async fn failed_start(fixture: &BackupFixture) -> String {
    let (config, data) = (fixture.path("data.toml"), fixture.path("data"));
    let mut command = orlog(&[
        "dev",
        "--listen",
        "127.0.0.1:0",
        "--config",
        config.to_str().unwrap(),
    ]);
    command.args(["--data-dir", data.to_str().unwrap()]);
    // On a busy machine the check of a small store can take longer than its default limit.
    command.env("ORLOG_STORE__START_CHECK_TIMEOUT", "30s");
    let output = tokio::process::Command::from(command)
        .kill_on_drop(true)
        .output();
    let output = tokio::time::timeout(WAIT_TIMEOUT, output)
        .await
        .expect("the node does not start")
        .unwrap();
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    String::from_utf8(output.stderr).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn rebuilt_tables_contain_all_work() {
    let fixture = BackupFixture::new();
    let (node, log) = fixture.start("data").await;
    let orders = publish(&node.url, &log, 0..60).await;
    let (code, _, errors) = run(rebuild(&fixture, "0", &[])).await;
    assert!(
        code == 1 && errors.contains("is locked by another process"),
        "{errors}"
    );
    // The orders wait for their timers.
    node.kill();
    let before = log.lock().clone();
    overwrite_pages(&tables(&fixture, 0));
    std::fs::remove_file(tables(&fixture, 1)).unwrap();

    let errors = failed_start(&fixture).await;
    assert!(
        errors.contains("OR0062") && errors.contains("shard-0"),
        "{errors}"
    );
    assert!(errors.contains("orlog rebuild"), "{errors}");
    let (code, output, errors) = run(rebuild(&fixture, "0", &[])).await;
    assert_eq!(code, 0, "{errors}");
    assert!(
        output.contains("the tables of shard 0 are rebuilt: "),
        "{output}"
    );
    assert!(output.contains("shard-0/tables-aside-1"), "{output}");
    assert!(
        fixture
            .path("data/shard-0/tables-aside-1/mdbx.dat")
            .exists()
    );

    let errors = failed_start(&fixture).await;
    assert!(
        errors.contains("OR0061") && errors.contains("the tables are missing"),
        "{errors}"
    );
    assert!(errors.contains("orlog rebuild"), "{errors}");
    let (code, output, errors) = run(rebuild(&fixture, "1", &["--output", "json"])).await;
    assert_eq!(code, 0, "{errors}");
    let output: Value = serde_json::from_str(&output).unwrap();
    assert!(
        output["position"].as_u64() > Some(0) && output["rows"].as_u64() > Some(0),
        "{output}"
    );

    let (node, log) = fixture.start("data").await;
    let completed = wait_until_idle(&node.url, &orders).await;
    assert_eq!(completed, orders);
    node.stop();
    let after = log.lock();
    assert!(
        after
            .keys()
            .filter(|(action, _)| action == "bank.charge")
            .count()
            > 0,
        "work was in flight"
    );
    agree(&before, &after, &orders);
}

#[tokio::test(flavor = "multi_thread")]
async fn truncated_journal_is_rebuilt_with_a_backup() {
    // The backup flushes and truncates; nothing else does.
    let store = "memtable_max_age = \"1h\"\njournal_segment_size = \"64KiB\"";
    let fixture = BackupFixture::with_store(store);
    let (node, log) = fixture.start("data").await;
    let mut orders = publish(&node.url, &log, 0..100).await;
    let (backup, stranger) = (fixture.path("backup"), fixture.path("stranger"));
    let (code, _, errors) = run(orlog(&[
        "backup",
        "--url",
        &node.url,
        "--to",
        backup.to_str().unwrap(),
    ]))
    .await;
    assert_eq!(code, 0, "{errors}");
    orders.extend(publish(&node.url, &log, 100..130).await);
    node.kill();
    let before = log.lock().clone();
    overwrite_pages(&tables(&fixture, 0));

    let (code, _, errors) = run(rebuild(&fixture, "0", &[])).await;
    assert!(
        code == 1 && errors.contains("are no longer in the journal; use a backup"),
        "{errors}"
    );
    small(&stranger).await;
    let (code, _, errors) = run(rebuild(
        &fixture,
        "0",
        &["--backup", stranger.to_str().unwrap()],
    ))
    .await;
    assert!(
        code == 1 && errors.contains("it is a copy of store "),
        "{errors}"
    );
    let missing = fixture.path("definitions");
    let (code, _, errors) = run(rebuild(
        &fixture,
        "0",
        &["--backup", missing.to_str().unwrap()],
    ))
    .await;
    assert!(code == 3 && errors.contains("is not a backup"), "{errors}");
    assert!(
        !fixture.path("data/shard-0/rebuild").exists(),
        "a failed rebuild leaves nothing"
    );
    let (code, output, errors) = run(rebuild(
        &fixture,
        "0",
        &["--backup", backup.to_str().unwrap()],
    ))
    .await;
    assert_eq!(code, 0, "{output} {errors}");

    let (node, log) = fixture.start("data").await;
    let completed = wait_until_idle(&node.url, &orders).await;
    assert_eq!(completed, orders);
    node.stop();
    agree(&before, &log.lock(), &orders);
}

#[tokio::test(flavor = "multi_thread")]
async fn rebuild_without_its_prerequisites_is_rejected() {
    let fixture = BackupFixture::new();
    let (node, log) = fixture.start("data").await;
    publish(&node.url, &log, 0..5).await;
    node.stop();
    let check = async |shard: &str, text: &str| {
        let (code, output, errors) = run(rebuild(&fixture, shard, &[])).await;
        assert!(
            code == 1 && errors.contains(text),
            "{code} {output} {errors}"
        );
    };
    check("2", "has 2 shards, numbered from 0").await;
    let layout = fixture.path("data/layout.toml");
    let complete = std::fs::read_to_string(&layout).unwrap();
    let older: Vec<_> = complete
        .lines()
        .filter(|line| !line.starts_with("dedupe_window_ms"))
        .collect();
    std::fs::write(&layout, older.join("\n")).unwrap();
    check("0", "does not contain the dedupe window of shard 0").await;
    // The layout of a replicated shard has no position.
    std::fs::write(&layout, complete.split_once("[durable").unwrap().0).unwrap();
    check("0", "remove the directory and start the node").await;
    std::fs::write(&layout, complete).unwrap();
    std::fs::remove_dir_all(fixture.path("data/shard-0/journal")).unwrap();
    check("0", "OR0061").await;
    assert!(
        !fixture.path("data/shard-0/tables-aside-1").exists(),
        "nothing is changed"
    );
}
