//! Exercises of the runbooks of stored data: quarantined instances, damaged tables, audit trail.

use std::os::unix::fs::symlink;
use std::path::Path;

use orlog_testkit::nats_server::NatsServer;
use orlog_testkit::raw_nats::RawNatsClient;
use orlog_testkit::wait::until;
use serde_json::json;

use super::exercise::RunbookExercise;
use super::page::RunbookPage;
use super::process::{NodeProcess, on_nats};
use crate::api::quarantine::damage_instance;

/// The check before the start is complete for a small store only. Here, it does not find the damage.
const LARGE_STORE: &str = "[store]\nstart_check_timeout = \"0s\"\n";

/// Starts the orders `o-16`, `o-17` and `o-18`.
async fn place_orders(node: &NodeProcess) {
    for id in ["o-16", "o-17", "o-18"] {
        let data = json!({ "orderId": id });
        node.publish(&format!("placed-{id}"), "OrderPlaced", &data)
            .await;
        node.until(&format!("/v1/sagas/order/{id}"), |_| true).await;
    }
}

async fn pay(node: &NodeProcess, id: &str) {
    let data = json!({ "orderId": id, "amount": 3 });
    node.publish(&format!("paid-{id}"), "Paid", &data).await;
}

async fn until_paid(node: &NodeProcess, id: &str) {
    node.until(&format!("/v1/sagas/order/{id}"), |order| {
        order["state"]["vars"]["paid"] == 3
    })
    .await;
}

/// Stops the node and damages the rows of these orders.
fn damage(node: &mut NodeProcess, ids: &[&str]) {
    node.stop();
    let tables = node.path("data/shard-0/tables/mdbx.dat");
    for id in ids {
        damage_instance(&tables, "order", "orderId", id);
    }
}

/// Starts the exercise on one node.
async fn begin(
    node: NodeProcess,
    page: &RunbookPage,
    alert: &'static str,
) -> RunbookExercise<NodeProcess> {
    let (url, dir) = (node.url.clone(), node.dir.clone());
    RunbookExercise::begin_on(node, &[&url], dir.path(), page.clone(), alert).await
}

#[tokio::test(flavor = "multi_thread")]
async fn runbook_quarantined_instance() {
    let page = RunbookPage::open("quarantined-instance.md");
    let node = NodeProcess::start(LARGE_STORE).await;
    let mut exercise = begin(node, &page, "OrlogInstanceQuarantined").await;
    place_orders(&exercise.node).await;
    // The bus does not store control requests: a replay skips this instance.
    for action in ["pause", "resume"] {
        let path = format!("/v1/sagas/order/o-17/{action}");
        exercise
            .node
            .send("POST", &path, Some(&json!({})))
            .await
            .ok();
    }
    damage(&mut exercise.node, &["o-16", "o-17"]);
    exercise.node.restart(&[]).await;
    for id in ["o-16", "o-17", "o-18"] {
        pay(&exercise.node, id).await;
    }
    exercise.until_it_fires().await;
    until_paid(&exercise.node, "o-18").await;
    exercise
        .inspect(&[&["o-16", "o-17", "instance_unreadable"]])
        .await;
    assert!(exercise.node.log().contains("instance quarantined"));

    let replay = "orlog replay --saga order --from 2026-01-01T00:00:00Z --work suppress --yes";
    exercise.page.perform(replay);
    let (code, output) = exercise.try_run(replay).await;
    assert_eq!(code, Some(4), "{output}");
    let skipped = output.lines().find(|line| line.contains("o-17")).unwrap();
    assert!(skipped.contains("skipped"), "{output}");
    exercise
        .follow(
            "orlog saga drop order o-17 --reason \"damaged by disk failure\"",
            &[],
        )
        .await;
    exercise.until_it_resolves().await;
    let again = json!({ "orderId": "o-17" });
    exercise
        .node
        .publish("placed-again-o-17", "OrderPlaced", &again)
        .await;
    exercise.node.until("/v1/sagas/order/o-17", |_| true).await;
    exercise
        .follow(
            "orlog dlq redrive --reason instance_unreadable --canary 1",
            &[],
        )
        .await;
    for id in ["o-16", "o-17"] {
        until_paid(&exercise.node, id).await;
    }
    let letters = exercise.run("orlog dlq list").await;
    assert!(!letters.contains("instance_unreadable"), "{letters}");
}

#[tokio::test(flavor = "multi_thread")]
async fn runbook_damaged_tables() {
    let page = RunbookPage::open("damaged-tables.md");
    let nats = NatsServer::start();
    let local = NodeProcess::start(LARGE_STORE).await;
    rebuild_or_restore(local, &page).await;
    let config = format!(
        "{LARGE_STORE}replication = \"jetstream\"\n{}",
        on_nats(&nats.url())
    );
    move_the_tables_away(NodeProcess::start(&config).await, &page).await;
}

/// Provokes the alert, and stops the node as the page requires.
async fn find_damage(exercise: &mut RunbookExercise<NodeProcess>) {
    damage(&mut exercise.node, &["o-16"]);
    exercise.node.restart(&[]).await;
    let path = "/v1/sagas/order/o-16";
    exercise
        .node
        .send("GET", path, None)
        .await
        .problem("OR0062");
    exercise.until_it_fires().await;
    assert!(exercise.node.log().contains("damaged row"));
    exercise.node.stop();
    let (code, output) = exercise.try_run("orlog doctor --deep").await;
    exercise.page.perform("orlog doctor --deep");
    assert_eq!(code, Some(1), "{output}");
    assert!(output.contains("OR0062"), "{output}");
}

/// The node runs without damage, and the order is as before.
async fn until_repaired(exercise: &mut RunbookExercise<NodeProcess>) {
    exercise.node.restart(&[]).await;
    exercise.until_it_resolves().await;
    exercise
        .node
        .until("/v1/sagas/order/o-16", |order| order["status"] == "running")
        .await;
    exercise.node.stop();
    exercise.run("orlog doctor --deep").await;
    exercise.node.restart(&[]).await;
}

async fn rebuild_or_restore(node: NodeProcess, page: &RunbookPage) {
    let mut exercise = begin(node, page, "OrlogDamagedRows").await;
    place_orders(&exercise.node).await;
    exercise.run("orlog backup --to backup").await;

    find_damage(&mut exercise).await;
    let values = [("DIR", "data"), ("--shard N", "--shard 0")];
    exercise
        .follow("orlog rebuild --data-dir DIR --shard N", &values)
        .await;
    until_repaired(&mut exercise).await;

    find_damage(&mut exercise).await;
    std::fs::rename(exercise.node.path("data"), exercise.node.path("damaged")).unwrap();
    exercise
        .follow(
            "orlog restore --from DIR --to DIR",
            &[("--from DIR", "--from backup"), ("--to DIR", "--to data")],
        )
        .await;
    until_repaired(&mut exercise).await;
}

async fn move_the_tables_away(node: NodeProcess, page: &RunbookPage) {
    let mut exercise = begin(node, page, "OrlogDamagedRows").await;
    place_orders(&exercise.node).await;
    find_damage(&mut exercise).await;
    let tables = exercise.node.path("data/shard-0/tables");
    std::fs::rename(&tables, exercise.node.path("damaged")).unwrap();
    until_repaired(&mut exercise).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn runbook_audit_trail() {
    let page = RunbookPage::open("audit-trail.md");
    audit_records_are_not_written(&page).await;
    audit_records_are_not_published(&page).await;
    audit_trail_is_large(&page).await;
}

/// Sends requests that are recorded until the check succeeds.
async fn until_recorded(node: &NodeProcess, label: &str, check: impl Fn() -> bool) {
    until(label, async || {
        node.send("POST", "/admin/collect", None).await.ok();
        check().then_some(())
    })
    .await;
}

async fn audit_records_are_not_written(page: &RunbookPage) {
    let node = NodeProcess::start("[audit]\nmax_file_size = \"4KiB\"\n").await;
    let exercise = begin(node, page, "OrlogAuditTrailFails").await;
    let node = &exercise.node;
    // The node has no permission for the next file: also for root, no file can be created there.
    let next = node.path("data/audit/audit-0000000002.jsonl");
    symlink("/nonexistent/audit.jsonl", &next).unwrap();
    let is_logged = || node.log().contains("orlog::audit");
    until_recorded(node, "a record is only logged", is_logged).await;
    exercise.until_it_fires().await;
    let reason = "No such file or directory";
    assert!(node.log().contains(reason), "{}", node.log());

    std::fs::remove_file(&next).unwrap();
    until_recorded(node, "records are written again", || next.is_file()).await;
    exercise.follow("orlog audit verify data/audit", &[]).await;
    exercise.until_it_resolves().await;
}

async fn audit_records_are_not_published(page: &RunbookPage) {
    let nats = NatsServer::start();
    let config = format!(
        "{}[audit]\nnats_subject = \"audit.orlog\"\n",
        on_nats(&nats.url())
    );
    let node = NodeProcess::start(&config).await;
    let exercise = begin(node, page, "OrlogAuditTrailFails").await;
    // No stream stores the subject.
    exercise
        .node
        .send("POST", "/admin/collect", None)
        .await
        .ok();
    exercise.until_it_fires().await;
    let failed = exercise.run("curl -s $ORLOG_URL/metrics").await;
    assert!(
        failed.contains("orlog_audit_publishes_failed_total"),
        "{failed}"
    );
    let mut client = RawNatsClient::connect(nats.port);
    let stream = json!({ "name": "AUDIT", "subjects": ["audit.orlog"] });
    client.jetstream("STREAM.CREATE.AUDIT", &stream);
    until("all records are published", async || {
        let info = RawNatsClient::connect(nats.port).jetstream("STREAM.INFO.AUDIT", &json!({}));
        let lines = lines(&exercise.node.path("data/audit"));
        (info["state"]["messages"] == lines && lines > 0).then_some(())
    })
    .await;
    exercise.until_it_resolves().await;
}

/// Returns the number of records.
fn lines(dir: &Path) -> usize {
    let files = std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap());
    let records = files.filter(|file| {
        let name = file.file_name();
        name.to_str().unwrap().starts_with("audit-")
    });
    records
        .map(|file| {
            std::fs::read_to_string(file.path())
                .unwrap()
                .lines()
                .count()
        })
        .sum()
}

async fn audit_trail_is_large(page: &RunbookPage) {
    const LIMITS: &str =
        "[audit]\nmax_file_size = \"4KiB\"\nalarm_size = \"8KiB\"\nmax_size = \"12KiB\"\n";
    let node = NodeProcess::start(LIMITS).await;
    let mut exercise = begin(node, page, "OrlogAuditTrailLarge").await;
    let node = &exercise.node;
    let is_at_the_maximum = || node.log().contains("audit.max_size is ");
    until_recorded(node, "the trail is at its maximum size", is_at_the_maximum).await;
    exercise.until_it_fires().await;
    exercise
        .inspect(&[
            &["orlog_audit_writes_failed_total", "orlog_audit_trail_bytes"],
            &["/admin/collect"],
            &[],
        ])
        .await;

    // The cause: requests that succeed are not recorded.
    let excluded = "exclude_routes = [\"POST /admin/collect\"]\n";
    exercise.node.stop();
    exercise.node.configure(&format!("{LIMITS}{excluded}"));
    exercise.node.restart(&[]).await;
    let before = lines(&exercise.node.path("data/audit"));
    exercise
        .node
        .send("POST", "/admin/collect", None)
        .await
        .ok();
    assert_eq!(lines(&exercise.node.path("data/audit")), before);

    exercise
        .run("mkdir archive && cp data/audit/audit-0000000001.jsonl archive")
        .await;
    exercise.run("orlog audit verify archive").await;

    exercise.node.stop();
    let larger = LIMITS.replace("8KiB", "1MiB").replace("12KiB", "2MiB");
    exercise.node.configure(&larger);
    exercise.node.restart(&[]).await;
    exercise.until_it_resolves().await;
    let trail = exercise.node.path("data/audit");
    let is_recorded = || lines(&trail) > before;
    until_recorded(&exercise.node, "records are written again", is_recorded).await;
    exercise.run("orlog audit verify data/audit").await;
}
