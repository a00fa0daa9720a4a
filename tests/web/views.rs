//! Every view: shown without an error and without another host, named for those who do not see, readable in both looks.

use serde_json::{Value, json};

use crate::site::Site;

/// The views, and what stands on each when it is there.
const VIEWS: [(&str, &str, &str); 9] = [
    ("overview", "/", "Where work waits"),
    ("instances", "/instances", "Looked at"),
    ("instance", "/instances/onboarding/e1", "What happened"),
    ("stuck", "/instances/order/o-stuck", "a person must decide"),
    ("tasks", "/tasks", "Find a mentor for Grace"),
    ("letters", "/letters", "By cause"),
    ("timers", "/timers", "Next to fire"),
    ("definition", "/definitions/onboarding", "What it uses"),
    ("node", "/node", "Deepest mailboxes"),
];

/// Elements whose text stands out too little against what is behind it (WCAG 2.2, 1.4.3), and ids that are given twice.
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
    if (!own || element.closest('svg, .unseen, .skip, noscript, :disabled') || !element.getClientRects().length) continue;
    const style = getComputedStyle(element);
    const ground = behind(element);
    const [a, b] = [light(over(parse(style.color), ground)), light(ground)].sort((x, y) => y - x);
    const size = parseFloat(style.fontSize);
    const large = size >= 24 || (size >= 18.66 && Number(style.fontWeight) >= 700);
    const contrast = (a + 0.05) / (b + 0.05);
    if (contrast < (large ? 3 : 4.5)) faults.push(`${contrast.toFixed(2)}: ${element.className} ${element.textContent.slice(0, 40)}`);
  }
  const ids = [...document.querySelectorAll('[id]')].map((element) => element.id);
  faults.push(...ids.filter((id, at) => ids.indexOf(id) !== at).map((id) => `the id ${id} is given twice`));
  return faults;
})()";

/// What has to have a name.
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

async fn furnished() -> Option<Site> {
    let site = Site::open().await?;
    site.colleague("e1", "Ada").await;
    site.colleague("e2", "Grace").await;
    site.happens("account-e1", "AccountCreated", &json!({ "employeeId": "e1", "login": "ada" })).await;
    for number in 0..30 {
        site.node.order("", &format!("o-{number:02}"), 5 + number, "running").await;
    }
    site.node.order("", "o-dear", 5000, "failed").await;
    for id in ["x-1", "x-2", "x-3"] {
        site.happens(id, "OrderPlaced", &json!({ "orderId": id })).await;
    }
    site.stuck("o-stuck").await;
    Some(site)
}

#[tokio::test(flavor = "multi_thread")]
async fn every_view_is_sound_wide_and_narrow_light_and_dark() {
    let Some(mut site) = furnished().await else { return };
    for (name, place, text) in VIEWS {
        site.go(place);
        for (look, width, dark) in [("light", 1360, false), ("dark", 1360, true), ("narrow", 390, false)] {
            site.browser.look(width, 900, dark);
            site.browser.see(text);
            site.browser.until("!document.querySelector('[data-key=loading]')");
            site.picture(&format!("{name}-{look}"));
            let faults = site.browser.eval(FAULTS);
            assert_eq!(faults, json!([]), "{name} {look}");
            let wide = site.browser.eval("document.documentElement.scrollWidth");
            assert!(wide.as_u64().unwrap() <= width.into(), "{name} {look} is {wide} wide");
        }
        is_told(name, &site.browser.heard_as());
        site.was_quiet();
    }
}

/// Landmarks, one first heading, and a name for everything that has a part.
fn is_told(view: &str, told: &[(String, String)]) {
    for role in ["banner", "main", "navigation"] {
        assert!(told.iter().any(|(found, _)| found == role), "{view} has no {role}: {told:?}");
    }
    for (role, name) in told {
        assert!(
            !NAMED.contains(&role.as_str()) || !name.trim().is_empty(),
            "{view}: a {role} without a name"
        );
    }
    assert!(told.iter().any(|(role, _)| role == "heading"), "{view}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_overview_says_what_needs_somebody_and_leads_there() {
    let Some(mut site) = furnished().await else { return };
    site.go("/");
    site.browser.see("1 instance is stuck");
    site.browser.see("3 dead letters wait");
    site.browser.click("link", "1 instance is stuck: an undo failed, and a person must decide.");
    site.browser.until("location.hash === '#/instances?status=stuck'");
    site.browser.click("link", "o-stuck");
    site.browser.see("What went wrong last: come back later");
    site.browser.see("bank_closed");
    let shown =
        site.browser.eval("[...document.querySelectorAll('.graph title')].map((title) => title.textContent)");
    assert!(shown.to_string().contains("undo_failed"), "{shown}");
    site.was_quiet();
}

#[tokio::test(flavor = "multi_thread")]
async fn an_instance_tells_its_whole_story() {
    let Some(mut site) = Site::open().await else { return };
    let task = site.colleague("e1", "Ada").await;
    site.happens("account", "AccountCreated", &json!({ "employeeId": "e1", "login": "ada" })).await;
    site.go("/instances/onboarding/e1");
    site.browser.see("Waits for equipment");
    let found =
        json!({ "by": "grace", "roles": ["lead"], "outcome": "MentorFound", "data": { "mentor": "grace" } });
    site.node.post(&format!("/v1/tasks/{task}/complete"), &found).await.ok();
    site.happens_to("laptop", "LaptopDelivered", Some("e1:equipment"), &json!({ "serial": "L-7" })).await;
    site.browser.until("document.querySelector('.head .badge.completed')");
    site.browser.until("document.querySelectorAll('.timeline .attempt').length === 3");
    let story: Value = site.browser.eval("document.querySelector('.timeline').innerText");
    let story = story.as_str().unwrap();
    for part in ["ContractSigned", "AccountCreated", "mail.welcome", "office", "MentorFound", "done"] {
        assert!(story.contains(part), "{part} is not in\n{story}");
    }
    // And what it began is found from it.
    site.browser.click("link", "Find them");
    site.browser.until("document.querySelectorAll('tbody tr').length === 1");
    site.browser.see("e1:equipment");
    site.picture("instances-begun");
    site.browser.click("link", "e1:equipment");
    site.browser.click("link", "onboarding e1");
    site.browser.until("document.querySelector('h1').textContent === 'Ada'");
    site.browser.until("document.querySelector('.graph')");
    // The picture goes with the instance.
    let shown = site.browser.eval("document.querySelectorAll('.graph .g-done').length");
    assert_eq!(shown, 5);
    site.picture("instance-completed");
    site.was_quiet();
}

#[tokio::test(flavor = "multi_thread")]
async fn instances_are_found_by_a_condition_and_one_that_is_none_says_where() {
    let Some(mut site) = Site::open().await else { return };
    for (id, total) in [("o-1", 5), ("o-2", 50), ("o-3", 500)] {
        site.node.order("", id, total, "running").await;
    }
    site.go("/instances");
    site.browser.see("o-3");
    site.browser.click("textbox", "Condition (CEL)");
    site.browser.write("vars.total > 20");
    site.browser.press("Enter");
    site.browser.until("document.querySelectorAll('tbody tr').length === 2");
    site.browser.until("decodeURIComponent(location.hash).includes('filter=vars.total')");
    site.picture("instances-condition");
    site.was_quiet();
    site.go("/instances?filter=vars.total%20%3E");
    site.browser.see("line 1, column 13: the expression ends too early");
    site.browser.until("document.querySelectorAll('tbody tr').length === 0");
    site.go("/instances?filter=vars.missing%20%3E%201");
    site.browser.see("Of 3 the condition cannot be told");
}

#[tokio::test(flavor = "multi_thread")]
async fn timers_are_turned_page_by_page() {
    let Some(mut site) = Site::open().await else { return };
    for number in 0..120 {
        site.node.order("", &format!("o-{number:03}"), 5, "running").await;
    }
    site.go("/timers");
    site.browser.until("document.querySelectorAll('tbody tr').length === 100");
    site.browser.click("button", "Next page");
    site.browser.until("document.querySelectorAll('tbody tr').length === 20");
    site.browser.see("Page 2");
    site.browser.click("button", "Previous page");
    site.browser.until("document.querySelectorAll('tbody tr').length === 100");
    site.was_quiet();
}
