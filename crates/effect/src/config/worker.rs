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
        /// Duration of a claim, also after a heartbeat. Default: 5min.
        #[serde(default, skip_serializing_if = "Option::is_none", with = "crate::duration::option")]
        pub claim_ttl: Option<Duration>,
        /// Recommended interval of heartbeats. Default: two fifths of `claim_ttl`.
        #[serde(default, skip_serializing_if = "Option::is_none", with = "crate::duration::option")]
        pub heartbeat_interval: Option<Duration>,
        /// Maximum number of jobs per claim request if the worker specifies none. Default: 1.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub max_batch: Option<NonZeroUsize>,
    }
}

impl WorkerConfig {
    /// Builds the upstream.
    ///
    /// # Errors
    /// If it has no effects, or a claim expires before its first heartbeat.
    pub fn upstream(&self, name: &str) -> Result<Upstream, Error> {
        if self.effects.is_empty() {
            let reason = "effects are missing; example: effects = [\"media.cut\"]".to_owned();
            return Err(Error::Upstream { upstream: name.to_owned(), reason });
        }
        let usual = self.claim_ttl.map_or_else(ClaimOptions::default, ClaimOptions::new);
        let terms = ClaimOptions {
            claim_ttl: usual.claim_ttl,
            heartbeat_interval: self.heartbeat_interval.unwrap_or(usual.heartbeat_interval),
            max_batch: self.max_batch.map_or(usual.max_batch, NonZeroUsize::get),
        };
        if terms.heartbeat_interval >= terms.claim_ttl {
            let reason = format!(
                "heartbeat_interval ({:?}) must be shorter than claim_ttl ({:?})",
                terms.heartbeat_interval, terms.claim_ttl
            );
            return Err(Error::Upstream { upstream: name.to_owned(), reason });
        }
        let board = Arc::new(JobBoard::default());
        let provider = Arc::new(WorkerProvider::new(Arc::clone(&board)));
        let policy = self.policy(Policy::worker());
        let upstream = Upstream::effects(name, self.effects.iter().cloned().collect(), provider, policy);
        let upstream = upstream.for_tenants(self.tenants.clone()).with_origin(origin(self));
        Ok(upstream.with_job_board(board, terms))
    }
}
