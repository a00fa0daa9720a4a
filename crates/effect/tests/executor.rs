//! What the performer promises beyond one provider: deadlines, waiting, doubt, limits, hints.

use std::num::NonZeroU32;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use orlog_effect::limits::breaker::{self, State};
use orlog_effect::limits::rate::Rate;
use orlog_effect::retry_budget;
use orlog_effect::{
    Attempt, Attempted, Catalog, Done, Ending, Native, Observer, Performer, PlainCall, Policy, Probe,
    Progress, Provider, Refusal, Reply, Silent, Upstream,
};
use orlog_model::{Clock, EffectName, InDoubt, Retry, Verdict, Work, WorkItem};
use orlog_testkit::SimClock;
use orlog_testkit::provider_suite::{START, item};
use serde_json::{Value, json};

/// Answers each attempt with what a function of its number says.
struct Fake<F> {
    answer: F,
    probe: Probe,
    calls: AtomicU32,
}

#[async_trait]
impl<F: Fn(u32) -> Result<Reply, Refusal> + Send + Sync + 'static> Provider for Fake<F> {
    async fn perform(&self, _: &WorkItem, _: Attempt) -> Result<Reply, Refusal> {
        (self.answer)(self.calls.fetch_add(1, Ordering::SeqCst) + 1)
    }

    async fn probe(&self, _: &WorkItem) -> Probe {
        self.probe.clone()
    }
}

fn name() -> EffectName {
    EffectName::new("payments.charge").expect("valid")
}

fn lost(_: u32) -> Result<Reply, Refusal> {
    Err(Refusal::lost("transport", "connection reset"))
}

fn ill(_: u32) -> Result<Reply, Refusal> {
    Err(Refusal::retry("unreachable", "connection refused"))
}

type Calls = Arc<dyn Fn() -> u32 + Send + Sync>;

fn stage<F>(policy: Policy, probe: Probe, answer: F) -> (Arc<SimClock>, Arc<Performer>, Calls)
where
    F: Fn(u32) -> Result<Reply, Refusal> + Send + Sync + 'static,
{
    let clock = SimClock::new(START);
    let fake = Arc::new(Fake { answer, probe, calls: AtomicU32::new(0) });
    let upstream =
        Upstream::effects("payments", vec![name()], Arc::clone(&fake) as Arc<dyn Provider>, policy);
    let performer = Performer::new(upstream, Arc::clone(&clock) as Arc<dyn Clock>);
    (clock, performer, Arc::new(move || fake.calls.load(Ordering::SeqCst)))
}

/// Lets time pass whenever somebody sleeps, until `work` is done.
async fn passing<T>(clock: &SimClock, work: impl Future<Output = T>) -> T {
    let time = async {
        loop {
            let due = clock.due_within(Duration::from_hours(24 * 365)).await;
            clock.advance_to(due);
            tokio::task::yield_now().await;
        }
    };
    let within = async {
        tokio::select! {
            biased;
            out = work => out,
            () = time => unreachable!("time goes on for ever"),
        }
    };
    tokio::time::timeout(Duration::from_mins(1), within).await.expect("it hangs")
}

fn failure(done: &Done) -> (&'static str, String) {
    match &done.verdict {
        Verdict::Accepted => ("accepted", String::new()),
        Verdict::Succeeded { .. } => ("succeeded", String::new()),
        Verdict::Failed { failure, .. } => ("failed", failure.to_string()),
        Verdict::TimedOut { failure } => ("timed out", failure.to_string()),
    }
}

#[tokio::test]
async fn an_item_whose_deadline_is_past_is_not_begun() {
    let (_, performer, calls) = stage(Policy::default(), Probe::Unknown, ill);
    let done = performer.perform(&WorkItem { deadline: Some(START), ..item(&name(), 1) }).await;
    let text = "the deadline passed: payments was never asked (deadline_passed)".to_owned();
    assert_eq!((failure(&done), done.attempts, calls()), (("timed out", text), 0, 0));
}

#[tokio::test]
async fn tries_until_the_deadline_and_never_after() {
    let (clock, performer, calls) = stage(Policy { breaker: None, ..Policy::default() }, Probe::Unknown, ill);
    let deadline = START.after(Duration::from_secs(30));
    let item = WorkItem { deadline: Some(deadline), ..item(&name(), 1) };
    let done = passing(&clock, performer.perform(&item)).await;
    let (kind, text) = failure(&done);
    assert!(kind == "timed out" && text.contains("connection refused"), "{kind}: {text}");
    assert!(clock.now() < deadline && calls() == done.attempts && done.attempts > 5, "{}", done.attempts);
}

#[tokio::test]
async fn says_that_it_failed_when_all_attempts_are_made_and_none_is_in_doubt() {
    let policy = Policy { attempts: Some(3), ..Policy::default() };
    let (clock, performer, _) = stage(policy.clone(), Probe::Unknown, ill);
    let done = passing(&clock, performer.perform(&item(&name(), 1))).await;
    let text = "given up after 3 attempts: connection refused (unreachable)".to_owned();
    assert_eq!(failure(&done), ("failed", text));
    let (clock, performer, _) = stage(policy.clone(), Probe::Unknown, lost);
    let done = passing(&clock, performer.perform(&item(&name(), 1))).await;
    assert_eq!(failure(&done).0, "timed out");
}

#[tokio::test]
async fn the_hints_of_an_item_come_before_the_policy() {
    let (clock, performer, calls) = stage(Policy::default(), Probe::Unknown, ill);
    let mut item = item(&name(), 1);
    let Work::Effect(effect) = &mut item.work else { panic!("it is an effect") };
    effect.retry = Some(Retry { attempts: Some(2), backoff: Some(Duration::from_secs(9)) });
    let done = passing(&clock, performer.perform(&item)).await;
    assert_eq!((done.attempts, calls()), (2, 2));
    assert!(clock.now() >= START.after(Duration::from_secs(9)));
}

#[tokio::test]
async fn a_lost_answer_is_asked_for_before_the_next_attempt() {
    let found = Reply::from(json!({"receipt": "r-1"}));
    let (clock, performer, calls) = stage(Policy::default(), Probe::Done(found), lost);
    let done = passing(&clock, performer.perform(&item(&name(), 1))).await;
    let verdict = Verdict::Succeeded { event: None, payload: json!({"receipt": "r-1"}) };
    assert_eq!((done, calls()), (Done { verdict, attempts: 1, facts: Vec::new(), trace: None }, 1));
}

#[tokio::test]
async fn a_lost_answer_is_asked_for_even_when_there_is_no_next_attempt() {
    let policy = Policy { attempts: Some(1), ..Policy::default() };
    let (_, performer, _) = stage(policy.clone(), Probe::Done(Reply::default()), lost);
    assert_eq!(failure(&performer.perform(&item(&name(), 1)).await).0, "succeeded");
    let (_, performer, _) = stage(policy.clone(), Probe::NotDone, lost);
    assert_eq!(failure(&performer.perform(&item(&name(), 1)).await).0, "failed");
}

#[tokio::test]
async fn after_a_crash_the_upstream_is_asked_before_it_is_done_again() {
    let (_, performer, calls) = stage(Policy::default(), Probe::Done(Reply::default()), ill);
    let done = performer.resume(&item(&name(), 1)).await;
    assert_eq!((failure(&done).0, done.attempts, calls()), ("succeeded", 0, 0));
}

#[tokio::test]
async fn many_wait_while_the_breaker_is_open_and_one_finds_out() {
    let options = breaker::Options { failures: 1, rate: None, open_for: Duration::from_secs(5) };
    let policy = Policy { breaker: Some(options), ..Policy::default() };
    let (clock, performer, calls) =
        stage(policy, Probe::Unknown, |n| if n == 1 { ill(n) } else { Ok(Reply::default()) });
    let tasks: Vec<_> = (1..=50)
        .map(|n| {
            let performer = Arc::clone(&performer);
            tokio::spawn(async move { performer.perform(&item(&name(), n)).await })
        })
        .collect();
    // One in its pause; each of the others has two timers, for the breaker and for the deadline.
    clock.until_sleeping(1 + 49 * 2).await;
    assert_eq!((calls(), performer.condition().breaker), (1, Some(State::Open)));
    for task in tasks {
        let done = passing(&clock, task).await.unwrap();
        assert_eq!(failure(&done).0, "succeeded");
    }
    assert_eq!((calls(), performer.condition().opened), (51, 1));
}

#[tokio::test]
async fn who_waits_at_an_open_breaker_gives_up_at_the_deadline() {
    let options = breaker::Options { failures: 1, rate: None, open_for: Duration::from_hours(1) };
    let policy = Policy { breaker: Some(options), attempts: Some(2), ..Policy::default() };
    let (clock, performer, calls) = stage(policy, Probe::Unknown, ill);
    let first = WorkItem { deadline: Some(START.after(Duration::from_mins(1))), ..item(&name(), 1) };
    passing(&clock, performer.perform(&first)).await;
    let second = WorkItem { deadline: Some(START.after(Duration::from_secs(90))), ..item(&name(), 2) };
    let done = passing(&clock, performer.perform(&second)).await;
    let text = "the deadline passed: the breaker of payments is open (deadline_passed)".to_owned();
    assert_eq!(
        (failure(&done), calls(), clock.now()),
        (("timed out", text), 1, START.after(Duration::from_secs(90)))
    );
}

#[tokio::test]
async fn a_flapping_upstream_loses_nothing_and_reuses_no_key() {
    let seen = Arc::new(Mutex::new(std::collections::BTreeMap::<uuid::Uuid, u32>::new()));
    let upstream = {
        let (seen, calls) = (Arc::clone(&seen), AtomicU32::new(0));
        Native::new().plain("payments.charge", move |call| {
            let nth = calls.fetch_add(1, Ordering::SeqCst);
            if nth / 100 % 3 == 1 {
                return Err(Refusal::retry("ill", "down for a hundred calls"));
            }
            *seen.lock().unwrap().entry(call.item.id).or_default() += 1;
            Ok(Value::Null)
        })
    };
    let options = breaker::Options { failures: 5, rate: None, open_for: Duration::from_secs(1) };
    let policy = Policy { breaker: Some(options), concurrency: 16, deadline: None, ..Policy::default() };
    let clock = SimClock::new(START);
    let performer =
        Performer::new(upstream.upstream("payments", policy), Arc::clone(&clock) as Arc<dyn Clock>);
    let tasks: Vec<_> = (1..=2_000)
        .map(|n| {
            let performer = Arc::clone(&performer);
            tokio::spawn(async move { performer.perform(&item(&name(), n)).await })
        })
        .collect();
    for task in tasks {
        assert_eq!(failure(&passing(&clock, task).await.unwrap()).0, "succeeded");
    }
    let seen = seen.lock().unwrap();
    assert_eq!((seen.len(), seen.values().max()), (2_000, Some(&1)));
    assert!(performer.condition().opened > 3 && performer.condition().in_flight == 0);
}

#[tokio::test]
async fn a_function_that_panics_is_tried_again_and_then_given_up() {
    let native = Native::new().effect("payments.charge", |call| async move {
        assert!(call.payload["card"].is_string(), "no such card");
        Ok(Value::Null)
    });
    let policy = Policy { attempts: Some(2), ..Policy::in_process() };
    let clock = SimClock::new(START);
    let performer = Performer::new(native.upstream("native", policy), Arc::clone(&clock) as Arc<dyn Clock>);
    let done = passing(&clock, performer.perform(&item(&name(), 1))).await;
    let (kind, text) = failure(&done);
    assert_eq!((kind, done.attempts), ("timed out", 2));
    assert!(text.contains("the function of payments.charge panicked: no such card"), "{text}");
}

#[tokio::test]
async fn typed_functions_refuse_arguments_that_do_not_fit() {
    #[derive(serde::Deserialize)]
    struct Charge {
        amount: u32,
    }
    let native = Native::new()
        .typed("payments.charge", |charge: Charge, _| async move { Ok(charge.amount * 2) })
        .typed("payments.refund", |text: String, _| async move { Ok(text) });
    let upstream = native.upstream("native", Policy::in_process());
    let performer = Performer::new(upstream, SimClock::new(START));
    let done = performer.perform(&item(&name(), 1)).await;
    assert_eq!(done.verdict, Verdict::Succeeded { event: None, payload: json!(250) });
    let done = performer.perform(&item(&EffectName::new("payments.refund").unwrap(), 1)).await;
    let (kind, text) = failure(&done);
    assert!(kind == "failed" && text.contains("arguments of payments.refund: invalid type"), "{text}");
}

#[derive(Default)]
struct Ear {
    endings: Mutex<Vec<Ending>>,
    states: Mutex<Vec<State>>,
}

impl Observer for Ear {
    fn attempted(&self, attempted: &Attempted<'_>) {
        assert_eq!(attempted.upstream, "payments");
        self.endings.lock().expect("whole").push(attempted.ending);
    }

    fn breaker_changed(&self, _: &str, state: State) {
        self.states.lock().expect("whole").push(state);
    }
}

#[tokio::test]
async fn an_observer_hears_of_attempts_and_of_the_breaker() {
    let (ear, clock, calls) = (Arc::new(Ear::default()), SimClock::new(START), AtomicU32::new(0));
    let native =
        Native::new().plain("payments.charge", move |_| match calls.fetch_add(1, Ordering::SeqCst) {
            0 => Err(Refusal::busy("busy", "later")),
            1 => Err(Refusal::retry("ill", "down")),
            _ => Ok(Value::Null),
        });
    let options = breaker::Options { failures: 1, ..breaker::Options::default() };
    let upstream = native.upstream("payments", Policy { breaker: Some(options), ..Policy::default() });
    let performer = Performer::observed(
        upstream,
        Arc::clone(&clock) as Arc<dyn Clock>,
        Arc::clone(&ear) as Arc<dyn Observer>,
    );
    passing(&clock, performer.perform(&item(&name(), 1))).await;
    assert_eq!(*ear.endings.lock().unwrap(), [Ending::Busy, Ending::Down, Ending::Done]);
    assert_eq!(*ear.states.lock().unwrap(), [State::Open, State::HalfOpen, State::Closed]);
}

#[tokio::test]
async fn a_catalog_knows_who_performs_what_and_what_nobody_does() {
    let clock: Arc<dyn Clock> = SimClock::new(START);
    let silent: Arc<dyn Observer> = Arc::new(Silent);
    let native = || Native::new().plain("payments.charge", |_| Ok(Value::Null));
    let upstreams = vec![native().upstream("a", Policy::in_process())];
    let catalog = Catalog::new(upstreams, &clock, &silent).unwrap();
    assert_eq!(catalog.effects(), [("payments.charge".to_owned(), vec!["a".to_owned()])]);
    assert_eq!(failure(&catalog.perform(&item(&name(), 1)).await).0, "succeeded");
    let unknown = catalog.perform(&item(&EffectName::new("payments.chrge").unwrap(), 1)).await;
    let text =
        "no upstream performs payments.chrge; did you mean payments.charge? (effect_unknown)".to_owned();
    assert_eq!(failure(&unknown), ("failed", text));
    let twice = ["a", "b"].map(|name| native().upstream(name, Policy::in_process())).into();
    let error = Catalog::new(twice, &clock, &silent).err().unwrap();
    assert_eq!(
        error.to_string(),
        r#"the effect payments.charge is performed by "a" and by "b"; remove it from one"#
    );
}

#[tokio::test]
async fn the_deadline_counts_from_the_transition_and_survives_a_crash() {
    let policy = Policy { deadline: Some(Duration::from_mins(10)), ..Policy::default() };
    let (clock, performer, calls) = stage(policy.clone(), Probe::Unknown, ill);
    clock.advance_to(START.after(Duration::from_mins(9)));
    let done = passing(&clock, performer.resume(&item(&name(), 1))).await;
    assert_eq!((failure(&done).0, calls() > 0), ("timed out", true));
    assert!(clock.now() <= START.after(Duration::from_mins(10)));
    let (clock, performer, calls) = stage(policy, Probe::Unknown, ill);
    clock.advance_to(START.after(Duration::from_mins(10)));
    let done = passing(&clock, performer.resume(&item(&name(), 1))).await;
    assert_eq!((failure(&done).0, calls()), ("timed out", 0));
}

#[tokio::test]
async fn what_is_in_doubt_is_not_tried_again_where_the_policy_says_so() {
    let policy = Policy { in_doubt: InDoubt::Fail, ..Policy::default() };
    let (clock, performer, calls) = stage(policy.clone(), Probe::Unknown, lost);
    let done = passing(&clock, performer.perform(&item(&name(), 1))).await;
    let (kind, text) = failure(&done);
    assert_eq!((kind, calls()), ("timed out", 1));
    assert!(text.contains("(in_doubt)") && text.contains("connection reset"), "{text}");
    let (clock, performer, calls) =
        stage(policy.clone(), Probe::NotDone, |n| if n < 3 { lost(n) } else { Ok(Reply::default()) });
    let done = passing(&clock, performer.perform(&item(&name(), 1))).await;
    assert_eq!((failure(&done).0, calls()), ("succeeded", 3));
    let (_, performer, calls) = stage(policy, Probe::Unknown, ill);
    assert_eq!((failure(&performer.resume(&item(&name(), 1)).await).0, calls()), ("timed out", 0));
}

/// An item of which the definition says something.
fn saying(word: InDoubt) -> WorkItem {
    let mut item = item(&name(), 1);
    if let Work::Effect(effect) = &mut item.work {
        effect.in_doubt = Some(word);
    }
    item
}

#[tokio::test]
async fn the_word_of_the_definition_about_doubt_comes_before_the_policy() {
    let policy = |in_doubt| Policy { in_doubt, attempts: Some(3), ..Policy::default() };
    for word in [InDoubt::Ask, InDoubt::Fail] {
        let (clock, performer, calls) = stage(policy(InDoubt::Retry), Probe::Unknown, lost);
        let (kind, text) = failure(&passing(&clock, performer.perform(&saying(word))).await);
        assert_eq!((kind, calls(), text.contains("(in_doubt)")), ("timed out", 1, true), "{text}");
        assert!(text.contains(&saying(word).id.to_string()), "{text}");
    }
    let (clock, performer, calls) = stage(policy(InDoubt::Fail), Probe::Unknown, lost);
    let (kind, text) = failure(&passing(&clock, performer.perform(&saying(InDoubt::Retry))).await);
    assert_eq!((kind, calls(), text.contains("(transport)")), ("timed out", 3, true), "{text}");
}

#[tokio::test]
async fn the_last_attempt_leaves_a_doubt_too_unless_the_upstream_knows() {
    let once = Policy { attempts: Some(1), ..Policy::default() };
    let (clock, performer, calls) = stage(once.clone(), Probe::Unknown, lost);
    let (_, text) = failure(&passing(&clock, performer.perform(&saying(InDoubt::Ask))).await);
    assert!(calls() == 1 && text.contains("(in_doubt)"), "{text}");
    let (clock, performer, _) = stage(once.clone(), Probe::NotDone, lost);
    let (kind, text) = failure(&passing(&clock, performer.perform(&saying(InDoubt::Ask))).await);
    assert!(kind == "failed" && text.contains("(transport)"), "{text}");
    let (clock, performer, _) = stage(once, Probe::Done(Reply::default()), lost);
    let done = passing(&clock, performer.perform(&saying(InDoubt::Ask))).await;
    assert_eq!(failure(&done).0, "succeeded");
}

#[tokio::test]
async fn no_more_attempts_begin_than_the_rate_allows() {
    let rate =
        Rate { count: NonZeroU32::new(10).unwrap(), per: Duration::from_secs(1), burst: NonZeroU32::MIN };
    let (clock, performer, calls) =
        stage(Policy { rate: Some(rate), ..Policy::default() }, Probe::Unknown, |_| Ok(Reply::default()));
    let items: Vec<_> = (1..=21).map(|n| item(&name(), n)).collect();
    let all = futures::future::join_all(items.iter().map(|item| performer.perform(item)));
    passing(&clock, all).await;
    assert_eq!((calls(), clock.now()), (21, START.after(Duration::from_secs(2))));
}

#[tokio::test]
async fn retries_wait_for_the_budget_and_first_attempts_do_not() {
    let budget = retry_budget::Options { percent: 10, per_second: 1, saved: 1 };
    let policy = Policy { budget: Some(budget), breaker: None, deadline: None, ..Policy::default() };
    let (clock, performer, calls) =
        stage(policy, Probe::Unknown, |n| if n <= 100 { ill(n) } else { Ok(Reply::default()) });
    let items: Vec<_> = (1..=50).map(|n| item(&name(), n)).collect();
    let all = futures::future::join_all(items.iter().map(|item| performer.perform(item)));
    let done = passing(&clock, all).await;
    assert!(done.iter().all(|done| failure(done).0 == "succeeded"));
    let retries = u64::from(calls()) - 50;
    let allowed = 1 + 5 + clock.now().since(START).as_secs();
    assert_eq!((retries, retries <= allowed), (100, true), "{retries} of {allowed}");
}

#[tokio::test]
async fn a_retired_performer_hands_over_what_waits_and_ends_what_it_does() {
    let breaker = breaker::Options { failures: 1, rate: None, open_for: Duration::from_hours(1) };
    let (_, performer, calls) =
        stage(Policy { breaker: Some(breaker), ..Policy::default() }, Probe::Unknown, lost);
    let item = item(&name(), 1);
    let mut first = item.clone();
    let mut waiting = std::pin::pin!(performer.go_on(&mut first, Progress::default()));
    assert!(futures::poll!(&mut waiting).is_pending());
    performer.retire();
    assert_eq!((waiting.await, calls()), (Err(Progress { attempts: 1, in_doubt: true }), 1));
    let late = performer.go_on(&mut item.clone(), Progress { attempts: 4, in_doubt: false }).await;
    assert_eq!(late, Err(Progress { attempts: 4, in_doubt: false }));
}

#[tokio::test]
async fn ten_thousand_effects_at_a_flapping_upstream_are_all_done_within_the_budget() {
    let budget = retry_budget::Options { percent: 20, per_second: 50, saved: 100 };
    // A breaker that is open as long as the upstream's period would find it ill for ever.
    let breaker = breaker::Options { open_for: Duration::from_millis(700), ..breaker::Options::default() };
    let policy = Policy {
        budget: Some(budget),
        breaker: Some(breaker),
        deadline: None,
        concurrency: 64,
        ..Policy::default()
    };
    let clock = SimClock::new(START);
    let (keys, attempts) =
        (Arc::new(Mutex::new(std::collections::BTreeMap::new())), Arc::new(AtomicU32::new(0)));
    let (seen, counted, time) = (Arc::clone(&keys), Arc::clone(&attempts), Arc::clone(&clock));
    // Well for three seconds, ill for two, and so on; it takes note of who asked for what.
    let native = Native::new().plain("payments.charge", move |call: PlainCall<'_>| {
        counted.fetch_add(1, Ordering::SeqCst);
        let order = call.effect.payload["order"]["id"].clone();
        let earlier = seen.lock().unwrap().insert(call.item.id, order.clone());
        assert!(earlier.is_none_or(|earlier| earlier == order), "a key is used twice");
        let ill = time.now().since(START).as_secs() % 5 >= 3;
        if ill { Err(Refusal::retry("ill", "down")) } else { Ok(Value::Null) }
    });
    let performer = Performer::new(native.upstream("payments", policy), Arc::clone(&clock) as Arc<dyn Clock>);
    let rate = 1_000;
    let items: Vec<_> = (1..=10_000).map(|n| item(&name(), n)).collect();
    let arriving = items.iter().zip(0u64..).map(|(item, n)| {
        let (clock, performer) = (Arc::clone(&clock), Arc::clone(&performer));
        async move {
            clock.sleep_until(START.after(Duration::from_millis(n * 1000 / rate))).await;
            performer.perform(item).await
        }
    });
    let done = passing(&clock, futures::future::join_all(arriving)).await;
    assert!(done.iter().all(|done| failure(done).0 == "succeeded"), "one is lost");
    let (attempts, seconds) =
        (u64::from(attempts.load(Ordering::SeqCst)), clock.now().since(START).as_secs() + 1);
    assert_eq!(keys.lock().unwrap().len(), 10_000);
    assert!(attempts <= 10_000 + 2_000 + 50 * seconds + 100, "{attempts} attempts in {seconds} s");
}
