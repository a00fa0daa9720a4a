//! Provisioning: what is missing is made, what may be changed is changed, and nothing is dropped.

use std::process::{Command, Output};
use std::time::Duration;

use orlog_bus::nats::{AGGREGATE_EVENTS, Connection, Keep, Plan, WORKFLOW_EVENTS, Wanted, apply, diff};
use orlog_model::{Clock as _, Timestamp};
use orlog_testkit::nats_server::NatsServer;
use orlog_testkit::raw_nats::Wire;
use serde_json::{Value, json};

use super::fixture::connect;

fn wanted() -> Wanted {
    let keep = Keep { age: Some(Duration::from_hours(1)), bytes: None };
    Wanted {
        replicas: 1,
        duplicate_window: Duration::from_mins(2),
        commands: keep,
        events: keep,
        dead_letters: keep,
        aggregates: Some(keep),
    }
}

fn now() -> Timestamp {
    orlog::SystemClock.now()
}

async fn lines(connection: &Connection, wanted: &Wanted) -> Vec<String> {
    let found = diff(connection, &Plan::of(wanted), now()).await.unwrap();
    found.iter().map(ToString::to_string).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn streams_are_made_once_and_changed_where_nothing_is_lost() {
    let Some(server) = NatsServer::start() else { return };
    let connection = connect(&[server.url()]).await;
    assert_eq!(lines(&connection, &wanted()).await.len(), 4);
    let made = apply(&connection, &Plan::of(&wanted()), now()).await.unwrap();
    assert!(made.iter().all(|difference| difference.missing && difference.refused.is_none()), "{made:?}");
    assert_eq!(lines(&connection, &wanted()).await, Vec::<String>::new());
    assert_eq!(apply(&connection, &Plan::of(&wanted()), now()).await.unwrap(), []);

    let longer = Keep { age: Some(Duration::from_hours(2)), bytes: Some(1 << 30) };
    let changed = Wanted { events: longer, duplicate_window: Duration::from_mins(3), ..wanted() };
    let told = lines(&connection, &changed).await;
    assert!(told.contains(&"WORKFLOW_EVENTS: max_age is 3600s, should be 7200s".to_owned()), "{told:?}");
    apply(&connection, &Plan::of(&changed), now()).await.unwrap();
    assert_eq!(lines(&connection, &changed).await, Vec::<String>::new());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_would_drop_messages_is_refused_and_leaves_the_stream_as_it_is() {
    let Some(server) = NatsServer::start() else { return };
    let connection = connect(&[server.url()]).await;
    apply(&connection, &Plan::of(&wanted()), now()).await.unwrap();
    let mut wire = Wire::connect(server.port);
    wire.request("workflow_event.order.o-1", &[b'x'; 10_000]).unwrap();
    let smaller = Keep { age: Some(Duration::from_hours(1)), bytes: Some(1000) };
    let wish = Wanted { events: smaller, duplicate_window: Duration::from_mins(3), ..wanted() };
    let refused = apply(&connection, &Plan::of(&wish), now()).await.unwrap();
    let of_events: Vec<_> =
        refused.iter().filter(|difference| difference.stream == WORKFLOW_EVENTS).collect();
    assert!(
        of_events.iter().any(|difference| difference.to_string().contains("the oldest would be dropped"))
    );
    let info = wire.jetstream("STREAM.INFO.WORKFLOW_EVENTS", &json!({}));
    assert_eq!((&info["state"]["messages"], &info["config"]["max_bytes"]), (&json!(1), &json!(-1)));
    assert_eq!(info["config"]["duplicate_window"], json!(120_000_000_000_u64), "neither half of the change");

    // Somebody's own settings stay, and a subject that only they know is not taken away.
    let mut config = info["config"].clone();
    config["metadata"] = json!({ "team": "a" });
    config["subjects"].as_array_mut().unwrap().push(json!("theirs.>"));
    wire.jetstream("STREAM.UPDATE.WORKFLOW_EVENTS", &config);
    let told = lines(&connection, &Wanted { duplicate_window: Duration::from_mins(3), ..wanted() }).await;
    let told: Vec<_> = told.iter().filter(|line| line.contains("subjects")).collect();
    assert!(told.len() == 1 && told[0].contains("it also takes [\"theirs.>\"]"), "{told:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_stream_of_the_aggregate_service_is_only_read() {
    let Some(server) = NatsServer::start() else { return };
    let connection = connect(&[server.url()]).await;
    let reading = Wanted { aggregates: None, ..wanted() };
    let found = apply(&connection, &Plan::of(&reading), now()).await.unwrap();
    let missing = found.iter().find(|difference| difference.stream == AGGREGATE_EVENTS).unwrap().to_string();
    assert!(missing.contains("missing - not changed: the Aggregate service owns it"), "{missing}");
    let mut wire = Wire::connect(server.port);
    let theirs =
        json!({ "name": AGGREGATE_EVENTS, "subjects": ["tenant.*.aggregate.>"], "retention": "workqueue" });
    wire.jetstream("STREAM.CREATE.AGGREGATE_EVENTS", &theirs);
    let told = lines(&connection, &reading).await;
    assert!(told.len() == 1 && told[0].contains("retention is WorkQueue, not Limits"), "{told:?}");
    apply(&connection, &Plan::of(&reading), now()).await.unwrap();
    let info = wire.jetstream("STREAM.INFO.AGGREGATE_EVENTS", &json!({}));
    assert_eq!(info["config"]["retention"], "workqueue");
}

fn orlog(server: &NatsServer, args: &[&str]) -> (i32, Value) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_orlog"));
    // Where the tests find the server is no key of the configuration.
    command.env_remove("ORLOG_NATS_SERVER").args(["--output", "json", "streams"]).args(args);
    let environment =
        [("ORLOG_NATS__SERVERS", server.url()), ("ORLOG_NATS__OWN_AGGREGATE_STREAM", "true".to_owned())];
    let Output { status, stdout, .. } = command.envs(environment).output().unwrap();
    (status.code().unwrap(), serde_json::from_slice(&stdout).unwrap_or_default())
}

#[test]
fn the_command_line_tells_and_makes() {
    let Some(server) = NatsServer::start() else { return };
    let (code, told) = orlog(&server, &["diff"]);
    assert_eq!((code, told["differences"].as_array().unwrap().len()), (1, 4), "{told}");
    assert_eq!(orlog(&server, &["apply"]).0, 0);
    assert_eq!(orlog(&server, &["diff"]), (0, json!({ "differences": [] })));
}
