//! Dead letters: redriven by reason after the fix, redriven one by one, or discarded.

use serde_json::{Value, json};

use crate::web::site::Site;

impl Site {
    async fn wait_for_dead_letters(&self, count: usize) {
        let fits = |dead_letters: &Value| dead_letters["items"].as_array().unwrap().len() == count;
        self.node.until("", "/v1/dead-letters", fits).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn dead_letters_are_grouped_redriven_and_discarded() {
    let mut site = Site::open().await;
    for id in ["x-1", "x-2", "x-3", "x-4"] {
        site.happens(id, "OrderPlaced", &json!({ "orderId": id }))
            .await;
    }
    site.wait_for_dead_letters(4).await;
    let causes = site.node.get("/v1/dead-letters/causes").await.ok();
    assert_eq!(
        (&causes["items"][0]["count"], &causes["complete"]),
        (&json!(4), &json!(true)),
        "{causes:#}"
    );
    assert_eq!(causes["items"][0]["saga"], "order");

    site.go("/dead-letters");
    site.browser.wait_for_text("in order");
    site.browser.click("button", "Discard: OrderPlaced");
    site.browser.click("button", "Discard");
    site.wait_for_dead_letters(3).await;
    site.browser.wait_for_text("OrderPlaced was discarded");

    // Without a fix the first one is redriven alone, fails again, and the others stay.
    let send = causes["items"][0]["reason"]
        .as_str()
        .unwrap()
        .replace('_', " ");
    site.browser
        .click("button", &format!("Redrive: {send} order"));
    site.browser.click("button", "Redrive");
    site.browser.wait_for_text("1 failed again");
    site.browser
        .wait_for_text("Stopped: 1 of the first 1 failed again");
    site.wait_for_dead_letters(3).await;

    // A limit below the number of matches leaves some, which the page states.
    site.browser.until("!document.querySelector('dialog')");
    site.browser
        .click("button", &format!("Redrive: {send} order"));
    site.browser.fill("Limit", "1");
    site.browser.click("button", "Redrive");
    site.browser
        .wait_for_text("Incomplete: more dead letters match");
    site.wait_for_dead_letters(3).await;
    site.browser
        .eval("document.querySelector('td details').open = true");
    site.browser.wait_for_text("specversion");
    site.picture("dead-letter-original");

    let file = site.node.definitions().join("order.saga.yaml");
    let fixed = std::fs::read_to_string(&file)
        .unwrap()
        .replace("version: 1", "version: 2");
    std::fs::write(&file, fixed.replace("total: =event.total", "total: 7")).unwrap();
    site.node.post("/admin/reload", &json!(null)).await.ok();
    site.browser.until("!document.querySelector('dialog')");
    site.browser
        .click("button", &format!("Redrive: {send} order"));
    site.browser.click("button", "Redrive");
    site.browser.wait_for_text("No dead letters.");
    site.wait_for_dead_letters(0).await;
}
