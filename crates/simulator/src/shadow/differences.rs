//! Differences between the live run and the run of the candidate: requests, messages, tasks,
//! timers, and the end.

use std::collections::{BTreeMap, BTreeSet};

use orlog_model::{Instance, Task, Timer, Timestamp, Work, WorkItem};
use serde_json::{Map, Value, json};
use uuid::Uuid;

use super::case::{Difference, ShadowCase};
use super::json_diff::{self, JsonDifference};
use super::run::{CandidateRun, LiveRun, Run, is_message, place};

/// Fields of serialized work that are compared on their own.
const OTHER_FIELDS: [&str; 5] = ["tag", "name", "payload", "data", "round"];

/// Returns all differences, in the order of the instance; each kind once.
pub(super) fn all(
    case: &ShadowCase<'_>,
    live: &LiveRun<'_>,
    candidate: CandidateRun<'_>,
) -> Vec<Difference> {
    let CandidateRun {
        run,
        mut found,
        diverged_at,
        ..
    } = candidate;
    let until = diverged_at.unwrap_or(Timestamp::from_millis(i64::MAX));
    // A candidate that did not start has requested nothing; the reason is among the differences.
    if run.instance.is_none() {
        return found;
    }

    let one_sided = requests(live, &run, until, &mut found);
    messages(&live.run, &run, until, &mut found);
    tasks(&live.run, &run, until, &mut found);
    // After a divergence, later timers and the end differ for the same reason.
    if diverged_at.is_none() {
        timers(&live.run, &run, &one_sided, &mut found);
        if let (Some(old), Some(new)) = (&live.run.instance, &run.instance) {
            ends(case, old, new, &mut found);
        }
    }

    // The same difference can occur in each round and element. The first one has the values.
    let mut kinds = BTreeSet::new();
    found.retain(|difference| kinds.insert(difference.kind.clone()));
    found
}

/// Compares the work that has results. Returns the tags of work that only one of the runs requests.
fn requests(
    live: &LiveRun<'_>,
    candidate: &Run<'_>,
    until: Timestamp,
    found: &mut Vec<Difference>,
) -> BTreeSet<String> {
    let mut one_sided = BTreeSet::new();
    let mut requested = BTreeSet::<Uuid>::new();
    for item in &candidate.work {
        let Some(tag) = item.work.tag() else { continue };
        if !requested.insert(item.id) {
            continue;
        }
        // The id contains run, step and round, so it identifies the counterpart; the kind of work
        // can differ.
        match live.request(&item.id) {
            Some(old) if old.work.label() == item.work.label() => {
                request(tag.as_str(), old, item, found);
            }
            _ => drop(one_sided.insert(tag.to_string())),
        }
    }

    for item in live.run.work.iter().filter(|item| item.created_at <= until) {
        let Some(tag) = item.work.tag() else { continue };
        if requested.insert(item.id) {
            one_sided.insert(tag.to_string());
            let place = place(tag.as_str());
            let label = item.work.label();
            let kind = format!("{place}: the live instance calls {label}, the candidate does not");
            found.push(Difference::new(kind, item.work.payload().cloned(), None));
        }
    }

    one_sided
}

/// Compares the payloads and the options of two requests of the same work.
fn request(tag: &str, live: &WorkItem, candidate: &WorkItem, found: &mut Vec<Difference>) {
    let label = live.work.label();
    let payload = |item: &WorkItem| item.work.payload().cloned().unwrap_or_default();

    let place = place(tag);
    add(
        &format!("{place}: payload of {label}"),
        &payload(live),
        &payload(candidate),
        found,
    );

    add(
        &format!("{place}: options of {label}"),
        &options(live),
        &options(candidate),
        found,
    );
}

/// Returns the options of work: all but its name and its payload.
fn options(item: &WorkItem) -> Value {
    let work = serde_json::to_value(&item.work).unwrap_or_default();
    let Value::Object(variant) = work else {
        return Value::Null;
    };

    let mut fields = variant
        .into_iter()
        .next()
        .map_or_else(Map::new, |(_, fields)| match fields {
            Value::Object(fields) => fields,
            _ => Map::new(),
        });

    // The name, the tag and the payload are compared on their own, with better messages.
    fields.retain(|name, _| !OTHER_FIELDS.contains(&name.as_str()));
    fields.insert("priority".to_owned(), json!(item.priority));
    Value::Object(fields)
}

/// Adds the differences of two values.
fn add(subject: &str, live: &Value, candidate: &Value, found: &mut Vec<Difference>) {
    found.extend(json_diff::diff(live, candidate).into_iter().map(
        |JsonDifference { path, left, right }| {
            let place = json_diff::display(&path);
            let place = if place.is_empty() {
                String::new()
            } else {
                format!(" at {place}")
            };
            Difference {
                kind: format!("{subject} differs{place}"),
                path,
                live: left,
                candidate: right,
            }
        },
    ));
}

/// Compares facts and messages to other sagas, which have no results: of the same name, the first
/// with the first.
fn messages(live: &Run<'_>, candidate: &Run<'_>, until: Timestamp, found: &mut Vec<Difference>) {
    let named = |run: &Run<'_>| {
        let mut named: BTreeMap<String, Vec<Value>> = BTreeMap::new();
        for item in &run.work {
            if !is_message(&item.work) || item.created_at > until {
                continue;
            }
            let data = item.work.payload().cloned().unwrap_or_default();
            named
                .entry(message_name(&item.work))
                .or_default()
                .push(data);
        }
        named
    };

    pairs(
        named(live),
        named(candidate),
        |name, live, candidate| match (live, candidate) {
            (Some(live), Some(candidate)) => {
                add(&format!("{name}: data"), &live, &candidate, found);
            }
            (live, candidate) => found.push(one_sided(&name, live, candidate)),
        },
    );
}

fn message_name(work: &Work) -> String {
    match work {
        Work::Fact(fact) => format!("fact {}", fact.kind),
        other => format!("message {}", other.label()),
    }
}

/// Compares the opened tasks: of the same step, the first with the first.
fn tasks(live: &Run<'_>, candidate: &Run<'_>, until: Timestamp, found: &mut Vec<Difference>) {
    let named = |run: &Run<'_>| {
        let mut named: BTreeMap<String, Vec<Value>> = BTreeMap::new();
        for Task {
            spec, opened_at, ..
        } in &run.tasks
        {
            if *opened_at > until {
                continue;
            }

            let mut value = json!(spec);
            // A due time in relation to the opening does not depend on the time of the transition.
            value["due"] = json!(
                spec.due
                    .map(|due| due.duration_since(*opened_at).as_millis().to_string())
            );
            named
                .entry(format!("task {}", spec.tag))
                .or_default()
                .push(value);
        }
        named
    };

    pairs(
        named(live),
        named(candidate),
        |name, live, candidate| match (live, candidate) {
            (Some(live), Some(candidate)) => add(&name, &live, &candidate, found),
            (live, candidate) => found.push(one_sided(&name, live, candidate)),
        },
    );
}

/// Compares the timers: of the same name, the first with the first. A timer of work that only one
/// run requests is no difference of its own.
fn timers(
    live: &Run<'_>,
    candidate: &Run<'_>,
    one_sided_tags: &BTreeSet<String>,
    found: &mut Vec<Difference>,
) {
    let named = |run: &Run<'_>| {
        let mut named: BTreeMap<String, Vec<Value>> = BTreeMap::new();
        for Timer { name, due, .. } in &run.armed {
            named
                .entry(name.to_string())
                .or_default()
                .push(json!(due.to_string()));
        }
        named
    };

    pairs(
        named(live),
        named(candidate),
        |name, live, candidate| match (live, candidate) {
            (Some(live), Some(candidate)) if live != candidate => {
                found.push(Difference::new(
                    format!("timer {name}: is due at another time"),
                    Some(live),
                    Some(candidate),
                ));
            }
            (Some(_), Some(_)) => {}
            // The missing or additional request is reported already.
            (_, _) if one_sided_tags.contains(&name) => {}
            (live, candidate) => found.push(one_sided(&format!("timer {name}"), live, candidate)),
        },
    );
}

/// Passes the first value of each name with the first of the other side, then the second ones, and
/// so on.
fn pairs(
    live: BTreeMap<String, Vec<Value>>,
    mut candidate: BTreeMap<String, Vec<Value>>,
    mut pass: impl FnMut(String, Option<Value>, Option<Value>),
) {
    for (name, values) in live {
        let mut others = candidate.remove(&name).unwrap_or_default().into_iter();
        for value in values {
            pass(name.clone(), Some(value), others.next());
        }
        for other in others {
            pass(name.clone(), None, Some(other));
        }
    }

    for (name, values) in candidate {
        for value in values {
            pass(name.clone(), None, Some(value));
        }
    }
}

fn one_sided(subject: &str, live: Option<Value>, candidate: Option<Value>) -> Difference {
    let side = if live.is_some() {
        "only from the live instance"
    } else {
        "only from the candidate"
    };
    Difference::new(format!("{subject}: {side}"), live, candidate)
}

/// Compares the ends: status, result, business reference, steps and variables.
fn ends(case: &ShadowCase<'_>, live: &Instance, candidate: &Instance, found: &mut Vec<Difference>) {
    let status = |instance: &Instance| {
        format!(
            "{}{}",
            instance.status,
            if instance.paused { " (paused)" } else { "" }
        )
    };
    if status(live) != status(candidate) {
        let kind = format!("ends {} instead of {}", status(candidate), status(live));
        found.push(Difference::new(
            kind,
            Some(json!(status(live))),
            Some(json!(status(candidate))),
        ));
    }

    add(
        "result",
        &json!(live.result),
        &json!(candidate.result),
        found,
    );
    add(
        "reference",
        &json!(live.reference),
        &json!(candidate.reference),
        found,
    );

    let live_view = case.live.view_state(&live.state);
    let candidate_view = case.candidate.view_state(&candidate.state);
    let (Some(mut live), Some(mut candidate)) = (live_view, candidate_view) else {
        return;
    };

    // Programs in Rust and WebAssembly have states of their own form.
    if live.get("vars").is_none() || candidate.get("vars").is_none() {
        return add("state", &live, &candidate, found);
    }

    steps(&live["steps"], &candidate["steps"], found);
    let vars = |view: &mut Value| json!({ "vars": view["vars"].take() });
    for difference in json_diff::diff(&vars(&mut live), &vars(&mut candidate)) {
        let name = json_diff::display(&difference.path);
        let name = name.trim_start_matches(".vars").trim_start_matches('.');
        found.push(Difference {
            kind: format!("variable {name} differs"),
            path: difference.path,
            live: difference.left,
            candidate: difference.right,
        });
    }
}

/// Compares the states of the steps that both definitions have.
fn steps(live: &Value, candidate: &Value, found: &mut Vec<Difference>) {
    let states = |steps: &Value| {
        let mut states = BTreeMap::new();
        for step in steps.as_array().into_iter().flatten() {
            if let (Some(id), Some(state)) = (step["id"].as_str(), step["state"].as_str()) {
                states.insert(id.to_owned(), state.to_owned());
            }
        }
        states
    };

    let others = states(candidate);
    for (id, state) in states(live) {
        let Some(other) = others.get(&id).filter(|other| **other != state) else {
            continue;
        };
        let kind = format!("step {id}: {other} instead of {state}");
        found.push(Difference::new(
            kind,
            Some(json!(state)),
            Some(json!(other)),
        ));
    }
}
