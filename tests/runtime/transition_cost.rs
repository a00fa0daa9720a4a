//! Cost budget of a transition: costly ones run on the pool, and too costly ones are dead letters.

use std::fmt::Write as _;
use std::sync::Arc;

use orlog_model::{
    Clock, DeadLetter, DeadLetterReason, Event, EventId, InstanceKey, SagaName, Timestamp,
};
use orlog_program::compile_yaml;
use orlog_testkit::SimClock;
use orlog_testkit::fake_upstreams::{FakeUpstreams, event};
use orlog_testkit::runtime::{TestRuntime, TestRuntimeConfig, tenant};
use orlog_testkit::sagas::EventRecorder;

const START: Timestamp = Timestamp::from_millis(1_700_000_000_000);
/// Cost of the conditions that the start event of the saga evaluates, in units.
const COST: u64 = 60_000;

/// Saga with conditions that are costly together, and hold for no step but the last one.
fn definition() -> String {
    let mut text = "saga: order\nversion: 1\nstart: Event\nsteps:\n".to_owned();
    for step in 0..10 {
        writeln!(
            text,
            "  - {{ id: s{step}, when: '=lists.range(3000).exists(i, i < 0)', do: {{ effect: x.y }} }}"
        )
        .expect("a text grows");
    }
    text.push_str("  - { id: end, do: { event: Never }, timeout: 1h }\n");
    text
}

fn key(number: usize) -> InstanceKey {
    InstanceKey {
        saga: SagaName::new("order").expect("a valid name"),
        ..EventRecorder::key(&tenant(), number)
    }
}

fn start(number: usize) -> Event {
    Event {
        id: EventId::new(format!("start-{number}")).expect("a valid id"),
        ..event(&key(number), START)
    }
}

fn is_running(runtime: &TestRuntime, key: &InstanceKey) -> bool {
    runtime
        .reader()
        .instance(key)
        .is_ok_and(|instance| instance.is_some())
}

fn dead_letters(runtime: &TestRuntime) -> Vec<DeadLetter> {
    runtime
        .reader()
        .dead_letters(&tenant(), None, 9)
        .expect("the store can be read")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn too_costly_input_is_a_dead_letter_until_the_limit_is_raised() {
    let clock: Arc<dyn Clock> = SimClock::new(START);
    let upstreams = FakeUpstreams::new(Arc::clone(&clock), 1);
    let home = tempfile::tempdir().expect("a directory can be created");
    let program = compile_yaml(&definition(), "order.saga.yaml").expect("a valid definition");
    let mut config = TestRuntimeConfig::new(
        home.path().to_owned(),
        vec![Arc::new(program)],
        Arc::clone(&clock),
    );

    // Enough for the thread of the actor and some steps on the pool, but not for all.
    config.limits.max_transition_cost = COST / 2;
    let runtime = config.start(&upstreams).await;
    runtime.publish(&start(0)).await;
    runtime
        .wait_until("the event is a dead letter", |runtime| {
            dead_letters(runtime).len() == 1
        })
        .await;
    assert!(!is_running(&runtime, &key(0)));
    let dead_letter = dead_letters(&runtime).remove(0);
    assert_eq!(dead_letter.reason, DeadLetterReason::TransitionTooCostly);
    for part in [
        "limits.max_transition_cost (30000 units)",
        "order version 1, step \"s",
        "`lists.range(3000).exists(i, i < 0)`",
    ] {
        let message = &dead_letter.message;
        assert!(message.contains(part), "{part}: {message}");
    }
    runtime.stop().await;

    config.limits.max_transition_cost = COST * 10;
    let runtime = config.start(&upstreams).await;
    runtime
        .runtime
        .redrive(dead_letter)
        .await
        .expect("the limit is large enough");
    assert!(is_running(&runtime, &key(0)));
    assert!(dead_letters(&runtime).is_empty());

    // The next ones of the saga start on the pool.
    for number in 1..4 {
        runtime.publish(&start(number)).await;
    }
    runtime
        .wait_until("all instances have started", |runtime| {
            (1..4).all(|number| is_running(runtime, &key(number)))
        })
        .await;
    runtime.stop().await;
}
