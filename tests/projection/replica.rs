//! Somebody who keeps a copy, and what the node says about the same.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::node::Node;

/// What there is, by kind and key.
pub(crate) type Rows = BTreeMap<(String, String), Value>;

/// A copy of what a tenant has.
#[derive(Clone, Debug)]
pub(crate) struct Copy {
    tenant: &'static str,
    query: &'static str,
    pub(crate) cursor: Option<String>,
    rows: BTreeMap<(String, String), (u64, Option<Value>)>,
    pub(crate) lines: usize,
    pub(crate) shards: std::collections::BTreeSet<u64>,
}

impl Copy {
    pub(crate) fn of(tenant: &'static str, query: &'static str) -> Self {
        let (rows, shards) = (BTreeMap::new(), std::collections::BTreeSet::new());
        Self { tenant, query, cursor: None, rows, lines: 0, shards }
    }

    pub(crate) fn path(&self, more: &str) -> String {
        let after = self.cursor.as_ref().map_or(String::new(), |cursor| format!("&after={cursor}"));
        format!("/v1/export?{}{after}{more}", self.query)
    }

    /// Asks once; says whether there is more.
    pub(crate) async fn ask(&mut self, node: &Node) -> bool {
        let answer = node.get(self.tenant, &self.path("")).await;
        assert_eq!(answer.status, 200, "{answer:?}");
        self.take(&answer.text)
    }

    pub(crate) fn take(&mut self, text: &str) -> bool {
        let mut lines: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        let last = lines.pop().unwrap();
        assert_eq!(last["kind"], "cursor", "{last}");
        let mut positions = BTreeMap::new();
        for line in lines {
            if line["kind"] == "begin" {
                self.rows.clear();
                continue;
            }
            self.lines += 1;
            let (shard, position) = (line["shard"].as_u64().unwrap(), line["position"].as_u64().unwrap());
            self.shards.insert(shard);
            let before = positions.insert(shard, position).unwrap_or(0);
            assert!(before <= position, "within a shard positions only grow: {line}");
            let key = (line["kind"].as_str().unwrap().to_owned(), line["key"].to_string());
            let value = (line["op"] == "put").then(|| line["value"].clone());
            let kept = self.rows.entry(key).or_insert((0, None));
            if kept.0 <= position {
                *kept = (position, value);
            }
        }
        self.cursor = Some(last["cursor"].as_str().unwrap().to_owned());
        last["more"].as_bool().unwrap()
    }

    /// Asks until nothing is left to be told.
    pub(crate) async fn follow(&mut self, node: &Node) {
        while self.ask(node).await {}
    }

    pub(crate) fn standing(&self) -> Rows {
        let there = self.rows.iter().filter_map(|(key, (_, value))| Some((key.clone(), value.clone()?)));
        there.collect()
    }
}

/// The same from the rest of the API. Events of tasks are numbered by their place.
pub(crate) async fn said(node: &Node, tenant: &str) -> Rows {
    let mut rows = Rows::new();
    for item in pages(node, tenant, "/v1/sagas?").await {
        let (saga, correlation) = (item["saga"].as_str().unwrap(), item["correlation"].as_str().unwrap());
        let key = json!({ "saga": saga, "correlation": correlation });
        let detail = node.get(tenant, &format!("/v1/sagas/{saga}/{correlation}?history_limit=20")).await.ok();
        assert!(detail["history"]["next"].is_null());
        for record in detail["history"]["items"].as_array().unwrap() {
            let mut key = key.clone();
            key["version"] = record["version"].clone();
            rows.insert(("history".to_owned(), key.to_string()), record.clone());
        }
        let mut value = item;
        for field in ["state", "parent", "last_input", "node", "trace_id"] {
            value[field] = detail[field].clone();
        }
        rows.insert(("instance".to_owned(), key.to_string()), value);
    }
    for item in pages(node, tenant, "/v1/tasks?status=open,claimed,completed,closed&").await {
        let id = item["id"].as_str().unwrap().to_owned();
        let detail = node.get(tenant, &format!("/v1/tasks/{id}")).await.ok();
        for (number, event) in detail["events"].as_array().unwrap().iter().enumerate() {
            rows.insert(("task_event".to_owned(), format!("{id} {number}")), event.clone());
        }
        rows.insert(("task".to_owned(), json!({ "id": id }).to_string()), item);
    }
    rows
}

/// Numbers the events of tasks by their place, as [`said`] does: in the store the numbers have gaps.
pub(crate) fn by_place(rows: Rows) -> Rows {
    let (events, mut rest): (Rows, Rows) = rows.into_iter().partition(|((kind, _), _)| kind == "task_event");
    let mut by_task: BTreeMap<String, BTreeMap<u64, Value>> = BTreeMap::new();
    for ((_, key), event) in events {
        let key: Value = serde_json::from_str(&key).unwrap();
        let (task, number) = (key["task"].as_str().unwrap().to_owned(), key["number"].as_u64().unwrap());
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
        match page["next"].as_str() {
            Some(next) => cursor = format!("cursor={next}"),
            None => return found,
        }
    }
}
