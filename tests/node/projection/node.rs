//! Node with two shards, composite sagas and users.

use std::sync::Arc;
use std::time::Duration;

use orlog::config::{Config, RetentionPeriod};
use orlog::{App, AppOverrides};
use orlog_model::TenantId;
use orlog_testkit::sagas::composite;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::net::TcpListener;

/// Timeout of all waits in these tests.
pub(crate) const TIMEOUT: Duration = Duration::from_mins(1);
/// Tenant with data in both shards.
pub(crate) const WIDE: &str = "acme";

pub(crate) struct Node {
    pub(crate) app: Arc<App>,
    pub(crate) url: String,
    dir: TempDir,
    http: reqwest::Client,
}

/// Received response.
#[derive(Debug)]
pub(crate) struct HttpResponse {
    pub(crate) status: u16,
    pub(crate) text: String,
}

impl HttpResponse {
    #[track_caller]
    pub(crate) fn ok(&self) -> Value {
        assert!((200..300).contains(&self.status), "{self:?}");
        serde_json::from_str(&self.text).unwrap_or_else(|error| panic!("{error}: {}", self.text))
    }

    /// Returns the detail of a problem with this status and code.
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

    /// Starts a node with an event retention of one millisecond, purge on request only, and small pages.
    pub(crate) async fn start_with(change: impl FnOnce(&mut Config)) -> Self {
        Self::on(tempfile::tempdir().unwrap(), change).await
    }

    /// Starts a node on the data of an earlier run.
    pub(crate) async fn on(dir: TempDir, change: impl FnOnce(&mut Config)) -> Self {
        let mut config = Config { data_dir: dir.path().join("data"), shards: 2, ..Config::default() };
        config.export.enabled = true;
        config.tenants.key_sharded = vec![TenantId::new(WIDE).unwrap()];
        config.store.dedupe_window = Duration::from_millis(1);
        config.retention.instances = RetentionPeriod::For(Duration::from_millis(1));
        config.retention.interval = Duration::from_hours(1);
        config.http.max_page_size = 20;
        change(&mut config);
        let programs = composite::programs().map(|program| Arc::clone(&program)).into();
        let app =
            App::start_with(config, AppOverrides { programs, ..AppOverrides::default() }).await.unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        tokio::spawn(orlog::api::serve(Arc::clone(&app), listener, std::future::pending()));
        let http = orlog_effect::http::client().timeout(TIMEOUT).build().unwrap();
        Self { app, url, dir, http }
    }

    /// Stops the node and returns its directory.
    pub(crate) async fn stop(self) -> TempDir {
        self.app.stop().await.unwrap();
        self.dir
    }

    pub(crate) async fn send(
        &self,
        tenant: &str,
        method: &str,
        path: &str,
        body: Option<&Value>,
    ) -> HttpResponse {
        let method = reqwest::Method::from_bytes(method.as_bytes()).unwrap();
        let mut request = self.http.request(method, format!("{}{path}", self.url));
        if !tenant.is_empty() {
            request = request.header("x-tenant-id", tenant);
        }
        if let Some(body) = body {
            request = request.json(body);
        }
        let response = request.send().await.unwrap();
        HttpResponse { status: response.status().as_u16(), text: response.text().await.unwrap() }
    }

    pub(crate) async fn get(&self, tenant: &str, path: &str) -> HttpResponse {
        self.send(tenant, "GET", path, None).await
    }

    /// Starts composite sagas and waits until the child saga of each is done; returns their tasks.
    pub(crate) async fn open(&self, tenant: &str, numbers: std::ops::Range<usize>) -> Vec<String> {
        let opened = |number: &usize| {
            json!({
                "specversion": "1.0", "id": format!("opened-{number}"), "type": "CompositeOpened", "source": "urn:town",
                "correlationid": format!("h-{number}"), "data": { "n": 0 },
            })
        };
        let events: Vec<_> = numbers.clone().map(|number| opened(&number)).collect();
        self.send(tenant, "POST", "/v1/events", Some(&json!(events))).await.ok();
        let mut tasks = Vec::new();
        for number in numbers {
            let path = format!("/v1/sagas/composite/h-{number}");
            let saga = self.until(tenant, &path, |saga| !saga["state"]["brought"].is_null()).await;
            tasks.push(saga["tasks"][0]["id"].as_str().unwrap().to_owned());
        }
        tasks
    }

    /// Repeats the request until the response matches.
    pub(crate) async fn until(&self, tenant: &str, path: &str, fits: impl Fn(&Value) -> bool) -> Value {
        let (mut ticks, mut last) = (tokio::time::interval(Duration::from_millis(10)), Value::Null);
        let waited = tokio::time::timeout(TIMEOUT, async {
            loop {
                ticks.tick().await;
                let response = self.get(tenant, path).await;
                last = serde_json::from_str(&response.text).unwrap_or_default();
                if response.status == 200 && fits(&last) {
                    return;
                }
            }
        });
        assert!(waited.await.is_ok(), "{path} stays at {last:#}");
        last
    }

    pub(crate) async fn send_task_action(&self, tenant: &str, task: &str, verb: &str, more: Value) {
        let mut body = json!({ "user": "alice", "roles": ["landlord"] });
        if verb == "assign" {
            body = json!({ "user": "boss" });
        }
        body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        self.send(tenant, "POST", &format!("/v1/tasks/{task}/{verb}"), Some(&body)).await.ok();
    }

    /// Acts on each task; one in four is completed.
    pub(crate) async fn process_tasks(&self, tenant: &str, tasks: &[String]) {
        for (number, task) in tasks.iter().enumerate() {
            match number % 4 {
                0 => {
                    self.send_task_action(tenant, task, "claim", json!({})).await;
                    self.send_task_action(
                        tenant,
                        task,
                        "complete",
                        json!({ "outcome": "Approved", "reason": "nice" }),
                    )
                    .await;
                }
                1 => {
                    self.send_task_action(tenant, task, "claim", json!({})).await;
                    self.send_task_action(tenant, task, "release", json!({ "reason": "lunch" })).await;
                }
                2 => {
                    self.send_task_action(
                        tenant,
                        task,
                        "assign",
                        json!({ "assignee": "bob", "roles": ["clerk"] }),
                    )
                    .await;
                }
                _ => {}
            }
        }
    }

    /// Purges ended instances until this many are deleted.
    pub(crate) async fn purge(&self, instances: u64) {
        let (mut ticks, mut purged) = (tokio::time::interval(Duration::from_millis(10)), 0);
        let whole = async {
            while purged < instances {
                ticks.tick().await;
                purged += self.app.purge().await.unwrap().instances;
            }
            // Tasks are purged after their instance.
            self.app.purge().await.unwrap();
        };
        assert!(tokio::time::timeout(TIMEOUT, whole).await.is_ok(), "{purged} are gone");
    }
}
