//! Filters of instances by variables.

use axum::body::Body;
use axum::http::Method;
use orlog_testkit::WAIT_TIMEOUT;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::{Value, json};

use crate::api::node::{Node, event};
use crate::harness::http::HttpResponse;

async fn request(node: &Node, filter: &str, more: &str) -> HttpResponse {
    let filter = utf8_percent_encode(filter, NON_ALPHANUMERIC);
    node.ask(
        Method::GET,
        "",
        &format!("/v1/sagas?filter={filter}{more}"),
        Body::empty(),
    )
    .await
}

fn names(found: &Value) -> Vec<&str> {
    found["items"]
        .as_array()
        .unwrap()
        .iter()
        .map(|item| item["correlation"].as_str().unwrap())
        .collect()
}

/// Creates five active orders with totals from 10 to 50, one of them paused, and one failed order.
async fn orders(change: impl FnOnce(&mut orlog::Config)) -> Node {
    let node = Node::start_with(change).await;
    for number in 1..=5 {
        node.order("", &format!("o-{number}"), number * 10, "running")
            .await;
    }
    node.order("", "declined", 5000, "failed").await;
    node.post("/v1/sagas/order/o-5/pause", &json!({}))
        .await
        .ok();
    node
}

/// Requirements: R18.
#[tokio::test(flavor = "multi_thread")]
async fn filter_matches_instance_fields_and_state() {
    let node = orders(|_| ()).await;
    let all: [(&str, &[&str]); 12] = [
        ("vars.total > 20 && vars.total < 50", &["o-3", "o-4"]),
        ("paused", &["o-5"]),
        ("reference == 'o-2'", &["o-2"]),
        (
            "status == 'failed' && last_error.code == 'card_declined'",
            &["declined"],
        ),
        (
            "waits.exists(w, w.name == 'Shipped' && w.until != null) && version == 2",
            &["o-1", "o-2", "o-3", "o-4"],
        ),
        (
            "waits.exists(w, w.until != null && timestamp(w.until) < now + duration('10m'))",
            &[],
        ),
        (
            "waits.exists(w, w.until != null && timestamp(w.until) < now + duration('61m')) && vars.total == 10",
            &["o-1"],
        ),
        ("updated_at < now - duration('1h')", &[]),
        (
            "created_at <= updated_at && correlation.endsWith('4')",
            &["o-4"],
        ),
        (
            "state.steps.exists(s, s.id == 'charge' && s.state == 'failed')",
            &["declined"],
        ),
        (
            "definition.version == 1 && parent == null && tasks.size() == 0 && saga == 'order' && vars.total == 30",
            &["o-3"],
        ),
        ("has(vars.nothing)", &[]),
    ];
    for (filter, expected) in all {
        let found = request(&node, filter, "&count=true").await.ok();
        assert_eq!(names(&found), expected, "{filter}: {found:#}");
        assert_eq!(
            found["count"],
            json!({ "value": expected.len(), "exact": true }),
            "{filter}"
        );
        assert_eq!(
            (&found["next_cursor"], &found["scanned"]),
            (&Value::Null, &json!(6)),
            "{filter}"
        );
    }
    let narrowed = request(&node, "vars.total > 20", "&status=failed")
        .await
        .ok();
    assert_eq!(names(&narrowed), ["declined"]);
    let counted = node.get("/v1/sagas?count=true&limit=2").await.ok();
    assert_eq!(
        (names(&counted).len(), &counted["count"]["value"]),
        (2, &json!(6))
    );
    let page = node.get("/v1/sagas?limit=2").await.ok();
    assert_eq!(page["scanned"], 2, "no row beyond the page is read");
}

#[tokio::test(flavor = "multi_thread")]
async fn invalid_filter_is_rejected_with_position() {
    let node = orders(|_| ()).await;
    let check_rejected = async |filter: &str, expected: &str| {
        let detail = request(&node, filter, "").await.problem("OR0008");
        assert!(detail.contains(expected), "{filter}: {detail}");
    };
    check_rejected(
        "status == 'x' && stauts == 'y'",
        "line 1, column 18: unknown name `stauts`",
    )
    .await;
    check_rejected("status", "a condition must be true or false, but is string").await;
    check_rejected(
        "vars.total",
        "a condition must be true or false, but is int",
    )
    .await;
    check_rejected("version > 'x'", "").await;
    check_rejected("status ==", "ends too early").await;
    let found = request(&node, "vars.nothing > 1", "").await.ok();
    assert_eq!(
        (names(&found).len(), &found["filter_errors"]),
        (0, &json!(6))
    );
    assert!(
        found["first_filter_error"]
            .as_str()
            .unwrap()
            .contains("nothing"),
        "{found}"
    );
}

/// Requirements: R18.
#[tokio::test(flavor = "multi_thread")]
async fn paged_filter_returns_every_match() {
    for (scan_limit, limit) in [(1, 1), (2, 1), (3, 2), (100, 1), (100, 2), (100, 6)] {
        let node = orders(|config| {
            config.http.scan_limit = scan_limit;
            config.http.max_page_size = scan_limit;
        })
        .await;
        let (mut found, mut cursor) = (Vec::new(), String::new());
        loop {
            let page = request(
                &node,
                "vars.total <= 50",
                &format!("&count=true&limit={limit}{cursor}"),
            )
            .await
            .ok();
            assert!(page["scanned"].as_u64().unwrap() <= scan_limit as u64);
            assert!(page["count"]["value"].as_u64().unwrap() >= names(&page).len() as u64);
            found.extend(names(&page).into_iter().map(str::to_owned));
            assert_eq!(
                page["count"]["exact"] == true,
                cursor.is_empty() && scan_limit == 100,
                "{page}"
            );
            let Some(next) = page["next_cursor"].as_str() else {
                break;
            };
            cursor = format!("&cursor={next}");
        }
        assert_eq!(
            found,
            ["o-1", "o-2", "o-3", "o-4", "o-5"],
            "{scan_limit} {limit}"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn redacted_fields_cannot_be_filtered() {
    let node =
        orders(|config| config.redact.fields = vec!["total".to_owned().try_into().unwrap()]).await;
    let found = request(&node, "vars.total == 10", "").await.ok();
    assert_eq!(names(&found), [""; 0]);
    let found = request(&node, "vars.total == '[redacted]'", "").await.ok();
    assert_eq!(names(&found).len(), 6);
}

#[tokio::test(flavor = "multi_thread")]
async fn filter_sees_the_current_state() {
    let node = orders(|_| ()).await;
    let dear = "[1, 2, 3, 4, 5, 6, 7, 8].all(a, [1, 2, 3, 4, 5, 6, 7, 8].all(b, ('x' + correlation).size() > 0))";
    assert_eq!(names(&request(&node, dear, "").await.ok()).len(), 6);
    let shipped = event("s-1", "Shipped", &json!({ "orderId": "o-1" }));
    node.post("/v1/events", &shipped).await.ok();
    node.until("", "/v1/sagas/order/o-1", |order| {
        order["status"] == "completed"
    })
    .await;
    assert_eq!(
        names(&request(&node, "status == 'completed'", "").await.ok()),
        ["o-1"]
    );
}

const REVIEW: &str = r#"
saga: review
version: 1
correlate: id
start: Reviewed
vars: { id: =event.id, card: =event.card }
reference: ="card " + vars.card
steps:
  - id: look
    do:
      human:
        title: ="Check " + vars.card
        roles: [clerk]
        data: { card: =vars.card, limit: 5 }
    ok: Approved
    timeout: 10d
"#;

/// Redaction applies to tasks, references and conditions, not only to the state.
#[tokio::test(flavor = "multi_thread")]
async fn redacted_values_leave_the_node_in_no_view() {
    let fields = json!({ "fields": ["card"] });
    let node = Node::start_with(|config| {
        config.redact = serde_json::from_value(fields).unwrap();
        config.export.enabled = true;
    })
    .await;
    let order = std::fs::read_to_string(node.definitions().join("order.saga.yaml")).unwrap();
    let files = json!([
        { "name": "order.saga.yaml", "text": order },
        { "name": "review.saga.yaml", "text": REVIEW }
    ]);
    node.post("/admin/deploy", &json!({ "files": files }))
        .await
        .ok();
    node.post(
        "/v1/events",
        &event(
            "r-1",
            "Reviewed",
            &json!({ "id": "r-1", "card": "4111-1111" }),
        ),
    )
    .await
    .ok();
    let detail = node
        .until("", "/v1/sagas/review/r-1", |saga| {
            !saga["tasks"][0].is_null()
        })
        .await;
    let task = detail["tasks"][0].clone();
    assert_eq!(task["data"], json!({ "card": "[redacted]", "limit": 5 }));
    assert_eq!(
        (&task["title"], &detail["reference"]),
        (&json!("Check [redacted]"), &json!("card [redacted]"))
    );
    let task_path = format!("/v1/tasks/{}", task["id"].as_str().unwrap());
    for path in [
        "/v1/sagas/review/r-1",
        "/v1/sagas",
        "/v1/tasks",
        &task_path,
        "/v1/export",
        "/v1/inspect/task",
    ] {
        let response = node.ask(Method::GET, "", path, Body::empty()).await;
        assert!(
            response.status.is_success() && response.text.contains("r-1"),
            "{path}: {}",
            response.text
        );
        assert!(!response.text.contains("4111"), "{path}: {}", response.text);
    }
    for oracle in [
        "tasks.exists(task, task.data.card == '4111-1111')",
        "reference.contains('4111')",
        "vars.card == '4111-1111'",
    ] {
        let found = request(&node, &format!("saga == 'review' && {oracle}"), "")
            .await
            .ok();
        assert_eq!(names(&found), [""; 0], "{oracle}");
    }
}

/// Waits until a page fits. An index is built without a commit, so no change of the store announces it.
pub(crate) async fn until_page(node: &Node, path: &str, fits: impl Fn(&Value) -> bool) -> Value {
    let polled = async {
        loop {
            let page = node.get(path).await.ok();
            if fits(&page) {
                return page;
            }
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(WAIT_TIMEOUT, polled)
        .await
        .unwrap_or_else(|_| panic!("{path} did not change in time"))
}

/// Waits until a filter reads this number of instances; returns the correlation ids that it finds.
async fn until_scanned(node: &Node, filter: &str, scanned: u64) -> Vec<String> {
    let filter = utf8_percent_encode(filter, NON_ALPHANUMERIC);
    let path = format!("/v1/sagas?filter={filter}");
    let found = until_page(node, &path, |page| page["scanned"] == scanned).await;
    names(&found).into_iter().map(str::to_owned).collect()
}

/// Deploys the order definition with these indexes as the next version.
async fn deploy_indexed(node: &Node, version: u32, index: &str) {
    let order = std::fs::read_to_string(node.definitions().join("order.saga.yaml")).unwrap();
    let text = order.replace("version: 1", &format!("version: {version}\n{index}"));
    let files = json!([{ "name": "order.saga.yaml", "text": text }]);
    node.post("/admin/deploy", &json!({ "files": files }))
        .await
        .ok();
}

/// Instances that exist when an index is declared are indexed too, and a removed index is not used.
#[tokio::test(flavor = "multi_thread")]
async fn indexed_variables_are_found_without_reading_other_instances() {
    let node = orders(|_| ()).await;
    deploy_indexed(&node, 2, "index: [total]").await;
    assert_eq!(
        until_scanned(&node, "saga == 'order' && vars.total == 30", 1).await,
        ["o-3"]
    );
    assert_eq!(
        until_scanned(&node, "saga == 'order' && vars.total == 30 && paused", 1).await,
        [""; 0]
    );
    let range = "saga == 'order' && 20 <= vars.total && vars.total < 50";
    assert_eq!(until_scanned(&node, range, 4).await, ["o-2", "o-3", "o-4"]);
    node.order("", "o-6", 35, "running").await;
    assert_eq!(
        until_scanned(&node, range, 5).await,
        ["o-2", "o-3", "o-6", "o-4"]
    );
    let page = request(&node, range, "&limit=2").await.ok();
    let cursor = page["next_cursor"].as_str().unwrap();
    let next = request(&node, range, &format!("&limit=2&cursor={cursor}"))
        .await
        .ok();
    assert_eq!(
        (names(&page), names(&next)),
        (vec!["o-2", "o-3"], vec!["o-6", "o-4"])
    );
    // Without the saga, or with an alternative, the index does not contain every match.
    assert_eq!(until_scanned(&node, "vars.total == 30", 7).await, ["o-3"]);
    assert_eq!(
        until_scanned(&node, "saga == 'order' && (vars.total == 30 || paused)", 7).await,
        ["o-3", "o-5"]
    );
    deploy_indexed(&node, 3, "").await;
    assert_eq!(
        until_scanned(&node, "saga == 'order' && vars.total == 30", 7).await,
        ["o-3"]
    );
}

/// The number of instances that an index finds would reveal a redacted value.
#[tokio::test(flavor = "multi_thread")]
async fn redacted_variables_are_not_found_by_index() {
    let node =
        orders(|config| config.redact.fields = vec!["total".to_owned().try_into().unwrap()]).await;
    deploy_indexed(&node, 2, "index: [total]").await;
    // Two rows of each instance, and one for the variable.
    let rows = |page: &Value| page["rows"].as_array().unwrap().len();
    until_page(&node, "/v1/inspect/index?limit=99", |page| rows(page) == 18).await;
    assert_eq!(
        until_scanned(&node, "saga == 'order' && vars.total == 30", 6).await,
        [""; 0]
    );
}
