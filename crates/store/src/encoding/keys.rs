//! Encoding and decoding of the keys of each table.

use std::cmp::Ordering;
use std::time::Duration;

use compact_str::CompactString;
use orlog_model::{
    CheckpointKey, CorrelationId, DedupeKey, Destination, IdError, InstanceKey, Name, OutboxKey,
    Priority, SLOTS, SagaName, Slot, SlotAssigner, TenantId, Timer, Timestamp, WorkKind, fnv1a,
};
use uuid::Uuid;

use crate::encoding::range::KeyRange;
use crate::encoding::tuple::{Key, KeyReader, KeyWriter};
use crate::error::Error;

/// Maximum key length that MDBX accepts with pages of 4 KiB, in bytes.
pub(crate) const MAX_KEY_BYTES: usize = 2022;

/// Key of the deployment of the shared definitions in the table `meta`.
pub(crate) const DEPLOYMENT: &[u8] = b"deployment";

/// Prefix of the keys of the deployments of contexts in the table `meta`, before the tenant.
const CONTEXT_DEPLOYMENT: &[u8] = b"deployment/";

/// Key of the feed start in the table `meta`: the offset after which the feed is complete.
pub(crate) const FEED: &[u8] = b"feed";

/// Kinds of work by their number in keys.
pub(crate) const KINDS: [WorkKind; 4] = [
    WorkKind::Command,
    WorkKind::Effect,
    WorkKind::Fact,
    WorkKind::Saga,
];

/// Priorities by their number in keys. Releases without priorities wrote the number 0.
pub(crate) const PRIORITIES: [Priority; 3] = [Priority::Normal, Priority::High, Priority::Low];

/// First number of the spilled inputs of an instance. They are applied after its buffered inputs.
pub(crate) const FIRST_SPILLED: u64 = 1 << 63;

/// Encoder of keys. It has the slots of tenants and the length of a dedupe bucket.
#[derive(Debug, Clone)]
pub(crate) struct KeyEncoder {
    slots: SlotAssigner,
    bucket_millis: i64,
}

impl KeyEncoder {
    pub(crate) fn new(slots: SlotAssigner, window: Duration) -> Self {
        // The length divides times in `bucket`, so it must not be 0.
        let window_millis = i64::try_from(window.as_millis()).unwrap_or(i64::MAX).max(1);
        Self {
            slots,
            bucket_millis: window_millis,
        }
    }

    /// Returns the length of a dedupe bucket.
    pub(crate) fn window(&self) -> Duration {
        Duration::from_millis(u64::try_from(self.bucket_millis).unwrap_or(u64::MAX))
    }

    pub(crate) fn instance(&self, key: &InstanceKey) -> Key {
        let mut row = KeyWriter::new();
        row.u16(self.slots.slot_of(key).0);
        row.text(key.tenant.as_str())
            .text(key.saga.as_str())
            .text(key.correlation.as_str())
            .finish()
    }

    /// Returns the key of a history entry. Also the key of a buffered input: its number replaces
    /// the version.
    pub(crate) fn history(&self, key: &InstanceKey, version: u64) -> Key {
        history(&self.instance(key), version)
    }

    /// Returns the range of the buffered inputs of an instance; the spilled ones follow.
    pub(crate) fn buffered_inputs(&self, key: &InstanceKey) -> KeyRange {
        KeyRange {
            start: self.instance(key),
            end: Some(self.history(key, FIRST_SPILLED)),
        }
    }

    /// Returns the range of the spilled inputs of an instance.
    pub(crate) fn spilled_inputs(&self, key: &InstanceKey) -> KeyRange {
        KeyRange {
            start: self.history(key, FIRST_SPILLED),
            ..KeyRange::of_prefix(self.instance(key))
        }
    }

    pub(crate) fn timer(&self, key: &InstanceKey, timer: &Timer) -> Key {
        self::timer(&self.instance(key), timer)
    }

    /// Returns the number of the bucket that contains a time.
    pub(crate) fn bucket(&self, at: Timestamp) -> i64 {
        // Also times before 1970 are rounded down.
        at.as_millis().div_euclid(self.bucket_millis)
    }

    /// Returns the start of a bucket.
    pub(crate) fn bucket_start(&self, bucket: i64) -> Timestamp {
        Timestamp::from_millis(bucket.saturating_mul(self.bucket_millis))
    }

    /// Returns the range of the dedupe keys in buckets that ended at `before` or earlier.
    pub(crate) fn dedupe_before(&self, before: Timestamp) -> KeyRange {
        KeyRange {
            start: Key::new(),
            end: Some(dedupe_bucket_start(self.bucket(before))),
        }
    }

    /// Returns the key of a task. Tasks are in the slot of their instance, in the order of their
    /// ids.
    pub(crate) fn task(&self, instance: &InstanceKey, id: Uuid) -> Key {
        of_task(self.slots.slot_of(instance), &instance.tenant, id).finish()
    }

    pub(crate) fn task_event(&self, instance: &InstanceKey, id: Uuid, number: u64) -> Key {
        of_task(self.slots.slot_of(instance), &instance.tenant, id)
            .u64(number)
            .finish()
    }

    /// Returns the slots that contain instances of a tenant.
    pub(crate) fn slots_of(&self, tenant: &TenantId) -> std::ops::Range<u16> {
        // The instances of a key-sharded tenant can be in any slot.
        self.slots
            .tenant_slot(tenant)
            .map_or(0..SLOTS, |slot| slot.0..slot.0 + 1)
    }

    /// Returns the ranges of the instances of a tenant, optionally of one saga, whose correlation
    /// id starts with `prefix`.
    pub(crate) fn instances(
        &self,
        tenant: &TenantId,
        saga: Option<&SagaName>,
        prefix: &str,
    ) -> Vec<KeyRange> {
        self.slots_of(tenant)
            .map(|slot| instances_in(slot, tenant, saga, prefix))
            .collect()
    }
}

/// Returns the part of [`KeyEncoder::instances`] in a slot.
fn instances_in(slot: u16, tenant: &TenantId, saga: Option<&SagaName>, prefix: &str) -> KeyRange {
    let mut key = KeyWriter::new();
    key.u16(slot).text(tenant.as_str());
    KeyRange::of_prefix(match saga {
        Some(saga) => key.text(saga.as_str()).open_text(prefix).finish(),
        // Without the saga, a prefix of the correlation id selects no range. The query filters the
        // instances.
        None => key.finish(),
    })
}

/// Returns the key of a history entry of the instance with this row. See [`KeyEncoder::history`].
pub(crate) fn history(row: &[u8], version: u64) -> Key {
    KeyWriter::new().fixed(row).u64(version).finish()
}

/// Returns the key of the claim of a job of the instance with this row.
pub(crate) fn job_claim(row: &[u8], job: Uuid) -> Key {
    KeyWriter::new().fixed(row).fixed(job.as_bytes()).finish()
}

/// Decodes the key of the claim of a job: the instance and the work item.
pub(crate) fn read_job_claim(key: &[u8]) -> Result<(InstanceKey, Uuid), Error> {
    let mut fields = KeyReader::of(key);
    let (_, instance) = read_instance(&mut fields)?;
    Ok((instance, Uuid::from_bytes(fields.fixed()?)))
}

/// Returns the key of a timer of the instance with this row.
pub(crate) fn timer(row: &[u8], timer: &Timer) -> Key {
    // The due time comes first, so that the next timers are the first rows.
    let mut key = KeyWriter::new();
    key.i64(timer.due.as_millis())
        .fixed(row)
        .text(timer.name.as_str())
        .u64(timer.token)
        .finish()
}

/// Returns the key of a dedupe key of the instance with this row.
pub(crate) fn dedupe(bucket: i64, row: &[u8], id: DedupeKey) -> Key {
    // The bucket comes first, so that expired keys are one range, which a purge deletes in order.
    KeyWriter::new()
        .i64(bucket)
        .fixed(row)
        .fixed(id.as_uuid().as_bytes())
        .finish()
}

/// Returns the prefix of the dedupe keys of the instance with this row in a bucket.
pub(crate) fn dedupe_of_instance(bucket: i64, row: &[u8]) -> Key {
    KeyWriter::new().i64(bucket).fixed(row).finish()
}

/// Returns the key of the deployment of a context in the table `meta`.
pub(crate) fn context_deployment(context: &TenantId) -> Key {
    let mut key = Key::from_slice(CONTEXT_DEPLOYMENT);
    key.extend_from_slice(context.as_str().as_bytes());
    key
}

/// Returns the range of the deployments of contexts in the table `meta`.
pub(crate) fn context_deployments() -> KeyRange {
    KeyRange::of_prefix(Key::from_slice(CONTEXT_DEPLOYMENT))
}

/// Returns whether a key of the table `meta` is that of the deployment of a context.
pub(crate) fn is_context_deployment(key: &[u8]) -> bool {
    key.starts_with(CONTEXT_DEPLOYMENT)
}

/// Returns the range of the tasks of a tenant in a slot.
pub(crate) fn tasks(slot: u16, tenant: &TenantId) -> KeyRange {
    KeyRange::of_prefix(KeyWriter::new().u16(slot).text(tenant.as_str()).finish())
}

/// Returns the key of a task, which is also the prefix of the keys of its events.
pub(crate) fn task_key(slot: u16, tenant: &TenantId, id: Uuid) -> Key {
    of_task(Slot(slot), tenant, id).finish()
}

fn of_task(slot: Slot, tenant: &TenantId, id: Uuid) -> KeyWriter {
    let mut key = KeyWriter::new();
    key.u16(slot.0).text(tenant.as_str()).fixed(id.as_bytes());
    key
}

/// Decodes the key of a task or of one of its events: tenant, task id and event number.
pub(crate) fn read_task(key: &[u8]) -> Result<(TenantId, Uuid, Option<u64>), Error> {
    let mut fields = KeyReader::of(key);
    fields.u16()?;
    let tenant = read_tenant(&mut fields)?;
    let id = Uuid::from_bytes(fields.fixed()?);
    // The key of a task ends here. That of a task event has a number.
    Ok((tenant, id, fields.u64().ok()))
}

fn read_tenant(fields: &mut KeyReader<'_>) -> Result<TenantId, Error> {
    let tenant = CompactString::from(fields.text()?);
    TenantId::new(tenant).map_err(|error| fields.corrupt(error.to_string()))
}

/// Returns the range of all timers due at `until` or earlier.
pub(crate) fn timers_until(until: Timestamp) -> KeyRange {
    // After the latest time no timer follows, so the range needs no end.
    let end = until
        .as_millis()
        .checked_add(1)
        .map(|millis| KeyWriter::new().i64(millis).finish());
    KeyRange {
        start: Key::new(),
        end,
    }
}

/// Returns a cursor to the timers of a tenant from `row` on. It does not reveal the tenant of that
/// row.
pub(crate) fn timer_cursor(tenant: &TenantId, row: &[u8]) -> Result<Key, Error> {
    let mut fields = KeyReader::of(row);
    let due = fields.i64()?;
    let (slot, instance) = read_instance(&mut fields)?;

    // In the slot of the row, timers of a later tenant can follow. Those of an earlier tenant
    // follow only in the next slot.
    Ok(match instance.tenant.cmp(tenant) {
        Ordering::Less => KeyWriter::new()
            .i64(due)
            .u16(slot.0)
            .text(tenant.as_str())
            .finish(),
        Ordering::Equal => Key::from_slice(row),
        Ordering::Greater => KeyWriter::new()
            .i64(due)
            .u16(slot.0.saturating_add(1))
            .finish(),
    })
}

pub(crate) fn outbox(key: &OutboxKey) -> Key {
    destination(&key.destination).u64(key.sequence).finish()
}

/// Returns the range of the work items of a destination.
pub(crate) fn outbox_destination(of: &Destination) -> KeyRange {
    KeyRange::of_prefix(destination(of).finish())
}

/// Returns the ranges of the work items of a tenant, one for each priority and kind.
pub(crate) fn tenant_destinations(tenant: &TenantId) -> impl Iterator<Item = KeyRange> {
    let classes = PRIORITIES
        .into_iter()
        .flat_map(|priority| KINDS.map(|kind| work_class(kind, priority)));
    classes
        .map(|class| KeyRange::of_prefix(KeyWriter::new().u8(class).text(tenant.as_str()).finish()))
}

/// Returns the first byte of an outbox key: the number of the priority, then that of the kind.
fn work_class(kind: WorkKind, priority: Priority) -> u8 {
    let priority = match priority {
        Priority::Normal => 0,
        Priority::High => 1,
        Priority::Low => 2,
    };

    // The number of the normal priority is 0, so keys of releases without priorities keep their
    // meaning.
    priority << 4 | work_kind(kind)
}

/// Returns the numbers of the priority and of the kind of an outbox key.
pub(crate) fn class_numbers(class: u8) -> (usize, usize) {
    (usize::from(class >> 4), usize::from(class & 0x0f))
}

fn work_kind(kind: WorkKind) -> u8 {
    match kind {
        WorkKind::Command => 0,
        WorkKind::Effect => 1,
        WorkKind::Fact => 2,
        WorkKind::Saga => 3,
    }
}

fn destination(destination: &Destination) -> KeyWriter {
    let Destination {
        kind,
        tenant,
        name,
        priority,
    } = destination;

    let mut key = KeyWriter::new();
    key.u8(work_class(*kind, *priority))
        .text(tenant.as_str())
        .text(name);
    key
}

pub(crate) fn checkpoint(source: &CheckpointKey) -> Key {
    KeyWriter::new()
        .text(&source.stream)
        .text(&source.consumer)
        .finish()
}

/// Returns the key of a dead letter. Dead letters are in the slot of the tenant name, for
/// key-sharded tenants too, because not every dead letter has an instance.
pub(crate) fn dead_letter(tenant: &TenantId, id: Uuid) -> Key {
    home(tenant).fixed(id.as_bytes()).finish()
}

/// Returns the key of an unpublished dead letter. The copies are ordered as the dead letters were
/// stored.
pub(crate) fn dead_letter_outbox(sequence: u64) -> Key {
    KeyWriter::new().u64(sequence).finish()
}

/// Decodes the sequence of an unpublished dead letter.
pub(crate) fn read_dead_letter_outbox(key: &[u8]) -> Result<u64, Error> {
    KeyReader::of(key).u64()
}

/// Returns the key of a feed row. Rows are in the order of the commits.
pub(crate) fn feed(position: u64, part: u32) -> Key {
    KeyWriter::new()
        .u64(position)
        .fixed(&part.to_be_bytes())
        .finish()
}

/// Decodes the key of a feed row: position and part.
pub(crate) fn read_feed(key: &[u8]) -> Result<(u64, u32), Error> {
    let mut fields = KeyReader::of(key);
    Ok((fields.u64()?, u32::from_be_bytes(fields.fixed()?)))
}

/// Returns the range of the dead letters of a tenant.
pub(crate) fn dead_letters(tenant: &TenantId) -> KeyRange {
    KeyRange::of_prefix(home(tenant).finish())
}

fn home(tenant: &TenantId) -> KeyWriter {
    let slot = fnv1a(&[tenant.as_str()]) % u32::from(SLOTS);
    let mut key = KeyWriter::new();
    key.u16(u16::try_from(slot).expect("a remainder below 1024 fits"))
        .text(tenant.as_str());
    key
}

/// Decodes the fields of an instance key and leaves the rest.
pub(crate) fn read_instance(fields: &mut KeyReader<'_>) -> Result<(Slot, InstanceKey), Error> {
    let slot = Slot(fields.u16()?);
    let tenant = fields.text()?;
    let saga = fields.text()?;
    let correlation = fields.text()?;

    let invalid = |error: IdError| fields.corrupt(error.to_string());
    let key = InstanceKey {
        tenant: TenantId::new(CompactString::from(tenant)).map_err(invalid)?,
        saga: SagaName::new(CompactString::from(saga)).map_err(invalid)?,
        correlation: CorrelationId::new(CompactString::from(correlation)).map_err(invalid)?,
    };

    Ok((slot, key))
}

pub(crate) fn read_timer(key: &[u8]) -> Result<(InstanceKey, Timer), Error> {
    let mut fields = KeyReader::of(key);
    let due = Timestamp::from_millis(fields.i64()?);
    let (_, instance) = read_instance(&mut fields)?;
    let name = Name::new(CompactString::from(fields.text()?))
        .map_err(|e| fields.corrupt(e.to_string()))?;

    Ok((
        instance,
        Timer {
            due,
            name,
            token: fields.u64()?,
        },
    ))
}

pub(crate) fn read_outbox(key: &[u8]) -> Result<OutboxKey, Error> {
    let mut fields = KeyReader::of(key);
    let class = fields.u8()?;
    let (priority, kind) = class_numbers(class);

    let unknown = || fields.corrupt(format!("{class} is not a priority and a kind of work"));
    let kind = *KINDS.get(kind).ok_or_else(unknown)?;
    let priority = *PRIORITIES.get(priority).ok_or_else(unknown)?;
    let tenant = read_tenant(&mut fields)?;
    let name = CompactString::from(fields.text()?);

    Ok(OutboxKey {
        destination: Destination {
            kind,
            tenant,
            name,
            priority,
        },
        sequence: fields.u64()?,
    })
}

pub(crate) fn read_checkpoint(key: &[u8]) -> Result<CheckpointKey, Error> {
    let mut fields = KeyReader::of(key);
    Ok(CheckpointKey {
        stream: fields.text()?.into_owned(),
        consumer: fields.text()?.into_owned(),
    })
}

/// Decodes the key of a history entry or of a buffered input: the instance and the number.
pub(crate) fn read_numbered(key: &[u8]) -> Result<(InstanceKey, u64), Error> {
    let mut fields = KeyReader::of(key);
    let (_, instance) = read_instance(&mut fields)?;
    Ok((instance, fields.u64()?))
}

/// Returns the first key of a dedupe bucket.
pub(crate) fn dedupe_bucket_start(bucket: i64) -> Key {
    KeyWriter::new().i64(bucket).finish()
}

/// Decodes the bucket of a dedupe key.
pub(crate) fn read_bucket(key: &[u8]) -> Result<i64, Error> {
    KeyReader::of(key).i64()
}

/// Decodes a dedupe key.
pub(crate) fn read_dedupe(key: &[u8]) -> Result<(i64, InstanceKey, DedupeKey), Error> {
    let mut fields = KeyReader::of(key);
    let bucket = fields.i64()?;
    let (_, instance) = read_instance(&mut fields)?;
    Ok((
        bucket,
        instance,
        DedupeKey::from_uuid(Uuid::from_bytes(fields.fixed()?)),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key() -> InstanceKey {
        InstanceKey {
            tenant: TenantId::new("acme").unwrap(),
            saga: SagaName::new("order").unwrap(),
            correlation: CorrelationId::new("o-1").unwrap(),
        }
    }

    fn keys() -> KeyEncoder {
        KeyEncoder::new(SlotAssigner::default(), Duration::from_hours(24))
    }

    #[track_caller]
    fn check(key: &[u8], expected: &str) {
        assert_eq!(hex::encode(key), expected.replace(' ', ""));
    }

    #[test]
    fn key_format_is_stable() {
        let instance = "00b0 61636d650000 6f726465720000 6f2d310000".replace("00b0", &slot());
        check(&keys().instance(&key()), &instance);
        check(
            &keys().history(&key(), 7),
            &format!("{instance} 0000000000000007"),
        );
        let timer = Timer {
            due: Timestamp::from_millis(1),
            name: Name::new("pay").unwrap(),
            token: 3,
        };
        check(
            &keys().timer(&key(), &timer),
            &format!("8000000000000001 {instance} 7061790000 0000000000000003"),
        );
        let id = DedupeKey::from_uuid(Uuid::from_u128(1));
        check(
            &dedupe(-1, &keys().instance(&key()), id),
            &format!("7fffffffffffffff {instance} {:032x}", 1),
        );
        let destination = Destination {
            kind: WorkKind::Effect,
            tenant: key().tenant,
            name: CompactString::from("a.b"),
            priority: orlog_model::Priority::Normal,
        };
        check(
            &outbox(&OutboxKey {
                destination,
                sequence: 9,
            }),
            "01 61636d650000 612e620000 0000000000000009",
        );
        for (priority, class) in [(Priority::High, "11"), (Priority::Low, "21")] {
            let destination = Destination {
                kind: WorkKind::Effect,
                tenant: key().tenant,
                name: CompactString::from("a.b"),
                priority,
            };
            let outbox_key = OutboxKey {
                destination,
                sequence: 9,
            };
            check(
                &outbox(&outbox_key),
                &format!("{class} 61636d650000 612e620000 0000000000000009"),
            );
            assert_eq!(read_outbox(&outbox(&outbox_key)).unwrap(), outbox_key);
        }
        assert!(
            read_outbox(
                &KeyWriter::new()
                    .u8(0x31)
                    .text("acme")
                    .text("a.b")
                    .u64(9)
                    .finish()
            )
            .is_err()
        );
        check(
            &checkpoint(&CheckpointKey {
                stream: "s".to_owned(),
                consumer: "*".to_owned(),
            }),
            "730000 2a0000",
        );
        let dead_letter_key = dead_letter(&key().tenant, Uuid::from_u128(5));
        check(
            &dead_letter_key,
            &format!("{} 61636d650000 00000000000000000000000000000005", slot()),
        );
        let task = format!("{} 61636d650000 00000000000000000000000000000005", slot());
        check(&keys().task(&key(), Uuid::from_u128(5)), &task);
        check(
            &keys().task_event(&key(), Uuid::from_u128(5), 9),
            &format!("{task} 0000000000000009"),
        );
    }

    fn slot() -> String {
        hex::encode(keys().slots.slot_of(&key()).0.to_be_bytes())
    }

    #[test]
    fn keys_round_trip() {
        let timer = Timer {
            due: Timestamp::from_millis(-5),
            name: Name::new("pay").unwrap(),
            token: 3,
        };
        assert_eq!(
            read_timer(&keys().timer(&key(), &timer)).unwrap(),
            (key(), timer)
        );
        assert_eq!(
            read_numbered(&keys().history(&key(), 7)).unwrap(),
            (key(), 7)
        );
        let id = DedupeKey::from_uuid(Uuid::from_u128(1));
        let applied = dedupe(4, &keys().instance(&key()), id);
        assert_eq!(read_dedupe(&applied).unwrap(), (4, key(), id));
        let outbox_key = OutboxKey {
            destination: Destination {
                kind: WorkKind::Fact,
                tenant: key().tenant,
                name: CompactString::from(""),
                priority: orlog_model::Priority::Normal,
            },
            sequence: 9,
        };
        assert_eq!(read_outbox(&outbox(&outbox_key)).unwrap(), outbox_key);
        assert!(read_timer(b"short").is_err());
        let id = Uuid::from_u128(5);
        assert_eq!(
            read_task(&keys().task(&key(), id)).unwrap(),
            (key().tenant, id, None)
        );
        assert_eq!(
            read_task(&keys().task_event(&key(), id, 7)).unwrap(),
            (key().tenant, id, Some(7))
        );
    }

    #[test]
    fn longest_ids_fit_every_key() {
        let longest = InstanceKey {
            tenant: TenantId::new("t".repeat(TenantId::MAX_BYTES)).unwrap(),
            saga: SagaName::new("s".repeat(SagaName::MAX_BYTES)).unwrap(),
            correlation: CorrelationId::new("c".repeat(CorrelationId::MAX_BYTES)).unwrap(),
        };
        let timer = Timer {
            due: Timestamp::MAX,
            name: Name::new("n".repeat(Name::MAX_BYTES)).unwrap(),
            token: 0,
        };
        assert!(keys().timer(&longest, &timer).len() <= MAX_KEY_BYTES);
    }

    #[test]
    fn buckets_support_times_before_the_epoch() {
        let keys = KeyEncoder::new(SlotAssigner::default(), Duration::from_millis(10));
        assert_eq!(keys.bucket(Timestamp::from_millis(-1)), -1);
        assert_eq!(keys.bucket(Timestamp::from_millis(19)), 1);
    }
}
