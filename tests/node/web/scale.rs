//! Many instances: a page loads only its own rows, rare ones are found among many, and the page stays
//! small and fast.

use std::path::Path;
use std::sync::Arc;

use orlog_model::{
    Change, Commit, CorrelationId, Instance, InstanceKey, SagaName, Status, TenantId, Timestamp,
};
use serde_json::json;

use crate::web::site::Site;

const BEGAN: i64 = 1_767_322_800_000;
/// One instance in this many is stuck.
const EACH: u32 = 1000;
/// Script that measures frame durations during an interaction.
const FRAMES: &str = "window.frames_ = []; (() => { let last = performance.now(); const look = (now) => { \
    window.frames_.push(now - last); last = now; requestAnimationFrame(look); }; requestAnimationFrame(look); })()";

/// Returns the number of instances; can be set manually.
fn many() -> u32 {
    std::env::var("ORLOG_WEB_INSTANCES").map_or(50_000, |text| text.parse().unwrap())
}

fn instance(status: Status, at: Timestamp) -> Instance {
    let is_stuck = status == Status::Stuck;
    let instance = json!({
        "definition": { "saga": "order", "version": 1, "hash": ([7_u8; 16]) },
        "version": 3,
        "status": status,
        "paused": false,
        "state": (br#"{"vars":{"total":42}}"#.as_slice()),
        "waits": [{ "kind": "event", "name": "Shipped", "until": null }],
        "timers": [],
        "pending_work": [],
        "reference": "customer@example.org",
        "last_input": "e-1",
        "last_error": is_stuck.then(|| json!({ "code": "bank_closed", "message": "come back later" })),
        "node": "test",
        "trace": null,
        "created_at": at,
        "updated_at": at,
        "run_id": uuid::Uuid::nil(),
    });
    serde_json::from_value(instance).unwrap()
}

/// Writes instances into the store of a node before its start.
fn fill(data: &Path) {
    std::fs::create_dir_all(data).unwrap();
    std::fs::write(data.join("layout.toml"), "shards = 1\nspread = []\n").unwrap();
    let (mut writer, _reader) =
        orlog_store::open(&data.join("shard-0"), orlog_store::Options::default()).unwrap();
    let change = |number: u32| {
        let key = InstanceKey {
            tenant: TenantId::default_tenant(),
            saga: SagaName::new("order").unwrap(),
            correlation: CorrelationId::new(format!("o-{number:07}")).unwrap(),
        };
        let at = Timestamp::from_millis(BEGAN + i64::from(number));
        let status = if number % EACH == EACH - 1 {
            Status::Stuck
        } else {
            Status::Running
        };
        let empty = Commit::empty(key, at);
        Change::Apply(Box::new(Commit {
            instance: Some(Arc::new(instance(status, at))),
            ..empty
        }))
    };
    for first in (0..many()).step_by(5000) {
        let group: Vec<_> = (first..many().min(first + 5000)).map(change).collect();
        writer
            .commit(&group, Timestamp::from_millis(BEGAN))
            .unwrap();
    }
    writer.close().unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn page_stays_small_with_many_instances() {
    let mut site = Site::open_with(|config| fill(&config.data_dir)).await;
    site.go("/instances");
    site.browser
        .until("document.querySelectorAll('tbody tr').length === 50");
    let first = site.browser.eval("performance.now()");
    site.browser.eval(FRAMES);
    for page in 2..12 {
        site.browser.click("button", "Next page");
        site.browser.until(&format!(
            "document.querySelector('tbody a').textContent === 'o-{:07}'",
            (page - 1) * 50
        ));
        site.browser
            .eval("window.scrollTo(0, document.body.scrollHeight)");
    }
    site.browser.click("button", "Previous page");
    site.browser
        .until("document.querySelector('tbody a').textContent === 'o-0000450'");
    let nodes = site
        .browser
        .eval("document.querySelectorAll('*').length")
        .as_u64()
        .unwrap();
    assert!(nodes < 3000, "{nodes} elements");
    let frames = site.browser.eval("(() => { const all = [...window.frames_].sort((a, b) => a - b); return { count: all.length, middle: all[all.length >> 1], worst: all.at(-1) }; })()");
    let memory = site.browser.eval("performance.memory.usedJSHeapSize");

    // Rare among many: the page continues to load until it is full or no rows are left.
    let stuck = (many() / EACH).min(50);
    site.browser.click("checkbox", "stuck");
    site.browser.until(&format!(
        "document.querySelectorAll('tbody .badge.stuck').length === {stuck}"
    ));
    site.browser
        .until("document.querySelector('.progress').textContent.includes('for this page')");
    let found = site.browser.eval("performance.now()");
    let requests = site.browser.record().requests;
    let lists = requests
        .iter()
        .filter(|request| request["url"].as_str().unwrap().contains("/v1/sagas"))
        .count();
    site.picture("many-instances-stuck");

    site.go("/");
    let counted = format!("{} instances are stuck", many() / EACH);
    site.browser.until(&format!(
        "document.body.innerText.replaceAll(',', '').includes('{counted}')"
    ));
    site.browser.wait_for_text(&format!("o-{:07}", EACH - 1));
    let took = site
        .browser
        .eval("document.querySelector('[data-key=section-instances] .aside').textContent");
    site.picture("many-instances");
    site.was_quiet();
    println!(
        "{} instances: first list after {first} ms, frames {frames} ms, heap {memory} bytes, {nodes} elements; stuck instances \
         after {found} ms and {lists} list requests; {took}",
        many()
    );
}
