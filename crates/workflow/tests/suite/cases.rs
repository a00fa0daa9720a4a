//! Cases of all runners: the same workflow has the same result and the same calls. The tests of nodes include this file.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use orlog_workflow::{Context, Data, Failure, Retry, RunError, Task, TaskError, Workflow};

use super::tasks::{Order, calls, record, step, undo};

/// Executor of workflows.
pub(crate) trait Runner: Copy {
    /// Executes a workflow to its end.
    async fn run<In: Data, Out: Data>(
        self,
        workflow: &Workflow<In, Out>,
        input: In,
    ) -> Result<Out, RunError>;

    /// Starts a workflow, interacts with it when a condition holds, and waits for its end.
    async fn interact<In: Data, Out: Data>(
        self,
        workflow: &Workflow<In, Out>,
        input: In,
        interaction: Interaction,
        when: impl Fn() -> bool,
    ) -> Result<Out, RunError>;
}

/// Interaction with a running instance.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Interaction {
    Cancel,
    Signal(&'static str, u32),
}

/// Tests all cases with these runners.
macro_rules! suite {
    ($($name:ident => $runner:expr;)*) => {
        $(mod $name {
            use super::*;

            suite! { in $runner;
                steps_run_in_order_and_values_flow,
                branches_of_a_fork_are_joined,
                a_condition_selects_one_body,
                elements_keep_their_order,
                a_loop_ends_with_its_condition_or_fails_at_its_bound,
                a_child_workflow_is_a_part_of_its_parent,
                a_failure_compensates_completed_tasks_in_reverse_order,
                a_failure_in_a_branch_compensates_its_siblings,
                a_retried_task_succeeds,
                a_permanent_error_is_not_retried,
                a_panic_is_a_failure_of_its_task,
                a_timeout_drops_the_task_and_compensates_the_unknown_outcome,
                a_failing_compensation_makes_the_instance_stuck,
                a_compensation_has_its_own_attempts,
                a_delay_ends,
                a_signal_is_received,
                a_signal_times_out,
                an_empty_list_has_an_empty_result,
            }
        })*
    };
    (in $runner:expr; $($name:ident,)*) => {
        $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
        async fn $name() {
            cases::$name($runner).await;
        })*
    };
}

/// Requirements: S1, S2.
pub(crate) async fn steps_run_in_order_and_values_flow(runner: impl Runner) {
    let workflow = Workflow::builder("sequence")
        .then("a", step)
        .then("b", step)
        .map(
            "count",
            |order: Order| async move { Ok(order.parcels.len()) },
        )
        .build()
        .expect("valid");
    let order = Order::new();
    let key = order.key.clone();
    assert_eq!(runner.run(&workflow, order).await.expect("completes"), 3);
    assert_eq!(calls(&key), ["a", "b"]);
}

/// Requirements: S1.
pub(crate) async fn branches_of_a_fork_are_joined(runner: impl Runner) {
    let workflow = Workflow::builder("fork")
        .fork(|f| {
            f.branch("a", step)
                .branch_with("b", |b| {
                    b.then("b1", step)
                        .map("b2", |order: Order| async move { Ok(order.parcels) })
                })
                .branch("c", step)
        })
        .join("join", |(a, b, c): (Order, Vec<u32>, Order)| async move {
            Ok((a.key, b, c.express))
        })
        .build()
        .expect("valid");
    let order = Order::new();
    let key = order.key.clone();
    assert_eq!(
        runner.run(&workflow, order).await.expect("completes"),
        (key.clone(), vec![1, 2, 3], true)
    );
    let mut calls = calls(&key);
    calls.sort();
    assert_eq!(calls, ["a", "b1", "c"]);
}

pub(crate) async fn a_condition_selects_one_body(runner: impl Runner) {
    for express in [true, false] {
        let workflow = Workflow::builder("when")
            .when(
                "express",
                |order: &Order| order.express,
                |b| b.then("courier", step),
            )
            .otherwise(|b| b.then("post", step).then("wait", step))
            .build()
            .expect("valid");
        let order = Order {
            express,
            ..Order::new()
        };
        let key = order.key.clone();
        runner.run(&workflow, order).await.expect("completes");
        assert_eq!(
            calls(&key),
            if express {
                vec!["courier"]
            } else {
                vec!["post", "wait"]
            }
        );
    }
}

async fn weigh(context: &Context, parcel: u32) -> Result<(u32, String), TaskError> {
    Ok((parcel * 10, context.idempotency_key()))
}

pub(crate) async fn elements_keep_their_order(runner: impl Runner) {
    let workflow = Workflow::builder("each")
        .each(
            "parcels",
            |order: &Order| order.parcels.clone(),
            |b| b.then("weigh", weigh),
        )
        .build()
        .expect("valid");
    let order = Order {
        parcels: (0..20).collect(),
        ..Order::new()
    };
    let results = runner.run(&workflow, order).await.expect("completes");
    assert_eq!(
        results
            .iter()
            .map(|(weight, _)| *weight)
            .collect::<Vec<_>>(),
        (0..20).map(|n| n * 10).collect::<Vec<_>>()
    );
    let keys: BTreeSet<_> = results.iter().map(|(_, key)| key).collect();
    assert_eq!(keys.len(), 20, "each element has its own key");
}

pub(crate) async fn an_empty_list_has_an_empty_result(runner: impl Runner) {
    let workflow = Workflow::builder("empty")
        .each(
            "parcels",
            |order: &Order| order.parcels.clone(),
            |b| b.then("weigh", weigh),
        )
        .build()
        .expect("valid");
    assert_eq!(
        runner
            .run(
                &workflow,
                Order {
                    parcels: vec![],
                    ..Order::new()
                }
            )
            .await
            .expect("completes"),
        []
    );
}

pub(crate) async fn a_loop_ends_with_its_condition_or_fails_at_its_bound(runner: impl Runner) {
    for (rounds, expected) in [(3, Some(3)), (2, None)] {
        let workflow = Workflow::builder("loop")
            .repeat(
                "poll",
                rounds,
                |count: &u32| *count < 3,
                |b| b.map("add", |count: u32| async move { Ok(count + 1) }),
            )
            .build()
            .expect("valid");
        match (runner.run(&workflow, 0).await, expected) {
            (Ok(count), Some(expected)) => assert_eq!(count, expected),
            (Err(RunError::Failed(Failure::LoopBound { step, rounds })), None) => {
                assert_eq!((&*step, rounds), ("poll", 2));
            }
            (other, _) => panic!("{other:?}"),
        }
    }
}

pub(crate) async fn a_child_workflow_is_a_part_of_its_parent(runner: impl Runner) {
    let child = Workflow::builder("ship")
        .then("label", step)
        .undo(undo)
        .then("send", step)
        .build()
        .expect("valid");
    let workflow = Workflow::builder("parent")
        .then("pack", step)
        .undo(undo)
        .child("ship", &child)
        .then("charge", step)
        .build()
        .expect("valid");
    let order = Order::failing("charge");
    let key = order.key.clone();
    runner.run(&workflow, order).await.expect_err("fails");
    assert_eq!(
        calls(&key),
        [
            "pack",
            "ship/label",
            "ship/send",
            "charge fails",
            "undo ship/label",
            "undo pack"
        ]
    );
}

/// Requirements: T3.
pub(crate) async fn a_failure_compensates_completed_tasks_in_reverse_order(runner: impl Runner) {
    let workflow = Workflow::builder("undo")
        .then("a", step)
        .undo(undo)
        .then("b", step)
        .then("c", step)
        .undo(undo)
        .then("d", step)
        .undo(undo)
        .build()
        .expect("valid");
    let order = Order::failing("d");
    let key = order.key.clone();
    match runner.run(&workflow, order).await {
        Err(RunError::Failed(Failure::TaskFailed {
            step,
            message,
            attempts,
        })) => {
            assert_eq!((&*step, &*message, attempts), ("d", "out of stock", 1));
        }
        other => panic!("{other:?}"),
    }
    assert_eq!(calls(&key), ["a", "b", "c", "d fails", "undo c", "undo a"]);
}

pub(crate) async fn a_failure_in_a_branch_compensates_its_siblings(runner: impl Runner) {
    let workflow = Workflow::builder("siblings")
        .then("first", step)
        .undo(undo)
        .fork(|f| {
            f.branch("good", step).undo(undo).branch_with("bad", |b| {
                // The sibling completes before this branch fails.
                b.map("wait", |order: Order| async move {
                    orlog_testkit::wait::until("the sibling completes", || async {
                        calls(&order.key).contains(&"good".to_owned()).then_some(())
                    })
                    .await;
                    Ok(order)
                })
                .then("fail", step)
            })
        })
        .join("join", |(good, _): (Order, Order)| async move { Ok(good) })
        .build()
        .expect("valid");
    let order = Order::failing("fail");
    let key = order.key.clone();
    runner.run(&workflow, order).await.expect_err("fails");
    assert_eq!(
        calls(&key),
        ["first", "good", "fail fails", "undo good", "undo first"]
    );
}

/// Task that fails a number of times.
struct Flaky {
    failures: u32,
    calls: Arc<AtomicU32>,
}

impl Flaky {
    fn new(failures: u32) -> (Self, Arc<AtomicU32>) {
        let calls = Arc::new(AtomicU32::new(0));
        (
            Self {
                failures,
                calls: Arc::clone(&calls),
            },
            calls,
        )
    }
}

impl Task<u32> for Flaky {
    type Out = u32;

    async fn run(&self, context: &Context, input: u32) -> Result<u32, TaskError> {
        let call = self.calls.fetch_add(1, Ordering::SeqCst) + 1;
        assert_eq!(context.attempt(), call);
        if call <= self.failures {
            Err(TaskError::retryable("unavailable"))
        } else {
            Ok(input + call)
        }
    }
}

pub(crate) async fn a_retried_task_succeeds(runner: impl Runner) {
    let (flaky, calls) = Flaky::new(2);
    let retry = Retry::attempts(3).delay(Duration::from_millis(1));
    let workflow = Workflow::builder("retry")
        .then("flaky", flaky)
        .retry(retry)
        .build()
        .expect("valid");
    assert_eq!(runner.run(&workflow, 10).await.expect("completes"), 13);
    assert_eq!(calls.load(Ordering::SeqCst), 3);
}

pub(crate) async fn a_permanent_error_is_not_retried(runner: impl Runner) {
    let workflow = Workflow::builder("permanent")
        .then("a", step)
        .retry(Retry::attempts(5))
        .build()
        .expect("valid");
    let order = Order::failing("a");
    let key = order.key.clone();
    runner.run(&workflow, order).await.expect_err("fails");
    assert_eq!(calls(&key), ["a fails"]);
}

pub(crate) async fn a_panic_is_a_failure_of_its_task(runner: impl Runner) {
    let workflow = Workflow::builder("panic")
        .then("a", step)
        .undo(undo)
        .map("boom", |order: Order| async move {
            assert!(!order.express, "boom");
            Ok(order)
        })
        .build()
        .expect("valid");
    let order = Order::new();
    let key = order.key.clone();
    match runner.run(&workflow, order).await {
        Err(RunError::Failed(Failure::TaskFailed { step, message, .. })) => {
            assert_eq!((&*step, &*message), ("boom", "panicked: boom"));
        }
        other => panic!("{other:?}"),
    }
    assert_eq!(calls(&key), ["a", "undo a"]);
}

struct RecordDrop(String);

impl Drop for RecordDrop {
    fn drop(&mut self) {
        record(&self.0, "dropped");
    }
}

/// Task that never ends.
pub(crate) async fn hang(context: &Context, order: Order) -> Result<Order, TaskError> {
    order.call(context)?;
    let _dropped = RecordDrop(order.key.clone());
    std::future::pending().await
}

pub(crate) async fn undo_unknown(context: &Context, order: Order) -> Result<(), TaskError> {
    record(&order.key, format!("undo unknown {}", context.step()));
    Ok(())
}

/// Requirements: S4.
pub(crate) async fn a_timeout_drops_the_task_and_compensates_the_unknown_outcome(
    runner: impl Runner,
) {
    let workflow = Workflow::builder("timeout")
        .then("a", step)
        .undo(undo)
        .then("hang", hang)
        .timeout(Duration::from_millis(20))
        .retry(Retry::attempts(3))
        .undo(undo)
        .undo_unknown(undo_unknown)
        .build()
        .expect("valid");
    let order = Order::new();
    let key = order.key.clone();
    match runner.run(&workflow, order).await {
        Err(RunError::Failed(Failure::TaskTimedOut { step, .. })) => assert_eq!(step, "hang"),
        other => panic!("{other:?}"),
    }
    assert_eq!(
        calls(&key),
        ["a", "hang", "dropped", "undo unknown hang", "undo a"]
    );
}

async fn failing_undo(context: &Context, order: Order, _: Order) -> Result<(), TaskError> {
    record(&order.key, format!("undo {} fails", context.step()));
    Err(TaskError::retryable("still shipping"))
}

pub(crate) async fn a_failing_compensation_makes_the_instance_stuck(runner: impl Runner) {
    let workflow = Workflow::builder("stuck")
        .then("a", step)
        .undo(undo)
        .then("b", step)
        .undo(failing_undo)
        .undo_retry(Retry::attempts(2).delay(Duration::from_millis(1)))
        .then("c", step)
        .build()
        .expect("valid");
    let order = Order::failing("c");
    let key = order.key.clone();
    match runner.run(&workflow, order).await {
        Err(RunError::Stuck(Failure::TaskFailed {
            step,
            message,
            attempts,
        })) => {
            assert_eq!((&*step, &*message, attempts), ("b", "still shipping", 2));
        }
        other => panic!("{other:?}"),
    }
    assert_eq!(
        calls(&key),
        ["a", "b", "c fails", "undo b fails", "undo b fails"]
    );
}

async fn flaky_undo(context: &Context, order: Order, _: Order) -> Result<(), TaskError> {
    record(&order.key, format!("undo attempt {}", context.attempt()));
    if context.attempt() < 3 {
        Err(TaskError::retryable("unavailable"))
    } else {
        Ok(())
    }
}

pub(crate) async fn a_compensation_has_its_own_attempts(runner: impl Runner) {
    let workflow = Workflow::builder("undo-retry")
        .then("a", step)
        .undo(flaky_undo)
        .undo_retry(Retry::attempts(3).delay(Duration::from_millis(1)))
        .then("b", step)
        .build()
        .expect("valid");
    let order = Order::failing("b");
    let key = order.key.clone();
    assert!(matches!(
        runner.run(&workflow, order).await,
        Err(RunError::Failed(_))
    ));
    assert_eq!(
        calls(&key),
        [
            "a",
            "b fails",
            "undo attempt 1",
            "undo attempt 2",
            "undo attempt 3"
        ]
    );
}

pub(crate) async fn a_delay_ends(runner: impl Runner) {
    let workflow = Workflow::builder("delay")
        .then("a", step)
        .delay("pause", Duration::from_millis(20))
        .then("b", step)
        .build()
        .expect("valid");
    let order = Order::new();
    let key = order.key.clone();
    runner.run(&workflow, order).await.expect("completes");
    assert_eq!(calls(&key), ["a", "b"]);
}

pub(crate) async fn a_signal_is_received(runner: impl Runner) {
    let workflow = Workflow::builder("signal")
        .then("a", step)
        .signal::<u32>("approval")
        .build()
        .expect("valid");
    let order = Order::new();
    let key = order.key.clone();
    let is_waiting = || calls(&key) == ["a"];
    let result = runner
        .interact(
            &workflow,
            order,
            Interaction::Signal("approval", 7),
            is_waiting,
        )
        .await;
    assert_eq!(result.expect("completes").1, 7);
}

pub(crate) async fn a_signal_times_out(runner: impl Runner) {
    let workflow = Workflow::builder("signal-timeout")
        .then("a", step)
        .undo(undo)
        .signal::<u32>("approval")
        .timeout(Duration::from_millis(20))
        .build()
        .expect("valid");
    let order = Order::new();
    let key = order.key.clone();
    match runner.run(&workflow, order).await {
        Err(RunError::Failed(Failure::SignalTimedOut { step, .. })) => assert_eq!(step, "approval"),
        other => panic!("{other:?}"),
    }
    assert_eq!(calls(&key), ["a", "undo a"]);
}
