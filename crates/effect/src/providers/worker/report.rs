//! Reports of workers about the jobs that they claimed: heartbeats, log lines and results, in batches.

use orlog_model::Timestamp;
use uuid::Uuid;

use super::claim::ClaimLost;
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

/// Reports of one worker, and their acknowledgements in the same order. Each board acknowledges the reports about its
/// own jobs.
#[derive(Debug)]
pub struct Reports {
    pub(super) pending: Vec<(usize, JobReport)>,
    pub(super) acks: Vec<Result<ReportAck, ClaimLost>>,
}

impl Reports {
    /// Creates a batch that no board has acknowledged.
    #[must_use]
    pub fn new(reports: impl IntoIterator<Item = JobReport>) -> Self {
        let pending: Vec<_> = reports.into_iter().enumerate().collect();
        Self {
            acks: pending.iter().map(|_| Err(ClaimLost)).collect(),
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
    pub fn into_acks(self) -> Vec<Result<ReportAck, ClaimLost>> {
        self.acks
    }
}
