//! Access to tenants, identity of the user, rejected requests, and the response headers of the page.

use axum::body::Body;
use axum::http::{Request, StatusCode};
use orlog::config::{TenantMode, TenantsConfig};
use orlog_model::TenantId;

use crate::api::node::Node;
use crate::web::site::Site;

#[tokio::test(flavor = "multi_thread")]
async fn tenant_switch_works_and_unknown_tenant_shows_an_error() {
    let listed = |config: &mut orlog::config::Config| {
        let allowed = vec![TenantId::new("acme").unwrap()];
        config.tenants = TenantsConfig {
            mode: TenantMode::Allowlist,
            allowed,
            ..TenantsConfig::default()
        };
    };
    let mut site = Site::open_with(listed).await;
    site.node.order("acme", "o-acme", 5, "running").await;
    site.go("/instances");
    site.browser.wait_for_text("No matching instances");
    site.browser.click("button", "Tenant: default tenant");
    site.browser.fill("Tenant", "acme");
    site.browser.click("button", "Switch");
    site.browser.wait_for_text("o-acme");

    site.browser.click("button", "Tenant: acme");
    site.browser.fill_in("combobox", "Tenant", "unknown");
    site.browser.click("button", "Switch");
    site.browser.wait_for_text("Access denied");
    site.browser.wait_for_text("unknown");
    site.picture("access-denied");
    site.browser.record();
    site.browser.fill("Access token", "secret-token");
    site.browser.click("button", "Use token");
    site.browser
        .until("sessionStorage.getItem('orlog.token') === 'secret-token'");
    site.browser.wait_for_text("Access denied");
    let requests = site.browser.record().requests;
    let sent = requests
        .iter()
        .any(|request| request["headers"]["authorization"] == "Bearer secret-token");
    assert!(sent, "{requests:#?}");
    assert_eq!(
        site.browser
            .eval("Object.values({...localStorage}).includes('secret-token')"),
        false
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn token_in_a_link_moves_from_the_address_to_the_session() {
    let mut site = Site::open().await;
    let link = format!("{}/#token=0123abcd", site.url);
    site.browser.navigate(&link);
    site.browser
        .until("sessionStorage.getItem('orlog.token') === '0123abcd'");
    site.browser.until("location.hash === ''");
    assert_eq!(
        site.browser
            .eval("Object.values({...localStorage}).includes('0123abcd')"),
        false
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn theme_is_persisted() {
    let mut site = Site::open().await;
    site.go("/node");
    let background = "getComputedStyle(document.documentElement).backgroundColor";
    let light = site.browser.eval(background);
    site.browser.click("button", "Theme: system");
    site.browser
        .until("document.documentElement.dataset.theme === 'light'");
    site.browser.click("button", "Theme: light");
    site.browser
        .until("document.documentElement.dataset.theme === 'dark'");
    let dark = site.browser.eval(background);
    assert_ne!(light, dark);
    site.go("/timers");
    assert_eq!(site.browser.eval(background), dark);
    site.browser.set_color_scheme(1360, 900, true);
    site.browser.click("button", "Theme: dark");
    site.browser
        .until("!document.documentElement.dataset.theme");
    assert_eq!(site.browser.eval(background), dark);
    site.was_quiet();
}

#[tokio::test(flavor = "multi_thread")]
async fn root_serves_ui_to_browsers_and_links_to_programs() {
    let node = Node::start().await;
    let links = node.get("/").await;
    assert!(links.ok()["links"].is_array());
    assert_eq!(links.headers["vary"], "accept");
    let request = |path: &str, name: &str, value: &str| {
        Request::get(path)
            .header(name, value)
            .body(Body::empty())
            .unwrap()
    };
    let page = node
        .send(request("/", "accept", "text/html,*/*;q=0.8"))
        .await;
    assert!(page.text.starts_with("<!doctype html>"), "{page:?}");
    assert_eq!(page.headers["content-type"], "text/html; charset=utf-8");
    let policy = page.headers["content-security-policy"].to_str().unwrap();
    assert!(
        policy.contains("default-src 'none'") && !policy.contains("unsafe"),
        "{policy}"
    );
    for (file, kind) in [
        ("style.css", "text/css; charset=utf-8"),
        ("app.js", "text/javascript; charset=utf-8"),
        ("views/overview.js", "text/javascript; charset=utf-8"),
        ("icon.svg", "image/svg+xml"),
    ] {
        let path = format!("/ui/{file}");
        let served = node.get(&path).await;
        assert_eq!(served.headers["content-type"], kind, "{file}");
        assert_eq!(served.headers["x-content-type-options"], "nosniff");
        let etag = served.headers["etag"].to_str().unwrap();
        let revalidated = node.send(request(&path, "if-none-match", etag)).await;
        assert_eq!(
            (revalidated.status, revalidated.text.as_str()),
            (StatusCode::NOT_MODIFIED, ""),
            "{file}"
        );
        let other = node
            .send(request(&path, "if-none-match", "\"other\""))
            .await;
        assert_eq!(other.status, StatusCode::OK);
    }
    for path in [
        "/ui/nothing.js",
        "/ui/views/nothing.js",
        "/ui/..%2fCargo.toml",
    ] {
        node.get(path).await.problem("OR0009");
    }
}
