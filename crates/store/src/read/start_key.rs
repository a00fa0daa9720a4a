//! Reads of the idempotency keys of start requests.

use std::ops::ControlFlow;

use orlog_model::{TenantId, Timestamp};
use uuid::Uuid;

use super::reader::Reader;
use crate::encoding::keys;
use crate::encoding::range::KeyRange;
use crate::error::Error;
use crate::table::Table;
use crate::translate::start_key;

impl Reader {
    /// Returns whether a request with another fingerprint has used the key, within the window of
    /// dedupe keys, and none with this one has.
    ///
    /// # Errors
    /// If a row cannot be read.
    pub fn is_start_key_reused(
        &self,
        tenant: &TenantId,
        key: Uuid,
        fingerprint: Uuid,
        now: Timestamp,
    ) -> Result<bool, Error> {
        let row = self.keys().instance(&start_key(tenant, key));
        let mut is_used = false;
        let mut is_equal = false;

        for bucket in self.dedupe_buckets(now)? {
            let range = KeyRange::of_prefix(keys::dedupe_of_instance(bucket, &row));
            self.scan(Table::Dedupe, &range, |key, _| {
                is_used = true;
                is_equal |= *keys::read_dedupe(key)?.2.as_uuid() == fingerprint;
                Ok(ControlFlow::Continue(()))
            })?;
        }
        Ok(is_used && !is_equal)
    }
}
