//! Stands in for upstreams that are not there yet: whatever is asked is logged and succeeds.

use std::collections::BTreeSet;
use std::sync::Arc;

use async_trait::async_trait;
use orlog_effect::{Attempt, Policy, Provider, Refusal, Reply, Serves, Upstream};
use orlog_model::{EffectName, Work, WorkItem};
use serde_json::json;

use crate::config::Config;
use crate::definitions;
use crate::upstreams::Upstreams;

/// Upstreams for what the definitions ask and nobody is configured for.
pub(super) fn upstreams(config: &Config) -> Vec<Upstream> {
    let performed = performed(config);
    let files = config.definitions.iter().flat_map(|folder| definitions::list(folder));
    // What cannot be read is refused, with all its mistakes, when the node starts.
    let readable = files.flatten().filter_map(|file| definitions::read(&file).ok());
    let asked: BTreeSet<_> =
        readable.flat_map(|definition| definition.program.manifest().effects.clone()).collect();
    let missing: Vec<_> = asked.into_iter().filter(|effect| !performed.contains(effect)).collect();

    let stand_in = Arc::new(StandIn);
    let mut upstreams = Vec::new();
    if !missing.is_empty() {
        upstreams.push(Upstream::effects(
            "stand-in",
            missing,
            Arc::clone(&stand_in) as Arc<dyn Provider>,
            Policy::in_process(),
        ));
    }
    if config.gateway.is_none() {
        upstreams.push(Upstream::gateway(stand_in, Policy::in_process()));
    }
    upstreams
}

/// What is performed for every tenant. Upstreams that cannot be read are refused when the node starts.
fn performed(config: &Config) -> BTreeSet<EffectName> {
    let upstreams = Upstreams::new(config.upstreams(), config.effects.clone(), Vec::new()).read();
    let for_all = upstreams.into_iter().flatten().filter(|upstream| upstream.tenants.is_none());
    let effects = for_all.filter_map(|upstream| match upstream.serves {
        Serves::Effects(effects) => Some(effects),
        Serves::Rest | Serves::Commands => None,
    });
    effects.flatten().collect()
}

struct StandIn;

#[async_trait]
impl Provider for StandIn {
    async fn perform(&self, item: &WorkItem, _: Attempt) -> Result<Reply, Refusal> {
        let payload = match &item.work {
            Work::Command(command) => command.payload.to_string(),
            Work::Effect(effect) => effect.payload.to_string(),
            Work::Fact(fact) => fact.data.to_string(),
            Work::Start(start) => start.data.to_string(),
            Work::Stop(stop) => stop.reason.clone(),
            Work::End(end) => end.ended.data.to_string(),
        };
        tracing::info!(instance = %item.instance, work = item.work.label(), payload, "stand-in");
        Ok(Reply::from(json!({})))
    }
}
