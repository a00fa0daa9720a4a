//! Replica that follows the export, and the same state from the API.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::projection::node::Node;

/// Rows by kind and key.
pub(crate) type Rows = BTreeMap<(String, String), Value>;

/// Replica of the data of a tenant.
#[derive(Clone, Debug)]
pub(crate) struct ReplicaCopy {
    tenant: &'static str,
    query: &'static str,
    pub(crate) cursor: Option<String>,
    rows: BTreeMap<(String, String), (u64, Option<Value>)>,
    pub(crate) lines: usize,
    pub(crate) shards: std::collections::BTreeSet<u64>,
}

impl ReplicaCopy {
    pub(crate) fn of(tenant: &'static str, query: &'static str) -> Self {
        let (rows, shards) = (BTreeMap::new(), std::collections::BTreeSet::new());
        Self {
            tenant,
            query,
            cursor: None,
            rows,
            lines: 0,
            shards,
        }
    }

    pub(crate) fn path(&self, more: &str) -> String {
        let after = self
            .cursor
            .as_ref()
            .map_or(String::new(), |cursor| format!("&after={cursor}"));
        format!("/v1/export?{}{after}{more}", self.query)
    }

    /// Sends one request; returns whether more data is available.
    pub(crate) async fn fetch(&mut self, node: &Node) -> bool {
        let response = node.get(self.tenant, &self.path("")).await;
        assert_eq!(response.status, 200, "{response:?}");
        self.take(&response.text)
    }

    pub(crate) fn take(&mut self, text: &str) -> bool {
        let mut lines: Vec<Value> = text
            .lines()
            .map(|line| serde_json::from_str(line).unwrap())
            .collect();
        let last = lines.pop().unwrap();
        assert_eq!(last["kind"], "cursor", "{last}");
        let mut positions = BTreeMap::new();
        for line in lines {
            if line["kind"] == "reset" {
                self.rows.clear();
                continue;
            }
            self.lines += 1;
            let (shard, position) = (
                line["shard"].as_u64().unwrap(),
                line["position"].as_u64().unwrap(),
            );
            self.shards.insert(shard);
            let before = positions.insert(shard, position).unwrap_or(0);
            assert!(
                before <= position,
                "within a shard positions only grow: {line}"
            );
            let key = (
                line["kind"].as_str().unwrap().to_owned(),
                line["key"].to_string(),
            );
            let value = (line["op"] == "put").then(|| line["value"].clone());
            let stored = self.rows.entry(key).or_insert((0, None));
            if stored.0 <= position {
                *stored = (position, value);
            }
        }
        self.cursor = Some(last["cursor"].as_str().unwrap().to_owned());
        last["has_more"].as_bool().unwrap()
    }

    /// Sends requests until no data is left.
    pub(crate) async fn follow(&mut self, node: &Node) {
        while self.fetch(node).await {}
    }

    pub(crate) fn current_rows(&self) -> Rows {
        let there = self
            .rows
            .iter()
            .filter_map(|(key, (_, value))| Some((key.clone(), value.clone()?)));
        there.collect()
    }
}

/// Returns the same rows from the rest of the API. Task events are numbered by position.
pub(crate) async fn api_state(node: &Node, tenant: &str) -> Rows {
    let mut rows = Rows::new();
    for item in pages(node, tenant, "/v1/sagas?").await {
        let (saga, correlation) = (
            item["saga"].as_str().unwrap(),
            item["correlation"].as_str().unwrap(),
        );
        let key = json!({ "saga": saga, "correlation": correlation });
        let detail = node
            .get(
                tenant,
                &format!("/v1/sagas/{saga}/{correlation}?history_limit=20"),
            )
            .await
            .ok();
        assert!(detail["history"]["next"].is_null());
        for record in detail["history"]["items"].as_array().unwrap() {
            let mut key = key.clone();
            key["version"] = record["version"].clone();
            rows.insert(("history".to_owned(), key.to_string()), record.clone());
        }
        let mut value = item;
        for field in ["state", "parent", "last_input_id", "node", "trace_id"] {
            value[field] = detail[field].clone();
        }
        rows.insert(("instance".to_owned(), key.to_string()), value);
    }
    for item in pages(
        node,
        tenant,
        "/v1/tasks?status=open,claimed,completed,closed&",
    )
    .await
    {
        let id = item["id"].as_str().unwrap().to_owned();
        let detail = node.get(tenant, &format!("/v1/tasks/{id}")).await.ok();
        for (number, event) in detail["events"].as_array().unwrap().iter().enumerate() {
            rows.insert(
                ("task_event".to_owned(), format!("{id} {number}")),
                event.clone(),
            );
        }
        rows.insert(("task".to_owned(), json!({ "id": id }).to_string()), item);
    }
    rows
}

/// Numbers task events by position, like [`api_state`]: the numbers in the store have gaps.
pub(crate) fn number_task_events(rows: Rows) -> Rows {
    let (events, mut rest): (Rows, Rows) = rows
        .into_iter()
        .partition(|((kind, _), _)| kind == "task_event");
    let mut by_task: BTreeMap<String, BTreeMap<u64, Value>> = BTreeMap::new();
    for ((_, key), event) in events {
        let key: Value = serde_json::from_str(&key).unwrap();
        let (task, number) = (
            key["task"].as_str().unwrap().to_owned(),
            key["sequence"].as_u64().unwrap(),
        );
        by_task.entry(task).or_default().insert(number, event);
    }
    for (task, events) in by_task {
        for (number, event) in events.into_values().enumerate() {
            rest.insert(("task_event".to_owned(), format!("{task} {number}")), event);
        }
    }
    rest
}

async fn pages(node: &Node, tenant: &str, path: &str) -> Vec<Value> {
    let (mut found, mut cursor) = (Vec::new(), String::new());
    loop {
        let page = node.get(tenant, &format!("{path}{cursor}")).await.ok();
        found.extend(page["items"].as_array().unwrap().iter().cloned());
        match page["next_cursor"].as_str() {
            Some(next) => cursor = format!("cursor={next}"),
            None => return found,
        }
    }
}
