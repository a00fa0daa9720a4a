//! Schedules of a node: API, command line, files, restarts, outages, tenants.

use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::http::Method;
use orlog_effect::{FunctionProvider, Policy};
use orlog_model::Timestamp;
use orlog_testkit::SimClock;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::harness::node::{Node, NodeBuilder};
use crate::harness::process::{orlog, run};

/// A saga that waits for a person, so that its runs stay in progress.
const BILL: &str = "
saga: bill
version: 1
start: BillRequested
vars: { day: =event.day }
steps:
  - { id: check, do: { human: { title: Check } }, ok: Checked }
";
const START: &str = "2027-03-01T00:30:00Z";

fn clock() -> Arc<SimClock> {
    SimClock::new(Timestamp::parse(START).unwrap())
}

async fn node(clock: &Arc<SimClock>, dir: Option<Arc<TempDir>>) -> Node {
    let builder = dir
        .map_or_else(NodeBuilder::new, NodeBuilder::on)
        .definition("bill", BILL);
    builder
        .overrides(|overrides| overrides.clock = Some(Arc::clone(clock) as _))
        .start()
        .await
}

fn hourly(overlap: &str) -> Value {
    json!({ "saga": "bill", "every": "1h", "overlap": overlap, "data": { "day": "=schedule.time" } })
}

async fn put(node: &Node, tenant: &str, name: &str, spec: &Value) -> Value {
    node.ask(
        Method::PUT,
        tenant,
        &format!("/v1/schedules/{name}"),
        spec.to_string(),
    )
    .await
    .ok()
}

/// Waits until these instances of `bill` exist, and no other.
#[track_caller]
fn bills(node: &Node, expected: &[&str]) -> impl Future<Output = Value> {
    let expected: Vec<_> = expected.iter().map(|id| (*id).to_owned()).collect();
    node.until("", "/v1/sagas?saga=bill", move |page| {
        let items = page["items"].as_array().unwrap();
        items
            .iter()
            .map(|item| item["correlation"].as_str().unwrap())
            .eq(expected.iter().map(String::as_str))
    })
}

/// Completes the task of a run.
async fn complete(node: &Node, run: &str) {
    let path = format!("/v1/tasks?correlation={run}");
    let tasks = node
        .until("", &path, |tasks| !tasks["items"][0].is_null())
        .await;
    let id = tasks["items"][0]["id"].as_str().unwrap();
    node.post(
        &format!("/v1/tasks/{id}/complete"),
        &json!({ "user": "ada", "outcome": "Checked" }),
    )
    .await
    .ok();
}

#[tokio::test(flavor = "multi_thread")]
async fn due_times_start_sagas_once_over_restarts_and_outages() {
    let clock = clock();
    let first = node(&clock, None).await;
    let mut spec = hourly("allow");
    spec["catch_up"] = json!("90m");
    let created = put(&first, "", "hourly", &spec).await;
    assert_eq!(created["next"][0], "2027-03-01T01:00:00.000Z");
    assert_eq!(created["next"].as_array().unwrap().len(), 10);
    clock.advance(Duration::from_mins(30));
    bills(&first, &["hourly-2027-03-01T01:00:00Z"]).await;
    let dir = first.stop().await;
    // 02:00 to 06:00 pass without a node; the window covers the last two.
    clock.advance(Duration::from_mins(5 * 60 + 10));
    let second = node(&clock, Some(dir)).await;
    let expected = [
        "hourly-2027-03-01T01:00:00Z",
        "hourly-2027-03-01T05:00:00Z",
        "hourly-2027-03-01T06:00:00Z",
    ];
    bills(&second, &expected).await;
    let shown = second
        .until("", "/v1/schedules/hourly", |shown| shown["started"] == 3)
        .await;
    assert_eq!(
        (&shown["missed"], &shown["next"][0]),
        (&json!(3), &json!("2027-03-01T07:00:00.000Z"))
    );
    let bill = second
        .get(&format!("/v1/sagas/bill/{}", expected[1]))
        .await
        .ok();
    assert_eq!(bill["state"]["vars"]["day"], "2027-03-01T05:00:00.000Z");
    assert_eq!(bill["parent"]["correlation"], "hourly");
    let dir = second.stop().await;
    let third = node(&clock, Some(dir)).await;
    complete(&third, expected[0]).await;
    let shown = third
        .until("", "/v1/schedules/hourly", |shown| shown["completed"] == 1)
        .await;
    assert_eq!(
        shown["recent"][0]["instance"],
        "/v1/sagas/bill/hourly-2027-03-01T01%3A00%3A00Z"
    );
    bills(&third, &expected).await;
    third.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn schedule_is_paused_resumed_triggered_and_deleted() {
    let clock = clock();
    let node = node(&clock, None).await;
    put(&node, "", "s", &hourly("skip")).await;
    let paused = node
        .post(
            "/v1/schedules/s/pause",
            &json!({ "user": "ada", "reason": "holiday" }),
        )
        .await
        .ok();
    assert_eq!(
        (&paused["status"], &paused["next"]),
        (&json!("paused"), &json!([]))
    );
    clock.advance(Duration::from_hours(3));
    let resumed = node.post("/v1/schedules/s/resume", &json!({})).await.ok();
    assert_eq!(
        (&resumed["status"], &resumed["next"][0]),
        (&json!("active"), &json!("2027-03-01T04:00:00.000Z"))
    );
    let triggered = node
        .post("/v1/schedules/s/trigger", &json!({ "id": "t-1" }))
        .await
        .ok();
    let run = &triggered["running"][0];
    assert_eq!(
        (&run["triggered"], &run["correlation"]),
        (&json!(true), &json!("s-2027-03-01T03:30:00Z"))
    );
    let again = node
        .post("/v1/schedules/s/trigger", &json!({ "id": "t-1" }))
        .await
        .ok();
    assert_eq!(
        (&again["started"], &again["skipped"]),
        (&json!(1), &json!(0)),
        "the request is a duplicate"
    );
    clock.advance(Duration::from_mins(30));
    node.until("", "/v1/schedules/s", |shown| shown["skipped"] == 1)
        .await;
    let history = node.get("/v1/sagas/orlog.schedule/s").await.ok();
    let notes: Vec<_> = history["history"]["items"]
        .as_array()
        .unwrap()
        .iter()
        .map(|entry| entry["note"].to_string())
        .collect();
    assert!(
        notes.iter().any(|note| note.contains("by ada: holiday")),
        "{notes:?}"
    );
    let path = "/v1/schedules/s?user=bob&reason=closed&id=d-1";
    assert_eq!(
        node.ask(Method::DELETE, "", path, Body::empty())
            .await
            .status,
        204
    );
    let history = node.get("/v1/sagas/orlog.schedule/s").await.ok();
    let last = history["history"]["items"]
        .as_array()
        .unwrap()
        .last()
        .unwrap();
    assert!(
        last["note"].as_str().unwrap().contains("by bob: closed"),
        "{last}"
    );
    node.get("/v1/schedules/s").await.problem("OR0034");
    node.post("/v1/schedules/s/trigger", &json!({}))
        .await
        .problem("OR0034");
    assert_eq!(node.get("/v1/schedules").await.ok()["items"], json!([]));
    clock.advance(Duration::from_hours(2));
    complete(&node, "s-2027-03-01T03:30:00Z").await;
    let again = put(&node, "", "s", &hourly("skip")).await;
    assert_eq!(
        (&again["started"], &again["next"][0]),
        (&json!(0), &json!("2027-03-01T07:00:00.000Z"))
    );
    bills(&node, &["s-2027-03-01T03:30:00Z"]).await;
    node.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn changes_of_a_paused_instance_say_that_they_wait_for_its_resume() {
    let clock = clock();
    let node = node(&clock, None).await;
    put(&node, "", "s", &hourly("skip")).await;
    let instance = "/v1/sagas/orlog.schedule/s";
    node.post(&format!("{instance}/pause"), &json!({}))
        .await
        .ok();

    let changed = node
        .ask(
            Method::PUT,
            "",
            "/v1/schedules/s",
            hourly("allow").to_string(),
        )
        .await;
    assert_eq!(changed.status, 202, "{changed:?}");
    let changed = changed.json();
    assert_eq!(changed["spec"]["overlap"], "skip");
    let deferred = changed["deferred"].as_str().unwrap();
    assert!(deferred.contains("applied on resume"), "{deferred}");
    assert!(
        deferred.contains(&format!("{instance}/resume")),
        "{deferred}"
    );

    let paused = node.post("/v1/schedules/s/pause", &json!({})).await;
    assert_eq!(paused.status, 202, "{paused:?}");
    let url = node.serve().await;
    let args = ["schedule", "trigger", "s", "--url", &url];
    let triggered = run(orlog(&args)).await;
    assert_eq!(triggered.0, 0, "{triggered:?}");
    assert!(
        triggered.2.contains("accepted; applied on resume"),
        "{triggered:?}"
    );
    let deleted = node.ask(Method::DELETE, "", "/v1/schedules/s", "").await;
    assert_eq!(deleted.status, 202, "{deleted:?}");
    assert!(deleted.json()["deferred"].is_string(), "{deleted:?}");

    node.post(&format!("{instance}/resume"), &json!({}))
        .await
        .ok();
    orlog_testkit::wait::until("the schedule is deleted", async || {
        let shown = node.get("/v1/schedules/s").await;
        (shown.status == 404).then_some(())
    })
    .await;
    // A repetition is that of a schedule which does not exist, as for every resource.
    node.ask(Method::DELETE, "", "/v1/schedules/s", "")
        .await
        .problem("OR0034");
    node.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn id_of_a_change_belongs_to_one_operation() {
    let clock = clock();
    let node = node(&clock, None).await;
    put(&node, "", "s", &hourly("skip")).await;
    let pause = json!({ "id": "c-1", "reason": "holiday" });
    node.post("/v1/schedules/s/pause", &pause).await.ok();
    let other = json!({ "id": "c-1" });
    let reused = node.post("/v1/schedules/s/resume", &other).await;
    reused.rejected(422, "OR0037");
    let shown = node.get("/v1/schedules/s").await.ok();
    assert_eq!(shown["status"], "paused");

    // The user and the reason of a repetition can differ.
    let again = node
        .post("/v1/schedules/s/pause", &json!({ "id": "c-1" }))
        .await;
    assert_eq!(again.ok()["status"], "paused");

    // A request that changed nothing has its id too.
    node.post("/v1/schedules/s/pause", &json!({ "id": "c-2" }))
        .await
        .ok();
    let other = json!({ "id": "c-2" });
    let reused = node.post("/v1/schedules/s/trigger", &other).await;
    reused.rejected(422, "OR0037");
    node.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn cancel_policy_compensates_the_run_before_the_next_starts() {
    let clock = clock();
    let node = node(&clock, None).await;
    put(&node, "", "s", &hourly("cancel")).await;
    clock.advance(Duration::from_mins(30));
    bills(&node, &["s-2027-03-01T01:00:00Z"]).await;
    clock.advance(Duration::from_hours(1));
    let page = bills(&node, &["s-2027-03-01T01:00:00Z", "s-2027-03-01T02:00:00Z"]).await;
    assert_eq!(
        (&page["items"][0]["status"], &page["items"][1]["status"]),
        (&json!("cancelled"), &json!("running"))
    );
    let shown = node
        .until("", "/v1/schedules/s", |shown| shown["failed"] == 1)
        .await;
    assert_eq!(
        (&shown["recent"][0]["cancelled"], &shown["queued"]),
        (&json!(true), &Value::Null)
    );
    node.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn schedules_of_tenants_are_isolated() {
    let clock = clock();
    let node = node(&clock, None).await;
    put(&node, "acme", "s", &hourly("allow")).await;
    put(
        &node,
        "other",
        "s",
        &json!({ "saga": "bill", "every": "2h" }),
    )
    .await;
    node.get("/v1/schedules/s").await.problem("OR0034");
    node.ask(Method::POST, "third", "/v1/schedules/s/pause", "{}")
        .await
        .problem("OR0034");
    clock.advance(Duration::from_mins(30));
    node.until("acme", "/v1/sagas?saga=bill", |page| {
        page["items"][0]["correlation"] == "s-2027-03-01T01:00:00Z"
    })
    .await;
    let other = node
        .ask(Method::GET, "other", "/v1/sagas?saga=bill", Body::empty())
        .await
        .ok();
    assert_eq!(other["items"], json!([]));
    let list = node
        .ask(Method::GET, "other", "/v1/schedules", Body::empty())
        .await
        .ok();
    assert_eq!(
        (
            list["items"].as_array().unwrap().len(),
            &list["items"][0]["spec"]["every"]
        ),
        (1, &json!("2h"))
    );
    node.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn invalid_schedule_is_rejected_with_locations() {
    let node = node(&clock(), None).await;
    let rejected = async |spec: Value| {
        let response = node
            .ask(Method::PUT, "", "/v1/schedules/s", spec.to_string())
            .await;
        response.problem("OR0035");
        response.json()["errors"][0].clone()
    };
    let error = rejected(json!({ "saga": "bill", "cron": "61 * * * *" })).await;
    assert_eq!(error["pointer"], "/cron");
    assert_eq!(
        error["detail"],
        "cron \"61 * * * *\": minute 61 is out of range (0-59)"
    );
    let error = rejected(json!({ "saga": "bil", "every": "1h" })).await;
    assert_eq!(
        error["detail"],
        "saga \"bil\" has no definition; did you mean `bill`?"
    );
    let error = rejected(json!({ "saga": "bill", "event": "BillRequest", "every": "1h" })).await;
    assert!(
        error["detail"]
            .as_str()
            .unwrap()
            .contains("did you mean `BillRequested`?"),
        "{error}"
    );
    let error = rejected(json!({ "saga": "bill", "at": "2027-01-01T00:00:00Z" })).await;
    assert_eq!(error["detail"], "at: the date has passed");
    let error = rejected(json!({ "saga": "bill", "cron": "0 0 31 2 *" })).await;
    assert_eq!(error["pointer"], "/cron");
    assert!(
        error["detail"]
            .as_str()
            .unwrap()
            .contains("no date matches it"),
        "{error}"
    );
    node.ask(Method::PUT, "", "/v1/schedules/s", "{\"sag\": 1}")
        .await
        .problem("OR0002");
    node.get("/v1/schedules/..%2Fx").await.problem("OR0034");
    node.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn events_start_and_change_no_schedule() {
    let node = node(&clock(), None).await;
    put(&node, "", "s", &hourly("allow")).await;
    for kind in [
        "orlog.schedule.put",
        "orlog.schedule.delete",
        "orlog.schedule.trigger",
    ] {
        let event = json!({
            "specversion": "1.0", "id": kind, "source": "urn:x", "type": kind, "correlationid": "s",
            "data": { "spec": hourly("skip") },
        });
        node.post("/v1/events", &event).await.ok();
    }
    // An event behind them is applied, so they were, too.
    let event = json!({
        "specversion": "1.0", "id": "e", "source": "urn:x", "type": "BillRequested", "correlationid": "b-1",
        "data": { "day": "x" },
    });
    node.post("/v1/events", &event).await.ok();
    bills(&node, &["b-1"]).await;
    let shown = node.get("/v1/schedules/s").await.ok();
    assert_eq!(
        (&shown["spec"]["overlap"], &shown["started"]),
        (&json!("allow"), &json!(0))
    );
    assert_eq!(
        node.get("/v1/schedules").await.ok()["items"]
            .as_array()
            .unwrap()
            .len(),
        1
    );
    node.get("/v1/definitions/orlog.schedule")
        .await
        .problem("OR0016");
    let definitions = node.get("/v1/definitions").await.ok().to_string();
    assert!(!definitions.contains("orlog.schedule"), "{definitions}");
    node.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn files_are_deployed_and_removed_schedules_are_deleted() {
    let clock = clock();
    let dir = Arc::new(tempfile::tempdir().unwrap());
    let definitions = dir.path().join("definitions");
    std::fs::create_dir_all(&definitions).unwrap();
    let write = |name: &str, text: &str| {
        std::fs::write(definitions.join(format!("{name}.schedule.yaml")), text).unwrap();
    };
    write(
        "nightly",
        "schedule: nightly\nsaga: bill\ncron: 0 2 * * *\nzone: Europe/Berlin\ndata: { day: x }\n",
    );
    write(
        "hourly",
        "schedule: hourly\ntenant: acme\nsaga: bill\nevery: 1h\n",
    );
    let first = node(&clock, Some(Arc::clone(&dir))).await;
    let shown = first.until("", "/v1/schedules/nightly", |_| true).await;
    assert_eq!(
        (&shown["file"], &shown["next"][0]),
        (
            &json!("nightly.schedule.yaml"),
            &json!("2027-03-01T01:00:00.000Z")
        )
    );
    first.until("acme", "/v1/schedules/hourly", |_| true).await;
    put(&first, "", "manual", &hourly("skip")).await;
    clock.advance(Duration::from_mins(30));
    first
        .until("", "/v1/schedules/nightly", |shown| shown["started"] == 1)
        .await;
    bills(
        &first,
        &[
            "manual-2027-03-01T01:00:00Z",
            "nightly-2027-03-01T01:00:00Z",
        ],
    )
    .await;
    // A changed, a removed and an unchanged one.
    write(
        "nightly",
        "schedule: nightly\nsaga: bill\ncron: 0 3 * * *\nzone: Europe/Berlin\ndata: { day: x }\n",
    );
    std::fs::remove_file(definitions.join("hourly.schedule.yaml")).unwrap();
    let plan = first.post("/admin/reload", &json!({})).await.ok();
    let changes: Vec<_> = plan["schedules"]
        .as_array()
        .unwrap()
        .iter()
        .map(|one| (one["name"].clone(), one["change"].clone()))
        .collect();
    assert_eq!(
        changes,
        [
            (json!("nightly"), json!("changed")),
            (json!("hourly"), json!("removed"))
        ]
    );
    let shown = first.get("/v1/schedules/nightly").await.ok();
    assert_eq!(
        (&shown["next"][0], &shown["started"]),
        (&json!("2027-03-01T02:00:00.000Z"), &json!(1))
    );
    first
        .ask(Method::GET, "acme", "/v1/schedules/hourly", Body::empty())
        .await
        .problem("OR0034");
    first.get("/v1/schedules/manual").await.ok();
    write("bad", "schedule: bad\nsaga: bil\ncron: 0 3 * * *\n");
    let rejected = first.post("/admin/reload", &json!({})).await;
    rejected.problem("OR0017");
    let detail = rejected.json()["errors"][0]["detail"].to_string();
    assert!(
        detail.contains("bad.schedule.yaml:2:7: saga: saga"),
        "{detail}"
    );
    std::fs::remove_file(definitions.join("bad.schedule.yaml")).unwrap();
    first.stop().await;
    let second = node(&clock, Some(dir)).await;
    let shown = second.until("", "/v1/schedules/nightly", |_| true).await;
    assert_eq!(
        (&shown["started"], &shown["spec"]["cron"]),
        (&json!(1), &json!("0 3 * * *")),
        "the restart changes nothing"
    );
    second.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn deployment_keeps_other_definitions_and_schedules_on_request() {
    let node = NodeBuilder::new().definition("bill", BILL).start().await;
    let file = |name: &str, text: &str| json!({ "name": name, "text": text });
    let weekly = file(
        "weekly.schedule.yaml",
        "schedule: weekly\nsaga: bill\ncron: 0 2 * * 1\n",
    );
    let daily = file(
        "daily.schedule.yaml",
        "schedule: daily\nsaga: bill\ncron: 0 2 * * *\n",
    );
    let memo = file("note.saga.yaml", &BILL.replace("bill", "note"));
    let deploy = async |query: &str, files: Value| {
        node.post(
            &format!("/admin/deploy?{query}"),
            &json!({ "files": files }),
        )
        .await
        .ok()
    };
    let names = |list: &Value, name: &str| -> Vec<String> {
        list.as_array().map_or_else(Vec::new, |list| {
            list.iter().map(|one| one[name].to_string()).collect()
        })
    };
    deploy("keep_others=true", json!([weekly])).await;
    let plan = deploy("keep_others=true", json!([daily, memo])).await;
    assert_eq!(names(&plan["added"], "saga"), ["\"note\""], "{plan:#}");
    assert!(
        names(&plan["unchanged"], "saga").contains(&"\"bill\"".to_owned()),
        "{plan:#}"
    );
    assert_eq!(names(&plan["retired"], "saga"), Vec::<String>::new());
    assert_eq!(
        names(&plan["schedules"], "change"),
        ["\"added\"", "\"unchanged\""]
    );
    for schedule in ["daily", "weekly"] {
        node.until("", &format!("/v1/schedules/{schedule}"), |_| true)
            .await;
    }
    let plan = deploy("dry_run=true", json!([memo])).await;
    assert!(
        names(&plan["retired"], "saga").contains(&"\"bill\"".to_owned()),
        "{plan:#}"
    );
    node.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn command_line_manages_schedules() {
    let node = NodeBuilder::new().definition("bill", BILL).start().await;
    let url = node.serve().await;
    let command = async |args: &[&str]| {
        let args: Vec<_> = ["schedule"]
            .iter()
            .chain(args)
            .chain(&["--url", &url])
            .copied()
            .collect();
        run(orlog(&args)).await
    };
    let create = [
        "create",
        "nightly",
        "--saga",
        "bill",
        "--cron",
        "0 2 * * *",
        "--zone",
        "Europe/Berlin",
        "--overlap",
        "queue",
        "--data",
        r#"{ "day": "each" }"#,
    ];
    let (code, out, err) = command(&create).await;
    assert!(
        code == 0 && out.contains("nightly: active") && out.contains("0 2 * * * Europe/Berlin"),
        "{out}{err}"
    );
    let (code, out, _) = command(&["list"]).await;
    assert!(
        code == 0 && out.contains("nightly") && out.contains("bill"),
        "{out}"
    );
    let (_, out, _) = command(&["pause", "nightly", "--reason", "holiday"]).await;
    assert!(out.contains("nightly: paused"), "{out}");
    let (_, out, _) = command(&["resume", "nightly"]).await;
    assert!(out.contains("nightly: active"), "{out}");
    let (_, out, _) = command(&["trigger", "nightly", "--idempotency-key", "t-1"]).await;
    assert!(
        out.contains("bill nightly-") && out.contains("running"),
        "{out}"
    );
    let (_, out, _) = command(&["trigger", "nightly", "--idempotency-key", "t-1"]).await;
    assert!(
        out.contains("started 1,"),
        "the second request is a duplicate: {out}"
    );
    let (code, out, _) =
        command(&["delete", "nightly", "--user", "bob", "--reason", "closed"]).await;
    assert!(code == 0 && out.contains("nightly: deleted"), "{out}");
    let (code, _, err) = command(&["show", "nightly"]).await;
    assert!(
        code != 0 && err.contains("no schedule \"nightly\""),
        "{err}"
    );
    let next = [
        "schedule",
        "next",
        "--cron",
        "30 2 * * *",
        "--zone",
        "Europe/Berlin",
        "--after",
        "2027-03-27T12:00:00Z",
        "--count",
        "2",
    ];
    let (code, out, err) = run(orlog(&next)).await;
    assert!(
        code == 0
            && out.contains("2027-03-28T01:00:00.000Z")
            && out.contains("Sun 2027-03-28 03:00:00 +02:00"),
        "{out}{err}"
    );
    let (code, _, err) = run(orlog(&["schedule", "next", "--cron", "61 * * * *"])).await;
    assert!(
        code != 0 && err.contains("minute 61 is out of range (0-59)"),
        "{err}"
    );
    node.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn check_reports_errors_of_schedule_files_with_lines() {
    let dir = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| std::fs::write(dir.path().join(name), text).unwrap();
    write("bill.saga.yaml", BILL);
    write("a.schedule.yaml", "schedule: a\nsaga: bill\nevery: 1h\n");
    let path = dir.path().to_str().unwrap();
    let (code, out, err) = run(orlog(&["check", path])).await;
    assert!(
        code == 0 && out.contains("a.schedule.yaml: schedule a: OK"),
        "{out}{err}"
    );
    write(
        "b.schedule.yaml",
        "schedule: b\nsaga: bil\ncron: 0 2 * * *\nzone: Berlin\n",
    );
    write("c.schedule.yaml", "schedule: c\nsaga: bil\nevery: 1h\n");
    let (code, out, _) = run(orlog(&["check", path])).await;
    assert!(code != 0, "{out}");
    assert!(
        out.contains(
            "b.schedule.yaml:4:7: zone: zone \"Berlin\" is unknown; did you mean `Europe/Berlin`?"
        ),
        "{out}"
    );
    assert!(
        out.contains(
            "c.schedule.yaml:2:7: saga: saga \"bil\" has no definition; did you mean `bill`?"
        ),
        "{out}"
    );
    write(
        "x.saga.yaml",
        &BILL.replace("saga: bill", "saga: orlog.bill"),
    );
    let (_, out, _) = run(orlog(&["check", path])).await;
    assert!(
        out.contains("names that start with `orlog.` are reserved"),
        "{out}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn example_bills_each_night() {
    let clock = clock();
    let mut builder =
        NodeBuilder::new().overrides(|overrides| overrides.clock = Some(Arc::clone(&clock) as _));
    let example = concat!(env!("CARGO_MANIFEST_DIR"), "/examples/billing");
    for file in ["billing.saga.yaml", "nightly.schedule.yaml"] {
        std::fs::copy(
            format!("{example}/{file}"),
            builder.dir.path().join("definitions").join(file),
        )
        .unwrap();
    }
    let effects = ["billing.price", "billing.release", "billing.send"];
    let provider = effects
        .into_iter()
        .fold(FunctionProvider::new(), |provider, effect| {
            provider.effect(effect, |_| async { Ok(json!({})) })
        });
    builder = builder.upstream(provider.upstream("billing", Policy::default()));
    let node = builder.start().await;
    node.until("", "/v1/schedules/nightly-billing", |_| true)
        .await;
    // 02:00 in Berlin, and the longest delay.
    clock.advance(Duration::from_mins(35));
    let shown = node
        .until("", "/v1/schedules/nightly-billing", |shown| {
            shown["completed"] == 1
        })
        .await;
    let run = node
        .get(shown["recent"][0]["instance"].as_str().unwrap())
        .await
        .ok();
    assert_eq!(
        (&run["status"], &run["state"]["vars"]["day"]),
        (&json!("completed"), &json!("2027-03-01"))
    );
    node.stop().await;
    let (code, out, err) = orlog_check(example).await;
    assert!(
        code == 0 && out.contains("schedule nightly-billing: OK"),
        "{out}{err}"
    );
}

async fn orlog_check(path: &str) -> (i32, String, String) {
    run(orlog(&["check", path])).await
}
