//! Configuration of an upstream whose workers receive commands from NATS.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use orlog_model::EffectName;

use super::{Error, origin, upstream_config};
use crate::policy::Policy;
use crate::provider::Provider;
use crate::upstream::Upstream;

upstream_config! {
    /// Configuration of effects whose workers receive commands from NATS.
    NatsConfig {
        /// Effect names.
        pub effects: BTreeSet<EffectName>,
        /// Time without a response after which a command is dispatched again. Default: the value of the node.
        #[serde(default, skip_serializing_if = "Option::is_none", with = "crate::duration::option")]
        pub redispatch_after: Option<Duration>,
    }
}

impl NatsConfig {
    /// Builds the upstream; `provider` enqueues the commands and receives the results.
    ///
    /// # Errors
    /// If it has no effects.
    pub fn upstream(&self, name: &str, provider: Arc<dyn Provider>) -> Result<Upstream, Error> {
        if self.effects.is_empty() {
            let reason = "effects are missing; example: effects = [\"media.cut\"]".to_owned();
            return Err(Error::Upstream { upstream: name.to_owned(), reason });
        }
        let policy = self.policy(Policy::worker());
        let upstream = Upstream::effects(name, self.effects.iter().cloned().collect(), provider, policy);
        Ok(upstream.for_tenants(self.tenants.clone()).with_origin(origin(self)))
    }
}
