//! Transitions of batches: phases, speed, canary, pause, stop, failures, and shards.

use std::collections::BTreeMap;
use std::ops::Range;

use orlog_model::{
    CorrelationId, Event, EventId, EventType, Failure, InstanceKey, SLOTS, SagaName, SlotAssigner,
    Status, TenantId, TimerChange, Timestamp, Transition, Work, WorkOutcome,
};
use orlog_program::{Context, Program, ProgramInput, ProgramOutput, SagaState as _};
use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;

/// A batch, and the instances that its pages find.
struct Harness {
    program: NativeProgram<BatchSaga>,
    key: InstanceKey,
    now: i64,
    version: u64,
    state: Option<Vec<u8>>,
    status: Status,
    timer: Option<Timestamp>,
    work: Option<Work>,
    /// Number of instructions by instance, in key order.
    instances: BTreeMap<String, u32>,
    /// Time of each page of instructions, and its length.
    applied: Vec<(i64, usize)>,
}

impl Harness {
    fn new(instances: usize) -> Self {
        let key = InstanceKey {
            tenant: TenantId::default(),
            saga: SagaName::new(SAGA).unwrap(),
            correlation: CorrelationId::new("b").unwrap(),
        };
        Self {
            program: program(),
            key,
            now: 1_000_000,
            version: 0,
            state: None,
            status: Status::Running,
            timer: None,
            work: None,
            instances: (0..instances)
                .map(|index| (format!("i-{index:05}"), 0))
                .collect(),
            applied: Vec::new(),
        }
    }

    fn create(instances: usize, spec: &Value) -> Self {
        let mut this = Self::new(instances);
        assert!(this.signal(CREATE, full(spec)), "the batch is created");
        this
    }

    fn batch(&self) -> BatchState {
        BatchState::decode(self.state.as_ref().unwrap()).unwrap()
    }

    fn signal(&mut self, kind: &str, data: Value) -> bool {
        let event = Event {
            id: EventId::new("e").unwrap(),
            tenant: TenantId::default(),
            kind: EventType::new(kind).unwrap(),
            source: "orlog:signal".to_owned(),
            subject: None,
            time: Timestamp::from_millis(self.now),
            correlation: None,
            causation: None,
            trace: None,
            schema_version: 1,
            data,
            user: None,
            attributes: None,
        };
        self.apply(&ProgramInput::Event(&event))
    }

    /// Applies an input; returns whether it changed the batch.
    fn apply(&mut self, input: &ProgramInput<'_>) -> bool {
        let now = Timestamp::from_millis(self.now);
        let context = Context {
            key: &self.key,
            version: self.version + 1,
            now,
            pending_work: &[],
            attempts: 0,
        };
        let output = self
            .program
            .apply(self.state.as_deref(), input, &context)
            .unwrap();
        let ProgramOutput::Applied(transition) = output else {
            return false;
        };
        let Transition {
            state,
            status,
            work,
            timers,
            waits,
            ..
        } = *transition;
        assert_eq!(
            waits.is_empty(),
            status.is_final(),
            "an instance waits until its end"
        );
        (self.state, self.status, self.version) = (Some(state), status, self.version + 1);
        self.timer = match &timers[..] {
            [TimerChange::Arm { due, .. }] => Some(*due),
            _ => None,
        };
        for work in work {
            assert!(
                self.work.replace(work).is_none(),
                "at most one page is in flight"
            );
        }
        assert!(
            self.work.is_none() || self.timer.is_none(),
            "a page or a timer"
        );
        true
    }

    fn request(work: &Work) -> PageRequest {
        let data = match work {
            Work::Effect(effect) => &effect.payload,
            Work::StartChild(start) => &start.data,
            other => panic!("unexpected work {other:?}"),
        };
        serde_json::from_value(data.clone()).unwrap()
    }

    /// Executes a page of two selected instances at most, and counts at most three at a time.
    fn execute(&mut self, work: &Work) -> PageOutcome {
        let within = self.shard(work);
        let after = |cursor: Option<String>| cursor.unwrap_or_default();
        let is_here = |id: &str| {
            within
                .as_ref()
                .is_none_or(|slots| slots.contains(&slot(id)))
        };
        let ids = self.instances.keys().filter(|id| is_here(id));
        match Self::request(work).task {
            PageTask::Count { cursor } => {
                let found: Vec<_> = ids
                    .filter(|id| **id > after(cursor.clone()))
                    .take(3)
                    .cloned()
                    .collect();
                let cursor = found.get(2).cloned();
                PageOutcome {
                    matched: found.len() as u64,
                    cursor,
                    ..PageOutcome::default()
                }
            }
            PageTask::Select { cursor, limit } => {
                let found: Vec<_> = ids
                    .filter(|id| **id > after(cursor.clone()))
                    .take(limit as usize)
                    .collect();
                let cursor =
                    (found.len() == limit as usize).then(|| (*found.last().unwrap()).clone());
                let instances = found
                    .iter()
                    .map(|id| CorrelationId::new(id.as_str()).unwrap())
                    .collect();
                PageOutcome {
                    cursor,
                    instances,
                    ..PageOutcome::default()
                }
            }
            PageTask::Apply { instances, .. } => {
                self.applied.push((self.now, instances.len()));
                for id in &instances {
                    *self.instances.get_mut(id.as_str()).unwrap() += 1;
                }
                PageOutcome {
                    done: instances.len() as u64,
                    ..PageOutcome::default()
                }
            }
        }
    }

    /// Returns the slots of the shard that executes a page.
    fn shard(&self, work: &Work) -> Option<Range<u16>> {
        let shards = self.batch().spec.shards;
        let own = match work {
            Work::StartChild(start) => InstanceKey {
                saga: start.saga.clone(),
                correlation: start.correlation.clone(),
                ..self.key.clone()
            },
            _ => self.key.clone(),
        };
        let slot = slots().slot_of(&own).0;
        shards.into_iter().find(|slots| slots.contains(&slot))
    }

    fn end_page(&mut self, outcome: &WorkOutcome) {
        assert!(self.apply(&ProgramInput::WorkResult {
            tag: "page",
            outcome
        }));
    }

    /// Executes the page in flight, or fires the timer; returns whether there was one.
    fn step(&mut self) -> bool {
        if let Some(work) = self.work.take() {
            let payload = json!(self.execute(&work));
            self.end_page(&WorkOutcome::succeeded(None, payload));
        } else if let Some(due) = self.timer {
            self.now = due.as_millis();
            assert!(self.apply(&ProgramInput::Timer { name: "next" }));
        } else {
            return false;
        }
        true
    }

    fn run(&mut self) {
        while self.step() {}
    }

    fn each_once(&self) -> bool {
        self.instances.values().all(|count| *count == 1)
    }
}

fn slots() -> SlotAssigner {
    SlotAssigner::with_key_sharded([TenantId::default()])
}

/// Returns the slot of an instance of `order`.
fn slot(id: &str) -> u16 {
    let key = InstanceKey {
        tenant: TenantId::default(),
        saga: SagaName::new("order").unwrap(),
        correlation: CorrelationId::new(id).unwrap(),
    };
    slots().slot_of(&key).0
}

fn full(spec: &Value) -> Value {
    let mut all =
        json!({ "selection": { "saga": "order" }, "action": { "type": "retry" }, "rate": 10 });
    all.as_object_mut()
        .unwrap()
        .extend(spec.as_object().unwrap().clone());
    all
}

#[test]
fn counts_then_instructs_each_instance_once_at_the_rate() {
    let mut batch = Harness::create(25, &json!({}));
    let started = batch.now;
    batch.run();
    let state = batch.batch();
    assert_eq!(
        (state.status, state.matched, state.done),
        (BatchStatus::Completed, 25, 25)
    );
    assert_eq!(batch.status, Status::Completed);
    assert!(batch.each_once(), "{:?}", batch.instances);
    let pages: Vec<_> = batch
        .applied
        .iter()
        .map(|(at, count)| (at - started, *count))
        .collect();
    assert_eq!(pages, [(0, 10), (1_000, 10), (2_000, 5)]);
}

#[test]
fn fast_batch_has_short_pages() {
    let mut batch = Harness::create(250, &json!({ "rate": 1_000 }));
    let started = batch.now;
    batch.run();
    let pages: Vec<_> = batch
        .applied
        .iter()
        .map(|(at, count)| (at - started, *count))
        .collect();
    assert_eq!(pages, [(0, 100), (100, 100), (200, 50)]);
}

#[test]
fn slow_pages_are_not_delayed_further() {
    let mut batch = Harness::create(20, &json!({}));
    while batch.applied.is_empty() {
        assert!(batch.step());
    }
    // The second page was selected; the instructions of the first took two seconds.
    assert!(batch.work.is_none() && batch.timer.is_some());
    batch.now += 2_000;
    assert!(batch.apply(&ProgramInput::Timer { name: "next" }));
    assert!(matches!(
        Harness::request(batch.work.as_ref().unwrap()).task,
        PageTask::Select { .. }
    ));
}

#[test]
fn canary_waits_for_an_approval() {
    let mut batch = Harness::create(12, &json!({ "canary": 3 }));
    batch.run();
    let state = batch.batch();
    assert_eq!(
        (state.status, state.done, batch.status),
        (BatchStatus::AwaitingApproval, 3, Status::Running)
    );
    let canary: Vec<_> = state.canary.iter().map(CorrelationId::as_str).collect();
    assert_eq!(canary, ["i-00000", "i-00001", "i-00002"]);
    assert!(!batch.signal(PAUSE, Value::Null), "it waits already");
    assert!(batch.signal(RESUME, Value::Null));
    batch.run();
    assert_eq!(
        (batch.batch().status, batch.batch().canary.len()),
        (BatchStatus::Completed, 3)
    );
    assert!(batch.each_once(), "{:?}", batch.instances);
}

#[test]
fn canary_of_all_instances_needs_no_approval() {
    let mut batch = Harness::create(3, &json!({ "canary": 5 }));
    batch.run();
    assert_eq!(
        (batch.batch().status, batch.batch().done),
        (BatchStatus::Completed, 3)
    );
}

#[test]
fn selection_of_a_paused_batch_is_dropped_and_repeated() {
    let mut batch = Harness::create(5, &json!({}));
    while !matches!(
        batch.work.as_ref().map(|work| Harness::request(work).task),
        Some(PageTask::Select { .. })
    ) {
        assert!(batch.step());
    }
    assert!(batch.signal(PAUSE, Value::Null));
    assert!(!batch.signal(PAUSE, Value::Null));
    batch.run();
    assert_eq!(
        (batch.batch().status, batch.batch().processed()),
        (BatchStatus::Paused, 0)
    );
    assert!(batch.signal(RESUME, Value::Null));
    assert!(!batch.signal(RESUME, Value::Null));
    batch.run();
    assert!(batch.each_once(), "{:?}", batch.instances);
    assert!(matches!(
        batch.program.apply(
            batch.state.as_deref(),
            &ProgramInput::Retry,
            &Context {
                key: &batch.key,
                version: 1,
                now: Timestamp::from_millis(0),
                pending_work: &[],
                attempts: 0
            }
        ),
        Ok(ProgramOutput::Rejected(_))
    ));
}

#[test]
fn stop_records_the_page_in_flight_and_ends() {
    let mut batch = Harness::create(30, &json!({}));
    while !matches!(
        batch.work.as_ref().map(|work| Harness::request(work).task),
        Some(PageTask::Apply { .. })
    ) {
        assert!(batch.step());
    }
    assert!(batch.signal(STOP, Value::Null));
    assert_eq!(
        (batch.batch().status, batch.status),
        (BatchStatus::Stopping, Status::Running)
    );
    assert!(!batch.signal(RESUME, Value::Null) && !batch.signal(STOP, Value::Null));
    batch.run();
    assert_eq!(
        (batch.batch().status, batch.batch().done),
        (BatchStatus::Stopped, 10)
    );
    assert_eq!(batch.status, Status::Cancelled);
    assert!(!batch.signal(PAUSE, Value::Null));
}

#[test]
fn failed_page_ends_the_batch_with_its_reason() {
    let mut batch = Harness::create(3, &json!({}));
    batch.work.take();
    let failure = Failure {
        code: "x".to_owned(),
        message: "the filter is not Boolean".to_owned(),
    };
    batch.end_page(&WorkOutcome::Failed {
        event: None,
        failure,
        payload: Value::Null,
    });
    assert_eq!(
        (batch.batch().status, batch.status),
        (BatchStatus::Failed, Status::Failed)
    );
    assert_eq!(
        batch.batch().error.as_deref(),
        Some("the filter is not Boolean")
    );
}

#[test]
fn repeated_creation_is_ignored_and_a_different_one_rejected() {
    let mut batch = Harness::create(3, &json!({}));
    assert!(!batch.signal(CREATE, full(&json!({}))));
    let other = full(&json!({ "rate": 11 }));
    assert!(!batch.signal(CREATE, other));
    assert_eq!(batch.batch().spec.rate, 10);
}

#[test]
fn pages_of_other_shards_are_children_there() {
    let shards: Vec<Range<u16>> = (0..4)
        .map(|index| index * SLOTS / 4..(index + 1) * SLOTS / 4)
        .collect();
    let mut batch = Harness::create(40, &json!({ "shards": shards, "rate": 1_000 }));
    let (mut own, mut others) = (0, 0);
    loop {
        match &batch.work {
            Some(Work::Effect(_)) => own += 1,
            Some(Work::StartChild(start)) => {
                assert_eq!(start.saga.as_str(), PAGE_SAGA);
                others += 1;
            }
            Some(_) | None => {}
        }
        if !batch.step() {
            break;
        }
    }
    assert!(
        own > 0 && others > 3 * 2,
        "{own} in the own shard, {others} in others"
    );
    assert_eq!(
        (batch.batch().status, batch.batch().matched),
        (BatchStatus::Completed, 40)
    );
    assert!(batch.each_once(), "{:?}", batch.instances);
}

#[test]
fn page_of_another_shard_returns_the_outcome_of_its_effect() {
    let program = page_program();
    let key = InstanceKey {
        tenant: TenantId::default(),
        saga: SagaName::new(PAGE_SAGA).unwrap(),
        correlation: CorrelationId::new("b.1.0").unwrap(),
    };
    let context = Context {
        key: &key,
        version: 1,
        now: Timestamp::from_millis(0),
        pending_work: &[],
        attempts: 0,
    };
    let request =
        json!({ "selection": { "saga": "order" }, "task": { "type": "count", "cursor": null } });
    let event = Event {
        id: EventId::new("e").unwrap(),
        tenant: TenantId::default(),
        kind: program.start_event(None).unwrap().clone(),
        source: "orlog:x".to_owned(),
        subject: None,
        time: Timestamp::from_millis(0),
        correlation: None,
        causation: None,
        trace: None,
        schema_version: 1,
        data: request.clone(),
        user: None,
        attributes: None,
    };
    assert!(
        program.correlate(&event).is_err(),
        "an event starts no page"
    );
    let Ok(ProgramOutput::Applied(started)) =
        program.apply(None, &ProgramInput::Event(&event), &context)
    else {
        panic!("the page starts");
    };
    let [Work::Effect(effect)] = &started.work[..] else {
        panic!("{:?}", started.work)
    };
    assert_eq!(
        (effect.name.as_str(), &effect.payload),
        (PAGE_EFFECT, &request)
    );
    let end = |outcome: &WorkOutcome| {
        let input = ProgramInput::WorkResult {
            tag: "page",
            outcome,
        };
        match program.apply(Some(&started.state), &input, &context) {
            Ok(ProgramOutput::Applied(ended)) => *ended,
            other => panic!("{other:?}"),
        }
    };
    let ended = end(&WorkOutcome::succeeded(None, json!({ "matched": 3 })));
    let [Work::Fact(fact)] = &ended.work[..] else {
        panic!("{:?}", ended.work)
    };
    assert_eq!(
        (ended.status, &fact.data),
        (Status::Completed, &json!({ "matched": 3 }))
    );
    let failure = Failure {
        code: "x".to_owned(),
        message: "y".to_owned(),
    };
    let ended = end(&WorkOutcome::TimedOut {
        failure: failure.clone(),
    });
    assert_eq!(
        (ended.status, ended.failure),
        (Status::Failed, Some(failure.into()))
    );
}

#[test]
fn only_a_batch_requests_pages() {
    let key = |saga: &str| InstanceKey {
        tenant: TenantId::default(),
        saga: SagaName::new(saga).unwrap(),
        correlation: CorrelationId::new("x").unwrap(),
    };
    let (batch, page, order) = (key(SAGA), key(PAGE_SAGA), key("order"));
    assert_eq!(batch_of(&batch, None), Some(&batch));
    assert_eq!(batch_of(&page, Some(&batch)), Some(&batch));
    for (own, parent) in [
        (&page, None),
        (&page, Some(&order)),
        (&order, None),
        (&order, Some(&batch)),
    ] {
        assert_eq!(batch_of(own, parent), None);
    }
}

#[test]
fn ids_of_batches_are_short_and_have_a_path() {
    assert!(check_id("retry-2026").is_ok() && check_id(&"x".repeat(MAX_ID_BYTES)).is_ok());
    for (invalid, reason) in [
        ("", "batch id"),
        ("..", "batch id"),
        (&"x".repeat(101), "the limit is 100"),
    ] {
        let error = check_id(invalid).unwrap_err();
        assert!(error.contains(reason), "{error}");
    }
}

proptest! {
    /// Pauses, resumes and jumps of the clock at any time change neither the instances nor their order.
    #[test]
    fn each_instance_is_instructed_once(
        instances in 0_usize..60,
        rate in 1_u32..30,
        canary in proptest::option::of(1_u32..20),
        actions in proptest::collection::vec(0_u8..6, 0..80),
        spread in any::<bool>(),
    ) {
        let shards: Vec<Range<u16>> = if spread { vec![0..300, 300..700, 700..SLOTS] } else { Vec::new() };
        let mut batch = Harness::create(instances, &json!({ "rate": rate, "canary": canary, "shards": shards }));
        for action in actions {
            match action {
                0 => drop(batch.signal(PAUSE, Value::Null)),
                1 => drop(batch.signal(RESUME, Value::Null)),
                2 => batch.now -= 500,
                _ => drop(batch.step()),
            }
        }
        batch.run();
        // After a pause, and after the canary.
        for _ in 0..2 {
            batch.signal(RESUME, Value::Null);
            batch.run();
        }
        let state = batch.batch();
        prop_assert_eq!((state.status, state.done), (BatchStatus::Completed, instances as u64));
        prop_assert!(batch.each_once(), "{:?}", batch.instances);
    }
}
