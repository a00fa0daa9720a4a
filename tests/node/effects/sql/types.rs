//! Database values keep their type and their digits in both directions.

use serde_json::{Value, json};

use super::{Database, failed, perform, postgres, sqlite};

/// Inserts values by name and reads them again.
async fn there_and_back(database: &Database, columns: &[(&str, &str)], values: &Value) -> Value {
    let list = |each: fn(&str, &str) -> String| {
        columns
            .iter()
            .map(|(name, kind)| each(name, kind))
            .collect::<Vec<_>>()
            .join(", ")
    };
    database
        .run(&format!(
            "CREATE TABLE t ({})",
            list(|name, kind| format!("{name} {kind}"))
        ))
        .await;
    let insert = format!(
        "INSERT INTO t VALUES ({})",
        list(|name, _| format!(":{name}"))
    );
    let upstream = database.upstream(&json!({ "x.put": { "statement": insert } }));
    perform(&upstream, "x.put", 1, values.clone())
        .await
        .unwrap();
    database.run("SELECT * FROM t").await[0].clone()
}

#[tokio::test(flavor = "multi_thread")]
async fn postgres_round_trips_every_type() {
    let database = postgres().await;
    database
        .run("CREATE TYPE mood AS ENUM ('fine', 'ill')")
        .await;
    database
        .run("CREATE DOMAIN cents AS bigint CHECK (VALUE >= 0)")
        .await;
    let columns = [
        ("a", "int"),
        ("b", "bigint"),
        ("c", "numeric(30, 4)"),
        ("d", "double precision"),
        ("e", "boolean"),
        ("f", "text"),
        ("g", "char(3)"),
        ("h", "uuid"),
        ("i", "jsonb"),
        ("j", "bytea"),
        ("k", "timestamptz"),
        ("l", "timestamp"),
        ("m", "date"),
        ("n", "time"),
        ("o", "int[]"),
        ("p", "text[]"),
        ("q", "mood"),
        ("r", "cents"),
        ("s", "text"),
        ("t", "int[][]"),
        ("u", "json"),
    ];
    let values = json!({
        "a": -7, "b": 9_007_199_254_740_993_i64, "c": "12345678901234567890.5", "d": 0.1, "e": true,
        "f": "O'Neill: \"é\" \\ :x", "g": "abc", "h": "0190a5a5-0000-7000-8000-000000000001",
        "i": { "k": [1, null] }, "j": "AP8Q", "k": "2026-11-21T09:00:00.25+02:00", "l": "2026-11-21T09:00:00",
        "m": "2026-11-21", "n": "09:30:00", "o": [1, null, 3], "p": ["a,b", "c\"d\\", "NULL"], "q": "ill",
        "r": 125, "s": null, "t": [[1, 2], [3, 4]], "u": "text",
    });
    let mut expected = values.clone();
    expected["c"] = json!("12345678901234567890.5000");
    expected["k"] = json!("2026-11-21T07:00:00.25Z");
    assert_eq!(there_and_back(&database, &columns, &values).await, expected);
    let extremes = database.run("SELECT 'infinity'::timestamptz AS a, '-infinity'::date AS b, 'NaN'::float8 AS c, '4713-01-01 BC'::date AS d").await;
    assert_eq!(
        (&extremes[0]["a"], &extremes[0]["b"], &extremes[0]["c"]),
        (&json!("infinity"), &json!("-infinity"), &json!("NaN"))
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn postgres_rejects_unsupported_types_before_executing() {
    let database = postgres().await;
    database.run("CREATE TABLE t (a int, b inet)").await;
    let upstream = database.upstream(&json!({
        "x.put": { "statement": "INSERT INTO t VALUES (:a, :b) RETURNING b" },
        "x.text": { "statement": "INSERT INTO t VALUES (:a, :b) RETURNING host(b) AS b", "answer": "row" },
    }));
    let values = json!({ "a": 1, "b": "10.0.0.1" });
    let message = failed(
        perform(&upstream, "x.put", 1, values.clone()).await,
        "unreadable_column",
    );
    assert!(
        message.contains("INET") && message.contains("cast it to text"),
        "{message}"
    );
    assert_eq!(
        database.run("SELECT count(*) AS n FROM t").await,
        json!([{ "n": 0 }])
    );
    assert_eq!(
        perform(&upstream, "x.text", 2, values)
            .await
            .unwrap()
            .payload,
        json!({ "b": "10.0.0.1" })
    );
    let invalid = json!({ "a": "seven", "b": "10.0.0.1" });
    failed(perform(&upstream, "x.text", 3, invalid).await, "22P02");
}

#[tokio::test(flavor = "multi_thread")]
async fn mariadb_round_trips_every_type() {
    let database = super::mariadb().await;
    let columns = [
        ("a", "int"),
        ("b", "bigint unsigned"),
        ("c", "decimal(30, 4)"),
        ("d", "double"),
        ("e", "boolean"),
        ("f", "text"),
        ("g", "datetime(3)"),
        ("h", "date"),
        ("i", "time"),
        ("j", "varchar(9)"),
        ("k", "longblob"),
        ("l", "enum('fine', 'ill')"),
        ("m", "year"),
    ];
    let values = json!({
        "a": -7, "b": u64::MAX, "c": "12345678901234567890.5", "d": 0.1, "e": true, "f": "O'Neill \"é\" \\ :x",
        "g": "2026-11-21T09:00:00.25", "h": "2026-11-21", "i": "-26:03:04", "j": null, "k": "abc", "l": "ill",
        "m": 2026,
    });
    let mut expected = values.clone();
    expected["c"] = json!("12345678901234567890.5000");
    expected["g"] = json!("2026-11-21T09:00:00.250000");
    expected["k"] = json!("YWJj");
    assert_eq!(there_and_back(&database, &columns, &values).await, expected);
}

#[tokio::test(flavor = "multi_thread")]
async fn sqlite_round_trips_values() {
    let database = sqlite();
    let columns = [
        ("a", "integer"),
        ("b", "real"),
        ("c", "text"),
        ("d", "boolean"),
        ("e", "blob"),
        ("f", "text"),
    ];
    let values =
        json!({ "a": i64::MAX, "b": 0.5, "c": "é", "d": true, "e": null, "f": [1, { "x": "y" }] });
    let mut expected = values.clone();
    expected["f"] = json!("[1,{\"x\":\"y\"}]");
    assert_eq!(there_and_back(&database, &columns, &values).await, expected);
    assert_eq!(
        database.run("SELECT x'00ff' AS b").await,
        json!([{ "b": "AP8=" }])
    );
}
