//! Deployment of definitions on the page: diagnostics, plan, difference, and rights.

use serde_json::{Value, json};

use crate::web::site::Site;

const GREETING: &str = "saga: greeting
version: 1
correlate: id
start: Greeted
vars: { id: =event.id }
steps:
  - { id: wave, do: { wait: 1h } }
";

impl Site {
    /// Enters a file as text.
    fn paste(&mut self, name: &str, text: &str) {
        self.browser.fill("File name", name);
        self.browser.fill("Text", text);
        self.browser.click("button", "Add text");
    }

    async fn source(&self, saga: &str) -> Value {
        let versions = self.node.get(&format!("/v1/definitions/{saga}")).await.ok();
        versions["versions"][0]["source"].clone()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn definition_is_deployed_after_diagnostics_plan_and_difference() {
    let mut site = Site::open().await;
    site.go("/definitions");
    site.browser.click("link", "Deploy");
    site.browser.wait_for_text("No files yet.");

    // Invalid text: the diagnostic has its line, and leads to it.
    site.paste(
        "greeting.saga.yaml",
        &GREETING.replace("wait: 1h", "wiat: 1h"),
    );
    site.browser.wait_for_text("greeting.saga.yaml:7:");
    site.browser
        .wait_for_text("the active definitions are unchanged");
    site.browser
        .wait_for_text("7 |   - { id: wave, do: { wiat: 1h } }");
    site.picture("deploy-diagnostics");
    site.browser
        .click("button", "Go to line 7 of greeting.saga.yaml");
    let selected = "document.activeElement.value.slice(document.activeElement.selectionStart, document.activeElement.selectionEnd)";
    site.browser.until(&format!("{selected}.includes('wiat')"));
    // The browser logs the rejected request.
    site.browser.record();

    site.paste("greeting.saga.yaml", GREETING);
    site.browser.wait_for_text("Plan");
    let row = "[...document.querySelectorAll('section[aria-labelledby=h-plan] tbody tr')].map((row) => [...row.children].map((cell) => cell.textContent))";
    let rows = site.browser.eval(row);
    assert_eq!(
        rows[0],
        json!(["added", "greeting", "1", "greeting.saga.yaml"]),
        "{rows}"
    );
    assert!(
        rows.as_array()
            .unwrap()
            .iter()
            .any(|row| row[0] == "unchanged" && row[1] == "order"),
        "{rows}"
    );
    site.browser.click("button", "Deploy");
    site.browser.wait_for_text("Starts greeting.");
    site.browser.click("button", "Deploy");
    site.browser.until("location.hash === '#/definitions'");
    site.browser.wait_for_text("is active.");
    assert_eq!(site.source("greeting").await, GREETING);
    assert!(
        site.source("order").await.is_string(),
        "the other definitions stay active"
    );

    // A changed definition is displayed with its difference.
    site.go("/deploy");
    let next = GREETING
        .replace("version: 1", "version: 2")
        .replace("wait: 1h", "wait: 2h");
    site.paste("greeting.saga.yaml", &next);
    site.browser.wait_for_text("Difference of greeting");
    let lines =
        "[...document.querySelectorAll('.diff .line')].map((line) => line.lastChild.textContent)";
    let lines = site.browser.eval(lines);
    let lines: Vec<_> = lines
        .as_array()
        .unwrap()
        .iter()
        .map(|line| line.as_str().unwrap())
        .collect();
    assert_eq!(
        lines,
        [
            "  saga: greeting",
            "- version: 1",
            "+ version: 2",
            "  correlate: id",
            "  start: Greeted",
            "  vars: { id: =event.id }",
            "  steps:",
            "-   - { id: wave, do: { wait: 1h } }",
            "+   - { id: wave, do: { wait: 2h } }",
        ]
    );
    site.picture("deploy-plan");
    site.browser
        .click("checkbox", "Keep the other active definitions");
    site.browser.until(&format!(
        "{row}.some((row) => row[0] === 'retired' && row[1] === 'order')"
    ));
    site.browser
        .click("checkbox", "Keep the other active definitions");
    site.browser
        .until(&format!("!{row}.some((row) => row[0] === 'retired')"));
    site.browser.click("button", "Deploy");
    site.browser.wait_for_text("Replaces greeting.");
    site.browser.click("button", "Deploy");
    site.browser.until("location.hash === '#/definitions'");
    site.browser
        .until("document.querySelector('[data-key=greeting]')?.textContent.includes('v2')");
    assert_eq!(site.source("greeting").await, next);
    site.was_quiet();
}

#[tokio::test(flavor = "multi_thread")]
async fn dropped_files_are_deployed() {
    let mut site = Site::open().await;
    site.go("/deploy");
    site.browser.wait_for_text("No files yet.");
    let text = json!(GREETING);
    site.browser.eval(&format!(
        "(() => {{
          const data = new DataTransfer();
          data.items.add(new File([{text}], 'greeting.saga.yaml'));
          const zone = document.querySelector('.drop');
          zone.dispatchEvent(new DragEvent('drop', {{ dataTransfer: data, bubbles: true, cancelable: true }}));
        }})()"
    ));
    site.browser.wait_for_text("Plan");
    site.browser.click("button", "Deploy");
    site.browser.wait_for_text("Starts greeting.");
    site.browser.click("button", "Deploy");
    site.browser.until("location.hash === '#/definitions'");
    site.browser.wait_for_text("is active.");
    assert_eq!(site.source("greeting").await, GREETING);
    site.was_quiet();
}
