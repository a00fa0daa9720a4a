//! Instances that a user starts on the page of a definition, signals, and the header of the page.

use serde_json::json;

use crate::web::site::Site;

#[tokio::test(flavor = "multi_thread")]
async fn instance_is_started_with_the_fields_of_its_start_event() {
    let mut site = Site::open().await;
    site.go("/definitions/order");
    site.browser.click("button", "Start");
    site.browser.click("button", "Start");
    site.browser.wait_for_text("orderId");
    site.browser
        .until("document.querySelector('dialog .error-box').textContent.includes('orderId')");
    site.browser.fill("orderId", "o-7");
    site.browser.fill("total", "42");
    site.browser.fill("Other data", "[1]");
    site.browser.click("button", "Start");
    site.browser.wait_for_text("The data is not a JSON object");
    site.browser.fill("Other data", r#"{ "note": "by hand" }"#);
    site.picture("start-dialog");
    // The browser logs the rejected request.
    site.browser.record();
    site.browser.click("button", "Start");
    site.browser
        .until("location.hash === '#/instances/order/o-7'");
    site.browser.until("!document.querySelector('dialog')");
    site.browser.wait_for_text("order o-7: started.");
    let order = site
        .node
        .until("", "/v1/sagas/order/o-7", |order| {
            order["waits"][0].is_object()
        })
        .await;
    assert_eq!(
        order["state"]["vars"],
        json!({ "orderId": "o-7", "total": 42 }),
        "{order:#}"
    );
    site.was_quiet();

    // More digits than a number of JavaScript has.
    site.go("/definitions/order");
    site.browser.click("button", "Start");
    site.browser.fill("orderId", "o-8");
    site.browser.fill("total", "3544790567247868102");
    site.browser.click("button", "Start");
    site.browser
        .until("location.hash === '#/instances/order/o-8'");
    site.browser.wait_for_text("3544790567247868102");
    let order = site.node.get("/v1/sagas/order/o-8").await.ok();
    assert_eq!(
        order["state"]["vars"]["total"], 3_544_790_567_247_868_102_i64,
        "{order:#}"
    );

    // The same instance again is an error that the dialog shows.
    site.go("/definitions/order");
    site.browser.click("button", "Start");
    site.browser.fill("orderId", "o-7");
    site.browser.fill("total", "42");
    site.browser.click("button", "Start");
    site.browser.wait_for_text("Help (OR0032)");
}

#[tokio::test(flavor = "multi_thread")]
async fn event_type_of_a_signal_is_offered_by_the_definition_or_free_text() {
    let mut site = Site::open().await;
    site.node.order("", "o-1", 5, "running").await;
    site.go("/instances/order/o-1");
    site.browser.click("button", "Signal");
    site.browser
        .wait_for_text("The instance waits for Shipped, NotShipped.");
    let offered = site
        .browser
        .eval("[...document.querySelectorAll('dialog option')].map((option) => option.value)");
    let mut offered: Vec<_> = offered
        .as_array()
        .unwrap()
        .iter()
        .map(|kind| kind.as_str().unwrap().to_owned())
        .collect();
    assert_eq!(offered[..2], ["Shipped", "NotShipped"]);
    offered.sort_unstable();
    assert_eq!(offered, ["NotShipped", "OrderPlaced", "Shipped"]);
    site.picture("signal-dialog");
    site.browser.fill_in("combobox", "Event type", "Other");
    site.browser.click("button", "Send");
    site.browser.until("!document.querySelector('dialog')");
    let order = site.node.get("/v1/sagas/order/o-1").await.ok();
    assert_eq!(order["status"], "running", "{order:#}");
    site.was_quiet();
}

#[tokio::test(flavor = "multi_thread")]
async fn search_box_shows_its_whole_label_and_stays_on_the_page() {
    let mut site = Site::open().await;
    site.go("/instances");
    for width in [1100, 1300, 1440, 1600] {
        site.browser.set_color_scheme(width, 900, false);
        let fits = "(() => {
          const input = document.querySelector('.search input');
          const style = getComputedStyle(input);
          const canvas = document.createElement('canvas').getContext('2d');
          canvas.font = style.font;
          // The button that clears the input has a width of 16 pixels.
          const inner = input.clientWidth - parseFloat(style.paddingLeft) - parseFloat(style.paddingRight) - 16;
          const box = input.getBoundingClientRect();
          return canvas.measureText(input.placeholder).width <= inner && box.left >= 0 && box.right <= innerWidth;
        })()";
        assert_eq!(site.browser.eval(fits), true, "{width}");
    }
    for other in ["dead_letters", "dlq", "dead-letters"] {
        site.browser.eval(&format!("location.hash = '#/{other}'"));
        site.browser.until("location.hash === '#/dead-letters'");
        site.browser
            .until("document.querySelector('h1').textContent === 'Dead letters'");
        site.browser.eval("location.hash = '#/timers'");
        site.browser
            .until("document.querySelector('h1').textContent === 'Timers'");
    }
    site.was_quiet();
}
