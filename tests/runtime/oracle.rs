//! Oracle: random operations on engine and store, and on a naive model; results and states must be
//! equal.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use fastrand::Rng;
use orlog_engine::{BufferedInputRef, Decision, DecisionContext, decide};
use orlog_model::{
    Change, Commit, ControlAction, ControlRequest, Event, EventId, EventType, Failure, Input,
    InstanceKey, OutboxKey, TimerFired, Timestamp, WorkItem, WorkOutcome, WorkResult,
};
use orlog_program::Program;
use orlog_store::{Options, Reader, Writer};
use orlog_testkit::oracle::{Oracle, OracleOp, OracleOutcome, OracleResult};
use orlog_testkit::runtime::{seed, tenant};
use orlog_testkit::sagas::{order, order_key, order_placed};
use serde_json::{Value, json};
use uuid::Uuid;

const TIMEOUT: Duration = Duration::from_mins(30);
const INSTANCES: usize = 6;
/// Results that must occur at least once before a run may end.
const MUST: [&str; 26] = [
    "OrderPlaced applied",
    "StockReserved applied",
    "StockRejected applied",
    "StockReleased applied",
    "Accepted applied",
    "Succeeded applied",
    "Failed applied",
    "TimedOut applied",
    "timer applied",
    "timer ignored",
    "cancel applied",
    "pause applied",
    "resume applied",
    "retry applied",
    "cancel rejected",
    "event duplicate",
    "event buffered",
    "outcome buffered",
    "control duplicate",
    "fact settled",
    "stuck",
    "late success",
    "early event applied",
    "early event dropped",
    "forgotten",
    "started again",
];

/// Row of the outbox in the form of the oracle.
type Row = (String, String, usize);

/// Engine and store without running actors.
struct EngineAndStore {
    program: Arc<dyn Program>,
    /// `None` only while it is reopened.
    store: Option<(Writer, Reader)>,
    now: Timestamp,
    /// Oracle rows by work id.
    known: BTreeMap<Uuid, Row>,
    requests: BTreeMap<(String, String), usize>,
}

impl EngineAndStore {
    fn open(dir: &Path, now: Timestamp) -> Self {
        let mut system = Self {
            program: order(TIMEOUT),
            store: None,
            now,
            known: BTreeMap::new(),
            requests: BTreeMap::new(),
        };
        system.reopen(dir);
        system
    }

    /// Restarts from durable state.
    fn reopen(&mut self, dir: &Path) {
        self.store = None;
        let options = Options {
            memtable_bytes: 16 << 10,
            journal_segment_bytes: 64 << 10,
            max_bytes: 1 << 28,
            ..Options::default()
        };
        self.store = Some(orlog_store::open(dir, options).expect("the store opens"));
    }

    fn reader(&self) -> &Reader {
        &self.store.as_ref().expect("it is open").1
    }

    fn commit(&mut self, change: Change) {
        let now = self.now;
        self.store
            .as_mut()
            .expect("it is open")
            .0
            .commit(&[change], now)
            .expect("the store takes it");
    }

    fn take(&mut self, key: &InstanceKey, input: &Input) -> OracleResult {
        let before = self.reader().instance(key).expect("the store can be read");
        let can_repeat = before.is_some() && matches!(input, Input::Event(_) | Input::Control(_));
        if can_repeat
            && self
                .reader()
                .is_duplicate(key, input.identity(), self.now)
                .expect("the store can be read")
        {
            return OracleResult::Duplicate;
        }
        let result = self.decide(key, input, Vec::new());
        let paused = self
            .reader()
            .instance(key)
            .expect("the store can be read")
            .is_some_and(|instance| instance.paused);
        let exists = self
            .reader()
            .instance(key)
            .expect("the store can be read")
            .is_some();
        if before.is_none_or(|instance| instance.paused) && exists && !paused {
            for (number, buffered) in self
                .reader()
                .buffered_inputs(key, usize::MAX)
                .expect("the store can be read")
            {
                let buffered = buffered.into_inner();
                self.decide(key, &buffered, vec![number]);
            }
        }
        result
    }

    /// Returns the early inputs of an instance that does not exist.
    fn early(&self, key: &InstanceKey) -> Vec<BufferedInputRef> {
        let buffered = self
            .reader()
            .buffered_inputs(key, usize::MAX)
            .expect("the store can be read");
        let buffered_ref = |(number, input)| match input {
            Input::Early(early) => Some(BufferedInputRef {
                number,
                key: early.input.identity(),
                expires_at: early.expires_at,
            }),
            _ => None,
        };
        buffered.into_iter().filter_map(buffered_ref).collect()
    }

    fn decide(&mut self, key: &InstanceKey, input: &Input, release: Vec<u64>) -> OracleResult {
        let instance = self.reader().instance(key).expect("the store can be read");
        let early = if instance.is_none() {
            self.early(key)
        } else {
            Vec::new()
        };
        let program = self.program.as_ref();
        let subject = DecisionContext {
            key,
            instance: instance.as_ref(),
            program,
            now: self.now,
            node: "test",
            buffered: &early,
            history_payload_bytes: 2048,
        };
        let (result, commit) = match decide(&subject, input) {
            Decision::Commit(commit) if commit.buffer.is_some() => {
                (OracleResult::Buffered, Some(*commit))
            }
            Decision::Commit(commit) => {
                assert!(commit.dead_letter.is_none(), "{:?}", commit.dead_letter);
                (OracleResult::Applied, Some(*commit))
            }
            Decision::Ignore { cleanup: clear, .. } => {
                (OracleResult::Ignored, clear.map(|commit| *commit))
            }
            Decision::Reject(_) => (OracleResult::Rejected, None),
        };
        let nothing = || (!release.is_empty()).then(|| Commit::empty(key.clone(), input.at()));
        if let Some(mut commit) = commit.or_else(nothing) {
            if !release.is_empty() && matches!(input, Input::Event(_)) {
                commit.dedupe_key = input.dedupe_key();
            }
            commit.unbuffer.extend(release);
            self.commit(Change::Apply(Box::new(commit)));
        }
        result
    }

    /// Returns the rows of the outbox, with their oracle form.
    fn outbox(&mut self) -> Vec<(OutboxKey, WorkItem, Row)> {
        let destinations = self
            .reader()
            .outbox_destinations()
            .expect("the store can be read");
        let rows: Vec<_> = destinations
            .iter()
            .flat_map(|destination| {
                self.reader()
                    .outbox(destination, 0, usize::MAX)
                    .expect("the store can be read")
            })
            .collect();
        rows.into_iter()
            .map(|(key, item)| {
                let row = self.name(&item);
                (key, item, row)
            })
            .collect()
    }

    fn name(&mut self, item: &WorkItem) -> Row {
        let tag = item
            .work
            .tag()
            .map_or_else(|| item.work.label().into(), ToString::to_string);
        let of = item.instance.correlation.to_string();
        if !self.known.contains_key(&item.id) {
            let requests = self.requests.entry((of.clone(), tag.clone())).or_default();
            *requests += 1;
            self.known.insert(item.id, (of, tag, *requests));
        }
        self.known[&item.id].clone()
    }
}

/// Operation applied to both.
#[derive(Clone)]
struct PairedOperation {
    key: InstanceKey,
    input: Input,
    op: OracleOp,
}

struct Run {
    rng: Rng,
    system: EngineAndStore,
    oracle: Oracle,
    number: usize,
    previous: Vec<PairedOperation>,
    seen: BTreeSet<String>,
    forgotten: BTreeSet<InstanceKey>,
    /// Numbers of the timers by token.
    timer_numbers: BTreeMap<u64, u64>,
    /// Number of the last timer of each instance.
    last_timers: BTreeMap<InstanceKey, u64>,
}

impl Run {
    fn key(&mut self) -> InstanceKey {
        // New instances replace old ones, so that one can always start.
        order_key(&tenant(), self.number / 20 + self.rng.usize(..INSTANCES))
    }

    fn event(&mut self) -> PairedOperation {
        let key = self.key();
        let kinds = [
            "OrderPlaced",
            "OrderPlaced",
            "StockReserved",
            "StockReserved",
            "StockReleased",
            "StockRejected",
        ];
        let kind = kinds[self.rng.usize(..kinds.len())];
        let id = format!("e{}", self.number);
        let placed = order_placed(&key, &json!({}), self.system.now);
        let event = Event {
            id: EventId::new(id.as_str()).expect("a short word"),
            kind: EventType::new(kind).expect("a short word"),
            ..placed
        };
        PairedOperation {
            key,
            input: Input::Event(event),
            op: OracleOp::Event(kind, id),
        }
    }

    fn control(&mut self) -> PairedOperation {
        let key = self.key();
        let (label, action) = match self.rng.u8(..8) {
            0..=2 => (
                "cancel",
                ControlAction::Cancel {
                    reason: "a test".to_owned(),
                },
            ),
            3 => ("pause", ControlAction::Pause),
            4 | 5 => ("resume", ControlAction::Resume),
            _ => ("retry", ControlAction::Retry),
        };
        let id = format!("c{}", self.number);
        let at = self.system.now;
        let control = ControlRequest {
            id: EventId::new(id.as_str()).expect("a short word"),
            action,
            expected_version: None,
            user: None,
            reason: None,
            trace: None,
            at,
            wait_token: None,
        };
        PairedOperation {
            key,
            input: Input::Control(control),
            op: OracleOp::Control(label, id),
        }
    }

    fn outcome(&mut self) -> Option<PairedOperation> {
        let rows: Vec<_> = self
            .system
            .outbox()
            .into_iter()
            .filter(|(_, item, _)| item.work.tag().is_some())
            .collect();
        if rows.is_empty() {
            return None;
        }
        let (outbox, item, (_, tag, nth)) = rows[self.rng.usize(..rows.len())].clone();
        let is_effect = item.work.kind() == orlog_model::WorkKind::Effect;
        let failure = Failure {
            code: "no".to_owned(),
            message: "no".to_owned(),
        };
        let (work_outcome, result) = match self.rng.u8(..10) {
            0 => (WorkOutcome::TimedOut { failure }, OracleOutcome::TimedOut),
            1 | 2 => (
                WorkOutcome::Failed {
                    event: None,
                    failure,
                    payload: Value::Null,
                },
                OracleOutcome::Failed,
            ),
            _ if is_effect => (
                WorkOutcome::succeeded(None, Value::Null),
                OracleOutcome::Succeeded,
            ),
            _ => (WorkOutcome::Accepted, OracleOutcome::Accepted),
        };
        let at = self.system.now;
        let outcome = WorkResult {
            requested_at: item.created_at,
            work_id: item.id,
            outbox_key: outbox,
            outcome: work_outcome,
            attempts: 1,
            at,
            facts: Vec::new(),
            publishes: false,
            trace: None,
            attempt_log: None,
        };
        Some(PairedOperation {
            key: item.instance,
            input: Input::WorkResult(outcome),
            op: OracleOp::Outcome(tag, nth, result),
        })
    }

    /// Repeats an earlier operation; a work result sometimes has the opposite outcome.
    fn repetition(&mut self) -> Option<PairedOperation> {
        let recent = self.previous.len().saturating_sub(60);
        let mut both = self.previous.get(recent + self.rng.usize(..60)).cloned()?;
        if let (Input::WorkResult(outcome), OracleOp::Outcome(_, _, result)) =
            (&mut both.input, &mut both.op)
            && outcome.outbox_key.destination.kind == orlog_model::WorkKind::Effect
        {
            outcome.outcome = WorkOutcome::succeeded(None, Value::Null);
            *result = OracleOutcome::Succeeded;
        }
        Some(both)
    }

    /// Gives the armed timer the number of the timer that the oracle has armed.
    fn number_timers(&mut self, key: &InstanceKey) {
        let instance = self
            .system
            .reader()
            .instance(key)
            .expect("the store can be read");
        let saga = self.oracle.sagas.get(key.correlation.as_str());
        let armed = saga.and_then(|saga| saga.timer).unwrap_or(u64::MAX);

        for timer in instance.iter().flat_map(|instance| &instance.timers) {
            if self.timer_numbers.contains_key(&timer.token) {
                continue;
            }
            let last = self.last_timers.insert(key.clone(), armed);
            assert!(
                last.is_none_or(|last| last < armed),
                "operation {}: {key} has armed a timer that the oracle has not",
                self.number
            );
            self.timer_numbers.insert(timer.token, armed);
        }
    }

    fn timers(&self) -> Vec<PairedOperation> {
        let due = self
            .system
            .reader()
            .timers_due(self.system.now, usize::MAX)
            .expect("the store can be read");
        due.into_iter()
            .map(|(key, row)| {
                let fired = TimerFired {
                    name: row.name,
                    token: row.token,
                    due: row.due,
                };
                let number = self.timer_numbers.get(&row.token).copied();
                PairedOperation {
                    key,
                    input: Input::Timer(fired),
                    op: OracleOp::Timer(number.unwrap_or_default()),
                }
            })
            .collect()
    }

    /// Completes the publication of facts, and accepts commands that are answered by an event.
    fn complete_one(&mut self) {
        let needs_no_result = |item: &WorkItem| {
            item.work
                .tag()
                .is_none_or(|tag| tag.as_str().ends_with("reserve"))
        };
        let rows: Vec<_> = self
            .system
            .outbox()
            .into_iter()
            .filter(|(_, item, _)| needs_no_result(item))
            .collect();
        if rows.is_empty() {
            return;
        }
        let (key, _, row) = rows[self.rng.usize(..rows.len())].clone();
        self.system.commit(Change::Settle(key));
        self.oracle.complete(&row);
        self.seen.insert("fact settled".to_owned());
    }

    fn give(&mut self, both: PairedOperation) {
        let of = both.key.correlation.to_string();
        let late = matches!(&both.op, OracleOp::Outcome(tag, _, OracleOutcome::Succeeded) if !tag.starts_with("compensate:"))
            && self
                .oracle
                .sagas
                .get(&of)
                .is_some_and(|saga| saga.status != "running");
        let early = self.oracle.early.get(&of).map_or(0, Vec::len);
        self.oracle.now = self.system.now.as_millis();
        let actual = self.system.take(&both.key, &both.input);
        let foretold = self.oracle.take(&of, &both.op);
        self.number_timers(&both.key);
        assert_eq!(
            actual, foretold,
            "operation {}: {:?} for {of}",
            self.number, both.op
        );
        let label = match &both.op {
            OracleOp::Event(kind, _) if actual == OracleResult::Applied => (*kind).to_owned(),
            OracleOp::Control(kind, _)
                if matches!(actual, OracleResult::Applied | OracleResult::Rejected) =>
            {
                (*kind).to_owned()
            }
            OracleOp::Outcome(_, _, result) if actual == OracleResult::Applied => {
                format!("{result:?}")
            }
            OracleOp::Event(..) => "event".to_owned(),
            OracleOp::Control(..) => "control".to_owned(),
            OracleOp::Outcome(..) => "outcome".to_owned(),
            OracleOp::Timer(_) => "timer".to_owned(),
        };
        self.seen
            .insert(format!("{label} {}", format!("{actual:?}").to_lowercase()));
        if late && actual == OracleResult::Applied {
            self.seen.insert("late success".to_owned());
        }
        if early > 0 && actual == OracleResult::Applied {
            let suffix = if self.oracle.sagas.contains_key(&of) {
                "applied"
            } else {
                "dropped"
            };
            self.seen.insert(format!("early event {suffix}"));
        }
        self.previous.push(both);
    }

    fn step(&mut self) {
        match self.rng.u8(..20) {
            0..=4 => {
                let event = self.event();
                self.give(event);
            }
            5..=9 => {
                if let Some(outcome) = self.outcome() {
                    self.give(outcome);
                }
            }
            10..=14 => {
                let control = self.control();
                self.give(control);
            }
            15 | 16 => {
                if let Some(repetition) = self.repetition() {
                    self.give(repetition);
                }
            }
            17 => {
                let minutes = self.rng.u64(..25);
                self.pass(Duration::from_mins(minutes));
            }
            18 if self.rng.u8(..4) == 0 => {
                self.pass(Duration::from_hours(1));
                self.forget();
            }
            _ => self.complete_one(),
        }
        self.number += 1;
    }

    fn pass(&mut self, time: Duration) {
        self.system.now = self.system.now.saturating_add(time);
        self.timers().into_iter().for_each(|timer| self.give(timer));
    }

    /// Requests a purge of all instances; only ended ones are purged.
    fn forget(&mut self) {
        let first = self.number / 20;
        for key in (first..first + INSTANCES).map(|number| order_key(&tenant(), number)) {
            let reader = self.system.reader();
            let stored = reader.instance(&key).expect("the store can be read");
            let Some(version) = stored.map(|instance| instance.version) else {
                continue;
            };
            self.system.commit(Change::PurgeInstance {
                key: key.clone(),
                version,
            });
            if self.oracle.purge(key.correlation.as_str()) {
                assert_eq!(
                    self.system
                        .reader()
                        .history(&key, 0, 9)
                        .expect("the store can be read"),
                    []
                );
                self.seen.insert("forgotten".to_owned());
                // No instance is purged while its inputs could be redelivered.
                self.previous.retain(|both| both.key != key);
                self.forgotten.insert(key);
            }
        }
    }

    #[track_caller]
    fn compare(&mut self) {
        let outbox: BTreeSet<Row> = self
            .system
            .outbox()
            .into_iter()
            .map(|(_, _, row)| row)
            .collect();
        assert_eq!(
            outbox, self.oracle.outbox,
            "the outbox after operation {}",
            self.number
        );
        let rows = self
            .system
            .reader()
            .timers_due(Timestamp::MAX, usize::MAX)
            .expect("the store can be read")
            .len();
        let armed = self
            .oracle
            .sagas
            .values()
            .filter(|saga| saga.timer_row)
            .count()
            + self.oracle.early.len();
        assert_eq!(rows, armed, "timers after operation {}", self.number);
        // Other instances can only change by a repetition, which is rare.
        let first = (self.number / 20).saturating_sub(INSTANCES);
        for number in first..first + 3 * INSTANCES {
            let key = order_key(&tenant(), number);
            let of = key.correlation.as_str();
            let reader = self.system.reader();
            let Some(saga) = self.oracle.sagas.get(of) else {
                assert_eq!(
                    reader.instance(&key).expect("the store can be read"),
                    None,
                    "{of} is not forgotten"
                );
                continue;
            };
            if self.forgotten.contains(&key) {
                self.seen.insert("started again".to_owned());
            }
            let instance = reader
                .instance(&key)
                .expect("the store can be read")
                .unwrap_or_else(|| panic!("{of} was lost"));
            let actual = (
                instance.status.as_str(),
                instance.paused,
                instance.version,
                instance.timers.len(),
            );
            let foretold = (
                saga.status,
                saga.paused,
                saga.version,
                usize::from(saga.timer.is_some()),
            );
            assert_eq!(actual, foretold, "{of} after operation {}", self.number);
            let buffered = reader
                .buffered_inputs(&key, usize::MAX)
                .expect("the store can be read")
                .len();
            assert_eq!(
                buffered,
                saga.buffered.len(),
                "kept for {of} after operation {}",
                self.number
            );
            if saga.status == "stuck" {
                self.seen.insert("stuck".to_owned());
            }
        }
    }

    /// Every version of every instance has a history entry, except changes of a flag only.
    fn compare_histories(&self) {
        for (of, saga) in &self.oracle.sagas {
            let key = InstanceKey {
                correlation: of.parse().expect("a short word"),
                ..order_key(&tenant(), 0)
            };
            let history = self
                .system
                .reader()
                .history(&key, 0, usize::MAX)
                .expect("the store can be read");
            let versions = history.iter().map(|record| record.version);
            assert!(
                versions.eq(1..=saga.version),
                "the history of {of} has gaps"
            );
        }
    }
}

fn run(seed: u64, operations: usize) {
    println!("seed {seed}");
    let home = tempfile::tempdir().expect("a directory can be created");
    let mut run = Run {
        rng: Rng::with_seed(seed),
        system: EngineAndStore::open(home.path(), Timestamp::from_millis(1_700_000_000_000)),
        oracle: Oracle::default(),
        number: 0,
        previous: Vec::new(),
        seen: BTreeSet::new(),
        forgotten: BTreeSet::new(),
        timer_numbers: BTreeMap::new(),
        last_timers: BTreeMap::new(),
    };
    let missing = |run: &Run| {
        MUST.into_iter()
            .filter(|must| !run.seen.contains(*must))
            .collect::<Vec<_>>()
    };
    while run.number < operations || !missing(&run).is_empty() {
        run.step();
        run.compare();
        if run.rng.u16(..200) == 0 {
            run.system.reopen(home.path());
            run.compare();
        }
        assert!(
            run.number < operations * 20,
            "never came about: {:?}; seen {:?}",
            missing(&run),
            run.seen
        );
    }
    run.compare_histories();
    println!(
        "{} operations, {} instances, seen {:?}",
        run.number,
        run.oracle.sagas.len(),
        run.seen
    );
}

/// Requirements: R8.
#[test]
fn engine_and_store_match_the_oracle() {
    run(seed(1), 1500);
}

#[test]
#[ignore = "long; make stress"]
fn engine_and_store_match_the_oracle_long() {
    let first = seed(1000);
    (first..first + 100).for_each(|seed| run(seed, 5000));
}
