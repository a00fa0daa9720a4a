//! Reads of the claims of jobs, and of the results that workers reported.

use orlog_model::{InstanceKey, JobClaim, TenantId, Timestamp};
use uuid::Uuid;

use super::reader::Reader;
use crate::encoding::keys;
use crate::error::Error;
use crate::table::Table;
use crate::translate::result_key;

#[expect(
    clippy::missing_errors_doc,
    reason = "`Reader` documents the errors of its methods"
)]
impl Reader {
    /// Returns the stored claim of a job, also after its expiry.
    pub fn job_claim(&self, instance: &InstanceKey, job: Uuid) -> Result<Option<JobClaim>, Error> {
        let row = self.keys().instance(instance);
        self.row(Table::JobClaim, &keys::job_claim(&row, job))
    }

    /// Returns whether the result of a claim is stored, within the window of dedupe keys.
    pub fn has_job_result(
        &self,
        tenant: &TenantId,
        job: Uuid,
        claim: Uuid,
        now: Timestamp,
    ) -> Result<bool, Error> {
        let (key, id) = result_key(tenant, job, claim);
        self.is_duplicate(&key, id, now)
    }
}
