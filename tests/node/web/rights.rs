//! Callers with narrow roles, and users whom a task excludes.

use orlog::config::AuthMode;
use serde_json::{Value, json};

use crate::operations::issuer::{AUDIENCE, ISSUER, Key};
use crate::web::site::Site;

const PAYMENT: &str = "
saga: payment
version: 1
correlate: paymentId
start: PaymentRequested
vars: { paymentId: =event.paymentId }
steps:
  - { id: check, do: { human: { title: Check the payment, roles: clerk, not_by: starter } }, ok: Checked }
";

async fn open(key: &Key) -> Site {
    let public = serde_json::from_value(key.public()).unwrap();
    Site::open_with(|config| {
        config.auth.mode = AuthMode::Jwt;
        config.auth.jwt.keys = vec![public];
        ISSUER.clone_into(&mut config.auth.jwt.issuer);
        config.auth.jwt.audience = vec![AUDIENCE.to_owned()];
        let dir = config.definitions_dir.clone().unwrap();
        std::fs::write(dir.join("payment.saga.yaml"), PAYMENT).unwrap();
    })
    .await
}

impl Site {
    fn log_in(&mut self, key: &Key, user: &str, role: &str) {
        let mut claims = crate::operations::issuer::claims(user, role, &json!("*"));
        claims["groups"] = json!(["clerk"]);
        let script = format!(
            "sessionStorage.setItem('orlog.token', '{}')",
            key.sign(&claims)
        );
        self.browser.eval(&script);
        let url = format!("{}/?as={user}", self.url);
        self.browser.navigate(&url);
    }

    fn navigation(&mut self) -> Value {
        self.browser
            .eval("[...document.querySelectorAll('#bar nav a')].map((link) => link.textContent)")
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn narrow_roles_see_only_their_views_and_a_sentence_for_the_others() {
    let key = Key::ed("a");
    let mut site = open(&key).await;
    site.go("/");
    site.browser.wait_for_text("Authentication required");
    // The browser logs the rejected requests.
    site.browser.record();

    site.log_in(&key, "ada", "approver");
    site.browser.wait_for_text("Inbox");
    assert_eq!(site.navigation(), json!(["Tasks"]));
    site.go("/instances/order/o-1");
    site.browser
        .wait_for_text("Your roles do not permit this view");
    site.browser
        .wait_for_text("requires the right “read”. Your roles: approver");
    site.browser.click("link", "Go to Tasks");
    site.browser.wait_for_text("Inbox");

    site.log_in(&key, "robot", "worker");
    site.browser.wait_for_text("All statuses");
    assert_eq!(site.navigation(), json!(["Messages"]));

    site.log_in(&key, "shop", "publisher");
    site.browser.wait_for_text("This page has no view for them");
    assert_eq!(site.navigation(), json!([]));
    site.picture("no-view");
    site.log_in(&key, "eve", "auditor");
    site.browser.wait_for_text("Needs attention");
    assert_eq!(site.navigation().as_array().unwrap().len(), 13);
    site.was_quiet();
}

#[tokio::test(flavor = "multi_thread")]
async fn excluded_user_reads_why_and_has_no_buttons() {
    let key = Key::ed("a");
    let mut site = open(&key).await;
    let event = json!({
        "specversion": "1.0", "id": "p-1", "source": "/test", "type": "PaymentRequested",
        "data": { "paymentId": "p-1" },
    });
    let http = orlog_effect::http::client().build().unwrap();
    let token = key.token("ada", "operator", &json!("*"));
    let published = http
        .post(format!("{}/v1/events", site.url))
        .bearer_auth(token)
        .json(&event);
    assert_eq!(published.send().await.unwrap().status(), 202);

    site.go("/");
    site.browser.wait_for_text("Authentication required");
    site.browser.record();
    site.log_in(&key, "ada", "operator");
    site.go("/tasks");
    site.browser.wait_for_text("Check the payment");
    site.browser.click("link", "Check the payment");
    site.browser
        .wait_for_text("You cannot claim or complete this task: you started this instance");
    site.browser.wait_for_text("ada started this instance");
    site.browser
        .until("!document.querySelector('.head button')");
    site.picture("excluded-user");

    let task = site.browser.eval("location.hash.slice(1)");
    site.log_in(&key, "bob", "approver");
    site.go(task.as_str().unwrap());
    site.browser.wait_for_text("ada started this instance");
    site.browser.click("button", "Claim: Check the payment");
    site.browser.click("button", "Claim");
    site.browser.wait_for_text("claimed by bob");
    site.was_quiet();
}

#[tokio::test(flavor = "multi_thread")]
async fn buttons_of_schedules_and_definitions_require_rights() {
    let key = Key::ed("a");
    let mut site = open(&key).await;
    let http = orlog_effect::http::client().build().unwrap();
    let spec = json!({ "saga": "order", "every": "1h" });
    let put = http.put(format!("{}/v1/schedules/hourly", site.url));
    let put = put
        .bearer_auth(key.token("ada", "operator", &json!("*")))
        .json(&spec);
    assert_eq!(put.send().await.unwrap().status(), 200);
    site.go("/");
    site.browser.wait_for_text("Authentication required");
    site.browser.record();

    let buttons =
        "[...document.querySelectorAll('.head button')].map((button) => button.textContent)";
    for (user, role, of_schedule, of_definition) in [
        ("eve", "auditor", json!([]), json!([])),
        (
            "ada",
            "operator",
            json!(["Trigger", "Pause", "Delete"]),
            json!(["Start"]),
        ),
    ] {
        site.log_in(&key, user, role);
        site.go("/schedules/hourly");
        site.browser.wait_for_text("Next starts");
        assert_eq!(site.browser.eval(buttons), of_schedule, "{role}");
        site.go("/definitions/order");
        site.browser.wait_for_text("Dependencies");
        assert_eq!(site.browser.eval(buttons), of_definition, "{role}");
        site.go("/definitions");
        site.browser.wait_for_text("Versions in use");
        assert_eq!(
            site.browser.eval("document.querySelector('.head a')"),
            Value::Null,
            "{role}"
        );
        site.go("/deploy");
        site.browser
            .wait_for_text("A deployment requires the right “admin”");
    }
    site.was_quiet();
}
