//! Conversion between rows of PostgreSQL and values of the backend.

use sqlx::Row as _;
use sqlx::postgres::PgRow;

use super::super::{BackendError, StoredInstance};

pub(super) fn unavailable(action: &'static str, error: &sqlx::Error) -> BackendError {
    BackendError::Unavailable {
        action,
        reason: error.to_string(),
    }
}

pub(super) fn get<'r, T: sqlx::Decode<'r, sqlx::Postgres> + sqlx::Type<sqlx::Postgres>>(
    row: &'r PgRow,
    column: usize,
) -> Result<T, BackendError> {
    row.try_get(column).map_err(|error| BackendError::Corrupt {
        reason: error.to_string(),
    })
}

pub(super) fn stored(row: &PgRow) -> Result<StoredInstance, BackendError> {
    Ok(StoredInstance {
        id: get::<String>(row, 0)?.into(),
        workflow: get::<String>(row, 1)?.into(),
        hash: get::<String>(row, 2)?.into(),
        epoch: get::<i64>(row, 3)?.cast_unsigned(),
        state: get::<Vec<u8>>(row, 4)?.into(),
        last_signal: get::<i64>(row, 5)?.cast_unsigned(),
    })
}

/// Converts an unsigned number; one that exceeds 2⁶³ becomes the maximum.
pub(super) fn big(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}
