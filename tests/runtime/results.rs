//! Results of effects as events: each is on the bus once after any crash, and instances are rebuilt from events and
//! results.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use orlog_actors::CommitObserver;
use orlog_bus::effect_queue::EffectResult;
use orlog_bus::subject::{Subject, SubjectKind};
use orlog_bus::{ScanStart, codec, effect_queue};
use orlog_model::{
    Clock, DeadLetterOriginal, DeadLetterReason, HistoryEntry, Input, Instance, InstanceKey,
    SagaName, Status, Timestamp,
};
use orlog_program::{Program, compile_yaml};
use orlog_simulator::rebuild::{RebuildInput, RecordedResult, TimeMode, rebuild};
use orlog_testkit::SimClock;
use orlog_testkit::fake_upstreams::{FakeUpstreams, event};
use orlog_testkit::runtime::{TestRuntime, TestRuntimeConfig, drive_clock, tenant};
use serde_json::{Value, json};
use uuid::Uuid;

use crate::crash_points::{CrashAfterCommit, CrashKind};

const START: Timestamp = Timestamp::from_millis(1_700_000_000_000);

/// The result of `charge` is published with a fact, those of the other steps and of the compensations are not.
const PURCHASE: &str = "
saga: purchase
version: 1
start: Begun
vars: { plan: =event.plan }
steps:
  - id: charge
    do: { effect: payments.charge, data: { tag: charge, plan: =vars.plan } }
    ok: Charged
    fail: Declined
    undo: { effect: payments.refund, data: { tag: 'compensate:charge', plan: =vars.plan } }
  - id: notify
    do: { effect: mail.send, data: { tag: notify, plan: =vars.plan } }
    undo: { effect: mail.retract, data: { tag: 'compensate:notify', plan: =vars.plan } }
  - id: collect
    do: { effect: payments.charge, data: { tag: collect, plan: =vars.plan } }
completed: { fact: Purchased, data: {} }
failed: { fact: NotPurchased, data: {} }
";

fn purchases() -> Vec<(InstanceKey, Value, Status)> {
    let plans = [
        (json!({}), Status::Completed),
        (
            json!({ "notify": "lost", "collect": "error", "compensate:notify": "down" }),
            Status::Failed,
        ),
        (json!({ "charge": "error" }), Status::Failed),
    ];
    let key = |number: usize| InstanceKey {
        tenant: tenant(),
        saga: SagaName::new("purchase").unwrap(),
        correlation: format!("p-{number}").parse().unwrap(),
    };
    plans
        .into_iter()
        .enumerate()
        .map(|(number, (plan, status))| (key(number), plan, status))
        .collect()
}

fn program() -> Arc<dyn Program> {
    Arc::new(compile_yaml(PURCHASE, "purchase.saga.yaml").unwrap())
}

async fn play(runtime: &TestRuntime) {
    for (key, plan, _) in purchases() {
        let begun = orlog_model::Event {
            id: format!("begun:{}", key.correlation).parse().unwrap(),
            kind: "Begun".parse().unwrap(),
            data: json!({ "plan": plan }),
            ..event(&key, START)
        };
        runtime.publish(&begun).await;
    }
    let keys: Vec<_> = purchases().into_iter().map(|(key, ..)| key).collect();
    runtime.wait_until_ended(&keys).await;
}

/// Messages of the bus: the start events by instance, and the results with their number by command.
#[derive(Default)]
struct Recorded {
    starts: BTreeMap<InstanceKey, orlog_model::Event>,
    results: BTreeMap<Uuid, RecordedResult>,
    counts: BTreeMap<Uuid, usize>,
    /// Number of results that a fact carries.
    carried: usize,
}

impl Recorded {
    fn add(&mut self, result: EffectResult) {
        *self.counts.entry(result.command_id).or_default() += 1;
        let at = result
            .stored_at
            .expect("the node of the instance published it");
        let EffectResult {
            command_id,
            outcome,
            attempts,
            attempt_log,
            ..
        } = result;
        self.results.insert(
            command_id,
            RecordedResult {
                at,
                outcome,
                attempts,
                attempt_log,
            },
        );
    }
}

async fn recorded(runtime: &TestRuntime) -> Recorded {
    let mut recorded = Recorded::default();
    let all = vec!["tenant.acme.>".to_owned()];
    let mut scan = runtime.bus.scan(all, ScanStart::Sequence(1)).await.unwrap();
    loop {
        let deliveries = scan.next().await.unwrap();
        if deliveries.is_empty() {
            return recorded;
        }
        for delivery in deliveries {
            let message = &delivery.message;
            match Subject::parse(&message.subject).unwrap().kind {
                SubjectKind::EffectResult => {
                    recorded.add(effect_queue::decode_result(message).unwrap());
                }
                SubjectKind::WorkflowEvent => {
                    if let Some(result) = effect_queue::decode_carried(message) {
                        recorded.add(result.unwrap());
                        recorded.carried += 1;
                    }
                }
                SubjectKind::Aggregate => {
                    let event = codec::decode(&delivery.message, START).unwrap();
                    let saga = SagaName::new("purchase").unwrap();
                    let correlation = event.correlation.clone().unwrap();
                    recorded.starts.insert(
                        InstanceKey {
                            tenant: event.tenant.clone(),
                            saga,
                            correlation,
                        },
                        event,
                    );
                }
                _ => {}
            }
        }
    }
}

fn applied_results(history: &[HistoryEntry]) -> impl Iterator<Item = Uuid> {
    history.iter().filter_map(|entry| {
        entry
            .input_id
            .as_str()
            .strip_prefix("outcome:")?
            .parse()
            .ok()
    })
}

/// Rebuilds every instance from the bus alone and compares it with the stored one.
fn assert_rebuilt(runtime: &TestRuntime, recorded: &Recorded, now: Timestamp) {
    let reader = runtime.reader();
    for (key, plan, status) in purchases() {
        let (stored, history) = (
            reader.instance(&key).unwrap().unwrap(),
            reader.history(&key, 0, usize::MAX).unwrap(),
        );
        assert_eq!(stored.status, status, "{key} {plan}");
        let input = (history[0].at, Input::Event(recorded.starts[&key].clone()));
        let rebuilt = rebuild(
            &RebuildInput {
                program: program(),
                key: &key,
                inputs: &[input],
                results: &recorded.results,
                history_payload_bytes: runtime.runtime.history_payload_bytes(),
            },
            TimeMode::Recorded(now),
        );
        let instance = rebuilt.instance.unwrap();
        assert_eq!(
            Instance {
                node: stored.node.clone(),
                ..instance
            },
            stored,
            "{key} {plan}"
        );
        let facts = |entry: &HistoryEntry| {
            let payloads: Vec<_> = entry
                .payloads
                .iter()
                .flatten()
                .map(|payload| payload.text.into_owned())
                .collect();
            (
                entry.version,
                entry.at,
                entry.input_id.clone(),
                entry.note.clone(),
                entry.work.clone(),
                payloads,
            )
        };
        assert!(
            rebuilt
                .history
                .iter()
                .map(facts)
                .eq(history.iter().map(facts)),
            "{key} {plan}"
        );
    }
}

/// Runs the purchases with a crash after commit `at`; returns whether the crash occurred.
async fn run(at: usize, crash: CrashKind) -> bool {
    let home = tempfile::tempdir().unwrap();
    let clock = SimClock::new(START);
    let _driver = drive_clock(&clock);
    let upstreams = FakeUpstreams::new(Arc::clone(&clock) as Arc<dyn Clock>, 1);
    let mut setup = TestRuntimeConfig::new(home.path().to_owned(), vec![program()], clock.clone());
    let (crasher, thaw) = CrashAfterCommit::new(at, crash);
    setup.limits.max_group_commit = 1;
    setup.observer = Some(Arc::clone(&crasher) as Arc<dyn CommitObserver>);
    let mut runtime = setup.start(&upstreams).await;
    let finished = tokio::select! {
        () = play(&runtime) => true,
        () = crasher.frozen.notified() => false,
    };
    if finished {
        // A commit after the end of the scenario waits as well.
        drop(thaw);
    } else {
        runtime.crash().await;
        drop(thaw);
        runtime = setup.start(&upstreams).await;
        play(&runtime).await;
    }
    let recorded = recorded(&runtime).await;
    let mut expected = BTreeSet::new();
    for (key, ..) in purchases() {
        expected.extend(applied_results(
            &runtime.reader().history(&key, 0, usize::MAX).unwrap(),
        ));
    }
    assert!(
        recorded.counts.values().all(|count| *count == 1),
        "crash at {at}: {:?}",
        recorded.counts
    );
    assert!(
        recorded.counts.keys().eq(&expected),
        "crash at {at}: {:?} {expected:?}",
        recorded.counts
    );
    // `charge` of each purchase has a named result.
    assert_eq!(recorded.carried, purchases().len(), "crash at {at}");
    assert_rebuilt(&runtime, &recorded, clock.now());
    runtime.stop().await;
    crasher.has_crashed()
}

/// Requirements: R9, R15.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_result_is_on_the_bus_once_and_rebuilds_its_instance_after_any_crash() {
    for crash in [CrashKind::Process, CrashKind::Shard] {
        let mut at = 1;
        while run(at, crash).await {
            at += 1;
        }
        assert!(at > 10, "only {} commits were made", at - 1);
    }
}

const POINTS: &str = "
saga: points
version: 1
start: Begun
steps:
  - { id: earn, do: { effect: payments.charge, data: { tag: =event_tag, plan: {}, facts: [PointsEarned] } }, save: { text: =event.tag } }
";

/// Requirements: T4.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn facts_of_a_dead_lettered_result_are_published_once() {
    let home = tempfile::tempdir().unwrap();
    let clock = SimClock::new(START);
    let _driver = drive_clock(&clock);
    let upstreams = FakeUpstreams::new(Arc::clone(&clock) as Arc<dyn Clock>, 1);
    let text = POINTS.replace("=event_tag", &"long".repeat(100));
    let program: Arc<dyn Program> = Arc::new(compile_yaml(&text, "points.saga.yaml").unwrap());
    let mut config = TestRuntimeConfig::new(home.path().to_owned(), vec![program], clock.clone());
    config.limits.max_state_size = 200;
    let runtime = config.start(&upstreams).await;
    let key = InstanceKey {
        tenant: tenant(),
        saga: SagaName::new("points").unwrap(),
        correlation: "p-1".parse().unwrap(),
    };
    let begun = orlog_model::Event {
        kind: "Begun".parse().unwrap(),
        ..event(&key, START)
    };
    runtime.publish(&begun).await;
    let dead_letters =
        |runtime: &TestRuntime| runtime.reader().dead_letters(&tenant(), None, 9).unwrap();
    runtime
        .wait_until("the result is rejected", |runtime| {
            dead_letters(runtime).len() == 1
        })
        .await;
    let dead_letter = dead_letters(&runtime).remove(0);
    assert_eq!(dead_letter.reason, DeadLetterReason::StateTooLarge);
    let DeadLetterOriginal::Input(input) = &dead_letter.original else {
        panic!("{dead_letter:?}")
    };
    let Input::WorkResult(result) = &**input else {
        panic!("{input:?}")
    };
    assert!(
        result.facts.is_empty() && !result.publishes,
        "a redrive would publish them again: {result:?}"
    );
    let is_published = |runtime: &TestRuntime| runtime.reader().outbox_depth().unwrap() == 0;
    runtime
        .wait_until("the fact has left the outbox", is_published)
        .await;
    assert_eq!(kinds_of_facts(&runtime).await, ["PointsEarned"]);
    runtime.stop().await;

    config.limits.max_state_size = 1 << 20;
    let runtime = config.start(&upstreams).await;
    runtime.runtime.redrive(dead_letter).await.unwrap();
    runtime.wait_until_ended(&[key]).await;
    assert_eq!(kinds_of_facts(&runtime).await, ["PointsEarned"]);
    runtime.stop().await;
}

async fn kinds_of_facts(runtime: &TestRuntime) -> Vec<String> {
    runtime
        .facts()
        .await
        .into_iter()
        .map(|(.., kind)| kind.to_string())
        .collect()
}
