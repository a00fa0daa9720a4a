//! Jobs of a flow in responses: a job is started when a worker has claimed it, not when it is on
//! the job board.

use std::collections::{BTreeMap, BTreeSet};

use orlog_effect::UpstreamScope;
use orlog_model::{Destination, InstanceKey, Priority, WorkItem, WorkKind};
use orlog_sagas::flow;
use serde_json::{Value, json};
use uuid::Uuid;

use crate::server::read_scope::ReadScope;

/// Work of a job.
pub(crate) struct JobWork<'a> {
    /// Id of the work item.
    pub(crate) id: Uuid,
    /// Tag of the work item: the job, or an element of it.
    pub(crate) tag: &'a str,
    /// Effect that executes the job.
    pub(crate) effect: String,
}

impl<'a> JobWork<'a> {
    /// Returns the work item as the work of a job; `None` if it is no effect.
    pub(super) fn of(item: &'a WorkItem) -> Option<Self> {
        let effect = item.work.effect()?;
        Some(Self {
            id: item.id,
            tag: effect.tag.as_str(),
            effect: effect.name.to_string(),
        })
    }
}

/// Work of a job that is executed now.
#[derive(Clone, Default)]
struct Taken {
    /// Worker, if it is on a job board.
    worker: Option<String>,
    /// Number of work items: that of the job, or those of its elements.
    count: u32,
}

/// Replaces the status of jobs that no worker has claimed, and adds the status of each job and its
/// worker to its step. `work` is the pending work of the instance.
pub(crate) fn show_claims<'a>(
    scope: &ReadScope,
    key: &InstanceKey,
    work: impl IntoIterator<Item = JobWork<'a>>,
    state: &mut Value,
) {
    // The program of another saga renders no jobs, so that there is nothing to replace.
    if !state["flow"]["jobs"].is_object() {
        return;
    }

    let mut waiting = BTreeSet::new();
    let mut taken = BTreeMap::new();
    let mut without_runner = BTreeMap::new();
    let now = scope.clock().steady();
    for JobWork { id, tag, effect } in work {
        let kind = WorkKind::Effect;
        let tenant = key.tenant.clone();
        let destination = Destination {
            kind,
            tenant,
            name: effect.into(),
            priority: Priority::Normal,
        };
        // The jobs of flows have routes of their own, because a flow is submitted without a
        // deployment.
        let executor = match key.saga.as_str() {
            flow::SAGA => scope.executor_for_flow(&destination),
            _ => scope.executor_for(&destination),
        };
        let awaits_runner = executor
            .as_ref()
            .is_some_and(|it| it.upstream().scope == UpstreamScope::Jobs);
        let kind = destination.name.strip_prefix("job.").unwrap_or_default();
        if awaits_runner && !scope.has_runner(&destination.tenant, kind, now) {
            without_runner.insert(step_of(tag).to_owned(), kind.to_owned());
        }
        let board = executor.and_then(|executor| executor.upstream().board.clone());
        // The work of a compensation has another tag.
        let step = step_of(tag).to_owned();
        let worker = match board {
            // An expired claim counts as none: the job is available to another worker.
            Some((board, _)) => board.worker_of(scope.clock(), id).map(Some),
            // Only boards have claims: work of other providers is executed as soon as it is
            // dispatched.
            None => Some(None),
        };
        match worker {
            Some(worker) => {
                let taken: &mut Taken = taken.entry(step).or_default();
                taken.count += 1;
                taken.worker = worker.or(taken.worker.take());
            }
            None => drop(waiting.insert(step)),
        }
    }
    mark_unclaimed(state, &waiting, &taken);

    for step in state["steps"].as_array_mut().into_iter().flatten() {
        let kind = step["id"].as_str().and_then(|id| without_runner.get(id));
        if let Some(kind) = kind.filter(|_| step["job"] == "dispatched") {
            step["waits_for"] = json!(format!("no runner of type {kind} is registered"));
        }
    }
}

fn mark_unclaimed(state: &mut Value, waiting: &BTreeSet<String>, taken: &BTreeMap<String, Taken>) {
    // Taken out, because the loop reads other parts of the state.
    let mut statuses = state["flow"]["jobs"].take();
    let mut is_changed = false;
    for (job, status) in statuses.as_object_mut().into_iter().flatten() {
        // An element of a list that is completed has started the job.
        if *status == "started"
            && waiting.contains(job)
            && !taken.contains_key(job)
            && !has_progress(state, job)
        {
            *status = json!("dispatched");
            is_changed = true;
        }
    }

    for step in state["steps"].as_array_mut().into_iter().flatten() {
        if let Some(status) = step["id"].as_str().and_then(|id| statuses.get(id)).cloned() {
            let work = step["id"].as_str().and_then(|id| taken.get(id)).cloned();
            step["job"] = status;
            if let Some(Taken { worker, count }) = work {
                step["in_progress"] = json!(count);
                if let Some(worker) = worker {
                    step["worker"] = json!(worker);
                }
            }
        }
    }

    let is_started =
        |status: &Value| *status != "dispatched" && *status != "waiting_for_prerequisites";
    let has_started = statuses
        .as_object()
        .is_some_and(|jobs| jobs.values().any(is_started));
    let flow = &mut state["flow"];
    // The program counts a dispatched job as started; without any claim, the flow itself waits for
    // a worker.
    if is_changed && !has_started && flow["status"] == "started" {
        flow["status"] = json!("dispatched");
    }

    flow["jobs"] = statuses;
}

/// Returns the step of a tag: that of an element is `step[3]`.
pub(crate) fn step_of(tag: &str) -> &str {
    tag.split_once('[').map_or(tag, |(step, _)| step)
}

/// Returns whether an element of a step has completed.
fn has_progress(state: &Value, step: &str) -> bool {
    let found = state["steps"]
        .as_array()
        .into_iter()
        .flatten()
        .find(|found| found["id"] == step);
    let elements = found
        .and_then(|step| step["elements"].as_array())
        .into_iter()
        .flatten();

    elements
        .into_iter()
        .any(|element| element["state"] == "completed")
}
