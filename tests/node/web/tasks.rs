//! Task inbox: claim, release, reassign and complete a task.

use serde_json::Value;

use crate::web::site::Site;

impl Site {
    /// Confirms as a user with the role.
    fn as_lead(&mut self, name: &str, action: &str) {
        self.browser.fill("User name", name);
        self.browser.click("button", action);
        self.browser.until("!document.querySelector('dialog')");
    }

    async fn task_is(&self, id: &str, fits: impl Fn(&Value) -> bool) -> Value {
        self.node.until("", &format!("/v1/tasks/{id}"), fits).await
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_task_is_claimed_released_reassigned_and_completed() {
    let mut site = Site::open().await;
    let task = site.colleague("e1", "Ada").await;
    site.go("/tasks");
    site.browser.click("button", "Claim: Find a mentor for Ada");
    site.as_lead("grace", "Claim");
    site.task_is(&task, |task| task["claimed_by"] == "grace")
        .await;
    site.browser.wait_for_text("claimed by grace");

    site.browser.click("link", "Find a mentor for Ada");
    site.browser.wait_for_text("Outcomes");
    site.browser
        .click("button", "Release: Find a mentor for Ada");
    site.as_lead("grace", "Release");
    site.task_is(&task, |task| task["status"] == "open").await;

    site.browser
        .click("button", "Reassign: Find a mentor for Ada");
    site.browser.fill("Assignee", "linus");
    site.as_lead("grace", "Reassign");
    site.task_is(&task, |task| task["assignee"] == "linus")
        .await;

    site.browser
        .until("document.body.innerText.includes('linus')");
    site.browser
        .click("button", "Complete: Find a mentor for Ada");
    site.browser.fill("Data", "{ \"mentor\": \"linus\" }");
    site.browser.fill("User name", "mallory");
    site.browser.click("button", "Complete");
    site.browser.wait_for_text("Task conflict");
    site.as_lead("linus", "Complete");
    let done = site
        .task_is(&task, |task| task["status"] == "completed")
        .await;
    assert_eq!(done["events"].as_array().unwrap().len(), 5, "{done:#}");
    site.browser.wait_for_text("completed by linus");
    site.picture("task");
    let saga = site.node.until("", "/v1/sagas/onboarding/e1", |saga| {
        saga["state"]["vars"]["mentor"] == "linus"
    });
    saga.await;
}
