//! Four-eyes rules of human tasks: `not_by` binds every caller, whatever its roles.

use std::time::Instant;

use orlog::config::Config;
use orlog_testkit::WAIT_TIMEOUT;
use serde_json::{Value, json};

use crate::harness::http::HttpResponse;
use crate::operations::issuer::{Jwks, Key, claims};
use crate::operations::node::Node;

const PAYMENT: &str = "
saga: payment
version: 1
correlate: paymentId
start: PaymentRequested
vars: { paymentId: =event.paymentId }
steps:
  - { id: check, do: { human: { title: Check, roles: clerk, not_by: starter } }, ok: Checked }
  - { id: release, do: { human: { title: Release, roles: clerk, not_by: [starter, previous] } }, ok: Released }
";
const TRIP: &str = "
saga: trip
version: 1
correlate: tripId
start: TripRequested
vars: { tripId: =event.tripId }
steps:
  - { id: pay, do: { saga: payment, correlation: =vars.tripId + '-pay', data: { paymentId: =vars.tripId + '-pay' } } }
";

fn with_payment(config: &mut Config) {
    let dir = config.definitions_dir.as_ref().unwrap();
    std::fs::write(dir.join("payment.saga.yaml"), PAYMENT).unwrap();
    std::fs::write(dir.join("trip.saga.yaml"), TRIP).unwrap();
}

fn requested(id: &str, user: Option<&str>) -> Value {
    let mut event = json!({
        "specversion": "1.0", "id": format!("requested-{id}"), "source": "/test", "type": "PaymentRequested",
        "data": { "paymentId": id },
    });
    if let Some(user) = user {
        event["orloguser"] = json!(user);
    }
    event
}

/// Waits for the open task of a step; returns its path.
async fn task(node: &Node, headers: &[(&str, &str)], correlation: &str, tag: &str) -> String {
    let deadline = Instant::now() + WAIT_TIMEOUT;
    loop {
        let path = format!("/v1/tasks?correlation={correlation}");
        let tasks = node.send("GET", &path, headers, None).await.ok();
        if let Some(task) = tasks["items"]
            .as_array()
            .unwrap()
            .iter()
            .find(|task| task["tag"] == tag)
        {
            return format!("/v1/tasks/{}", task["id"].as_str().unwrap());
        }
        assert!(Instant::now() < deadline, "{tasks}");
        tokio::task::yield_now().await;
    }
}

struct Team {
    node: Node,
    key: Key,
    _jwks: Jwks,
}

impl Team {
    async fn start() -> Self {
        let key = Key::ed("a");
        let jwks = Jwks::open(&[&key]).await;
        let node = Node::with_tokens(|config| {
            config.auth.jwt.jwks_url.clone_from(&jwks.url);
            with_payment(config);
        })
        .await;
        Self {
            node,
            key,
            _jwks: jwks,
        }
    }

    fn bearer(&self, user: &str, roles: &Value) -> String {
        let mut claims = claims(user, "", &json!("acme"));
        claims["role"] = roles.clone();
        claims["groups"] = json!(["clerk"]);
        format!("Bearer {}", self.key.sign(&claims))
    }

    async fn send(&self, user: &str, roles: Value, path: &str, body: &Value) -> HttpResponse {
        let bearer = self.bearer(user, &roles);
        self.node
            .send("POST", path, &[("authorization", &bearer)], Some(body))
            .await
    }

    async fn task(&self, correlation: &str, tag: &str) -> String {
        let bearer = self.bearer("mia", &json!("manager"));
        task(&self.node, &[("authorization", &bearer)], correlation, tag).await
    }

    /// Checks that a user can neither claim, complete, nor be assigned a task, also with the roles of an
    /// operator and of an admin.
    async fn check_excluded(&self, task: &str, user: &str, rule: &str) {
        let outcome = if rule == "starter" {
            "Checked"
        } else {
            "Released"
        };
        for roles in [json!("approver"), json!("operator"), json!("admin")] {
            let claimed = self
                .send(user, roles.clone(), &format!("{task}/claim"), &json!({}))
                .await;
            let detail = claimed.rejected(409, "OR0027");
            assert!(
                detail.contains(&format!("the task excludes {user}")),
                "{detail}"
            );
            let body = json!({ "outcome": outcome });
            let completed = self
                .send(user, roles, &format!("{task}/complete"), &body)
                .await;
            completed.rejected(409, "OR0027");
        }
        let body = json!({ "assignee": user, "roles": [] });
        let assigned = self
            .send("mia", json!("manager"), &format!("{task}/assign"), &body)
            .await;
        assert!(
            assigned
                .rejected(409, "OR0027")
                .contains(&format!("(not_by: {rule})")),
            "{assigned:?}"
        );
    }

    async fn complete(&self, task: &str, user: &str, outcome: &str) {
        let body = json!({ "outcome": outcome });
        self.send(user, json!("approver"), &format!("{task}/complete"), &body)
            .await
            .ok();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn starter_and_previous_user_are_excluded_in_every_role() {
    let team = Team::start().await;
    let events = "/v1/events";
    // The caller is the user of its events.
    let stated = requested("p-1", Some("bob"));
    let detail = team
        .send("ada", json!("publisher"), events, &stated)
        .await
        .rejected(403, "OR0042");
    assert!(
        detail.contains("the caller is ada and cannot act as \"bob\""),
        "{detail}"
    );
    team.send("ada", json!("publisher"), events, &requested("p-1", None))
        .await
        .ok();

    let check = team.task("p-1", "check").await;
    team.check_excluded(&check, "ada", "starter").await;
    let body = json!({ "assignee": "bob", "roles": [] });
    let detail = team
        .send("eve", json!("operator"), &format!("{check}/assign"), &body)
        .await;
    assert!(
        detail
            .rejected(403, "OR0042")
            .contains("roles that grant it: manager, admin"),
        "{detail:?}"
    );
    team.complete(&check, "bob", "Checked").await;

    let release = team.task("p-1", "release").await;
    team.check_excluded(&release, "bob", "previous").await;
    // The manager empties the roles; the rules remain.
    let open = json!({ "roles": [] });
    team.send("mia", json!("manager"), &format!("{release}/assign"), &open)
        .await
        .ok();
    team.check_excluded(&release, "bob", "previous").await;
    team.complete(&release, "carol", "Released").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn services_state_their_users_and_child_sagas_inherit_the_starter() {
    let team = Team::start().await;
    let events = "/v1/events";
    team.send(
        "desk",
        json!("admin"),
        events,
        &requested("p-1", Some("dora")),
    )
    .await
    .ok();
    let check = team.task("p-1", "check").await;
    team.check_excluded(&check, "dora", "starter").await;
    team.complete(&check, "desk", "Checked").await;

    let mut trip = requested("t-1", None);
    (trip["type"], trip["data"]) = (json!("TripRequested"), json!({ "tripId": "t-1" }));
    team.send("ada", json!("publisher"), events, &trip)
        .await
        .ok();
    let check = team.task("t-1-pay", "check").await;
    team.check_excluded(&check, "ada", "starter").await;
    team.complete(&check, "bob", "Checked").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn start_request_records_its_caller_and_waits_only_for_readers() {
    let team = Team::start().await;
    let (path, data) = ("/v1/sagas/payment", json!({ "paymentId": "p-1" }));
    let waiting = format!("{path}?wait=1ms");
    let denied = team.send("ada", json!("publisher"), &waiting, &data).await;
    assert!(
        denied
            .rejected(403, "OR0042")
            .contains("requires the right to read"),
        "{denied:?}"
    );
    team.send("ada", json!("viewer"), path, &data)
        .await
        .rejected(403, "OR0042");
    team.send("ada", json!("publisher"), path, &data).await.ok();
    let check = team.task("p-1", "check").await;
    team.check_excluded(&check, "ada", "starter").await;
    team.send("eve", json!("operator"), &waiting, &data)
        .await
        .ok();
}

#[tokio::test(flavor = "multi_thread")]
async fn unknown_starter_excludes_all_users_without_authentication() {
    let node = Node::start(with_payment).await;
    let post = async |path: String, body: Value| node.send("POST", &path, &[], Some(&body)).await;
    post("/v1/events".to_owned(), requested("p-1", None))
        .await
        .ok();
    let check = task(&node, &[], "p-1", "check").await;
    let bob = json!({ "user": "bob", "roles": ["clerk"], "outcome": "Checked" });
    let detail = post(format!("{check}/complete"), bob.clone())
        .await
        .rejected(409, "OR0027");
    assert!(
        detail.contains("the instance does not record that user"),
        "{detail}"
    );

    // Without authentication, Orlog trusts the stated users.
    post("/v1/events".to_owned(), requested("p-2", Some("ada")))
        .await
        .ok();
    let check = task(&node, &[], "p-2", "check").await;
    let ada = json!({ "user": "ada", "roles": ["clerk"], "outcome": "Checked" });
    post(format!("{check}/complete"), ada)
        .await
        .rejected(409, "OR0027");
    post(format!("{check}/complete"), bob).await.ok();
}
