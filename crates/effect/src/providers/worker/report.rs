//! Reports of workers about the jobs that they claimed: heartbeats, log lines and results, in
//! batches.

use std::time::Duration;

use orlog_model::{EventType, Timestamp};
use uuid::Uuid;

use super::claim::ClaimLost;
use crate::fact_types::FactTypes;
use crate::provider::RemoteResult;
use crate::receipt::ReceiptWatch;

/// Report of a worker about a job that it claimed.
#[derive(Debug, PartialEq)]
pub struct JobReport {
    /// Job.
    pub job: Uuid,
    /// Claim of the worker.
    pub claim: Uuid,
    /// Content of the report.
    pub content: ReportContent,
}

/// Content of a report.
#[derive(Debug, PartialEq)]
pub enum ReportContent {
    /// Extends the claim.
    Heartbeat,
    /// Appends log lines.
    Log(Vec<String>),
    /// Completes the job.
    Result(Box<RemoteResult>),
}

/// Rules of a board for reports.
#[derive(Clone, Copy, Debug)]
pub struct ReportRules<'a> {
    /// Duration of a claim after a heartbeat.
    pub claim_ttl: Duration,
    /// Types of the facts that a result may contain.
    pub facts: &'a FactTypes,
}

/// Reason why a report has no effect.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReportRejection {
    /// The claim is lost.
    #[error(transparent)]
    Lost(#[from] ClaimLost),
    /// The result contains a fact of a type that the upstream does not declare.
    #[error(
        "the upstream of the job declares no facts of the type {0}; send the result without it, or \
         add the type to facts of the upstream"
    )]
    UndeclaredFact(EventType),
}

/// Acknowledgement of a report.
#[derive(Clone, Debug)]
pub enum ReportAck {
    /// The claim is valid until this time.
    Extended(Timestamp),
    /// The lines are in the log.
    Logged,
    /// The job is completed; the observer reports when the result is stored.
    Completed(ResultAck, ReceiptWatch),
}

/// Acknowledgement of a result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ResultAck {
    /// The result was accepted.
    Accepted,
    /// The same claim already has a result.
    Duplicate,
}

/// Reports of one worker, and their acknowledgements in the same order. Each board acknowledges the
/// reports about its own jobs.
#[derive(Debug)]
pub struct Reports {
    pub(super) pending: Vec<(usize, JobReport)>,
    pub(super) acks: Vec<Result<ReportAck, ReportRejection>>,
}

impl Reports {
    /// Creates a batch that no board has acknowledged.
    #[must_use]
    pub fn new(reports: impl IntoIterator<Item = JobReport>) -> Self {
        let pending: Vec<_> = reports.into_iter().enumerate().collect();
        Self {
            acks: pending.iter().map(|_| Err(ClaimLost.into())).collect(),
            pending,
        }
    }

    /// Returns true if each report has an acknowledgement.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        self.pending.is_empty()
    }

    /// Returns the acknowledgements in the order of the reports.
    #[must_use]
    pub fn into_acks(self) -> Vec<Result<ReportAck, ReportRejection>> {
        self.acks
    }
}
