//! Pages of lists end by their size. The lists are those of the API description: a new one without an entry here fails the test.

use std::collections::BTreeSet;
use std::time::Duration;

use axum::body::Body;
use axum::http::{Method, Request};
use orlog_testkit::wait::until_ok;
use serde_json::{Value, json};

use crate::harness::http::HttpResponse;
use crate::harness::node::{Node, NodeBuilder};
use crate::signer::Signer;

/// Size of a page in this test. Few entries of each list are larger together.
const PAGE_BYTES: usize = 1500;
/// Size of a response without its entries.
const ENVELOPE_BYTES: usize = 500;
/// Number of entries of each list.
const ENTRIES: usize = 8;
/// Tenant of all lists that belong to one.
const TENANT: &str = "acme";
/// Names of the fields of a response that are lists of entries.
const LISTS: [&str; 3] = ["items", "rows", "versions"];

/// Starts with a human task, and waits for nothing else.
const SAGA: &str = "
saga: NAME
version: 1
correlate: id
start: Placed
vars: { id: =event.id, total: =event.total }
steps:
  - id: approve
    do: { human: { title: =vars.id, data: { total: =vars.total } } }
    timeout: 10d
";

/// List of the description with the path that this test requests.
struct List {
    route: &'static str,
    path: String,
}

fn list(route: &'static str) -> List {
    List {
        route,
        path: route.to_owned(),
    }
}

fn list_at(route: &'static str, path: impl Into<String>) -> List {
    List {
        route,
        path: path.into(),
    }
}

fn lists() -> Vec<List> {
    vec![
        list("/v1/actors"),
        list("/v1/audit"),
        list("/v1/batches"),
        list("/v1/contexts"),
        list("/v1/dead-letters"),
        list("/v1/dead-letters/causes"),
        list("/v1/definitions"),
        list_at("/v1/definitions/{saga}", "/v1/definitions/versions"),
        list("/v1/flows"),
        list_at("/v1/flows/{id}/lines", "/v1/flows/logged/lines"),
        list_at("/v1/inspect/{table}", "/v1/inspect/saga"),
        list("/v1/mailboxes"),
        list_at("/v1/messages", "/v1/messages?box=out"),
        list("/v1/peers"),
        list("/v1/runners"),
        list("/v1/sagas"),
        list_at(
            "/v1/sagas/{saga}/{correlation}/job-logs",
            "/v1/sagas/orlog.flow/logged/job-logs",
        ),
        list("/v1/schedules"),
        list("/v1/shadows"),
        list("/v1/tasks"),
        list("/v1/timers"),
        list("/v1/work"),
    ]
}

/// Returns the routes of the description whose response is a list.
fn described() -> BTreeSet<String> {
    let description = serde_json::to_value(orlog::api::openapi()).unwrap();
    let is_list = |operation: &Value| {
        let content = &operation["responses"]["200"]["content"]["application/json"];
        let Some(reference) = content["schema"]["$ref"].as_str() else {
            return false;
        };
        let schema = description.pointer(&reference[1..]).unwrap();
        LISTS
            .iter()
            .any(|name| schema["properties"][name]["type"] == "array")
    };
    let paths = description["paths"].as_object().unwrap();
    paths
        .iter()
        .filter(|(_, operations)| is_list(&operations["get"]))
        .map(|(path, _)| path.clone())
        .collect()
}

/// Returns the entries of a response.
fn entries(page: &Value) -> &Vec<Value> {
    let found = LISTS.iter().find_map(|name| page[*name].as_array());
    found.unwrap_or_else(|| panic!("no list: {page}"))
}

/// Returns the parameter of the next page. The lines of a flow continue after a number.
fn next(route: &str, page: &Value) -> Option<String> {
    if route == "/v1/flows/{id}/lines" {
        return (!entries(page).is_empty()).then(|| format!("after={}", page["last"]));
    }
    let cursor = page["next_cursor"].as_str()?;
    Some(format!("cursor={cursor}"))
}

/// Reads all pages of a list, and asserts that each of them ends by its size.
async fn read(node: &Node, list: &List) -> Vec<String> {
    let mut all = Vec::new();
    let mut pages = 0;
    let separator = if list.path.contains('?') { '&' } else { '?' };
    let first = format!("{}{separator}limit=1000", list.path);
    let mut path = first.clone();
    loop {
        let response = get(node, &path).await;
        let page = response.ok();
        let sizes: Vec<_> = entries(&page)
            .iter()
            .map(|entry| entry.to_string().len())
            .collect();
        let largest = sizes.iter().copied().max().unwrap_or_default();
        let limit = PAGE_BYTES.max(largest) + ENVELOPE_BYTES;
        assert!(
            response.text.len() <= limit,
            "{}: {} bytes in {sizes:?}",
            list.route,
            response.text.len()
        );
        let total = sizes.iter().sum::<usize>();
        assert!(
            total <= PAGE_BYTES || sizes.len() == 1,
            "{}: {sizes:?}",
            list.route
        );

        pages += 1;
        all.extend(entries(&page).iter().map(ToString::to_string));
        let Some(parameter) = next(list.route, &page) else {
            break;
        };
        path = format!("{first}&{parameter}");
    }
    assert!(pages > 1, "{}: one page of {}", list.route, all.len());
    all
}

async fn get(node: &Node, path: &str) -> HttpResponse {
    node.ask(Method::GET, TENANT, path, Body::empty()).await
}

async fn post(node: &Node, path: &str, body: &Value) -> HttpResponse {
    node.ask(Method::POST, TENANT, path, body.to_string()).await
}

async fn put(node: &Node, path: &str, body: &Value) -> HttpResponse {
    node.ask(Method::PUT, TENANT, path, body.to_string()).await
}

/// Submits a flow with this id.
async fn submit(node: &Node, id: &str, jobs: &[Value]) {
    let flow = json!({ "jobs": jobs });
    let request = Request::builder()
        .method(Method::POST)
        .uri("/v1/flows")
        .header("content-type", "application/json")
        .header("x-tenant-id", TENANT)
        .header("idempotency-key", id);
    node.send(request.body(Body::from(flow.to_string())).unwrap())
        .await
        .ok();
}

async fn start() -> Node {
    let mut builder = NodeBuilder::new().config(|config| {
        config.http.max_page_bytes = PAGE_BYTES as u64;
        // The mailboxes are those of live instances.
        config.limits.idle_timeout = Duration::from_hours(1);
        "one".clone_into(&mut config.node_name);
    });
    for number in 0..ENTRIES {
        let name = format!("saga-{number}");
        builder = builder.definition(&name, &SAGA.replace("NAME", &name));
    }
    builder.definition("versions", &version(1)).start().await
}

fn version(number: usize) -> String {
    let text = SAGA.replace("NAME", "versions");
    text.replace("version: 1", &format!("version: {number}"))
}

fn event(id: &str, data: &Value) -> Value {
    json!({
        "specversion": "1.0", "id": id, "source": "urn:test", "type": "Placed",
        "time": "2026-01-02T03:04:05Z", "data": data
    })
}

/// Waits until a list has as many entries as expected.
async fn until_count(node: &Node, path: &str, count: usize) {
    until_ok(path, async || {
        let mut found = 0;
        let mut cursor = String::new();
        loop {
            let separator = if path.contains('?') { '&' } else { '?' };
            let page = get(node, &format!("{path}{separator}limit=1000{cursor}"))
                .await
                .ok();
            found += entries(&page).len();
            let Some(next) = page["next_cursor"].as_str() else {
                break;
            };
            cursor = format!("&cursor={next}");
        }
        if found >= count {
            Ok(())
        } else {
            Err(found.to_string())
        }
    })
    .await;
}

/// Instances with tasks and timers, and dead letters of each saga.
async fn seed_sagas(node: &Node) {
    let data = json!({ "id": "placed", "total": 7 });
    post(node, "/v1/events", &event("placed", &data)).await.ok();
    until_count(node, "/v1/tasks", ENTRIES).await;

    // Without a total, no instance starts.
    let data = json!({ "id": "rejected" });
    post(node, "/v1/events", &event("rejected", &data))
        .await
        .ok();
    until_count(node, "/v1/dead-letters", ENTRIES).await;
}

/// Versions of one definition: each has an instance, so that it stays loaded.
async fn seed_versions(node: &Node) {
    for number in 1..=ENTRIES {
        let file = node.definitions().join("versions.saga.yaml");
        std::fs::write(file, version(number)).unwrap();
        post(node, "/admin/reload", &json!(null)).await.ok();
        let data = json!({ "id": format!("v-{number}"), "total": 7 });
        post(node, "/v1/sagas/versions", &data).await.ok();
    }
}

/// A flow whose jobs are claimed and write lines.
async fn seed_flow(node: &Node) {
    let jobs: Vec<_> = (0..ENTRIES)
        .map(|number| json!({ "id": format!("job-{number}"), "type": "python", "script": "x" }))
        .collect();
    submit(node, "logged", &jobs).await;
    for number in 1..ENTRIES {
        submit(node, &format!("flow-{number}"), &jobs[..1]).await;
    }
    until_count(node, "/v1/work", 2 * ENTRIES - 1).await;

    let mut written = 0;
    while written < ENTRIES {
        let claim =
            json!({ "effects": ["job.python"], "worker": "worker", "max": 1, "wait_seconds": 20 });
        let claimed = post(node, "/v1/work/claim", &claim).await.ok();
        let job = &claimed["jobs"][0];
        let lines: Vec<_> = (0..3).map(|_| "x".repeat(150)).collect();
        let log = json!({ "claim": job["claim"], "log": lines });
        let path = format!("/v1/work/jobs/{}/logs", job["job"].as_str().unwrap());
        post(node, &path, &log).await;
        written += usize::from(job["correlation"] == "logged");
    }
    // The lines of the last job are stored after those of the others.
    let last = format!("/v1/flows/logged/lines?after={}&wait=20s", 3 * ENTRIES - 1);
    node.until(TENANT, &last, |page| !entries(page).is_empty())
        .await;
}

/// Runners. A registration ends after a minute, so that they are registered before they are listed.
async fn seed_runners(node: &Node) {
    for number in 0..ENTRIES {
        let labels = json!({ "note": "x".repeat(300) });
        let runner =
            json!({ "name": format!("runner-{number}"), "types": ["python"], "labels": labels });
        post(node, "/v1/runners", &runner).await.ok();
    }
}

async fn seed_registry(node: &Node) {
    for number in 0..ENTRIES {
        let lists =
            json!({ "admins": ["user:root"], "readers": ["user:a", "user:b"], "executors": [] });
        let path = format!("/v1/contexts/context-{number}");
        // The path names the tenant.
        node.ask(Method::PUT, "", &path, lists.to_string())
            .await
            .ok();
        let actor = json!({ "id": format!("actor-{number}"), "addresses": [format!("https://actor-{number}.example")] });
        post(node, "/v1/actors", &actor).await.ok();
        let key = json!({ "public_key": Signer::new().key.public_key().to_string() });
        let peer = json!({ "name": format!("peer-{number}"), "address": "http://127.0.0.1:1", "keys": [key] });
        post(node, "/v1/peers", &peer).await.ok();
    }
}

async fn seed_built_in(node: &Node) {
    for number in 0..ENTRIES {
        let batch = json!({
            "id": format!("batch-{number}"), "saga": "saga-1", "prefix": "none", "action": { "type": "pause" },
            "user": "ada", "reason": "test"
        });
        post(node, "/v1/batches", &batch).await.ok();
        let schedule = json!({ "saga": "saga-1", "cron": "0 3 * * *", "data": { "id": "scheduled", "total": 7 } });
        let path = format!("/v1/schedules/schedule-{number}");
        put(node, &path, &schedule).await.ok();
        let message = json!({ "to": "other@one", "type": "chat", "thread": "t", "body": "x" });
        post(node, "/v1/messages", &message).await.ok();
    }
    for number in 1..4 {
        let name = format!("saga-{number}");
        let text = SAGA
            .replace("NAME", &name)
            .replace("version: 1", "version: 2");
        let file = json!({ "name": format!("{name}.saga.yaml"), "text": text });
        let shadow = json!({ "file": file, "user": "ada" });
        post(node, "/v1/shadows", &shadow).await.ok();
    }
}

/// Requirements: E9.
#[tokio::test(flavor = "multi_thread")]
async fn every_list_of_the_description_ends_its_pages_by_size() {
    let lists = lists();
    let covered: BTreeSet<_> = lists.iter().map(|list| list.route.to_owned()).collect();
    assert_eq!(described(), covered);

    let node = start().await;
    seed_sagas(&node).await;
    seed_versions(&node).await;
    seed_flow(&node).await;
    seed_registry(&node).await;
    seed_built_in(&node).await;

    for list in &lists {
        if list.route == "/v1/runners" {
            seed_runners(&node).await;
        }
        let all = read(&node, list).await;
        let distinct: BTreeSet<_> = all.iter().collect();
        assert_eq!(distinct.len(), all.len(), "{}", list.route);
        let expected = if list.route == "/v1/shadows" {
            3
        } else {
            ENTRIES
        };
        assert!(all.len() >= expected, "{}: {}", list.route, all.len());
    }
    node.stop().await;
}

/// An entry that is larger than a page is returned alone, and none is lost.
#[tokio::test(flavor = "multi_thread")]
async fn entry_that_is_larger_than_a_page_is_alone() {
    let node = start().await;
    for number in 0..3 {
        let data = json!({ "id": format!("large-{number}"), "total": "x".repeat(3 * PAGE_BYTES) });
        let start = format!("/v1/sagas/saga-{number}");
        post(&node, &start, &data).await.ok();
    }
    until_count(&node, "/v1/tasks", 3).await;
    let first = get(&node, "/v1/tasks?limit=1000").await.ok();
    assert_eq!(entries(&first).len(), 1);
    assert!(first["next_cursor"].is_string(), "{first}");
    node.stop().await;
}
