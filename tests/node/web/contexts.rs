//! Contexts: created, changed and deleted on the page.

use axum::http::StatusCode;
use serde_json::json;

use crate::web::site::Site;

#[tokio::test(flavor = "multi_thread")]
async fn context_is_created_changed_and_deleted() {
    let mut site = Site::open().await;
    site.go("/contexts");
    site.browser.wait_for_text("No contexts.");
    site.browser.click("button", "Create a context");
    site.browser.fill("Tenant", "acme");
    site.browser.fill("Admins", "group:leads, user:ada");
    site.browser.click("button", "Create");
    site.browser.until("location.hash === '#/contexts/acme'");
    site.browser.wait_for_text("The context acme was created.");
    site.browser.wait_for_text("group:leads, user:ada");

    site.browser.click("button", "Edit");
    site.browser.fill("Readers", "user:bob");
    site.browser.click("button", "Change");
    site.browser.wait_for_text("The context acme was changed.");
    site.browser.wait_for_text("readers user:bob");
    let context = site.node.get("/v1/contexts/acme").await.ok();
    assert_eq!(context["require_signed_events"], false);
    assert_eq!(context["admins"], json!(["group:leads", "user:ada"]));
    assert_eq!(context["readers"], json!(["user:bob"]));

    site.browser.wait_for_text("Accepted");
    site.browser.click("button", "Edit");
    site.browser.click(
        "checkbox",
        "Reject events and signals that no member signed",
    );
    site.browser.click("button", "Change");
    site.browser.wait_for_text("Rejected");
    let context = site.node.get("/v1/contexts/acme").await.ok();
    assert_eq!(context["require_signed_events"], true);
    assert_eq!(
        context["readers"],
        json!(["user:bob"]),
        "the lists are kept"
    );

    // An error keeps the dialog open.
    site.browser.record();
    site.browser.click("button", "Edit");
    site.browser.fill("Readers", "bob");
    site.browser.click("button", "Change");
    site.browser
        .wait_for_text("write actor:<id>, context:<context>@<node>, group:<name> or user:<name>");
    site.browser.click("button", "Close");

    site.go("/contexts");
    site.browser.click("link", "acme");
    site.browser.click("button", "Delete");
    site.browser.wait_for_text("the roles of tokens decide");
    site.browser.click("button", "Delete context");
    site.browser.until("location.hash === '#/contexts'");
    site.browser.wait_for_text("No contexts.");
    let gone = site.node.get("/v1/contexts/acme").await;
    assert_eq!(gone.status, StatusCode::NOT_FOUND, "{gone:?}");
}
