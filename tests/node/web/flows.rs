//! Flows: the list, the graph with live statuses, lines, retry and rerun.

use serde_json::json;

use crate::web::site::Site;

#[tokio::test(flavor = "multi_thread")]
async fn flow_shows_its_graph_its_lines_and_executes_jobs_again() {
    let mut site = Site::open().await;
    let job = |id: &str, before: &[&str]| json!({ "id": id, "type": "cobol", "script": "x", "dependencies": before });
    let flow = json!({ "name": "nightly", "jobs": [job("probe", &[]), job("cut", &["probe"])] });
    site.flow("f-1", &flow).await;
    site.go("/flows");
    site.browser.wait_for_text("0 of 2");
    site.browser.click("link", "f-1");
    site.browser
        .wait_for_text("no runner of type cobol is registered");
    site.browser
        .until("document.querySelectorAll('.graph rect').length === 2");
    let claim = json!({ "effects": ["job.cobol"], "worker": "mainframe", "max": 1 });
    let claimed = site.node.post("/v1/work/claim", &claim).await.ok()["jobs"][0].clone();
    site.browser.wait_for_text("mainframe");
    site.browser
        .until("document.querySelectorAll('.graph .g-running').length === 1");
    let path = |action: &str| {
        format!(
            "/v1/work/jobs/{}/{action}",
            claimed["job"].as_str().unwrap()
        )
    };
    let log = json!({ "claim": claimed["claim"], "log": ["opening the tape"] });
    assert_eq!(site.node.post(&path("logs"), &log).await.status, 204);
    site.browser.wait_for_text("opening the tape");
    let failed = json!({ "claim": claimed["claim"], "result": "failed", "code": "abend", "message": "S0C7" });
    site.node.post(&path("result"), &failed).await.ok();
    site.browser.wait_for_text("abend: S0C7");
    site.browser.click("button", "Retry");
    site.browser.click("button", "Retry jobs");
    site.browser.wait_for_text("f-1 continues.");
    site.node
        .until("", "/v1/flows/f-1", |flow| flow["status"] == "dispatched")
        .await;
    site.browser.click("button", "Cancel");
    site.browser.click("button", "Cancel flow");
    site.browser.wait_for_text("f-1 is cancelled.");
    site.was_quiet();
}
