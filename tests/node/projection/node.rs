//! Node with two shards, composite sagas and users.

use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

use orlog::config::{Config, RetentionPeriod};
use orlog_model::TenantId;
use orlog_testkit::WAIT_TIMEOUT;
use orlog_testkit::sagas::composite;
use orlog_testkit::wait;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::harness::http::{HttpResponse, client, send};
use crate::harness::node::{self, NodeBuilder};

/// Tenant with data in both shards.
pub(crate) const WIDE: &str = "acme";

pub(crate) struct Node {
    inner: node::Node,
    pub(crate) url: String,
    http: reqwest::Client,
}

impl Deref for Node {
    type Target = node::Node;

    fn deref(&self) -> &node::Node {
        &self.inner
    }
}

impl Node {
    pub(crate) async fn start() -> Self {
        Self::start_with(|_| ()).await
    }

    /// Starts a node with an event retention of one millisecond, purge on request only, and small pages.
    pub(crate) async fn start_with(change: impl FnOnce(&mut Config)) -> Self {
        Self::on(Arc::new(tempfile::tempdir().unwrap()), change).await
    }

    /// Starts a node on the data of an earlier run.
    pub(crate) async fn on(dir: Arc<TempDir>, change: impl FnOnce(&mut Config)) -> Self {
        let builder = NodeBuilder::on(dir).config(|config| {
            config.definitions_dir = None;
            config.shards = 2;
            config.export.enabled = true;
            config.tenants.key_sharded = vec![TenantId::new(WIDE).unwrap()];
            config.store.dedupe_window = Duration::from_millis(1);
            config.retention.instances = RetentionPeriod::For(Duration::from_millis(1));
            config.retention.interval = Duration::from_hours(1);
            config.http.max_page_size = 20;
            change(config);
        });
        let programs = composite::programs()
            .map(|program| Arc::clone(&program))
            .into();
        let node = builder
            .overrides(|overrides| overrides.programs = programs)
            .start()
            .await;
        Self {
            url: node.serve().await,
            http: client(),
            inner: node,
        }
    }

    /// Stops the node and returns its directory.
    pub(crate) async fn stop(self) -> Arc<TempDir> {
        self.inner.stop().await
    }

    pub(crate) async fn send(
        &self,
        tenant: &str,
        method: &str,
        path: &str,
        body: Option<&Value>,
    ) -> HttpResponse {
        let headers = if tenant.is_empty() {
            vec![]
        } else {
            vec![("x-tenant-id", tenant)]
        };
        send(
            &self.http,
            method,
            format!("{}{path}", self.url),
            &headers,
            body,
        )
        .await
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
        self.send(tenant, "POST", "/v1/events", Some(&json!(events)))
            .await
            .ok();
        let mut tasks = Vec::new();
        for number in numbers {
            let path = format!("/v1/sagas/composite/h-{number}");
            let saga = self
                .until(tenant, &path, |saga| !saga["state"]["brought"].is_null())
                .await;
            tasks.push(saga["tasks"][0]["id"].as_str().unwrap().to_owned());
        }
        tasks
    }

    /// Repeats the request until the response matches. A commit of either shard may change it.
    pub(crate) async fn until(
        &self,
        tenant: &str,
        path: &str,
        fits: impl Fn(&Value) -> bool,
    ) -> Value {
        wait::until(path, async || {
            let response = self.get(tenant, path).await;
            let found = serde_json::from_str(&response.text).unwrap_or_default();
            (response.status == 200 && fits(&found)).then_some(found)
        })
        .await
    }

    pub(crate) async fn send_task_action(&self, tenant: &str, task: &str, verb: &str, more: Value) {
        let mut body = json!({ "user": "alice", "roles": ["landlord"] });
        if verb == "assign" {
            body = json!({ "user": "boss" });
        }
        body.as_object_mut()
            .unwrap()
            .extend(more.as_object().unwrap().clone());
        self.send(
            tenant,
            "POST",
            &format!("/v1/tasks/{task}/{verb}"),
            Some(&body),
        )
        .await
        .ok();
    }

    /// Acts on each task; one in four is completed.
    pub(crate) async fn process_tasks(&self, tenant: &str, tasks: &[String]) {
        for (number, task) in tasks.iter().enumerate() {
            match number % 4 {
                0 => {
                    self.send_task_action(tenant, task, "claim", json!({}))
                        .await;
                    self.send_task_action(
                        tenant,
                        task,
                        "complete",
                        json!({ "outcome": "Approved", "reason": "nice" }),
                    )
                    .await;
                }
                1 => {
                    self.send_task_action(tenant, task, "claim", json!({}))
                        .await;
                    self.send_task_action(tenant, task, "release", json!({ "reason": "lunch" }))
                        .await;
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
                purged += self.app.services.retention.purge().await.unwrap().instances;
            }
            // Tasks are purged after their instance.
            self.app.services.retention.purge().await.unwrap();
        };
        assert!(
            tokio::time::timeout(WAIT_TIMEOUT, whole).await.is_ok(),
            "{purged} are gone"
        );
    }
}
