//! A node with two shards, households and people.

use std::sync::Arc;
use std::time::Duration;

use orlog::config::{Config, Window};
use orlog::{App, Seams};
use orlog_model::TenantId;
use orlog_testkit::sagas::composite;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::net::TcpListener;

/// Nothing in these tests takes longer.
pub(crate) const PATIENCE: Duration = Duration::from_mins(1);
/// A tenant that has something in both shards.
pub(crate) const WIDE: &str = "acme";

pub(crate) struct Node {
    pub(crate) app: Arc<App>,
    pub(crate) url: String,
    folder: TempDir,
    http: reqwest::Client,
}

/// What came back.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) text: String,
}

impl Answer {
    #[track_caller]
    pub(crate) fn ok(&self) -> Value {
        assert!((200..300).contains(&self.status), "{self:?}");
        serde_json::from_str(&self.text).unwrap_or_else(|error| panic!("{error}: {}", self.text))
    }

    /// The detail of a problem with this status and code.
    #[track_caller]
    pub(crate) fn problem(&self, status: u16, code: &str) -> String {
        let problem: Value = serde_json::from_str(&self.text).unwrap_or_default();
        assert_eq!((self.status, problem["code"].as_str()), (status, Some(code)), "{self:?}");
        problem["detail"].as_str().unwrap().to_owned()
    }
}

impl Node {
    pub(crate) async fn start() -> Self {
        Self::start_with(|_| ()).await
    }

    /// Events are remembered for a millisecond, what has ended is forgotten when it is asked for, and answers are short.
    pub(crate) async fn start_with(change: impl FnOnce(&mut Config)) -> Self {
        Self::on(tempfile::tempdir().unwrap(), change).await
    }

    /// With what an earlier life left.
    pub(crate) async fn on(folder: TempDir, change: impl FnOnce(&mut Config)) -> Self {
        let mut config = Config { data: folder.path().join("data"), shards: 2, ..Config::default() };
        config.export.enabled = true;
        config.tenants.spread = vec![TenantId::new(WIDE).unwrap()];
        config.store.dedupe_window = Duration::from_millis(1);
        config.retention.instances = Window::For(Duration::from_millis(1));
        config.retention.every = Duration::from_hours(1);
        config.http.page_limit = 20;
        change(&mut config);
        let programs = composite::programs().map(|program| Arc::clone(&program)).into();
        let app = App::start_with(config, Seams { programs, ..Seams::default() }).await.unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        tokio::spawn(orlog::api::serve(Arc::clone(&app), listener, std::future::pending()));
        let http = orlog_effect::http::client().timeout(PATIENCE).build().unwrap();
        Self { app, url, folder, http }
    }

    /// Ends it; what it leaves.
    pub(crate) async fn stop(self) -> TempDir {
        self.app.stop().await.unwrap();
        self.folder
    }

    pub(crate) async fn send(&self, tenant: &str, method: &str, path: &str, body: Option<&Value>) -> Answer {
        let method = reqwest::Method::from_bytes(method.as_bytes()).unwrap();
        let mut request = self.http.request(method, format!("{}{path}", self.url));
        if !tenant.is_empty() {
            request = request.header("x-tenant-id", tenant);
        }
        if let Some(body) = body {
            request = request.json(body);
        }
        let answer = request.send().await.unwrap();
        Answer { status: answer.status().as_u16(), text: answer.text().await.unwrap() }
    }

    pub(crate) async fn get(&self, tenant: &str, path: &str) -> Answer {
        self.send(tenant, "GET", path, None).await
    }

    /// Opens households and waits until each has its errand done; the answers are their tasks.
    pub(crate) async fn open(&self, tenant: &str, numbers: std::ops::Range<usize>) -> Vec<String> {
        let opened = |number: &usize| {
            json!({
                "specversion": "1.0", "id": format!("opened-{number}"), "type": "HouseholdOpened", "source": "urn:town",
                "correlationid": format!("h-{number}"), "data": { "n": 0 },
            })
        };
        let events: Vec<_> = numbers.clone().map(|number| opened(&number)).collect();
        self.send(tenant, "POST", "/v1/events", Some(&json!(events))).await.ok();
        let mut tasks = Vec::new();
        for number in numbers {
            let path = format!("/v1/sagas/household/h-{number}");
            let house = self.until(tenant, &path, |house| !house["state"]["brought"].is_null()).await;
            tasks.push(house["tasks"][0]["id"].as_str().unwrap().to_owned());
        }
        tasks
    }

    /// Asks until the answer fits.
    pub(crate) async fn until(&self, tenant: &str, path: &str, fits: impl Fn(&Value) -> bool) -> Value {
        let (mut ticks, mut last) = (tokio::time::interval(Duration::from_millis(10)), Value::Null);
        let waited = tokio::time::timeout(PATIENCE, async {
            loop {
                ticks.tick().await;
                let answer = self.get(tenant, path).await;
                last = serde_json::from_str(&answer.text).unwrap_or_default();
                if answer.status == 200 && fits(&last) {
                    return;
                }
            }
        });
        assert!(waited.await.is_ok(), "{path} stays at {last:#}");
        last
    }

    pub(crate) async fn tell(&self, tenant: &str, task: &str, verb: &str, more: Value) {
        let mut body = json!({ "by": "alice", "roles": ["landlord"] });
        if verb == "assign" {
            body = json!({ "by": "boss" });
        }
        body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        self.send(tenant, "POST", &format!("/v1/tasks/{task}/{verb}"), Some(&body)).await.ok();
    }

    /// People do something about each task: one in four is answered.
    pub(crate) async fn people(&self, tenant: &str, tasks: &[String]) {
        for (number, task) in tasks.iter().enumerate() {
            match number % 4 {
                0 => {
                    self.tell(tenant, task, "claim", json!({})).await;
                    self.tell(tenant, task, "complete", json!({ "outcome": "Approved", "reason": "nice" }))
                        .await;
                }
                1 => {
                    self.tell(tenant, task, "claim", json!({})).await;
                    self.tell(tenant, task, "release", json!({ "reason": "lunch" })).await;
                }
                2 => {
                    self.tell(tenant, task, "assign", json!({ "assignee": "bob", "roles": ["clerk"] })).await;
                }
                _ => {}
            }
        }
    }

    /// Forgets what has ended, until so many instances are gone.
    pub(crate) async fn purge(&self, instances: u64) {
        let (mut ticks, mut gone) = (tokio::time::interval(Duration::from_millis(10)), 0);
        let whole = async {
            while gone < instances {
                ticks.tick().await;
                gone += self.app.purge().await.unwrap().instances;
            }
            // Tasks go once their instance is gone.
            self.app.purge().await.unwrap();
        };
        assert!(tokio::time::timeout(PATIENCE, whole).await.is_ok(), "{gone} are gone");
    }
}
