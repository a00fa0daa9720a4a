//! Control requests for an instance, button by button; the node confirms each.

use std::sync::atomic::Ordering;

use serde_json::{Value, json};

use crate::web::site::Site;

impl Site {
    async fn order_is(&self, id: &str, fits: impl Fn(&Value) -> bool) -> Value {
        self.node
            .until("", &format!("/v1/sagas/order/{id}"), fits)
            .await
    }

    /// Presses a button, enters reason and user, and confirms.
    fn instruct(&mut self, verb: &str, confirm: &str) {
        self.browser.click("button", verb);
        self.browser.fill("Reason", "approved by support");
        self.browser.fill("User name", "alice");
        self.browser.click("button", confirm);
        self.browser.until("!document.querySelector('dialog')");
    }
}

fn notes(order: &Value) -> String {
    order["history"]["items"].to_string()
}

#[tokio::test(flavor = "multi_thread")]
async fn running_instance_is_paused_resumed_signalled_and_cancelled() {
    let mut site = Site::open().await;
    for id in ["o-1", "o-2"] {
        site.node.order("", id, 5, "running").await;
    }
    site.go("/instances/order/o-1");
    site.instruct("Pause", "Pause");
    site.browser.wait_for_text("o-1 is paused");
    site.browser.wait_for_text("Paused: inputs are buffered");
    let paused = site.order_is("o-1", |order| order["paused"] == true).await;
    assert!(notes(&paused).contains("alice"), "{paused:#}");
    site.instruct("Resume", "Resume");
    site.order_is("o-1", |order| order["paused"] == false).await;
    // The refresh moves the buttons.
    site.browser
        .until("!document.querySelector('.head .badge.paused')");

    site.browser.click("button", "Signal");
    site.browser.fill_in("combobox", "Event type", "Shipped");
    site.browser.fill("Data", "{ not json");
    site.browser.click("button", "Send");
    site.browser.wait_for_text("Data is not valid JSON");
    site.browser.fill("Data", "{ \"parcel\": 7 }");
    site.browser.click("button", "Send");
    site.order_is("o-1", |order| order["status"] == "completed")
        .await;
    site.browser
        .until("document.querySelector('.head .badge.completed')");
    site.browser
        .until("!document.querySelector('.head button')");

    site.go("/instances/order/o-2");
    site.instruct("Cancel", "Cancel saga");
    site.order_is("o-2", |order| order["status"] == "cancelled")
        .await;
    site.browser
        .until("document.querySelector('.head .badge.cancelled')");
    site.was_quiet();
}

#[tokio::test(flavor = "multi_thread")]
async fn stuck_instance_is_retried_skipped_or_force_completed() {
    let mut site = Site::open().await;
    for id in ["o-1", "o-2", "o-3"] {
        site.node.refunds.store(true, Ordering::SeqCst);
        site.stuck(id).await;
    }
    site.go("/instances/order/o-1");
    site.browser.wait_for_text("needs an operator decision");
    site.picture("stuck-actions");
    site.node.refunds.store(true, Ordering::SeqCst);
    site.instruct("Retry", "Retry");
    let order = site
        .order_is("o-1", |order| order["status"] == "failed")
        .await;
    assert!(
        notes(&order).contains("retry by alice: approved by support"),
        "{order:#}"
    );

    site.go("/instances/order/o-2");
    site.instruct("Skip", "Skip");
    site.order_is("o-2", |order| order["status"] == "failed")
        .await;

    site.go("/instances/order/o-3");
    site.browser.click("button", "Force complete");
    site.browser.press("Escape");
    site.browser.until("!document.querySelector('dialog')");
    site.order_is("o-3", |order| order["status"] == "stuck")
        .await;
    site.instruct("Force complete", "Force complete");
    let order = site
        .order_is("o-3", |order| order["status"] != "stuck")
        .await;
    assert!(notes(&order).contains("alice"), "{order:#}");
    site.was_quiet();
}

#[tokio::test(flavor = "multi_thread")]
async fn stale_version_is_rejected_with_a_reason() {
    let mut site = Site::open().await;
    site.node.order("", "o-1", 5, "running").await;
    site.go("/instances/order/o-1");
    site.browser.click("button", "Cancel");
    // Meanwhile another user changes the instance, so it has another version.
    for verb in ["pause", "resume"] {
        site.node
            .post(&format!("/v1/sagas/order/o-1/{verb}"), &json!({}))
            .await
            .ok();
    }
    site.browser.click("button", "Cancel saga");
    site.browser.wait_for_text("Version conflict");
    site.browser
        .until("document.querySelector('dialog a[href=\"/errors/OR0012\"]')");
    site.browser
        .click("checkbox", "Only if the version is still 2");
    site.browser.click("button", "Cancel saga");
    site.order_is("o-1", |order| order["status"] == "cancelled")
        .await;
    site.browser.until("!document.querySelector('dialog')");
}
