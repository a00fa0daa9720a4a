//! Keyboard operation: every element is reachable, visibly focused, usable and leavable; a redraw keeps
//! the focus.

use serde_json::json;

use crate::web::site::Site;

const FOCUS: &str =
    "(document.activeElement.getAttribute('aria-label') ?? document.activeElement.textContent)";

impl Site {
    /// Presses the tab key until the element has the focus.
    fn tab_to(&mut self, name: &str) {
        for _ in 0..80 {
            self.browser.press("Tab");
            let here = self.browser.eval(FOCUS);
            if here.as_str().unwrap_or_default().trim() == name {
                let outline = self
                    .browser
                    .eval("getComputedStyle(document.activeElement).outlineStyle");
                assert_ne!(
                    outline, "none",
                    "{name} has the focus without a visible outline"
                );
                return;
            }
        }
        panic!("the Tab key does not reach {name:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn instance_can_be_found_and_paused_by_keyboard() {
    let mut site = Site::open().await;
    site.node.order("", "o-1", 5, "running").await;
    site.go("/");
    site.browser.wait_for_text("Needs attention");
    site.browser.press("Tab");
    assert_eq!(site.browser.eval(FOCUS), "Skip to content");
    site.browser.press("Enter");
    site.browser.until("document.activeElement.id === 'main'");

    site.go("/timers");
    // The new view moves the focus to its heading.
    site.browser.until(
        "document.activeElement.matches('h1') && document.activeElement.textContent === 'Timers'",
    );
    site.tab_to("Instances");
    site.browser.press("Enter");
    site.browser
        .until("document.activeElement.matches('h1') && document.activeElement.textContent === 'Instances'");
    site.browser.wait_for_text("o-1");
    site.tab_to("o-1");
    site.browser.press("Enter");
    site.browser
        .until("document.querySelector('h1').textContent === 'o-1'");
    site.browser.wait_for_text("Pause");
    site.tab_to("Pause");
    site.browser.press("Enter");
    site.browser.until("document.querySelector('dialog[open]')");
    assert_eq!(site.browser.eval("document.activeElement.name"), "reason");
    site.browser.press("Escape");
    site.browser.until("!document.querySelector('dialog')");
    assert_eq!(site.browser.eval(FOCUS), "Pause");
    site.browser.press("Space");
    site.browser.until("document.querySelector('dialog[open]')");
    site.browser.write("to look at it");
    site.browser.press("Enter");
    site.node
        .until("", "/v1/sagas/order/o-1", |order| order["paused"] == true)
        .await;
    site.browser.wait_for_text("o-1 is paused");
    let live_region = site
        .browser
        .eval("document.getElementById('announcement').getAttribute('aria-live')");
    assert_eq!(live_region, "polite");
    site.was_quiet();
}

#[tokio::test(flavor = "multi_thread")]
async fn focus_and_input_survive_refresh() {
    let mut site = Site::open().await;
    for id in ["o-1", "o-3"] {
        site.node.order("", id, 5, "running").await;
    }
    site.go("/instances");
    site.browser.wait_for_text("o-3");
    site.browser.eval(
        "[...document.querySelectorAll('tbody a')].find((a) => a.textContent === 'o-3').focus()",
    );
    // One row appears before it, and another row changes its status.
    site.node.order("", "o-2", 5, "running").await;
    site.happens_to("shipped", "Shipped", Some("o-1"), &json!({}))
        .await;
    site.browser.wait_for_text("o-2");
    site.browser
        .until("document.querySelector('tbody .badge.completed')");
    assert_eq!(site.browser.eval(FOCUS), "o-3");
    site.browser.click("searchbox", "ID prefix");
    site.browser.write("o-2");
    site.browser
        .until("document.querySelectorAll('tbody tr').length === 1");
    assert_eq!(site.browser.eval("document.activeElement.value"), "o-2");
    assert_eq!(site.browser.eval("location.hash"), "#/instances?prefix=o-2");

    site.browser.click("button", "Live updates on");
    site.browser.wait_for_text("Live updates paused");
    assert_eq!(
        site.browser
            .eval("document.querySelector('.live').getAttribute('aria-pressed')"),
        "false"
    );
    site.was_quiet();
}
