//! Jobs of a cancelled saga: they leave the job board, and the saga compensates what a worker may have executed.

use serde_json::{Value, json};

use crate::harness::node::{Node, NodeBuilder};

const FILM: &str = "
saga: film
version: 1
correlate: id
start: Asked
steps:
  - { id: book, do: { effect: film.book }, undo: { effect: film.release } }
  - { id: cut, after: [book], do: { effect: film.cut }, undo: { effect: film.discard } }
  - { id: mix, after: [book], do: { effect: film.mix }, undo: { effect: film.unmix } }
  - { id: check, after: [book], do: { effect: film.check }, in_doubt: ask }
";

/// Starts a node whose workers execute all effects of the saga, and the saga. Its first step is completed.
async fn film() -> Node {
    let builder = NodeBuilder::new().definition("film", FILM);
    let node = with_workers(builder).start().await;
    let event = json!({ "specversion": "1.0", "id": "e-1", "source": "test", "type": "Asked", "data": { "id": "f-1" } });
    assert_eq!(node.post("/v1/events", &event).await.status, 202);
    let book = claim(&node, "film.book").await;
    complete(&node, &book).await;
    node.until("", "/v1/work", |page| {
        page["items"].as_array().unwrap().len() == 3
    })
    .await;
    node
}

fn with_workers(builder: NodeBuilder) -> NodeBuilder {
    let upstreams = builder.dir.path().join("effects");
    std::fs::create_dir_all(&upstreams).unwrap();
    let effects = ["book", "release", "cut", "discard", "mix", "unmix", "check"]
        .map(|name| format!("film.{name}"));
    std::fs::write(
        upstreams.join("film.toml"),
        format!("kind = \"worker\"\neffects = {effects:?}\n"),
    )
    .unwrap();
    builder.config(|config| config.upstreams_dir = Some(upstreams))
}

async fn claim_within(node: &Node, effect: &str, seconds: u32) -> Option<Value> {
    let claim = json!({ "effects": [effect], "worker": "w", "wait_seconds": seconds });
    let claimed = node.post("/v1/work/claim", &claim).await.ok();
    claimed["jobs"].as_array().unwrap().first().cloned()
}

async fn claim(node: &Node, effect: &str) -> Value {
    claim_within(node, effect, 20)
        .await
        .unwrap_or_else(|| panic!("{effect} is on the board"))
}

fn at(job: &Value, action: &str) -> String {
    format!("/v1/work/jobs/{}/{action}", job["job"].as_str().unwrap())
}

async fn complete(node: &Node, job: &Value) {
    node.post(
        &at(job, "result"),
        &json!({ "claim": job["claim"], "result": "succeeded" }),
    )
    .await
    .ok();
}

async fn cancel(node: &Node) {
    node.post(
        "/v1/sagas/film/f-1/cancel",
        &json!({ "reason": "not needed" }),
    )
    .await
    .ok();
}

#[tokio::test(flavor = "multi_thread")]
async fn jobs_of_a_cancelled_saga_are_withdrawn_and_executed_ones_are_compensated() {
    let node = film().await;
    let (cut, check) = (
        claim(&node, "film.cut").await,
        claim(&node, "film.check").await,
    );
    cancel(&node).await;
    let withdrawn = |page: &Value| {
        let items = page["items"].as_array().unwrap();
        items.iter().filter(|job| job["withdrawn"] == true).count() == 2
            && items.iter().all(|job| job["effect"] != "film.mix")
    };
    node.until("", "/v1/work", withdrawn).await;
    assert_eq!(
        claim_within(&node, "film.mix", 0).await,
        None,
        "it had no worker"
    );
    // The compensation of the saga needs jobs.
    let release = claim(&node, "film.release").await;
    // One worker finishes before it receives the withdrawal; the other one stops, and what it has done is unknown.
    complete(&node, &cut).await;
    node.post(
        &at(&check, "heartbeat"),
        &json!({ "claim": check["claim"] }),
    )
    .await
    .rejected(409, "OR0030");
    complete(&node, &release).await;
    let discard = claim(&node, "film.discard").await;
    complete(&node, &discard).await;
    let tasks = node
        .until("", "/v1/tasks?correlation=f-1", |page| {
            page["items"] != json!([])
        })
        .await;
    let task = &tasks["items"][0];
    assert_eq!(task["title"], "Was film.check done? (step check)");
    let decision = json!({ "user": "carl", "outcome": "NotExecuted" });
    node.post(
        &format!("/v1/tasks/{}/complete", task["id"].as_str().unwrap()),
        &decision,
    )
    .await
    .ok();
    let has_ended =
        |saga: &Value| saga["status"] == "cancelled" && saga["pending_work"] == json!([]);
    let ended = node.until("", "/v1/sagas/film/f-1", has_ended).await;
    let history = ended["history"]["items"].to_string();
    assert!(
        history.contains("film.discard") && !history.contains("film.unmix"),
        "{history}"
    );
    node.until("", "/v1/work", |page| page["items"] == json!([]))
        .await;
    node.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn job_that_was_claimed_before_a_restart_is_compensated_and_not_offered_again() {
    let node = film().await;
    claim(&node, "film.cut").await;
    cancel(&node).await;
    node.until("", "/v1/work", |page| {
        page["items"].to_string().contains("film.release")
    })
    .await;
    // After a restart, unclaimed jobs without a stored result would be in doubt, too.
    let is_settled = |saga: &Value| {
        let pending = saga["pending_work"].as_array().unwrap();
        pending
            .iter()
            .all(|work| work["tag"] != "mix" && work["tag"] != "check")
    };
    node.until("", "/v1/sagas/film/f-1", is_settled).await;
    let dir = node.stop().await;
    let node = with_workers(NodeBuilder::on(dir)).start().await;
    let release = claim(&node, "film.release").await;
    complete(&node, &release).await;
    let discard = claim(&node, "film.discard").await;
    assert_eq!(claim_within(&node, "film.cut", 0).await, None);
    complete(&node, &discard).await;
    node.until("", "/v1/sagas/film/f-1", |saga| {
        saga["status"] == "cancelled"
    })
    .await;
    node.stop().await;
}
