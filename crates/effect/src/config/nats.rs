//! An upstream whose commands are taken from NATS, as the configuration describes it.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use orlog_model::EffectName;

use super::{Error, origin, upstream_config};
use crate::policy::Policy;
use crate::provider::Provider;
use crate::upstream::Upstream;

upstream_config! {
    /// Effects that are performed by whoever takes their commands from NATS.
    NatsConfig {
        /// Which effects.
        pub effects: BTreeSet<EffectName>,
        /// How long nothing is done about a command of which nothing is heard; the node's where absent.
        #[serde(default, skip_serializing_if = "Option::is_none", with = "crate::duration::option")]
        pub patience: Option<Duration>,
    }
}

impl NatsConfig {
    /// The upstream it describes; `provider` offers the commands and hears the results.
    ///
    /// # Errors
    /// When it performs nothing.
    pub fn upstream(&self, name: &str, provider: Arc<dyn Provider>) -> Result<Upstream, Error> {
        if self.effects.is_empty() {
            let reason = "it performs nothing; write for example effects = [\"media.cut\"]".to_owned();
            return Err(Error::Upstream { upstream: name.to_owned(), reason });
        }
        let policy = self.policy(Policy::worker());
        let upstream = Upstream::effects(name, self.effects.iter().cloned().collect(), provider, policy);
        Ok(upstream.for_tenants(self.tenants.clone()).made_from(origin(self)))
    }
}
