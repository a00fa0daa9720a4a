//! Whose data, who somebody is, what is refused; and what the page is served with.

use axum::body::Body;
use axum::http::{Request, StatusCode};
use orlog::config::{TenantMode, Tenants};
use orlog_model::TenantId;

use crate::node::Node;
use crate::site::Site;

#[tokio::test(flavor = "multi_thread")]
async fn another_tenant_is_looked_at_and_an_unknown_one_is_refused_kindly() {
    let listed = |config: &mut orlog::config::Config| {
        let list = vec![TenantId::new("acme").unwrap()];
        config.tenants = Tenants { mode: TenantMode::Listed, list, ..Tenants::default() };
    };
    let Some(mut site) = Site::open_with(listed).await else { return };
    site.node.order("acme", "o-acme", 5, "running").await;
    site.go("/instances");
    site.browser.see("No instance fits");
    site.browser.click("button", "Tenant: default tenant");
    site.browser.fill("Tenant", "acme");
    site.browser.click("button", "Look");
    site.browser.see("o-acme");

    site.browser.click("button", "Tenant: acme");
    site.browser.fill_in("combobox", "Tenant", "nobody");
    site.browser.click("button", "Look");
    site.browser.see("You may not see this");
    site.browser.see("nobody");
    site.picture("refused");
    site.browser.record();
    site.browser.fill("Access token", "secret-token");
    site.browser.click("button", "Use this token");
    site.browser.until("sessionStorage.getItem('orlog.token') === 'secret-token'");
    site.browser.see("You may not see this");
    let requests = site.browser.record().requests;
    let sent = requests.iter().any(|request| request["headers"]["authorization"] == "Bearer secret-token");
    assert!(sent, "{requests:#?}");
    assert_eq!(site.browser.eval("Object.values({...localStorage}).includes('secret-token')"), false);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_look_is_chosen_and_kept() {
    let Some(mut site) = Site::open().await else { return };
    site.go("/node");
    let ground = "getComputedStyle(document.documentElement).backgroundColor";
    let light = site.browser.eval(ground);
    site.browser.click("button", "Colours: as the system");
    site.browser.until("document.documentElement.dataset.theme === 'light'");
    site.browser.click("button", "Colours: light");
    site.browser.until("document.documentElement.dataset.theme === 'dark'");
    let dark = site.browser.eval(ground);
    assert_ne!(light, dark);
    site.go("/timers");
    assert_eq!(site.browser.eval(ground), dark);
    site.browser.look(1360, 900, true);
    site.browser.click("button", "Colours: dark");
    site.browser.until("!document.documentElement.dataset.theme");
    assert_eq!(site.browser.eval(ground), dark);
    site.was_quiet();
}

#[tokio::test(flavor = "multi_thread")]
async fn browsers_get_the_page_and_programs_get_links() {
    let node = Node::start().await;
    let links = node.get("/").await;
    assert!(links.ok()["links"].is_array());
    assert_eq!(links.headers["vary"], "accept");
    let ask = |path: &str, name: &str, value: &str| {
        Request::get(path).header(name, value).body(Body::empty()).unwrap()
    };
    let page = node.send(ask("/", "accept", "text/html,*/*;q=0.8")).await;
    assert!(page.text.starts_with("<!doctype html>"), "{page:?}");
    assert_eq!(page.headers["content-type"], "text/html; charset=utf-8");
    let policy = page.headers["content-security-policy"].to_str().unwrap();
    assert!(policy.contains("default-src 'none'") && !policy.contains("unsafe"), "{policy}");
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
        let again = node.send(ask(&path, "if-none-match", etag)).await;
        assert_eq!((again.status, again.text.as_str()), (StatusCode::NOT_MODIFIED, ""), "{file}");
        let other = node.send(ask(&path, "if-none-match", "\"other\"")).await;
        assert_eq!(other.status, StatusCode::OK);
    }
    for path in ["/ui/nothing.js", "/ui/views/nothing.js", "/ui/..%2fCargo.toml"] {
        node.get(path).await.problem("OR0009");
    }
}
