//! The keys of each table, written and read.

use std::cmp::Ordering;
use std::time::Duration;

use compact_str::CompactString;
use orlog_model::{
    CorrelationId, EventId, InstanceKey, Lane, Name, OutboxKey, SLOTS, SagaName, Slot, Slots, Source,
    TenantId, Timer, Timestamp, WorkKind, fnv1a,
};
use uuid::Uuid;

use crate::encoding::range::Range;
use crate::encoding::tuple::{Fields, Key};
use crate::error::Error;

/// The longest key that MDBX takes with pages of 4 KiB, in bytes.
pub(crate) const MAX_KEY_BYTES: usize = 2022;

/// Where in the table `meta` the deployment lies.
pub(crate) const DEPLOYMENT: &[u8] = b"deployment";

/// Where in the table `meta` it stands behind which mark the feed is whole.
pub(crate) const FEED: &[u8] = b"feed";

/// What must be known to make keys: where a tenant's instances lie, and how long a bucket of applied-markers is.
#[derive(Debug, Clone)]
pub(crate) struct Keys {
    slots: Slots,
    window_millis: i64,
}

impl Keys {
    pub(crate) fn new(slots: Slots, window: Duration) -> Self {
        let window_millis = i64::try_from(window.as_millis()).unwrap_or(i64::MAX).max(1);
        Self { slots, window_millis }
    }

    /// The length of a bucket of applied-markers.
    pub(crate) fn window(&self) -> Duration {
        Duration::from_millis(u64::try_from(self.window_millis).unwrap_or(u64::MAX))
    }

    pub(crate) fn instance(&self, key: &InstanceKey) -> Vec<u8> {
        self.of_instance(Key::new(), key).done()
    }

    /// Also the key of a kept input: its number takes the place of the version.
    pub(crate) fn history(&self, key: &InstanceKey, version: u64) -> Vec<u8> {
        self.of_instance(Key::new(), key).u64(version).done()
    }

    pub(crate) fn timer(&self, key: &InstanceKey, timer: &Timer) -> Vec<u8> {
        self.of_instance(Key::new().i64(timer.due.millis()), key)
            .text(timer.name.as_str())
            .u64(timer.token)
            .done()
    }

    pub(crate) fn applied(&self, bucket: i64, key: &InstanceKey, id: &EventId) -> Vec<u8> {
        self.of_instance(Key::new().i64(bucket), key).text(id.as_str()).done()
    }

    /// The number of the bucket that a time lies in.
    pub(crate) fn bucket(&self, at: Timestamp) -> i64 {
        at.millis().div_euclid(self.window_millis)
    }

    /// When a bucket begins.
    pub(crate) fn begin_of(&self, bucket: i64) -> Timestamp {
        Timestamp::from_millis(bucket.saturating_mul(self.window_millis))
    }

    /// The applied-markers in buckets that ended at `before` or earlier.
    pub(crate) fn applied_before(&self, before: Timestamp) -> Range {
        Range { start: Vec::new(), end: Some(applied_from(self.bucket(before))) }
    }

    /// Tasks lie in the slot of their instance, in the order of their ids.
    pub(crate) fn task(&self, instance: &InstanceKey, id: Uuid) -> Vec<u8> {
        of_task(self.slots.of(instance), &instance.tenant, id).done()
    }

    pub(crate) fn task_event(&self, instance: &InstanceKey, id: Uuid, number: u64) -> Vec<u8> {
        of_task(self.slots.of(instance), &instance.tenant, id).u64(number).done()
    }

    /// The slots in which instances of a tenant lie.
    pub(crate) fn slots_of(&self, tenant: &TenantId) -> std::ops::Range<u16> {
        self.slots.of_tenant(tenant).map_or(0..SLOTS, |slot| slot.0..slot.0 + 1)
    }

    /// The ranges that hold the instances of a tenant, of one saga, whose correlation begins with `prefix`.
    pub(crate) fn instances(&self, tenant: &TenantId, saga: Option<&SagaName>, prefix: &str) -> Vec<Range> {
        let of_slot = |slot: u16| {
            let key = Key::new().u16(slot).text(tenant.as_str());
            Range::of_prefix(match saga {
                Some(saga) => key.text(saga.as_str()).open_text(prefix).done(),
                None => key.done(),
            })
        };
        self.slots_of(tenant).map(of_slot).collect()
    }

    fn of_instance(&self, key: Key, instance: &InstanceKey) -> Key {
        key.u16(self.slots.of(instance).0)
            .text(instance.tenant.as_str())
            .text(instance.saga.as_str())
            .text(instance.correlation.as_str())
    }
}

/// The tasks of a tenant in a slot.
pub(crate) fn tasks(slot: u16, tenant: &TenantId) -> Range {
    Range::of_prefix(Key::new().u16(slot).text(tenant.as_str()).done())
}

/// The key of a task, which is also the beginning of the keys of its events.
pub(crate) fn task_in(slot: u16, tenant: &TenantId, id: Uuid) -> Vec<u8> {
    of_task(Slot(slot), tenant, id).done()
}

fn of_task(slot: Slot, tenant: &TenantId, id: Uuid) -> Key {
    Key::new().u16(slot.0).text(tenant.as_str()).fixed(id.as_bytes())
}

/// Reads the key of a task, or the beginning of that of one of its events: whose it is, and its id.
pub(crate) fn read_task(key: &[u8]) -> Result<(TenantId, Uuid, Option<u64>), Error> {
    let mut fields = Fields::of(key);
    fields.u16()?;
    let tenant =
        TenantId::new(CompactString::from(fields.text()?)).map_err(|e| fields.wrong(e.to_string()))?;
    let id = Uuid::from_bytes(fields.fixed()?);
    Ok((tenant, id, fields.u64().ok()))
}

/// All timers due at `until` or earlier.
pub(crate) fn timers_until(until: Timestamp) -> Range {
    let end = until.millis().checked_add(1).map(|millis| Key::new().i64(millis).done());
    Range { start: Vec::new(), end }
}

/// Where the timers of a tenant go on that are not before `row`, in bytes that tell nothing of the tenant whose row it is.
pub(crate) fn timers_of_from(tenant: &TenantId, row: &[u8]) -> Result<Vec<u8>, Error> {
    let mut fields = Fields::of(row);
    let due = fields.i64()?;
    let (slot, instance) = read_instance(&mut fields)?;
    Ok(match instance.tenant.cmp(tenant) {
        Ordering::Less => Key::new().i64(due).u16(slot.0).text(tenant.as_str()).done(),
        Ordering::Equal => row.to_vec(),
        Ordering::Greater => Key::new().i64(due).u16(slot.0.saturating_add(1)).done(),
    })
}

pub(crate) fn outbox(key: &OutboxKey) -> Vec<u8> {
    lane(&key.lane).u64(key.sequence).done()
}

/// The work items of a lane.
pub(crate) fn outbox_lane(of: &Lane) -> Range {
    Range::of_prefix(lane(of).done())
}

fn lane(lane: &Lane) -> Key {
    let kind = match lane.kind {
        WorkKind::Command => 0,
        WorkKind::Effect => 1,
        WorkKind::Fact => 2,
        WorkKind::Saga => 3,
    };
    Key::new().u8(kind).text(&lane.name)
}

pub(crate) fn checkpoint(source: &Source) -> Vec<u8> {
    Key::new().text(&source.stream).text(&source.consumer).done()
}

/// Dead letters lie in the slot of the tenant's name, also those of tenants that are spread: not all name an instance.
pub(crate) fn dead_letter(tenant: &TenantId, id: Uuid) -> Vec<u8> {
    home(tenant).fixed(id.as_bytes()).done()
}

/// Copies of dead letters wait in the order in which the letters were kept.
pub(crate) fn letter_outbox(sequence: u64) -> Vec<u8> {
    Key::new().u64(sequence).done()
}

/// Reads where the copy of a dead letter waits.
pub(crate) fn read_letter_outbox(key: &[u8]) -> Result<u64, Error> {
    Fields::of(key).u64()
}

/// Rows of the feed lie in the order of the commits.
pub(crate) fn feed(position: u64, part: u32) -> Vec<u8> {
    Key::new().u64(position).fixed(&part.to_be_bytes()).done()
}

/// Reads the key of a row of the feed: position and part.
pub(crate) fn read_feed(key: &[u8]) -> Result<(u64, u32), Error> {
    let mut fields = Fields::of(key);
    Ok((fields.u64()?, u32::from_be_bytes(fields.fixed()?)))
}

/// The dead letters of a tenant.
pub(crate) fn dead_letters(tenant: &TenantId) -> Range {
    Range::of_prefix(home(tenant).done())
}

fn home(tenant: &TenantId) -> Key {
    let slot = fnv1a(&[tenant.as_str()]) % u32::from(SLOTS);
    Key::new().u16(u16::try_from(slot).expect("a remainder below 1024 fits")).text(tenant.as_str())
}

/// Reads the fields of an instance's key and leaves the rest.
pub(crate) fn read_instance(fields: &mut Fields<'_>) -> Result<(Slot, InstanceKey), Error> {
    let slot = Slot(fields.u16()?);
    let (tenant, saga, correlation) = (fields.text()?, fields.text()?, fields.text()?);
    let key = InstanceKey {
        tenant: TenantId::new(CompactString::from(tenant)).map_err(|e| fields.wrong(e.to_string()))?,
        saga: SagaName::new(CompactString::from(saga)).map_err(|e| fields.wrong(e.to_string()))?,
        correlation: CorrelationId::new(CompactString::from(correlation))
            .map_err(|e| fields.wrong(e.to_string()))?,
    };
    Ok((slot, key))
}

pub(crate) fn read_timer(key: &[u8]) -> Result<(InstanceKey, Timer), Error> {
    let mut fields = Fields::of(key);
    let due = Timestamp::from_millis(fields.i64()?);
    let (_, instance) = read_instance(&mut fields)?;
    let name = Name::new(CompactString::from(fields.text()?)).map_err(|e| fields.wrong(e.to_string()))?;
    Ok((instance, Timer { due, name, token: fields.u64()? }))
}

pub(crate) fn read_outbox(key: &[u8]) -> Result<OutboxKey, Error> {
    let mut fields = Fields::of(key);
    let kind = match fields.u8()? {
        0 => WorkKind::Command,
        1 => WorkKind::Effect,
        2 => WorkKind::Fact,
        3 => WorkKind::Saga,
        other => return Err(fields.wrong(format!("{other} is no kind of work"))),
    };
    let name = CompactString::from(fields.text()?);
    Ok(OutboxKey { lane: Lane { kind, name }, sequence: fields.u64()? })
}

pub(crate) fn read_checkpoint(key: &[u8]) -> Result<Source, Error> {
    let mut fields = Fields::of(key);
    Ok(Source { stream: fields.text()?.into_owned(), consumer: fields.text()?.into_owned() })
}

/// Reads the key of a history record or of a kept input: the instance and the number behind it.
pub(crate) fn read_numbered(key: &[u8]) -> Result<(InstanceKey, u64), Error> {
    let mut fields = Fields::of(key);
    let (_, instance) = read_instance(&mut fields)?;
    Ok((instance, fields.u64()?))
}

/// Where the applied-markers of a bucket begin.
pub(crate) fn applied_from(bucket: i64) -> Vec<u8> {
    Key::new().i64(bucket).done()
}

/// Reads the bucket of an applied-marker.
pub(crate) fn read_bucket(key: &[u8]) -> Result<i64, Error> {
    Fields::of(key).i64()
}

/// Reads the key of an applied-marker.
pub(crate) fn read_applied(key: &[u8]) -> Result<(i64, InstanceKey, String), Error> {
    let mut fields = Fields::of(key);
    let bucket = fields.i64()?;
    let (_, instance) = read_instance(&mut fields)?;
    Ok((bucket, instance, fields.text()?.into_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::encoding::tuple::hex;

    fn key() -> InstanceKey {
        InstanceKey {
            tenant: TenantId::new("acme").unwrap(),
            saga: SagaName::new("order").unwrap(),
            correlation: CorrelationId::new("o-1").unwrap(),
        }
    }

    fn keys() -> Keys {
        Keys::new(Slots::default(), Duration::from_hours(24))
    }

    #[track_caller]
    fn check(key: &[u8], expected: &str) {
        assert_eq!(hex(key), expected.replace(' ', ""));
    }

    #[test]
    fn keys_never_change() {
        let instance = "00b0 61636d650000 6f726465720000 6f2d310000".replace("00b0", &slot());
        check(&keys().instance(&key()), &instance);
        check(&keys().history(&key(), 7), &format!("{instance} 0000000000000007"));
        let timer = Timer { due: Timestamp::from_millis(1), name: Name::new("pay").unwrap(), token: 3 };
        check(
            &keys().timer(&key(), &timer),
            &format!("8000000000000001 {instance} 7061790000 0000000000000003"),
        );
        let id = EventId::new("e").unwrap();
        check(&keys().applied(-1, &key(), &id), &format!("7fffffffffffffff {instance} 650000"));
        let lane = Lane { kind: WorkKind::Effect, name: CompactString::from("a.b") };
        check(&outbox(&OutboxKey { lane, sequence: 9 }), "01 612e620000 0000000000000009");
        check(&checkpoint(&Source { stream: "s".to_owned(), consumer: "*".to_owned() }), "730000 2a0000");
        let letter = dead_letter(&key().tenant, Uuid::from_u128(5));
        check(&letter, &format!("{} 61636d650000 00000000000000000000000000000005", slot()));
        let task = format!("{} 61636d650000 00000000000000000000000000000005", slot());
        check(&keys().task(&key(), Uuid::from_u128(5)), &task);
        check(&keys().task_event(&key(), Uuid::from_u128(5), 9), &format!("{task} 0000000000000009"));
    }

    fn slot() -> String {
        hex(&keys().slots.of(&key()).0.to_be_bytes())
    }

    #[test]
    fn keys_are_read_back() {
        let timer = Timer { due: Timestamp::from_millis(-5), name: Name::new("pay").unwrap(), token: 3 };
        assert_eq!(read_timer(&keys().timer(&key(), &timer)).unwrap(), (key(), timer));
        assert_eq!(read_numbered(&keys().history(&key(), 7)).unwrap(), (key(), 7));
        let applied = keys().applied(4, &key(), &EventId::new("e").unwrap());
        assert_eq!(read_applied(&applied).unwrap(), (4, key(), "e".to_owned()));
        let place =
            OutboxKey { lane: Lane { kind: WorkKind::Fact, name: CompactString::from("") }, sequence: 9 };
        assert_eq!(read_outbox(&outbox(&place)).unwrap(), place);
        assert!(read_timer(b"short").is_err());
        let id = Uuid::from_u128(5);
        assert_eq!(read_task(&keys().task(&key(), id)).unwrap(), (key().tenant, id, None));
        assert_eq!(read_task(&keys().task_event(&key(), id, 7)).unwrap(), (key().tenant, id, Some(7)));
    }

    #[test]
    fn the_longest_ids_fit_into_every_key() {
        let longest = InstanceKey {
            tenant: TenantId::new("t".repeat(TenantId::MAX_BYTES)).unwrap(),
            saga: SagaName::new("s".repeat(SagaName::MAX_BYTES)).unwrap(),
            correlation: CorrelationId::new("c".repeat(CorrelationId::MAX_BYTES)).unwrap(),
        };
        let timer =
            Timer { due: Timestamp::MAX, name: Name::new("n".repeat(Name::MAX_BYTES)).unwrap(), token: 0 };
        assert!(keys().timer(&longest, &timer).len() <= MAX_KEY_BYTES);
    }

    #[test]
    fn buckets_reach_back_behind_the_epoch() {
        let keys = Keys::new(Slots::default(), Duration::from_millis(10));
        assert_eq!(keys.bucket(Timestamp::from_millis(-1)), -1);
        assert_eq!(keys.bucket(Timestamp::from_millis(19)), 1);
    }
}
