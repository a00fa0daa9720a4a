//! Transitions of shadows: phases, shards, ends, limits of the report.

use std::collections::BTreeMap;
use std::ops::Range;

use orlog_model::{
    CorrelationId, Event, EventId, EventType, Failure, InstanceKey, SLOTS, SagaName, SampleRate,
    Status, TenantId, TimerChange, Timestamp, Work, WorkOutcome,
};
use orlog_program::{Context, Program, ProgramInput, ProgramOutput, SagaState as _};
use serde_json::{Value, json};

use super::*;

const LIVE: [u8; 16] = [1; 16];
const CANDIDATE: [u8; 16] = [2; 16];
const START_AT: i64 = 1_000_000;

/// A shadow and the pages that it requests.
struct Harness {
    program: NativeProgram<ShadowSaga>,
    key: InstanceKey,
    now: i64,
    state: Option<Vec<u8>>,
    status: Status,
    timer: Option<Timestamp>,
    work: Option<Work>,
}

impl Harness {
    /// Starts a shadow of ten seconds.
    fn start(shards: Vec<Range<u16>>, max_instances: u64) -> Self {
        let key = InstanceKey {
            tenant: TenantId::default(),
            saga: SagaName::new(SAGA).unwrap(),
            correlation: CorrelationId::new("order").unwrap(),
        };
        let at = Timestamp::from_millis;
        let spec = ShadowSpec {
            saga: SagaName::new("order").unwrap(),
            live: DefinitionId {
                version: 1,
                hash: LIVE,
            },
            candidate: DefinitionId {
                version: 2,
                hash: CANDIDATE,
            },
            source: CandidateSource {
                name: "a.saga.yaml".to_owned(),
                text: Some(String::new()),
                base64: None,
            },
            sample: SampleRate::ALL,
            from: at(START_AT),
            until: at(START_AT + 10_000),
            max_instances,
            user: None,
            reason: None,
            shards,
        };
        let mut this = Self {
            program: program(),
            key,
            now: START_AT,
            state: None,
            status: Status::Running,
            timer: None,
            work: None,
        };
        assert!(this.event(START, json!(spec)), "it starts");
        this
    }

    fn shadow(&self) -> ShadowState {
        ShadowState::decode(self.state.as_ref().unwrap()).unwrap()
    }

    fn event(&mut self, kind: &str, data: Value) -> bool {
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

    fn apply(&mut self, input: &ProgramInput<'_>) -> bool {
        let context = Context {
            key: &self.key,
            version: 1,
            now: Timestamp::from_millis(self.now),
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
        for timer in &transition.timers {
            self.timer = match timer {
                TimerChange::Arm { due, .. } => Some(*due),
                TimerChange::Cancel { .. } => None,
            };
        }
        assert!(transition.work.len() <= 1, "one page at a time");
        self.work = transition.work.first().cloned().or(self.work.take());
        (self.state, self.status) = (Some(transition.state.clone()), transition.status);
        true
    }

    /// Returns the task of the page in flight, after the pause before it.
    fn page(&mut self) -> PageTask {
        if self.work.is_none() {
            self.now = self.timer.expect("a page or a timer").as_millis();
            assert!(self.apply(&ProgramInput::Timer { name: "next" }));
        }
        let payload = self.work.as_ref().expect("a page").payload().unwrap();
        serde_json::from_value::<PageRequest>(payload.clone())
            .unwrap()
            .task
    }

    /// Ends the page in flight; returns its task.
    fn answer(&mut self, outcome: PageOutcome) -> PageTask {
        let task = self.page();
        self.work = None;
        let read_at = Timestamp::from_millis(self.now);
        let outcome = PageOutcome {
            read_at,
            active: outcome.active.or(Some(LIVE)),
            ..outcome
        };
        let outcome = WorkOutcome::succeeded(None, json!(outcome));
        assert!(self.apply(&ProgramInput::WorkResult {
            tag: "page",
            outcome: &outcome
        }));
        task
    }

    fn answer_until_end(&mut self) -> Vec<PageTask> {
        let mut tasks = Vec::new();
        while !self.shadow().status.is_final() {
            tasks.push(self.answer(PageOutcome::default()));
        }
        tasks
    }
}

fn equal(count: u64) -> PageOutcome {
    PageOutcome {
        equal: count,
        ..PageOutcome::default()
    }
}

#[test]
fn shadow_compares_until_its_time_is_over_and_then_what_has_not_ended() {
    let mut shadow = Harness::start(Vec::new(), 1_000);
    assert_eq!(
        shadow.answer(equal(3)),
        PageTask::Ended {
            after: None,
            until: None
        }
    );
    let position = Position {
        at: Timestamp::from_millis(7),
        correlation: CorrelationId::new("o-1").unwrap(),
        read_at: Timestamp::from_millis(9),
    };
    shadow.answer(PageOutcome {
        position: Some(position.clone()),
        ..equal(2)
    });
    let tasks = shadow.answer_until_end();
    let (compare, rest) = tasks.split_at(tasks.len() - 3);
    let after = Some(position);
    assert!(
        compare.iter().all(|task| *task
            == PageTask::Ended {
                after: after.clone(),
                until: None
            }),
        "{tasks:?}"
    );
    assert_eq!(rest[0], PageTask::Unfinished);
    assert!(
        matches!(&rest[1], PageTask::Ended { after: drained, until: Some(_) } if *drained == after),
        "{rest:?}"
    );
    assert_eq!(rest[2], PageTask::End);
    assert!(
        (5..12).contains(&tasks.len()),
        "a page every two seconds: {tasks:?}"
    );
    let ended = shadow.shadow();
    assert_eq!(
        (ended.status, ended.equal, shadow.status),
        (ShadowStatus::Completed, 5, Status::Completed)
    );
}

#[test]
fn slow_page_is_followed_by_a_pause_of_nine_times_its_duration() {
    let mut shadow = Harness::start(Vec::new(), 1_000);
    shadow.answer(PageOutcome {
        elapsed_ms: 500,
        has_more: true,
        ..equal(1)
    });
    assert_eq!(shadow.timer.unwrap().as_millis(), START_AT + 4_500);
    shadow.answer(PageOutcome {
        elapsed_ms: 1,
        has_more: true,
        ..equal(1)
    });
    assert_eq!(shadow.timer.unwrap().as_millis(), START_AT + 4_700);
}

#[test]
fn stop_waits_for_the_page_in_flight_and_ends_the_recording_of_every_shard() {
    let shards = vec![0..SLOTS / 2, SLOTS / 2..SLOTS];
    let mut shadow = Harness::start(shards, 1_000);
    shadow.page();
    assert!(shadow.event(STOP, Value::Null));
    assert_eq!(shadow.shadow().status, ShadowStatus::Ending);
    assert!(matches!(shadow.answer(equal(1)), PageTask::Ended { .. }));
    assert_eq!(shadow.answer_until_end(), [PageTask::End, PageTask::End]);
    assert_eq!(
        (shadow.shadow().status, shadow.status),
        (ShadowStatus::Stopped, Status::Cancelled)
    );
    assert!(!shadow.event(STOP, Value::Null), "it has ended");
}

#[test]
fn pages_of_all_shards_take_turns_and_other_shards_are_asked_through_a_child() {
    let shards = vec![0..SLOTS / 2, SLOTS / 2..SLOTS];
    let mut shadow = Harness::start(shards, 1_000);
    let mut children = 0;
    for turn in 0..4 {
        shadow.page();
        children += u32::from(matches!(shadow.work, Some(Work::StartChild(_))));
        assert_eq!(shadow.shadow().is_recording, turn > 1, "{turn}");
        shadow.answer(equal(1));
    }
    assert_eq!((children, shadow.shadow().equal), (2, 4));
}

#[test]
fn deployment_and_the_limit_of_instances_end_the_shadow() {
    for (outcome, status) in [
        (
            PageOutcome {
                active: Some(CANDIDATE),
                ..equal(1)
            },
            ShadowStatus::Promoted,
        ),
        (
            PageOutcome {
                active: Some([3; 16]),
                ..equal(1)
            },
            ShadowStatus::Superseded,
        ),
        (equal(10), ShadowStatus::Completed),
    ] {
        let mut shadow = Harness::start(Vec::new(), 10);
        shadow.answer(outcome);
        assert_eq!(shadow.answer_until_end(), [PageTask::End]);
        assert_eq!(shadow.shadow().status, status);
    }
    let mut shadow = Harness::start(Vec::new(), 10);
    shadow.answer(equal(1));
    assert!(shadow.event(PROMOTED, Value::Null));
    shadow.answer_until_end();
    assert_eq!(shadow.shadow().status, ShadowStatus::Promoted);
}

#[test]
fn failed_page_fails_the_shadow_with_its_reason() {
    let mut shadow = Harness::start(Vec::new(), 10);
    let failure = Failure {
        code: "invalid".to_owned(),
        message: "no source".to_owned(),
    };
    let outcome = WorkOutcome::Failed {
        event: None,
        failure,
        payload: Value::Null,
    };
    assert!(shadow.apply(&ProgramInput::WorkResult {
        tag: "page",
        outcome: &outcome
    }));
    let state = shadow.shadow();
    assert_eq!(
        (state.status, state.error.as_deref()),
        (ShadowStatus::Failed, Some("no source"))
    );
}

#[test]
fn report_is_bounded_and_counts_everything() {
    let mut shadow = Harness::start(Vec::new(), 100_000);
    let id = |number: u64| CorrelationId::new(format!("o-{number}")).unwrap();
    for page in 0..3 {
        let kinds = (0..40).map(|number| KindOutcome {
            kind: format!("variable v{number} differs"),
            count: 4,
            instances: (0..4).map(|index| id(page * 4 + index)).collect(),
            live: Some(json!(1)),
            candidate: None,
        });
        let skipped = BTreeMap::from([("it was migrated".to_owned(), 2)]);
        shadow.answer(PageOutcome {
            different: 4,
            skipped,
            kinds: kinds.collect(),
            ..PageOutcome::default()
        });
    }
    let state = shadow.shadow();
    assert_eq!(
        (state.kinds.len(), state.other_differences),
        (32, 3 * 8 * 4)
    );
    assert!(
        state
            .kinds
            .iter()
            .all(|kind| kind.count == 12 && kind.instances.len() == 5)
    );
    assert_eq!((state.different, state.skipped["it was migrated"]), (12, 6));
}

#[test]
fn only_a_shadow_or_its_child_owns_a_page() {
    let key = |saga: &str| InstanceKey {
        tenant: TenantId::default(),
        saga: SagaName::new(saga).unwrap(),
        correlation: CorrelationId::new("a").unwrap(),
    };
    let (shadow, page, order) = (key(SAGA), key(PAGE_SAGA), key("order"));
    assert_eq!(shadow_of(&shadow, None), Some(&shadow));
    assert_eq!(shadow_of(&page, Some(&shadow)), Some(&shadow));
    assert_eq!(
        (
            shadow_of(&page, Some(&order)),
            shadow_of(&order, Some(&shadow))
        ),
        (None, None)
    );
}
