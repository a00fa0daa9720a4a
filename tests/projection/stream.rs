//! `GET /v1/export`.

use std::path::Path;
use std::time::Duration;

use serde_json::json;

use crate::node::{Node, PATIENCE, WIDE};
use crate::replica::{Copy, by_place, said};

/// Follows until the copy is what the node says: what is under way comes to rest meanwhile.
async fn agree(node: &Node, tenant: &str, copy: &mut Copy) {
    let mut ticks = tokio::time::interval(Duration::from_millis(20));
    let agreed = tokio::time::timeout(PATIENCE, async {
        loop {
            ticks.tick().await;
            copy.follow(node).await;
            if by_place(copy.standing()) == said(node, tenant).await {
                return;
            }
        }
    });
    if agreed.await.is_err() {
        assert_eq!(by_place(copy.standing()), said(node, tenant).await);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn whoever_follows_has_what_the_node_says() {
    let node = Node::start().await;
    let tasks = node.open(WIDE, 0..16).await;
    // One begins with what is there, the other one with nothing, in small steps.
    let mut late = Copy::of(WIDE, "limit=7");
    assert!(late.ask(&node).await && late.lines >= 7);
    let mut first = Copy::of(WIDE, "");
    first.follow(&node).await;
    node.people(WIDE, &tasks).await;
    let more = node.open(WIDE, 16..24).await;
    assert!(late.ask(&node).await);
    node.people(WIDE, &more).await;
    agree(&node, WIDE, &mut late).await;
    agree(&node, WIDE, &mut first).await;
    assert_eq!(late.shards.len(), 2, "both shards have a part");

    // The cursor of a consumer that is gone: another one goes on from there with what it had.
    let mut resumed = first.clone();
    node.tell(WIDE, &tasks[3], "claim", json!({})).await;
    let before = resumed.lines;
    agree(&node, WIDE, &mut resumed).await;
    assert!((1..20).contains(&(resumed.lines - before)), "only what changed is told");

    // Some kinds only, and everybody's.
    let mut some = Copy::of(WIDE, "kinds=tasks,task_events");
    some.follow(&node).await;
    assert!(some.standing().keys().all(|(kind, _)| kind.starts_with("task")));
    node.open("zeta", 30..31).await;
    let mut zeta = Copy::of("zeta", "");
    agree(&node, "zeta", &mut zeta).await;
    assert!(zeta.standing().len() >= 5);
    let mut all = Copy::of("", "all=true&kinds=instances");
    all.follow(&node).await;
    assert_eq!(all.standing().len(), 2 * 24 + 2);
    let mut nobody = Copy::of("", "");
    nobody.follow(&node).await;
    assert_eq!(nobody.lines, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_forgotten_is_told() {
    let node = Node::start().await;
    let tasks = node.open("", 0..4).await;
    node.people("", &tasks).await;
    let mut copy = Copy::of("", "");
    agree(&node, "", &mut copy).await;
    let of = |copy: &Copy, kind: &str| copy.standing().keys().filter(|(of, _)| of == kind).count();
    assert_eq!((of(&copy, "instance"), of(&copy, "task")), (8, 4));
    // Four errands and the household whose task was answered.
    node.purge(5).await;
    agree(&node, "", &mut copy).await;
    assert_eq!((of(&copy, "instance"), of(&copy, "task")), (3, 3));
    let mut fresh = Copy::of("", "");
    fresh.follow(&node).await;
    assert_eq!(fresh.standing(), copy.standing());
}

#[tokio::test(flavor = "multi_thread")]
async fn who_waits_is_told_at_once_and_not_of_others() {
    let node = Node::start().await;
    let mut copy = Copy::of("", "kinds=instances");
    copy.follow(&node).await;
    let (asked, path) = (&node, copy.path("&wait=10m"));
    let waiting = async move { asked.get("", &path).await };
    let opening = async {
        node.open("zeta", 0..1).await;
        node.open("", 0..1).await
    };
    let (answer, _) = tokio::time::timeout(PATIENCE, async { tokio::join!(waiting, opening) }).await.unwrap();
    assert_eq!(answer.status, 200, "{answer:?}");
    assert!(
        answer.text.contains(r#""correlation":"h-0""#) && !answer.text.contains("zeta"),
        "{}",
        answer.text
    );
    copy.take(&answer.text);
    // A node that goes away lets nobody wait for it.
    copy.follow(&node).await;
    let path = copy.path("&wait=10m");
    let (answer, at_rest) = tokio::join!(node.get("", &path), node.app.drain());
    assert!(at_rest && answer.status == 200, "{answer:?}");
}

fn copied(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap().map(Result::unwrap) {
        let (path, to) = (entry.path(), to.join(entry.file_name()));
        if path.is_dir() { copied(&path, &to) } else { std::fs::copy(path, to).map(drop).unwrap() }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cursor_outlives_the_node_and_is_refused_by_one_that_was_restored() {
    let node = Node::start().await;
    node.open(WIDE, 0..4).await;
    let mut copy = Copy::of(WIDE, "");
    agree(&node, WIDE, &mut copy).await;
    let (folder, backup) = (node.stop().await, tempfile::tempdir().unwrap());
    copied(folder.path(), backup.path());

    let node = Node::on(folder, |_| ()).await;
    let before = copy.lines;
    copy.follow(&node).await;
    assert_eq!(copy.lines, before, "nothing is told again");
    node.open(WIDE, 4..8).await;
    agree(&node, WIDE, &mut copy).await;
    node.stop().await;

    let restored = Node::on(backup, |_| ()).await;
    restored.open(WIDE, 8..12).await;
    let gone = restored.get(WIDE, &copy.path("")).await.problem(410, "OR0050");
    assert!(gone.contains("another life"), "{gone}");
    copy.cursor = None;
    agree(&restored, WIDE, &mut copy).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cursor_that_leads_nowhere_is_refused_with_the_remedy() {
    let node = Node::start_with(|config| config.export.keep_commits = 1.try_into().unwrap()).await;
    let mut copy = Copy::of("", "");
    copy.follow(&node).await;
    let old = copy.clone();
    node.open("", 0..2).await;
    copy.follow(&node).await;
    node.app.trim_feeds().await.unwrap();
    let gone = node.get("", &old.path("")).await.problem(410, "OR0050");
    assert!(gone.contains("not kept any more") && gone.contains("begin again without a cursor"), "{gone}");
    copy.follow(&node).await;
    assert_eq!(by_place(copy.standing()), said(&node, "").await, "who was not away goes on");

    let path = copy.path("");
    assert!(node.get("zeta", &path).await.problem(400, "OR0008").contains("another tenant"));
    assert!(
        node.get("", &format!("{path}&all=true")).await.problem(400, "OR0008").contains("another tenant")
    );
    assert!(
        node.get("", &format!("{path}&kinds=tasks"))
            .await
            .problem(400, "OR0008")
            .contains("cursor is one of")
    );
    for wrong in ["after=x", "kinds=task", "wait=soon", "limit=few", "since=1"] {
        node.get("", &format!("/v1/export?{wrong}")).await.problem(400, "OR0008");
    }

    // A node with one shard does not know what a cursor of two shards means.
    let other = Node::start_with(|config| (config.shards, config.tenants.spread) = (1, Vec::new())).await;
    let mut wide = Copy::of(WIDE, "");
    wide.follow(&node).await;
    other.get(WIDE, &wide.path("")).await.problem(410, "OR0050");
    let off = Node::start_with(|config| config.export.enabled = false).await;
    assert!(off.get("", "/v1/export").await.problem(409, "OR0051").contains("export.enabled"));
}
