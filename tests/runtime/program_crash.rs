//! A crashing program pauses its instance: later inputs are buffered in order until an operator resumes
//! it.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use orlog_actors::ControlError;
use orlog_bus::subject::{self, SubjectKind};
use orlog_bus::{MaxInFlight, Subscription};
use orlog_model::{
    Change, Clock, ControlAction, ControlRequest, CorrelationId, DeadLetter, DeadLetterOriginal,
    DeadLetterReason, DefinitionRef, Event, Input, Instance, InstanceKey, StreamPosition,
    Timestamp,
};
use orlog_program::{Context, Manifest, Program, ProgramError, ProgramInput, ProgramOutput};
use orlog_testkit::SimClock;
use orlog_testkit::WAIT_TIMEOUT;
use orlog_testkit::fake_upstreams::FakeUpstreams;
use orlog_testkit::runtime::{TestRuntime, TestRuntimeConfig, control_request_id, tenant};
use orlog_testkit::sagas::EventRecorder;
use parking_lot::Mutex;

const START: Timestamp = Timestamp::from_millis(1_700_000_000_000);

/// Ledger program that crashes on some numbers.
struct CrashingProgram {
    ledger: Arc<dyn Program>,
    breaks: Arc<Mutex<BTreeSet<u64>>>,
}

impl Program for CrashingProgram {
    fn definition_ref(&self) -> &DefinitionRef {
        self.ledger.definition_ref()
    }

    fn manifest(&self) -> &Manifest {
        self.ledger.manifest()
    }

    fn correlate(&self, event: &Event) -> Result<CorrelationId, ProgramError> {
        self.ledger.correlate(event)
    }

    fn apply(
        &self,
        state: Option<&[u8]>,
        input: &ProgramInput<'_>,
        context: &Context<'_>,
    ) -> Result<ProgramOutput, ProgramError> {
        let number = match input {
            ProgramInput::Event(event) => event.data["n"].as_u64(),
            _ => None,
        };
        let breaks = self.breaks.lock();
        if number.is_some_and(|number| breaks.contains(&number)) {
            return Err(ProgramError::Crashed("it ran out of fuel".to_owned()));
        }
        self.ledger.apply(state, input, context)
    }
}

fn instance(runtime: &TestRuntime, key: &InstanceKey) -> Option<Instance> {
    runtime.reader().instance(key).ok().flatten()
}

fn numbers(runtime: &TestRuntime, key: &InstanceKey) -> Vec<u32> {
    instance(runtime, key).map_or_else(Vec::new, |instance| EventRecorder::numbers(&instance.state))
}

fn dead_letters(runtime: &TestRuntime) -> Vec<DeadLetter> {
    runtime
        .reader()
        .dead_letters(&tenant(), None, 10)
        .unwrap_or_default()
}

async fn resume(runtime: &TestRuntime, key: &InstanceKey, number: usize) {
    let id = control_request_id("resume", number);
    let control = ControlRequest {
        id,
        action: ControlAction::Resume,
        expected_version: None,
        at: START,
        user: None,
        reason: None,
        trace: None,
        wait_token: None,
    };
    runtime
        .runtime
        .control(key, control)
        .await
        .expect("a paused instance can be resumed");
}

/// Requirements: R12.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn inputs_after_a_program_crash_are_buffered_until_the_program_is_fixed() {
    let home = tempfile::tempdir().expect("a directory can be created");
    let clock: Arc<dyn Clock> = SimClock::new(START);
    let world = FakeUpstreams::new(Arc::clone(&clock), 1);
    let breaks = Arc::new(Mutex::new(BTreeSet::from([2, 4])));
    let program = CrashingProgram {
        ledger: EventRecorder::program(),
        breaks: Arc::clone(&breaks),
    };
    let runtime = TestRuntimeConfig::new(home.path().to_owned(), vec![Arc::new(program)], clock)
        .start(&world)
        .await;
    let key = EventRecorder::key(&tenant(), 0);
    for number in 0..6 {
        runtime
            .publish(&EventRecorder::event(&key, number, START))
            .await;
    }
    let stored = |runtime: &TestRuntime| {
        runtime
            .reader()
            .buffered_inputs(&key, 10)
            .map_or(0, |inputs| inputs.len())
    };
    runtime
        .wait_until("what came later is kept", |runtime| stored(runtime) == 3)
        .await;
    let parked = instance(&runtime, &key).expect("it has begun");
    assert!(
        parked.paused
            && parked
                .last_error
                .is_some_and(|error| error.message == "it ran out of fuel")
    );
    assert_eq!(
        (numbers(&runtime, &key), dead_letters(&runtime).len()),
        (vec![0, 1], 1)
    );

    resume(&runtime, &key, 1).await;
    runtime
        .wait_until("it breaks down over the fourth", |runtime| {
            dead_letters(runtime).len() == 2
        })
        .await;
    runtime
        .wait_until("the last one stays kept", |runtime| stored(runtime) == 1)
        .await;
    assert!(instance(&runtime, &key).is_some_and(|instance| instance.paused));
    assert_eq!(numbers(&runtime, &key), [0, 1, 3]);

    breaks.lock().clear();
    resume(&runtime, &key, 2).await;
    runtime
        .wait_until("the last one is applied", |runtime| {
            numbers(runtime, &key) == [0, 1, 3, 5]
        })
        .await;
    for dead_letter in dead_letters(&runtime) {
        runtime
            .runtime
            .redrive(dead_letter)
            .await
            .expect("the program is fixed");
    }
    let mut all = numbers(&runtime, &key);
    all.sort_unstable();
    assert_eq!(all, [0, 1, 2, 3, 4, 5]);
    runtime.stop().await;
}

/// An input that was buffered, that crashed the program and crashed it again when it was redriven, is applied
/// when it is redriven once more: neither its buffering nor its crashes count as its application.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn dead_letter_that_fails_again_can_be_redriven_again() {
    let home = tempfile::tempdir().expect("a directory can be created");
    let clock = SimClock::new(START);
    let time = Arc::clone(&clock) as Arc<dyn Clock>;
    let world = FakeUpstreams::new(Arc::clone(&time), 1);
    let breaks = Arc::new(Mutex::new(BTreeSet::from([1, 2])));
    let program = CrashingProgram {
        ledger: EventRecorder::program(),
        breaks: Arc::clone(&breaks),
    };
    let runtime = TestRuntimeConfig::new(home.path().to_owned(), vec![Arc::new(program)], time)
        .start(&world)
        .await;
    let key = EventRecorder::key(&tenant(), 0);
    for number in 0..3 {
        runtime
            .publish(&EventRecorder::event(&key, number, START))
            .await;
    }
    let stored = |runtime: &TestRuntime| {
        runtime
            .reader()
            .buffered_inputs(&key, 10)
            .map_or(0, |inputs| inputs.len())
    };
    runtime
        .wait_until("the second number is buffered", |runtime| {
            stored(runtime) == 1
        })
        .await;
    clock.advance(Duration::from_secs(1));
    resume(&runtime, &key, 1).await;
    runtime
        .wait_until("it crashes the program", |runtime| {
            dead_letters(runtime).len() == 2
        })
        .await;

    breaks.lock().remove(&1);
    clock.advance(Duration::from_secs(1));
    resume(&runtime, &key, 2).await;
    let of_two = |runtime: &TestRuntime| {
        let is_two = |letter: &DeadLetter| match &letter.original {
            DeadLetterOriginal::Input(input) => {
                matches!(&**input, Input::Event(event) if event.data["n"] == 2)
            }
            DeadLetterOriginal::Message { .. } => false,
        };
        dead_letters(runtime)
            .into_iter()
            .find(is_two)
            .expect("its dead letter is stored")
    };
    let redriven = runtime.runtime.redrive(of_two(&runtime)).await;
    assert!(
        matches!(redriven, Err(ControlError::DeadLettered(_))),
        "{redriven:?}"
    );

    breaks.lock().clear();
    clock.advance(Duration::from_secs(1));
    resume(&runtime, &key, 3).await;
    for dead_letter in dead_letters(&runtime) {
        runtime
            .runtime
            .redrive(dead_letter)
            .await
            .expect("the program is fixed");
    }
    let mut all = numbers(&runtime, &key);
    all.sort_unstable();
    assert_eq!((all, dead_letters(&runtime).len()), (vec![0, 1, 2], 0));
    runtime.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn dead_letter_stored_before_a_crash_is_published_after_restart() {
    let home = tempfile::tempdir().expect("a directory can be created");
    let clock: Arc<dyn Clock> = SimClock::new(START);
    let world = FakeUpstreams::new(Arc::clone(&clock), 1);
    let setup = TestRuntimeConfig::new(
        home.path().to_owned(),
        vec![EventRecorder::program()],
        clock,
    );
    let original = DeadLetterOriginal::Message {
        subject: "s".to_owned(),
        headers: Vec::new(),
        payload: vec![0, 255],
    };
    let reason = "no JSON at byte 1".to_owned();
    let dead_letter = orlog_engine::dead_letter_message(
        tenant(),
        original,
        DeadLetterReason::Undecodable,
        reason,
        "node-1",
        START,
    );
    {
        let dir = home.path().join("shard-0");
        let (mut writer, _) =
            orlog_store::open(&dir, setup.store.clone()).expect("a fresh store opens");
        let removed = Change::DropDeadLetter {
            tenant: tenant(),
            id: dead_letter.id,
        };
        let stored = Change::PutDeadLetter(Box::new(dead_letter.clone()));
        writer
            .commit(&[stored, removed], START)
            .expect("there is room");
    }
    let runtime = setup.start(&world).await;
    let subscription = Subscription {
        name: "copies".to_owned(),
        filters: subject::filters(Some(&tenant()), SubjectKind::DeadLetter, None),
        partition: None,
        start_after: Some(StreamPosition::after(runtime.bus.stream_id(), 0)),
        max_in_flight: MaxInFlight::total(usize::MAX),
    };
    let mut copies = runtime
        .bus
        .subscribe(subscription)
        .await
        .expect("the bus can be read");
    let next = tokio::time::timeout(WAIT_TIMEOUT, copies.next(9))
        .await
        .expect("a copy comes");
    let next = next.expect("the bus can be read");
    let ids: Vec<_> = next
        .iter()
        .map(|delivery| delivery.message.id.clone())
        .collect();
    assert_eq!(ids, [Some(dead_letter.id.to_string())]);
    let waiting = |runtime: &TestRuntime| {
        runtime
            .reader()
            .unpublished_dead_letters(0, 9)
            .map_or(9, |dead_letters| dead_letters.len())
    };
    runtime
        .wait_until("none waits any more", |runtime| waiting(runtime) == 0)
        .await;
    runtime.stop().await;
}
