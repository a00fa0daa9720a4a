//! An upstream whose work is done by workers, as the configuration describes it.

use std::collections::BTreeSet;
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::Duration;

use orlog_model::EffectName;

use super::{Error, origin, upstream_config};
use crate::policy::Policy;
use crate::upstream::Upstream;
use crate::worker::{Board, Terms, Worker};

upstream_config! {
    /// Effects that workers outside the process perform.
    WorkerConfig {
        /// Which effects.
        pub effects: BTreeSet<EffectName>,
        /// How long a claim lasts; 5 minutes where absent.
        #[serde(default, skip_serializing_if = "Option::is_none", with = "crate::duration::option")]
        pub claim: Option<Duration>,
        /// How long a heartbeat makes it last from then on; 2 minutes where absent.
        #[serde(default, skip_serializing_if = "Option::is_none", with = "crate::duration::option")]
        pub heartbeat: Option<Duration>,
        /// Jobs that one claim takes at most where the worker does not say; 1 where absent.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub batch: Option<NonZeroUsize>,
    }
}

impl WorkerConfig {
    /// The upstream it describes.
    ///
    /// # Errors
    /// When it performs nothing.
    pub fn upstream(&self, name: &str) -> Result<Upstream, Error> {
        if self.effects.is_empty() {
            let reason = "it performs nothing; write for example effects = [\"media.cut\"]".to_owned();
            return Err(Error::Upstream { upstream: name.to_owned(), reason });
        }
        let usual = Terms::default();
        let terms = Terms {
            claim: self.claim.unwrap_or(usual.claim),
            heartbeat: self.heartbeat.unwrap_or(usual.heartbeat),
            batch: self.batch.map_or(usual.batch, NonZeroUsize::get),
        };
        let board = Arc::new(Board::default());
        let provider = Arc::new(Worker::new(Arc::clone(&board)));
        let policy = self.policy(Policy::worker());
        let upstream = Upstream::effects(name, self.effects.iter().cloned().collect(), provider, policy);
        let upstream = upstream.for_tenants(self.tenants.clone()).made_from(origin(self));
        Ok(upstream.on_board(board, terms))
    }
}
