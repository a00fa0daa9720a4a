//! Jobs of a flow in responses: a job is started when a worker has claimed it, not when it is on the job board.

use std::collections::BTreeSet;

use orlog_model::{OutboxKey, WorkItem};
use serde_json::{Value, json};

use crate::app::App;

/// Replaces the status of jobs that no worker has claimed, and adds the status of each job to its step. `work` is the
/// work of the instance in the outbox.
pub(super) fn show_claims(app: &App, work: &[(OutboxKey, WorkItem)], state: &mut Value) {
    if !state["flow"]["jobs"].is_object() {
        return;
    }
    let (mut waiting, mut taken) = (BTreeSet::new(), BTreeSet::new());
    for (key, item) in work {
        let Some(effect) = item.work.effect() else { continue };
        let executor = app.catalog.executor_for(&key.destination);
        let board = executor.and_then(|executor| executor.upstream().board.clone());
        // The work of a compensation has another tag.
        let step = step_of(effect.tag.as_str()).to_owned();
        match board {
            Some((board, _)) if !board.is_claimed(app.clock.as_ref(), item.id) => waiting.insert(step),
            _ => taken.insert(step),
        };
    }
    mark_unclaimed(state, &waiting, &taken);
}

fn mark_unclaimed(state: &mut Value, waiting: &BTreeSet<String>, taken: &BTreeSet<String>) {
    let mut statuses = state["flow"]["jobs"].take();
    let mut is_changed = false;
    for (job, status) in statuses.as_object_mut().into_iter().flatten() {
        // An element of a list that is completed has started the job.
        if *status == "started" && waiting.contains(job) && !taken.contains(job) && !has_progress(state, job)
        {
            *status = json!("dispatched");
            is_changed = true;
        }
    }
    for step in state["steps"].as_array_mut().into_iter().flatten() {
        if let Some(status) = step["id"].as_str().and_then(|id| statuses.get(id)).cloned() {
            step["job"] = status;
        }
    }
    let is_started = |status: &Value| *status != "dispatched" && *status != "waiting_for_prerequisites";
    let has_started = statuses.as_object().is_some_and(|jobs| jobs.values().any(is_started));
    let flow = &mut state["flow"];
    if is_changed && !has_started && flow["status"] == "started" {
        flow["status"] = json!("dispatched");
    }
    flow["jobs"] = statuses;
}

/// Returns the step of a tag: that of an element is `step[3]`.
fn step_of(tag: &str) -> &str {
    tag.split_once('[').map_or(tag, |(step, _)| step)
}

/// Returns whether an element of a step has completed.
fn has_progress(state: &Value, step: &str) -> bool {
    let found = state["steps"].as_array().into_iter().flatten().find(|found| found["id"] == step);
    let elements = found.and_then(|step| step["elements"].as_array()).into_iter().flatten();
    elements.into_iter().any(|element| element["state"] == "completed")
}
