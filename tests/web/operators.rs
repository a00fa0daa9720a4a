//! What an operator does with an instance, button by button; each is seen to have been done by the node.

use std::sync::atomic::Ordering;

use serde_json::{Value, json};

use crate::site::Site;

impl Site {
    async fn order_is(&self, id: &str, fits: impl Fn(&Value) -> bool) -> Value {
        self.node.until("", &format!("/v1/sagas/order/{id}"), fits).await
    }

    /// Presses a button, says why and by whom, and confirms.
    fn instruct(&mut self, verb: &str, confirm: &str) {
        self.browser.click("button", verb);
        self.browser.fill("Why", "because I may");
        self.browser.fill("Your name", "alice");
        self.browser.click("button", confirm);
        self.browser.until("!document.querySelector('dialog')");
    }
}

fn notes(order: &Value) -> String {
    order["history"]["items"].to_string()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_running_order_is_paused_resumed_signalled_and_cancelled() {
    let Some(mut site) = Site::open().await else { return };
    for id in ["o-1", "o-2"] {
        site.node.order("", id, 5, "running").await;
    }
    site.go("/instances/order/o-1");
    site.instruct("Pause", "Pause");
    site.browser.see("o-1 is paused");
    site.browser.see("Paused: inputs are kept");
    let paused = site.order_is("o-1", |order| order["paused"] == true).await;
    assert!(notes(&paused).contains("alice"), "{paused:#}");
    site.instruct("Resume", "Resume");
    site.order_is("o-1", |order| order["paused"] == false).await;

    site.browser.click("button", "Signal");
    site.browser.fill_in("combobox", "Event type", "Shipped");
    site.browser.fill("Data", "{ not json");
    site.browser.click("button", "Send");
    site.browser.see("Data is not JSON");
    site.browser.fill("Data", "{ \"parcel\": 7 }");
    site.browser.click("button", "Send");
    site.order_is("o-1", |order| order["status"] == "completed").await;
    site.browser.until("document.querySelector('.head .badge.completed')");
    site.browser.until("!document.querySelector('.head button')");

    site.go("/instances/order/o-2");
    site.instruct("Cancel", "Cancel the saga");
    site.order_is("o-2", |order| order["status"] == "cancelled").await;
    site.browser.until("document.querySelector('.head .badge.cancelled')");
    site.was_quiet();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stuck_order_is_tried_again_left_undone_or_ended() {
    let Some(mut site) = Site::open().await else { return };
    for id in ["o-1", "o-2", "o-3"] {
        site.node.refunds.store(true, Ordering::SeqCst);
        site.stuck(id).await;
    }
    site.go("/instances/order/o-1");
    site.browser.see("a person must decide");
    site.picture("stuck-buttons");
    site.node.refunds.store(true, Ordering::SeqCst);
    site.instruct("Retry", "Retry");
    let order = site.order_is("o-1", |order| order["status"] == "failed").await;
    assert!(notes(&order).contains("retry by alice: because I may"), "{order:#}");

    site.go("/instances/order/o-2");
    site.instruct("Skip", "Skip");
    site.order_is("o-2", |order| order["status"] == "failed").await;

    site.go("/instances/order/o-3");
    site.browser.click("button", "End as it is");
    site.browser.press("Escape");
    site.browser.until("!document.querySelector('dialog')");
    site.order_is("o-3", |order| order["status"] == "stuck").await;
    site.instruct("End as it is", "End it");
    let order = site.order_is("o-3", |order| order["status"] != "stuck").await;
    assert!(notes(&order).contains("alice"), "{order:#}");
    site.was_quiet();
}

#[tokio::test(flavor = "multi_thread")]
async fn who_looks_at_something_old_is_refused_with_the_reason() {
    let Some(mut site) = Site::open().await else { return };
    site.node.order("", "o-1", 5, "running").await;
    site.go("/instances/order/o-1");
    site.browser.click("button", "Cancel");
    // Meanwhile somebody else looks into it: it stands at another version.
    for verb in ["pause", "resume"] {
        site.node.post(&format!("/v1/sagas/order/o-1/{verb}"), &json!({})).await.ok();
    }
    site.browser.click("button", "Cancel the saga");
    site.browser.see("The instance has moved on");
    site.browser.until("document.querySelector('dialog a[href=\"/errors/OR0012\"]')");
    site.browser.click("checkbox", "Only if it still stands at version 2");
    site.browser.click("button", "Cancel the saga");
    site.order_is("o-1", |order| order["status"] == "cancelled").await;
    site.browser.until("!document.querySelector('dialog')");
}
