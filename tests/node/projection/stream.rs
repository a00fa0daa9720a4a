//! Tests of `GET /v1/export`.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use orlog_testkit::WAIT_TIMEOUT;
use serde_json::json;

use crate::projection::node::{Node, WIDE};
use crate::projection::replica::{ReplicaCopy, api_state, number_task_events};

/// Follows the export until the replica equals the state of the node; pending work completes meanwhile.
async fn agree(node: &Node, tenant: &str, copy: &mut ReplicaCopy) {
    let mut ticks = tokio::time::interval(Duration::from_millis(20));
    let agreed = tokio::time::timeout(WAIT_TIMEOUT, async {
        loop {
            ticks.tick().await;
            copy.follow(node).await;
            if number_task_events(copy.current_rows()) == api_state(node, tenant).await {
                return;
            }
        }
    });
    if agreed.await.is_err() {
        assert_eq!(
            number_task_events(copy.current_rows()),
            api_state(node, tenant).await
        );
    }
}

/// Requirements: E1.
#[tokio::test(flavor = "multi_thread")]
async fn follower_state_matches_the_node() {
    let node = Node::start().await;
    let tasks = node.open(WIDE, 0..16).await;
    // One replica starts with existing data, the other one without data and with small pages.
    let mut late = ReplicaCopy::of(WIDE, "limit=7");
    assert!(late.fetch(&node).await && late.lines >= 7);
    let mut first = ReplicaCopy::of(WIDE, "");
    first.follow(&node).await;
    node.process_tasks(WIDE, &tasks).await;
    let more = node.open(WIDE, 16..24).await;
    assert!(late.fetch(&node).await);
    node.process_tasks(WIDE, &more).await;
    agree(&node, WIDE, &mut late).await;
    agree(&node, WIDE, &mut first).await;
    assert_eq!(late.shards.len(), 2, "both shards have a part");

    // The cursor of a stopped consumer: another one continues from it with its data.
    let mut resumed = first.clone();
    node.send_task_action(WIDE, &tasks[3], "claim", json!({}))
        .await;
    let before = resumed.lines;
    agree(&node, WIDE, &mut resumed).await;
    assert!(
        (1..20).contains(&(resumed.lines - before)),
        "only changes are emitted"
    );

    // Some kinds only, and all tenants.
    let mut some = ReplicaCopy::of(WIDE, "kinds=tasks,task_events");
    some.follow(&node).await;
    assert!(
        some.current_rows()
            .keys()
            .all(|(kind, _)| kind.starts_with("task"))
    );
    node.open("zeta", 30..31).await;
    let mut zeta = ReplicaCopy::of("zeta", "");
    agree(&node, "zeta", &mut zeta).await;
    assert!(zeta.current_rows().len() >= 5);
    let mut all = ReplicaCopy::of("", "all=true&kinds=instances");
    all.follow(&node).await;
    assert_eq!(all.current_rows().len(), 2 * 24 + 2);
    let mut empty = ReplicaCopy::of("", "");
    empty.follow(&node).await;
    assert_eq!(empty.lines, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn purges_are_exported_as_deletes() {
    let node = Node::start().await;
    let tasks = node.open("", 0..4).await;
    node.process_tasks("", &tasks).await;
    let mut copy = ReplicaCopy::of("", "");
    agree(&node, "", &mut copy).await;
    let of = |copy: &ReplicaCopy, kind: &str| {
        copy.current_rows()
            .keys()
            .filter(|(of, _)| of == kind)
            .count()
    };
    assert_eq!((of(&copy, "instance"), of(&copy, "task")), (8, 4));
    // Four child sagas and the composite whose task was completed.
    node.purge(5).await;
    agree(&node, "", &mut copy).await;
    assert_eq!((of(&copy, "instance"), of(&copy, "task")), (3, 3));
    let mut fresh = ReplicaCopy::of("", "");
    fresh.follow(&node).await;
    assert_eq!(fresh.current_rows(), copy.current_rows());
}

#[tokio::test(flavor = "multi_thread")]
async fn long_poll_wakes_only_for_its_own_tenant() {
    let node = Node::start().await;
    let mut copy = ReplicaCopy::of("", "kinds=instances");
    copy.follow(&node).await;
    let (target, path) = (&node, copy.path("&wait=10m"));
    let waiting = async move { target.get("", &path).await };
    let opening = async {
        node.open("zeta", 0..1).await;
        node.open("", 0..1).await
    };
    let (response, _) =
        tokio::time::timeout(WAIT_TIMEOUT, async { tokio::join!(waiting, opening) })
            .await
            .unwrap();
    assert_eq!(response.status, 200, "{response:?}");
    assert!(
        response.text.contains(r#""correlation":"h-0""#) && !response.text.contains("zeta"),
        "{}",
        response.text
    );
    copy.take(&response.text);
    // A stopping node ends waiting requests.
    copy.follow(&node).await;
    let path = copy.path("&wait=10m");
    let (response, is_drained) = tokio::join!(node.get("", &path), node.app.drain());
    assert!(is_drained && response.status == 200, "{response:?}");
}

fn copied(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap().map(Result::unwrap) {
        let (path, to) = (entry.path(), to.join(entry.file_name()));
        if path.is_dir() {
            copied(&path, &to);
        } else {
            std::fs::copy(path, to).map(drop).unwrap();
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn cursor_survives_restart_and_is_rejected_after_restore() {
    let node = Node::start().await;
    node.open(WIDE, 0..4).await;
    let mut copy = ReplicaCopy::of(WIDE, "");
    agree(&node, WIDE, &mut copy).await;
    let (dir, backup) = (node.stop().await, Arc::new(tempfile::tempdir().unwrap()));
    copied(dir.path(), backup.path());

    let node = Node::on(dir, |_| ()).await;
    let before = copy.lines;
    copy.follow(&node).await;
    assert_eq!(copy.lines, before, "nothing is emitted twice");
    node.open(WIDE, 4..8).await;
    agree(&node, WIDE, &mut copy).await;
    node.stop().await;

    let restored = Node::on(backup, |_| ()).await;
    restored.open(WIDE, 8..12).await;
    let detail = restored
        .get(WIDE, &copy.path(""))
        .await
        .rejected(410, "OR0050");
    assert!(detail.contains("another run of the store"), "{detail}");
    copy.cursor = None;
    agree(&restored, WIDE, &mut copy).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn invalid_cursor_is_rejected() {
    let node = Node::start_with(|config| config.export.max_commits = 1.try_into().unwrap()).await;
    let mut copy = ReplicaCopy::of("", "");
    copy.follow(&node).await;
    let old = copy.clone();
    node.open("", 0..2).await;
    copy.follow(&node).await;
    node.app.services.retention.trim_feeds().await.unwrap();
    let detail = node.get("", &old.path("")).await.rejected(410, "OR0050");
    assert!(
        detail.contains("have been deleted") && detail.contains("restart without a cursor"),
        "{detail}"
    );
    copy.follow(&node).await;
    assert_eq!(
        number_task_events(copy.current_rows()),
        api_state(&node, "").await,
        "who was not away goes on"
    );

    let path = copy.path("");
    assert!(
        node.get("zeta", &path)
            .await
            .rejected(400, "OR0008")
            .contains("the cursor belongs to another tenant")
    );
    assert!(
        node.get("", &format!("{path}&all=true"))
            .await
            .rejected(400, "OR0008")
            .contains("the cursor belongs to another tenant")
    );
    assert!(
        node.get("", &format!("{path}&kinds=tasks"))
            .await
            .rejected(400, "OR0008")
            .contains("start without a cursor for others")
    );
    for invalid in ["after=x", "kinds=task", "wait=soon", "limit=few", "since=1"] {
        node.get("", &format!("/v1/export?{invalid}"))
            .await
            .rejected(400, "OR0008");
    }

    // A node with one shard rejects a cursor of two shards.
    let other =
        Node::start_with(|config| (config.shards, config.tenants.key_sharded) = (1, Vec::new()))
            .await;
    let mut wide = ReplicaCopy::of(WIDE, "");
    wide.follow(&node).await;
    other
        .get(WIDE, &wide.path(""))
        .await
        .rejected(410, "OR0050");
    let off = Node::start_with(|config| config.export.enabled = false).await;
    assert!(
        off.get("", "/v1/export")
            .await
            .rejected(409, "OR0051")
            .contains("export.enabled")
    );
}
