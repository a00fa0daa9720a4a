//! All views: displayed without errors and external hosts, accessible names, readable in both themes.

use axum::body::Body;
use axum::http::Method;
use serde_json::{Value, json};

use crate::web::site::Site;

/// Views and the expected content of each.
const VIEWS: [(&str, &str, &str); 22] = [
    ("overview", "/", "Outbox by destination"),
    ("instances", "/instances", "Scanned"),
    ("instance", "/instances/onboarding/e1", "History"),
    (
        "stuck",
        "/instances/order/o-stuck",
        "needs an operator decision",
    ),
    ("tasks", "/tasks", "Find a mentor for Grace"),
    ("dead-letters", "/dead-letters", "Causes"),
    ("timers", "/timers", "Upcoming timers"),
    ("schedules", "/schedules", "All schedules"),
    ("schedule", "/schedules/nightly", "Next starts"),
    ("flows", "/flows", "All flows"),
    (
        "flow",
        "/flows/nightly",
        "no runner of type sh is registered",
    ),
    ("messages", "/messages?box=out", "Outbox"),
    ("message", "/messages/m-1", "Conversation"),
    ("batches", "/batches", "All batches"),
    ("batch", "/batches/recall", "The canary is done"),
    ("definition", "/definitions/onboarding", "Dependencies"),
    ("shadows", "/shadows", "All shadows"),
    (
        "shadow",
        "/shadows/onboarding",
        "No instance was compared yet.",
    ),
    ("contexts", "/contexts", "All contexts"),
    ("context", "/contexts/acme", "Last changes"),
    ("deploy", "/deploy", "No files yet."),
    ("node", "/node", "Deepest mailboxes"),
];

/// Finds elements with insufficient text contrast (WCAG 2.2, 1.4.3) and duplicate ids.
const FAULTS: &str = r"(() => {
  const parse = (text) => {
    const parts = text.match(/[\d.]+/g).map(Number);
    const scale = text.startsWith('color(') ? 255 : 1;
    return [parts[0] * scale, parts[1] * scale, parts[2] * scale, parts[3] ?? 1];
  };
  const over = ([r, g, b, a], below) => [r, g, b].map((part, at) => part * a + below[at] * (1 - a));
  const behind = (element) => {
    if (!element) return [255, 255, 255];
    const color = parse(getComputedStyle(element).backgroundColor);
    return color[3] === 1 ? color.slice(0, 3) : over(color, behind(element.parentElement));
  };
  const light = (color) => {
    const [r, g, b] = color.map((part) => part / 255).map((part) => (part <= 0.03928 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4));
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const faults = [];
  for (const element of document.querySelectorAll('body *')) {
    const own = [...element.childNodes].some((node) => node.nodeType === 3 && node.data.trim());
    if (!own || element.closest('svg, .visually-hidden, .skip, noscript, :disabled') || !element.getClientRects().length) continue;
    const style = getComputedStyle(element);
    const ground = behind(element);
    const [a, b] = [light(over(parse(style.color), ground)), light(ground)].sort((x, y) => y - x);
    const size = parseFloat(style.fontSize);
    const large = size >= 24 || (size >= 18.66 && Number(style.fontWeight) >= 700);
    const contrast = (a + 0.05) / (b + 0.05);
    if (contrast < (large ? 3 : 4.5)) faults.push(`${contrast.toFixed(2)}: ${element.className} ${element.textContent.slice(0, 40)}`);
  }
  const ids = [...document.querySelectorAll('[id]')].map((element) => element.id);
  faults.push(...ids.filter((id, at) => ids.indexOf(id) !== at).map((id) => `duplicate id ${id}`));
  return faults;
})()";

/// Elements that require an accessible name.
const NAMED: [&str; 12] = [
    "button",
    "link",
    "textbox",
    "searchbox",
    "combobox",
    "checkbox",
    "heading",
    "region",
    "navigation",
    "img",
    "table",
    "dialog",
];

async fn furnished() -> Site {
    let site = Site::open().await;
    site.colleague("e1", "Ada").await;
    site.colleague("e2", "Grace").await;
    site.happens(
        "account-e1",
        "AccountCreated",
        &json!({ "employeeId": "e1", "login": "ada" }),
    )
    .await;
    for number in 0..30 {
        site.node
            .order("", &format!("o-{number:02}"), 5 + number, "running")
            .await;
    }
    site.node.order("", "o-dear", 5000, "failed").await;
    for id in ["x-1", "x-2", "x-3"] {
        site.happens(id, "OrderPlaced", &json!({ "orderId": id }))
            .await;
    }
    site.stuck("o-stuck").await;
    site.schedule(
        "nightly",
        &json!({ "saga": "order", "cron": "0 2 * * *", "zone": "Europe/Berlin" }),
    )
    .await;
    let note = json!({ "type": "signal", "signal": "Noted", "data": { "n": 1 } });
    let batch =
        json!({ "id": "recall", "saga": "order", "prefix": "o-0", "action": note, "canary": 2 });
    site.node.post("/v1/batches", &batch).await.ok();
    site.flow(
        "nightly",
        &json!({ "jobs": [{ "id": "sum", "type": "sh", "script": "x" }] }),
    )
    .await;
    site.message(
        "",
        "m-1",
        &json!({ "to": "sales", "type": "mail", "subject": "Stock", "body": "How many?" }),
    )
    .await;
    let text =
        std::fs::read_to_string(site.node.definitions().join("onboarding.saga.yaml")).unwrap();
    let file =
        json!({ "name": "onboarding.saga.yaml", "text": format!("{text}\n# another version\n") });
    let lists =
        json!({ "admins": ["user:ada"], "readers": ["group:audit"], "executors": ["user:robot"] });
    site.node
        .ask(
            Method::PUT,
            "",
            "/v1/contexts/acme",
            Body::from(lists.to_string()),
        )
        .await
        .ok();
    site.node
        .post(
            "/v1/shadows",
            &json!({ "file": file, "sample": "10%", "for": "1d" }),
        )
        .await
        .ok();
    site
}

#[tokio::test(flavor = "multi_thread")]
async fn every_view_is_accessible_in_all_layouts_and_themes() {
    let mut site = furnished().await;
    for (name, path, text) in VIEWS {
        site.go(path);
        for (layout, width, dark) in [
            ("light", 1360, false),
            ("dark", 1360, true),
            ("narrow", 390, false),
        ] {
            site.browser.set_color_scheme(width, 900, dark);
            site.browser.wait_for_text(text);
            site.browser
                .until("!document.querySelector('[data-key=loading]')");
            site.picture(&format!("{name}-{layout}"));
            let faults = site.browser.eval(FAULTS);
            assert_eq!(faults, json!([]), "{name} {layout}");
            let wide = site.browser.eval("document.documentElement.scrollWidth");
            assert!(
                wide.as_u64().unwrap() <= width.into(),
                "{name} {layout} is {wide} wide"
            );
        }
        assert_accessible(name, &site.browser.accessible_name());
        site.was_quiet();
    }
}

/// Passive checks of a security scanner (the baseline scan of ZAP) for a response; returns what is missing.
fn missing_protection(response: &Value) -> Vec<String> {
    let headers = response["headers"]
        .as_object()
        .expect("a response has headers");
    let header = |name: &str| {
        let found = headers
            .iter()
            .find(|(found, _)| found.eq_ignore_ascii_case(name));
        found
            .and_then(|(_, value)| value.as_str())
            .unwrap_or_default()
    };
    let policy = header("content-security-policy");
    let style =
        policy.contains("style-src 'unsafe-inline'") && header("content-type") == "image/svg+xml";
    let checks = [
        (
            "x-content-type-options",
            header("x-content-type-options") == "nosniff",
        ),
        (
            "referrer-policy",
            header("referrer-policy") == "no-referrer",
        ),
        (
            "cross-origin-resource-policy",
            header("cross-origin-resource-policy") == "same-origin",
        ),
        (
            "cross-origin-opener-policy",
            header("cross-origin-opener-policy") == "same-origin",
        ),
        (
            "cache-control",
            ["no-store", "no-cache"].contains(&header("cache-control")),
        ),
        ("default-src", policy.contains("default-src 'none'")),
        ("frame-ancestors", policy.contains("frame-ancestors 'none'")),
        ("inline code", !policy.contains("unsafe") || style),
        (
            "content-type",
            response["status"] == 304 || !header("content-type").is_empty(),
        ),
        ("cookie", header("set-cookie").is_empty()),
        (
            "server software",
            header("server").is_empty() && header("x-powered-by").is_empty(),
        ),
        (
            "other sites",
            header("access-control-allow-origin").is_empty(),
        ),
    ];
    let failed = checks.into_iter().filter(|(_, passed)| !passed);
    failed
        .map(|(name, _)| format!("{name} of {}: {headers:?}", response["url"]))
        .collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn responses_pass_a_passive_security_scan() {
    let mut site = furnished().await;
    let mut scanned = 0;
    for (_, path, text) in VIEWS {
        site.go(path);
        site.browser.wait_for_text(text);
        let responses = site.browser.record().responses;
        let missing: Vec<String> = responses.iter().flat_map(missing_protection).collect();
        assert!(missing.is_empty(), "{missing:#?}");
        scanned += responses.len();
    }
    assert!(scanned > 30, "{scanned}");
    let stored = site.browser.eval(
        "[document.cookie, document.querySelectorAll('script:not([src]), [onclick]').length]",
    );
    assert_eq!(stored, json!(["", 0]));
    for path in [
        "nothing",
        "v1/sagas/none/none",
        "errors/OR0001",
        "health",
        "metrics",
        "openapi.json",
    ] {
        site.browser.eval(&format!(
            "fetch('/{path}').then((response) => response.status)"
        ));
        let responses = site.browser.record().responses;
        let missing: Vec<String> = responses.iter().flat_map(missing_protection).collect();
        assert!(
            !responses.is_empty() && missing.is_empty(),
            "{path}: {missing:#?}"
        );
    }
}

/// Asserts landmarks, one level-1 heading, and a name for every element with a role.
fn assert_accessible(view: &str, elements: &[(String, String)]) {
    for role in ["banner", "main", "navigation"] {
        assert!(
            elements.iter().any(|(found, _)| found == role),
            "{view} has no {role}: {elements:?}"
        );
    }
    for (role, name) in elements {
        assert!(
            !NAMED.contains(&role.as_str()) || !name.trim().is_empty(),
            "{view}: a {role} without a name"
        );
    }
    assert!(elements.iter().any(|(role, _)| role == "heading"), "{view}");
}

/// Requirements: T6.
#[tokio::test(flavor = "multi_thread")]
async fn overview_lists_and_links_items_needing_attention() {
    let mut site = furnished().await;
    site.go("/");
    site.browser.wait_for_text("1 instance is stuck");
    site.browser.wait_for_text("3 dead letters wait");
    site.browser.click(
        "link",
        "1 instance is stuck: a compensation failed and needs an operator decision.",
    );
    site.browser
        .until("location.hash === '#/instances?status=stuck'");
    site.browser.click("link", "o-stuck");
    site.browser.wait_for_text("Last error: come back later");
    site.browser.wait_for_text("bank_closed");
    let rendered = site
        .browser
        .eval("[...document.querySelectorAll('.graph title')].map((title) => title.textContent)");
    assert!(
        rendered.to_string().contains("compensation_failed"),
        "{rendered}"
    );
    site.was_quiet();
}

#[tokio::test(flavor = "multi_thread")]
async fn instance_page_shows_full_history() {
    let mut site = Site::open().await;
    let task = site.colleague("e1", "Ada").await;
    site.happens(
        "account",
        "AccountCreated",
        &json!({ "employeeId": "e1", "login": "ada" }),
    )
    .await;
    site.go("/instances/onboarding/e1");
    site.browser.wait_for_text("Waiting for equipment");
    let found = json!({ "user": "grace", "roles": ["lead"], "outcome": "MentorFound", "data": { "mentor": "grace" } });
    site.node
        .post(&format!("/v1/tasks/{task}/complete"), &found)
        .await
        .ok();
    site.happens_to(
        "laptop",
        "LaptopDelivered",
        Some("e1:equipment"),
        &json!({ "serial": "L-7" }),
    )
    .await;
    site.browser
        .until("document.querySelector('.head .badge.completed')");
    site.browser
        .until("document.querySelectorAll('.timeline .attempt').length === 3");
    let story: Value = site
        .browser
        .eval("document.querySelector('.timeline').innerText");
    let story = story.as_str().unwrap();
    for part in [
        "ContractSigned",
        "AccountCreated",
        "mail.welcome",
        "office",
        "MentorFound",
        "succeeded",
    ] {
        assert!(story.contains(part), "{part} is not in\n{story}");
    }
    // The started child instance is reachable from its parent.
    site.browser.click("link", "Show instances");
    site.browser
        .until("document.querySelectorAll('tbody tr').length === 1");
    site.browser.wait_for_text("e1:equipment");
    site.picture("child-sagas");
    site.browser.click("link", "e1:equipment");
    site.browser.click("link", "onboarding e1");
    site.browser
        .until("document.querySelector('h1').textContent === 'Ada'");
    site.browser.until("document.querySelector('.graph')");
    // The diagram is updated with the instance.
    let rendered = site
        .browser
        .eval("document.querySelectorAll('.graph .g-completed').length");
    assert_eq!(rendered, 5);
    site.picture("instance-completed");
    site.was_quiet();
}

#[tokio::test(flavor = "multi_thread")]
async fn instance_filter_works_and_reports_errors() {
    let mut site = Site::open().await;
    for (id, total) in [("o-1", 5), ("o-2", 50), ("o-3", 500)] {
        site.node.order("", id, total, "running").await;
    }
    site.go("/instances");
    site.browser.wait_for_text("o-3");
    site.browser.click("textbox", "Filter (CEL)");
    site.browser.write("vars.total > 20");
    site.browser.press("Enter");
    site.browser
        .until("document.querySelectorAll('tbody tr').length === 2");
    site.browser
        .until("decodeURIComponent(location.hash).includes('filter=vars.total')");
    site.picture("instances-filter");
    site.was_quiet();
    site.go("/instances?filter=vars.total%20%3E");
    site.browser
        .wait_for_text("line 1, column 13: the expression ends too early");
    site.browser
        .until("document.querySelectorAll('tbody tr').length === 0");
    site.go("/instances?filter=vars.missing%20%3E%201");
    site.browser.wait_for_text("3 filter errors");
}

#[tokio::test(flavor = "multi_thread")]
async fn timers_are_paginated() {
    let mut site = Site::open().await;
    for number in 0..120 {
        site.node
            .order("", &format!("o-{number:03}"), 5, "running")
            .await;
    }
    site.go("/timers");
    site.browser
        .until("document.querySelectorAll('tbody tr').length === 100");
    site.browser.click("button", "Next page");
    site.browser
        .until("document.querySelectorAll('tbody tr').length === 20");
    site.browser.wait_for_text("Page 2");
    site.browser.click("button", "Previous page");
    site.browser
        .until("document.querySelectorAll('tbody tr').length === 100");
    site.was_quiet();
}
