//! Configuration of a worker upstream.

use std::collections::BTreeSet;
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::Duration;

use orlog_model::EffectName;

use super::{Error, origin, upstream_config};
use crate::policy::Policy;
use crate::upstream::Upstream;
use crate::worker::{ClaimOptions, JobBoard, WorkerProvider};

upstream_config! {
    /// Configuration of effects that external workers execute.
    WorkerConfig {
        /// Effect names.
        pub effects: BTreeSet<EffectName>,
        /// Duration of a claim. Default: 5min.
        #[serde(default, skip_serializing_if = "Option::is_none", with = "crate::duration::option")]
        pub claim_ttl: Option<Duration>,
        /// Extension of a claim by a heartbeat. Default: 2min.
        #[serde(default, skip_serializing_if = "Option::is_none", with = "crate::duration::option")]
        pub heartbeat_ttl: Option<Duration>,
        /// Maximum number of jobs per claim request if the worker specifies none. Default: 1.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub max_batch: Option<NonZeroUsize>,
    }
}

impl WorkerConfig {
    /// Builds the upstream.
    ///
    /// # Errors
    /// If it has no effects.
    pub fn upstream(&self, name: &str) -> Result<Upstream, Error> {
        if self.effects.is_empty() {
            let reason = "effects are missing; example: effects = [\"media.cut\"]".to_owned();
            return Err(Error::Upstream { upstream: name.to_owned(), reason });
        }
        let usual = ClaimOptions::default();
        let terms = ClaimOptions {
            claim_ttl: self.claim_ttl.unwrap_or(usual.claim_ttl),
            heartbeat_ttl: self.heartbeat_ttl.unwrap_or(usual.heartbeat_ttl),
            max_batch: self.max_batch.map_or(usual.max_batch, NonZeroUsize::get),
        };
        let board = Arc::new(JobBoard::default());
        let provider = Arc::new(WorkerProvider::new(Arc::clone(&board)));
        let policy = self.policy(Policy::worker());
        let upstream = Upstream::effects(name, self.effects.iter().cloned().collect(), provider, policy);
        let upstream = upstream.for_tenants(self.tenants.clone()).with_origin(origin(self));
        Ok(upstream.with_job_board(board, terms))
    }
}
