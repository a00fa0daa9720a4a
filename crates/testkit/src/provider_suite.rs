//! The conformance suite of providers: what [`Provider`] promises, run under a real [`Performer`].
//!
//! An implementation brings a [`Rig`]: the provider and an upstream that follows a [`Script`]. The macro
//! [`provider_suite!`](crate::provider_suite!) makes one test of each case. Time is simulated; nothing waits for long.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use orlog_effect::limits::breaker::{self, State};
use orlog_effect::{Done, Performer, Policy, Progress, Provider, Upstream};
use orlog_model::{
    Clock, CorrelationId, Effect, EffectName, EventId, InDoubt, InstanceKey, Name, SagaName, TenantId,
    Timestamp, Verdict, Work, WorkItem,
};
use serde_json::{Value, json};
use tokio::sync::Notify;
use uuid::Uuid;

use crate::SimClock;

/// When simulated time begins: 2025-01-01.
pub const START: Timestamp = Timestamp::from_millis(1_735_689_600_000);

/// The time an attempt may take in the suite; pauses are much shorter.
const ATTEMPT: Duration = Duration::from_mins(1);

/// A case that takes longer in real time hangs.
const HANGS: Duration = Duration::from_secs(30);

/// A provider and its upstream.
pub struct Rig {
    /// What is tested.
    pub provider: Arc<dyn Provider>,
    /// The effect it performs.
    pub effect: EffectName,
    /// What the upstream follows.
    pub script: Arc<Script>,
}

/// What an upstream does when it is asked.
#[derive(Clone, Debug, PartialEq)]
pub enum Answer {
    /// Does it and answers with this.
    Done(Value),
    /// Refuses for good.
    Refused,
    /// Asks for patience.
    Busy(Option<Duration>),
    /// Fails.
    Ill,
    /// Says nothing: it awaits [`Script::silence`].
    Silence,
}

/// The upstream's side of a case: what it shall answer, and what it was asked.
#[derive(Default)]
pub struct Script {
    answers: Mutex<VecDeque<Answer>>,
    asked: Mutex<Vec<String>>,
    silences: AtomicUsize,
    abandoned: AtomicUsize,
    changed: Notify,
}

impl Script {
    /// For the upstream: takes note of the idempotency key and says what to answer. Past the script's end: done.
    pub fn ask(&self, key: impl Into<String>) -> Answer {
        self.asked.lock().unwrap_or_else(PoisonError::into_inner).push(key.into());
        self.changed.notify_waiters();
        let next = self.answers.lock().unwrap_or_else(PoisonError::into_inner).pop_front();
        next.unwrap_or(Answer::Done(Value::Null))
    }

    /// For the upstream: never ends; takes note when it is dropped.
    pub async fn silence(&self) {
        let _left = Left(self);
        self.silences.fetch_add(1, Ordering::SeqCst);
        self.changed.notify_waiters();
        std::future::pending::<()>().await;
    }

    /// The keys of all questions so far.
    pub fn asked(&self) -> Vec<String> {
        self.asked.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn set(&self, answers: impl IntoIterator<Item = Answer>) {
        self.answers.lock().unwrap_or_else(PoisonError::into_inner).extend(answers);
    }

    async fn until(&self, fact: impl Fn(&Self) -> bool) {
        loop {
            let mut changed = std::pin::pin!(self.changed.notified());
            changed.as_mut().enable();
            if fact(self) {
                return;
            }
            changed.await;
        }
    }
}

struct Left<'a>(&'a Script);

impl Drop for Left<'_> {
    fn drop(&mut self) {
        self.0.abandoned.fetch_add(1, Ordering::SeqCst);
        self.0.changed.notify_waiters();
    }
}

/// Makes a test of each case. The argument is an expression that gives a future of a fresh [`Rig`]; after `maybe`, of an
/// `Option`, and where there is none the tests are skipped. After a semicolon the cases can be chosen.
#[macro_export]
macro_rules! provider_suite {
    ($rig:expr) => {
        $crate::provider_suite!($rig;
            success_carries_the_answer
            a_refusal_is_final
            an_unanswered_attempt_times_out
            a_timed_out_attempt_is_tried_again_under_the_same_key
            troubles_are_tried_again_under_the_same_key
            the_upstream_says_how_long_to_wait
            the_breaker_opens_tries_one_and_closes
            a_second_delivery_carries_the_same_key
            dropping_cancels_and_frees_the_place
            a_crash_between_call_and_result_is_gone_on_with_under_the_same_key
            a_doubt_that_nobody_can_resolve_is_not_tried_again_where_the_policy_forbids_it
        );
    };
    (maybe $rig:expr; $($case:ident)*) => {
        $(#[tokio::test]
        async fn $case() {
            if let Some(rig) = $rig.await {
                $crate::provider_suite::$case(rig).await;
            }
        })*
    };
    ($rig:expr; $($case:ident)*) => {
        $(#[tokio::test]
        async fn $case() {
            $crate::provider_suite::$case($rig.await).await;
        })*
    };
}

/// A work item for an effect; items of one number are deliveries of one item.
#[must_use]
pub fn item(effect: &EffectName, number: u128) -> WorkItem {
    let instance = InstanceKey {
        tenant: TenantId::new("acme").expect("valid"),
        saga: SagaName::new("order").expect("valid"),
        correlation: CorrelationId::new(format!("o-{number}")).expect("valid"),
    };
    let effect = Effect {
        tag: Name::new("charge").expect("valid"),
        name: effect.clone(),
        payload: json!({"order": {"id": format!("o-{number}")}, "amount": 125}),
        timeout: None,
        retry: None,
        in_doubt: None,
    };
    WorkItem {
        id: Uuid::from_u128(number << 64 | number.wrapping_mul(0x9e37_79b9_7f4a_7c15)),
        instance,
        work: Work::Effect(effect),
        deadline: None,
        causation: EventId::new("e-1").expect("valid"),
        trace: None,
        created_at: START,
    }
}

/// A rig under a performer.
struct Stage {
    rig: Rig,
    clock: Arc<SimClock>,
    performer: Arc<Performer>,
}

impl Stage {
    fn new(rig: Rig, answers: impl IntoIterator<Item = Answer>, policy: Policy) -> Self {
        rig.script.set(answers);
        let clock = SimClock::new(START);
        let upstream =
            Upstream::effects("upstream", vec![rig.effect.clone()], Arc::clone(&rig.provider), policy);
        let performer = Performer::new(upstream, Arc::clone(&clock) as Arc<dyn Clock>);
        Self { rig, clock, performer }
    }

    /// Performs an item. Pauses pass at once; the time of an attempt passes when the upstream is silent.
    async fn perform(&self, number: u128) -> Done {
        self.go_on(number, Progress::default()).await
    }

    async fn go_on(&self, number: u128, progress: Progress) -> Done {
        let mut item = item(&self.rig.effect, number);
        let heard = self.rig.script.silences.load(Ordering::SeqCst);
        let within = async {
            tokio::select! {
                biased;
                done = self.performer.go_on(&mut item, progress) => done.expect("it is not retired"),
                () = self.time_goes_on(heard) => unreachable!("time goes on for ever"),
            }
        };
        tokio::time::timeout(HANGS, within).await.expect("the case hangs")
    }

    async fn time_goes_on(&self, mut heard: usize) {
        loop {
            let due = tokio::select! {
                due = self.clock.due_within(ATTEMPT / 2) => due,
                () = self.silence(heard + 1) => {
                    heard += 1;
                    self.clock.due_within(ATTEMPT).await
                }
            };
            self.clock.advance_to(due);
            tokio::task::yield_now().await;
        }
    }

    /// Waits for the `nth` silence.
    async fn silence(&self, nth: usize) {
        self.rig.script.until(|script| script.silences.load(Ordering::SeqCst) >= nth).await;
    }

    /// Gives an item up as soon as the upstream is silent about it.
    async fn lose(&self, number: u128) {
        let lost = item(&self.rig.effect, number);
        tokio::select! {
            done = self.performer.perform(&lost) => panic!("the upstream is silent, yet: {done:?}"),
            () = self.silence(1) => {}
        }
    }

    fn keys(&self, number: u128, times: usize) -> Vec<String> {
        vec![item(&self.rig.effect, number).id.to_string(); times]
    }

    fn passed(&self) -> Duration {
        self.clock.now().since(START)
    }
}

fn policy() -> Policy {
    Policy { attempt_timeout: ATTEMPT, deadline: None, ..Policy::default() }
}

fn fine() -> Verdict {
    Verdict::Succeeded { event: None, payload: json!({"receipt": "r-1"}) }
}

fn done() -> Answer {
    Answer::Done(json!({"receipt": "r-1"}))
}

/// What the upstream answers is the payload of the verdict.
pub async fn success_carries_the_answer(rig: Rig) {
    let stage = Stage::new(rig, [done()], policy());
    assert_eq!(stage.perform(1).await, ended(1));
    assert_eq!(stage.rig.script.asked(), stage.keys(1, 1));
}

/// A business refusal is not tried again, and no fault of the upstream.
pub async fn a_refusal_is_final(rig: Rig) {
    let stage = Stage::new(rig, [Answer::Refused], policy());
    let Done { verdict, attempts, .. } = stage.perform(1).await;
    assert!(matches!(verdict, Verdict::Failed { .. }), "{verdict:?}");
    assert_eq!((attempts, stage.rig.script.asked().len()), (1, 1));
}

/// Nobody knows whether it was done: the verdict is that time is over, not that it failed.
pub async fn an_unanswered_attempt_times_out(rig: Rig) {
    let stage = Stage::new(rig, [Answer::Silence], Policy { attempts: Some(1), ..policy() });
    let Done { verdict, attempts, .. } = stage.perform(1).await;
    assert!(matches!(verdict, Verdict::TimedOut { .. }), "{verdict:?}");
    assert_eq!((attempts, stage.passed()), (1, ATTEMPT));
}

/// The key stays the same.
pub async fn a_timed_out_attempt_is_tried_again_under_the_same_key(rig: Rig) {
    let stage = Stage::new(rig, [Answer::Silence, done()], policy());
    assert_eq!(stage.perform(1).await, ended(2));
    assert_eq!(stage.rig.script.asked(), stage.keys(1, 2));
}

/// Faults and requests for patience both pass.
pub async fn troubles_are_tried_again_under_the_same_key(rig: Rig) {
    let stage = Stage::new(rig, [Answer::Ill, Answer::Busy(None), done()], policy());
    assert_eq!(stage.perform(1).await, ended(3));
    assert_eq!(stage.rig.script.asked(), stage.keys(1, 3));
}

/// `Retry-After` is a minimum.
pub async fn the_upstream_says_how_long_to_wait(rig: Rig) {
    let stage = Stage::new(rig, [Answer::Busy(Some(Duration::from_secs(7))), done()], policy());
    assert_eq!(stage.perform(1).await, ended(2));
    assert!(stage.passed() >= Duration::from_secs(7), "{:?}", stage.passed());
}

/// An item waits while the breaker is open, and is the one that finds out whether the upstream is well again.
pub async fn the_breaker_opens_tries_one_and_closes(rig: Rig) {
    let breaker = breaker::Options { failures: 2, rate: None, open_for: Duration::from_secs(5) };
    let answers = [Answer::Ill, Answer::Ill, Answer::Ill, done()];
    let stage = Stage::new(rig, answers, Policy { breaker: Some(breaker), ..policy() });
    assert_eq!(stage.perform(1).await, ended(4));
    let condition = stage.performer.condition();
    assert_eq!((condition.breaker, condition.opened, condition.in_flight), (Some(State::Closed), 2, 0));
    assert!(stage.passed() >= Duration::from_secs(10), "{:?}", stage.passed());
}

/// The upstream can tell that it is the same act.
pub async fn a_second_delivery_carries_the_same_key(rig: Rig) {
    let stage = Stage::new(rig, [done(), done(), done()], policy());
    for number in [1, 1, 2] {
        assert_eq!(stage.perform(number).await.verdict, fine());
    }
    assert_eq!(stage.rig.script.asked(), [stage.keys(1, 2), stage.keys(2, 1)].concat());
}

/// The upstream's side ends, and the next item has the place.
pub async fn dropping_cancels_and_frees_the_place(rig: Rig) {
    let stage = Stage::new(rig, [Answer::Silence, done()], Policy { concurrency: 1, ..policy() });
    stage.lose(1).await;
    let abandoned = stage.rig.script.until(|script| script.abandoned.load(Ordering::SeqCst) == 1);
    tokio::time::timeout(HANGS, abandoned).await.expect("the upstream never hears that nobody waits for it");
    assert_eq!(stage.performer.condition().in_flight, 0);
    assert_eq!(stage.perform(2).await, ended(1));
}

/// The process dies after the upstream was asked and before it answered; what takes up the item asks under the same key.
pub async fn a_crash_between_call_and_result_is_gone_on_with_under_the_same_key(rig: Rig) {
    let stage = Stage::new(rig, [Answer::Silence, done()], policy());
    stage.lose(1).await;
    let in_doubt = Progress { attempts: 0, in_doubt: true };
    assert_eq!(stage.go_on(1, in_doubt).await, ended(1));
    assert_eq!(stage.rig.script.asked(), stage.keys(1, 2));
}

/// Nobody knows whether it was done, and the upstream is not asked to do it a second time.
pub async fn a_doubt_that_nobody_can_resolve_is_not_tried_again_where_the_policy_forbids_it(rig: Rig) {
    let stage = Stage::new(rig, [Answer::Silence], Policy { in_doubt: InDoubt::Fail, ..policy() });
    stage.lose(1).await;
    let Done { verdict, attempts, .. } = stage.go_on(1, Progress { attempts: 0, in_doubt: true }).await;
    assert!(matches!(&verdict, Verdict::TimedOut { failure } if failure.code == "in_doubt"), "{verdict:?}");
    assert_eq!((attempts, stage.rig.script.asked().len()), (0, 1));
}

fn ended(attempts: u32) -> Done {
    Done { verdict: fine(), attempts, facts: Vec::new(), trace: None }
}
