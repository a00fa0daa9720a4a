//! Cost of a commit by group size, and cost of reads in the memtable and on disk.
//!
//! A transition here is a snapshot of 300 bytes, a history entry, a work item and the completion of
//! another work item.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use divan::{Bencher, black_box};
use orlog_model::{
    Change, Commit, CorrelationId, DedupeKey, DefinitionRef, Destination, EarlyInput, Effect,
    EffectName, Event, EventId, EventType, HistoryEntry, Input, Instance, InstanceKey, Name,
    SagaName, Status, TenantId, Timestamp, Work, WorkItem, WorkKind,
};
use orlog_store::{Durability, Options, Reader, Writer};
use serde_json::json;
use uuid::Uuid;

const INSTANCES: u64 = 100_000;

fn main() {
    divan::main();
}

fn key(number: u64) -> InstanceKey {
    InstanceKey {
        tenant: TenantId::new("acme").expect("valid"),
        saga: SagaName::new("order").expect("valid"),
        correlation: CorrelationId::new(format!("order-{:012}", number % INSTANCES))
            .expect("valid"),
    }
}

fn destination() -> Destination {
    Destination {
        kind: WorkKind::Effect,
        tenant: TenantId::new("acme").expect("valid"),
        name: "payments.charge".into(),
        priority: orlog_model::Priority::Normal,
    }
}

fn transition(number: u64) -> Commit {
    let key = key(number.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 20);
    let at = Timestamp::from_millis(1_700_000_000_000);
    let input = EventId::new(format!("event-{number:012}")).expect("valid");
    let instance = Instance {
        definition: DefinitionRef {
            saga: key.saga.clone(),
            version: 1,
            hash: [7; 16],
        },
        run_id: Uuid::nil(),
        users: None,
        result: None,
        version: number,
        status: Status::Running,
        paused: false,
        state: vec![b'x'; 190],
        waits: vec![],
        timers: vec![],
        pending_work: vec![],
        reference: None,
        last_input: input.clone(),
        last_error: None,
        node: "node-1".into(),
        trace: None,
        created_at: at,
        updated_at: at,
        tasks: vec![],
        parent: None,
    };
    let item = WorkItem {
        id: Uuid::from_u128(u128::from(number)),
        instance: key.clone(),
        work: Work::Effect(Effect {
            round: 0,
            tag: Name::new("charge").expect("valid"),
            name: EffectName::new("payments.charge").expect("valid"),
            payload: json!({"amount": 1250, "currency": "EUR"}),
            timeout: None,
            retry: None,
            schema_version: 1,
            in_doubt: None,
            priority: orlog_model::Priority::Normal,
        }),
        deadline: None,
        causation: input.clone(),
        trace: None,
        created_at: at,
        priority: orlog_model::Priority::Normal,
    };
    let history = HistoryEntry {
        version: number,
        at,
        input_id: input.clone(),
        input_label: "OrderPlaced".into(),
        note: "charge: requested".to_owned(),
        status: Status::Running,
        work: vec![("payments.charge".into(), item.id)],
        origin: orlog_model::InputOrigin::default(),
        payloads: orlog_model::RecordedPayloads::default(),
        failure: None,
        input: None,
    };
    Commit {
        instance: Some(Arc::new(instance)),
        work: vec![item],
        dedupe_key: Some(DedupeKey::from_uuid(Uuid::from_u128(u128::from(number)))),
        history: Some(history),
        ..Commit::empty(key, at)
    }
}

/// Endless commit load: each group completes the work of the previous one.
struct Load {
    _dir: tempfile::TempDir,
    writer: Writer,
    reader: Reader,
    number: u64,
    completed: u64,
}

impl Load {
    fn new(durability: Durability) -> Self {
        let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a directory");
        let (writer, reader) = open(dir.path(), durability);
        Self {
            _dir: dir,
            writer,
            reader,
            number: 0,
            completed: 0,
        }
    }

    fn group(&mut self, size: u64) -> Vec<Change> {
        let done = self
            .reader
            .outbox(&destination(), self.completed, usize::MAX)
            .expect("readable");
        let mut done = done.into_iter().map(|(key, _)| key);
        let group: Vec<_> = (0..size)
            .map(|_| {
                self.number += 1;
                let settles = done.next();
                self.completed = settles.as_ref().map_or(self.completed, |key| key.sequence);
                Change::Apply(Box::new(Commit {
                    settles,
                    ..transition(self.number)
                }))
            })
            .collect();
        group
    }

    fn commit(&mut self, group: &[Change]) -> u64 {
        self.writer
            .commit(group, Timestamp::from_millis(1_700_000_000_000))
            .expect("there is space")
    }
}

fn open(dir: &Path, durability: Durability) -> (Writer, Reader) {
    orlog_store::open(
        dir,
        Options {
            durability,
            ..Options::default()
        },
    )
    .expect("a new store opens")
}

fn commits(bencher: Bencher<'_, '_>, size: u64, durability: Durability) {
    let load = std::cell::RefCell::new(Load::new(durability));
    bencher
        .counter(size)
        .with_inputs(|| load.borrow_mut().group(size))
        .bench_local_values(|group| black_box(load.borrow_mut().commit(&group)));
}

#[divan::bench(args = [1, 10, 100, 1000], min_time = 2)]
fn commit_sync(bencher: Bencher<'_, '_>, size: u64) {
    commits(bencher, size, Durability::Sync);
}

#[divan::bench(args = [1, 10, 100, 1000], min_time = 2)]
fn commit_interval(bencher: Bencher<'_, '_>, size: u64) {
    commits(
        bencher,
        size,
        Durability::Interval(Duration::from_millis(100)),
    );
}

/// Creates a store whose instances are in the memtable or on disk.
fn filled(flushed: bool) -> Load {
    let mut load = Load::new(Durability::Interval(Duration::from_secs(1)));
    for _ in 0..100 {
        let group = load.group(1000);
        load.commit(&group);
    }
    if flushed {
        load.writer.flush().expect("there is space");
    }
    load
}

#[divan::bench(args = ["memtable", "disk"])]
fn read_instance(bencher: Bencher<'_, '_>, layer: &str) {
    let load = filled(layer == "disk");
    let mut number = 0u64;
    bencher
        .with_inputs(|| {
            number += 1;
            transition(number % 90_000 + 1).key
        })
        .bench_local_values(|key| black_box(load.reader.instance(&key).expect("readable")));
}

#[divan::bench(args = ["memtable", "disk"])]
fn miss_an_applied_event(bencher: Bencher<'_, '_>, layer: &str) {
    let load = filled(layer == "disk");
    let id = DedupeKey::from_uuid(Uuid::nil());
    let mut number = 0;
    bencher
        .with_inputs(|| {
            number += 1;
            key(number)
        })
        .bench_local_values(|key| {
            black_box(
                load.reader
                    .is_duplicate(&key, id, Timestamp::from_millis(1_700_000_000_000))
                    .expect("readable"),
            )
        });
}

#[divan::bench(args = ["memtable", "disk"])]
fn read_100_of_the_outbox(bencher: Bencher<'_, '_>, layer: &str) {
    let load = filled(layer == "disk");
    bencher.bench_local(|| {
        black_box(
            load.reader
                .outbox(&destination(), 0, 100)
                .expect("readable"),
        )
        .len()
    });
}

/// Measures the lookup of early inputs at the first event of an instance: there are none for it, but
/// some for a thousand other instances.
#[divan::bench(args = ["memtable", "disk"])]
fn find_no_buffered_input(bencher: Bencher<'_, '_>, layer: &str) {
    let mut load = filled(false);
    let group = (0..1000).map(|number| {
        let commit = Commit::empty(key(number * 7), Timestamp::from_millis(1));
        let early = EarlyInput {
            input: Box::new(early_event()),
            expires_at: Timestamp::MAX,
        };
        Change::Apply(Box::new(Commit {
            buffer: Some(Box::new(Input::Early(early))),
            ..commit
        }))
    });
    load.writer
        .commit(&group.collect::<Vec<_>>(), Timestamp::from_millis(1))
        .expect("there is space");
    if layer == "disk" {
        load.writer.flush().expect("there is space");
    }
    let mut number = 0u64;
    bencher.bench_local(|| {
        number += 1;
        let absent = key(number * 7 + 1);
        black_box(load.reader.buffered_inputs(&absent, 100).expect("readable")).len()
    });
}

fn early_event() -> Input {
    Input::Event(Event {
        id: EventId::new("early").expect("valid"),
        tenant: TenantId::new("acme").expect("valid"),
        kind: EventType::new("Paid").expect("valid"),
        source: "urn:bench".to_owned(),
        subject: None,
        time: Timestamp::from_millis(1),
        correlation: None,
        causation: None,
        trace: None,
        schema_version: 1,
        data: json!({}),
        user: None,
        attributes: None,
    })
}
