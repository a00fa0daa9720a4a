//! Messages: sent with the form, a conversation, and processed by the receiver.

use serde_json::json;

use crate::web::site::Site;

/// Requirements: F6.
#[tokio::test(flavor = "multi_thread")]
async fn message_is_sent_replied_to_and_processed() {
    let mut site = Site::open_with(|config| config.node_name = "one".to_owned()).await;
    site.go("/messages");
    site.browser.wait_for_text("No messages.");
    site.browser.click("button", "Send a message");
    site.browser.fill("To", "sales");
    site.browser.fill("Subject", "Stock");
    site.browser.fill("Text", "<b>How many?</b>");
    site.browser.click("button", "Send");
    site.browser
        .wait_for_text("The message to sales@one is stored.");
    site.browser
        .until("location.hash.startsWith('#/messages/')");
    // The body of another context is no markup.
    site.browser.wait_for_text("<b>How many?</b>");
    assert_eq!(
        site.browser
            .eval("document.querySelectorAll('.message b').length"),
        0
    );
    let id = site
        .browser
        .eval("location.hash.split('/').at(-1)")
        .as_str()
        .unwrap()
        .to_owned();
    let sent = site.node.get(&format!("/v1/messages/{id}")).await.ok();
    assert_eq!(
        (&sent["type"], &sent["subject"]),
        (&json!("chat"), &json!("Stock"))
    );

    let reply =
        json!({ "to": "@one", "type": "chat", "thread": sent["thread"], "body": "Of which kind?" });
    site.message("sales", "r-1", &reply).await;
    site.browser.wait_for_text("Of which kind?");
    site.browser.click("button", "Reply");
    site.browser.fill("Text", "Of all kinds.");
    site.browser.click("button", "Send");
    site.browser
        .until("document.querySelectorAll('.message').length === 3");
    let bodies = "[...document.querySelectorAll('.message p')].map((body) => body.textContent)";
    let expected = json!(["<b>How many?</b>", "Of which kind?", "Of all kinds."]);
    assert_eq!(site.browser.eval(bodies), expected);

    site.go("/messages");
    site.browser.click("button", "Tenant: default tenant");
    site.browser.fill("Tenant", "sales");
    site.browser.click("button", "Switch");
    site.browser.click("link", "Stock");
    site.browser.click("button", "Acknowledge");
    site.browser.click("button", "Acknowledge message");
    site.browser.wait_for_text("The message is acknowledged.");
    // The buttons move when the status changes.
    site.browser
        .until("document.querySelector('.head .badge')?.textContent === 'acknowledged'");
    site.browser.click("button", "Process");
    site.browser.fill("Result", "{");
    site.browser.click("button", "Process message");
    site.browser.wait_for_text("Result is not valid JSON");
    site.browser.fill("Result", r#"{"items": 7}"#);
    site.browser.click("button", "Process message");
    site.browser.wait_for_text("The message is processed.");
    let path = format!("/v1/messages/{id}");
    let ended = site
        .node
        .until("", &path, |message| message["status"] == "processed")
        .await;
    assert_eq!(ended["result"], json!({ "items": 7 }));
    site.was_quiet();
}
