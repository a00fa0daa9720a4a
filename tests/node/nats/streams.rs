//! Provisioning: missing streams are created, allowed changes are applied, and nothing is deleted.

use std::process::Output;
use std::time::Duration;

use orlog_bus::nats::{
    AGGREGATE_EVENTS, Connection, StreamRetention, StreamSet, StreamsConfig, WORKFLOW_EVENTS,
    apply, diff,
};
use orlog_model::{Clock as _, Timestamp};
use orlog_testkit::nats_server::NatsServer;
use orlog_testkit::raw_nats::RawNatsClient;
use serde_json::{Value, json};

use super::fixture::connect;
use crate::harness::process;

fn stream_config() -> StreamsConfig {
    let retention = StreamRetention {
        age: Some(Duration::from_hours(1)),
        bytes: None,
    };
    StreamsConfig {
        replicas: 1,
        duplicate_window: Duration::from_mins(2),
        commands: retention,
        events: retention,
        dead_letters: retention,
        aggregates: Some(retention),
    }
}

fn now() -> Timestamp {
    orlog::SystemClock.now()
}

async fn diff_lines(connection: &Connection, stream_config: &StreamsConfig) -> Vec<String> {
    let found = diff(connection, &StreamSet::from_config(stream_config), now())
        .await
        .unwrap();
    found.iter().map(ToString::to_string).collect()
}

/// Requirements: R6.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn streams_are_created_once_and_updated_without_loss() {
    let server = NatsServer::start();
    let connection = connect(&[server.url()]).await;
    assert_eq!(diff_lines(&connection, &stream_config()).await.len(), 4);
    let made = apply(
        &connection,
        &StreamSet::from_config(&stream_config()),
        now(),
    )
    .await
    .unwrap();
    assert!(
        made.iter()
            .all(|difference| difference.missing && difference.rejected.is_none()),
        "{made:?}"
    );
    assert_eq!(
        diff_lines(&connection, &stream_config()).await,
        Vec::<String>::new()
    );
    assert_eq!(
        apply(
            &connection,
            &StreamSet::from_config(&stream_config()),
            now()
        )
        .await
        .unwrap(),
        []
    );

    let longer = StreamRetention {
        age: Some(Duration::from_hours(2)),
        bytes: Some(1 << 30),
    };
    let changed = StreamsConfig {
        events: longer,
        duplicate_window: Duration::from_mins(3),
        ..stream_config()
    };
    let differences = diff_lines(&connection, &changed).await;
    assert!(
        differences.contains(&"WORKFLOW_EVENTS: max_age is 3600s, expected 7200s".to_owned()),
        "{differences:?}"
    );
    apply(&connection, &StreamSet::from_config(&changed), now())
        .await
        .unwrap();
    assert_eq!(
        diff_lines(&connection, &changed).await,
        Vec::<String>::new()
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lossy_stream_change_is_rejected() {
    let server = NatsServer::start();
    let connection = connect(&[server.url()]).await;
    apply(
        &connection,
        &StreamSet::from_config(&stream_config()),
        now(),
    )
    .await
    .unwrap();
    let mut wire = RawNatsClient::connect(server.port);
    wire.request("workflow_event.order.o-1", &[b'x'; 10_000])
        .unwrap();
    let smaller = StreamRetention {
        age: Some(Duration::from_hours(1)),
        bytes: Some(1000),
    };
    let wish = StreamsConfig {
        events: smaller,
        duplicate_window: Duration::from_mins(3),
        ..stream_config()
    };
    let rejected = apply(&connection, &StreamSet::from_config(&wish), now())
        .await
        .unwrap();
    let of_events: Vec<_> = rejected
        .iter()
        .filter(|difference| difference.stream == WORKFLOW_EVENTS)
        .collect();
    assert!(of_events.iter().any(|difference| {
        difference
            .to_string()
            .contains("the oldest would be dropped")
    }));
    let info = wire.jetstream("STREAM.INFO.WORKFLOW_EVENTS", &json!({}));
    assert_eq!(
        (&info["state"]["messages"], &info["config"]["max_bytes"]),
        (&json!(1), &json!(-1))
    );
    assert_eq!(
        info["config"]["duplicate_window"],
        json!(120_000_000_000_u64),
        "neither half of the change"
    );

    // Settings of other users stay, including a subject that is not configured here.
    let mut config = info["config"].clone();
    config["metadata"] = json!({ "team": "a" });
    config["subjects"]
        .as_array_mut()
        .unwrap()
        .push(json!("theirs.>"));
    wire.jetstream("STREAM.UPDATE.WORKFLOW_EVENTS", &config);
    let differences = diff_lines(
        &connection,
        &StreamsConfig {
            duplicate_window: Duration::from_mins(3),
            ..stream_config()
        },
    )
    .await;
    let differences: Vec<_> = differences
        .iter()
        .filter(|line| line.contains("subjects"))
        .collect();
    assert!(
        differences.len() == 1
            && differences[0].contains("it also has the subjects [\"theirs.>\"]"),
        "{differences:?}"
    );
}

/// Requirements: R6.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn external_aggregate_stream_is_read_only() {
    let server = NatsServer::start();
    let connection = connect(&[server.url()]).await;
    let reading = StreamsConfig {
        aggregates: None,
        ..stream_config()
    };
    let found = apply(&connection, &StreamSet::from_config(&reading), now())
        .await
        .unwrap();
    let missing = found
        .iter()
        .find(|difference| difference.stream == AGGREGATE_EVENTS)
        .unwrap()
        .to_string();
    assert!(
        missing.contains("missing - not changed: the Aggregate service owns it"),
        "{missing}"
    );
    let mut wire = RawNatsClient::connect(server.port);
    let theirs = json!({ "name": AGGREGATE_EVENTS, "subjects": ["tenant.*.aggregate.>"], "retention": "workqueue" });
    wire.jetstream("STREAM.CREATE.AGGREGATE_EVENTS", &theirs);
    let differences = diff_lines(&connection, &reading).await;
    assert!(
        differences.len() == 1 && differences[0].contains("retention is WorkQueue, not Limits"),
        "{differences:?}"
    );
    apply(&connection, &StreamSet::from_config(&reading), now())
        .await
        .unwrap();
    let info = wire.jetstream("STREAM.INFO.AGGREGATE_EVENTS", &json!({}));
    assert_eq!(info["config"]["retention"], "workqueue");
}

fn orlog(server: &NatsServer, args: &[&str]) -> (i32, Value) {
    let mut command = process::orlog(&[&["--output", "json", "streams"], args].concat());
    let environment = [
        ("ORLOG_BUS__KIND", "nats".to_owned()),
        ("ORLOG_NATS__SERVERS", server.url()),
        ("ORLOG_NATS__MANAGE_AGGREGATE_STREAM", "true".to_owned()),
    ];
    let Output { status, stdout, .. } = command.envs(environment).output().unwrap();
    (
        status.code().unwrap(),
        serde_json::from_slice(&stdout).unwrap_or_default(),
    )
}

#[test]
fn streams_command_diffs_and_applies() {
    let server = NatsServer::start();
    let (code, differences) = orlog(&server, &["diff"]);
    assert_eq!(
        (code, differences["differences"].as_array().unwrap().len()),
        (1, 6),
        "{differences}"
    );
    assert_eq!(orlog(&server, &["apply"]).0, 0);
    assert_eq!(orlog(&server, &["diff"]), (0, json!({ "differences": [] })));
}
