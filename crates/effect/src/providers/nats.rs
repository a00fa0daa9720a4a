//! Effects whose workers receive commands from NATS.

use std::collections::BTreeSet;
use std::time::Duration;

use orlog_model::{EffectName, EventType};

use crate::config::{Error, UpstreamConfig, UpstreamSite, upstream_config};
use crate::policy::Policy;
use crate::upstream::Upstream;

upstream_config! {
    /// Configuration of effects whose workers receive commands from NATS.
    NatsConfig {
        /// Effect names.
        pub effects: BTreeSet<EffectName>,
        /// Time without a response after which a command is dispatched again. Default: the value of
        /// the node.
        #[serde(default, with = "crate::duration::option")]
        pub redispatch_after: Option<Duration>,
        /// Types of the facts that workers may emit. Default: none.
        #[serde(default)]
        pub facts: BTreeSet<EventType>,
    }
}

impl UpstreamConfig for NatsConfig {
    fn upstream(&self, site: UpstreamSite<'_>) -> Result<Upstream, Error> {
        let invalid = |reason: &str| Error::upstream(site.name, reason);
        let queue = site.queue.ok_or_else(|| {
            invalid(
                "kind = \"nats\" requires NATS; set bus.kind = \"nats\" and add [nats] to the \
                configuration",
            )
        })?;

        if self.effects.is_empty() {
            return Err(invalid(
                "effects are missing; example: effects = [\"media.cut\"]",
            ));
        }

        let effects = self.effects.iter().cloned().collect();
        let provider = queue(self.redispatch_after);
        // By default, an attempt on another node has no timeout here: only the deadline ends it.
        let policy = self.policy(Policy::worker());
        let upstream = Upstream::effects(site.name, effects, provider, policy);
        Ok(self.finish(upstream).with_facts(self.facts.clone()))
    }

    fn is_queued(&self) -> bool {
        true
    }
}
