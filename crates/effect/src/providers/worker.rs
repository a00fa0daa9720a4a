//! Effects that external workers execute, in any language.
//!
//! An attempt is a job on a [`JobBoard`]. A worker claims it for a limited time, sends heartbeats
//! and completes it with a result. A claim that is not renewed expires, and another worker claims
//! the job under the same idempotency key. The job itself is not durable. After a crash of this
//! process it is posted again from the outbox, and the worker of an earlier claim may still
//! complete it.

mod board_job;
mod board_state;
mod claim;
mod held_claims;
mod job_board;
mod job_queue;
mod provider;
mod report;
mod result_log;
mod selector;
mod waiting;
mod withdrawn;

use std::collections::BTreeSet;
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::Duration;

use orlog_model::{EffectName, EventType};

pub(crate) use board_job::BOARD_CLOSED;
pub use claim::{
    AvailableJob, ClaimLost, ClaimOptions, ClaimRejection, ClaimRequest, ClaimedJob,
    JobClaimRequest,
};
pub use job_board::{JobBoard, JobView};
pub use provider::WorkerProvider;
pub use report::{
    JobReport, ReportAck, ReportContent, ReportRejection, ReportRules, Reports, ResultAck,
};
pub use waiting::WaitingJobs;
pub(crate) use withdrawn::withdrawn_failure;

use crate::config::{Error, UpstreamConfig, UpstreamSite, upstream_config};
use crate::fact_types::FactTypes;
pub use crate::job_logs::LogLine;
use crate::policy::Policy;
use crate::upstream::Upstream;

upstream_config! {
    /// Configuration of effects that external workers execute.
    WorkerConfig {
        /// Effect names.
        pub effects: BTreeSet<EffectName>,
        /// Duration of a claim, also after a heartbeat. Default: 5min.
        #[serde(default, with = "crate::duration::option")]
        pub claim_ttl: Option<Duration>,
        /// Recommended interval of heartbeats. Default: two fifths of `claim_ttl`.
        #[serde(default, with = "crate::duration::option")]
        pub heartbeat_interval: Option<Duration>,
        /// Maximum number of jobs per claim request if the worker specifies none. Default: 1.
        pub max_batch: Option<NonZeroUsize>,
        /// Whether workers determine the outcome of earlier attempts before they execute a job in
        /// doubt. Only workers that state so receive these jobs. Default: false.
        #[serde(default)]
        pub probes: bool,
        /// Types of the facts that workers may emit. Default: none.
        #[serde(default)]
        pub facts: BTreeSet<EventType>,
    }
}

/// Name of the upstream of jobs that runners execute. It is not the name of a file, so no
/// configured upstream has it.
pub const RUNNERS: &str = "orlog.jobs";

/// Returns the upstream of jobs whose type no configured upstream serves: runners of the type claim
/// them. As for scripts, a failed job is not repeated unless the definition or the flow says so.
/// Jobs that wait for a runner take no place of others: only the windows of the relay limit the
/// jobs of a tenant. Runners emit no facts: no file declares their types.
#[must_use]
pub fn runners() -> Upstream {
    let board = Arc::new(JobBoard::of_runners());
    let policy = Policy {
        max_attempts: Some(1),
        max_concurrency: 1 << 20,
        ..Policy::worker()
    };

    let provider = WorkerProvider::new(Arc::clone(&board), false, policy.in_doubt);
    let job_logs = Some(board.job_logs());
    let upstream = Upstream::jobs(RUNNERS, Arc::new(provider), policy);

    Upstream {
        job_logs,
        board: Some((board, ClaimOptions::default())),
        facts: FactTypes::none(),
        ..upstream
    }
}

impl UpstreamConfig for WorkerConfig {
    fn upstream(&self, site: UpstreamSite<'_>) -> Result<Upstream, Error> {
        if self.effects.is_empty() {
            let reason = "effects are missing; example: effects = [\"media.cut\"]";
            return Err(Error::upstream(site.name, reason));
        }

        let usual = self
            .claim_ttl
            .map_or_else(ClaimOptions::default, ClaimOptions::new);
        let terms = ClaimOptions {
            claim_ttl: usual.claim_ttl,
            heartbeat_interval: self.heartbeat_interval.unwrap_or(usual.heartbeat_interval),
            max_batch: self.max_batch.map_or(usual.max_batch, NonZeroUsize::get),
            probes: self.probes,
        };

        // Each claim would expire before its first heartbeat.
        if terms.heartbeat_interval >= terms.claim_ttl {
            let reason = format!(
                "heartbeat_interval ({:?}) must be shorter than claim_ttl ({:?})",
                terms.heartbeat_interval, terms.claim_ttl
            );
            return Err(Error::upstream(site.name, reason));
        }

        let board = Arc::<JobBoard>::default();
        let policy = self.policy(Policy::worker());
        let provider = WorkerProvider::new(Arc::clone(&board), self.probes, policy.in_doubt);
        let job_logs = Some(board.job_logs());
        let upstream = Upstream::effects(
            site.name,
            self.effects.iter().cloned().collect(),
            Arc::new(provider),
            policy,
        );

        Ok(Upstream {
            job_logs,
            board: Some((board, terms)),
            ..self.finish(upstream).with_facts(self.facts.clone())
        })
    }
}
