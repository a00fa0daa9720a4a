//! Dead letters: sent again by cause once the cause is mended, one by one, or discarded.

use serde_json::{Value, json};

use crate::site::Site;

impl Site {
    async fn letters_are(&self, count: usize) {
        let fits = |letters: &Value| letters["items"].as_array().unwrap().len() == count;
        self.node.until("", "/v1/dead-letters", fits).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn letters_are_seen_by_cause_sent_again_and_discarded() {
    let Some(mut site) = Site::open().await else { return };
    for id in ["x-1", "x-2", "x-3", "x-4"] {
        site.happens(id, "OrderPlaced", &json!({ "orderId": id })).await;
    }
    site.letters_are(4).await;
    let causes = site.node.get("/v1/dead-letters/causes").await.ok();
    assert_eq!((&causes["items"][0]["count"], &causes["complete"]), (&json!(4), &json!(true)), "{causes:#}");
    assert_eq!(causes["items"][0]["saga"], "order");

    site.go("/letters");
    site.browser.see("in order");
    site.browser.click("button", "Discard: OrderPlaced");
    site.browser.click("button", "Discard");
    site.letters_are(3).await;
    site.browser.see("OrderPlaced was discarded");

    // Nothing is mended: the first goes alone, fails again, and the others stay.
    let send = causes["items"][0]["reason"].as_str().unwrap().replace('_', " ");
    site.browser.click("button", &format!("Send again: {send} order"));
    site.browser.click("button", "Send again");
    site.browser.see("1 failed again");
    site.letters_are(3).await;
    site.browser.eval("document.querySelector('td details').open = true");
    site.browser.see("specversion");
    site.picture("letters-open");

    let file = site.node.definitions().join("order.saga.yaml");
    let mended = std::fs::read_to_string(&file).unwrap().replace("version: 1", "version: 2");
    std::fs::write(&file, mended.replace("total: =event.total", "total: 7")).unwrap();
    site.node.post("/admin/reload", &json!(null)).await.ok();
    site.browser.until("!document.querySelector('dialog')");
    site.browser.click("button", &format!("Send again: {send} order"));
    site.browser.click("button", "Send again");
    site.browser.see("There are no dead letters");
    site.letters_are(0).await;
}
