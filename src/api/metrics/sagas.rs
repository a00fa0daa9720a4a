//! Instances that do not go on by themselves, by saga.

use std::collections::BTreeMap;

use orlog_actors::Sheet as _;
use orlog_model::{Status, Timestamp};
use prometheus_client::metrics::family::Family;

use super::types::{By1, Labelled, Real};
use crate::app::App;
use crate::telemetry::Shown;

/// Instances of a shard that are looked at, at most: more of them are not counted, but they are many enough.
const LOOKED_AT: usize = 10_000;

#[derive(Default)]
struct Waiting {
    stuck: u64,
    paused: u64,
    oldest: Option<Timestamp>,
}

/// Shows them. Sagas in force are there also where none of theirs is stuck.
pub(super) fn show(app: &App, shown: &mut Shown) {
    let in_force = app.definitions.in_force();
    let names = in_force.iter().map(|definition| definition.program.reference().saga.to_string());
    let mut sagas: BTreeMap<String, Waiting> = names.map(|name| (name, Waiting::default())).collect();
    for reader in app.runtime.readers() {
        for (key, attention) in reader.attention(LOOKED_AT).unwrap_or_default() {
            let saga = sagas.entry(key.saga.to_string()).or_default();
            saga.paused += u64::from(attention.standing.paused);
            if attention.standing.status == Status::Stuck {
                saga.stuck += 1;
                saga.oldest = Some(saga.oldest.map_or(attention.since, |oldest| oldest.min(attention.since)));
            }
        }
    }
    let (stuck, paused, oldest) = (Labelled::default(), Labelled::default(), Family::<By1, Real>::default());
    let now = app.clock.now();
    for (saga, waiting) in sagas {
        let label = [("saga", saga)];
        stuck.get_or_create(&label).set(waiting.stuck);
        paused.get_or_create(&label).set(waiting.paused);
        let age = waiting.oldest.map_or(0.0, |oldest| now.since(oldest).as_secs_f64());
        oldest.get_or_create(&label).set(age);
    }
    shown.put("instances_stuck", stuck);
    shown.put("instances_paused", paused);
    shown.put("instances_stuck_oldest_seconds", oldest);
}
