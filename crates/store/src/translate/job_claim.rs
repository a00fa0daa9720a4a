//! Claims of jobs, and the keys of the results that workers reported under them.

use orlog_model::{DedupeKey, InstanceKey, JobClaimUpdate, TenantId};
use uuid::Uuid;

use super::unbound_key::unbound_key;
use crate::encoding::keys::{self, KeyEncoder};
use crate::encoding::record::{KeyPresence, RecordWriter};
use crate::encoding::value::encode;
use crate::error::Error;
use crate::merged::MergedTables;
use crate::table::Table;

/// Saga of the keys of results. No instance has it.
const RESULTS: &str = "orlog.job";

/// Stores or deletes claims. The claim of a job whose instance was deleted would never be deleted.
pub(super) fn update(
    tables: &MergedTables,
    record: &mut RecordWriter,
    keys: &KeyEncoder,
    updates: &[JobClaimUpdate],
) -> Result<(), Error> {
    for JobClaimUpdate {
        instance,
        job,
        claim,
    } in updates
    {
        let row = keys.instance(instance);
        let key = keys::job_claim(&row, *job);

        // An instance that was purged meanwhile gets no rows.
        if let Some(claim) = claim {
            if tables.contains(Table::Instance, &row)? {
                record.put(KeyPresence::Unknown, Table::JobClaim, &key, |buffer| {
                    encode(buffer, claim);
                })?;
            }
        } else if tables.contains(Table::JobClaim, &key)? {
            // Most jobs end before their claim is stored. They need no tombstone.
            record.delete(Table::JobClaim, &key)?;
        }
    }
    Ok(())
}

/// Returns the dedupe key of a result: a report of a worker does not state the instance of its job.
pub(crate) fn result_key(tenant: &TenantId, job: Uuid, claim: Uuid) -> (InstanceKey, DedupeKey) {
    unbound_key(RESULTS, tenant, job, claim)
}

#[cfg(test)]
mod tests {
    use orlog_model::{Change, JobClaim};

    use super::*;
    use crate::samples::{apply, at, key, small, transition};
    use crate::{open, open_in_memory};

    const JOB: Uuid = Uuid::from_u128(7);

    fn claim(number: u32) -> JobClaim {
        JobClaim {
            id: Uuid::from_u128(u128::from(number)),
            worker: "w".to_owned(),
            number,
            until: at(300),
        }
    }

    fn update(claim: Option<JobClaim>) -> Change {
        Change::UpdateJobClaims(vec![JobClaimUpdate {
            instance: key("acme", "o-1"),
            job: JOB,
            claim,
        }])
    }

    #[test]
    fn claims_are_durable_and_end_with_their_instance() {
        let dir = tempfile::tempdir().unwrap();
        let of = key("acme", "o-1");
        let (mut writer, reader) = open(dir.path(), small()).unwrap();
        writer.commit(&[update(Some(claim(1)))], at(5)).unwrap();
        assert_eq!(reader.job_claim(&of, JOB).unwrap(), None, "no instance");

        writer
            .commit(&[apply(transition(&of, 1)), update(None)], at(5))
            .unwrap();
        writer.commit(&[update(Some(claim(1)))], at(5)).unwrap();
        writer.commit(&[update(Some(claim(2)))], at(6)).unwrap();
        drop((writer, reader));

        let (mut writer, reader) = open(dir.path(), small()).unwrap();
        assert_eq!(reader.job_claim(&of, JOB).unwrap(), Some(claim(2)));
        assert_eq!(reader.inspect_rows("job_claim", None, 9).unwrap().len(), 1);
        writer.commit(&[update(None)], at(7)).unwrap();
        assert_eq!(reader.job_claim(&of, JOB).unwrap(), None);

        writer.commit(&[update(Some(claim(3)))], at(8)).unwrap();
        writer
            .commit(&[Change::DropInstance { key: of.clone() }], at(9))
            .unwrap();
        assert_eq!(reader.job_claim(&of, JOB).unwrap(), None);
    }

    #[test]
    fn result_of_a_claim_is_found_by_its_job_and_its_claim() {
        let (mut writer, reader) = open_in_memory(small());
        let tenant = key("acme", "o-1").tenant;
        let stored = claim(1).id;
        let result = Change::JobResult {
            tenant: tenant.clone(),
            job: JOB,
            claim: stored,
        };
        writer.commit(&[result], at(5)).unwrap();

        let has = |tenant: &TenantId, job, claim| {
            reader.has_job_result(tenant, job, claim, at(6)).unwrap()
        };
        assert!(has(&tenant, JOB, stored));
        assert!(!has(&tenant, JOB, claim(2).id));
        assert!(!has(&tenant, Uuid::nil(), stored));
        assert!(!has(&key("beta", "o-1").tenant, JOB, stored));
    }
}
