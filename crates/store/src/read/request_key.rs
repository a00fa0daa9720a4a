//! Reads of the idempotency keys of requests.

use std::ops::ControlFlow;

use orlog_model::{TenantId, Timestamp};
use uuid::Uuid;

use super::reader::Reader;
use crate::encoding::keys;
use crate::encoding::range::KeyRange;
use crate::error::Error;
use crate::table::Table;
use crate::translate::request_key;

/// Use of an idempotency key within the window of dedupe keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RequestKeyUse {
    /// No request has it.
    Unused,
    /// This request has it.
    Same,
    /// Only requests with other fingerprints have it.
    Other,
}

impl Reader {
    /// Returns which request has used an idempotency key, seen from one with this fingerprint.
    ///
    /// # Errors
    /// If a row cannot be read.
    pub fn request_key_use(
        &self,
        tenant: &TenantId,
        key: Uuid,
        fingerprint: Uuid,
        now: Timestamp,
    ) -> Result<RequestKeyUse, Error> {
        let (instance, id) = request_key(tenant, key, fingerprint);
        if self.is_duplicate(&instance, id, now)? {
            return Ok(RequestKeyUse::Same);
        }

        let row = self.keys().instance(&instance);
        let mut found = RequestKeyUse::Unused;
        for bucket in self.dedupe_buckets(now)? {
            let range = KeyRange::of_prefix(keys::dedupe_of_instance(bucket, &row));
            self.scan(Table::Dedupe, &range, |_, _| {
                found = RequestKeyUse::Other;
                Ok(ControlFlow::Break(()))
            })?;
        }
        Ok(found)
    }
}
