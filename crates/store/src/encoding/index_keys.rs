//! Keys of the table `index`. Each ends with the fields that identify the instance.

use orlog_model::{CorrelationId, InstanceKey, Name, SagaName, Status, TenantId, Timestamp};

use crate::encoding::range::KeyRange;
use crate::encoding::tuple::{Key, KeyReader, KeyWriter};
use crate::error::Error;

/// (`BY_STATUS`, tenant, status, saga, correlation).
const BY_STATUS: u8 = 0;
/// (`BY_CHANGE`, tenant, saga, class, time of the last change, correlation).
const BY_CHANGE: u8 = 1;
/// (`BY_VARIABLE`, saga, variable, tenant, value, correlation).
const BY_VARIABLE: u8 = 2;

/// Number of bytes of a text that are indexed. Longer texts with the same start are equal in the
/// index.
const TEXT_BYTES: usize = 64;

/// Value of an indexed variable. Values are ordered by type, then by value.
#[derive(Debug, Clone, PartialEq, PartialOrd)]
pub enum IndexedValue {
    /// Boolean.
    Bool(bool),
    /// Number; a greater integer than 2^53 is rounded.
    Number(f64),
    /// Text, in the order of its bytes.
    Text(String),
}

/// Statuses whose instances are ordered together by the time of their last change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum StatusClass {
    /// Running or compensating.
    Live = 0,
    Stuck = 1,
    Ended = 2,
}

impl StatusClass {
    pub(crate) fn of(status: Status) -> Self {
        match status {
            Status::Running | Status::Compensating => Self::Live,
            Status::Stuck => Self::Stuck,
            Status::Completed | Status::Failed | Status::Cancelled => Self::Ended,
        }
    }
}

pub(crate) fn status(key: &InstanceKey, status: Status) -> Key {
    of_status(&key.tenant, status)
        .text(key.saga.as_str())
        .text(key.correlation.as_str())
        .finish()
}

/// Returns the range of the instances of a tenant with a status, optionally of one saga, whose
/// correlation id starts with `prefix`.
pub(crate) fn status_range(
    tenant: &TenantId,
    status: Status,
    saga: Option<&SagaName>,
    prefix: &str,
) -> KeyRange {
    let mut key = of_status(tenant, status);
    KeyRange::of_prefix(match saga {
        Some(saga) => key.text(saga.as_str()).open_text(prefix).finish(),
        // Without the saga, a prefix of the correlation id selects no range. The query filters the
        // instances.
        None => key.finish(),
    })
}

fn of_status(tenant: &TenantId, status: Status) -> KeyWriter {
    let mut key = KeyWriter::new();
    key.u8(BY_STATUS)
        .text(tenant.as_str())
        .u8(status_number(status));
    key
}

/// Returns the number of a status in keys.
pub(crate) fn status_number(status: Status) -> u8 {
    match status {
        Status::Running => 0,
        Status::Compensating => 1,
        Status::Completed => 2,
        Status::Failed => 3,
        Status::Cancelled => 4,
        Status::Stuck => 5,
    }
}

pub(crate) fn changed(key: &InstanceKey, class: StatusClass, at: Timestamp) -> Key {
    of_class(&key.tenant, &key.saga, class)
        .i64(at.as_millis())
        .text(key.correlation.as_str())
        .finish()
}

/// Returns the range of the instances of a saga in a class that changed before `end`, or of all.
pub(crate) fn changed_range(
    tenant: &TenantId,
    saga: &SagaName,
    class: StatusClass,
    end: Option<Timestamp>,
) -> KeyRange {
    let all = KeyRange::of_prefix(of_class(tenant, saga, class).finish());
    let end = end
        .map(|end| of_class(tenant, saga, class).i64(end.as_millis()).finish())
        .or(all.end);
    KeyRange {
        start: all.start,
        end,
    }
}

fn of_class(tenant: &TenantId, saga: &SagaName, class: StatusClass) -> KeyWriter {
    let mut key = KeyWriter::new();
    key.u8(BY_CHANGE)
        .text(tenant.as_str())
        .text(saga.as_str())
        .u8(class as u8);
    key
}

pub(crate) fn variable(key: &InstanceKey, name: &Name, indexed: &IndexedValue) -> Key {
    let mut fields = of_variable(&key.saga, name);
    value(fields.text(key.tenant.as_str()), indexed)
        .text(key.correlation.as_str())
        .finish()
}

/// Returns the first fields of all keys of a variable.
pub(crate) fn of_variable(saga: &SagaName, name: &Name) -> KeyWriter {
    let mut key = KeyWriter::new();
    key.u8(BY_VARIABLE).text(saga.as_str()).text(name.as_str());
    key
}

/// Returns the range of the instances of a saga with a value between `lower` and `upper`,
/// inclusive. A missing bound is the first or last value of the type of the other one.
pub(crate) fn variable_range(
    tenant: &TenantId,
    saga: &SagaName,
    name: &Name,
    lower: Option<&IndexedValue>,
    upper: Option<&IndexedValue>,
) -> KeyRange {
    let of_tenant = || {
        let mut key = of_variable(saga, name);
        key.text(tenant.as_str());
        key
    };
    let bound = |bound: &IndexedValue| KeyRange::of_prefix(value(&mut of_tenant(), bound).finish());
    let of_type =
        |bound: &IndexedValue| KeyRange::of_prefix(of_tenant().u8(type_number(bound)).finish());

    let start = lower.map(bound).or_else(|| upper.map(of_type));
    let end = upper.map(bound).or_else(|| lower.map(of_type));
    let all = KeyRange::of_prefix(of_tenant().finish());

    KeyRange {
        start: start.map_or(all.start, |range| range.start),
        end: end.map_or(all.end, |range| range.end),
    }
}

fn type_number(value: &IndexedValue) -> u8 {
    match value {
        IndexedValue::Bool(_) => 0,
        IndexedValue::Number(_) => 1,
        IndexedValue::Text(_) => 2,
    }
}

fn value<'a>(key: &'a mut KeyWriter, value: &IndexedValue) -> &'a mut KeyWriter {
    // Types are not mixed: a bound of one type must not select values of another.
    key.u8(type_number(value));
    match value {
        IndexedValue::Bool(value) => key.u8(u8::from(*value)),
        IndexedValue::Number(value) => key.u64(ordered_bits(*value)),
        IndexedValue::Text(text) => key.bytes(&text.as_bytes()[..text.len().min(TEXT_BYTES)]),
    }
}

/// Returns the bits of a number in an order that is the order of the numbers.
fn ordered_bits(number: f64) -> u64 {
    // Zero has two signs.
    let bits = if number == 0.0 { 0 } else { number.to_bits() };

    // The bits of negative numbers grow with the magnitude, and their sign bit is set.
    if bits >> 63 == 1 {
        !bits
    } else {
        bits | 1 << 63
    }
}

/// Decodes the instance of an index row.
pub(crate) fn read(row: &[u8]) -> Result<InstanceKey, Error> {
    let mut fields = KeyReader::of(row);
    let (tenant, saga) = match fields.u8()? {
        BY_STATUS => {
            let tenant = fields.text()?;
            fields.u8()?;
            (tenant, fields.text()?)
        }
        BY_CHANGE => {
            let names = (fields.text()?, fields.text()?);
            fields.u8()?;
            fields.i64()?;
            names
        }
        BY_VARIABLE => {
            let saga = fields.text()?;
            let _variable = fields.text()?;
            let tenant = fields.text()?;
            match fields.u8()? {
                0 => drop(fields.u8()?),
                1 => drop(fields.u64()?),
                // The indexed part of a text can end within a character, so it is skipped and not
                // decoded.
                _ => fields.skip_text()?,
            }
            (tenant, saga)
        }
        other => return Err(fields.corrupt(format!("{other} is not an index"))),
    };

    let correlation = fields.text()?;
    let invalid = |error: orlog_model::IdError| fields.corrupt(error.to_string());
    Ok(InstanceKey {
        tenant: TenantId::new(&*tenant).map_err(invalid)?,
        saga: SagaName::new(&*saga).map_err(invalid)?,
        correlation: CorrelationId::new(&*correlation).map_err(invalid)?,
    })
}

/// Returns the range of all rows by time, and the saga of a row in it.
pub(crate) fn all_changed() -> KeyRange {
    KeyRange::of_prefix(KeyWriter::new().u8(BY_CHANGE).finish())
}

/// Returns the part of a range of rows by time that follows all rows of a saga.
pub(crate) fn after_saga(range: KeyRange, tenant: &TenantId, saga: &SagaName) -> KeyRange {
    let of_saga = KeyWriter::new()
        .u8(BY_CHANGE)
        .text(tenant.as_str())
        .text(saga.as_str())
        .finish();

    match KeyRange::of_prefix(of_saga).end {
        Some(end) if end > range.start => KeyRange {
            start: end,
            ..range
        },
        _ => range,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::samples::key;

    fn name() -> Name {
        Name::new("total").unwrap()
    }

    fn values() -> impl Strategy<Value = IndexedValue> {
        prop_oneof![
            any::<bool>().prop_map(IndexedValue::Bool),
            (-1e300..1e300f64).prop_map(IndexedValue::Number),
            (-9i32..9).prop_map(|number| IndexedValue::Number(f64::from(number))),
            "[a-bé\0]{0,70}".prop_map(IndexedValue::Text),
        ]
    }

    proptest! {
        #[test]
        fn rows_of_values_within_the_bounds_are_in_the_range(
            value in values(), lower in values(), upper in values(),
        ) {
            let of = key("acme", "o-1");
            let row = variable(&of, &name(), &value);
            prop_assert_eq!(read(&row).unwrap(), of.clone());
            let is_in = |lower, upper| {
                let range = variable_range(&of.tenant, &of.saga, &name(), lower, upper);
                range.start <= row && range.end.is_none_or(|end| row < end)
            };
            prop_assert!(is_in(Some(&value), Some(&value)));
            let same_type = |bound: &IndexedValue| type_number(bound) == type_number(&value);
            if lower <= value && same_type(&lower) {
                prop_assert!(is_in(Some(&lower), None));
            }
            if value <= upper && same_type(&upper) {
                prop_assert!(is_in(None, Some(&upper)));
            }
            if !same_type(&lower) {
                prop_assert!(!is_in(Some(&lower), None));
            }
        }
    }

    #[test]
    fn rows_by_status_and_time_name_their_instance() {
        let of = key("acme", "o-1");
        for at in [Timestamp::from_millis(-1), Timestamp::from_millis(1)] {
            let row = changed(&of, StatusClass::Ended, at);
            assert_eq!(read(&row).unwrap(), of);
            let before = |end| {
                let range = changed_range(&of.tenant, &of.saga, StatusClass::Ended, Some(end));
                range.start <= row && range.end.is_none_or(|end| row < end)
            };
            assert!(!before(at) && before(Timestamp::from_millis(at.as_millis() + 1)));
        }
        for status in Status::ALL {
            let row = super::status(&of, status);
            assert_eq!(read(&row).unwrap(), of);
            let range = status_range(&of.tenant, status, Some(&of.saga), "o-");
            assert!(range.start <= row && range.end.is_none_or(|end| row < end));
        }
    }
}
