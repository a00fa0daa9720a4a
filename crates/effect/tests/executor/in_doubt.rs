//! Attempts in doubt: probes, and the policy if the outcome stays unknown.

use super::*;

#[tokio::test]
async fn lost_response_is_probed_before_a_retry() {
    let found = Reply::from(json!({"receipt": "r-1"}));
    let (clock, executor, calls) = stage(Policy::default(), ProbeResult::Done(found), lost);
    let done = run_with_clock(&clock, executor.execute(&item(&name(), 1))).await;
    let outcome = WorkOutcome::succeeded(None, json!({"receipt": "r-1"}));
    assert_eq!((done.outcome, done.attempts, calls()), (outcome, 1, 1));
}

#[tokio::test]
async fn lost_response_is_probed_after_the_last_attempt() {
    let policy = Policy {
        max_attempts: Some(1),
        ..Policy::default()
    };
    let (_, executor, _) = stage(policy.clone(), ProbeResult::Done(Reply::default()), lost);
    assert_eq!(
        failure(&executor.execute(&item(&name(), 1)).await).0,
        "succeeded"
    );
    let (_, executor, _) = stage(policy.clone(), ProbeResult::NotDone, lost);
    assert_eq!(
        failure(&executor.execute(&item(&name(), 1)).await).0,
        "failed"
    );
}

#[tokio::test]
async fn upstream_is_probed_after_a_crash() {
    let (_, executor, calls) = stage(
        Policy::default(),
        ProbeResult::Done(Reply::default()),
        unhealthy,
    );
    let done = executor.resume(&item(&name(), 1)).await;
    assert_eq!(
        (failure(&done).0, done.attempts, calls()),
        ("succeeded", 0, 0)
    );
}

fn unanswered() -> ProbeResult {
    ProbeResult::from_error(ProviderError::unavailable(
        "unreachable",
        "connection refused",
    ))
}

/// Requirements: R10.
#[tokio::test]
async fn unanswered_probes_of_the_last_attempt_end_in_a_timeout() {
    let policy = Policy {
        max_attempts: Some(1),
        ..Policy::default()
    };
    let (clock, executor, calls) = stage(policy, unanswered(), lost);
    let done = run_with_clock(&clock, executor.execute(&item(&name(), 1))).await;
    assert_eq!(
        (failure(&done).0, done.attempts, calls()),
        ("timed out", 1, 1)
    );
    assert!(
        clock.now() > START.saturating_add(Duration::from_secs(2)),
        "the probe is repeated"
    );
}

/// Requirements: R10.
#[tokio::test]
async fn unanswered_probes_end_before_the_deadline_or_are_followed_by_an_attempt() {
    let (clock, executor, calls) = stage(Policy::default(), unanswered(), |_| Ok(Reply::default()));
    let done = run_with_clock(&clock, executor.resume(&item(&name(), 1))).await;
    assert_eq!(
        (failure(&done).0, done.attempts, calls()),
        ("succeeded", 1, 1),
        "the policy is retry"
    );
    let strict = Policy {
        in_doubt: InDoubtPolicy::Fail,
        ..Policy::default()
    };
    let (clock, executor, calls) = stage(strict, unanswered(), |_| Ok(Reply::default()));
    let deadline = START.saturating_add(Duration::from_secs(3));
    let item = WorkItem {
        deadline: Some(deadline),
        ..item(&name(), 1)
    };
    let done = run_with_clock(&clock, executor.resume(&item)).await;
    let (kind, text) = failure(&done);
    assert_eq!((kind, calls()), ("timed out", 0));
    assert!(
        text.contains("probes without an answer: unreachable: connection refused"),
        "{text}"
    );
    assert!(clock.now() <= deadline);
}

/// Requirements: R10.
#[tokio::test]
async fn observer_receives_the_outcome_of_each_probe() {
    let (clock, observer) = (SimClock::new(START), Arc::new(RecordingObserver::default()));
    let answers = Mutex::new(vec![ProbeResult::NotDone, unanswered()]);
    let native = FunctionProvider::new()
        .sync_effect("payments.charge", |_| Ok(Value::Null))
        .probe("payments.charge", move |_| {
            let answer = answers.lock().pop().expect("two probes are enough");
            async move { answer }
        });
    let executor = EffectExecutor::with_observer(
        native.upstream("payments", Policy::default()),
        Arc::clone(&clock) as Arc<dyn Clock>,
        Arc::clone(&observer) as Arc<dyn EffectObserver>,
    );
    run_with_clock(&clock, executor.resume(&item(&name(), 1))).await;
    let probes = observer.probes.lock();
    assert_eq!(
        *probes,
        [ProbeOutcome::Unanswered, ProbeOutcome::NotExecuted]
    );
}

/// An attempt that examined an earlier one and cannot determine its outcome.
///
/// Requirements: R10.
#[tokio::test]
async fn undetermined_attempt_applies_the_policy_without_a_probe() {
    let undetermined = |_| Err(ProviderError::undetermined("ledger", "the ledger is gone"));
    let strict = Policy {
        in_doubt: InDoubtPolicy::Fail,
        ..Policy::default()
    };
    let (_, executor, calls) = stage(strict, ProbeResult::Pending, undetermined);
    let (kind, text) = failure(&executor.resume(&item(&name(), 1)).await);
    assert_eq!((kind, calls()), ("timed out", 1));
    assert!(
        text.contains("(in_doubt)") && text.contains("the ledger is gone"),
        "{text}"
    );
    let (clock, executor, calls) = stage(Policy::default(), ProbeResult::Pending, move |n| {
        if n < 3 {
            undetermined(n)
        } else {
            Ok(Reply::default())
        }
    });
    let done = run_with_clock(&clock, executor.resume(&item(&name(), 1))).await;
    assert_eq!((failure(&done).0, calls()), ("succeeded", 3));
}

#[tokio::test]
async fn in_doubt_policy_prevents_a_retry() {
    let policy = Policy {
        in_doubt: InDoubtPolicy::Fail,
        ..Policy::default()
    };
    let (clock, executor, calls) = stage(policy.clone(), ProbeResult::Unknown, lost);
    let done = run_with_clock(&clock, executor.execute(&item(&name(), 1))).await;
    let (kind, text) = failure(&done);
    assert_eq!((kind, calls()), ("timed out", 1));
    assert!(
        text.contains("(in_doubt)") && text.contains("connection reset"),
        "{text}"
    );
    let (clock, executor, calls) = stage(policy.clone(), ProbeResult::NotDone, |n| {
        if n < 3 { lost(n) } else { Ok(Reply::default()) }
    });
    let done = run_with_clock(&clock, executor.execute(&item(&name(), 1))).await;
    assert_eq!((failure(&done).0, calls()), ("succeeded", 3));
    let (_, executor, calls) = stage(policy, ProbeResult::Unknown, unhealthy);
    assert_eq!(
        (
            failure(&executor.resume(&item(&name(), 1)).await).0,
            calls()
        ),
        ("timed out", 0)
    );
}

/// Creates an item with an `in_doubt` policy of the definition.
fn item_with_policy(in_doubt: InDoubtPolicy) -> WorkItem {
    let mut item = item(&name(), 1);
    if let Work::Effect(effect) = &mut item.work {
        effect.in_doubt = Some(in_doubt);
    }
    item
}

#[tokio::test]
async fn in_doubt_of_the_definition_overrides_the_policy() {
    let policy = |in_doubt| Policy {
        in_doubt,
        max_attempts: Some(3),
        ..Policy::default()
    };
    for word in [InDoubtPolicy::Ask, InDoubtPolicy::Fail] {
        let (clock, executor, calls) =
            stage(policy(InDoubtPolicy::Retry), ProbeResult::Unknown, lost);
        let (kind, text) =
            failure(&run_with_clock(&clock, executor.execute(&item_with_policy(word))).await);
        assert_eq!(
            (kind, calls(), text.contains("(in_doubt)")),
            ("timed out", 1, true),
            "{text}"
        );
        assert!(
            text.contains(&item_with_policy(word).id.to_string()),
            "{text}"
        );
    }
    let (clock, executor, calls) = stage(policy(InDoubtPolicy::Fail), ProbeResult::Unknown, lost);
    let (kind, text) = failure(
        &run_with_clock(
            &clock,
            executor.execute(&item_with_policy(InDoubtPolicy::Retry)),
        )
        .await,
    );
    assert_eq!(
        (kind, calls(), text.contains("(transport)")),
        ("timed out", 3, true),
        "{text}"
    );
}

#[tokio::test]
async fn last_attempt_is_in_doubt_unless_probed() {
    let once = Policy {
        max_attempts: Some(1),
        ..Policy::default()
    };
    let (clock, executor, calls) = stage(once.clone(), ProbeResult::Unknown, lost);
    let (_, text) = failure(
        &run_with_clock(
            &clock,
            executor.execute(&item_with_policy(InDoubtPolicy::Ask)),
        )
        .await,
    );
    assert!(calls() == 1 && text.contains("(in_doubt)"), "{text}");
    let (clock, executor, _) = stage(once.clone(), ProbeResult::NotDone, lost);
    let (kind, text) = failure(
        &run_with_clock(
            &clock,
            executor.execute(&item_with_policy(InDoubtPolicy::Ask)),
        )
        .await,
    );
    assert!(kind == "failed" && text.contains("(transport)"), "{text}");
    let (clock, executor, _) = stage(once, ProbeResult::Done(Reply::default()), lost);
    let done = run_with_clock(
        &clock,
        executor.execute(&item_with_policy(InDoubtPolicy::Ask)),
    )
    .await;
    assert_eq!(failure(&done).0, "succeeded");
}

/// A proxy can send the rejection, or the upstream rejects what it has already executed.
#[tokio::test]
async fn rejection_of_an_attempt_leaves_an_earlier_one_in_doubt() {
    let then_rejected = |number: u32| match number {
        1 => lost(number),
        _ => Err(ProviderError::permanent("http_404", "gone").of_attempt()),
    };

    let (clock, executor, _) = stage(Policy::default(), ProbeResult::Unknown, then_rejected);
    let done = run_with_clock(&clock, executor.execute(&item(&name(), 1))).await;
    let text = "payments: timed out after 2 attempts; last: gone (http_404)";
    assert_eq!(failure(&done), ("timed out", text.to_owned()));

    // A probe knows better.
    let (clock, executor, _) = stage(Policy::default(), ProbeResult::NotDone, then_rejected);
    let done = run_with_clock(&clock, executor.execute(&item(&name(), 1))).await;
    assert_eq!(failure(&done).0, "failed");
    let executed = ProbeResult::Done(Reply::default());
    let (clock, executor, _) = stage(Policy::default(), executed, then_rejected);
    let done = run_with_clock(&clock, executor.execute(&item(&name(), 1))).await;
    assert_eq!(failure(&done).0, "succeeded");

    // Without a doubt, the effect has failed.
    let rejected = |_: u32| Err(ProviderError::permanent("http_404", "gone").of_attempt());
    let (clock, executor, _) = stage(Policy::default(), ProbeResult::Unknown, rejected);
    let done = run_with_clock(&clock, executor.execute(&item(&name(), 1))).await;
    assert_eq!(failure(&done).0, "failed");

    // A function or a rule decides about the effect.
    let decided = |number: u32| match number {
        1 => lost(number),
        _ => Err(ProviderError::permanent("declined", "no money")),
    };
    let (clock, executor, _) = stage(Policy::default(), ProbeResult::Unknown, decided);
    let done = run_with_clock(&clock, executor.execute(&item(&name(), 1))).await;
    assert_eq!(failure(&done).0, "failed");
}
