//! Schedules: listed, triggered, paused, resumed and deleted.

use axum::http::StatusCode;
use serde_json::{Value, json};

use crate::web::site::Site;

#[tokio::test(flavor = "multi_thread")]
async fn schedule_is_triggered_paused_resumed_and_deleted() {
    let mut site = Site::open().await;
    let data = json!({ "orderId": "=schedule.correlation", "total": 5 });
    let spec =
        json!({ "saga": "order", "cron": "0 2 * * *", "zone": "Europe/Berlin", "data": data });
    site.schedule("nightly", &spec).await;
    site.go("/schedules");
    for text in ["0 2 * * *", "Europe/Berlin", "active"] {
        site.browser.wait_for_text(text);
    }
    site.browser.click("link", "nightly");
    site.browser.wait_for_text("Next starts");
    let starts = "document.querySelectorAll('[aria-label=\"Next start times\"] tbody tr').length";
    site.browser.until(&format!("{starts} === 10"));
    let local = site
        .browser
        .eval("document.querySelector('tbody tr').innerText");
    assert!(local.as_str().unwrap().contains("02:00:00"), "{local}");

    let trigger = |site: &mut Site| {
        site.browser.click("button", "Trigger");
        site.browser
            .wait_for_text("If a run is in progress, it is skipped.");
        site.browser.fill("User name", "alice");
        site.browser.click("button", "Trigger");
        site.browser.until("!document.querySelector('dialog')");
    };
    trigger(&mut site);
    site.browser.wait_for_text("nightly: the run started.");
    site.browser
        .until("document.querySelector('.badge.running')");
    trigger(&mut site);
    site.browser
        .wait_for_text("nightly: skipped, because a run is in progress.");
    site.picture("schedule-run");

    site.browser.click("button", "Pause");
    site.browser.click("button", "Pause");
    site.browser.wait_for_text("nightly is paused.");
    site.browser
        .wait_for_text("Paused: due times are ignored until the schedule is resumed.");
    site.browser.click("button", "Resume");
    site.browser.click("button", "Resume");
    site.browser.wait_for_text("nightly is resumed.");
    site.browser.until(&format!("{starts} === 10"));

    // The list links to the last run.
    site.go("/schedules");
    site.browser
        .until("document.querySelector('tbody .badge.running')");
    site.browser
        .eval("document.querySelector('tbody td a[href*=\"/instances/\"]').click()");
    site.browser
        .until("location.hash.startsWith('#/instances/order/nightly-')");
    site.browser.wait_for_text("Waiting for Shipped");

    site.go("/schedules/nightly");
    site.browser.click("button", "Delete");
    site.browser.wait_for_text("No further run starts");
    site.browser
        .wait_for_text("1 run in progress will continue.");
    site.browser.click("button", "Delete schedule");
    site.browser.until("location.hash === '#/schedules'");
    site.browser.wait_for_text("No schedules.");
    let gone = site.node.get("/v1/schedules/nightly").await;
    assert_eq!(gone.status, StatusCode::NOT_FOUND, "{gone:?}");
    let history = site.node.get("/v1/sagas/orlog.schedule/nightly").await.ok();
    assert!(
        history["history"]["items"].to_string().contains("alice"),
        "{history:#}"
    );
    site.was_quiet();
}

#[tokio::test(flavor = "multi_thread")]
async fn dialog_ends_with_the_navigation_and_the_heading_has_the_focus() {
    let mut site = Site::open().await;
    site.schedule("hourly", &json!({ "saga": "order", "every": "1h" }))
        .await;
    site.go("/schedules");
    site.browser.click("link", "hourly");
    let leave: [(&str, &str); 2] = [
        ("history.back()", "Schedules"),
        ("location.hash = '#/timers'", "Timers"),
    ];
    for (navigation, heading) in leave {
        site.browser.eval("location.hash = '#/schedules/hourly'");
        site.browser.click("button", "Pause");
        site.browser
            .until("Boolean(document.querySelector('dialog[open]'))");
        site.browser.eval(navigation);
        site.browser.until(&format!(
            "document.activeElement.matches('h1') && document.activeElement.textContent === {}",
            json!(heading)
        ));
        assert_eq!(
            site.browser
                .eval("document.querySelectorAll('dialog').length"),
            0
        );
    }
    let active: Value = site.node.get("/v1/schedules/hourly").await.ok();
    assert_eq!(active["status"], "active");
    site.was_quiet();
}
