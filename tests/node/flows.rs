//! Flows of a node: submission, results, failures, retry, rerun, cancel, kills, rights, errors, and the command line.
//!
//! Size: one fixture serves the whole life of a flow.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use axum::body::Body;
use axum::http::{Method, Request};
use orlog_effect::{FunctionProvider, Policy, ProviderError};
use orlog_testkit::wait::{until, within};
use serde_json::{Value, json};

use crate::harness::http::{HttpResponse, client, send};
use crate::harness::node::{Node, NodeBuilder};
use crate::harness::process::{Killed, Process, orlog, run};

/// `probe` and `cut` start; `join` receives both results.
fn media() -> Value {
    json!({
        "name": "media", "labels": { "team": "film" }, "env": { "REGION": "eu" },
        "jobs": [
            { "id": "probe", "type": "python", "script": "frames" },
            { "id": "cut", "type": "ffmpeg", "script": "-i x", "timeout": "1m" },
            { "id": "join", "type": "python", "script": "join", "dependencies": ["probe", "cut"], "args": "=results.probe.script" }
        ]
    })
}

/// Returns a builder of a node whose functions execute jobs, and whether the jobs of type `ffmpeg` fail. A result contains the script and
/// the arguments of its job.
fn builder() -> (NodeBuilder, Arc<AtomicBool>) {
    let fails = Arc::new(AtomicBool::new(false));
    let fails_now = Arc::clone(&fails);
    let jobs = FunctionProvider::new()
        .effect("job.python", |call| async move {
            let job = &call.payload;
            Ok(json!({ "script": job["script"], "args": job["args"], "results": job["results"] }))
        })
        .effect("job.ffmpeg", move |_| {
            let fails = fails_now.load(Ordering::Acquire);
            async move {
                if fails {
                    Err(ProviderError::permanent("exit_1", "no such file"))
                } else {
                    Ok(json!("cut"))
                }
            }
        });
    (
        NodeBuilder::new().upstream(jobs.upstream("jobs", Policy::default())),
        fails,
    )
}

async fn submit(node: &Node, id: &str, query: &str, flow: &Value) -> HttpResponse {
    let request = Request::builder()
        .method(Method::POST)
        .uri(format!("/v1/flows{query}"));
    let request = request
        .header("content-type", "application/json")
        .header("idempotency-key", id);
    node.send(request.body(Body::from(flow.to_string())).unwrap())
        .await
}

async fn until_status(node: &Node, id: &str, status: &str) -> Value {
    node.until("", &format!("/v1/flows/{id}"), |flow| {
        flow["status"] == status
    })
    .await
}

/// Requirements: F3, F4.
#[tokio::test(flavor = "multi_thread")]
async fn flow_is_executed_without_a_deployment_and_returns_its_results() {
    let node = builder().0.start().await;
    let flow = submit(&node, "f-1", "?wait=30s&user=ann", &media())
        .await
        .ok();
    assert_eq!(
        (&flow["status"], &flow["id"], &flow["user"]),
        (&json!("finished"), &json!("f-1"), &json!("ann"))
    );
    let probe = json!({ "script": "frames", "args": null, "results": {} });
    let results = json!({
        "probe": probe, "cut": "cut",
        "join": { "script": "join", "args": "frames", "results": { "probe": probe, "cut": "cut" } }
    });
    assert_eq!(flow["results"], results);
    let statuses: Vec<_> = flow["jobs"]
        .as_array()
        .unwrap()
        .iter()
        .map(|job| job["status"].clone())
        .collect();
    assert_eq!(statuses, ["finished"; 3]);
    let again = submit(&node, "f-1", "?wait=30s", &media()).await.ok();
    assert_eq!(
        again["updated_at"], flow["updated_at"],
        "a repetition has no effect"
    );
    let page = node.get("/v1/flows?prefix=f-").await.ok();
    assert_eq!(
        (
            &page["items"][0]["jobs_by_status"],
            &page["items"][0]["labels"]
        ),
        (&json!({ "finished": 3 }), &json!({ "team": "film" }))
    );
    node.stop().await;
}

/// Requirements: F4.
#[tokio::test(flavor = "multi_thread")]
async fn failed_job_is_retried_and_a_job_is_executed_again_with_its_followers() {
    let (builder, fails) = builder();
    let node = builder.start().await;
    fails.store(true, Ordering::Release);
    submit(&node, "f-1", "", &media()).await.ok();
    let flow = until_status(&node, "f-1", "error").await;
    let jobs = &flow["jobs"];
    assert_eq!(
        (&jobs[0]["status"], &jobs[1]["failure"], &jobs[2]["status"]),
        (
            &json!("finished"),
            &json!({ "code": "exit_1", "message": "no such file" }),
            &json!("error")
        )
    );
    assert_eq!(jobs[2]["failure"]["code"], "prerequisite_failed");
    fails.store(false, Ordering::Release);
    node.post(
        "/v1/flows/f-1/retry",
        &json!({ "user": "ann", "reason": "fixed" }),
    )
    .await
    .ok();
    let finished = until_status(&node, "f-1", "finished").await;
    assert_eq!(finished["results"]["cut"], "cut");
    let version = node.get("/v1/sagas/orlog.flow/f-1").await.ok()["version"]
        .as_u64()
        .unwrap();
    node.post("/v1/flows/f-1/jobs/cut/rerun", &json!({}))
        .await
        .ok();
    let again = until_status(&node, "f-1", "finished").await;
    let attempts: Vec<_> = (0..3)
        .map(|job| again["jobs"][job]["attempts"].as_u64().unwrap())
        .collect();
    assert_eq!(
        attempts,
        [1, 3, 2],
        "cut failed, was retried and executed again; join follows it"
    );
    let instance = node.get("/v1/sagas/orlog.flow/f-1").await.ok();
    let history = instance["history"]["items"].as_array().unwrap();
    let notes: Vec<_> = history
        .iter()
        .filter(|entry| entry["version"].as_u64().unwrap() > version)
        .collect();
    assert!(
        notes[0]["note"]
            .as_str()
            .unwrap()
            .contains("rerun from cut"),
        "{notes:?}"
    );
    assert_eq!(notes.len(), 3, "a rerun, and the results of cut and join");
    node.post("/v1/flows/f-1/retry", &json!({}))
        .await
        .rejected(409, "OR0013");
    let detail = node
        .post("/v1/flows/f-1/jobs/x/rerun", &json!({}))
        .await
        .rejected(409, "OR0013");
    assert!(detail.contains("no job \"x\""), "{detail}");
    node.post("/v1/flows/none/cancel", &json!({}))
        .await
        .rejected(404, "OR0090");
    node.stop().await;
}

/// Writes an upstream whose jobs are executed by workers.
fn worker_upstream(dir: &Path) -> PathBuf {
    let upstreams = dir.join("effects");
    std::fs::create_dir_all(&upstreams).unwrap();
    let text = "kind = \"worker\"\neffects = [\"job.python\", \"job.ffmpeg\"]\n";
    std::fs::write(upstreams.join("jobs.toml"), text).unwrap();
    upstreams
}

/// Returns a builder of a node whose jobs are executed by workers.
fn with_workers() -> NodeBuilder {
    let builder = NodeBuilder::new();
    let upstreams = worker_upstream(builder.dir.path());
    builder.config(|config| config.upstreams_dir = Some(upstreams))
}

/// Requirements: F3, F4.
#[tokio::test(flavor = "multi_thread")]
async fn job_is_dispatched_until_a_worker_takes_it_and_a_cancelled_flow_takes_it_away() {
    let node = with_workers().start().await;
    submit(&node, "f-1", "", &media()).await.ok();
    let flow = until_status(&node, "f-1", "dispatched").await;
    assert_eq!(
        (&flow["jobs"][0]["status"], &flow["jobs"][0]["runner"]),
        (&json!("dispatched"), &Value::Null)
    );
    let claim = json!({ "effects": ["job.python"], "worker": "host-1", "max": 9 });
    let claimed = node.post("/v1/work/claim", &claim).await.ok();
    assert_eq!(claimed["jobs"][0]["payload"]["job"], "probe");
    let flow = until_status(&node, "f-1", "started").await;
    assert_eq!(
        (
            &flow["jobs"][0]["status"],
            &flow["jobs"][0]["runner"],
            &flow["jobs"][1]["status"]
        ),
        (&json!("started"), &json!("host-1"), &json!("dispatched"))
    );
    let cancelled = node
        .post("/v1/flows/f-1/cancel", &json!({ "reason": "not needed" }))
        .await
        .ok();
    assert_eq!(
        (&cancelled["status"], &cancelled["cancelled"]),
        (&json!("error"), &json!(true))
    );
    let is_withdrawn = |page: &Value| {
        page["items"]
            .as_array()
            .unwrap()
            .iter()
            .all(|job| job["withdrawn"] == true)
    };
    node.until("", "/v1/work", is_withdrawn).await;
    let job = claimed["jobs"][0]["job"].as_str().unwrap();
    let beat = json!({ "claim": claimed["jobs"][0]["claim"] });
    node.post(&format!("/v1/work/jobs/{job}/heartbeat"), &beat)
        .await
        .rejected(409, "OR0030");
    node.until("", "/v1/work", |page| page["items"] == json!([]))
        .await;
    node.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn invalid_flow_is_rejected_with_its_places_and_stores_nothing() {
    let node = builder().0.start().await;
    let job = |id: &str, dependencies: &[&str]| json!({ "id": id, "type": "python", "script": "x", "dependencies": dependencies });
    let cycle = json!({ "jobs": [job("a", &["b"]), job("b", &["a"])] });
    let detail = submit(&node, "f-1", "", &cycle)
        .await
        .rejected(422, "OR0092");
    assert!(detail.contains("cycle"), "{detail}");
    let unknown = json!({ "jobs": [{ "id": "a", "typ": "python", "script": "x" }] });
    let response = submit(&node, "f-1", "", &unknown).await;
    assert_eq!(
        response.json()["errors"][0]["pointer"],
        "/jobs/0",
        "{}",
        response.json()
    );
    let large =
        json!({ "jobs": [{ "id": "a", "type": "python", "script": "x".repeat(10 << 20) }] });
    submit(&node, "f-1", "", &large)
        .await
        .rejected(413, "OR0005");
    let large =
        json!({ "jobs": [{ "id": "a", "type": "python", "script": "x".repeat(300 << 10) }] });
    let detail = submit(&node, "f-1", "", &large)
        .await
        .rejected(422, "OR0092");
    assert!(detail.contains("the limit is 262144"), "{detail}");
    node.get("/v1/flows/f-1").await.rejected(404, "OR0090");
    submit(&node, "f-1", "?wait=30s", &media()).await.ok();
    let other = json!({ "jobs": [job("a", &[])] });
    submit(&node, "f-1", "", &other)
        .await
        .rejected(409, "OR0091");
    submit(&node, &"x".repeat(101), "", &other)
        .await
        .rejected(400, "OR0008");
    node.stop().await;
}

/// Requirements: E8, F3.
#[tokio::test(flavor = "multi_thread")]
async fn flow_continues_after_each_kill_of_the_node() {
    let dir = tempfile::tempdir().unwrap();
    let upstreams = worker_upstream(dir.path()).display().to_string();
    let data = dir.path().join("data").display().to_string();
    let environment = [("ORLOG_UPSTREAMS_DIR", upstreams.as_str())];
    let start = || Process::start_with(&["--data-dir", &data], &environment);
    let (http, key) = (client(), [("idempotency-key", "f-1")]);
    let post = async |node: &Process, path: &str, body: Value| {
        send(
            &http,
            "POST",
            format!("{}{path}", node.url),
            &key,
            Some(&body),
        )
        .await
        .ok()
    };
    let mut node = start();
    post(&node, "/v1/flows", media()).await;
    let mut executed = Vec::new();
    for effect in ["job.python", "job.ffmpeg", "job.python"] {
        node.kill();
        node = start();
        let claimed = post(
            &node,
            "/v1/work/claim",
            json!({ "effects": [effect], "worker": "w", "max": 1 }),
        )
        .await;
        let job = &claimed["jobs"][0];
        executed.push(job["payload"]["job"].as_str().unwrap().to_owned());
        let path = format!("/v1/work/jobs/{}/result", job["job"].as_str().unwrap());
        let payload = json!({ "script": job["payload"]["script"] });
        post(
            &node,
            &path,
            json!({ "claim": job["claim"], "result": "succeeded", "payload": payload }),
        )
        .await;
    }
    node.kill();
    let node = start();
    assert_eq!(executed, ["probe", "cut", "join"]);
    let flow = send(
        &http,
        "GET",
        format!("{}/v1/flows/f-1", node.url),
        &[],
        None,
    )
    .await
    .ok();
    assert_eq!(
        (&flow["status"], &flow["results"]["join"]),
        (&json!("finished"), &json!({ "script": "join" }))
    );
    node.stop();
}

#[tokio::test(flavor = "multi_thread")]
async fn command_line_submits_shows_and_controls_flows() {
    let (builder, fails) = builder();
    let node = builder.start().await;
    let url = node.serve().await;
    let file = node.dir.path().join("media.flow.yaml");
    let path = file.display().to_string();
    let cli = async |args: &[&str]| run(orlog(&[&["flow"], args, &["--url", &url]].concat())).await;
    std::fs::write(
        &file,
        "jobs:\n  - { id: a, type: python, script: x, dependencies: b }\n",
    )
    .unwrap();
    let (code, _, errors) = cli(&["submit", &path]).await;
    assert_eq!(code, 2, "{errors}");
    assert!(
        errors.contains("media.flow.yaml:2:53: jobs[0].dependencies: there is no job `b`"),
        "{errors}"
    );
    std::fs::write(&file, serde_json::to_string_pretty(&media()).unwrap()).unwrap();
    fails.store(true, Ordering::Release);
    let (code, shown, errors) =
        cli(&["submit", &path, "--wait", "--id", "f-1", "--user", "ann"]).await;
    assert_eq!(
        (code, errors.contains("the flow failed")),
        (1, true),
        "{errors}"
    );
    assert!(
        shown.contains("f-1: error") && shown.contains("exit_1: no such file"),
        "{shown}"
    );
    fails.store(false, Ordering::Release);
    let (code, shown, _) = cli(&["retry", "f-1", "--reason", "fixed"]).await;
    assert_eq!(code, 0, "{shown}");
    until_status(&node, "f-1", "finished").await;
    let (code, shown, _) = cli(&["rerun", "f-1", "join"]).await;
    assert_eq!(code, 0, "{shown}");
    until_status(&node, "f-1", "finished").await;
    let (_, shown, _) = cli(&["list"]).await;
    assert!(
        shown.contains("media") && shown.contains("3/3") && shown.contains("ann"),
        "{shown}"
    );
    let (code, _, errors) = cli(&["cancel", "f-1"]).await;
    assert_eq!(
        (code, errors.contains("it has ended")),
        (4, true),
        "{errors}"
    );
    let (code, _, errors) = cli(&["show", "none"]).await;
    assert_eq!(
        (code, errors.contains("no flow \"none\"")),
        (3, true),
        "{errors}"
    );
    node.stop().await;
}

/// Returns the lines of a flow: number, job and text.
fn lines(page: &Value) -> Vec<(u64, String, String)> {
    let text = |line: &Value, field: &str| line[field].as_str().unwrap().to_owned();
    let items = page["items"].as_array().unwrap().iter();
    items
        .map(|line| {
            (
                line["number"].as_u64().unwrap(),
                text(line, "job"),
                text(line, "text"),
            )
        })
        .collect()
}

/// Requirements: F4.
#[tokio::test(flavor = "multi_thread")]
async fn lines_of_jobs_are_followed_and_stay_after_a_restart_within_their_bound() {
    let node = with_workers()
        .config(|config| config.jobs.lines = 4)
        .start()
        .await;
    submit(&node, "f-1", "", &media()).await.ok();
    let claim = async |kind: &str| {
        let body = json!({ "effects": [kind], "worker": "w" });
        node.post("/v1/work/claim", &body).await.ok()["jobs"][0].clone()
    };
    let (probe, cut) = (&claim("job.python").await, &claim("job.ffmpeg").await);
    let follow = node.send(
        Request::builder()
            .uri("/v1/flows/f-1/lines")
            .header("accept", "text/event-stream")
            .body(Body::empty())
            .unwrap(),
    );
    let log = async |job: &Value, texts: &[&str]| {
        let path = format!("/v1/work/jobs/{}/logs", job["job"].as_str().unwrap());
        let response = node
            .post(&path, &json!({ "claim": job["claim"], "log": texts }))
            .await;
        assert_eq!(response.status, 204, "{}", response.text);
    };
    let work = async {
        log(probe, &["one", "two"]).await;
        node.until("", "/v1/flows/f-1/lines?wait=1s", |page| {
            lines(page).len() == 2
        })
        .await;
        log(cut, &["frame 1"]).await;
        let of_cut = node
            .until("", "/v1/flows/f-1/lines?job=cut", |page| {
                !lines(page).is_empty()
            })
            .await;
        assert_eq!(
            lines(&of_cut),
            [(3, "cut".to_owned(), "frame 1".to_owned())]
        );
        log(probe, &["three", "four"]).await;
        node.until("", "/v1/flows/f-1/lines?after=3", |page| {
            lines(page).len() == 2
        })
        .await;
        node.post("/v1/flows/f-1/cancel", &json!({})).await.ok();
    };
    let (followed, ()) = tokio::join!(follow, work);
    let events: Vec<_> = followed
        .text
        .lines()
        .filter(|line| line.starts_with("event: "))
        .collect();
    assert_eq!(
        events,
        [
            "event: line",
            "event: line",
            "event: line",
            "event: line",
            "event: line",
            "event: end"
        ]
    );
    assert!(followed.text.contains("id: 5"), "{}", followed.text);
    let dir = node.stop().await;
    let upstreams = worker_upstream(dir.path());
    let node = NodeBuilder::on(dir)
        .config(|config| config.upstreams_dir = Some(upstreams))
        .start()
        .await;
    let page = node.get("/v1/flows/f-1/lines").await.ok();
    let kept = [
        (3, "cut", "frame 1"),
        (4, "probe", "three"),
        (5, "probe", "four"),
    ];
    let kept = kept.map(|(number, job, text)| (number, job.to_owned(), text.to_owned()));
    assert_eq!((lines(&page), &page["first"]), (kept.to_vec(), &json!(3)));
    let flow = node.get("/v1/flows/f-1").await.ok();
    let counts: Vec<_> = (0..3)
        .map(|job| flow["jobs"][job]["lines"].as_u64().unwrap())
        .collect();
    assert_eq!(counts, [2, 1, 0], "the stored lines of each job");
    let url = node.serve().await;
    let shown = run(orlog(&[
        "flow", "logs", "f-1", "-f", "--job", "probe", "--url", &url,
    ]))
    .await;
    assert!(
        shown.1.contains(" probe three") && !shown.1.contains("frame 1"),
        "{shown:?}"
    );
    node.get("/v1/flows/none/lines")
        .await
        .rejected(404, "OR0090");
    node.stop().await;
}

/// Requirements: F5.
#[tokio::test(flavor = "multi_thread")]
async fn job_without_a_runner_says_so_and_ends_with_its_timeout() {
    let node = NodeBuilder::new().start().await;
    let flow = json!({ "jobs": [{ "id": "a", "type": "sal", "script": "x", "timeout": "2s" }] });
    submit(&node, "f-1", "", &flow).await.ok();
    let waiting = until_status(&node, "f-1", "dispatched").await;
    assert_eq!(
        waiting["jobs"][0]["waits_for"],
        "no runner of type sal is registered"
    );
    let failed = until_status(&node, "f-1", "error").await;
    assert_eq!(
        (
            &failed["jobs"][0]["status"],
            &failed["jobs"][0]["waits_for"]
        ),
        (&json!("error"), &Value::Null)
    );
    let code = failed["jobs"][0]["failure"]["code"].as_str().unwrap();
    assert!(["timeout", "not_claimed"].contains(&code), "{code}");
    let runner = json!({
        "name": "r-1", "types": ["sal"], "labels": { "zone": "eu" }, "capacity": 4, "key": "k", "topic": "t", "local": true
    });
    let registered = node.post("/v1/runners", &runner).await.ok();
    assert_eq!(registered["effects"], json!(["job.sal"]));
    node.post("/v1/flows/f-1/retry", &json!({})).await.ok();
    let again = until_status(&node, "f-1", "dispatched").await;
    assert_eq!(again["jobs"][0]["waits_for"], Value::Null);
    let listed = node.get("/v1/runners").await.ok();
    assert_eq!(
        (
            &listed["items"][0]["labels"],
            &listed["items"][0]["capacity"]
        ),
        (&json!({ "zone": "eu" }), &json!(4))
    );
    node.post("/v1/runners", &json!({ "name": "r-2", "types": [] }))
        .await
        .rejected(400, "OR0008");
    let claim = json!({ "effects": ["job.sal"], "worker": "r-1", "max": 1 });
    let job = node.post("/v1/work/claim", &claim).await.ok()["jobs"][0].clone();
    let result = json!({ "claim": job["claim"], "result": "succeeded", "payload": 7 });
    node.post(
        &format!("/v1/work/jobs/{}/result", job["job"].as_str().unwrap()),
        &result,
    )
    .await
    .ok();
    assert_eq!(
        until_status(&node, "f-1", "finished").await["results"],
        json!({ "a": 7 })
    );
    node.stop().await;
}

/// Requirements: F5.
#[tokio::test(flavor = "multi_thread")]
async fn jobs_without_a_runner_do_not_block_jobs_of_another_type() {
    let node = NodeBuilder::new()
        .config(|config| config.limits.max_in_flight_per_window = 2)
        .start()
        .await;
    let job =
        |id: usize, kind: &str| json!({ "id": format!("j{id}"), "type": kind, "script": "x" });
    let rare = json!({ "jobs": (0..9).map(|id| job(id, "rare")).collect::<Vec<_>>() });
    submit(&node, "f-1", "", &rare).await.ok();
    let is_full = |page: &Value| page["items"].as_array().unwrap().len() >= 2;
    node.until("", "/v1/work", is_full).await;
    submit(&node, "f-2", "", &json!({ "jobs": [job(0, "common")] }))
        .await
        .ok();
    let claim = json!({ "effects": ["job.common"], "worker": "r-1", "wait_seconds": 20 });
    let claimed = node.post("/v1/work/claim", &claim).await.ok();
    assert_eq!(claimed["jobs"][0]["correlation"], "f-2", "{claimed}");
    node.stop().await;
}

/// Requirements: F5.
#[tokio::test(flavor = "multi_thread")]
async fn runner_holds_at_most_as_many_jobs_as_its_capacity() {
    let node = NodeBuilder::new().start().await;
    let url = node.serve().await;
    let runner =
        json!({ "name": "r-1", "types": ["sal"], "capacity": 2, "labels": { "zone": "eu" } });
    node.post("/v1/runners", &runner).await.ok();
    let job = |number: u32| json!({ "id": format!("j{number}"), "type": "sal", "script": "x" });
    submit(
        &node,
        "f-1",
        "",
        &json!({ "jobs": (0..4).map(job).collect::<Vec<_>>() }),
    )
    .await
    .ok();
    node.until("", "/v1/work", |page| {
        page["items"].as_array().unwrap().len() == 4
    })
    .await;
    let claim = |wait: u32| json!({ "effects": ["job.sal"], "worker": "r-1", "max": 9, "wait_seconds": wait });
    let claimed = node.post("/v1/work/claim", &claim(20)).await.ok();
    let jobs = claimed["jobs"].as_array().unwrap();
    assert_eq!(jobs.len(), 2);
    assert_eq!(
        node.post("/v1/work/claim", &claim(0)).await.ok()["jobs"],
        json!([])
    );
    let fetched = node
        .post(
            "/v1/work/fetch",
            &json!({ "effects": ["job.sal"], "worker": "other" }),
        )
        .await
        .ok();
    let one = format!(
        "/v1/work/jobs/{}/claim",
        fetched["jobs"][0]["job"].as_str().unwrap()
    );
    let detail = node
        .post(&one, &json!({ "worker": "r-1" }))
        .await
        .rejected(429, "OR0031");
    assert!(
        detail.contains("holds 2 jobs, and its capacity is 2"),
        "{detail}"
    );
    let (_, shown, _) = run(orlog(&["runner", "list", "--url", &url])).await;
    assert!(
        shown.contains("r-1") && shown.contains("2/2") && shown.contains("zone=eu"),
        "{shown}"
    );
    // A second connection waits until the runner answers.
    let waiting = async { node.post("/v1/work/claim", &claim(20)).await.ok() };
    let answer = async {
        let result = json!({ "claim": jobs[0]["claim"], "result": "succeeded" });
        node.post(
            &format!("/v1/work/jobs/{}/result", jobs[0]["job"].as_str().unwrap()),
            &result,
        )
        .await
        .ok();
    };
    let (next, ()) = tokio::join!(waiting, answer);
    assert_eq!(next["jobs"].as_array().unwrap().len(), 1);
    node.stop().await;
}

/// Requirements: F5.
/// Requirements: E8, F5.
#[tokio::test(flavor = "multi_thread")]
async fn claim_and_result_of_a_job_survive_kills_of_the_node() {
    let dir = tempfile::tempdir().unwrap();
    let upstreams = worker_upstream(dir.path()).display().to_string();
    let data = dir.path().join("data").display().to_string();
    let environment = [("ORLOG_UPSTREAMS_DIR", upstreams.as_str())];
    let start = || Process::start_with(&["--data-dir", &data], &environment);
    let (http, key) = (client(), [("idempotency-key", "f-1")]);
    let request = async |node: &Process, method: &str, path: &str, body: Option<&Value>| {
        send(&http, method, format!("{}{path}", node.url), &key, body).await
    };
    let claim = async |node: &Process, worker: &str, wait: u64| {
        let body = json!({ "effects": ["job.python"], "worker": worker, "wait_seconds": wait });
        let claimed = request(node, "POST", "/v1/work/claim", Some(&body)).await;
        claimed.ok()["jobs"].clone()
    };
    let node = start();
    let flow = json!({ "jobs": [{ "id": "a", "type": "python", "script": "x" }] });
    request(&node, "POST", "/v1/flows", Some(&flow)).await.ok();
    let job = claim(&node, "a", 20).await[0].clone();
    until("the claim is stored", async || {
        let rows = request(&node, "GET", "/v1/inspect/job_claim", None).await;
        rows.text.contains("job_claim:").then_some(())
    })
    .await;

    node.kill();
    let node = start();
    let posted = until("the job is on the board", async || {
        let page = request(&node, "GET", "/v1/work", None).await.ok();
        page["items"].get(0).cloned()
    })
    .await;
    assert_eq!(
        (&posted["worker"], &posted["claims"]),
        (&json!("a"), &json!(1))
    );
    assert_eq!(claim(&node, "b", 0).await, json!([]));
    let path = format!("/v1/work/jobs/{}", job["job"].as_str().unwrap());
    let heartbeat = json!({ "claim": job["claim"] });
    let extended = format!("{path}/heartbeat");
    request(&node, "POST", &extended, Some(&heartbeat))
        .await
        .ok();
    let path = format!("{path}/result");
    let result = json!({ "claim": job["claim"], "result": "succeeded", "payload": 7 });
    let first = request(&node, "POST", &path, Some(&result)).await.ok();
    assert_eq!(first, json!({ "duplicate": false }));

    // The response was lost, and the worker sends the result again.
    node.kill();
    let node = start();
    let again = request(&node, "POST", &path, Some(&result)).await.ok();
    assert_eq!(again, json!({ "duplicate": true }));
    let other = json!({ "claim": uuid::Uuid::nil(), "result": "succeeded", "payload": 8 });
    request(&node, "POST", &path, Some(&other))
        .await
        .rejected(409, "OR0030");
    let flow = request(&node, "GET", "/v1/flows/f-1", None).await.ok();
    assert_eq!(
        (&flow["status"], &flow["results"]),
        (&json!("finished"), &json!({ "a": 7 }))
    );
    node.stop();
}

#[tokio::test(flavor = "multi_thread")]
async fn stand_in_executes_no_job_of_a_flow_also_after_a_restart() {
    let dir = tempfile::tempdir().unwrap();
    let definition = "
saga: report
version: 1
start: Requested
correlate: id
steps: [{ id: a, do: { job: { type: python, script: x } } }]
";
    std::fs::write(dir.path().join("report.saga.yaml"), definition).unwrap();
    let (data, definitions) = (dir.path().join("data"), dir.path());
    let start = || {
        let args = [
            "--data-dir",
            data.to_str().unwrap(),
            "--definitions-dir",
            definitions.to_str().unwrap(),
        ];
        Process::start(&args)
    };
    let http = client();
    let request = async |node: &Process, method: &str, path: &str, body: Option<&Value>| {
        send(
            &http,
            method,
            format!("{}{path}", node.url),
            &[("idempotency-key", "f-1")],
            body,
        )
        .await
        .ok()
    };
    let node = start();
    let flow = json!({ "jobs": [{ "id": "a", "type": "python", "script": "x" }] });
    request(&node, "POST", "/v1/flows", Some(&flow)).await;
    let event = json!({ "specversion": "1.0", "id": "e-1", "source": "test", "type": "Requested", "data": { "id": "r-1" } });
    request(&node, "POST", "/v1/events", Some(&event)).await;
    node.kill();
    let node = start();
    let saga = request(&node, "GET", "/v1/sagas/report/r-1/result?wait=30s", None).await;
    assert_eq!(
        saga["status"], "completed",
        "the stand-in executes the job of the definition"
    );
    let waiting = request(&node, "GET", "/v1/flows/f-1", None).await;
    assert_eq!(
        (&waiting["status"], &waiting["jobs"][0]["waits_for"]),
        (
            &json!("dispatched"),
            &json!("no runner of type python is registered")
        )
    );
    let claim = json!({ "effects": ["job.python"], "worker": "r-1" });
    let job = request(&node, "POST", "/v1/work/claim", Some(&claim)).await["jobs"][0].clone();
    let result = json!({ "claim": job["claim"], "result": "succeeded", "payload": 7 });
    let path = format!("/v1/work/jobs/{}/result", job["job"].as_str().unwrap());
    request(&node, "POST", &path, Some(&result)).await;
    let finished = request(&node, "GET", "/v1/flows/f-1", None).await;
    assert_eq!(
        (&finished["status"], &finished["results"]),
        (&json!("finished"), &json!({ "a": 7 }))
    );
    node.stop();
}

/// Starts a runner in Rust for `ffmpeg`, with the sandbox of the example.
fn rust_runner(url: &str, dir: &Path) -> Killed {
    let example = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/media");
    let film = dir.join("film");
    std::fs::create_dir(&film).unwrap();
    for part in ["bin", "lib"] {
        let copied = Command::new("cp")
            .arg("-r")
            .arg(example.join(part))
            .arg(&film)
            .status()
            .unwrap();
        assert!(copied.success());
    }
    for open in [dir, &film] {
        std::fs::set_permissions(open, std::os::unix::fs::PermissionsExt::from_mode(0o755))
            .unwrap();
    }
    let text = std::fs::read_to_string(example.join("jobs.toml")).unwrap();
    let config = dir.join("runner.toml");
    std::fs::write(
        &config,
        text.replace("/srv/media", &film.display().to_string()),
    )
    .unwrap();
    let config = config.display().to_string();
    let args = [
        "runner",
        "--type",
        "ffmpeg",
        "--name",
        "rust",
        "--capacity",
        "2",
        "--config",
        &config,
        "--url",
        url,
    ];
    Killed::start(&mut orlog(&args))
}

#[tokio::test(flavor = "multi_thread")]
async fn second_stop_of_a_runner_ends_it_while_the_node_does_not_respond() {
    let asks = Arc::new(tokio::sync::Semaphore::new(0));
    let asked = Arc::clone(&asks);
    let claim = async move || {
        asked.add_permits(1);
        std::future::pending::<()>().await;
    };
    let registered = axum::Json(json!({ "heartbeat_interval_seconds": 20.0 }));
    let routes = axum::Router::new()
        .route("/v1/runners", axum::routing::post(async move || registered))
        .route("/v1/work/claim", axum::routing::post(claim));
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    tokio::spawn(async move { axum::serve(listener, routes).await });
    let dir = tempfile::tempdir().unwrap();
    let mut runner = rust_runner(&url, dir.path());
    within("the requests of both slots", asks.acquire_many(2))
        .await
        .unwrap()
        .forget();
    // The first signal finishes the jobs in progress, which takes as long as the response.
    let ended = until("the end of the runner", || {
        runner.signal("TERM");
        std::future::ready(runner.ended())
    });
    assert_eq!(ended.await, 130);
}

#[tokio::test(flavor = "multi_thread")]
async fn submission_without_a_response_says_how_to_repeat_it() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("media.flow.yaml");
    std::fs::write(&file, media().to_string()).unwrap();
    let path = file.display().to_string();
    let (code, _, errors) = run(orlog(&[
        "flow",
        "submit",
        &path,
        "--url",
        "http://127.0.0.1:1",
    ]))
    .await;
    assert_eq!(code, 5, "{errors}");
    let id = errors
        .split("--id ")
        .nth(1)
        .and_then(|rest| rest.split(',').next())
        .unwrap_or_default();
    assert!(id.parse::<uuid::Uuid>().is_ok(), "{errors}");
}

/// Starts a runner in Python for `python`.
fn python_runner(url: &str) -> Killed {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut command = Command::new("python3");
    command
        .arg(root.join("examples/workers/python/runner.py"))
        .arg("python=python3");
    Killed::start(
        command
            .env("ORLOG_URL", url)
            .env("PYTHONPATH", root.join("examples/media/lib")),
    )
}

/// Requirements: F3, F4, F5.
#[tokio::test(flavor = "multi_thread")]
async fn media_flow_is_executed_by_a_runner_in_rust_and_one_in_python() {
    let node = NodeBuilder::new().start().await;
    let url = node.serve().await;
    let runners = tempfile::tempdir().unwrap();
    let (mut rust, _python) = (rust_runner(&url, runners.path()), python_runner(&url));
    let file = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("examples/media/flow.yaml")
        .display()
        .to_string();
    let args = [
        "flow", "submit", &file, "--wait", "--id", "f-1", "--url", &url,
    ];
    let (code, shown, errors) = run(orlog(&args)).await;
    assert_eq!(code, 0, "{shown}\n{errors}");
    let flow = node.get("/v1/flows/f-1").await.ok();
    let results = &flow["results"];
    assert_eq!(
        results["manifest"],
        json!({ "manifest": "v1.m3u8", "files": ["v1-low.mp4", "v1-high.mp4"] })
    );
    let runners = node.get("/v1/runners").await.ok();
    let names: Vec<_> = runners["items"]
        .as_array()
        .unwrap()
        .iter()
        .map(|it| it["types"][0].clone())
        .collect();
    assert_eq!(names.len(), 2, "{runners}");
    let probing = |page: &Value| {
        lines(page)
            .iter()
            .any(|(_, job, text)| job == "probe" && text.starts_with("probing"))
    };
    node.until("", "/v1/flows/f-1/lines", probing).await;
    rust.signal("TERM");
    assert_eq!(rust.wait(), Some(0));
    let left = node.get("/v1/runners").await.ok();
    assert_eq!(
        left["items"].as_array().unwrap().len(),
        1,
        "the runner ended its registration"
    );
    node.stop().await;
}
