//! Tests of the examples in docs/providers/script.md.

use axum::http::{Method, StatusCode};
use serde_json::json;

use super::{HELPER, require};
use crate::effects::docs::{block, with};
use crate::effects::node::Dirs;

#[tokio::test(flavor = "multi_thread")]
async fn documented_example_works() {
    require("python3");
    require("awk");
    let dirs = Dirs::new(&[]);
    let token = dirs.path("token");
    std::fs::write(&token, "canary-5be7").unwrap();
    let config = with(
        &block("script.md", "jobs.toml"),
        "env:REPORTS_TOKEN",
        &format!("file:{}", token.display()),
    );
    dirs.describe(
        "jobs",
        &with(
            &config,
            "network = false",
            &format!("helper = {HELPER:?}\nnetwork = false"),
        ),
    );
    dirs.define("report", &block("script.md", "report.saga.yaml"));
    std::fs::remove_file(dirs.path("definitions").join("payment.saga.yaml")).unwrap();
    let node = dirs.start().await;
    let event = json!({
        "specversion": "1.0", "id": "e-1", "source": "urn:test", "type": "ReportAsked",
        "data": { "reportId": "r-1", "rows": [1, 2, 4] },
    });
    let (status, response) = node.ask(Method::POST, "", "/v1/events", &event).await;
    assert_eq!(status, StatusCode::ACCEPTED, "{response}");
    let saga = node.end_of("", "report", "r-1").await;
    assert_eq!(saga["status"], "completed", "{saga}");
    assert_eq!(
        saga["state"]["flow"]["results"]["sum"],
        json!({ "total": 7, "currency": "EUR" })
    );
    let written = node.get("/v1/sagas/report/r-1/job-logs").await;
    let jobs = written["items"].as_array().unwrap().iter();
    let first: Vec<_> = jobs
        .map(|job| (job["effect"].clone(), job["log"][0]["text"].clone()))
        .collect();
    let expected = [
        (json!("job.python"), json!("summing 3 rows")),
        (json!("report.render"), json!("rendering {\"fine\":true}")),
    ];
    assert_eq!(first, expected);
    assert_eq!(
        node.get("/v1/sagas/report/r-2/job-logs").await,
        json!({ "items": [], "next_cursor": null })
    );
}
