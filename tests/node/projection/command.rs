//! `orlog export` into PostgreSQL and into files.

use std::collections::BTreeMap;
use std::io::Write as _;
use std::process::Stdio;

use orlog_testkit::wait::until;
use serde_json::{Value, json};

use crate::harness::process::{Killed, orlog, run};
use crate::projection::node::{Node, WIDE};
use crate::projection::replica::{ReplicaCopy, Rows};
use crate::projection::tables::{Schema, done, export};

const ALL: [&str; 2] = ["--kinds", "history,instances,tasks,task_events"];
const TABLES: [&str; 4] = [
    "orlog_instances",
    "orlog_tasks",
    "orlog_task_events",
    "orlog_history",
];

/// Compares the tables with the state of a consumer of the stream.
async fn agree(schema: &Schema, rows: &Rows) {
    let counted = |kind: &str| rows.keys().filter(|(of, _)| of == kind).count() as u64;
    for (table, kind) in TABLES
        .iter()
        .zip(["instance", "task", "task_event", "history"])
    {
        assert_eq!(schema.count(table).await, counted(kind), "{table}");
    }
    let of = |kind: &str, key: Value| &rows[&(kind.to_owned(), key.to_string())];
    for row in schema.table("orlog_instances").await {
        let value = of(
            "instance",
            json!({ "saga": row["saga"], "correlation": row["correlation"] }),
        );
        for field in [
            "reference",
            "status",
            "paused",
            "version",
            "waits",
            "state",
            "parent",
            "last_input_id",
            "node",
        ] {
            assert_eq!(row[field], value[field], "{field}: {row:#}");
        }
        assert_eq!(row["definition_hash"], value["definition"]["hash"]);
    }
    for row in schema.table("orlog_tasks").await {
        let value = of("task", json!({ "id": row["id"] }));
        for field in [
            "status",
            "saga",
            "correlation",
            "title",
            "roles",
            "assignee",
            "claimed_by",
            "outcome",
            "outcomes",
        ] {
            assert_eq!(row[field], value[field], "{field}: {row:#}");
        }
    }
    for row in schema.table("orlog_task_events").await {
        let value = of(
            "task_event",
            json!({ "task": row["task"], "sequence": row["sequence"] }),
        );
        assert_eq!(row["user_name"], value["user"], "{row:#}");
        for field in ["kind", "reason", "assignee", "roles", "outcome"] {
            assert_eq!(
                row[field],
                value.get(field).cloned().unwrap_or_default(),
                "{field}: {row:#}"
            );
        }
    }
    for row in schema.table("orlog_history").await {
        let key = json!({ "saga": row["saga"], "correlation": row["correlation"], "version": row["version"] });
        let value = of("history", key);
        for field in [
            "input_label",
            "note",
            "status",
            "work",
            "kind",
            "node",
            "delay_ms",
        ] {
            assert_eq!(row[field], value[field], "{field}: {row:#}");
        }
    }
}

async fn all(node: &Node, tenant: &'static str) -> Rows {
    let mut copy = ReplicaCopy::of(tenant, "");
    copy.follow(node).await;
    copy.current_rows()
}

#[tokio::test(flavor = "multi_thread")]
async fn exported_tables_match_the_node_after_purge() {
    let schema = Schema::new().await;
    let node = Node::start().await;
    let tasks = node.open(WIDE, 0..12).await;
    let args = [&ALL[..], &["--tenant", WIDE]].concat();
    done(export(&node, &schema.url, &args)).await;
    agree(&schema, &all(&node, WIDE).await).await;
    node.process_tasks(WIDE, &tasks).await;
    // The tables also contain rows of another tenant.
    node.open("", 0..1).await;
    done(export(&node, &schema.url, &ALL)).await;
    assert_eq!(
        schema
            .rows("SELECT DISTINCT tenant FROM orlog_instances")
            .await
            .len(),
        2
    );
    schema
        .execute("DELETE FROM orlog_instances WHERE tenant = ''")
        .await;
    for table in &TABLES[1..] {
        schema
            .execute(&format!("DELETE FROM {table} WHERE tenant = ''"))
            .await;
    }
    done(export(&node, &schema.url, &args)).await;
    agree(&schema, &all(&node, WIDE).await).await;
    let outcomes = schema
        .rows("SELECT t.outcome, i.status FROM orlog_tasks t JOIN orlog_instances i USING (tenant, saga, correlation)")
        .await;
    let ended = json!({ "outcome": "Approved", "status": "completed" });
    assert_eq!(
        outcomes.iter().filter(|row| **row == ended).count(),
        3,
        "{outcomes:?}"
    );
    node.purge(12 + 1 + 3).await;
    done(export(&node, &schema.url, &args)).await;
    let rows = all(&node, WIDE).await;
    assert_eq!(
        rows.keys().filter(|(kind, _)| kind == "instance").count(),
        9
    );
    agree(&schema, &rows).await;
    // Without changes no row is written.
    let before = schema.rows("SELECT * FROM orlog_export").await;
    done(export(&node, &schema.url, &args)).await;
    let cursors = |rows: &[Value]| {
        rows.iter()
            .map(|row| row["generation"].clone())
            .collect::<Vec<_>>()
    };
    assert_eq!(
        cursors(&before),
        cursors(&schema.rows("SELECT * FROM orlog_export").await)
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn killed_export_resumes() {
    let (schema, fresh) = (Schema::new().await, Schema::new().await);
    let node = Node::start().await;
    node.open("", 0..30).await;
    let args = [&ALL[..], &["--follow"]].concat();
    let count = async || -> u64 {
        let there = schema
            .rows("SELECT to_regclass('orlog_history') IS NOT NULL AS n")
            .await;
        if there[0]["n"] == json!(true) {
            schema.count("orlog_history").await
        } else {
            0
        }
    };
    for round in 1..=4 {
        let running = Killed::start(export(&node, &schema.url, &args).stderr(Stdio::null()));
        let (before, open) = (count().await, 30 * round);
        let loading = async {
            let tasks = node.open("", open..open + 30).await;
            node.process_tasks("", &tasks).await;
        };
        let killing = async {
            until("a row", async || (count().await > before + 5).then_some(())).await;
            drop(running);
        };
        tokio::join!(loading, killing);
    }
    // Waits until pending work has completed.
    node.until("", "/v1/sagas?saga=child&status=running", |found| {
        found["items"] == json!([])
    })
    .await;
    done(export(&node, &schema.url, &ALL)).await;
    done(export(&node, &fresh.url, &ALL)).await;
    for table in TABLES {
        assert_eq!(
            schema.table(table).await,
            fresh.table(table).await,
            "{table}"
        );
    }
    agree(&schema, &all(&node, "").await).await;
    let generations = schema.rows("SELECT generation FROM orlog_export").await;
    assert_eq!(
        generations,
        [json!({ "generation": 1 })],
        "it never restarted"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn expired_cursor_rebuilds_the_copy_and_removes_stale_rows() {
    let schema = Schema::new().await;
    let node = Node::start_with(|config| config.export.max_commits = 1.try_into().unwrap()).await;
    let tasks = node.open("", 0..4).await;
    node.process_tasks("", &tasks).await;
    done(export(&node, &schema.url, &ALL)).await;
    node.purge(5).await;
    node.open("", 4..5).await;
    node.app.services.retention.trim_feeds().await.unwrap();
    let (_, errors) = done(export(&node, &schema.url, &ALL)).await;
    assert!(
        errors.contains("have been deleted") && errors.contains("exporting a new snapshot"),
        "{errors}"
    );
    agree(&schema, &all(&node, "").await).await;
    // Other kinds than before: the first pass also restarts, and rows of excluded kinds are deleted.
    let (_, errors) = done(export(&node, &schema.url, &["--kinds", "instances"])).await;
    assert!(errors.contains("exporting a new snapshot"), "{errors}");
    assert_eq!(
        (
            schema.count("orlog_tasks").await,
            schema.count("orlog_instances").await
        ),
        (0, 5)
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn errors_do_not_contain_passwords() {
    let node = Node::start().await;
    for (url, expected, exit) in [
        ("postgres://orlog:canary-1@127.0.0.1:1/x", "PostgreSQL: ", 5),
        (
            "postgres://orlog:canary-1@[::1/x",
            "invalid database URL",
            2,
        ),
        (
            "mysql://orlog:canary-1@127.0.0.1/x",
            "the URL does not start with postgres://",
            2,
        ),
    ] {
        let (code, _, errors) = run(export(&node, url, &[])).await;
        assert_eq!(code, exit, "{errors}");
        assert!(
            errors.contains(expected) && !errors.contains("canary"),
            "{errors}"
        );
    }
    let (code, _, errors) = run(orlog(&["export", "--url", &node.url])).await;
    assert!(code == 2 && errors.contains("--to <TARGET>"), "{errors}");
    let (code, _, errors) = run(export(&node, "", &[])).await;
    assert!(code == 2 && errors.contains("env:TARGET"), "{errors}");
    let (code, _, errors) = run(orlog(&[
        "export", "--url", &node.url, "--to", "-", "--kinds", "task",
    ]))
    .await;
    assert!(code == 1 && errors.contains("unknown kind"), "{errors}");
    let off = Node::start_with(|config| config.export.enabled = false).await;
    let (code, _, errors) = run(orlog(&["export", "--url", &off.url, "--to", "-"])).await;
    assert!(code == 4 && errors.contains("export.enabled"), "{errors}");
}

#[tokio::test(flavor = "multi_thread")]
async fn file_export_resumes_after_the_last_complete_page() {
    let node = Node::start().await;
    node.open("", 0..3).await;
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("changes.jsonl");
    let target = path.display().to_string();
    let args = ["export", "--url", &node.url, "--to", &target];
    done(orlog(&args)).await;
    let whole = std::fs::read_to_string(&path).unwrap();
    assert_eq!(whole.matches(r#"{"kind":"reset"}"#).count(), 1, "{whole}");
    // The process was killed during a write.
    let mut file = std::fs::OpenOptions::new()
        .append(true)
        .open(&path)
        .unwrap();
    file.write_all(br#"{"kind":"instance","op":"put""#).unwrap();
    node.open("", 3..4).await;
    done(orlog(&args)).await;
    let text = std::fs::read_to_string(&path).unwrap();
    assert!(
        text.starts_with(&whole) && text.len() > whole.len(),
        "{text}"
    );
    let mut last: BTreeMap<String, Value> = BTreeMap::new();
    for line in text.lines() {
        let line: Value = serde_json::from_str(line).unwrap();
        if line["kind"] == "instance" {
            last.insert(line["key"].to_string(), line["value"].clone());
        }
    }
    let rows = all(&node, "").await;
    let instances = rows.iter().filter(|((kind, _), _)| kind == "instance");
    assert_eq!(
        last,
        instances
            .map(|((_, key), value)| (key.clone(), value.clone()))
            .collect()
    );
    let (out, _) = done(orlog(&[
        "export", "--url", &node.url, "--to", "-", "--kinds", "tasks",
    ]))
    .await;
    assert_eq!(
        out.lines()
            .filter(|line| line.contains(r#""kind":"task""#))
            .count(),
        4,
        "{out}"
    );
    std::fs::write(&path, "something else\n").unwrap();
    let (code, _, errors) = run(orlog(&args)).await;
    assert!(
        code == 2 && errors.contains("the file is not an export; use another file"),
        "{errors}"
    );
}
