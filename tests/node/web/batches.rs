//! Batches: created from the list of instances after a preview, approved, paused and stopped.

use serde_json::json;

use crate::web::site::Site;

#[tokio::test(flavor = "multi_thread")]
async fn batch_is_created_for_a_filter_approved_and_stopped() {
    let mut site = Site::open().await;
    for number in 0..4 {
        site.node
            .order("", &format!("o-{number}"), 5, "running")
            .await;
    }
    site.go("/instances");
    site.browser.wait_for_text("Scanned");
    let offered = "[...document.querySelectorAll('button')].some((one) => one.textContent === 'Batch for all matches')";
    assert_eq!(
        site.browser.eval(offered),
        false,
        "a batch needs a definition"
    );
    site.go("/instances?saga=order&status=running");
    site.browser.click("button", "Batch for all matches");
    site.browser
        .wait_for_text("One instruction for all instances of order");
    site.browser.fill("Canary", "1");
    site.browser.fill("Reason", "recall");
    site.browser.fill("User name", "alice");
    site.browser.click("button", "Preview");
    site.browser
        .wait_for_text("4 instances of order match, first o-0, o-1, o-2, o-3.");
    site.browser
        .wait_for_text("Cancels and compensates the completed steps.");
    site.picture("batch-preview");
    assert_eq!(
        site.node.get("/v1/batches").await.ok()["items"],
        json!([]),
        "the preview changes nothing"
    );
    site.browser.click("button", "Create batch");
    site.browser.until("location.hash.startsWith('#/batches/')");
    site.browser.wait_for_text("The canary is done.");
    site.browser.wait_for_text("1 of 4");
    site.picture("batch-canary");
    let id = site
        .browser
        .eval("location.hash.slice('#/batches/'.length)");
    let id = id.as_str().unwrap().to_owned();
    site.browser.click("button", "Approve");
    site.browser.wait_for_text("3 instances remain.");
    site.browser.click("button", "Approve");
    site.browser.wait_for_text("4 of 4");
    let batch = site
        .node
        .until("", &format!("/v1/batches/{id}"), |batch| {
            batch["status"] == "completed"
        })
        .await;
    assert_eq!(
        (&batch["user"], &batch["reason"], &batch["done"]),
        (&json!("alice"), &json!("recall"), &json!(4))
    );
    site.browser
        .until("!document.querySelector('.buttons button')");

    // Another batch waits for its approval and is stopped.
    let note = json!({ "type": "signal", "signal": "Noted", "data": { "n": 1 } });
    let body = json!({ "id": "second", "saga": "order", "action": note, "canary": 1 });
    site.node.post("/v1/batches", &body).await.ok();
    site.go("/batches");
    site.browser.wait_for_text("signal Noted");
    site.picture("batches");
    site.browser.click("link", "second");
    site.browser.click("button", "Stop");
    site.browser
        .wait_for_text("A stopped batch cannot be resumed.");
    site.browser.click("button", "Stop batch");
    site.browser.wait_for_text("second is stopped.");
    site.browser
        .until("document.querySelector('h1').parentElement.textContent.includes('stopped')");
    assert_eq!(
        site.node.get("/v1/batches/second").await.ok()["status"],
        "stopped"
    );
    site.was_quiet();
}
