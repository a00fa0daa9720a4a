//! Failures of effects: the instance shows the attempts, the responses, what was sent, and what waits for an operator.

use std::sync::Arc;

use axum::http::{Method, StatusCode};
use orlog::redact::{FieldPath, Redaction};
use orlog_testkit::wait::until;
use serde_json::{Value, json};

use crate::cli::node::command_output;
use crate::effects::http_upstream::HttpUpstream;
use crate::effects::node::{Dirs, Node};

/// Starts a node whose upstream `hotel` makes up to three attempts.
async fn start(upstream: &HttpUpstream, more: &str, fields: &[&str]) -> Node {
    let dirs = Dirs::new(&[]);
    let text = format!(
        "base_url = {:?}\nmax_attempts = 3\nbackoff = {{ initial = \"1ms\" }}\n{more}\n[effects.\"pay.charge\"]\npath = \"/rooms\"\n",
        upstream.url
    );
    dirs.describe("hotel", &text);
    let fields = fields
        .iter()
        .map(|field| FieldPath::try_from((*field).to_owned()).unwrap())
        .collect();
    dirs.start_with(|config| config.redact = Redaction { fields })
        .await
}

/// Returns the history entry of the result of the effect.
fn result_entry(instance: &Value) -> &Value {
    &instance["history"]["items"][1]
}

#[tokio::test(flavor = "multi_thread")]
async fn failed_effect_shows_its_attempts_and_the_responses() {
    let hotel = HttpUpstream::open().await;
    for _ in 0..3 {
        hotel.script(503, &[], r#"{"reason":"no rooms"}"#);
    }
    let node = start(&hotel, "", &[]).await;
    node.pay("", "o-1", json!({ "guest": "ada" })).await;
    let failed = node.end("", "o-1").await;
    let message = r#"hotel: timed out after 3 attempts; last: POST /rooms returned HTTP 503: {"reason":"no rooms"}"#;
    let entry = result_entry(&failed);
    assert_eq!(
        entry["failure"],
        json!({ "code": "http_503", "message": message })
    );
    let at = &entry["at"];
    let error = json!({ "code": "http_503", "message": message, "step": "charge", "attempts": 3, "at": at, "cause": null });
    assert_eq!(failed["last_error"], error);
    let attempts = entry["attempts"]["items"].as_array().unwrap();
    assert_eq!(
        (attempts.len(), &entry["attempts"]["omitted"]),
        (3, &json!(0))
    );
    let last = &attempts[2];
    assert_eq!(
        (&last["number"], &last["outcome"], &last["code"]),
        (&json!(3), &json!("unavailable"), &json!("http_503"))
    );
    assert_eq!(last["response"], r#"{"reason":"no rooms"}"#);
    assert!(
        last["at"].is_string() && last["duration_ms"].is_u64(),
        "{last}"
    );

    let url = node.serve().await;
    let show = move |flag: Option<&'static str>| {
        let url = url.clone();
        tokio::task::spawn_blocking(move || {
            let args = ["saga", "show", "payment", "o-1", "--url", &url]
                .into_iter()
                .chain(flag);
            command_output(&args.collect::<Vec<_>>())
        })
    };
    let text = show(None).await.unwrap();
    assert!(text.contains(message), "{text}");
    let text = show(Some("--full"))
        .await
        .unwrap()
        .split_whitespace()
        .collect::<Vec<_>>()
        .join(" ");
    for part in [
        r#"input {"guest":"ada","orderId":"o-1"}"#,
        r#"variable order: null -> {"guest":"ada","orderId":"o-1"}"#,
        "work pay.charge ",
        "failure hotel: timed out after 3 attempts",
        r#"(http_503); response: {"reason":"no rooms"}"#,
    ] {
        assert!(text.contains(part), "{part} is not in {text}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn history_shows_what_was_sent_and_received_redacted_and_bounded() {
    let hotel = HttpUpstream::open().await;
    hotel.script(503, &[], r#"{"card":"4111"}"#);
    let long = format!(r#"{{"receipt":"{}"}}"#, "x".repeat(3000));
    hotel.script(200, &[], &long);
    let node = start(&hotel, "", &["card"]).await;
    node.pay("", "o-1", json!({ "card": "4111", "total": 3 }))
        .await;
    let done = node.end("", "o-1").await;
    assert_eq!(done["status"], "completed");
    let order = json!({ "card": "[redacted]", "orderId": "o-1", "total": 3 });
    let started = &done["history"]["items"][0];
    assert_eq!(started["data"]["value"], order);
    assert_eq!(
        started["variables"]["value"],
        json!({ "order": [null, order] })
    );
    assert_eq!(started["work"][0]["data"]["value"], order);
    let entry = result_entry(&done);
    assert_eq!(
        entry["data"],
        json!({ "value": null, "beginning": "[redacted]", "size": long.len() })
    );
    assert_eq!(
        entry["attempts"]["items"][0]["response"],
        r#"{"card":"[redacted]"}"#
    );
    let inspected = node.get("/v1/inspect/history").await;
    for (place, text) in [
        ("the instance", done.to_string()),
        ("the table", inspected.to_string()),
    ] {
        assert!(!text.contains("4111"), "{place} shows the card: {text}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn no_payload_is_recorded_if_the_limit_is_zero() {
    let hotel = HttpUpstream::open().await;
    let dirs = Dirs::new(&[]);
    let text = format!(
        "base_url = {:?}\n[effects.\"pay.charge\"]\npath = \"/rooms\"\n",
        hotel.url
    );
    dirs.describe("hotel", &text);
    let node = dirs
        .start_with(|config| config.history.payload_bytes = 0)
        .await;
    node.pay("", "o-1", json!({ "guest": "ada" })).await;
    let done = node.end("", "o-1").await;
    let entries = done["history"]["items"].as_array().unwrap();
    for entry in entries {
        assert_eq!(
            (&entry["data"], &entry["variables"]),
            (&Value::Null, &Value::Null),
            "{entry}"
        );
        assert!(
            entry["work"]
                .as_array()
                .unwrap()
                .iter()
                .all(|work| work["data"].is_null()),
            "{entry}"
        );
    }
}

const RECEIPT: &str = "
saga: payment
version: 2
correlate: orderId
start: PaymentAsked
vars: { order: =event }
steps:
  - id: charge
    do: { effect: pay.charge, data: =vars.order }
    save: { receipt: =event.receipt.id }
";

#[tokio::test(flavor = "multi_thread")]
async fn instance_whose_response_cannot_be_saved_needs_attention() {
    let hotel = HttpUpstream::open().await;
    let dirs = Dirs::new(&[]);
    let text = format!(
        "base_url = {:?}\n[effects.\"pay.charge\"]\npath = \"/rooms\"\n",
        hotel.url
    );
    dirs.describe("hotel", &text);
    dirs.define("payment", RECEIPT);
    let node = dirs.start().await;
    node.pay("", "o-1", json!({})).await;
    let path = "/v1/sagas/payment/o-1";
    let marked = node
        .until("", path, |saga| saga["attention"] == "unapplied_result")
        .await;
    let reason = marked["last_error"]["message"].as_str().unwrap();
    assert!(
        reason.starts_with("the result of charge could not be applied: cannot set vars.receipt"),
        "{reason}"
    );
    assert_eq!(
        (&marked["status"], &marked["last_error"]["code"]),
        (&json!("running"), &json!("schema_mismatch"))
    );
    let letter = &marked["dead_letters"][0];
    assert_eq!(
        (&marked["pending_work"][0]["dead_letter"], &letter["reason"]),
        (&letter["id"], &json!("schema_mismatch"))
    );
    let entry = marked["history"]["items"]
        .as_array()
        .unwrap()
        .last()
        .unwrap();
    assert_eq!(
        (&entry["note"], &entry["failure"]["message"]),
        (
            &json!("charge: result dead-lettered"),
            &marked["last_error"]["message"]
        )
    );

    let listed = node
        .get("/v1/sagas?filter=attention%20%3D%3D%20%27unapplied_result%27")
        .await;
    assert_eq!(listed["items"][0]["correlation"], "o-1");
    let overview = node.get("/v1/overview").await;
    assert_eq!(overview["counts"]["unapplied"][0]["correlation"], "o-1");
    let metrics = node.get("/metrics").await;
    let line = "orlog_instances_unapplied_result{saga=\"payment\"} 1";
    assert!(metrics.as_str().unwrap().contains(line), "{metrics}");

    // The definition is still wrong: the dead letter comes back, and the instance stays marked.
    let redrive = format!(
        "/v1/dead-letters/{}/redrive",
        letter["id"].as_str().unwrap()
    );
    node.post(&redrive, &json!(null)).await.problem("OR0015");
    let marked = node.get(path).await;
    assert_eq!(
        (
            &marked["attention"],
            &marked["dead_letters"].as_array().unwrap().len()
        ),
        (&json!("unapplied_result"), &1)
    );
}

/// Starts a node whose saga cannot save the response of its charge, and returns it with its upstream.
async fn start_with_unsaved_charge() -> (Node, Arc<HttpUpstream>) {
    let bank = HttpUpstream::open().await;
    let dirs = Dirs::new(&[]);
    let effects = "[effects.\"pay.charge\"]\npath = \"/charge\"\n[effects.\"pay.refund\"]\npath = \"/refund\"\n";
    dirs.describe("bank", &format!("base_url = {:?}\n{effects}", bank.url));
    dirs.define(
        "payment",
        &format!("{RECEIPT}    undo: {{ effect: pay.refund }}\n"),
    );
    (dirs.start().await, bank)
}

/// Returns the paths of the requests that an upstream received.
fn paths(upstream: &HttpUpstream) -> Vec<String> {
    upstream
        .received()
        .iter()
        .map(|request| request.uri.path().to_owned())
        .collect()
}

/// Requirements: T3, T4.
#[tokio::test(flavor = "multi_thread")]
async fn cancelled_instance_compensates_an_effect_whose_response_could_not_be_saved() {
    let (node, bank) = start_with_unsaved_charge().await;
    node.pay("", "o-1", json!({})).await;
    let path = "/v1/sagas/payment/o-1";
    let marked = node
        .until("", path, |saga| saga["attention"] == "unapplied_result")
        .await;
    node.post(
        &format!("{path}/cancel"),
        &json!({ "reason": "wrong receipt" }),
    )
    .await;
    let ended = node
        .until("", path, |saga| saga["status"] == "cancelled")
        .await;
    assert_eq!(paths(&bank), ["/charge", "/refund"]);
    assert_eq!(
        (&ended["attention"], &ended["pending_work"]),
        (&Value::Null, &json!([]))
    );
    // No instance waits for the result any more.
    let letter = marked["dead_letters"][0]["id"].as_str().unwrap();
    let discarded = node
        .ask(
            Method::DELETE,
            "",
            &format!("/v1/dead-letters/{letter}"),
            &Value::Null,
        )
        .await;
    assert_eq!(discarded.0, StatusCode::NO_CONTENT, "{}", discarded.1);
}

/// Requirements: E9.
#[tokio::test(flavor = "multi_thread")]
async fn result_for_which_an_instance_waits_is_discarded_only_on_request() {
    let (node, bank) = start_with_unsaved_charge().await;
    node.pay("", "o-1", json!({})).await;
    let path = "/v1/sagas/payment/o-1";
    let marked = node
        .until("", path, |saga| saga["attention"] == "unapplied_result")
        .await;
    let letter = format!(
        "/v1/dead-letters/{}",
        marked["dead_letters"][0]["id"].as_str().unwrap()
    );
    let (status, problem) = node.ask(Method::DELETE, "", &letter, &Value::Null).await;
    let detail = problem["detail"].as_str().unwrap();
    assert_eq!(
        (status, &problem["code"]),
        (StatusCode::CONFLICT, &json!("OR0013"))
    );
    assert!(
        detail.contains("payment") && detail.contains("o-1") && detail.contains("--force"),
        "{detail}"
    );
    assert_eq!(node.get(path).await["attention"], "unapplied_result");
    let (status, response) = node
        .ask(
            Method::DELETE,
            "",
            &format!("{letter}?force=true"),
            &Value::Null,
        )
        .await;
    assert_eq!(status, StatusCode::NO_CONTENT, "{response}");
    let failed = node.end("", "o-1").await;
    assert_eq!(paths(&bank), ["/charge", "/refund"]);
    assert_eq!(failed["status"], "failed");
    assert_eq!(
        (&failed["attention"], &failed["pending_work"]),
        (&Value::Null, &json!([]))
    );
    assert_eq!(node.get("/v1/dead-letters").await["items"], json!([]));
}

/// Starts a node whose compensation reads the variable that the charge cannot save, and returns it
/// with its upstream and the path of the dead letter.
async fn start_with_refund_of_a_receipt() -> (Node, Arc<HttpUpstream>, String) {
    let bank = HttpUpstream::open().await;
    let dirs = Dirs::new(&[]);
    let effects = "[effects.\"pay.charge\"]\npath = \"/charge\"\n[effects.\"pay.refund\"]\npath = \"/refund\"\n";
    dirs.describe("bank", &format!("base_url = {:?}\n{effects}", bank.url));
    let undo = "    undo: { effect: pay.refund, data: { receipt: =vars.receipt } }\n";
    dirs.define("payment", &format!("{RECEIPT}{undo}"));

    let node = dirs.start().await;
    node.pay("", "o-1", json!({})).await;
    let marked = node
        .until("", "/v1/sagas/payment/o-1", |saga| {
            saga["attention"] == "unapplied_result"
        })
        .await;
    let id = marked["dead_letters"][0]["id"].as_str().unwrap();
    (node, bank, format!("/v1/dead-letters/{id}"))
}

#[tokio::test(flavor = "multi_thread")]
async fn compensation_with_null_fields_is_requested_only_on_request() {
    let (node, bank, letter) = start_with_refund_of_a_receipt().await;
    let discard = async |query: &str| {
        let path = format!("{letter}{query}");
        node.ask(Method::DELETE, "", &path, &Value::Null).await
    };

    // A paused instance would apply it later, without a question.
    node.post("/v1/sagas/payment/o-1/pause", &json!({})).await;
    let (status, problem) = discard("?force=true").await;
    assert_eq!(status, StatusCode::CONFLICT, "{problem}");
    assert!(problem.to_string().contains("paused"), "{problem}");
    node.post("/v1/sagas/payment/o-1/resume", &json!({})).await;

    let unconfirmed = ["", "?force=true"];
    for query in unconfirmed {
        let (status, problem) = discard(query).await;
        assert_eq!(status, StatusCode::CONFLICT, "{problem}");
        let detail = problem["detail"].as_str().unwrap();
        assert!(detail.contains("pay.refund (/receipt)"), "{detail}");
        assert!(detail.contains("--allow-null"), "{detail}");
    }
    assert_eq!(paths(&bank), ["/charge"]);

    let (status, response) = discard("?force=true&allow_null=true").await;
    assert_eq!(status, StatusCode::NO_CONTENT, "{response}");
    assert_eq!(node.end("", "o-1").await["status"], "failed");
    assert_eq!(paths(&bank), ["/charge", "/refund"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn result_is_redriven_with_edited_data() {
    let (node, bank, letter) = start_with_refund_of_a_receipt().await;
    let redrive = format!("{letter}/redrive");

    // Data that the definition cannot apply change nothing.
    let wrong = json!({ "data": { "receipt": null } });
    let detail = node.post(&redrive, &wrong).await.problem("OR0015");
    assert!(detail.contains("Nothing was changed"), "{detail}");
    let kept = node.get(&letter).await;
    assert_eq!(
        format!("/v1/dead-letters/{}", kept["id"].as_str().unwrap()),
        letter
    );
    node.post(&redrive, &json!({ "date": 1 }))
        .await
        .problem("OR0002");

    let edited = json!({ "data": { "receipt": { "id": "r-7" } } });
    let redriven = node.post(&redrive, &edited).await.ok();
    assert_eq!(redriven["applied"], true);
    let ended = node.end("", "o-1").await;
    assert_eq!(
        (&ended["status"], &ended["state"]["vars"]["receipt"]),
        (&json!("completed"), &json!("r-7"))
    );
    assert_eq!(paths(&bank), ["/charge"]);

    // The audit trail has the fingerprints of the response of the bank and of the edit.
    let edits_of = |trail: &Value| {
        let records = trail["items"].as_array().cloned().unwrap_or_default();
        let edits = records
            .into_iter()
            .filter(|record| record["edit"].is_object());
        edits.collect::<Vec<_>>()
    };
    let is_written = |trail: &Value| !edits_of(trail).is_empty();
    let trail = node.until("", "/v1/audit?limit=20", is_written).await;
    let edits = edits_of(&trail);
    let [record] = edits.as_slice() else {
        panic!("{trail}")
    };
    let fingerprint = |data: &str| {
        let digest = ring::digest::digest(&ring::digest::SHA256, data.as_bytes());
        json!(format!("sha256:{}", hex::encode(digest.as_ref())))
    };
    assert_eq!(record["route"], "POST /v1/dead-letters/{id}/redrive");
    assert_eq!(
        record["edit"]["after"],
        fingerprint(r#"{"receipt":{"id":"r-7"}}"#)
    );
    assert_ne!(record["edit"]["before"], record["edit"]["after"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn instance_shows_the_open_circuit_breaker_of_its_upstream() {
    let hotel = HttpUpstream::open().await;
    for _ in 0..20 {
        hotel.script(503, &[], "down");
    }
    let breaker = "breaker = { failure_threshold = 1, open_duration = \"1h\" }";
    let node = start(&hotel, breaker, &[]).await;
    node.pay("", "o-1", json!({})).await;
    hotel.wait_for_requests(1).await;
    let find = async || {
        let saga = node.get("/v1/sagas/payment/o-1").await;
        (saga["breakers"][0]["upstream"] == "hotel").then_some(saga)
    };
    let saga = until("the breaker is shown", find).await;
    assert_eq!(
        saga["breakers"],
        json!([{ "upstream": "hotel", "state": "open", "work": ["pay.charge"] }])
    );
    let attempt = &saga["attempts"][0];
    assert_eq!(
        (&attempt["code"], &attempt["response"]),
        (&json!("http_503"), &json!("down"))
    );
    assert_eq!(
        attempt["message"],
        "hotel: POST /rooms returned HTTP 503: down"
    );
}
