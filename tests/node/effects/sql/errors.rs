//! Each row of docs/providers/decisions.md, with errors that real servers send.

use std::collections::BTreeSet;
use std::path::Path;

use orlog_effect::{ProviderError, Reply, TransientCause};
use serde_json::json;

use super::{Database, mariadb, perform, postgres};

/// Row of a table of the page.
struct Row {
    key: String,
    decision: String,
}

/// Returns the rows of the table under a heading.
fn rows(heading: &str) -> Vec<Row> {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/providers/decisions.md");
    let page = std::fs::read_to_string(page).unwrap();
    let section = page.split("\n## ").find(|text| text.starts_with(heading));
    let rows = section
        .unwrap()
        .lines()
        .filter(|line| line.starts_with('|'))
        .skip(2)
        .map(|line| {
            let mut cells = line.trim_matches('|').split('|').map(str::trim);
            Row {
                key: cells.next().unwrap().to_owned(),
                decision: cells.next().unwrap().to_owned(),
            }
        });
    rows.collect()
}

fn decision(result: &Result<Reply, ProviderError>) -> &'static str {
    match result {
        Err(ProviderError::Permanent { .. }) => "failed",
        Err(ProviderError::Transient { trouble, .. }) => match trouble {
            TransientCause::Throttled => "throttled",
            TransientCause::Unavailable => "unavailable",
            TransientCause::ReportedThrottled
            | TransientCause::ReportedUnavailable
            | TransientCause::ResponseLost
            | TransientCause::Undetermined => "in doubt",
        },
        other => panic!("no error: {other:?}"),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn each_documented_sqlstate_has_its_decision() {
    let database = postgres().await;
    database
        .run("CREATE FUNCTION fail(state text) RETURNS void LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION USING ERRCODE = state; END $$")
        .await;
    let upstream = database.upstream(&json!({
        "x.fail": { "statement": "SELECT fail(:state)", "marker": false },
    }));

    for row in rows("SQLSTATE") {
        // PostgreSQL does not raise the class of success.
        if row.key == "00" {
            continue;
        }
        let state = format!("{:0<5}", row.key);
        let result = perform(&upstream, "x.fail", 1, json!({ "state": state })).await;
        assert_eq!(decision(&result), row.decision, "{state}: {result:?}");
    }
}

/// The server is the source of the list of classes.
#[test]
fn each_class_of_the_server_is_documented() {
    let documented: BTreeSet<String> = rows("SQLSTATE").into_iter().map(|row| row.key).collect();
    let directories = std::fs::read_dir("/usr/share/postgresql").unwrap();
    let lists = directories.map(|version| version.unwrap().path().join("errcodes.txt"));
    let mut classes = 0;
    for list in lists.filter(|list| list.is_file()) {
        let text = std::fs::read_to_string(list).unwrap();
        for line in text.lines() {
            let Some(class) = line.strip_prefix("Section: Class ") else {
                continue;
            };
            let class = &class[..2];
            assert!(documented.contains(class), "class {class} is missing");
            classes += 1;
        }
    }
    assert!(classes > 40, "no list of an installed PostgreSQL");
}

/// Creates a procedure that sends an error.
async fn signals(database: &Database, name: &str, state: &str, number: &str) {
    let body = format!("SIGNAL SQLSTATE '{state}' SET MYSQL_ERRNO = {number}, MESSAGE_TEXT = 'x'");
    database
        .run(&format!("CREATE PROCEDURE {name}() {body}"))
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn each_documented_mysql_error_has_its_decision() {
    let database = mariadb().await;
    let rows = rows("MySQL and MariaDB");
    let mut effects = serde_json::Map::new();
    for row in &rows {
        let name = format!("fail_{}", row.key);
        signals(&database, &name, "HY000", &row.key).await;
        effects.insert(
            format!("x.{name}"),
            json!({ "statement": format!("CALL {name}()"), "marker": false }),
        );
    }

    let upstream = database.upstream(&effects.into());
    for row in rows {
        let effect = format!("x.fail_{}", row.key);
        let result = perform(&upstream, &effect, 1, json!({})).await;
        assert_eq!(decision(&result), row.decision, "{effect}: {result:?}");
    }
}
