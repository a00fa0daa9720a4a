//! Random changes to a store and to a naive model, with flushes, restarts and recoveries in between;
//! results must be equal.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use orlog_model::{
    Change, CheckpointKey, Commit, DedupeKey, HistoryEntry, InstanceKey, Name, OutboxKey, SagaName,
    Status, StreamPosition, TenantId, Timer, Timestamp, WorkItem,
};
use proptest::prelude::*;
use uuid::Uuid;

use crate::samples::{apply, at, dedupe_key, instance, key, record, small, timer, work};
use crate::{
    IndexedValue, InstanceQuery, Options, Reader, SweepCursor, VariableCondition, Writer, open,
};

/// Dedupe window, short enough that events are purged within a run.
const WINDOW: i64 = 10;

/// Operation on the store. Numbers identify instances, destinations and timers; the model converts them
/// to changes.
#[derive(Debug, Clone)]
enum Step {
    Transition {
        instance: u8,
        destination: u8,
        arm: Option<u8>,
        disarm: Option<u8>,
        complete: bool,
        status: usize,
    },
    Complete {
        destination: u8,
        nth: usize,
    },
    Checkpoint {
        stream: u8,
        sequence: u8,
    },
    Purge,
    PurgeInstance {
        instance: u8,
    },
    Commit {
        later: u8,
    },
    Flush,
    /// Declares or removes the index of the variable `step`; the background thread builds it meanwhile.
    Declare {
        indexed: bool,
    },
    Restart,
    Recover,
}

fn step() -> impl Strategy<Value = Step> {
    let timer = || proptest::option::of(0..6u8);
    let transition = (0..6u8, 0..3u8, timer(), timer(), any::<bool>(), 0..6usize).prop_map(
        |(instance, destination, arm, disarm, complete, status)| Step::Transition {
            instance,
            destination,
            arm,
            disarm,
            complete,
            status,
        },
    );
    prop_oneof![
        10 => transition,
        3 => (0..3u8, 0..4usize).prop_map(|(destination, nth)| Step::Complete { destination, nth }),
        1 => (0..2u8, any::<u8>()).prop_map(|(stream, sequence)| Step::Checkpoint { stream, sequence }),
        1 => Just(Step::Purge),
        3 => (0..6u8).prop_map(|instance| Step::PurgeInstance { instance }),
        6 => (0..4u8).prop_map(|later| Step::Commit { later }),
        2 => Just(Step::Flush),
        1 => any::<bool>().prop_map(|indexed| Step::Declare { indexed }),
        1 => Just(Step::Restart),
        1 => Just(Step::Recover),
    ]
}

/// Naive model of the store: maps in memory.
#[derive(Default)]
struct Model {
    instances: BTreeMap<InstanceKey, (u64, Status)>,
    history: BTreeMap<InstanceKey, Vec<HistoryEntry>>,
    outbox: BTreeMap<OutboxKey, WorkItem>,
    timers: BTreeSet<(Timestamp, InstanceKey, u64)>,
    applied: BTreeSet<(i64, InstanceKey, DedupeKey)>,
    checkpoints: BTreeMap<CheckpointKey, StreamPosition>,
    sequence: u64,
    /// Last committed sequence; later ones are not visible outside.
    visible: u64,
    commits: u64,
    now: Timestamp,
    /// Instances of the group under construction.
    touched: BTreeSet<InstanceKey>,
}

fn name(number: u8) -> InstanceKey {
    key(
        if number.is_multiple_of(2) {
            "acme"
        } else {
            "zeta"
        },
        &format!("o-{number}"),
    )
}

fn destination(number: u8) -> String {
    format!("effect-{number}")
}

impl Model {
    /// Returns the changes of an operation and applies them to the model. Timer tokens are versions, as in
    /// the engine.
    fn changes(&mut self, step: &Step) -> Vec<Change> {
        match step {
            Step::Transition {
                instance: number,
                destination: to,
                arm,
                disarm,
                complete: settle,
                status,
            } => {
                let key = name(*number);
                let before = self.instances.get(&key).copied();
                let version = before.map_or(0, |(version, _)| version) + 1;
                let status = Status::ALL[*status];
                let commit = Commit {
                    before: before.map(|(version, status)| Arc::new(instance(version, status))),
                    instance: Some(Arc::new(instance(version, status))),
                    work: vec![work(&key, &destination(*to), u128::from(version))],
                    arm: arm
                        .map(|due| timer(i64::from(due), version))
                        .into_iter()
                        .collect(),
                    disarm: disarm
                        .and_then(|nth| self.armed(&key, nth))
                        .into_iter()
                        .collect(),
                    settles: if *settle { self.work(*to, 0) } else { None },
                    dedupe_key: Some(dedupe_key(version)),
                    history: Some(record(version)),
                    ..Commit::empty(key, at(0))
                };
                self.touched.insert(commit.key.clone());
                self.transition(&commit);
                vec![apply(commit)]
            }
            Step::Complete { destination, nth } => {
                let outbox_key = self.work(*destination, *nth);
                if let Some(outbox_key) = &outbox_key {
                    self.outbox.remove(outbox_key);
                }
                outbox_key.into_iter().map(Change::Settle).collect()
            }
            Step::Checkpoint { stream, sequence } => vec![self.checkpoint(*stream, *sequence)],
            Step::Purge => {
                let oldest = self.now.as_millis().div_euclid(WINDOW);
                self.applied.retain(|(bucket, _, _)| *bucket >= oldest);
                vec![Change::PurgeDedupe { before: self.now }]
            }
            Step::PurgeInstance { instance } => {
                self.purge_instance(&name(*instance)).into_iter().collect()
            }
            Step::Commit { .. }
            | Step::Flush
            | Step::Declare { .. }
            | Step::Restart
            | Step::Recover => {
                vec![]
            }
        }
    }

    /// Purges an instance as retention does: only an ended instance without other changes in the group.
    fn purge_instance(&mut self, key: &InstanceKey) -> Option<Change> {
        let (version, status) = *self
            .instances
            .get(key)
            .filter(|_| !self.touched.contains(key))?;
        // A timer would outlive the instance; the snapshot of a real instance lists its timers.
        if self.timers.iter().any(|(_, of, _)| of == key) {
            return None;
        }
        if status.is_final() {
            self.instances.remove(key);
            self.history.remove(key);
        }
        Some(Change::PurgeInstance {
            key: key.clone(),
            version,
        })
    }

    fn armed(&self, key: &InstanceKey, nth: u8) -> Option<Timer> {
        let mut of_instance = self.timers.iter().filter(|(_, of, _)| of == key);
        of_instance
            .nth(usize::from(nth))
            .map(|(due, _, token)| timer(due.as_millis(), *token))
    }

    fn work(&self, destination_number: u8, nth: usize) -> Option<OutboxKey> {
        let known = |outbox_key: &&OutboxKey| {
            outbox_key.destination.name == destination(destination_number)
                && outbox_key.sequence <= self.visible
        };
        self.outbox.keys().filter(known).nth(nth).cloned()
    }

    fn transition(&mut self, commit: &Commit) {
        let new = commit.instance.as_ref().unwrap();
        self.instances
            .insert(commit.key.clone(), (new.version, new.status));
        self.history
            .entry(commit.key.clone())
            .or_default()
            .extend(commit.history.clone());
        let bucket = self.now.as_millis().div_euclid(WINDOW);
        self.applied
            .extend(commit.dedupe_key.map(|id| (bucket, commit.key.clone(), id)));
        for item in &commit.work {
            self.sequence += 1;
            self.outbox.insert(
                OutboxKey {
                    destination: item.destination(),
                    sequence: self.sequence,
                },
                item.clone(),
            );
        }
        for timer in &commit.disarm {
            self.timers
                .remove(&(timer.due, commit.key.clone(), timer.token));
        }
        self.timers.extend(
            commit
                .arm
                .iter()
                .map(|timer| (timer.due, commit.key.clone(), timer.token)),
        );
        if let Some(outbox_key) = &commit.settles {
            self.outbox.remove(outbox_key);
        }
    }

    fn checkpoint(&mut self, stream: u8, sequence: u8) -> Change {
        let source = CheckpointKey {
            stream: "events".to_owned(),
            consumer: "*".to_owned(),
        };
        let new = StreamPosition::after(Uuid::from_u128(stream.into()), sequence.into());
        self.checkpoints.insert(source.clone(), new);
        Change::Checkpoint(source, new)
    }

    /// Compares every read of the store with this model.
    fn compare(&self, reader: &Reader) {
        assert_eq!(reader.position(), self.commits);
        assert_eq!(reader.outbox_depth().unwrap(), self.outbox.len() as u64);
        let destinations: BTreeSet<_> = self
            .outbox
            .keys()
            .map(|outbox_key| outbox_key.destination.clone())
            .collect();
        assert_eq!(
            reader.outbox_destinations().unwrap(),
            destinations.iter().cloned().collect::<Vec<_>>()
        );
        let work = destinations
            .iter()
            .flat_map(|destination| reader.outbox(destination, 0, usize::MAX).unwrap());
        assert_eq!(work.collect::<BTreeMap<_, _>>(), self.outbox);
        let timers: Vec<_> = self.timers.iter().map(|(due, _, _)| *due).collect();
        let read = reader.timers_due(Timestamp::MAX, usize::MAX).unwrap();
        assert_eq!(
            read.iter().map(|(_, timer)| timer.due).collect::<Vec<_>>(),
            timers
        );
        let read: BTreeSet<_> = read
            .into_iter()
            .map(|(key, timer)| (timer.due, key, timer.token))
            .collect();
        assert_eq!(read, self.timers);
        assert_eq!(reader.next_timer().unwrap(), timers.first().copied());
        assert_eq!(
            reader
                .checkpoints()
                .unwrap()
                .into_iter()
                .collect::<BTreeMap<_, _>>(),
            self.checkpoints
        );
        for key in (0..6).map(name) {
            self.compare_instance(reader, &key);
        }
        for tenant in ["acme", "zeta", "none"] {
            let tenant = TenantId::new(tenant).unwrap();
            let mut counts = BTreeMap::new();
            for (key, (_, status)) in self
                .instances
                .iter()
                .filter(|(key, _)| key.tenant == tenant)
            {
                *counts.entry((key.saga.clone(), *status)).or_insert(0) += 1;
            }
            assert_eq!(reader.count(&tenant).unwrap(), counts);
            let query = InstanceQuery {
                tenant: tenant.clone(),
                ..InstanceQuery::default()
            };
            assert_eq!(
                reader.instances(&query).unwrap().items.len() as u64,
                counts.values().sum::<u64>()
            );
            for statuses in [vec![Status::Failed], vec![Status::Stuck, Status::Running]] {
                let with_status = self.having(&tenant, |_, status| statuses.contains(&status));
                let query = InstanceQuery {
                    limit: 2,
                    statuses,
                    ..query.clone()
                };
                assert_eq!(all_pages(reader, query), with_status);
            }
            self.compare_variable(reader, &tenant);
            let listed = reader.count_instances(&tenant).unwrap();
            let live = |status| matches!(status, Status::Running | Status::Compensating);
            let versions: Vec<_> = listed
                .longest_unchanged
                .iter()
                .map(|unchanged| unchanged.since.as_millis())
                .collect();
            assert!(versions.is_sorted());
            let unchanged = listed
                .longest_unchanged
                .into_iter()
                .map(|unchanged| unchanged.key)
                .collect();
            assert_eq!(
                (
                    listed.complete,
                    self.having(&tenant, |_, status| live(status))
                ),
                (true, unchanged)
            );
        }
    }

    /// Compares queries by the indexed variable `step`, which is the version.
    fn compare_variable(&self, reader: &Reader, tenant: &TenantId) {
        let (saga, name) = (SagaName::new("order").unwrap(), Name::new("step").unwrap());
        if !reader.is_indexed(&saga, &name).unwrap() {
            return;
        }
        for (lower, upper) in [(2, 2), (2, 4)] {
            let value = |number: u32| Some(IndexedValue::Number(f64::from(number)));
            let condition = VariableCondition {
                name: name.clone(),
                lower: value(lower),
                upper: value(upper),
            };
            let query = InstanceQuery {
                tenant: tenant.clone(),
                saga: Some(saga.clone()),
                variable: Some(condition),
                limit: 2,
                ..InstanceQuery::default()
            };
            let expected = self.having(tenant, |version, _| {
                (u64::from(lower)..=u64::from(upper)).contains(&version)
            });
            assert_eq!(all_pages(reader, query), expected);
        }
    }

    fn having(
        &self,
        tenant: &TenantId,
        is_match: impl Fn(u64, Status) -> bool,
    ) -> BTreeSet<InstanceKey> {
        let of_tenant = self
            .instances
            .iter()
            .filter(|(key, _)| key.tenant == *tenant);
        let matching = of_tenant.filter(|(_, (version, status))| is_match(*version, *status));
        matching.map(|(key, _)| key.clone()).collect()
    }

    /// Compares the ended instances that a sweep finds, after a flush.
    fn compare_ended(&self, reader: &Reader) {
        let page = reader
            .sweep_ended(&SweepCursor::default(), 99, 99, |_, _| Some(at(3)))
            .unwrap();
        let expected = self
            .instances
            .iter()
            .filter(|(_, (version, status))| *version < 3 && status.is_final());
        let expected: BTreeMap<_, _> = expected
            .map(|(key, (version, _))| (key.clone(), *version))
            .collect();
        assert_eq!(page.found.into_iter().collect::<BTreeMap<_, _>>(), expected);
    }

    fn compare_instance(&self, reader: &Reader, key: &InstanceKey) {
        let read = reader
            .instance(key)
            .unwrap()
            .map(|instance| (instance.version, instance.status));
        assert_eq!(read.as_ref(), self.instances.get(key));
        let history = self.history.get(key).cloned().unwrap_or_default();
        assert_eq!(reader.history(key, 0, usize::MAX).unwrap(), history);
        let bucket = self.now.as_millis().div_euclid(WINDOW);
        for record in history {
            let has_key = |bucket| {
                self.applied
                    .contains(&(bucket, key.clone(), dedupe_key(record.version)))
            };
            let (must, may) = (
                has_key(bucket) || has_key(bucket - 1),
                (0..bucket - 1).any(has_key),
            );
            // After a downtime more events are stored, unless they were purged.
            let known = reader
                .is_duplicate(key, dedupe_key(record.version), self.now)
                .unwrap();
            assert!(
                known || !must,
                "{key} {} has no dedupe key",
                record.input_id
            );
            assert!(
                !known || must || may,
                "{key} {} was not applied",
                record.input_id
            );
        }
    }
}

/// Returns the instances of all pages of a query.
fn all_pages(reader: &Reader, mut query: InstanceQuery) -> BTreeSet<InstanceKey> {
    let mut found = BTreeSet::new();
    loop {
        let page = reader.instances(&query).unwrap();
        assert!(
            page.items.into_iter().all(|item| found.insert(item.key)),
            "an instance was found twice"
        );
        query.cursor = page.next;
        if query.cursor.is_none() {
            return found;
        }
    }
}

/// Returns the variable `step` of a state.
fn variables(state: &[u8], names: &[&str]) -> Vec<Option<IndexedValue>> {
    let state: serde_json::Value = serde_json::from_slice(state).unwrap();
    names
        .iter()
        .map(|name| state[*name].as_f64().map(IndexedValue::Number))
        .collect()
}

/// Store that can be closed and reopened.
struct StoreFixture {
    dir: tempfile::TempDir,
    open: Option<(Writer, Reader)>,
}

impl StoreFixture {
    fn options() -> Options {
        let dedupe_window = Duration::from_millis(WINDOW.unsigned_abs());
        // So small that some commits trigger a flush.
        Options {
            dedupe_window,
            memtable_bytes: 6 << 10,
            journal_segment_bytes: 8 << 10,
            variables,
            ..small()
        }
    }

    fn restart(&mut self) {
        self.open = None;
        self.open = Some(open(self.dir.path(), Self::options()).unwrap());
    }

    fn run(&mut self, steps: &[Step]) {
        let (mut model, mut group) = (Model::default(), vec![]);
        for step in steps {
            group.extend(model.changes(step));
            let (writer, reader) = self.open.as_mut().unwrap();
            match step {
                Step::Commit { later } => {
                    model.commits += 1;
                    model.visible = model.sequence;
                    model.touched.clear();
                    assert_eq!(
                        writer
                            .commit(&std::mem::take(&mut group), model.now)
                            .unwrap(),
                        model.commits
                    );
                    model.compare(reader);
                    model.now = model
                        .now
                        .saturating_add(Duration::from_millis((*later).into()));
                }
                Step::Flush => {
                    writer.flush().unwrap();
                    if group.is_empty() {
                        model.compare_ended(reader);
                    }
                }
                Step::Declare { indexed } => {
                    let saga = SagaName::new("order").unwrap();
                    let names = indexed
                        .then(|| Name::new("step").unwrap())
                        .into_iter()
                        .collect();
                    reader.declare_indexes(&[(saga, names)]).unwrap();
                }
                Step::Recover => writer.recover().unwrap(),
                Step::Restart => self.restart(),
                _ => {}
            }
            if group.is_empty() {
                model.compare(&self.open.as_ref().unwrap().1);
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn store_matches_a_naive_model(steps in proptest::collection::vec(step(), 1..120)) {
        let mut fixture = StoreFixture { dir: tempfile::tempdir().unwrap(), open: None };
        fixture.restart();
        fixture.run(&steps);
    }
}
