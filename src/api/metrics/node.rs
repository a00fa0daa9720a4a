//! The node among others: what it owns, how far it is behind, how its upstreams do.

use orlog_actors::{Lag, Sheet as _};
use orlog_effect::limits::breaker;
use prometheus_client::metrics::family::Family;

use super::types::{By2, Counts, Labelled, Whole, one};
use crate::app::App;
use crate::telemetry::Shown;

/// Shows them.
pub(super) fn show(app: &App, lags: &[Lag], shown: &mut Shown) {
    let health = app.runtime.health();
    shown.put("accepting", one(u64::from(health.accepting)));
    shown.put("shards_up", one(u64::from(health.up)));
    shown.put("bus_connected", one(u64::from(app.is_connected())));
    let build = Labelled::default();
    build.get_or_create(&[("version", env!("CARGO_PKG_VERSION").to_owned())]).set(1);
    shown.put("build_info", build);
    if app.config.roles.runs_sagas() {
        let (owned, here) = (Labelled::default(), app.runtime.owned());
        for shard in 0..app.config.shards {
            owned.get_or_create(&[("shard", shard.to_string())]).set(u64::from(here.contains(&shard)));
        }
        shown.put("shard_owned", owned);
    }
    let behind = Family::<By2, Whole>::default();
    for lag in lags {
        let labels = [("stream", lag.stream.clone()), ("shard", lag.shard.to_string())];
        behind.get_or_create(&labels).set(lag.messages);
    }
    shown.put("consumer_lag", behind);
    upstreams(app, shown);
}

fn upstreams(app: &App, shown: &mut Shown) {
    let (states, openings) = (Labelled::default(), Counts::default());
    let (in_flight, retries) = (Labelled::default(), Labelled::default());
    for condition in app.catalog.conditions() {
        let label = [("upstream", condition.upstream)];
        if let Some(state) = condition.breaker {
            let value = match state {
                breaker::State::Closed => 0,
                breaker::State::HalfOpen => 1,
                breaker::State::Open => 2,
            };
            states.get_or_create(&label).set(value);
            openings.get_or_create(&label).inc_by(condition.opened);
        }
        in_flight.get_or_create(&label).set(condition.in_flight as u64);
        if let Some(left) = condition.retries_left {
            retries.get_or_create(&label).set(left);
        }
    }
    shown.put("breaker_state", states);
    shown.put("breaker_openings_total", openings);
    shown.put("upstream_in_flight", in_flight);
    shown.put("upstream_retries_left", retries);
}
