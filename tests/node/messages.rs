//! Messages between contexts: jobs, conversations, mail, rights, timeouts, withdrawal and errors.

mod link;
mod mail;
mod metrics;
mod nodes;
mod over_nats;
mod pages;

use axum::body::Body;
use axum::http::{Method, Request};
use orlog_effect::{FunctionProvider, Policy, ProviderError};
use serde_json::{Value, json};

use crate::harness::http::HttpResponse;
use crate::harness::node::{Node, NodeBuilder};
use crate::operations::issuer::{Jwks, Key};
use crate::operations::node::Node as TokenNode;

/// Returns a builder of the node `one`; the result of a job of type `echo` is its script.
fn builder() -> NodeBuilder {
    let jobs = FunctionProvider::new()
        .effect("job.echo", |call| async move {
            Ok(call.payload["script"].clone())
        })
        .effect("job.fail", |_| async {
            Err::<Value, _>(ProviderError::permanent("exit_1", "no such file"))
        });
    NodeBuilder::new()
        .config(|config| "one".clone_into(&mut config.node_name))
        .upstream(jobs.upstream("jobs", Policy::default()))
}

fn job(to: &str) -> Value {
    let flow = json!({ "jobs": [{ "id": "a", "type": "echo", "script": "seven" }] });
    json!({ "to": to, "type": "job", "flow": flow })
}

fn chat(to: &str, thread: &str, body: &str) -> Value {
    json!({ "to": to, "type": "chat", "thread": thread, "body": body })
}

async fn send(node: &Node, tenant: &str, id: &str, message: &Value) -> HttpResponse {
    let request = Request::builder()
        .method(Method::POST)
        .uri("/v1/messages")
        .header("x-tenant-id", tenant);
    let request = request
        .header("content-type", "application/json")
        .header("idempotency-key", id);
    node.send(request.body(Body::from(message.to_string())).unwrap())
        .await
}

async fn until_status(node: &Node, tenant: &str, id: &str, status: &str) -> Value {
    node.until(tenant, &format!("/v1/messages/{id}"), |message| {
        message["status"] == status
    })
    .await
}

/// Waits for the only message that a context has received, and returns it.
async fn received(node: &Node, tenant: &str) -> Value {
    let page = node
        .until(tenant, "/v1/messages", |page| {
            page["items"][0]["id"].is_string()
        })
        .await;
    page["items"][0].clone()
}

async fn change(node: &Node, tenant: &str, id: &Value, verb: &str, body: &Value) -> HttpResponse {
    let path = format!("/v1/messages/{}/{verb}", id.as_str().unwrap());
    node.ask(Method::POST, tenant, &path, body.to_string())
        .await
}

/// Creates the record of a context.
async fn context(node: &Node, tenant: &str, readers: &[&str], executors: &[&str]) {
    let lists = json!({ "admins": ["user:root"], "readers": readers, "executors": executors });
    node.ask(
        Method::PUT,
        "",
        &format!("/v1/contexts/{tenant}"),
        lists.to_string(),
    )
    .await
    .ok();
}

/// Requirements: F6.
#[tokio::test(flavor = "multi_thread")]
async fn job_executes_a_flow_in_the_context_of_the_receiver_and_returns_its_results() {
    let node = builder().start().await;
    context(&node, "b", &[], &["context:a@one"]).await;
    let sent = send(&node, "a", "m-1", &job("b@one")).await.ok();
    assert_eq!(
        (&sent["id"], &sent["to"], &sent["box"]),
        (&json!("m-1"), &json!("b@one"), &json!("out"))
    );
    let ended = until_status(&node, "a", "m-1", "processed").await;
    assert_eq!(ended["result"], json!({ "a": "seven" }));
    assert!(ended["delivered_at"].is_string() && ended["acknowledged_at"].is_string());
    let received = received(&node, "b").await;
    assert_eq!(
        (&received["from"], &received["message_id"]),
        (&json!("a@one"), &json!("m-1"))
    );
    let flow = node
        .ask(
            Method::GET,
            "b",
            &format!("/v1/flows/{}", received["id"].as_str().unwrap()),
            "",
        )
        .await;
    assert_eq!(
        (&flow.ok()["status"], &flow.ok()["user"]),
        (&json!("finished"), &json!("a@one"))
    );
    let again = send(&node, "a", "m-1", &job("b@one")).await.ok();
    assert_eq!(
        again["ended_at"], ended["ended_at"],
        "a repetition has no effect"
    );
    send(&node, "a", "m-1", &job("c@one"))
        .await
        .rejected(409, "OR0113");
    node.stop().await;
}

/// Requirements: F6.
#[tokio::test(flavor = "multi_thread")]
async fn failed_job_returns_its_failure() {
    let node = builder().start().await;
    let flow = json!("jobs: [{ id: a, type: fail, script: x }]");
    send(
        &node,
        "a",
        "m-1",
        &json!({ "to": "b", "type": "job", "flow": flow }),
    )
    .await
    .ok();
    let ended = until_status(&node, "a", "m-1", "error").await;
    assert_eq!(ended["failure"]["code"], "child_failed", "{ended}");
    node.stop().await;
}

/// Requirements: F6.
#[tokio::test(flavor = "multi_thread")]
async fn conversation_has_a_history_in_order_and_its_result_returns() {
    let node = builder().start().await;
    context(&node, "a", &["context:b@one"], &[]).await;
    context(&node, "b", &["context:a@one"], &[]).await;
    send(&node, "a", "q-1", &chat("b", "t", "how many?"))
        .await
        .ok();
    let question = received(&node, "b").await;
    change(
        &node,
        "b",
        &question["id"],
        "acknowledge",
        &json!({ "user": "bob" }),
    )
    .await
    .ok();
    until_status(&node, "a", "q-1", "acknowledged").await;
    send(&node, "b", "r-1", &chat("a", "t", "seven")).await.ok();
    node.until("a", "/v1/messages?thread=t", |page| {
        page["items"].as_array().is_some_and(|all| all.len() == 2)
    })
    .await;
    send(&node, "a", "q-2", &chat("b", "t", "thanks"))
        .await
        .ok();
    send(&node, "a", "other", &chat("b", "u", "else"))
        .await
        .ok();
    for (tenant, boxes) in [("a", ["out", "in", "out"]), ("b", ["in", "out", "in"])] {
        let thread = node
            .until(tenant, "/v1/messages?thread=t", |page| {
                page["items"].as_array().is_some_and(|all| all.len() == 3)
            })
            .await;
        let found: Vec<_> = thread["items"].as_array().unwrap().iter().collect();
        let bodies: Vec<_> = found
            .iter()
            .map(|message| message["body"].as_str().unwrap())
            .collect();
        assert_eq!(bodies, ["how many?", "seven", "thanks"]);
        let found: Vec<_> = found
            .iter()
            .map(|message| message["box"].as_str().unwrap())
            .collect();
        assert_eq!(found, boxes);
        let first = node
            .ask(Method::GET, tenant, "/v1/messages?thread=t&limit=2", "")
            .await
            .ok();
        let rest = format!(
            "/v1/messages?thread=t&cursor={}",
            first["next_cursor"].as_str().unwrap()
        );
        let rest = node.ask(Method::GET, tenant, &rest, "").await.ok();
        assert_eq!(
            (
                &rest["items"][0]["body"],
                rest["items"].as_array().unwrap().len()
            ),
            (&json!("thanks"), 1)
        );
    }
    change(
        &node,
        "b",
        &question["id"],
        "lines",
        &json!({ "text": "counted" }),
    )
    .await
    .ok();
    change(
        &node,
        "b",
        &question["id"],
        "process",
        &json!({ "result": { "n": 7 }, "user": "bob" }),
    )
    .await
    .ok();
    let ended = until_status(&node, "a", "q-1", "processed").await;
    assert_eq!(
        (&ended["result"]["n"], &ended["lines"][0]["text"]),
        (&json!(7), &json!("counted"))
    );
    let again = change(
        &node,
        "b",
        &question["id"],
        "reject",
        &json!({ "reason": "late" }),
    )
    .await;
    assert!(again.rejected(409, "OR0013").contains("has ended"));
    let at_receiver = node
        .ask(
            Method::GET,
            "b",
            &format!("/v1/messages/{}", question["id"].as_str().unwrap()),
            "",
        )
        .await;
    assert_eq!(at_receiver.ok()["by"], "bob");
    node.stop().await;
}

/// Requirements: F6.
#[tokio::test(flavor = "multi_thread")]
async fn denied_context_looks_like_an_unknown_one() {
    let node = builder().start().await;
    context(&node, "b", &["context:a@one"], &["context:c@one"]).await;
    context(
        &node,
        "closed",
        &[],
        &["context:other@one", "context:a@two"],
    )
    .await;
    send(&node, "a", "job-1", &job("b")).await.ok();
    let job = until_status(&node, "a", "job-1", "error").await;
    assert_eq!(
        job["failure"]["code"], "OR0111",
        "a reader sends no job: {job}"
    );
    send(
        &node,
        "a",
        "mail-1",
        &json!({ "to": "b", "type": "mail", "subject": "s", "body": "x" }),
    )
    .await
    .ok();
    received(&node, "b").await;
    let reason = async |to: &str| {
        let id = format!("to-{to}");
        send(&node, "a", &id, &chat(to, "t", "x")).await.ok();
        let message = until_status(&node, "a", &id, "error").await;
        assert_eq!(message["delivered_at"], Value::Null);
        message["failure"].to_string().replace(to, "*")
    };
    let closed = reason("closed").await;
    assert!(closed.contains("does not exist, or"), "{closed}");
    let page = node
        .ask(Method::GET, "closed", "/v1/messages", "")
        .await
        .ok();
    assert_eq!(page["items"], json!([]), "nothing is stored");
    node.stop().await;
}

/// Requirements: F2, F6.
#[tokio::test(flavor = "multi_thread")]
async fn user_sends_only_where_it_may_act_unless_the_context_is_listed() {
    let key = Key::ed("a");
    let jwks = Jwks::open(&[&key]).await;
    let node = TokenNode::with_tokens(|config| {
        config.auth.jwt.jwks_url.clone_from(&jwks.url);
        config.node_name = "one".to_owned();
    })
    .await;
    let [one, both, operator] = [
        key.token("ann", "worker", &json!(["a"])),
        key.token("bob", "worker", &json!(["a", "b"])),
        key.token("cid", "operator", &json!(["a", "b"])),
    ];
    let flow = json!({ "jobs": [{ "id": "a", "type": "t", "script": "s" }] });
    let job = json!({ "to": "b", "type": "job", "flow": flow });
    for (token, message, status) in [
        (&one, chat("b", "t", "x"), "error"),
        (&both, chat("b", "t", "x"), "dispatched"),
        (&both, job.clone(), "error"),
        (&operator, job, "acknowledged"),
    ] {
        let sent = node
            .call(token, "a", "POST", "/v1/messages", Some(&message))
            .await
            .json();
        let path = format!("/v1/messages/{}", sent["id"].as_str().unwrap());
        let settled = orlog_testkit::wait::until("the delivery has ended", || async {
            let message = node.call(token, "a", "GET", &path, None).await.json();
            let is_settled = message["delivered_at"].is_string() || message["status"] == "error";
            is_settled.then_some(message)
        });
        let settled = settled.await;
        assert_eq!(settled["status"], status, "{settled}");
        let code = settled["failure"]["code"].as_str();
        assert_eq!(code, (status == "error").then_some("OR0111"));
    }
}

/// Requirements: F6.
#[tokio::test(flavor = "multi_thread")]
async fn cancelled_job_stops_its_flow_and_cancelled_mail_is_withdrawn() {
    let node = builder().start().await;
    let flow = json!({ "jobs": [{ "id": "a", "type": "no_runner", "script": "s" }] });
    send(
        &node,
        "a",
        "m-1",
        &json!({ "to": "b", "type": "job", "flow": flow }),
    )
    .await
    .ok();
    until_status(&node, "a", "m-1", "acknowledged").await;
    let received = received(&node, "b").await["id"]
        .as_str()
        .unwrap()
        .to_owned();
    node.until("b", &format!("/v1/flows/{received}"), |flow| {
        flow["status"] == "dispatched"
    })
    .await;
    let cancelled = change(
        &node,
        "a",
        &json!("m-1"),
        "cancel",
        &json!({ "reason": "no need" }),
    )
    .await
    .ok();
    assert_eq!(
        (&cancelled["status"], &cancelled["cancelled"]),
        (&json!("error"), &json!(true))
    );
    node.until("b", &format!("/v1/flows/{received}"), |flow| {
        flow["cancelled"] == true
    })
    .await;
    let withdrawn = node
        .ask(Method::GET, "b", &format!("/v1/messages/{received}"), "")
        .await
        .ok();
    assert!(
        withdrawn["failure"]["message"]
            .as_str()
            .unwrap()
            .contains("no need"),
        "{withdrawn}"
    );
    change(&node, "a", &json!("m-1"), "cancel", &json!({}))
        .await
        .rejected(409, "OR0013");
    let foreign = change(&node, "b", &json!(received), "cancel", &json!({})).await;
    assert!(foreign.rejected(400, "OR0008").contains("only its sender"));
    node.stop().await;
}

/// Requirements: F6.
#[tokio::test(flavor = "multi_thread")]
async fn timeouts_of_a_message_end_it_with_their_codes() {
    let node = builder().start().await;
    let with = |timeouts: Value| {
        let mut message = chat("b", "t", "x");
        message["timeouts"] = timeouts;
        message
    };
    send(
        &node,
        "a",
        "ack",
        &with(json!({ "acknowledgement": "50ms" })),
    )
    .await
    .ok();
    let ended = until_status(&node, "a", "ack", "error").await;
    assert_eq!(ended["failure"]["code"], "acknowledgement_timeout");
    let late = received(&node, "b").await;
    change(&node, "b", &late["id"], "acknowledge", &json!({}))
        .await
        .ok();
    send(&node, "a", "result", &with(json!({ "result": "50ms" })))
        .await
        .ok();
    let page = node
        .until("b", "/v1/messages", |page| {
            page["items"].as_array().is_some_and(|all| all.len() == 2)
        })
        .await;
    let second = page["items"]
        .as_array()
        .unwrap()
        .iter()
        .find(|it| it["message_id"] == "result")
        .unwrap();
    change(&node, "b", &second["id"], "acknowledge", &json!({}))
        .await
        .ok();
    let ended = until_status(&node, "a", "result", "error").await;
    assert_eq!(ended["failure"]["code"], "result_timeout");
    let first = node
        .ask(Method::GET, "a", "/v1/messages/ack", "")
        .await
        .ok();
    assert_eq!(
        first["status"], "error",
        "a late acknowledgement changes nothing"
    );
    node.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn invalid_messages_are_rejected_with_the_field() {
    let node = builder().start().await;
    let flow = json!({ "jobs": [] });
    let long = "x".repeat(201);
    let cases = [
        (
            json!({ "to": "b@two", "type": "chat", "body": "x" }),
            422,
            "OR0110",
            "orlog peer add",
        ),
        (
            json!({ "to": "b@", "type": "chat", "body": "x" }),
            422,
            "OR0114",
            "to: ",
        ),
        (
            json!({ "to": "b", "type": "chat" }),
            422,
            "OR0114",
            "body: a chat or mail has a body",
        ),
        (
            json!({ "to": "b", "type": "mail", "body": "x", "flow": {} }),
            422,
            "OR0114",
            "body: ",
        ),
        (
            json!({ "to": "b", "type": "job", "body": "x" }),
            422,
            "OR0114",
            "flow: a job has a flow",
        ),
        (
            json!({ "to": "b", "type": "job", "flow": flow }),
            422,
            "OR0092",
            "1 to 1000 jobs",
        ),
        (
            json!({ "to": "b", "type": "fax", "body": "x" }),
            422,
            "OR0002",
            "/type",
        ),
        (
            json!({ "to": "b", "type": "chat", "body": "x", "subject": "a\r\nBcc: x" }),
            422,
            "OR0114",
            "subject: ",
        ),
        (
            json!({ "to": "b", "type": "chat", "body": "x", "thread": long }),
            422,
            "OR0114",
            "201 bytes",
        ),
        (
            json!({ "to": "b", "type": "chat", "body": "x", "timeouts": { "result": "0s" } }),
            422,
            "OR0114",
            "timeouts.result: ",
        ),
        (
            json!({ "to": "b", "type": "chat", "body": "x".repeat(300_000) }),
            413,
            "OR0005",
            "262144",
        ),
        (
            json!({ "to": "b", "type": "chat", "body": "x".repeat(10 << 20) }),
            413,
            "OR0005",
            "limit",
        ),
    ];
    for (message, status, code, expected) in cases {
        let detail = send(&node, "a", "m-1", &message)
            .await
            .rejected(status, code);
        assert!(detail.contains(expected), "{detail}");
    }
    let id = send(&node, "a", "in-1", &chat("b", "t", "x"))
        .await
        .rejected(400, "OR0008");
    assert!(id.contains("starts with \"in-\""), "{id}");
    for id in ["none", "in-none"] {
        node.ask(Method::GET, "a", &format!("/v1/messages/{id}"), "")
            .await
            .rejected(404, "OR0112");
    }
    change(&node, "a", &json!("none"), "cancel", &json!({}))
        .await
        .rejected(404, "OR0112");
    change(&node, "a", &json!("in-none"), "acknowledge", &json!({}))
        .await
        .rejected(404, "OR0112");
    change(&node, "a", &json!("none"), "acknowledge", &json!({}))
        .await
        .rejected(400, "OR0008");
    let lists = node
        .ask(Method::GET, "a", "/v1/messages?box=out", "")
        .await
        .ok();
    assert_eq!(
        lists["items"],
        json!([]),
        "a rejected message stores nothing"
    );
    node.ask(Method::GET, "a", "/v1/messages?thread=t&cursor=x", "")
        .await
        .rejected(400, "OR0008");
    node.stop().await;
}

const FORGER: &str = "
saga: forger
version: 1
start: Forged
correlate: id
vars: { id: =event.id }
steps:
  - { id: a, do: { effect: orlog.peers, data: { type: deliver } } }
";

#[tokio::test(flavor = "multi_thread")]
async fn definition_cannot_send_messages_with_the_effect_of_the_built_in_saga() {
    let node = builder().definition("forger", FORGER).start().await;
    node.post("/v1/sagas/forger", &json!({ "id": "f-1" }))
        .await
        .ok();
    let failed = node
        .until("", "/v1/sagas/forger/f-1", |saga| {
            saga["status"] == "failed"
        })
        .await;
    assert!(
        failed["last_error"].to_string().contains("not_permitted"),
        "{}",
        failed["last_error"]
    );
    node.stop().await;
}

/// Requirements: F6.
#[tokio::test(flavor = "multi_thread")]
async fn messages_continue_after_a_restart() {
    let first = builder().start().await;
    let flow = json!({ "jobs": [{ "id": "a", "type": "no_runner", "script": "s" }] });
    send(
        &first,
        "a",
        "m-1",
        &json!({ "to": "b", "type": "job", "flow": flow }),
    )
    .await
    .ok();
    send(&first, "a", "m-2", &chat("b", "t", "x")).await.ok();
    until_status(&first, "a", "m-1", "acknowledged").await;
    let chat = first
        .until("b", "/v1/messages?type=chat", |page| {
            page["items"][0]["id"].is_string()
        })
        .await;
    let dir = first.stop().await;
    let jobs = FunctionProvider::new().effect("job.no_runner", |_| async { Ok(json!("late")) });
    let second = NodeBuilder::on(dir).config(|config| "one".clone_into(&mut config.node_name));
    let second = second
        .upstream(jobs.upstream("jobs", Policy::default()))
        .start()
        .await;
    let ended = until_status(&second, "a", "m-1", "processed").await;
    assert_eq!(ended["result"], json!({ "a": "late" }));
    change(&second, "b", &chat["items"][0]["id"], "process", &json!({}))
        .await
        .ok();
    until_status(&second, "a", "m-2", "processed").await;
    second.stop().await;
}
